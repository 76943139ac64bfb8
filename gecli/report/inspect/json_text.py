"""JSON text of documents whose long lists are made while they are written.

The standard library's encoder is slow when it indents: it then walks every value in generators.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from json.encoder import encode_basestring, encode_basestring_ascii
from typing import Any

from gecli.report.inspect.view import Large, Members, Rows

INDENT = "  "
STREAMED_DEPTH = 3  # lazy lists stand at most so deep, or directly in an item of another lazy list
ITEMS_AT_ONCE = 1000
CHARACTERS_AT_ONCE = 1 << 16
MAX_DEPTH = 1000  # Python's stack ends before
Quote = Callable[[str], str]


def json_chunks(value: Any, *, ascii_only: bool = False) -> Iterator[str]:
    """The text of `value` in pieces: two-space indent, sorted keys, no newline at the end.

    NaN and infinities are the strings nan, inf and -inf: JSON has no numbers for them.
    """
    return _chunks(value, encode_basestring_ascii if ascii_only else encode_basestring, "", 0)


def _chunks(value: Any, quote: Quote, pad: str, depth: int) -> Iterator[str]:
    inner = pad + INDENT
    if isinstance(value, Large | Members):
        depth = -MAX_DEPTH  # whatever is in it is streamed
    if isinstance(value, Mapping) and (depth < STREAMED_DEPTH or any(type(item) is Rows for item in value.values())):
        mark = "{\n"
        for key in sorted(value):
            yield f"{mark}{inner}{quote(key)}: "
            yield from _chunks(value[key], quote, inner, depth + 1)
            mark = ",\n"
        yield f"\n{pad}}}" if value else "{}"
    elif isinstance(value, list | tuple) and len(value) > ITEMS_AT_ONCE:
        mark = "[\n"
        for begin in range(0, len(value), ITEMS_AT_ONCE):
            some = value[begin : begin + ITEMS_AT_ONCE]
            if any(isinstance(item, dict | list | tuple) for item in some):
                for item in some:
                    yield mark + inner
                    yield from _chunks(item, quote, inner, depth + 1)
                    mark = ",\n"
            else:
                yield mark + ",\n".join([inner + _text(item, quote, inner) for item in some])
            mark = ",\n"
        yield f"\n{pad}]"
    elif isinstance(value, Rows) or (isinstance(value, list) and depth < STREAMED_DEPTH):
        mark = "[\n"
        for item in value:
            yield mark + inner
            yield from _chunks(item, quote, inner, depth + 1)
            mark = ",\n"
        yield f"\n{pad}]" if mark == ",\n" else "[]"
    elif isinstance(value, str) and len(value) > CHARACTERS_AT_ONCE:
        yield '"'
        for begin in range(0, len(value), CHARACTERS_AT_ONCE):
            yield quote(value[begin : begin + CHARACTERS_AT_ONCE])[1:-1]
        yield '"'
    else:
        yield _text(value, quote, pad)


def _text(value: Any, quote: Quote, pad: str) -> str:
    if isinstance(value, str):
        return quote(value)
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return int.__repr__(value)
    if isinstance(value, float):
        return float.__repr__(value) if value - value == 0 else quote(str(value))
    inner = pad + INDENT
    if isinstance(value, dict):
        if not value:
            return "{}"
        items = [f"{inner}{quote(key)}: {_text(value[key], quote, inner)}" for key in sorted(value)]
        return "{\n" + ",\n".join(items) + f"\n{pad}}}"
    if isinstance(value, list | tuple):
        if not value:
            return "[]"
        return "[\n" + ",\n".join([inner + _text(item, quote, inner) for item in value]) + f"\n{pad}]"
    raise TypeError(f"a document cannot hold a {type(value).__name__}")
