"""What a view gives back: a document for machines and blocks for people, made from the same facts."""

from __future__ import annotations

import marshal
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import field
from itertools import islice
from typing import Any, Generic, TypeVar
from zlib import compress, decompress

from gecli.errors import printable
from gecli.records import dataclass

T = TypeVar("T")
NAME_LIMIT = 160  # characters of one cell; names in a hostile file may be megabytes long
LONG_TEXT = 1 << 14
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
        # The widths are known at the last row.
        widths = [*map(len, self.columns)]

        def measured() -> Iterator[tuple[str, ...]]:
            for row in self.rows:
                for k, text in enumerate(row):
                    if widths[k] < len(text) <= ALIGNED_WIDTH:
                        widths[k] = len(text)
                yield row

        rows = PackedRows(measured())
        form = self.indent + "  ".join(
            f"%{width}s" if name in self.right else f"%-{width}s" for name, width in zip(self.columns, widths)
        )
        yield (form % self.columns).rstrip()
        for row in rows:
            yield (form % row).rstrip()


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


class Large(dict[str, Any]):
    """An object of a document that is written piece by piece, because its text is long."""


def as_large(source: Mapping[str, Any], made: dict[str, Any]) -> dict[str, Any]:
    """What is made of something large is large."""
    return Large(made) if type(source) is Large else made


class Members(Mapping[str, Any]):
    """An object of a document whose values are made while it is written."""

    def __init__(self, names: Collection[str], make: Callable[[str], Any]) -> None:
        self._names = names
        self._make = make

    def __getitem__(self, name: str) -> Any:
        return self._make(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


class PackedRows(Generic[T]):
    """Rows that are costly to make twice and too many to keep as objects: a thirtieth of their memory.

    They hold what JSON has, and tuples.
    """

    def __init__(self, rows: Iterable[T]) -> None:
        self._full: list[bytes] = []
        self._rest: list[T] = []
        left = iter(rows)
        while len(some := list(islice(left, PACKED_ROWS))) == PACKED_ROWS:
            self._full.append(compress(marshal.dumps(some), 1))
        self._rest = some

    def __len__(self) -> int:
        return PACKED_ROWS * len(self._full) + len(self._rest)

    def __iter__(self) -> Iterator[T]:
        for block in self._full:
            yield from marshal.loads(decompress(block))  # bytes of this process
        yield from self._rest

    def as_list(self) -> Rows:
        """As a list of a document."""
        return Rows(self.__iter__)


def cell(text: object, limit: int = NAME_LIMIT) -> str:
    """A text from a file as one safe line of a terminal."""
    shown = str(text)
    if shown.isprintable() and len(shown) <= limit:
        return shown
    if len(shown) > LONG_TEXT:  # escaped as a whole it may take fifty times its size
        return f"{cell(shown[:limit], limit)[:limit]}... ({len(shown)} characters)"
    return printable(shown.replace("\n", "\\n"), limit)
