"""What a view gives back: a document for machines and blocks for people, made from the same facts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any

from gecli.errors import printable
from gecli.records import dataclass

NAME_LIMIT = 160  # characters of one cell; names in a hostile file may be megabytes long


@dataclass(slots=True)
class Table:
    """Rows under headings; columns named in `right` hold numbers."""

    columns: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]
    right: frozenset[str] = frozenset()
    indent: str = ""

    def lines(self) -> Iterator[str]:
        """Plain aligned columns, for pipes and files."""
        shown = [self.columns, *self.rows]
        widths = [max(map(len, column)) for column in zip(*shown)]
        form = "  ".join(
            f"%{width}s" if name in self.right else f"%-{width}s" for name, width in zip(self.columns, widths)
        )
        for row in shown:
            yield (self.indent + form % row).rstrip()


Block = str | Table | Iterable[str]


@dataclass(slots=True)
class View:
    """`document` has everything but its `schema`; an atc document is written as it is."""

    name: str
    document: Mapping[str, Any]
    blocks: list[Block] = field(default_factory=list)
    status: int = 0  # 1: what was asked is not so

    def full_document(self) -> dict[str, Any]:
        schema = "gecli.inspect/1" if self.name == "model" else f"gecli.inspect.{self.name}/1"
        return {"schema": schema, **self.document}


@dataclass(frozen=True, slots=True)
class Rows:
    """A list of a document that is made while it is written, so that a large graph is never held as text."""

    make: Callable[[], Iterator[Any]]

    def __iter__(self) -> Iterator[Any]:
        return self.make()


def cell(text: object, limit: int = NAME_LIMIT) -> str:
    """A text from a file as one safe line of a terminal."""
    shown = str(text)
    if shown.isprintable() and len(shown) <= limit:
        return shown
    return printable(shown.replace("\n", "\\n"), limit)
