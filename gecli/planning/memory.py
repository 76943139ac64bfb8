"""Placing feature-map buffers: several orders of tightest-gap placement, the smallest peak wins (runtime.md 9.2)."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Sequence
from heapq import heappop, heappush

from gecli.ir.op_desc import Port
from gecli.planning.buffers import Buffer, Buffers
from gecli.planning.free_space import FreeSpace
from gecli.records import dataclass

# Above this count only the sweep in order of first use is tried: the other orders are quadratic.
MAX_QUADRATIC = 1500


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """Feature-map offsets of every port, and how good the plan is.

    All figures are bytes. `peak_bytes` is the reusable part; the zero-copy blocks of model outputs and inputs follow
    it. `lower_bound_bytes` is the largest sum of live sizes over all steps: no plan can be smaller.
    """

    offsets: dict[Port, int]
    peak_bytes: int
    zero_copy_bytes: int
    lower_bound_bytes: int
    no_reuse_bytes: int
    aliases: int
    order_used: str

    @property
    def total_bytes(self) -> int:
        return self.peak_bytes + self.zero_copy_bytes

    @property
    def gap_percent(self) -> float:
        if not self.lower_bound_bytes:
            return 0.0
        return 100.0 * (self.peak_bytes - self.lower_bound_bytes) / self.lower_bound_bytes


def plan_memory(buffers: Buffers, *, reuse: bool = True) -> MemoryPlan:
    """Place all buffers of a graph. Deterministic; verified: no two live buffers overlap."""
    bound = lower_bound(buffers.reusable)
    no_reuse = sum(buffer.size_bytes for buffer in buffers.reusable)
    if reuse:
        name, placed, peak = _best(buffers.reusable, bound)
    else:
        name, placed, peak = "no reuse", _stacked(buffers.reusable, 0), no_reuse
    verify_placement(buffers.reusable, placed)
    offsets = {port: offset for buffer, offset in zip(buffers.reusable, placed) for port in buffer.ports}
    end = peak
    for buffer in (*buffers.outputs, *buffers.inputs):
        offsets.update(dict.fromkeys(buffer.ports, end))
        end += buffer.size_bytes
    return MemoryPlan(offsets, peak, end - peak, bound, no_reuse, buffers.aliases, name)


def lower_bound(buffers: Sequence[Buffer]) -> int:
    """The largest sum of sizes of buffers that live at one step."""
    changes: dict[int, int] = {}
    for buffer in buffers:
        changes[buffer.first] = changes.get(buffer.first, 0) + buffer.size_bytes
        changes[buffer.last + 1] = changes.get(buffer.last + 1, 0) - buffer.size_bytes
    live = peak = 0
    for step in sorted(changes):
        live += changes[step]
        peak = max(peak, live)
    return peak


def _best(buffers: Sequence[Buffer], bound: int) -> tuple[str, list[int], int]:
    name, placed = "first", _sweep(buffers, None)
    peak = _peak(buffers, placed)
    if peak != bound:
        two_ended = _sweep(buffers, bound)
        if _peak(buffers, two_ended) < peak:
            name, placed, peak = "two ends", two_ended, _peak(buffers, two_ended)
    if peak == bound or len(buffers) > MAX_QUADRATIC:
        return name, placed, peak
    for other, key in _ORDERS:
        candidate = _place(buffers, sorted(range(len(buffers)), key=lambda i: (key(buffers[i]), i)))
        candidate_peak = _peak(buffers, candidate)
        if candidate_peak < peak:
            name, placed, peak = other, candidate, candidate_peak
        if peak == bound:
            break
    return name, placed, peak


_ORDERS: tuple[tuple[str, Callable[[Buffer], tuple[int, ...]]], ...] = (
    ("size", lambda b: (-b.size_bytes, b.first)),
    ("area", lambda b: (-b.size_bytes * (b.last - b.first + 1), b.first)),
    ("last", lambda b: (-b.last, -b.size_bytes)),
)


def _peak(buffers: Sequence[Buffer], placed: Sequence[int]) -> int:
    return max((offset + buffer.size_bytes for buffer, offset in zip(buffers, placed)), default=0)


def _stacked(buffers: Sequence[Buffer], start: int) -> list[int]:
    offsets = []
    for buffer in buffers:
        offsets.append(start)
        start += buffer.size_bytes
    return offsets


def _sweep(buffers: Sequence[Buffer], ceiling: int | None) -> list[int]:
    """Placement in order of first use; only the buffers that live at that step are in the way.

    With a ceiling, buffers go to the bottom when it is free and hang from the ceiling otherwise, which packs chains
    of changing sizes without a gap; without one, each takes the tightest gap.
    """
    placed = [0] * len(buffers)
    space = FreeSpace()
    live: list[tuple[int, int, int]] = []  # (last, offset, end), a heap
    for first, minus_size, i in sorted([(buffer.first, -buffer.size_bytes, i) for i, buffer in enumerate(buffers)]):
        size = -minus_size
        while live and live[0][0] < first:
            _, offset, end = heappop(live)
            space.give_back(offset, end)
        at = _from_ends(space, size, ceiling) if ceiling else None
        placed[i] = offset = space.tightest(size) if at is None else at
        space.take(offset, size)
        heappush(live, (buffers[i].last, offset, offset + size))
    return placed


def _from_ends(space: FreeSpace, size: int, ceiling: int) -> int | None:
    """Offset 0 when free, else the highest free place below `ceiling`; None when neither is."""
    if size <= (space.room_at_bottom if space.top else ceiling):
        return 0
    return ceiling - size if space.top + size <= ceiling else None


def _place(buffers: Sequence[Buffer], order: Sequence[int]) -> list[int]:
    """Tightest-gap placement in any order: each buffer against all placed ones with an overlapping life."""
    placed = [0] * len(buffers)
    rows: list[tuple[int, int, int, int]] = []  # (offset, end, first, last), sorted by offset
    for i in order:
        buffer = buffers[i]
        first, last = buffer.first, buffer.last
        overlapping = [row for row in rows if row[2] <= last and first <= row[3]]
        offset = _tightest_gap(overlapping, buffer.size_bytes)
        placed[i] = offset
        insort(rows, (offset, offset + buffer.size_bytes, first, last))
    return placed


def _tightest_gap(occupied: Iterable[tuple[int, ...]], size: int) -> int:
    """The start of the smallest free interval of at least `size`, else the end of all.

    `occupied` has rows of start, end and what else there is, sorted by start.
    """
    best, best_room = -1, 0
    end = 0
    for row in occupied:
        start, stop = row[0], row[1]
        room = start - end
        if room >= size and (best < 0 or room < best_room):
            best, best_room = end, room
        if stop > end:
            end = stop
    return best if best >= 0 else end


def verify_placement(buffers: Sequence[Buffer], placed: Sequence[int]) -> None:
    """Raises AssertionError when two buffers overlap in both space and life: a bug of the planner."""
    live: list[tuple[int, int]] = []  # (offset, end), sorted; as none overlap, only neighbours can be in the way
    ends: list[tuple[int, tuple[int, int]]] = []  # (last, block), a heap
    for first, i in sorted([(buffer.first, i) for i, buffer in enumerate(buffers)]):
        while ends and ends[0][0] < first:
            del live[bisect_left(live, heappop(ends)[1])]
        block = (placed[i], placed[i] + buffers[i].size_bytes)
        at = bisect_left(live, block)
        for start, stop in live[max(at - 1, 0) : at + 1]:
            if start < block[1] and block[0] < stop:
                raise AssertionError(f"memory plan: {buffers[i].ports[0]} at {block} overlaps {(start, stop)}")
        live.insert(at, block)
        heappush(ends, (buffers[i].last, block))
