"""The sizes that a model names for its inputs hold at run time: a dim outside its range is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gecli.cli.app import run
from gecli.errors import RuntimeFault
from gecli.ir.dtype import DataType
from gecli.ir.op_desc import OpDesc, Port
from gecli.ir.tensor_desc import Range, TensorDesc
from gecli.runtime.interface import Tensor, model_inputs
from gecli.runtime.session import Session

GRAPH = {
    "graph": {"outputs": ["y"]},
    "nodes": [
        {"id": "image", "type": "Data", "outputs": [{"dtype": "DT_FLOAT", "shape": ["N", 1, "H", 8]}]},
        {"id": "y", "type": "Relu"},
    ],
    "links": [{"source": "image", "target": "y"}],
}
SOFTMAX = {
    "op": "SoftmaxV2",
    "input_desc": [{"format": "ND", "shape": [-1, 4], "shape_range": [[1, 8]], "type": "float", "name": "x"}],
    "output_desc": [{"format": "ND", "shape": [-1, 4], "type": "float"}],
}


@pytest.fixture
def om(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    Path("m.json").write_text(json.dumps(GRAPH))
    assert run(["compile", "m.json", "-o", "m.om", "--input-shape", "image:1~4,1,2~-1,8", "-q"]) == 0
    return "m.om"


def tensor(shape: tuple[int, ...], ranges: tuple[Range, ...] | None) -> Tensor:
    return Tensor("x", Port(OpDesc("x", "Data"), 0), TensorDesc(DataType.FLOAT, shape, shape_range=ranges))


@pytest.mark.parametrize(
    ("shape", "ranges", "value", "fits"),
    [
        ((-1, 3), ((1, 4), (3, 3)), (4, 3), True),
        ((-1, 3), ((1, 4), (3, 3)), (5, 3), False),
        ((-1, 3), ((2, -1), (3, 3)), (99, 3), True),
        ((-1, 3), ((2, -1), (3, 3)), (1, 3), False),
        ((-1, 3), ((1, 4), (3, 3)), (4, 2), False),
        ((-1, 3), ((0, 4), (0, 9)), (0, 3), True),
        ((-1, 3), ((0, 0), (3, 3)), (7, 3), True),  # an empty range says nothing
        ((-1, 3), ((1, 4),), (7, 3), True),  # ranges of another rank say nothing
        ((-1,), None, (7,), True),
        ((-2,), None, (7, 8), True),
        ((-2,), ((1, 4),), (7, 8), True),
    ],
)
def test_a_dim_lies_in_its_range(
    shape: tuple[int, ...], ranges: tuple[Range, ...] | None, value: tuple[int, ...], fits: bool
) -> None:
    assert tensor(shape, ranges).admits(value) is fits


def test_ranges_of_a_stored_form_are_not_those_of_the_input() -> None:
    stored = TensorDesc(DataType.FLOAT16, (-1, 1, 4, 4, 16), shape_range=((1, 2), (1, 1), (4, 4), (4, 4), (16, 16)))
    node = OpDesc("x", "Data", output_descs=[replace(stored, origin_shape=(-1, 3, 4, 4))])
    assert model_inputs([node])[0].admits((9, 3, 4, 4))


@pytest.mark.parametrize(("rows", "status"), [(1, 0), (4, 0), (5, 6), (9, 6)])
def test_an_array_outside_the_range_is_refused(om: str, rows: int, status: int) -> None:
    np.save("x.npy", np.zeros((rows, 1, 2, 8), np.float32))
    assert run(["run", om, "-i", "x.npy", "-q"]) == status


def test_the_message_says_what_is_accepted(om: str) -> None:
    with pytest.raises(RuntimeFault) as caught:
        Session().load(om).run({"image": np.zeros((9, 1, 1, 8), np.float32)})
    first = caught.value.first
    assert (first.code, first.kind) == ("G4001", "RT_SHAPE_RANGE")
    assert first.message == "the value for input 'image' has the wrong shape"
    assert first.why == "expected [1~4, 1, 2~-1, 8], got [9, 1, 1, 8]"
    assert first.do == "give an array of shape [N,1,M,8] (N from 1 to 4; M from 2)"


def test_shape_is_held_against_the_range_and_the_cure_lies_in_it(om: str, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert run(["run", om, "--shape", "image:9,1,1,8"]) == 6
    told = capsys.readouterr().err
    assert "G4001" in told and "expected [1~4, 1, 2~-1, 8], got [9, 1, 1, 8]" in told
    assert "--shape image:4,1,2,8" in told
    assert run(["run", om, "--shape", "image:4,1,2,8", "-q"]) == 0
    assert run(["run", om]) == 2
    assert "image:1,1,2,8" in capsys.readouterr().err


@pytest.mark.parametrize(("rows", "status"), [(8, 0), (20, 6)])
def test_shape_range_of_a_single_op_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: int, status: int
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("ops.json").write_text(json.dumps([SOFTMAX]))
    assert run(["compile", "--singleop", "ops.json", "-o", "out/", "-q"]) == 0
    np.save("x.npy", np.zeros((rows, 4), np.float32))
    assert run(["run", str(next(Path("out").glob("*.om"))), "-i", "x.npy", "-q"]) == status
