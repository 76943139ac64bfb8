"""Constants that become half and do not fit it are warned of in one line."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from gecli.engine.half_range import Unfit, half_range_warning, unfit_for_half
from gecli.ir.dtype import DataType
from gecli.ir.graph import Graph
from gecli.ir.op_desc import Port
from gecli.ir.tensor_desc import TensorDesc
from gecli.ir.weight import FileSlice, Weight
from tests.conftest import Gecli

HALF = TensorDesc(DataType.FLOAT16, (3,))


def graph_of(*weights: Weight) -> Graph:
    """Constants c0, c1, ... that an Identity each reads as half."""
    graph = Graph("g")
    for index, weight in enumerate(weights):
        const = graph.create("Const", f"c{index}", output_descs=[weight.desc], attrs={"value": weight})
        reader = graph.create("Identity", f"r{index}", output_descs=[HALF])
        graph.connect(Port(const, 0), reader, 0)
        reader.input_descs[0] = HALF
    return graph


@pytest.mark.parametrize(
    ("values", "infinite", "zero"),
    [
        ([65504.0, 1.0, 0.0], False, False),
        ([65519.0, 1.0, 0.0], False, False),
        ([1.0, -65520.0, 0.0], True, False),
        ([-3.4e38, 0.0, 0.0], True, False),
        ([float("-inf"), float("nan"), 1.0], False, False),
        ([float("-inf"), 1e6, 1.0], True, False),
        ([1e-12, 0.0, -1e-9], False, True),
        ([2.0**-25, 0.0, 0.0], False, True),
        ([2.0**-24, 0.0, 0.0], False, False),
        ([1e-12, 1.0, 0.0], False, False),
        ([0.0, 0.0, 0.0], False, False),
    ],
)
def test_a_constant_is_named_when_it_becomes_infinite_or_zero(values: list[float], infinite: bool, zero: bool) -> None:
    array = np.array(values, np.float32)
    assert unfit_for_half(graph_of(Weight.of(array))) == (("c0",) if infinite else (), ("c0",) if zero else ())
    with np.errstate(over="ignore"):
        half = array.astype(np.float16)
    assert infinite == bool((np.isinf(half) & np.isfinite(array)).any())
    assert zero == bool(array.any() and not half.any())


def test_a_weight_in_a_file_is_read_in_pieces(tmp_path: Path) -> None:
    array = np.zeros(3_000_001, np.float32)
    array[-1] = 1e5
    array.tofile(tmp_path / "w.bin")
    weight = Weight(TensorDesc(DataType.FLOAT, array.shape), FileSlice(str(tmp_path / "w.bin"), 0, array.nbytes))
    assert unfit_for_half(graph_of(weight)) == (("c0",), ())


def test_the_warning_has_counts_and_the_first_names_in_one_line() -> None:
    warning = half_range_warning(Unfit(("mask", "other"), ("eps",)))
    assert warning is not None
    assert warning.message == "constants do not fit half: 2 become infinite (first: mask), 1 becomes zero (first: eps)"
    assert half_range_warning(Unfit((), ())) is None


@pytest.mark.parametrize(
    ("mode", "warned"),
    [("force_fp16", True), ("mixed_float16", False), ("cube_fp16in_fp32out", False), ("origin", False)],
)
def test_compile_warns_in_the_modes_that_break_the_model(gecli: Gecli, tmp_path: Path, mode: str, warned: bool) -> None:
    import onnx
    from onnx import TensorProto, helper

    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 2]) for name in "xy")
    big = helper.make_tensor("big", TensorProto.FLOAT, [1], [1e6])
    graph = helper.make_graph([helper.make_node("Mul", ["x", "big"], ["y"])], "g", [x], [y], [big])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "m.onnx")
    done = gecli("compile", "m.onnx", "-o", "m.om", "--precision", mode)
    assert done.returncode == 0, done.stderr
    assert ("warning[G2020]: constants do not fit half: 1 becomes infinite (first: big" in done.stderr) == warned
