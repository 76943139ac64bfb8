"""The catalogue of error codes: code -> exit status, title, cause, remedy."""

from __future__ import annotations

from typing import NamedTuple


class Entry(NamedTuple):
    exit_status: int
    title: str
    cause: str
    remedy: str


CATALOGUE: dict[str, Entry] = {}


def exit_status_of(code: str, kind: str = "") -> int:
    entry = CATALOGUE.get(code)
    return 70 if entry is None else entry.exit_status


def title_of(code: str) -> str:
    entry = CATALOGUE.get(code)
    return "" if entry is None else entry.title
