"""The free intervals between the blocks that live at one step, found by size in logarithmic time."""

from __future__ import annotations

from bisect import bisect_left, insort


class FreeSpace:
    """Address space from 0 up of which blocks are taken and given back; blocks must not overlap.

    `top` is the end of the highest block. Neighbouring gaps are one gap, and none touches `top`.
    """

    __slots__ = ("_by_end", "_by_start", "_gaps", "top")

    def __init__(self) -> None:
        self.top = 0
        self._gaps: list[tuple[int, int]] = []  # (room, start), sorted
        self._by_start: dict[int, int] = {}  # end of each gap
        self._by_end: dict[int, int] = {}  # start of each gap

    @property
    def room_at_bottom(self) -> int:
        """How much is free below the lowest block; 0 when there is no block."""
        return self._by_start.get(0, 0)

    def tightest(self, size: int) -> int:
        """The start of the smallest gap of at least `size`, the lowest of equal ones, else `top`."""
        at = bisect_left(self._gaps, (size, 0))
        return self._gaps[at][1] if at < len(self._gaps) else self.top

    def take(self, start: int, size: int) -> None:
        """Put a block at the start of a gap or anywhere from `top` up."""
        end = start + size
        if start >= self.top:
            if start > self.top:
                self._add(self.top, start)
            self.top = end
            return
        gap_end = self._by_start[start]
        self._remove(start, gap_end)
        if end < gap_end:
            self._add(end, gap_end)

    def give_back(self, start: int, end: int) -> None:
        """Free a block that was taken."""
        lower = self._by_end.get(start)
        if lower is not None:
            self._remove(lower, start)
            start = lower
        if end == self.top:
            self.top = start
            return
        upper = self._by_start.get(end)
        if upper is not None:
            self._remove(end, upper)
            end = upper
        self._add(start, end)

    def _add(self, start: int, end: int) -> None:
        self._by_start[start] = end
        self._by_end[end] = start
        insort(self._gaps, (end - start, start))

    def _remove(self, start: int, end: int) -> None:
        del self._by_start[start], self._by_end[end]
        del self._gaps[bisect_left(self._gaps, (end - start, start))]
