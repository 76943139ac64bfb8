r"""JSON with texts that can be written again: what gecli reads is refused, and what it prints is escaped, otherwise.

JSON can write one half of a surrogate pair (`"\ud800"`), which no other text can. Python's reader lets it pass, and
the first file or path made of it fails. Halves from U+DC80 to U+DCFF are how Python holds bytes that are no UTF-8.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any, NamedTuple

# Bytes of memory with CPython 3.11 that a list or an object of few members takes, a text without its characters, a key
# with its place in tables, the place of a value, a number.
LIST_COST, OBJECT_COST, TEXT_COST, KEY_COST, PLACE_COST, NUMBER_COST = 112, 224, 60, 100, 9, 32


class Room(NamedTuple):
    """How much memory the values of a text may take: for any text, and for each of its characters.

    Without `values` brackets alone are counted: texts and numbers are what the document is there for.
    """

    free_bytes: int
    factor: int
    values: bool


# Records of the cache and options ask for four to eight bytes for each character; a process that reads one stays below
# twice the text and 64 MiB while it has a few MiB. Graphs and checkpoints are larger, and may hold the data of tensors.
RECORDS, GRAPHS = Room(14 << 20, 4, True), Room(64 << 20, 8, False)

_ESCAPED = re.compile(r"\\u[dD][89a-fA-F]")
_HALF = re.compile("[\ud800-\udfff]")


def parse_json(
    text: str | bytes,
    *,
    raw_bytes: bool = False,
    parse_constant: Callable[[str], Any] | None = None,
    room: Room = RECORDS,
) -> Any:
    """The value in a text, with or without a byte order mark; one that takes more than `room` is refused.

    With `raw_bytes` texts may hold bytes that are no UTF-8, as paths do. Raises ValueError, RecursionError.
    """
    import json

    if isinstance(text, bytes):
        text = text.decode("utf-8-sig", "surrogateescape" if raw_bytes else "strict")
    require_room(text, room)
    content = json.loads(text, parse_constant=parse_constant)
    half = half_character(text, content, raw_bytes=raw_bytes)
    if half:
        raise ValueError(f"{half} is one half of a surrogate pair")
    return content


class TooManyValues(ValueError):
    """The text is hardly more than marks between values, which would take memory out of all proportion to it."""


def require_room(text: str | bytes, room: Room) -> None:
    """Raises TooManyValues before a text is read that would take far more memory than its length lets expect."""
    allowed = room.free_bytes + room.factor * len(text)
    if len(text) * OBJECT_COST <= allowed:
        return
    lists, objects = _count(text, "["), _count(text, "{")
    cost = LIST_COST * lists + OBJECT_COST * objects + sys.getsizeof(text) - len(text)  # one wide character: all are
    found = f"{lists} lists and {objects} objects"
    if room.values:
        texts, keys, values = _count(text, '"') // 2, _count(text, ":"), _count(text, ",") + lists + objects
        cost += TEXT_COST * texts + KEY_COST * keys + PLACE_COST * values
        cost += NUMBER_COST * max(values + keys - texts, 0)
        found = f"{lists} lists, {objects} objects and {values} values"
    if cost > allowed:
        raise TooManyValues(f"it has {found}, which {len(text)} characters of a real file do not have")


def _count(text: str | bytes, mark: str) -> int:
    return text.count(mark) if isinstance(text, str) else text.count(mark.encode())


def half_character(text: str, content: Any, *, raw_bytes: bool = False) -> str:
    r"""The first half of a surrogate pair, as `\ud800`, in the value that a text was read into; empty without one."""
    if not _ESCAPED.search(text):
        return ""
    errors = "surrogateescape" if raw_bytes else "strict"
    for each in _texts(content):
        try:
            each.encode("utf-8", errors)
        except UnicodeEncodeError as error:
            return _escape(each[error.start])
    return ""


def _texts(content: Any) -> Iterator[str]:
    """The texts in a value, keys among them, in their order."""
    waiting: list[Iterator[Any]] = [iter((content,))]
    while waiting:
        for value in waiting[-1]:
            if isinstance(value, str):
                yield value
            elif isinstance(value, list):
                waiting.append(iter(value))
                break
            elif isinstance(value, dict):
                waiting.append(chain.from_iterable(value.items()))
                break
        else:
            waiting.pop()


def escape_halves(text: str) -> str:
    r"""JSON text in which bytes that are no UTF-8, and other halves of pairs, are escapes such as `\udcff`."""
    return text if text.isascii() else _HALF.sub(lambda found: _escape(found[0]), text)


def _escape(half: str) -> str:
    return f"\\u{ord(half):04x}"
