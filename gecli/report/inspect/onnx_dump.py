"""GE's graph dump in ONNX text (`ge_onnx_*.pbtxt`) as the tree of a ModelDef (cli.md 7.3)."""

from __future__ import annotations

import re
from itertools import count
from typing import Any

from gecli.ir.dtype import DataType
from gecli.report.inspect.text_proto import Encode, Encoded, Tree, node_bytes

PREFIX = "ge:"  # of the operator types of a dump
# What a dump states of each descriptor, as `input_desc_dtype:0`.
_OF_DESC = re.compile(r"(input|output)_desc_(\w+):(\d+)")
_DESC_FIELDS = {"layout": "layout", "name": "name", "device_type": "device_type"}
_ORIGIN = {"origin_layout": "origin_format", "origin_format": "origin_format"}


def is_dump(data: bytes) -> bool:
    """True for ONNX text whose operators are GE's."""
    return re.search(rb"op_type:\s*[\"']ge:", data) is not None


MAX_DIGITS = 8
NODE = "node"  # the field of a graph that `node_encoder` is for


def model_tree(dump: Tree) -> Tree:
    """The ModelDef of a dump whose nodes are encoded: one graph, its operators in file order."""
    graphs = [graph for graph in dump.get("graph", ()) if isinstance(graph, dict)]
    names = [_text(value) for value in dump.get("producer_name", ())[-1:]]
    return {"name": names, "graph": [_graph(graph) for graph in graphs[-1:]]}


def node_encoder() -> Encode:
    """What makes OpDefs of the nodes of one dump, with their descriptors."""
    places = count()
    return lambda node: node_bytes(_op(next(places), node))


def _graph(graph: Tree) -> Tree:
    ops = [node for node in graph.get(NODE, ()) if isinstance(node, Encoded)]
    return {"name": [_text(value) for value in graph.get("name", ())[-1:]], "op": ops}


def _op(index: int, node: Tree) -> Tree:
    op: Tree = {
        "name": [_text(value) for value in node.get("name", ())[-1:]],
        "type": [_text(value).removeprefix(PREFIX) for value in node.get("op_type", ())[-1:]],
        "input": [_text(value) for value in node.get("input", ())],
        "id": [str(index)],
    }
    descs: dict[str, dict[int, Tree]] = {"input": {}, "output": {}}
    attrs: list[Any] = []
    for attribute in node.get("attribute", ()):
        name = _text(_last(attribute, "name") or "") if isinstance(attribute, dict) else ""
        match = _OF_DESC.fullmatch(name)
        if match is not None:
            side, what, number = match.groups()
            if len(number) < MAX_DIGITS and int(number) < len(node["attribute"]):  # a dump leaves no descriptor out
                _describe(descs[side].setdefault(int(number), {}), what, attribute)
        elif name in ("id", "stream_id"):
            op[name] = [_last(attribute, "i") or "0"]
        elif name:
            attrs.append({"key": [name], "value": [_value(attribute)]})
    op["attr"] = attrs
    for side, found in descs.items():
        op[f"{side}_desc"] = [found.get(k, {}) for k in range(max(found, default=-1) + 1)]
    return op


def _describe(desc: Tree, what: str, attribute: Tree) -> None:
    """One fact of a descriptor."""
    if what == "dtype":
        desc["dtype"] = [str(_dtype(attribute).proto)]
    elif what == "shape":
        desc["shape"] = [{"dim": list(attribute.get("ints", ()))}]
    elif what == "size":
        desc["size"] = [_last(attribute, "i") or "0"]
    elif what in _DESC_FIELDS:
        desc[_DESC_FIELDS[what]] = [_text(_last(attribute, "s") or "")]
    elif what == "origin_shape":
        shape = {"list": [{"i": list(attribute.get("ints", ())), "val_type": ["2"]}]}
        flag: Tree = {"b": ["true"]}
        desc.setdefault("attr", []).extend(
            ({"key": ["origin_shape"], "value": [shape]}, {"key": ["origin_shape_initialized"], "value": [flag]})
        )
    elif what in _ORIGIN:
        desc.setdefault("attr", []).append(
            {"key": [_ORIGIN[what]], "value": [{"s": [_text(_last(attribute, "s") or "")]}]}
        )


def _dtype(attribute: Tree) -> DataType:
    text = _text(_last(attribute, "s") or "")
    try:
        return DataType.parse(text)
    except ValueError:
        return DataType.UNDEFINED


def _value(attribute: Tree) -> Tree:
    """An attribute under the names of AttrDef; tensors and graphs of a dump are left out, they hold no data."""
    for kind in ("s", "i", "f"):
        if kind in attribute:
            return {kind: attribute[kind][-1:]}
    for kind, (name, number) in {"ints": ("i", "2"), "floats": ("f", "3"), "strings": ("s", "1")}.items():
        if kind in attribute:
            return {"list": [{name: attribute[kind], "val_type": [number]}]}
    return {}


def _last(tree: Tree, name: str) -> Any:
    return next(iter(tree.get(name, ())[-1:]), None)


def _text(value: Any) -> Any:
    """A name; messages in its place are none."""
    if isinstance(value, bytes):
        return value.decode("utf-8", "surrogateescape")
    return value if isinstance(value, str) else ""
