"""Protobuf wire bytes written by hand, where messages are joined from parts that were encoded once."""

from __future__ import annotations

_SMALL = [bytes((n,)) for n in range(128)]


def varint(value: int) -> bytes:
    """A non-negative integer below 2**64, 7 bits a byte."""
    if value < 128:
        return _SMALL[value]
    out = bytearray()
    while value >= 128:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def signed_varint(value: int) -> bytes:
    """An int64: negative numbers as their two's complement."""
    return varint(value if value >= 0 else value + (1 << 64))


def integer_field(number: int, value: int) -> bytes:
    """An int64 field, written even when it is 0."""
    return varint(number << 3) + signed_varint(value)


def header(number: int, size: int) -> bytes:
    """Tag and length of a length-delimited field with `size` bytes."""
    return varint(number << 3 | 2) + varint(size)


def bytes_field(number: int, data: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(data)) + data


def text_field(number: int, text: str) -> bytes:
    """A string field; nothing for the empty string, as proto3 does."""
    return bytes_field(number, text.encode("utf-8")) if text else b""
