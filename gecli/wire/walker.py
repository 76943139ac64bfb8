"""A walk over protobuf wire bytes that leaves large fields in the file.

A model file is mostly weights. The walker reads it through small windows, copies everything but the large byte
fields, and puts two private fields (offset and length in the file) in their place. What it returns is handed to
protobuf, so that memory holds the graph and never the weights.
"""

from __future__ import annotations

from dataclasses import field

from gecli.records import dataclass
from gecli.wire.byte_source import ByteSource
from gecli.wire.writer import integer_field, varint

WINDOW_BYTES = 1 << 16
LARGE_BYTES = 1 << 12  # smaller fields, and messages without room for a large one, are copied as they are
MAX_DEPTH = 64  # protobuf itself stops at 100
LENGTH_DELIMITED = 2


class WireError(ValueError):
    """The bytes are not a protobuf message; `offset` is where in the source."""

    def __init__(self, message: str, offset: int) -> None:
        super().__init__(message)
        self.offset = offset


class TooDeep(WireError):
    """Messages in messages, beyond what is read."""


@dataclass(eq=False, slots=True)
class Shape:
    """What the walker must know of a message type: fields that may be large, fields that may contain such fields.

    `large` maps a field number to the numbers of the private fields that take its offset and its length.
    """

    large: dict[int, tuple[int, int]] = field(default_factory=dict)
    children: dict[int, Shape] = field(default_factory=dict)


def strip_large_fields(source: ByteSource, shape: Shape, limit_bytes: int | None = None) -> bytes:
    """The message of `source` with its large fields replaced. Offsets count from the start of the file.

    Raises WireError when the bytes are not a message, or when more than `limit_bytes` are left of it.
    """
    pieces: list[bytes] = []
    walk = _Walk(source, source.size if limit_bytes is None else limit_bytes)
    if walk.message(0, source.size, shape, pieces, 0) is None:
        return walk.read(0, source.size)
    return b"".join(pieces)


class _Walk:
    def __init__(self, source: ByteSource, limit_bytes: int) -> None:
        self.source = source
        self.limit_bytes = self.room = limit_bytes
        self.window = b""
        self.start = 0

    def load(self, position: int) -> tuple[bytes, int]:
        """A window that begins at `position`."""
        if self.start <= position and position + 20 <= self.start + len(self.window):
            return self.window, self.start
        self.window = self.source.read(position, min(WINDOW_BYTES, self.source.size - position))
        self.start = position
        return self.window, position

    def message(self, begin: int, end: int, shape: Shape, pieces: list[bytes], depth: int) -> int | None:
        """Walk one message; appends its new bytes and returns their count, None when nothing was replaced."""
        if depth > MAX_DEPTH:
            raise TooDeep(f"messages are nested deeper than {MAX_DEPTH}", begin)
        total = 0
        copied = position = begin
        window, start = self.load(begin)
        try:
            while position < end:
                at = position - start
                if at + 20 > len(window):  # a tag and a length need at most 20 bytes
                    window, start = self.load(position)
                    at = 0
                tag = window[at]
                at += 1
                if tag >= 0x80:
                    tag, at = read_varint(window, at - 1)
                if tag < 8:
                    raise WireError("a field has the number 0", position)
                kind = tag & 7
                if kind != LENGTH_DELIMITED:
                    position = skip_scalar(window, at, start, kind)
                    if position > end:
                        raise WireError("a field ends outside its message", position)
                    continue
                length = window[at]
                at += 1
                if length >= 0x80:
                    length, at = read_varint(window, at - 1)
                body = start + at
                stop = body + length
                if stop > end:
                    raise WireError(f"a field of {length} bytes ends {stop - end} bytes outside its message", position)
                if length >= LARGE_BYTES:
                    replacement = self.large_field(tag, body, length, shape, depth)
                    if replacement is not None:
                        total += self.copy(copied, position, pieces)
                        pieces += replacement
                        total += sum(map(len, replacement))
                        copied = stop
                    window, start = self.window, self.start
                    if stop < start:
                        window, start = self.load(stop)
                position = stop
        except IndexError:
            raise WireError("the message ends inside a field", position) from None
        if copied == begin:
            return None
        return total + self.copy(copied, end, pieces)

    def large_field(self, tag: int, body: int, length: int, shape: Shape, depth: int) -> list[bytes] | None:
        """What takes the place of a large field; None when it is copied as it is."""
        private = shape.large.get(tag >> 3)
        if private is not None:
            offset_field, length_field = private
            place = self.source.base + body
            return [integer_field(offset_field, place), integer_field(length_field, length)]
        child = shape.children.get(tag >> 3)
        if child is None:
            return None
        inside: list[bytes] = []
        size = self.message(body, body + length, child, inside, depth + 1)
        return None if size is None else [varint(tag) + varint(size), *inside]

    def copy(self, begin: int, end: int, pieces: list[bytes]) -> int:
        if begin == end:
            return 0
        pieces.append(self.read(begin, end))
        return end - begin

    def read(self, begin: int, end: int) -> bytes:
        """Bytes that stay in the message."""
        self.room -= end - begin
        if self.room < 0:
            raise WireError(f"more than {self.limit_bytes} bytes that are no tensor data", begin)
        block = self.source.read(begin, end - begin)
        if len(block) != end - begin:
            raise WireError("the file became shorter while it was read", begin + len(block))
        return block


def read_varint(window: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = window[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
        if shift > 63:
            raise WireError("a varint has more than 10 bytes", 0)


def skip_scalar(window: bytes, at: int, start: int, kind: int) -> int:
    if kind == 0:
        return start + read_varint(window, at)[1]
    if kind == 1:
        return start + at + 8
    if kind == 5:
        return start + at + 4
    raise WireError(f"wire type {kind} is not used by this format", start + at)
