"""What protobuf raises for bytes that are no message; its pure-Python implementation has more kinds."""

from __future__ import annotations

from google.protobuf.message import DecodeError

DECODE_ERRORS = (DecodeError, UnicodeDecodeError, RecursionError)
