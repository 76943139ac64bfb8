"""Attribute values of the JSON graph, by the one member that names their kind, and descriptors, which have some."""

from __future__ import annotations

from typing import Any

from gecli.ir.attributes import NamedAttrs, RawAttr, empty_list
from gecli.ir.tensor_desc import TensorDesc
from gecli.loading.json_tensors import read_tensor
from gecli.loading.json_values import (
    Json,
    Source,
    kind_of,
    pointer_to,
    read_bytes,
    read_dtype,
    read_format,
    read_plain_desc,
)


def read_desc(source: Source, value: Json, pointer: str, symbols: list[str | None] | None = None) -> TensorDesc:
    """A descriptor; the names of symbolic dims are appended to `symbols`."""
    desc = read_plain_desc(source, value, pointer, symbols)
    for name, attr in source.object(value.get("attrs", {}), f"{pointer}/attrs", "attrs").items():
        desc = desc.with_attr(name, read_attr(source, attr, pointer + pointer_to("attrs", name), desc))
    return desc


def read_attr(source: Source, value: Json, pointer: str, desc: TensorDesc | None = None) -> Any:
    """An attribute value by its JSON kind; `desc` completes tensors that state no dtype or shape."""
    if isinstance(value, (bool, int, float, str)):
        return value
    if value is None:
        raise source.fault(pointer, "null is not an attribute value", do="leave the attribute out")
    if isinstance(value, list):
        return _read_list(source, value, pointer, desc)
    if len(value) != 1:
        keys = ", ".join(sorted(value)) or "none"
        raise source.fault(
            pointer,
            "an object as attribute value needs exactly one member that names its kind",
            f"found the members: {keys}",
            f"one of {', '.join(sorted(_KINDS))}",
        )
    ((kind, inner),) = value.items()
    if inner == [] and kind in EMPTY_KINDS:
        return empty_list(EMPTY_KINDS[kind])
    reader = _KINDS.get(kind)
    if reader is None:
        raise source.fault(
            f"{pointer}/{kind}", f"{kind!r} is not a kind of attribute", do=f"one of {', '.join(sorted(_KINDS))}"
        )
    return reader(source, inner, pointer + pointer_to(kind), desc)


def _read_list(source: Source, values: list[Json], pointer: str, desc: TensorDesc | None) -> tuple[Any, ...]:
    items = tuple(read_attr(source, item, f"{pointer}/{index}", desc) for index, item in enumerate(values))
    kinds = sorted({type(item).__name__ for item in items})
    if kinds == ["float", "int"]:
        return tuple(map(float, items))
    if len(kinds) > 1:
        raise source.fault(pointer, "the items of a list must be of one kind", f"found {' and '.join(kinds)}")
    return items


def _read_float(source: Source, value: Json, pointer: str, desc: TensorDesc | None) -> Any:
    if isinstance(value, list):
        return tuple(_read_float(source, item, f"{pointer}/{index}", desc) for index, item in enumerate(value))
    if isinstance(value, str) and value.lower() in ("nan", "inf", "-inf", "infinity", "-infinity"):
        return float(value)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise source.fault(pointer, "expected a number, or nan, inf, -inf as a string", f"found {kind_of(value)}")
    return float(value)


def _read_func(source: Source, value: Json, pointer: str, desc: TensorDesc | None) -> NamedAttrs:
    members = source.object(value, pointer, "a function")
    attrs = source.object(members.get("attrs", {}), f"{pointer}/attrs", "attrs")
    read = {name: read_attr(source, attr, pointer + pointer_to("attrs", name)) for name, attr in attrs.items()}
    return NamedAttrs(source.text(members.get("name", ""), f"{pointer}/name", "a function's name"), read)


def _read_raw(source: Source, value: Json, pointer: str, desc: TensorDesc | None) -> RawAttr:
    members = source.object(value, pointer, "a raw attribute")
    kind = source.text(members.get("kind"), f"{pointer}/kind", "kind")
    return RawAttr(kind, read_bytes(source, members.get("data"), f"{pointer}/data"))


def _read_exactly(kind: type, what: str) -> Any:
    def read(source: Source, value: Json, pointer: str, desc: TensorDesc | None) -> Any:
        if isinstance(value, list):
            return tuple(read(source, item, f"{pointer}/{index}", desc) for index, item in enumerate(value))
        if type(value) is not kind:
            raise source.fault(pointer, f"expected {what}", f"found {kind_of(value)}")
        return value

    return read


EMPTY_KINDS = {"s": 1, "i": 2, "f": 3, "b": 4}  # by the val_type of a list without items
_KINDS: dict[str, Any] = {
    "dtype": lambda source, value, pointer, desc: read_dtype(source, value, pointer),
    "format": lambda source, value, pointer, desc: read_format(source, value, pointer),
    "tensor": read_tensor,
    "desc": lambda source, value, pointer, desc: read_desc(source, value, pointer),
    "bytes": read_bytes,
    "func": _read_func,
    "raw": _read_raw,
    "f": _read_float,
    "i": _read_exactly(int, "an integer"),
    "b": _read_exactly(bool, "true or false"),
    "s": _read_exactly(str, "a string"),
}
