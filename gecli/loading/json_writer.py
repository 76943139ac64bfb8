"""Graphs as JSON documents that the JSON front end reads back without loss."""

from __future__ import annotations

import base64
import json
import math
import os
from collections.abc import Iterator
from typing import Any

from gecli.errors import OutputError
from gecli.ir.attributes import INIT_VALUE, VALUE, EmptyList, NamedAttrs, RawAttr
from gecli.ir.dtype import DataType
from gecli.ir.format import Format
from gecli.ir.graph import NET_OUTPUT, Graph
from gecli.ir.op_desc import OpDesc
from gecli.ir.tensor_desc import UNKNOWN_RANK, TensorDesc
from gecli.ir.weight import FileSlice, Fill, Weight
from gecli.loading.json_attributes import EMPTY_KINDS
from gecli.loading.json_graph import ENGINE, VALUE_TYPES, VERSION

Json = Any
DATA_ELEMENTS = 64  # tensors up to this size are written as numbers
REFERENCE_BYTES = 4096  # larger weights in files below the document's directory stay there
_NUMBER_TYPES = (DataType.FLOAT, DataType.DOUBLE, DataType.FLOAT16, DataType.BF16, DataType.BOOL)


def write_json(graph: Graph, path: str) -> None:
    """Write a graph to a file, whole or not at all; one node and one link a line. Raises OutputError."""
    directory = os.path.dirname(os.path.abspath(path))
    temporary = f"{path}.tmp{os.getpid()}"
    try:
        with open(temporary, "w", encoding="utf-8", newline="\n") as stream:
            stream.writelines(document_text(document_of(graph, directory)))
        os.replace(temporary, path)
    except BaseException as err:  # nor may a signal leave half a file behind
        if os.path.exists(temporary):
            os.unlink(temporary)
        if not isinstance(err, OSError):
            raise
        raise OutputError(
            "G6001", "the graph cannot be written", where=path, why=err.strerror or "", file=path
        ) from err


def document_text(document: dict[str, Json]) -> Iterator[str]:
    """The document as text that a person can read and a diff can compare."""
    head = {key: value for key, value in document.items() if key not in ("nodes", "links", "subgraphs")}
    yield _text(head)[:-1]
    yield from _rows(document)
    if document.get("subgraphs"):
        yield ',\n "subgraphs": {'
        for position, (name, sub) in enumerate(document["subgraphs"].items()):
            yield f'{"," if position else ""}\n  {_text(name)}: {{"graph": {_text(sub["graph"])}'
            yield from _rows(sub)
            yield "}"
        yield "\n }"
    yield "}\n"


def _rows(document: dict[str, Json]) -> Iterator[str]:
    for key in ("nodes", "links"):
        yield f',\n "{key}": ['
        yield ",".join(f"\n  {_text(row)}" for row in document[key])
        yield "\n ]"


def _text(value: Json) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def document_of(graph: Graph, directory: str | None = None) -> dict[str, Json]:
    """The document of a graph with its subgraphs; weights in files below `directory` are referred to."""
    document: dict[str, Json] = {"gecli_graph": VERSION, "directed": True, "multigraph": True}
    document.update(_graph_members(graph, directory))
    subgraphs = {
        each.name: _graph_members(each, directory) for each in graph.root.subgraphs.values() if graph is graph.root
    }
    if subgraphs:
        document["subgraphs"] = subgraphs
    return document


def _graph_members(graph: Graph, directory: str | None) -> dict[str, Json]:
    plain_output = _is_plain_output(graph)
    outputs = [f"{port.node.name}:{port.index}" for port in graph.outputs]
    info: dict[str, Json] = {
        "name": graph.name,
        "inputs": [node.name for node in graph.inputs],
        "outputs": outputs,
        "opset": None,
        "attrs": {key: attr_json(value, directory) for key, value in sorted(graph.attrs.items())},
    }
    if graph.output_names and graph.output_names != outputs:
        info["output_names"] = list(graph.output_names)
    nodes = [node for node in graph.nodes() if node.type != NET_OUTPUT or not plain_output]
    return {
        "graph": info,
        "nodes": [_node_json(node, directory) for node in nodes],
        "links": list(_links(nodes)),
    }


def _is_plain_output(graph: Graph) -> bool:
    """True when graph.outputs says everything about the NetOutput node."""
    node = graph.net_output
    if node is None:
        return True
    same = all(
        port is not None and desc is not None and desc == port.desc for port, desc in zip(node.inputs, node.input_descs)
    )
    return same and node.name == "Node_Output" and not (node.attrs or node.control_in or node.output_descs)


def _node_json(node: OpDesc, directory: str | None) -> dict[str, Json]:
    document: dict[str, Json] = {"id": node.name, "type": node.type}
    attrs = {key: value for key, value in node.attrs.items() if key != ENGINE}
    value = attrs.pop(VALUE) if node.type in VALUE_TYPES and isinstance(attrs.get(VALUE), Weight) else None
    if node.is_variable and node.init_value is not None:
        attrs[INIT_VALUE] = node.init_value
    if attrs:
        own = node.output_descs[0] if node.output_descs else None
        document["attrs"] = {key: attr_json(each, directory, own) for key, each in sorted(attrs.items())}
    if value is not None:
        document["value"] = tensor_json(value, directory)
    if (
        any(desc is None or port is None or desc != port.desc for port, desc in zip(node.inputs, node.input_descs))
        and node.input_descs
    ):
        document["inputs"] = [None if desc is None else desc_json(desc, directory) for desc in node.input_descs]
    if node.output_descs:
        skip = (INIT_VALUE,) if node.is_variable else ()
        document["outputs"] = [desc_json(desc, directory, skip) for desc in node.output_descs]
    for key, names in (("input_names", node.input_names), ("output_names", node.output_names)):
        if names is not None:
            document[key] = list(names)
    if node.subgraphs:
        document["subgraphs"] = list(node.subgraphs)
    if ENGINE in node.attrs:
        document["engine"] = node.attrs[ENGINE]
    return document


def _links(nodes: list[OpDesc]) -> Iterator[dict[str, Json]]:
    """Data links by target and input, then control links; `key` counts the links of a pair, as networkx wants."""
    keys: dict[tuple[str, str], int] = {}

    def link(source: str, target: str) -> dict[str, Json]:
        key = keys.get((source, target), 0)
        keys[source, target] = key + 1
        return {"source": source, "target": target, "key": key}

    for node in nodes:
        for slot, port in enumerate(node.inputs):
            if port is not None:
                yield {**link(port.node.name, node.name), "src_out": port.index, "dst_in": slot}
    for node in nodes:
        for before in node.control_in:
            yield {**link(before.name, node.name), "control": True}


# ---------------------------------------------------------------- values


def desc_json(desc: TensorDesc, directory: str | None = None, skip: tuple[str, ...] = ()) -> dict[str, Json]:
    document: dict[str, Json] = {
        "dtype": desc.dtype.serial,
        "shape": _shape_json(desc.shape),
        "format": desc.format.name,
    }
    if desc.format != Format.parse(desc.format.name) and desc.format.c0 is not None:
        document["c0"] = desc.format.c0
    if desc.origin_format is not None:
        document["origin_format"] = desc.origin_format.name
    if desc.origin_shape is not None:
        document["origin_shape"] = _shape_json(desc.origin_shape)
    if desc.origin_dtype is not None:
        document["origin_dtype"] = desc.origin_dtype.serial
    if desc.shape_range is not None:
        document["range"] = [list(pair) for pair in desc.shape_range]
    if desc.name:
        document["name"] = desc.name
    if desc.size_bytes:
        document["size"] = desc.size_bytes
    attrs = {key: value for key, value in desc.attrs.items() if key not in skip}
    if attrs:
        document["attrs"] = {key: attr_json(value, directory) for key, value in sorted(attrs.items())}
    return document


def _shape_json(shape: tuple[int, ...]) -> list[int] | None:
    return None if shape == UNKNOWN_RANK else list(shape)


def attr_json(value: Any, directory: str | None = None, own: TensorDesc | None = None) -> Json:
    """An attribute value in the form that the front end types back."""
    match value:
        case bool() | str():
            return value
        case DataType():
            return {"dtype": value.serial}
        case Format():
            return {"format": value.name}
        case int():
            return int(value)
        case float():
            return value if math.isfinite(value) else {"f": _named(value)}
        case bytes():
            return {"bytes": base64.b64encode(value).decode("ascii")}
        case Weight():
            return {"tensor": tensor_json(value, directory)}
        case TensorDesc():
            return {"desc": desc_json(value, directory)}
        case NamedAttrs():
            attrs = {key: attr_json(each, directory) for key, each in sorted(value.attrs.items())}
            return {"func": {"name": value.name, "attrs": attrs}}
        case RawAttr():
            return {"raw": {"kind": value.kind, "data": base64.b64encode(value.data).decode("ascii")}}
        case EmptyList():
            return _empty_json(value)
        case tuple() | list():
            return [attr_json(each, directory) for each in value]
    raise TypeError(f"{type(value).__name__} is not an attribute value")


def _empty_json(value: EmptyList) -> Json:
    """A list that has a kind but no items; kinds that JSON has no word for are GE's bytes."""
    kind = next((word for word, number in EMPTY_KINDS.items() if number == value.kind), None)
    if kind is not None:
        return {kind: []}
    from gecli.wire.attributes import encode_attr

    kind = value.kind if isinstance(value.kind, str) else "list"
    return attr_json(RawAttr(kind, encode_attr(value)))


def _named(value: float) -> str:
    return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"


def tensor_json(weight: Weight, directory: str | None = None) -> dict[str, Json]:
    """A tensor with its dtype and shape; large data in files below `directory` by reference."""
    desc = weight.desc
    document = {key: value for key, value in desc_json(desc).items() if key not in ("range", "name", "size", "attrs")}
    if document["format"] == "ND":
        del document["format"]
    source = weight.source
    if not weight.transforms and isinstance(source, Fill) and desc.dtype in _NUMBER_TYPES + _INTEGERS:
        one = Weight(TensorDesc(desc.dtype, (1,)), Fill(source.element, 1)).numpy().reshape(()).astype(object).item()
        if one == one or source.element == _element(desc.dtype, math.nan):  # as below: text has one NaN only
            document["fill"] = _number(one)
            return document
    if not weight.transforms and isinstance(source, FileSlice) and source.length_bytes >= REFERENCE_BYTES:
        relative = _below(source.path, directory)
        if relative is not None:
            document.update(file=relative, offset=source.offset_bytes, length=source.length_bytes)
            return document
    count = math.prod(desc.shape)
    if count <= DATA_ELEMENTS and desc.dtype in _NUMBER_TYPES + _INTEGERS:
        values = weight.numpy()
        if desc.dtype.is_float:
            values = values.astype("float64")
        if not (values != values).any():  # NaN: text keeps neither its sign nor its payload
            document["data"] = _numbers(values.tolist())
            return document
    document["base64"] = base64.b64encode(b"".join(weight.chunks())).decode("ascii")
    return document


def _element(dtype: DataType, value: float) -> bytes:
    import numpy as np

    return np.array(value).astype(dtype.numpy).tobytes()


_INTEGERS = (
    DataType.INT8,
    DataType.INT16,
    DataType.INT32,
    DataType.INT64,
    DataType.UINT8,
    DataType.UINT16,
    DataType.UINT32,
    DataType.UINT64,
)


def _numbers(value: Json) -> Json:
    return [_numbers(each) for each in value] if isinstance(value, list) else _number(value)


def _number(value: Any) -> Json:
    if isinstance(value, (bool, int)):
        return value
    number = float(value)
    return number if math.isfinite(number) else _named(number)


def _below(path: str, directory: str | None) -> str | None:
    """`path` relative to `directory`, with forward slashes; None when it does not lie below it."""
    if directory is None:
        return None
    relative = os.path.relpath(os.path.realpath(path), os.path.realpath(directory))
    return None if relative.startswith("..") or os.path.isabs(relative) else relative.replace(os.sep, "/")
