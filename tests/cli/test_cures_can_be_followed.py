"""What messages recommend can be done: hints of single operators, of files that are no OM, of --order and --threads."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gecli.artifacts.header import OmHeader
from gecli.cli.app import run
from gecli.loading.single_op import read_single_ops
from gecli.loading.sniff import FileKind, refusal
from gecli.report.inspect.foreign import instead_of_om

GRAPH: dict[str, Any] = {
    "graph": {"outputs": ["y"]},
    "nodes": [
        {"id": "x", "type": "Data", "outputs": [{"dtype": "DT_FLOAT", "shape": [2]}]},
        {"id": "y", "type": "Relu"},
    ],
    "links": [{"source": "x", "target": "y"}],
}
SOFTMAX: dict[str, Any] = {
    "op": "SoftmaxV2",
    "input_desc": [{"format": "ND", "shape": [-1, 4], "type": "float"}],
    "output_desc": [{"format": "ND", "shape": [-1, 4], "type": "float"}],
    "attr": [{"name": "axes", "type": "list_int", "value": [-1]}],
}


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "m.json").write_text(json.dumps(GRAPH))
    (tmp_path / "op.json").write_text(json.dumps([SOFTMAX]))
    return tmp_path


@pytest.fixture
def om(place: Path) -> str:
    assert run(["compile", "m.json", "-o", "m.om", "-q"]) == 0
    return "m.om"


def test_the_hint_of_a_single_op_names_its_file(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["compile", "--singleop", "op.json", "-o", "out/"]) == 0
    told = capsys.readouterr()
    assert "the shapes in input_desc of op.json" in told.out + told.err
    assert "--input-shape" not in told.out + told.err


def test_run_says_that_it_reads_no_model_from_stdin(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["run", "-"]) == 3
    told = capsys.readouterr().err
    assert "gecli run reads no OM from stdin" in told and "cat > m.om" in told


def test_a_source_model_given_to_run_can_be_run_at_once(place: Path) -> None:
    error = instead_of_om("m.json")
    assert error is not None
    assert error.first.do.startswith("gecli run --jit m.json, or gecli compile m.json -o m.om")


@pytest.mark.parametrize(
    ("header", "runs"),
    [
        (OmHeader(), True),
        (OmHeader(is_encrypt=1), False),
        (OmHeader(version=0x10000000, platform_version="1.75"), True),
        (OmHeader(version=0x10000000, modeltype=3), False),
        (OmHeader(version=0x10000000, modeltype=4), False),
    ],
)
def test_an_om_that_cannot_run_is_not_recommended_for_it(place: Path, header: OmHeader, runs: bool) -> None:
    (place / "a.om").write_bytes(header.pack() + bytes(64))
    do = refusal(FileKind.OM, "a.om").first.do
    assert do == ("gecli run a.om, or gecli inspect-om a.om" if runs else "gecli inspect-om a.om")


@pytest.mark.parametrize("name", ["m", "m.om", "./m.om"])
def test_order_takes_stem_file_name_and_path(om: str, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["run", "./m.om", "--order", f"{name};{name}"]) == 0
    assert capsys.readouterr().err.count("m loaded in") == 1


def test_order_refuses_a_name_of_several(om: str, place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (place / "b").mkdir()
    (place / "b" / "m.om").write_bytes(Path(om).read_bytes())
    for name in ("m", "m.om"):
        assert run(["run", "./m.om", "b/m.om", "--order", name]) == 2
        assert "which 2 OMs are called" in capsys.readouterr().err
    assert run(["run", "./m.om", "b/m.om", "--order", "b/m.om", "-q"]) == 0
    assert run(["run", "./m.om", "--order", "n.om"]) == 2
    assert "which is not given" in capsys.readouterr().err


def test_a_bound_that_is_none_is_not_printed(om: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["run", om, "--threads", "0", "-q"]) == 0
    assert run(["run", om, "--threads=-1"]) == 2
    told = capsys.readouterr().err
    assert "a number from 0 upwards" in told and "e+" not in told


def test_a_directory_for_single_ops_is_not_named_like_an_om(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["compile", "--singleop", "op.json", "-o", "so/one.om"]) == 2
    assert "-o so/" in capsys.readouterr().err
    assert not (place / "so").exists()
    assert run(["compile", "--singleop", "op.json", "-o", "so/one.om/", "-q"]) == 0


def test_unknown_members_of_a_single_op_are_told(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    odd = json.loads(json.dumps(SOFTMAX))
    odd["atr"] = []
    odd["input_desc"][0]["shape_rang"] = [[1, 8]]
    odd["attr"][0]["kind"] = 1
    (place / "op.json").write_text(json.dumps([odd]))
    (found,) = read_single_ops("op.json")
    assert [(each.pointer, each.severity) for each in found.warnings] == [
        ("/0/atr", "warning"), ("/0/input_desc/0/shape_rang", "warning"), ("/0/attr/0/kind", "warning"),
    ]  # fmt: skip
    assert found.warnings[1].do == "did you mean 'shape_range'?"
    assert run(["compile", "--singleop", "op.json", "-o", "out/"]) == 0
    assert "unknown member 'shape_rang' of a tensor is ignored" in capsys.readouterr().err
    (place / "op.json").write_text(json.dumps([SOFTMAX]))
    assert read_single_ops("op.json")[0].warnings == ()
