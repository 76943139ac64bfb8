"""An operator that gives no `data_format` has the layout of its data tensor: single-op files and JSON graphs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gecli.cli.app import run
from gecli.errors import GecliError, InputError, InvalidOption
from gecli.ir.graph import Graph
from gecli.loading import load_graph
from gecli.loading.data_formats import data_output, data_slot
from gecli.loading.single_op import read_single_ops
from gecli.ops.evaluate import evaluate_graph
from gecli.ops.registry import load_all
from gecli.runtime.session import Session

X = np.arange(2 * 3 * 4 * 3, dtype=np.float32).reshape(2, 3, 4, 3)  # as many channels as columns: both layouts fit
WINDOW = {"ksize": [1, 1, 2, 2], "strides": [1, 1, 1, 1], "padding": "VALID"}
CONV = {"strides": [1, 1, 1, 1], "pads": [0, 0, 0, 0], "dilations": [1, 1, 1, 1]}
WEIGHT = np.arange(9, dtype=np.float32).reshape(3, 3, 1, 1)
VECTOR = np.array([1, 10, 100], np.float32)


def _pooled(reduce: Any) -> np.ndarray:
    windows = np.lib.stride_tricks.sliding_window_view(X, (2, 2), (2, 3))
    return np.asarray(reduce(windows, (4, 5)))


COLUMN = VECTOR.reshape(3, 1, 1)
# type: further inputs, attributes, the result for NCHW
OPERATORS: dict[str, tuple[list[tuple[str, np.ndarray]], dict[str, Any], np.ndarray]] = {
    "Conv2D": ([("NCHW", WEIGHT)], CONV, np.einsum("nchw,oc->nohw", X, WEIGHT[:, :, 0, 0])),
    "DepthwiseConv2D": ([("HWCN", VECTOR.reshape(1, 1, 3, 1))], CONV, X * COLUMN),
    "MaxPool": ([], WINDOW, _pooled(np.max)),
    "AvgPool": ([], WINDOW, _pooled(np.mean)),
    "BiasAdd": ([("ND", VECTOR)], {}, X + COLUMN),
    "BatchNorm": (
        [("ND", VECTOR), ("ND", VECTOR), ("ND", 0 * VECTOR), ("ND", 0 * VECTOR + 1)],
        {"is_training": False, "epsilon": 0.0},
        X * COLUMN + COLUMN,
    ),
    "BiasAddGrad": ([], {}, X.sum((0, 2, 3))),
}


def _desc(array: np.ndarray, layout: str) -> dict[str, Any]:
    return {"type": "float", "shape": list(array.shape), "format": layout}


def _attr(name: str, value: Any) -> dict[str, Any]:
    words = {bool: "bool", float: "float", str: "string", list: "list_int"}
    return {"name": name, "type": words[type(value)], "value": value}


def _entry(op: str, x_format: str = "NCHW", y_format: str = "NCHW", **more: Any) -> dict[str, Any]:
    others, attrs, y = OPERATORS[op]
    return {
        "op": op,
        "input_desc": [_desc(X, x_format), *(_desc(array, layout) for layout, array in others)],
        "output_desc": [_desc(y, y_format if y.ndim == 4 else "ND")],
        "attr": [_attr(name, value) for name, value in (attrs | more).items()],
    }


def _single(directory: Path, entry: dict[str, Any]) -> Graph:
    path = directory / "ops.json"
    path.write_text(json.dumps([entry]))
    return read_single_ops(str(path))[0].graph


def _json(directory: Path, op: str, *, x: dict[str, Any], y: dict[str, Any] | None = None, **more: Any) -> Graph:
    others, attrs, _ = OPERATORS[op]
    node: dict[str, Any] = {"id": "y", "type": op, "attrs": attrs | more} | ({"outputs": [y]} if y else {})
    nodes: list[dict[str, Any]] = [{"id": "x", "type": "Data", "outputs": [x]}, {"id": "relu", "type": "Relu"}, node]
    links = [{"source": "x", "target": "relu"}, {"source": "relu", "target": "y", "dst_in": 0}]
    for slot, (layout, array) in enumerate(others, 1):
        desc = {"dtype": "DT_FLOAT", "shape": list(array.shape), "format": layout}
        nodes.append({"id": f"w{slot}", "type": "Const", "outputs": [desc], "value": desc | {"data": array.tolist()}})
        links.append({"source": f"w{slot}", "target": "y", "dst_in": slot})
    path = directory / "graph.json"
    path.write_text(json.dumps({"graph": {"outputs": ["y"]}, "nodes": nodes, "links": links}))
    return load_graph(str(path)).graph


def test_every_operator_with_a_data_format_has_a_data_tensor() -> None:
    kinds = [kind for kind in load_all().values() if "data_format" in kind.attributes]
    assert len(kinds) > 40
    assert [kind.name for kind in kinds if data_slot(kind) is None] == []
    assert [kind.name for kind in kinds if data_output(kind) is None and "Filter" not in kind.name] == []


@pytest.mark.parametrize("op", OPERATORS)
def test_a_single_op_takes_the_layout_of_its_descriptor(op: str, tmp_path: Path) -> None:
    graph = _single(tmp_path, _entry(op))
    feeds = {node.name: array for node, array in zip(graph.inputs, [X, *(array for _, array in OPERATORS[op][0])])}
    (y, *_), _ = evaluate_graph(graph, feeds)
    np.testing.assert_allclose(y, OPERATORS[op][2], rtol=1e-6)


@pytest.mark.parametrize("op", OPERATORS)
def test_a_json_graph_takes_the_layout_that_arrives(op: str, tmp_path: Path) -> None:
    graph = _json(tmp_path, op, x={"dtype": "DT_FLOAT", "shape": list(X.shape), "format": "NCHW"})
    (y, *_), _ = evaluate_graph(graph, {"x": X})
    np.testing.assert_allclose(y, OPERATORS[op][2], rtol=1e-6)


def test_the_origin_format_of_a_stored_tensor_decides(tmp_path: Path) -> None:
    x = {"dtype": "DT_FLOAT16", "shape": [2, 1, 4, 3, 16], "format": "NC1HWC0"}
    x |= {"origin_shape": list(X.shape), "origin_format": "NCHW"}
    assert _json(tmp_path, "MaxPool", x=x).node("y").attrs["data_format"] == "NCHW"


def test_compile_and_run_give_the_numbers_of_nchw(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("c.json").write_text(json.dumps([_entry("Conv2D")]))
    assert run(["compile", "--singleop", "c.json", "-o", "out", "-q"]) == 0
    model = Session().load(str(next(Path("out").glob("*.om"))))
    (y,) = model.run(dict(zip((each.name for each in model.inputs), (X, WEIGHT))))[0].values()
    np.testing.assert_allclose(y, OPERATORS["Conv2D"][2], rtol=1e-5)


def test_without_a_layout_the_default_of_ge_stays(tmp_path: Path) -> None:
    assert "data_format" not in _single(tmp_path, _entry("BiasAdd", "ND", "ND")).node("BiasAdd_0").attrs
    graph = _json(tmp_path, "BiasAdd", x={"dtype": "DT_FLOAT", "shape": list(X.shape), "format": "ND"})
    np.testing.assert_array_equal(evaluate_graph(graph, {"x": X})[0][0], X + VECTOR)


def test_a_data_format_that_contradicts_the_descriptor_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidOption) as caught:
        _single(tmp_path, _entry("BiasAdd", data_format="NHWC"))
    first = caught.value.first
    assert (first.code, first.pointer) == ("E10030", "/0/attr/0/value")
    assert first.why == "data_format is NHWC, the descriptor says NCHW"
    x = {"dtype": "DT_FLOAT", "shape": list(X.shape), "format": "NHWC"}
    graph = _json(tmp_path, "BiasAdd", x=x)  # through a Relu, whose output is not declared
    assert "data_format" not in graph.node("y").attrs
    with pytest.raises(InputError) as refused:
        _json(tmp_path, "BiasAdd", x=x, y=x | {"format": "NCHW"}, data_format="NHWC")
    assert refused.value.first.why == "data_format is NHWC, the descriptor says NCHW"
    assert "output 0" in refused.value.first.message


@pytest.mark.parametrize("x_format", ["NCHW", "ND"])
def test_the_declared_format_of_the_output_is_checked(x_format: str, tmp_path: Path) -> None:
    wrong = "NHWC" if x_format == "NCHW" else "NCHW"
    with pytest.raises(GecliError) as caught:
        _single(tmp_path, _entry("BiasAdd", x_format, wrong))
    assert (caught.value.code, caught.value.first.pointer) == ("E10027", "/0/output_desc/0/format")
    assert wrong in caught.value.first.why
