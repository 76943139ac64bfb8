"""--json: one document on stdout, whatever the command does and however it ends."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., "subprocess.CompletedProcess[str]"]
SAMPLES = Path(__file__).resolve().parents[2] / "samples"
STATIC = "--input-shape image:1,1,8,8"


@pytest.mark.parametrize(
    ("line", "status", "schema"),
    [
        ("compil", 2, "gecli.gecli/1"),
        ("cache lss", 2, "gecli.cache/1"),
        ("cache", 2, "gecli.cache/1"),
        ("--nosuch", 2, "gecli.gecli/1"),
        ("", 0, "gecli.help/1"),
        ("--version", 0, "gecli.version/1"),
        ("compile --version", 0, "gecli.version/1"),
        ("compile --help", 0, "gecli.help/1"),
        ("completion bash", 0, "gecli.completion/1"),
        ("explain foo", 2, "gecli.explain/1"),
        ("compile digits.onnx -o -", 2, "gecli.compile/1"),
        (f"compile digits.onnx -o d {STATIC} --display-model-info 1", 0, "gecli.compile/1"),
        ("compile digits.onnx -o d --emit json --stop-after parse", 0, "gecli.emit/1"),
        ("compile digits.onnx copy.onnx --stop-after parse", 0, "gecli.graphs/1"),
        ("compile missing.onnx --stop-after parse", 3, "gecli.compile/1"),
        ("compile --mode 5 --om x.txt", 2, "gecli.compile/1"),
        ("inspect-om digits.onnx", 3, "gecli.inspect.error/1"),
        ("inspect-om --stats d.om", 2, "gecli.inspect.error/1"),
    ],
)
def test_stdout_is_one_document(line: str, status: int, schema: str, gecli: Run, tmp_path: Path) -> None:
    for name in ("digits.onnx", "copy.onnx"):
        shutil.copy(SAMPLES / "digits/digits.onnx", tmp_path / name)
    result = gecli(*line.split(), "--json")
    assert result.returncode == status, result.stderr
    document = json.loads(result.stdout)
    assert document["schema"] == schema
    assert ("errors" in document and bool(document["errors"])) is (status != 0)


def test_the_graph_of_one_model_is_the_document_itself(gecli: Run, tmp_path: Path) -> None:
    shutil.copy(SAMPLES / "digits/digits.onnx", tmp_path)
    graph = json.loads(gecli("compile", "digits.onnx", "--stop-after", "parse", "--json").stdout)
    (tmp_path / "again.json").write_text(json.dumps(graph))
    assert gecli("compile", "again.json", "--check").returncode == 0


@pytest.mark.parametrize(("other", "why"), [("--json", "its document"), ("--emit=json", "beside the OM")])
def test_an_om_on_stdout_excludes_what_else_writes_there(other: str, why: str, gecli: Run, tmp_path: Path) -> None:
    shutil.copy(SAMPLES / "digits/digits.onnx", tmp_path)
    result = gecli("compile", "digits.onnx", "-o", "-", other)
    assert result.returncode == 2
    assert "error[E10047]: -o - excludes" in result.stderr
    assert why in result.stderr


def test_the_published_schema_needs_no_model_and_accepts_a_sample(gecli: Run) -> None:
    import jsonschema

    result = gecli("compile", "--print-schema")
    assert (result.returncode, result.stderr) == (0, "")
    schema = json.loads(result.stdout)
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(json.loads((SAMPLES / "train/conv_train.json").read_text()), schema)


def test_json_that_is_no_graph_is_answered_with_the_way_to_the_schema(gecli: Run, tmp_path: Path) -> None:
    (tmp_path / "foo.json").write_text('{"a": 1}')
    result = gecli("compile", "foo.json", "-o", "x")
    assert result.returncode == 3
    assert "  do:  gecli compile --print-schema shows the form" in result.stderr
