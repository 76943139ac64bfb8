"""Protobuf wire bytes written by hand, where messages are joined from parts that were encoded once."""

from __future__ import annotations

from collections.abc import Sequence

_SMALL = [bytes((n,)) for n in range(128)]


def varint(value: int) -> bytes:
    """A non-negative integer below 2**64, 7 bits a byte."""
    if value < 128:
        return _SMALL[value]
    if value < 1 << 14:
        return bytes((value & 0x7F | 0x80, value >> 7))
    out = bytearray()
    while value >= 128:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


class _Tags(dict[int, bytes]):
    """Tags by field number, made when first asked for."""

    def __init__(self, wire_type: int) -> None:
        self.wire_type = wire_type

    def __missing__(self, number: int) -> bytes:
        tag = self[number] = varint(number << 3 | self.wire_type)
        return tag


_NUMBER_TAGS = _Tags(0)
_DATA_TAGS = _Tags(2)


def signed_varint(value: int) -> bytes:
    """An int64: negative numbers as their two's complement."""
    return varint(value if value >= 0 else value + (1 << 64))


def integer_field(number: int, value: int) -> bytes:
    """An int64 field, written even when it is 0."""
    return _NUMBER_TAGS[number] + (_SMALL[value] if 0 <= value < 128 else signed_varint(value))


def number_field(number: int, value: int) -> bytes:
    """An int64 field; nothing for 0, as proto3 does."""
    if not value:
        return b""
    return _NUMBER_TAGS[number] + (_SMALL[value] if 0 <= value < 128 else signed_varint(value))


def packed_field(number: int, values: Sequence[int]) -> bytes:
    """A packed repeated int64 or bool field; nothing for no values."""
    return bytes_field(number, b"".join(map(signed_varint, values))) if values else b""


def header(number: int, size: int) -> bytes:
    """Tag and length of a length-delimited field with `size` bytes."""
    return _DATA_TAGS[number] + (_SMALL[size] if size < 128 else varint(size))


def bytes_field(number: int, data: bytes) -> bytes:
    size = len(data)
    return _DATA_TAGS[number] + (_SMALL[size] if size < 128 else varint(size)) + data


def text_field(number: int, text: str) -> bytes:
    """A string field; nothing for the empty string, as proto3 does."""
    return bytes_field(number, text.encode("utf-8")) if text else b""
