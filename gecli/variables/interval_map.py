"""A map from disjoint address ranges to values, with search by any address inside a range."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import Generic, TypeVar

V = TypeVar("V")


class OverlapError(ValueError):
    """A range that would overlap `start`..`end`, which is already in the map."""

    def __init__(self, start: int, end: int) -> None:
        super().__init__(f"overlaps the range {start:#x}..{end:#x}")
        self.start = start
        self.end = end


class IntervalMap(Generic[V]):
    """Half-open ranges `start <= address < end` in address order, each with a value."""

    __slots__ = ("_ends", "_starts", "_values")

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []
        self._values: list[V] = []

    def __len__(self) -> int:
        return len(self._starts)

    def __iter__(self) -> Iterator[V]:
        """The values by address."""
        return iter(self._values)

    def add(self, start: int, end: int, value: V) -> None:
        """Add a range. Raises OverlapError when it touches one of the map, ValueError when it is empty."""
        if end <= start:
            raise ValueError(f"the range {start:#x}..{end:#x} is empty")
        at = self.place_of(start, end)
        self._starts.insert(at, start)
        self._ends.insert(at, end)
        self._values.insert(at, value)

    def extend(self, start: int, end: int, value: V) -> None:
        """Lengthen the range that begins at `start` and replace its value. Raises OverlapError, KeyError."""
        at = bisect_left(self._starts, start)
        if at == len(self._starts) or self._starts[at] != start:
            raise KeyError(start)
        if at + 1 < len(self._starts) and self._starts[at + 1] < end:
            raise OverlapError(self._starts[at + 1], self._ends[at + 1])
        self._ends[at] = max(self._ends[at], end)
        self._values[at] = value

    def place_of(self, start: int, end: int) -> int:
        """The index a new range would take. Raises OverlapError."""
        at = bisect_left(self._starts, start)
        if at and self._ends[at - 1] > start:
            raise OverlapError(self._starts[at - 1], self._ends[at - 1])
        if at < len(self._starts) and self._starts[at] < end:
            raise OverlapError(self._starts[at], self._ends[at])
        return at

    def get(self, start: int) -> V | None:
        """The value of the range that begins exactly at `start`."""
        at = bisect_left(self._starts, start)
        return self._values[at] if at < len(self._starts) and self._starts[at] == start else None

    def find(self, address: int) -> tuple[int, V] | None:
        """Start and value of the range that holds `address`."""
        at = bisect_right(self._starts, address) - 1
        return (self._starts[at], self._values[at]) if at >= 0 and address < self._ends[at] else None

    def copy(self) -> IntervalMap[V]:
        other: IntervalMap[V] = IntervalMap()
        other._starts = list(self._starts)
        other._ends = list(self._ends)
        other._values = list(self._values)
        return other
