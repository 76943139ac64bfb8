"""`gecli compile` as a process: outputs, names, statuses, reproducible bytes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
DIGITS = REPOSITORY / "samples/digits/digits.onnx"
TRAIN = REPOSITORY / "samples/train/conv_train.json"
EVAL = REPOSITORY / "samples/train/conv_eval.json"
SHAPE = ("--input-shape", "image:1,1,8,8")


def test_an_onnx_model_becomes_an_om_without_an_rdcpkt(gecli, tmp_path: Path) -> None:
    done = gecli("compile", str(DIGITS), "-o", "out/digits", *SHAPE)
    assert done.returncode == 0, done.stderr
    assert sorted(p.name for p in (tmp_path / "out").iterdir()) == ["digits.om"]
    assert "output=out/digits.om" in done.stdout
    assert "input.0=image DT_FLOAT NCHW [1,1,8,8]" in done.stdout


def test_a_graph_with_variables_gets_an_rdcpkt_beside_it(gecli, tmp_path: Path) -> None:
    done = gecli("compile", str(TRAIN), "-o", "t.om", "--train")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "t.rdcpkt").stat().st_size > 0


def test_a_stale_rdcpkt_is_removed(gecli, tmp_path: Path) -> None:
    (tmp_path / "d.rdcpkt").write_bytes(b"old")
    assert gecli("compile", str(DIGITS), "-o", "d.om", *SHAPE).returncode == 0
    assert not (tmp_path / "d.rdcpkt").exists()


def test_several_models_go_to_a_directory_by_their_stems(gecli, tmp_path: Path) -> None:
    done = gecli("compile", str(TRAIN), str(EVAL), "-o", "both/", "--train")
    assert done.returncode == 0, done.stderr
    names = sorted(p.name for p in (tmp_path / "both").iterdir())
    assert names == ["conv_eval.om", "conv_eval.rdcpkt", "conv_train.om", "conv_train.rdcpkt"]


def test_two_models_with_one_stem_are_refused(gecli, tmp_path: Path) -> None:
    shutil.copy(DIGITS, tmp_path / "digits.onnx")
    done = gecli("compile", str(DIGITS), "digits.onnx", "-o", "x/")
    assert done.returncode == 2
    assert "the same stem" in done.stderr
    assert not (tmp_path / "x").exists()


def test_the_json_document_says_what_was_made(gecli) -> None:
    done = gecli("compile", str(DIGITS), "-o", "d.om", *SHAPE, "--json")
    document = json.loads(done.stdout)
    assert document["schema"] == "gecli.compile/1"
    assert document["ok"] is True
    (model,) = document["models"]
    assert model["inputs"][0]["shape"] == [1, 1, 8, 8]
    assert model["outputs"][0]["name"] == "probabilities"
    assert model["memory"]["feature_bytes"] >= model["memory"]["lower_bound_bytes"]
    assert model["stages"][0]["name"] == "NormalizeGraph"


def test_a_failed_compile_writes_a_document_and_no_file(gecli, tmp_path: Path) -> None:
    done = gecli("compile", str(DIGITS), "-o", "d.om", "--input-shape", "imag:1,1,8,8", "--json")
    assert done.returncode == 2
    document = json.loads(done.stdout)
    assert document["ok"] is False
    assert document["errors"][0]["code"] == "E10016"
    assert list(tmp_path.glob("*.om")) == []


def test_an_unknown_dim_makes_the_model_dynamic_and_the_summary_says_what_fixes_it(gecli) -> None:
    done = gecli("compile", str(DIGITS), "-o", "d.om", "--json")
    assert json.loads(done.stdout)["models"][0]["dynamic"] is True
    assert '--input-shape "image:N,1,8,8"' in done.stderr


def test_stop_after_prints_the_graph_and_writes_nothing(gecli, tmp_path: Path) -> None:
    done = gecli("compile", str(DIGITS), *SHAPE, "--stop-after", "Prepare")
    assert done.returncode == 0, done.stderr
    assert "graph " in done.stdout
    assert "Conv2D(" in done.stdout
    assert not list(tmp_path.iterdir())


def test_dump_graph_writes_a_text_after_each_pass(gecli, tmp_path: Path) -> None:
    assert gecli("compile", str(DIGITS), "-o", "d.om", *SHAPE, "--dump-graph", "dump").returncode == 0
    files = sorted((tmp_path / "dump").iterdir())
    assert len(files) > 5
    assert files[0].name.startswith("ge_readable_00000000_graph_1_")


def test_print_pipeline_lists_the_passes(gecli) -> None:
    done = gecli("compile", "--print-pipeline")
    assert done.returncode == 0, done.stderr
    assert "InferShapePass" in done.stdout
    assert "VariableOpPass" in done.stdout


def test_a_correctness_pass_cannot_be_switched_off(gecli) -> None:
    done = gecli("compile", str(DIGITS), "-o", "d.om", *SHAPE, "--optimization-switch", "InferShapePass:off")
    assert done.returncode == 2
    assert "E10001" in done.stderr


def test_an_om_can_be_written_to_standard_output(tmp_path: Path, gecli) -> None:
    assert gecli("compile", str(DIGITS), "-o", "model.om", *SHAPE).returncode == 0
    source = tmp_path / "model.onnx"
    shutil.copy(DIGITS, source)
    done = subprocess.run(
        [sys.executable, "-m", "gecli", "compile", str(source), "-o", "-", *SHAPE],
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        check=True,
    )
    assert done.stdout[:4] == b"IMOD"
    assert len(done.stdout) == len((tmp_path / "model.om").read_bytes())


CONDITIONS = [
    {},
    {"env": {"PYTHONHASHSEED": "1", "TZ": "Asia/Tokyo", "LANG": "de_DE.UTF-8"}},
    {"env": {"PYTHONHASHSEED": "77", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}, "umask": 0o077},
    {"elsewhere": True},
    {"options": ("--threads", "1", "-v")},
]


@pytest.mark.parametrize("condition", CONDITIONS[1:], ids=["hash seed, time zone", "threads, umask", "path", "verbose"])
@pytest.mark.parametrize("source", [DIGITS, TRAIN], ids=["onnx", "json"])
def test_the_same_input_gives_the_same_bytes(tmp_path: Path, source: Path, condition: dict) -> None:
    first = compiled(tmp_path / "one", source, {})
    second = compiled(tmp_path / "two", source, condition)
    assert first == second


def compiled(folder: Path, source: Path, condition: dict) -> dict[str, bytes]:
    """Compile in `folder` and return every file that came out."""
    folder.mkdir()
    model = source
    if condition.get("elsewhere"):
        place = folder / "deep" / "er"
        shutil.copytree(source.parent, place)
        model = Path("deep") / "er" / source.name
    words = ["compile", str(model), "-o", "out/m.om", *condition.get("options", ())]
    words += SHAPE if source == DIGITS else ["--train"]
    umask = condition.get("umask")
    done = subprocess.run(
        [sys.executable, "-m", "gecli", *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY), **condition.get("env", {})},
        capture_output=True,
        text=True,
        preexec_fn=None if umask is None else lambda: os.umask(umask) and None,
    )
    assert done.returncode == 0, done.stderr
    return {path.name: path.read_bytes() for path in sorted((folder / "out").iterdir())}
