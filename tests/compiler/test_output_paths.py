"""Where `-o` puts the results, and what stands in the way (a directory, a file, several models)."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., "subprocess.CompletedProcess[str]"]
SAMPLE = Path(__file__).resolve().parents[2] / "samples/digits/digits.onnx"


@pytest.fixture
def place(tmp_path: Path) -> Path:
    for name in ("a.onnx", "b.onnx"):
        shutil.copy(SAMPLE, tmp_path / name)
    (tmp_path / "file.om").write_bytes(b"mine")
    (tmp_path / "folder").mkdir()
    (tmp_path / "taken.om").mkdir()
    return tmp_path


@pytest.mark.parametrize(
    ("models", "output", "written"),
    [
        ("a", "out", ["out.om"]),
        ("a", "out.om", ["out.om"]),
        ("a", "foo.txt", ["foo.txt.om"]),
        ("a", "new/deep/out", ["new/deep/out.om"]),
        ("a", "new/", ["new/a.om"]),
        ("a", "folder", ["folder/a.om"]),
        ("a", "taken.om", ["taken.om/a.om"]),
        ("a", "file.om", ["file.om"]),
        ("ab", "new", ["new/a.om", "new/b.om"]),
        ("ab", "many.om", ["many.om/a.om", "many.om/b.om"]),
    ],
)
def test_every_form_of_output_has_its_files(
    models: str, output: str, written: list[str], gecli: Run, place: Path
) -> None:
    result = gecli("compile", *(f"{model}.onnx" for model in models), "-o", output)
    assert result.returncode == 0, result.stderr
    assert (
        sorted(
            str(path.relative_to(place)) for path in place.rglob("*.om") if path.stat().st_size > 100 and path.is_file()
        )
        == written
    )


def test_a_directory_with_the_name_of_a_file_is_pointed_out(gecli: Run, place: Path) -> None:
    line = "note=many.om is a directory: each of 2 models has a file in it"
    words = ["compile", "a.onnx", "b.onnx", "-o"]
    assert line in gecli(*words, "many.om").stdout.splitlines()
    assert "note=" not in gecli(*words, "many.om").stdout  # it exists now
    assert "note=" not in gecli(*words, "other.d/").stdout


@pytest.mark.parametrize(
    ("models", "output", "message", "do"),
    [
        ("ab", "file.om", "file.om is a file, not a directory", "-o DIR/"),
        ("a", "file.om/", "file.om is a file, not a directory", "-o FILE.om"),
        ("a", "file.om/deep/x", "file.om is a file, not a directory", "-o FILE.om"),
        ("a", "taken", "taken.om is a directory", "-o taken.om/"),
    ],
)
def test_what_stands_in_the_way_is_named_and_left_alone(
    models: str, output: str, message: str, do: str, gecli: Run, place: Path
) -> None:
    result = gecli("compile", *(f"{model}.onnx" for model in models), "-o", output)
    assert result.returncode == 5
    assert f"error[G6001]: the output cannot be written: {message}" in result.stderr
    assert f"  do:  {do}" in result.stderr.splitlines()
    assert (place / "file.om").read_bytes() == b"mine"


def test_a_dynamic_model_reports_no_figures_of_a_plan_that_it_does_not_have(gecli: Run, place: Path) -> None:
    dynamic = dict(line.split("=", 1) for line in gecli("compile", "a.onnx", "-o", "d").stdout.splitlines())
    static = gecli("compile", "a.onnx", "-o", "s", "--input-shape", "image:1,1,8,8").stdout
    assert dynamic["dynamic"] == "yes"
    assert "feature_bytes=" in static
    left_out = {"feature_bytes", "lower_bound_bytes", "no_reuse_bytes", "reusable_bytes", "zero_copy_bytes"}
    assert not left_out & set(dynamic)
    assert dynamic["weight_bytes"] != "0"
    assert dynamic["input.0"] == "image DT_FLOAT NCHW [-1,1,8,8]"


def test_a_front_end_named_by_number_is_reported_by_number(gecli: Run, place: Path) -> None:
    by_number = gecli("compile", "a.onnx", "-o", "d", "--framework", "3")
    assert by_number.returncode == 3
    assert "error[E10041]: --framework 3 (tf) contradicts the file" in by_number.stderr
    assert "do:  --framework 5, or leave the option out" in by_number.stderr
    assert (
        "error[E10041]: --from tf contradicts the file" in gecli("compile", "a.onnx", "-o", "d", "--from", "tf").stderr
    )


def test_run_and_inspect_om_call_an_output_alike(gecli: Run, place: Path) -> None:
    import json

    gecli("compile", "a.onnx", "-o", "d", "--input-shape", "image:1,1,8,8")
    (output,) = json.loads(gecli("inspect-om", "d.om", "--io", "--json").stdout)["outputs"]
    assert (output["name"], output["query_name"]) == ("probabilities", "softmax:0:probabilities")
    ran = json.loads(gecli("run", "d.om", "--json").stdout)
    assert ran["requests"][0]["outputs"][0]["name"] == "probabilities"
