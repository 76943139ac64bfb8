"""The fields of one protobuf message in a file, one after the other: a model is decoded operator by operator.

Memory holds a window of the file and the message at hand, never the whole model.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from gecli.wire.byte_source import ByteSource
from gecli.wire.walker import LENGTH_DELIMITED, WireError, read_varint, skip_scalar

WINDOW_BYTES = 1 << 18
_HEAD_BYTES = 20  # a tag and a length need at most 20 bytes


class Span(NamedTuple):
    """One field: its tag is at `begin`, the content of a length-delimited one at `body`, the next field at `end`."""

    number: int
    kind: int
    begin: int
    body: int
    end: int


class FieldScanner:
    """Reads `source` through a window. Positions count from the begin of the source."""

    def __init__(self, source: ByteSource) -> None:
        self.source = source
        self._window = b""
        self._start = 0

    def spans(self, begin: int, end: int) -> Iterator[Span]:
        """The fields of the message at `begin`. Raises WireError where the bytes are none."""
        position = begin
        while position < end:
            at = position - self._start
            window = self._window
            if at < 0 or at + _HEAD_BYTES > len(window):
                window, at = self._around(position, min(_HEAD_BYTES, end - position))
            begin_at = at
            try:
                tag = window[at]
                at += 1
                if tag >= 0x80:
                    tag, at = read_varint(window, begin_at)
                if tag < 8:
                    raise WireError("a field has the number 0", position)
                kind = tag & 7
                if kind == LENGTH_DELIMITED:
                    length = window[at]
                    at += 1
                    if length >= 0x80:
                        length, at = read_varint(window, at - 1)
                    body = position + at - begin_at
                    stop = body + length
                else:
                    body = position + at - begin_at
                    stop = skip_scalar(window, at, self._start, kind)
            except IndexError:
                raise WireError("the message ends inside a field", position) from None
            except WireError as error:
                raise WireError(str(error), position) from None
            if stop > end:
                held = f"a field of {stop - body} bytes ends {stop - end} bytes outside its message"
                raise WireError(held, position)
            yield Span(tag >> 3, kind, position, body, stop)
            position = stop

    def take(self, begin: int, end: int) -> bytes:
        """The bytes of a range. Raises WireError when the file became shorter."""
        length = end - begin
        at = begin - self._start
        if at >= 0 and at + length <= len(self._window):
            return self._window[at : at + length]
        if length <= WINDOW_BYTES:
            window, at = self._around(begin, length)
            return window[at : at + length]
        data = self.source.read(begin, length)
        if len(data) != length:
            raise WireError(f"the file became shorter while it was read: {length - len(data)} bytes are missing", begin)
        return data

    def _around(self, position: int, length: int) -> tuple[bytes, int]:
        """A window that holds the range, and where the range begins in it."""
        at = position - self._start
        if at < 0 or at + length > len(self._window):
            self._window = self.source.read(position, min(WINDOW_BYTES, self.source.size - position))
            self._start, at = position, 0
            if len(self._window) < length:
                raise WireError("the file became shorter while it was read", position + len(self._window))
        return self._window, at


class Section:
    """A range of a source as a source of its own."""

    def __init__(self, source: ByteSource, begin: int, end: int) -> None:
        self.path = source.path
        self.base = source.base + begin
        self.size = end - begin
        self._source = source
        self._begin = begin

    def read(self, offset: int, length: int) -> bytes:
        return self._source.read(self._begin + offset, length)
