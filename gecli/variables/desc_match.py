"""Equality of two descriptors as the compile cache understands it."""

from __future__ import annotations

from gecli.ir.dtype import DataType
from gecli.ir.tensor_desc import TensorDesc


def same_desc(a: TensorDesc, b: TensorDesc) -> str | None:
    """The name of the first field in which two descriptors differ, in the cache's order; None when they are equal.

    Formats are compared with groups and C0 code. Attributes take no part; an origin that was never set is the
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
    if (a.origin_dtype or DataType.UNDEFINED) != (b.origin_dtype or DataType.UNDEFINED):
        return "origin_dtype"
    if a.name != b.name:
        return "name"
    if a.size_bytes != b.size_bytes:
        return "size"
    return None
