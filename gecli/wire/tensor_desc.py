"""`TensorDescriptor` messages <-> `TensorDesc` (GE: ge.proto.TensorDescriptor, GeTensorSerializeUtils)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from google.protobuf.message import DecodeError

from gecli.ir.attributes import RawAttr
from gecli.ir.dtype import DataType
from gecli.ir.format import Format
from gecli.ir.tensor_desc import NO_ATTRS, Range, TensorDesc

Message = Any  # a protobuf message: the classes are made at run time from the descriptors

MAX_DIMS = 1024  # the product of a million dims would take hours; GE's interface has room for 128

# Fields beyond the IR's: a value that differs from the default is kept as an attribute of this name (GE accepts both
# spellings and lets the attribute win) and goes back into the field when written.
EXTENSION_FIELDS = (
    "weight_size",
    "reuse_input",
    "output_tensor",
    "device_type",
    "input_tensor",
    "real_dim_cnt",
    "reuse_input_index",
    "data_offset",
    "cmps_size",
    "cmps_tab",
    "cmps_tab_offset",
)
DEVICE_TYPE = "NPU"  # GE's default
ATTR_GROUPS = "_attr_groups"  # carried through untouched

# Attribute `__tensor_desc_data_type__` of old files overrides the dtype field, in a numbering of its own.
_DTYPE_ATTR = "__tensor_desc_data_type__"
_DTYPE_BY_ATTR = {
    13: DataType.DUAL,
    14: DataType.DUAL_SUB_INT8,
    15: DataType.DUAL_SUB_UINT8,
    16: DataType.COMPLEX64,
    17: DataType.COMPLEX128,
    18: DataType.QINT8,
    19: DataType.QINT16,
    20: DataType.QINT32,
    21: DataType.QUINT8,
    22: DataType.QUINT16,
    33: DataType.COMPLEX32,
}
_OWN_ATTRS = frozenset(
    (
        "origin_format",
        "origin_format_for_int",
        "format_for_int",
        "origin_shape",
        "origin_shape_initialized",
        "origin_data_type",
        "shape_range",
        "size",
        _DTYPE_ATTR,
    )
)


def fill_desc(
    message: Message, desc: TensorDesc, fill_attr: Callable[[Message, Any], None], *, full: bool = False
) -> None:
    """Write `desc` into a TensorDescriptor.

    The origin form is left out when it equals the stored one, and `format_for_int` when the layout string says it
    all, because every descriptor of an OM pays for them. With `full` they are always written, as variable records
    have them.
    """
    if desc.name:
        message.name = desc.name
    message.dtype = desc.dtype.proto
    message.shape.dim.extend(desc.shape)
    layout = desc.format.name
    message.layout = layout
    attrs = message.attr
    if full or int(desc.format) != _format_number(layout):
        attrs["format_for_int"].i = int(desc.format)
    if full or desc.logical_format != desc.format or desc.logical_shape != desc.shape:
        attrs["origin_format"].s = desc.logical_format.name.encode()
        attrs["origin_format_for_int"].i = int(desc.logical_format)
        shape = attrs["origin_shape"].list
        shape.val_type = 2
        shape.i.extend(desc.logical_shape)
        attrs["origin_shape_initialized"].b = True
    if desc.origin_dtype is not None:
        attrs["origin_data_type"].s = desc.origin_dtype.serial.encode()
    if desc.shape_range is not None:
        rows = attrs["shape_range"].list_list_int
        rows.SetInParent()
        for pair in desc.shape_range:
            rows.list_list_i.add().list_i.extend(pair)
    if desc.size_bytes:
        message.size = desc.size_bytes
    if full:
        message.device_type = DEVICE_TYPE
    for name, value in desc.attrs.items():
        if name in EXTENSION_FIELDS and isinstance(value, type(getattr(message, name))):
            setattr(message, name, value)
        elif name == ATTR_GROUPS:
            message.attr_groups = value.data
        else:
            fill_attr(attrs[name], value)


def desc_of(message: Message, attr_of: Callable[[str, Message], tuple[str, Any]]) -> TensorDesc:
    """Read a TensorDescriptor; `attr_of` decodes one attribute (name and value).

    Unknown layouts and data types read as FORMAT_RESERVED and UNDEFINED, as in GE. An origin form equal to the
    stored one reads as None. Raises DecodeError for more dims than any tensor has.
    """
    if len(message.shape.dim) > MAX_DIMS:
        raise DecodeError(f"a tensor of {len(message.shape.dim)} dims, at most {MAX_DIMS} are read")
    attrs: dict[str, Any] = dict([attr_of(key, message.attr[key]) for key in sorted(message.attr)])
    for name in EXTENSION_FIELDS:
        value = getattr(message, name)
        if value and name not in attrs and not (name == "device_type" and value == DEVICE_TYPE):
            attrs[name] = value
    if message.attr_groups:
        attrs[ATTR_GROUPS] = RawAttr("attr_groups", message.attr_groups)
    shape = tuple(message.shape.dim)
    fmt = _format_of(attrs.get("format_for_int"), message.layout)
    origin_format = origin_shape = None
    if "origin_format" in attrs or "origin_format_for_int" in attrs:
        origin_format = _format_of(attrs.get("origin_format_for_int"), attrs.get("origin_format", ""))
        if origin_format == Format.FORMAT_RESERVED or origin_format == fmt:
            origin_format = None
    stored_origin = _ints(attrs.get("origin_shape"))
    if stored_origin or (stored_origin is not None and attrs.get("origin_shape_initialized", False)):
        origin_shape = stored_origin if stored_origin != shape else None
    size = attrs.get("size", message.size)
    return TensorDesc(
        _dtype_of(attrs.get(_DTYPE_ATTR), message.dtype),
        shape,
        fmt,
        origin_shape=origin_shape,
        origin_format=origin_format,
        origin_dtype=_origin_dtype(attrs.get("origin_data_type")),
        shape_range=_ranges(attrs.get("shape_range")),
        name=message.name,
        size_bytes=size if isinstance(size, int) else 0,
        attrs={key: value for key, value in attrs.items() if key not in _OWN_ATTRS} or NO_ATTRS,
    )


def normal_form(desc: TensorDesc) -> TensorDesc:
    """`desc` as it reads back from a file: an origin form equal to the stored one is None."""
    same_shape, same_format = desc.origin_shape == desc.shape, desc.origin_format == desc.format
    if not (same_shape or same_format):
        return desc
    return replace(
        desc,
        origin_shape=None if same_shape else desc.origin_shape,
        origin_format=None if same_format else desc.origin_format,
    )


def memo_key(desc: TensorDesc) -> tuple[Any, ...]:
    """Everything that the encoding of a descriptor without attributes depends on."""
    return (
        desc.dtype,
        desc.shape,
        desc.format,
        desc.origin_shape,
        desc.origin_format,
        desc.origin_dtype,
        desc.shape_range,
        desc.name,
        desc.size_bytes,
    )


_numbers: dict[str, int] = {}


def _format_number(layout: str) -> int:
    """The format integer a reader gets from the layout string alone."""
    number = _numbers.get(layout)
    if number is None:
        number = _numbers[layout] = int(Format.parse(layout))
    return number


def _format_of(number: Any, layout: Any) -> Format:
    if isinstance(number, int) and 0 <= number < 1 << 32:
        return Format(number)
    if not isinstance(layout, str):
        return Format.FORMAT_RESERVED
    try:
        return Format.parse(layout)
    except ValueError:
        return Format.FORMAT_RESERVED


def _dtype_of(override: Any, number: int) -> DataType:
    if isinstance(override, int) and override in _DTYPE_BY_ATTR:
        return _DTYPE_BY_ATTR[override]
    return DataType.from_proto(number)


def _origin_dtype(text: Any) -> DataType | None:
    if not isinstance(text, str):
        return None
    try:
        found = DataType.parse(text)
    except ValueError:
        return None
    return None if found is DataType.UNDEFINED else found


def _ranges(value: Any) -> tuple[Range, ...] | None:
    if not isinstance(value, tuple) or not value:
        return None
    if not all(isinstance(row, tuple) and len(row) == 2 for row in value):
        return None
    return tuple((int(low), int(high)) for low, high in value)


def _ints(value: Any) -> tuple[int, ...] | None:
    return tuple(value) if isinstance(value, tuple) and all(type(item) is int for item in value) else None
