"""The models of a `gecli.inspect/1` document as MODEL_DEF bytes: what the document shows, put back field by field."""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from gecli.ir.dtype import DataType
from gecli.wire.ge_ir_fields import (
    ATTR,
    DATA_LENGTH,
    DATA_OFFSET,
    EMPTY_LIST_TYPES,
    GRAPH,
    LIST,
    LIST_TYPE,
    MODEL,
    NOT_FINITE,
    TENSOR,
    TEXT_TYPE,
    VAL_TYPES,
    VALUE_TYPES,
    Field,
    Message,
)
from gecli.wire.writer import bytes_field, integer_field, varint

Json = Any
COMPRESSION = frozenset(("om_compress_version", "attr_name_enum", "attr_value_enum", "attrs_use_string_value"))
_INT64 = 1 << 63
_FIELD_OF_TYPE = {name: field for field, name in VALUE_TYPES.items()} | {LIST_TYPE: "list"}
_DTYPES = {name: dtype.proto for dtype in DataType for name in (dtype.serial, f"DT_{dtype.name}")}
_LIST_VAL_TYPES = {"s": 1, "i": 2, "f": 3, "b": 4, "bt": 5, "td": 6, "t": 7, "g": 8, "na": 9, "dt": 10}
_LIST_FIELD_OF_TYPE = {EMPTY_LIST_TYPES[number]: field for field, number in _LIST_VAL_TYPES.items()}


class DocumentFault(Exception):
    """A value that no OM holds; `path` leads to it, innermost name last."""

    def __init__(self, message: str, why: str, do: str = "", code: str = "E13005") -> None:
        super().__init__(message)
        self.message, self.why, self.do, self.code = message, why, do, code
        self.path: list[str | int] = []


class DataRange(NamedTuple):
    """Bytes that stay in the document's data file."""

    offset: int
    length: int


# What a member like {"bytes": n, "sha256": ..., "base64": ...} stands for. With the second argument it must be in
# memory. Raises DocumentFault.
ReadData = Callable[[dict[str, Json], bool], bytes | DataRange]


def encode_document_model(model: dict[str, Json], read_data: ReadData) -> bytes:
    """MODEL_DEF of one item of `models`; data that `read_data` leaves in a file are references. Raises DocumentFault.

    Attribute names of a document are never compressed, so the dictionary of compressed names is left out.
    """
    return _Encoder(read_data).model(model)


class _Encoder:
    def __init__(self, read_data: ReadData) -> None:
        self.read_data = read_data
        self._names: dict[str, dict[str, tuple[int, Field]]] = {}

    def model(self, model: dict[str, Json]) -> bytes:
        parts = []
        for name in ("name", "version", "custom_version"):
            if name in model:
                parts.append(self.member(MODEL, name, model[name]))
        parts.append(_at("graphs", lambda: self.graphs(_list(model.get("graphs")))))
        attrs = _at("attrs", lambda: _object(model.get("attrs", {})))
        kept = {key: value for key, value in attrs.items() if key not in COMPRESSION}
        parts.append(_at("attrs", lambda: self.attrs(11, kept)))
        return b"".join(parts)

    def graphs(self, graphs: list[Json]) -> bytes:
        return b"".join(
            [bytes_field(7, _at(position, partial(self.graph, each))) for position, each in enumerate(graphs)]
        )

    def graph(self, graph: Json) -> bytes:
        """A graph; its members have the plural names of the document."""
        words = {"name": "name", "inputs": "input", "outputs": "output", "ops": "op", "attrs": "attr"}
        unknown = sorted(set(_object(graph)) - set(words))
        if unknown:
            raise _unknown(unknown[0], words)
        parts = []
        for name, field in words.items():
            if name in graph:
                parts.append(self.member(GRAPH, field, graph[name], name))
        return b"".join(parts)

    def message(self, kind: Message, members: Json) -> bytes:
        parts = [self.member(kind, name, value) for name, value in _object(members).items()]
        if kind is TENSOR and "data" not in members:
            _require_no_data(members.get("desc"))
        return b"".join(parts)

    def member(self, kind: Message, name: str, value: Json, shown: str = "") -> bytes:
        """One field of a message. `shown` is its name in the document."""
        try:
            fields = self.fields(kind)
            if name not in fields:
                raise _unknown(name, fields)
            number, spec = fields[name]
            if kind is TENSOR and name == "data":
                return self.tensor_data(number, value)
            if spec.is_map:
                return self.attrs(number, _object(value))
            if not spec.repeated:
                return self.one(number, spec, value)
            return b"".join([self.item(number, spec, position, item) for position, item in enumerate(_list(value))])
        except DocumentFault as fault:
            fault.path.insert(0, shown or name)
            raise

    def item(self, number: int, spec: Field, position: int, value: Json) -> bytes:
        try:
            return self.one(number, spec, value)
        except DocumentFault as fault:
            fault.path.insert(0, position)
            raise

    def fields(self, kind: Message) -> dict[str, tuple[int, Field]]:
        """The fields of a message by name, without those that only the walker writes."""
        found = self._names.get(kind.name)
        if found is None:
            found = self._names[kind.name] = {
                spec.name: (number, spec)
                for number, spec in kind.fields.items()
                if spec.name not in (DATA_OFFSET, DATA_LENGTH)
            }
        return found

    def one(self, number: int, spec: Field, value: Json) -> bytes:
        """One value of a field."""
        if spec.message is not None:
            return bytes_field(number, self.message(spec.message, value))
        match spec.kind:
            case "string":
                return bytes_field(number, _text(value).encode("utf-8"))
            case "bytes":
                return bytes_field(number, self.raw_bytes(value))
            case "float":
                return _float_field(number, value)
            case "bool":
                return integer_field(number, int(_bool(value)))
            case "dtype":
                return integer_field(number, _dtype(value))
            case "val_type":
                return integer_field(number, _val_type(value))
        return integer_field(number, _int(value))

    def raw_bytes(self, value: Json) -> bytes:
        """Text stands for its UTF-8, an object for data elsewhere."""
        if isinstance(value, str):
            return value.encode("utf-8")
        if not isinstance(value, dict):
            raise _wrong("text or an object with `bytes`", value)
        found = self.read_data(value, True)
        assert isinstance(found, bytes)  # as asked for
        return found

    def tensor_data(self, number: int, value: Json) -> bytes:
        found = self.read_data(value, False) if isinstance(value, dict) else self.raw_bytes(value)
        if isinstance(found, bytes):
            return bytes_field(number, found)
        places = {spec.name: number for number, spec in TENSOR.fields.items()}
        return integer_field(places[DATA_OFFSET], found.offset) + integer_field(places[DATA_LENGTH], found.length)

    def attrs(self, number: int, attrs: dict[str, Json]) -> bytes:
        """A map of attributes."""
        parts = []
        for key, value in attrs.items():
            try:
                entry = bytes_field(1, key.encode("utf-8")) + bytes_field(2, self.attr(value))
            except DocumentFault as fault:
                fault.path.insert(0, key)
                raise
            parts.append(bytes_field(number, entry))
        return b"".join(parts)

    def attr(self, value: Json) -> bytes:
        """The AttrDef of a value: its kind is that of the JSON value, or what `type` says."""
        if isinstance(value, bool):
            return integer_field(5, int(value))
        if isinstance(value, int):
            return integer_field(3, _int(value))
        if isinstance(value, float) or (isinstance(value, str) and value in NOT_FINITE):
            return _float_field(4, value)
        if isinstance(value, str):
            return bytes_field(2, value.encode("utf-8"))
        if isinstance(value, list):
            return bytes_field(1, self.plain_list(value))
        if value is None:
            return b""
        return self.typed(value) if "type" in value else bytes_field(2, self.raw_bytes(value))

    def plain_list(self, items: list[Json]) -> bytes:
        if not items:
            return b""
        kinds = {type(item) for item in items}
        if kinds == {bool}:
            field = "b"
        elif kinds == {int}:
            field = "i"
        elif kinds <= {int, float} or (kinds <= {int, float, str} and NOT_FINITE.issuperset(_strings(items))):
            field = "f"
        elif kinds <= {str, dict}:
            field = "s"
        else:
            raise DocumentFault("a list attribute holds values of several kinds", f"found {_kinds(items)}")
        return self.list_of(field, items)

    def list_of(self, field: str, items: Json) -> bytes:
        """A ListValue; GE reads the kind from `val_type`."""
        return self.member(LIST, field, items, "value") + integer_field(20, _LIST_VAL_TYPES[field])

    def typed(self, value: dict[str, Json]) -> bytes:
        """{"type": ..., "value": ...}"""
        kind, inner = value["type"], value.get("value")
        if set(value) != {"type", "value"} or not isinstance(kind, str):
            raise DocumentFault("an attribute has members that are unknown", "it has exactly `type` and `value`")
        if kind == TEXT_TYPE:
            return bytes_field(2, _at("value", lambda: self.raw_bytes(inner)))
        if kind in _LIST_FIELD_OF_TYPE:
            return bytes_field(1, self.list_of(_LIST_FIELD_OF_TYPE[kind], inner))
        if kind not in _FIELD_OF_TYPE:
            known = sorted([TEXT_TYPE, *_LIST_FIELD_OF_TYPE, *_FIELD_OF_TYPE])
            raise DocumentFault(f"no attribute has the type {kind!r}", f"known are {', '.join(known)}")
        return self.member(ATTR, _FIELD_OF_TYPE[kind], inner, "value")


def _require_no_data(desc: Json) -> None:
    """A tensor that says how many bytes it has in WEIGHTS_DATA must come with them."""
    size = desc.get("weight_size", 0) if isinstance(desc, dict) else 0
    if size:
        raise missing_data(f"of the tensor's {size} bytes the document has none")


def missing_data(why: str) -> DocumentFault:
    """The fault of a document that was printed without its data."""
    do = "gecli inspect-om MODEL.om --json --embed-data (or --data-file FILE) writes them too"
    return DocumentFault("the document does not have the data of its tensors", why, do)


def _at(name: str | int, make: Callable[[], Any]) -> Any:
    """The result of `make`; its faults lie below `name`."""
    try:
        return make()
    except DocumentFault as fault:
        fault.path.insert(0, name)
        raise


def _unknown(name: str, known: Any) -> DocumentFault:
    return DocumentFault(f"member {name!r} is unknown here", f"known are {', '.join(sorted(known))}", "remove it")


def _wrong(wanted: str, value: Json) -> DocumentFault:
    return DocumentFault(f"the value must be {wanted}", f"found {_kinds([value])}")


_KINDS = {dict: "an object", list: "a list", str: "a string", int: "an integer", float: "a number", bool: "a boolean"}


def _kinds(items: list[Json]) -> str:
    return " and ".join(sorted({_KINDS.get(type(item), "null") for item in items}))


def _strings(items: list[Json]) -> set[str]:
    return {item for item in items if isinstance(item, str)}


def _object(value: Json) -> dict[str, Json]:
    if not isinstance(value, dict):
        raise _wrong("an object", value)
    return value


def _list(value: Json) -> list[Json]:
    if not isinstance(value, list):
        raise _wrong("a list", value)
    return value


def _text(value: Json) -> str:
    if not isinstance(value, str):
        raise _wrong("a string", value)
    return value


def _bool(value: Json) -> bool:
    if not isinstance(value, bool):
        raise _wrong("true or false", value)
    return value


def _int(value: Json) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise _wrong("an integer", value)
    if not -_INT64 <= value < _INT64:
        raise DocumentFault("an integer has more than 64 bits", f"found a number of {value.bit_length()} bits")
    return value


def _float_field(number: int, value: Json) -> bytes:
    if isinstance(value, bool) or not (isinstance(value, int | float) or value in NOT_FINITE):
        raise _wrong('a number, "nan", "inf" or "-inf"', value)
    try:
        data = struct.pack("<f", float(value))
    except OverflowError:
        raise DocumentFault("a number is too large", "floats of an attribute have 32 bits") from None
    return varint(number << 3 | 5) + data


def _dtype(value: Json) -> int:
    if isinstance(value, str):
        if value not in _DTYPES:
            raise DocumentFault(f"data type {value!r} is unknown", f"known are {', '.join(sorted(_DTYPES))}")
        return _DTYPES[value]
    return _int(value)


def _val_type(value: Json) -> int:
    if isinstance(value, str):
        name = value.removeprefix("VT_LIST_")
        if name not in VAL_TYPES:
            known = ", ".join(f"VT_LIST_{each}" for each in VAL_TYPES)
            raise DocumentFault(f"list type {value!r} is unknown", f"known are {known}")
        return VAL_TYPES.index(name)
    return _int(value)
