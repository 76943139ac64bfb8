"""What protobuf raises for bytes that are no message; its pure-Python implementation has more kinds."""

from __future__ import annotations

from google.protobuf.message import DecodeError

DECODE_ERRORS = (DecodeError, UnicodeDecodeError, RecursionError)
TOO_DEEP = "messages are nested deeper than the 100 that are read"  # what protobuf itself allows
_SIGNS_OF_DEPTH = ("MaxDepth", "nesting", "recursion")


def reason(error: BaseException) -> str:
    """What protobuf says, without the names of its own classes."""
    text = str(error) or type(error).__name__
    if isinstance(error, RecursionError) or any(sign in text for sign in _SIGNS_OF_DEPTH):
        return TOO_DEEP
    if text.startswith("Error parsing message"):
        _, _, text = text.partition("': ")
        return f"not a readable message: {text}" if text else "not a readable message"
    return text
