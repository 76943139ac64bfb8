"""What follows from constants alone is computed when a static model is loaded, and only where that may be held."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from gecli.compiler import compile_model
from gecli.errors import RuntimeFault
from gecli.runtime.model import LoadedModel
from gecli.runtime.session import Session

Array = NDArray[Any]
CODES = np.random.default_rng(1).integers(-128, 128, (64, 48)).astype(np.int8)
SCALE = np.random.default_rng(2).random(48).astype(np.float32)
X = np.random.default_rng(3).standard_normal((5, 64)).astype(np.float32)
DEQUANTISE = [
    helper.make_node("Cast", ["codes"], ["wide"], name="wide", to=TensorProto.FLOAT),
    helper.make_node("Mul", ["wide", "scale"], ["weights"], name="weights"),
]


def save(folder: Path, nodes: list[onnx.NodeProto], outputs: dict[str, list[int]], **constants: Array) -> Path:
    constants = {"codes": CODES, "scale": SCALE, **constants}
    used = {name for node in nodes for name in node.input}
    weights = [numpy_helper.from_array(array, name) for name, array in constants.items() if name in used]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, list(X.shape))]
    results = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in outputs.items()]
    graph = helper.make_graph(nodes, "m", inputs, results, weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, folder / "m.onnx")
    return folder / "m.onnx"


def loaded(source: Path, **options: Any) -> LoadedModel:
    compile_model(source, source.with_suffix(".om"), **options)
    return Session(poison=True).load(source.with_suffix(".om"))


def steps(model: LoadedModel) -> list[str]:
    assert model.program is not None
    return [instruction.node.type for instruction in model.program.instructions]


def agrees(model: LoadedModel, source: Path) -> bool:
    peer = onnxruntime.InferenceSession(source, providers=["CPUExecutionProvider"])
    names = [output.name for output in peer.get_outputs()]
    for x in (X, -X):
        outputs, _ = model.run({"x": x})
        for name, expected in zip(names, peer.run(names, {"x": x})):
            np.testing.assert_allclose(outputs[name], expected, atol=1e-5 * float(np.abs(expected).max()))
    return True


def test_dequantised_weights_are_computed_once_and_what_led_to_them_is_dropped(tmp_path: Path) -> None:
    product = helper.make_node("MatMul", ["x", "weights"], ["y"])
    source = save(tmp_path, [*DEQUANTISE, product], {"y": [5, 48]})
    model = loaded(source)
    assert steps(model) == ["BatchMatMulV2"]
    assert model.program is not None
    held = {port.node.type: operand.is_constant for port, operand in model.program.operands.items()}
    assert (held["Mul"], held["Cast"]) == (True, False)
    assert agrees(model, source)


def test_filters_that_follow_from_constants_are_as_good_as_constant_ones(tmp_path: Path) -> None:
    nodes = [
        *DEQUANTISE,
        helper.make_node("Reshape", ["weights", "filter_shape"], ["filter"]),
        helper.make_node("Reshape", ["x", "image_shape"], ["image"]),
        helper.make_node("Conv", ["image", "filter"], ["y"]),
    ]
    shapes = {"filter_shape": np.array([48, 64, 1, 1]), "image_shape": np.array([1, 64, 5, 1])}
    source = save(tmp_path, nodes, {"y": [1, 48, 5, 1]}, **shapes)
    model = loaded(source)
    assert not {"Cast", "Mul"} & set(steps(model))
    assert agrees(model, source)


def test_a_result_that_is_also_an_output_is_still_put_there(tmp_path: Path) -> None:
    product = helper.make_node("MatMul", ["x", "weights"], ["y"])
    source = save(tmp_path, [*DEQUANTISE, product], {"y": [5, 48], "weights": [64, 48]})
    model = loaded(source)
    assert steps(model) == ["Mul", "BatchMatMulV2"]
    assert agrees(model, source)


def test_results_out_of_proportion_to_the_constants_stay_in_the_run(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Expand", ["scale", "far"], ["large"]),
        helper.make_node("ReduceMax", ["large"], ["most"], axes=[0, 1], keepdims=0),
        helper.make_node("Mul", ["x", "first"], ["z"]),
        helper.make_node("Gather", ["most", "zero"], ["first"], axis=0),
    ]
    nodes = [nodes[0], nodes[1], nodes[3], nodes[2]]
    constants = {"far": np.array([100, 100, 48]), "zero": np.array([0])}  # 1.9 MB out of 200 bytes
    source = save(tmp_path, nodes, {"z": [5, 64]}, **constants)
    model = loaded(source)
    assert steps(model)[0] in ("Expand", "BroadcastTo", "ExpandD", "BroadcastToD")
    assert agrees(model, source)


def test_a_fault_in_such_a_node_names_it(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Expand", ["scale", "shape"], ["rows"]),
        helper.make_node("Gather", ["rows", "far"], ["row"], name="far_row", axis=0),
        helper.make_node("Expand", ["row", "shape"], ["copies"]),
        helper.make_node("MatMul", ["x", "copies"], ["y"]),
    ]
    constants = {"shape": np.array([64, 48]), "far": np.array([64])}
    source = save(tmp_path, nodes, {"y": [5, 48]}, **constants)
    with pytest.raises(RuntimeFault, match="far_row"):
        loaded(source).run({"x": X})


@pytest.mark.parametrize("options", [{}, {"precision_mode": "force_fp16"}])
def test_a_variable_that_takes_such_a_result_gets_it_in_every_run(options: dict[str, str], tmp_path: Path) -> None:
    graph = Path(__file__).resolve().parents[2] / "samples/train/conv_init.json"
    compile_model(graph, tmp_path / "init.om", train="true", **options)
    session = Session()
    model = session.load(tmp_path / "init.om")
    model.run({})
    first = {name: session.store.value(name).copy() for name in session.store.names()}
    assert any(np.abs(value.astype(np.float32)).max() > 0 for value in first.values())
    model.run({})
    for name, value in first.items():
        np.testing.assert_array_equal(session.store.value(name), value)


def test_a_filter_whose_axes_are_stored_in_another_order(tmp_path: Path) -> None:
    """Sizes that read the same in both orders, NCDHW and DHWCN, so that no shape tells them apart."""
    weights = np.random.default_rng(5).standard_normal((3, 3, 3, 3, 3)).astype(np.float32)
    nodes = [
        helper.make_node("Reshape", ["x", "volume_shape"], ["volume"]),
        helper.make_node("Conv", ["volume", "filter"], ["y"], pads=[1] * 6),
    ]
    source = tmp_path / "m.onnx"
    x = np.random.default_rng(6).standard_normal((4, 72)).astype(np.float32)
    constants = [
        numpy_helper.from_array(weights, "filter"),
        numpy_helper.from_array(np.array([1, 3, 4, 4, 6]), "volume_shape"),
    ]
    graph = helper.make_graph(
        nodes, "m",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, 72])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 3, 4, 4, 6])],
        constants,
    )  # fmt: skip
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), source)
    outputs, _ = loaded(source).run({"x": x})
    peer = onnxruntime.InferenceSession(source, providers=["CPUExecutionProvider"])
    np.testing.assert_allclose(outputs["y"], peer.run(None, {"x": x})[0], atol=1e-4)
