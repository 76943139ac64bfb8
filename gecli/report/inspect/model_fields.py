"""MODEL_DEF field by field, under the names of GE's ge.proto, for the documents that show everything.

The graph reader (`gecli.wire`) makes a model to work with and leaves out what gecli does not use; these documents show
what is in the file. The bytes come from the walker, which leaves tensor data in the file.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from gecli.records import dataclass
from gecli.report.inspect.view import Large
from gecli.wire.attribute_names import AttrNames
from gecli.wire.byte_source import ByteSource
from gecli.wire.ge_ir_fields import (
    ATTR,
    DATA_LENGTH,
    DATA_OFFSET,
    DESC,
    GRAPH,
    GROUPS,
    MODEL,
    OP,
    TENSOR,
    Field,
    Fields,
    Message,
)
from gecli.wire.ge_ir_shapes import MODEL as LARGE_FIELDS
from gecli.wire.walker import WireError, strip_large_fields

ATTRS = 11  # of a model
LARGE_BYTES = 64 << 10  # an operator of more is written piece by piece
MEMO_BYTES = 64 << 10  # of messages whose fields are kept for others like them; each byte may be a number of its own
MAX_DEPTH = 128  # protobuf allows 100 inside each attribute, and an attribute lies up to ten messages deep itself


@dataclass(frozen=True, slots=True)
class Ref:
    """Bytes that stay in the file."""

    offset: int
    length: int


class ModelFields:
    """The message in `source`: model members at once, graphs and their operators one at a time.

    The bytes of tensors stay in a file; those of a message in memory are in the fields.
    """

    def __init__(self, source: ByteSource | bytes, file_size: int, root_names: AttrNames | None = None) -> None:
        self._file_size = file_size
        self._memo: dict[tuple[int, bytes], Fields] = {}
        self._memo_bytes = 0
        self._names: tuple[AttrNames, ...] = ()
        data = source if isinstance(source, bytes) else strip_large_fields(source, LARGE_FIELDS)
        self._data = memoryview(data)
        self._graphs = [value for number, value in walk(self._data) if _is_graph(number, value)]
        rest = (
            (number, value) for number, value in walk(self._data) if number != ATTRS and not _is_graph(number, value)
        )
        self.members = self._collected(MODEL, rest, 1)
        self.attrs = ModelAttrs(self)
        own = _names(self.attrs)
        first = own or root_names
        self._names = () if first is None else (first, *[root_names or first] * 3)
        self.root_names = root_names or own

    @property
    def has_graphs(self) -> bool:
        return bool(self._graphs)

    def attr_contents(self) -> dict[str, bytes]:
        """The bytes of each attribute of the model, by name."""
        found: dict[str, bytes] = {}
        for number, value in walk(self._data):
            if number == ATTRS and isinstance(value, memoryview):
                key, content = _entry(value)
                found[key] = bytes(content)
        return {key: found[key] for key in sorted(found)}

    def model_attr(self, content: bytes) -> Fields:
        """The value of an attribute of the model. Raises WireError."""
        names, memo = self._names, self._memo
        self._names, self._memo = (), {}  # its names are never compressed
        try:
            return self.message(ATTR, memoryview(content), 2)
        finally:
            self._names, self._memo = names, memo

    def graphs(self) -> Iterator[tuple[Fields, Iterator[Fields]]]:
        """(members without `op`, operators) of each graph."""
        for data in self._graphs:
            head = ((number, value) for number, value in walk(data) if not _is_operator(number, value))
            yield self._collected(GRAPH, head, 2), self._operators(data)

    def _operators(self, graph: memoryview) -> Iterator[Fields]:
        for number, value in walk(graph):
            if _is_operator(number, value):
                fields = self.message(OP, value, 3)
                yield Large(fields) if len(value) > LARGE_BYTES else fields

    def message(self, kind: Message, data: memoryview, depth: int = 0) -> Fields:
        """The fields that a message has, by name."""
        if depth > MAX_DEPTH:
            raise WireError(f"messages are nested deeper than {MAX_DEPTH}", 0)
        memo = (id(kind), bytes(data)) if len(data) <= 512 and kind in (DESC, ATTR) else None
        if memo is not None and memo in self._memo:
            return self._memo[memo]
        found = self._collected(kind, walk(data), depth + 1)
        if kind is TENSOR:
            self._place(found)
        if memo is not None:
            if self._memo_bytes > MEMO_BYTES:
                self._memo.clear()
                self._memo_bytes = 0
            self._memo[memo] = found
            self._memo_bytes += len(data)
        return found

    def _collected(self, kind: Message, fields: Iterable[tuple[int, Any]], depth: int) -> Fields:
        """The fields by name. Of entries with the same key only the last is looked at, as in the reader of the graph:
        what it replaces may be broken. Of the members of a oneof the last one counts, and the pieces of one message are
        one message.
        """
        found: Fields = {}
        maps: dict[str, dict[str, memoryview]] = {}
        pieces: dict[str, tuple[Message, list[memoryview]]] = {}
        for number, value in fields:
            spec = kind.fields.get(number)
            if spec is None:
                continue
            if spec.is_map:
                if isinstance(value, memoryview):
                    key, content = _entry(value)
                    found.setdefault(spec.name, {})
                    maps.setdefault(spec.name, {})[key] = content
            elif spec.message is None or spec.repeated:
                self._store(spec, found, value, depth)
            elif isinstance(value, memoryview):
                found.setdefault(spec.name, {})
                pieces.setdefault(spec.name, (spec.message, []))[1].append(value)
            if spec.always and len(found) > 1 and spec.name in found:
                _keep_only(spec.name, found, pieces)
        for name, (message, parts) in pieces.items():
            found[name] = self._inner(message, parts[0] if len(parts) == 1 else memoryview(b"".join(parts)), depth)
        for name, entries in maps.items():
            found[name] = dict(self._attr(key, content, depth) for key, content in entries.items())
        return found

    def _store(self, spec: Field, found: Fields, value: Any, depth: int) -> None:
        """Put a scalar or an element of a list in its place; of another wire type it is left out, as in protobuf."""
        if spec.message is None:
            self._store_scalar(spec, found, value)
        elif isinstance(value, memoryview):
            found.setdefault(spec.name, []).append(self._inner(spec.message, value, depth))

    def _store_scalar(self, spec: Field, found: Fields, value: Any) -> None:
        values = _values(spec, value)
        if spec.repeated:
            if values:
                found.setdefault(spec.name, []).extend(values)
            return
        for item in values:
            if item or spec.always:
                found[spec.name] = item
            else:
                found.pop(spec.name, None)

    def _inner(self, kind: Message, data: memoryview, depth: int) -> Fields:
        """A message inside; nested graphs and groups, which the graph reader does not look into, may be broken."""
        if kind not in (GRAPH, GROUPS):
            return self.message(kind, data, depth)
        try:
            return self.message(kind, data, depth)
        except WireError:
            return {}

    def _attr(self, key: str, content: memoryview, depth: int) -> tuple[str, Fields]:
        """Name and value of an attribute, with the name's compression undone."""
        inner = self.message(ATTR, content, depth + 1)
        for names in self._names:
            if not key.startswith("\0"):
                break
            try:
                key, inner = _restored(names, key, inner)
            except LookupError:
                break  # the reader of the graph has warned
        return key, inner

    def _place(self, tensor: Fields) -> None:
        """Put a reference in the place of data that the walker left in the file."""
        offset, length = tensor.pop(DATA_OFFSET, 0), tensor.pop(DATA_LENGTH, 0)
        if "data" not in tensor and length and 0 <= offset <= offset + length <= self._file_size:
            tensor["data"] = Ref(offset, length)


class ModelAttrs(Mapping[str, Fields]):
    """The attributes of a model, sorted by name: a hostile one has many, so each is made when it is asked for."""

    def __init__(self, fields: ModelFields) -> None:
        self._fields = fields
        self._contents = fields.attr_contents()
        for content in self._contents.values():
            fields.model_attr(content)  # what is broken is found before anything is shown

    def __getitem__(self, key: str) -> Fields:
        return self._fields.model_attr(self._contents[key])

    def __iter__(self) -> Iterator[str]:
        return iter(self._contents)

    def __len__(self) -> int:
        return len(self._contents)


def _keep_only(name: str, *members: dict[str, Any]) -> None:
    for each in members:
        for other in [key for key in each if key != name]:
            del each[other]


def _is_graph(number: int, value: Any) -> bool:
    return number == 7 and isinstance(value, memoryview)


def _is_operator(number: int, value: Any) -> bool:
    return number == 6 and isinstance(value, memoryview)


def _entry(data: memoryview) -> tuple[str, memoryview]:
    """Key and value of one map entry; a value in parts is one message."""
    key, content, parts = "", memoryview(b""), bytearray()
    for number, value in walk(data):
        if not isinstance(value, memoryview):
            continue
        if number == 1:
            key = _text(value)
        elif number == 2:
            parts += content
            content = value
    return key, memoryview(bytes(parts + content)) if parts else content


def walk(data: memoryview, *, cut: bool = False) -> Iterator[tuple[int, Any]]:
    """(number, value): an int for a varint, a span for bytes, 4 or 8 bytes for fixed fields.

    With `cut` the last span may be shorter than it says. Raises WireError.
    """
    at, end = 0, len(data)
    try:
        while at < end:
            tag = data[at]
            at += 1
            if tag >= 0x80:
                tag, at = _varint(data, at - 1)
            kind = tag & 7
            if kind == 2:
                length = data[at]
                at += 1
                if length >= 0x80:
                    length, at = _varint(data, at - 1)
                if length > end - at and not cut:
                    raise WireError(f"a field of {length} bytes ends outside its message", at)
                yield tag >> 3, data[at : at + length]
                at += length
            elif kind == 0:
                value, at = _varint(data, at)
                yield tag >> 3, value
            elif kind in (1, 5):
                width = 8 if kind == 1 else 4
                if width > end - at:
                    raise WireError("a field ends outside its message", at)
                yield tag >> 3, (data[at : at + width],)
                at += width
            else:
                raise WireError(f"wire type {kind} is not used by this format", at)
    except IndexError:
        raise WireError("the message ends inside a field", at) from None


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFFFFFFFFFFFFFF, at
        shift += 7
        if shift > 63:
            raise WireError("a varint has more than 10 bytes", at)


def _values(spec: Field, value: Any) -> list[Any]:
    """The values of one occurrence of a scalar field: several when it is packed, none for another wire type."""
    kind = spec.kind
    if kind in ("string", "bytes"):
        if not isinstance(value, memoryview):
            return []
        return [_text(value) if kind == "string" else bytes(value)]
    if isinstance(value, memoryview) and not spec.repeated:
        return []
    if kind == "float":
        data = value[0] if isinstance(value, tuple) and len(value[0]) == 4 else value
        if not isinstance(data, memoryview):
            return []
        return list(struct.unpack(f"<{len(data) // 4}f", data[: len(data) // 4 * 4]))
    numbers: list[int] = []
    if isinstance(value, memoryview):
        at = 0
        while at < len(value):
            number, at = _checked_varint(value, at)
            numbers.append(number)
    elif isinstance(value, int):
        numbers.append(value)
    if kind == "bool":
        return [number != 0 for number in numbers]
    return [number - (1 << 64) if number >= 1 << 63 else number for number in numbers]


def _checked_varint(data: memoryview, at: int) -> tuple[int, int]:
    try:
        return _varint(data, at)
    except IndexError:
        raise WireError("a packed list ends inside a number", at) from None


def _text(data: memoryview) -> str:
    return bytes(data).decode("utf-8", "surrogateescape")


def _names(attrs: Mapping[str, Fields]) -> AttrNames | None:
    """The dictionary of compressed names in a model's attributes."""
    if attrs.get("om_compress_version", {}).get("i") != 1:
        return None

    def items(key: str, kind: str) -> list[Any]:
        found = attrs.get(key, {}).get("list", {}).get(kind, [])
        return found if isinstance(found, list) else []

    def texts(key: str) -> tuple[str, ...]:
        return tuple(item.decode("utf-8", "surrogateescape") for item in items(key, "s"))

    return AttrNames(texts("attr_name_enum"), texts("attr_value_enum"), tuple(items("attrs_use_string_value", "b")))


def _restored(names: AttrNames, key: str, value: Fields) -> tuple[str, Fields]:
    """Undo the coding of one attribute. Raises LookupError."""
    from gecli.wire.attribute_names import key_index

    index = key_index(key)
    if index >= len(names.names):
        raise LookupError(index)
    if index < len(names.use_string_value) and names.use_string_value[index]:
        if "i" in value:
            value = {"s": names.text(value["i"]).encode("utf-8", "surrogateescape")}
        elif "i" in value.get("list", {}):
            texts = [names.text(item).encode("utf-8", "surrogateescape") for item in value["list"]["i"]]
            value = {"list": {"s": texts, "val_type": 1}}
        elif value.get("list") == {"val_type": 2}:
            value = {"list": {"val_type": 1}}
    return names.names[index], value
