"""Small models and files on which the options are tried."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

FLOAT = TensorProto.FLOAT


def write_models(place: Path) -> None:
    """relu, log, odd (an unknown operator) and twins as ONNX; loop, plain, conv, lossy, race, bare... as JSON."""
    _save(place / "relu.onnx", [helper.make_node("Relu", ["x"], ["y"], name="relu")], [1, 3, 4, 4])
    _save(place / "log.onnx", [helper.make_node("Log", ["x"], ["y"], name="log")], [2, 3])
    _save(place / "odd.onnx", [helper.make_node("Oddity", ["x"], ["y"], name="odd")], [2, 3])
    twins = [helper.make_node("Relu", [a], [b], name="twin") for a, b in (("x", "h"), ("h", "y"))]
    _save(place / "twins.onnx", twins, [2, 3])
    _save_loop(place / "loop.json")
    (place / "inner").mkdir()
    ones = _node("w", "Variable", {"_init_value": {"tensor": {"file": "../ones.npy"}}}, [1, 1, 8, 8])
    _save_json(place / "inner" / "outside.json", [ones, _node("y", "Relu", {}, [1, 1, 8, 8])], ["w>y"])
    w = _node(
        "w", "Variable", {"_init_value": {"tensor": {"data": np.ones((8, 1, 3, 3)).tolist()}}}, [8, 1, 3, 3], "NCHW"
    )
    # plain only reads w; conv wants it in FRACTAL_Z, which makes plain stale.
    _save_json(place / "plain.json", [w, _node("y", "Relu", {}, [8, 1, 3, 3], "NCHW")], ["w>y"])
    x = _node("x", "Data", {"index": 0}, [1, 1, 8, 8], "NCHW")
    attrs = {
        "strides": [1, 1, 1, 1],
        "pads": [1, 1, 1, 1],
        "dilations": [1, 1, 1, 1],
        "data_format": "NCHW",
        "groups": 1,
    }
    _save_json(place / "conv.json", [x, w, _node("y", "Conv2D", attrs, [1, 8, 8, 8], "NCHW")], ["x>y", "w>y:1"])
    v = _node("v", "Variable", {"_init_value": {"tensor": {"data": [0.1, 0.2]}}}, [2])
    cast = _node("half", "Cast", {"dst_type": {"dtype": "DT_FLOAT16"}}, [2], dtype="DT_FLOAT16")
    _save_json(place / "lossy.json", [v, cast, _node("y", "Relu", {}, [2], dtype="DT_FLOAT16")], ["v>half", "half>y"])
    _save_json(place / "bare.json", [_node("v", "Variable", {}, [2]), _node("y", "Relu", {}, [2])], ["v>y"])
    x = _node("x", "Data", {"index": 0}, [2])
    u = {**v, "id": "u"}
    race = [u, x, _node("r", "Relu", {}, [2]), _node("add", "AssignAdd", {}, [2]), _node("y", "Add", {}, [2])]
    _save_json(place / "race.json", race, ["u>r", "u>add", "x>add:1", "r>y", "add>y:1"])
    asked = [
        _node("v", "Variable", {}, [2]),
        _node("q", "VarIsInitializedOp", {}, [], dtype="DT_BOOL"),
        _node("y", "LogicalNot", {}, [], dtype="DT_BOOL"),
    ]
    _save_json(place / "asked.json", asked, ["v>q", "q>y"])


def write_files(place: Path) -> None:
    """Option files, and data for `gecli run`."""
    (place / "mix.json").write_text(
        json.dumps({"black-list": {"to-add": ["Conv2D"]}, "white-list": {"to-add": ["Relu"]}})
    )
    tensor = {"format": "ND", "shape": [2], "type": "float"}
    entry = {"op": "Neg", "input_desc": [tensor], "output_desc": [tensor]}
    (place / "op.json").write_text(json.dumps([entry]))
    (place / "keep.txt").write_text("OpType::Conv2D\nrelu1\n")
    (place / "switch.json").write_text(json.dumps({"Switch": {"GraphFusion": {"VariableOpPass": "off"}}}))
    (place / "raw.json").write_text(json.dumps({"compile options": {"session": {"ge.exec.variable_acc": "False"}}}))
    (place / "odd_raw.json").write_text(json.dumps({"compile options": {"session": {"ge.odd": "1"}}}))
    (place / "profiles.toml").write_text("[compile.profiles.plain]\nvariable-acc = false\n")
    np.save(place / "ones.npy", np.ones((1, 1, 8, 8), np.float32))
    np.save(place / "double.npy", np.ones((1, 1, 8, 8), np.float64))
    np.save(place / "nhwc.npy", np.ones((1, 8, 8, 1), np.float32))
    np.save(place / "ten.npy", np.full(10, 3, np.float32))
    np.savez(place / "vars.npz", b3=np.full(10, 3, np.float32))


def _save(path: Path, nodes: list[onnx.NodeProto], shape: list[int]) -> None:
    inputs = [helper.make_tensor_value_info("x", FLOAT, shape)]
    outputs = [helper.make_tensor_value_info("y", FLOAT, shape)]
    graph = helper.make_graph(nodes, path.stem, inputs, outputs)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)


def _save_loop(path: Path) -> None:
    """Counts x up to 5."""
    scalar: dict[str, Any] = {"dtype": "DT_INT32", "shape": [], "format": "ND"}

    def node(name: str, type_name: str, attrs: dict[str, Any], **more: Any) -> dict[str, Any]:
        return {"id": name, "type": type_name, "attrs": attrs, "outputs": [scalar], **more}

    def constant(name: str, value: int) -> dict[str, Any]:
        return node(name, "Const", {"value": {"tensor": {"dtype": "DT_INT32", "shape": [], "data": value}}})

    def body(inner: str, type_name: str, number: int) -> dict[str, Any]:
        data = node(f"{inner}_in", "Data", {"index": 0, "_parent_node_index": 0})
        result = node(f"{inner}_out", type_name, {})
        if type_name == "Less":
            result["outputs"] = [{**scalar, "dtype": "DT_BOOL"}]
        links = [_link(f"{inner}_in", f"{inner}_out", 0), _link(f"{inner}_n", f"{inner}_out", 1)]
        nodes = [data, constant(f"{inner}_n", number), result]
        return {"graph": {"outputs": [f"{inner}_out:0"]}, "nodes": nodes, "links": links}

    document = {
        "gecli_graph": 1,
        "directed": True,
        "multigraph": True,
        "graph": {"name": "loop", "outputs": ["y:0"]},
        "nodes": [node("x", "Data", {"index": 0}), node("y", "While", {}, subgraphs=["cond", "body"])],
        "links": [_link("x", "y", 0)],
        "subgraphs": {"cond": body("cond", "Less", 5), "body": body("body", "Add", 1)},
    }
    path.write_text(json.dumps(document))


def _link(source: str, target: str, slot: int) -> dict[str, Any]:
    return {"source": source, "target": target, "src_out": 0, "dst_in": slot}


def _node(
    name: str, type_name: str, attrs: dict[str, Any], shape: list[int], layout: str = "ND", dtype: str = "DT_FLOAT"
) -> dict[str, Any]:
    outputs = [{"dtype": dtype, "shape": shape, "format": layout}]
    return {"id": name, "type": type_name, "attrs": attrs, "outputs": outputs}


def _save_json(path: Path, nodes: list[dict[str, Any]], links: list[str]) -> None:
    """Links are `source>target` or `source>target:slot`; the output is y."""
    rows = []
    for link in links:
        source, _, target = link.partition(">")
        target, _, slot = target.partition(":")
        rows.append(_link(source, target, int(slot or 0)))
    graph = {"name": path.stem, "outputs": ["y:0"]}
    document = {"gecli_graph": 1, "directed": True, "multigraph": True, "graph": graph, "nodes": nodes, "links": rows}
    path.write_text(json.dumps(document))
