"""Messages of MODEL_DEF one at a time: small ones through protobuf, what is large in pieces or not at all."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from gecli.ir.attributes import RawAttr
from gecli.pb import ge_ir_pb2 as ge_ir
from gecli.wire.attributes import AttrReader
from gecli.wire.byte_source import ByteSource
from gecli.wire.decode_errors import DECODE_ERRORS, reason
from gecli.wire.field_scan import FieldScanner, Section, Span
from gecli.wire.ge_ir_shapes import ATTR, DESC, OP
from gecli.wire.memory_budget import NUMBER_COST, TEXT_COST
from gecli.wire.tensor_desc import Message
from gecli.wire.walker import LARGE_BYTES, LENGTH_DELIMITED, Shape, WireError, strip_large_fields
from gecli.wire.writer import bytes_field

ATTRS = 11  # of ModelDef and GraphDef
OP_ATTRS, OP_DESCS = 10, (33, 34)
VAL_TYPE = 20  # of ListValue
WHOLE_BYTES = 1 << 16  # messages up to this size are parsed as they are, larger ones field by field
MAX_FIELD_BYTES = 4 << 20  # of what protobuf parses; larger are only tensor data, strings and bytes
MAX_FIELDS = 1 << 19  # of one large operator: a NetOutput has two for each output of the model
_ENTRY_COST = 64
_ATTR_COST = 300  # of an attribute of a large operator: it is in three tables while they are sorted
_PARSED_FACTOR = 48  # a message of two bytes becomes an object of a hundred
_RAW_KINDS = {13: "g", 17: "expression"}


@contextmanager
def located(position: int) -> Iterator[None]:
    """What protobuf cannot read, with its place."""
    try:
        yield
    except DECODE_ERRORS as error:
        raise WireError(reason(error), position) from error


class MessageReader:
    """Reads the messages in `source`. Positions count from its begin."""

    def __init__(self, source: ByteSource) -> None:
        self.source = source
        self._scanner = FieldScanner(source)
        self.spans = self._scanner.spans

    def small(self, span: Span) -> bytes:
        """A field, tag included, that no file has large."""
        if span.end - span.begin > MAX_FIELD_BYTES:
            size = span.end - span.begin
            raise WireError(f"field {span.number} has {size} bytes, at most {MAX_FIELD_BYTES} are read", span.begin)
        return self._scanner.take(span.begin, span.end)

    def parsed(self, kind: Any, data: bytes, position: int) -> Message:
        """A message from bytes at `position`."""
        with located(position):
            return kind.FromString(data)

    def attribute(self, span: Span, reader: AttrReader) -> tuple[str, Any]:
        """Name and value of a map<string, AttrDef> entry. Raises DecodeError or WireError."""
        key, value, joined = "", None, bytearray()
        for part in self.spans(span.body, span.end):
            if part.kind != LENGTH_DELIMITED:
                continue
            if part.number == 1:
                key = self.small(part)[part.body - part.begin :].decode("utf-8")
            elif part.number == 2:
                if value is not None:  # a message in parts is one
                    joined += self._stripped(value.body, value.end, ATTR)
                    self._require(len(joined), reader)
                value = part
        if value is None:
            reader.budget.spend(TEXT_COST)
            return key, RawAttr("none", b"")
        if not joined:
            return key, self.attr_value(value.body, value.end, reader)
        joined += self._stripped(value.body, value.end, ATTR)
        self._require(len(joined), reader)
        return key, reader.value(bytes(joined))

    def attr_value(self, begin: int, end: int, reader: AttrReader) -> Any:
        """The value of the AttrDef in a range."""
        if end - begin <= WHOLE_BYTES:
            return reader.value(self._stripped(begin, end, ATTR))
        only = next(self.spans(begin, end))
        if only.end == end and only.kind == LENGTH_DELIMITED:
            if only.number in (2, 7) or only.number in _RAW_KINDS:
                reader.budget.spend(2 * (end - begin))  # as bytes, and as what is made from them
            if only.number == 2:
                return self._scanner.take(only.body, only.end).decode("utf-8", "surrogateescape")
            if only.number == 7:
                return self._scanner.take(only.body, only.end)
            if only.number in _RAW_KINDS:
                reader.nested_graphs += _RAW_KINDS[only.number] == "g"
                return RawAttr(_RAW_KINDS[only.number], self._scanner.take(begin, end))
            if only.number == 1:
                items = self._texts(only, reader)
                if items is not None:
                    return items
        data = self._stripped(begin, end, ATTR)
        self._require(len(data), reader)
        return reader.value(data)

    def _require(self, size: int, reader: AttrReader) -> None:
        """Room for the objects that protobuf makes of a large message in a file. Raises TooManyObjects."""
        if self.source.path is not None and size > WHOLE_BYTES:
            reader.budget.require(_PARSED_FACTOR * size)

    def operator(self, span: Span, reader: AttrReader) -> tuple[Message, dict[str, Any]]:
        """The OpDef in a field; of a large one the attributes beside it, because each would be a message."""
        if span.end - span.begin <= WHOLE_BYTES:
            return ge_ir.OpDef.FromString(self._stripped(span.body, span.end, OP)), {}
        large: dict[str, Any] = {}
        rest = bytearray()  # not a list: of a hundred thousand pieces each would be an object
        for count, part in enumerate(self.spans(span.body, span.end)):
            if count == MAX_FIELDS:
                raise WireError(f"an operator has more than {MAX_FIELDS} fields", part.begin)
            if part.number == OP_ATTRS and part.kind == LENGTH_DELIMITED:
                key, value = self.attribute(part, reader)
                reader.budget.spend(TEXT_COST + len(key) + _ATTR_COST)
                large[key] = value
            elif part.number in OP_DESCS and part.kind == LENGTH_DELIMITED:
                desc = self._stripped(part.body, part.end, DESC)
                self._require(len(desc), reader)
                rest += bytes_field(part.number, desc)
            else:
                rest += self._stripped(part.begin, part.end, OP)
            reader.budget.spend(_ENTRY_COST)
        reader.budget.require(3 * len(rest))
        return ge_ir.OpDef.FromString(bytes(rest)), large

    def _texts(self, span: Span, reader: AttrReader) -> tuple[Any, ...] | None:
        """A list of strings or bytes, item by item; None for other lists."""
        numbers: set[int] = set()
        for part in self.spans(span.body, span.end):
            if part.number == VAL_TYPE:
                continue
            if part.kind != LENGTH_DELIMITED or part.number not in (2, 7):
                return None
            numbers.add(part.number)
            reader.budget.spend(TEXT_COST + part.end - part.body + NUMBER_COST)
        if len(numbers) != 1:
            return None
        parts = (part for part in self.spans(span.body, span.end) if part.number != VAL_TYPE)
        items = (self._scanner.take(part.body, part.end) for part in parts)
        if 2 in numbers:
            return tuple([item.decode("utf-8", "surrogateescape") for item in items])
        return tuple(items)

    def _stripped(self, begin: int, end: int, shape: Shape) -> bytes:
        """The message in a range, its tensor data left in the file. Raises WireError when much else is in it."""
        if self.source.path is None or end - begin < LARGE_BYTES:
            return self._scanner.take(begin, end)
        try:
            return strip_large_fields(Section(self.source, begin, end), shape, MAX_FIELD_BYTES)
        except WireError as error:
            raise WireError(str(error), begin + error.offset) from None
