"""What protobuf raises for bytes that are no message; its pure-Python implementation has more kinds."""

from __future__ import annotations

from google.protobuf.message import DecodeError

DECODE_ERRORS = (DecodeError, UnicodeDecodeError, RecursionError)


def reason(error: BaseException) -> str:
    """What protobuf says, without the names of its own classes."""
    text = str(error) or type(error).__name__
    if text.startswith("Error parsing message"):
        _, _, text = text.partition("': ")
        return f"not a readable message: {text}" if text else "not a readable message"
    return text
