"""Equality of two descriptors as the compile cache understands it."""

from __future__ import annotations

from typing import Any

from gecli.ir.dtype import DataType
from gecli.ir.tensor_desc import TensorDesc

# Fields of the model protobuf that the IR carries as attributes of these names, absent when at their default.
_BEFORE_SIZE = ("device_type",)
_BEHIND_SIZE = (
    "weight_size",
    "cmps_tab_offset",
    "cmps_tab",
    "reuse_input_index",
    "reuse_input",
    "data_offset",
    "cmps_size",
    "real_dim_cnt",
    "input_tensor",
    "output_tensor",
)


def same_desc(a: TensorDesc, b: TensorDesc) -> str | None:
    """The name of the first field in which two descriptors differ, in the cache's order; None when they are equal.

    Formats are compared with groups and C0 code. Free attributes take no part; an origin that was never set is the
    stored form.
    """
    if a.shape != b.shape:
        return "shape"
    if a.dtype is not b.dtype:
        return "dtype"
    if a.format != b.format:
        return "format"
    if a.logical_shape != b.logical_shape:
        return "origin_shape"
    if a.logical_format != b.logical_format:
        return "origin_format"
    if _origin_dtype(a) is not _origin_dtype(b):
        return "origin_dtype"
    if a.name != b.name:
        return "name"
    for name in _BEFORE_SIZE:
        if _extension(a, name) != _extension(b, name):
            return name
    if a.size_bytes != b.size_bytes:
        return "size"
    return next((name for name in _BEHIND_SIZE if _extension(a, name) != _extension(b, name)), None)


def _origin_dtype(desc: TensorDesc) -> DataType:
    return DataType.UNDEFINED if desc.origin_dtype is None else desc.origin_dtype


def _extension(desc: TensorDesc, name: str) -> Any:
    return desc.attrs.get(name) or None
