"""Attribute values and descriptors as JSON values and as short text."""

from __future__ import annotations

import hashlib
from typing import Any

from gecli.ir.attributes import NamedAttrs, RawAttr
from gecli.ir.dtype import DataType
from gecli.ir.tensor_desc import TensorDesc
from gecli.ir.weight import Absent, FileSlice, Weight
from gecli.report.inspect.view import cell
from gecli.report.sizes import counted, dtype_text, shape_text

TEXT_LIMIT = 100


def desc_json(desc: TensorDesc | None) -> dict[str, Any] | None:
    """Type, shape and format with the origin form; None for an optional input that is left out."""
    if desc is None:
        return None
    return {
        "dtype": desc.dtype.serial,
        "format": desc.format.name,
        "shape": list(desc.shape),
        "origin_format": desc.logical_format.name,
        "origin_shape": list(desc.logical_shape),
        "size": desc.size_bytes or None,
    }


def desc_text(desc: TensorDesc | None) -> str:
    """`FLOAT NCHW [1,3,8,8]`, `-` for none."""
    if desc is None:
        return "-"
    return f"{dtype_text(desc.dtype.serial)} {desc.format.name} {shape_text(desc.shape)}"


def value_json(value: Any) -> Any:
    """Plain for numbers, texts, booleans and lists of them, else an object with `type`."""
    if isinstance(value, DataType):
        return {"type": "data_type", "value": value.serial}
    if isinstance(value, bytes):
        return {"type": "bytes", "value": {"bytes": len(value), "sha256": hashlib.sha256(value).hexdigest()}}
    if isinstance(value, tuple):
        return [value_json(item) for item in value]
    if isinstance(value, TensorDesc):
        return {"type": "tensor_desc", "value": desc_json(value)}
    if isinstance(value, Weight):
        return {"type": "tensor", "value": weight_json(value)}
    if isinstance(value, NamedAttrs):
        inner = {key: value_json(item) for key, item in sorted(value.attrs.items())}
        return {"type": "func", "value": {"name": value.name, "attrs": inner}}
    if isinstance(value, RawAttr):
        return {"type": value.kind, "value": {"bytes": len(value.data)} if value.data else None}
    return value


def weight_json(weight: Weight) -> dict[str, Any]:
    """The description of a tensor and where its bytes lie; not the bytes."""
    source = weight.source
    place = source.offset_bytes if isinstance(source, FileSlice) else None
    return {**(desc_json(weight.desc) or {}), "bytes": source.nbytes, "file_offset": place}


def held_text(weight: Weight) -> str:
    """How many bytes a tensor has, and whether they are in the file."""
    there = ", not in the file" if isinstance(weight.source, Absent) else ""
    return f"{weight.source.nbytes} bytes{there}"


def _counted_attrs(value: NamedAttrs) -> str:
    return counted(len(value.attrs), "attribute")


def value_text(value: Any) -> str:
    """One short line."""
    if isinstance(value, bytes):
        return f"<{len(value)} bytes>"
    if isinstance(value, DataType):
        return value.serial
    if isinstance(value, Weight):
        return f"<{desc_text(value.desc)}, {held_text(value)}>"
    if isinstance(value, TensorDesc):
        return f"<{desc_text(value)}>"
    if isinstance(value, NamedAttrs):
        return f"{cell(value.name, 40)}(... --json has {_counted_attrs(value)})"
    if isinstance(value, RawAttr):
        kind = "graph" if value.kind == "g" else value.kind
        return f"<{kind}, {len(value.data)} bytes: --json has it>" if value.data else "<no value>"
    if isinstance(value, str):
        return f'"{cell(value, TEXT_LIMIT)}"'
    if isinstance(value, tuple):
        items = [value_text(item) for item in value[:16]]
        text = ", ".join(items) + (f", ... {len(value)}" if len(value) > len(items) else "")
        return f"[{cell(text, TEXT_LIMIT)}]"
    return str(value)
