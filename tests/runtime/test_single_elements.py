"""An element that is picked out of a vector is the one of this run, not what lay there when the model was loaded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from gecli.compiler import compile_model
from gecli.ops.registry import find
from gecli.runtime.session import Session

VECTORS = [np.array([7, 8, 9], np.float32), np.array([1, 2, 3], np.float32)]


def run_both(om: Path) -> list[float]:
    model = Session().load(om)
    results = [model.run({"v": vector})[0] for vector in VECTORS]
    return [float(next(iter(outputs.values())).reshape(())) for outputs in results]


@pytest.mark.parametrize("index, expected", [(0, [7, 1]), (2, [9, 3]), (-1, [9, 3])])
def test_gather_of_a_scalar_index(index: int, expected: list[float], tmp_path: Path) -> None:
    graph = helper.make_graph(
        [helper.make_node("Gather", ["v", "i"], ["y"], axis=0)],
        "m",
        [helper.make_tensor_value_info("v", TensorProto.FLOAT, [3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [])],
        [numpy_helper.from_array(np.array(index), "i")],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / "m.onnx")
    compile_model(tmp_path / "m.onnx", tmp_path / "m.om")
    assert run_both(tmp_path / "m.om") == expected


@pytest.mark.parametrize("type", ["StridedSliceD", "StridedSlice", "StridedSliceV2"])
def test_a_slice_that_shrinks_every_axis(type: str) -> None:
    bounds = {"begin": np.array([1]), "end": np.array([2]), "axes": np.array([0]), "strides": np.array([1])}
    x, y = np.zeros(3, np.float32), np.zeros((), np.float32)
    attributes: dict[str, Any] = {}
    inputs: list[Any] = [x]
    if type == "StridedSliceD":
        attributes = {"begin": (1,), "end": (2,), "strides": (1,)}
    else:
        names = list(bounds) if type == "StridedSliceV2" else ["begin", "end", "strides"]
        inputs += [bounds[name] for name in names]
    kind = find(type)
    assert kind is not None
    slicing: Any = kind.cls(**attributes, shrink_axis_mask=1)
    slicing.constant_inputs = frozenset(range(1, len(inputs)))
    step = slicing.bind(inputs, [y])
    for vector, expected in zip(VECTORS, (8, 2)):
        x[:] = vector
        step()
        assert y == expected
