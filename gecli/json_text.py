r"""JSON with texts that can be written again: what gecli reads is refused, and what it prints is escaped, otherwise.

JSON can write one half of a surrogate pair (`"\ud800"`), which no other text can. Python's reader lets it pass, and
the first file or path made of it fails. Halves from U+DC80 to U+DCFF are how Python holds bytes that are no UTF-8.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

# What a list or an object takes in memory at least, with CPython 3.11, and how much a text may ask for. In graphs,
# reports and records of the cache an object has dozens of characters: they ask for five bytes for each character.
LIST_COST, OBJECT_COST = 80, 280
FREE_BYTES, FACTOR = 64 << 20, 8

_ESCAPED = re.compile(r"\\u[dD][89a-fA-F]")
_HALF = re.compile("[\ud800-\udfff]")


def parse_json(
    text: str | bytes, *, raw_bytes: bool = False, parse_constant: Callable[[str], Any] | None = None
) -> Any:
    """The value in a text, with or without a byte order mark.

    With `raw_bytes` texts may hold bytes that are no UTF-8, as paths do. Raises ValueError, RecursionError.
    """
    import json

    require_room(text)
    if isinstance(text, bytes):
        text = text.decode("utf-8-sig", "surrogateescape" if raw_bytes else "strict")
    content = json.loads(text, parse_constant=parse_constant)
    half = half_character(text, content, raw_bytes=raw_bytes)
    if half:
        raise ValueError(f"{half} is one half of a surrogate pair")
    return content


class TooManyValues(ValueError):
    """The text is hardly more than brackets, which would take memory out of all proportion to it."""


def require_room(text: str | bytes) -> None:
    """Raises TooManyValues before a text is read that would take far more memory than its length lets expect."""
    allowed = FREE_BYTES + FACTOR * len(text)
    if len(text) * OBJECT_COST // 2 <= allowed:  # each has two brackets
        return
    marks = ("[", "{") if isinstance(text, str) else (b"[", b"{")
    lists, objects = (text.count(mark) for mark in marks)  # type: ignore[arg-type]  # of the same kind as the text
    if lists * LIST_COST + objects * OBJECT_COST > allowed:
        raise TooManyValues(
            f"it has {lists} lists and {objects} objects, which {len(text)} characters of a real file do not have"
        )


def half_character(text: str, content: Any, *, raw_bytes: bool = False) -> str:
    r"""The first half of a surrogate pair, as `\ud800`, in the value that a text was read into; empty without one."""
    if not _ESCAPED.search(text):
        return ""
    import json

    try:
        json.dumps(content, ensure_ascii=False).encode("utf-8", "surrogateescape" if raw_bytes else "strict")
    except UnicodeEncodeError as error:
        return _escape(error.object[error.start])
    return ""


def escape_halves(text: str) -> str:
    r"""JSON text in which bytes that are no UTF-8, and other halves of pairs, are escapes such as `\udcff`."""
    return text if text.isascii() else _HALF.sub(lambda found: _escape(found[0]), text)


def _escape(half: str) -> str:
    return f"\\u{ord(half):04x}"
