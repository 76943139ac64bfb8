"""What a view gives back: a document for machines and blocks for people, made from the same facts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import field
from itertools import islice
from typing import Any

from gecli.errors import printable
from gecli.records import dataclass

NAME_LIMIT = 160  # characters of one cell; names in a hostile file may be megabytes long


PACKED_ROWS = 500
ALIGNED_WIDTH = 44  # a longer cell stands over its column and does not widen that of all other rows


@dataclass(slots=True)
class Table:
    """Rows under headings; columns named in `right` hold numbers.

    The rows are walked anew by everybody who wants them, so that they may be made on the way.
    """

    columns: tuple[str, ...]
    rows: Iterable[tuple[str, ...]]
    right: frozenset[str] = frozenset()
    indent: str = ""

    def is_longer_than(self, count: int) -> bool:
        return next(islice(self.rows, count, None), None) is not None

    def lines(self) -> Iterator[str]:
        """Plain aligned columns, for pipes and files. The cells hold no control characters."""
        # The widths are known at the last row: until then many rows are one text, a tenth of what their cells take.
        widths = [*map(len, self.columns)]
        packed: list[str] = []
        left = iter(self.rows)
        while some := list(islice(left, PACKED_ROWS)):
            widths = [max(width, *_aligned(column)) for width, column in zip(widths, zip(*some))]
            packed.append("\n".join(["\0".join(row) for row in some]))
        form = self.indent + "  ".join(
            f"%{width}s" if name in self.right else f"%-{width}s" for name, width in zip(self.columns, widths)
        )
        yield (form % self.columns).rstrip()
        for text in packed:
            for row in text.split("\n"):
                yield (form % tuple(row.split("\0"))).rstrip()


def _aligned(column: Iterable[str]) -> Iterator[int]:
    return (length if length <= ALIGNED_WIDTH else 0 for length in map(len, column))


Block = str | Table | Iterable[str]


@dataclass(slots=True)
class View:
    """`document` has everything but its `schema`; an atc document is written as it is. `blocks` are walked once."""

    name: str
    document: Mapping[str, Any]
    blocks: Iterable[Block] = field(default_factory=list)
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
