"""Which entries the policies of a garbage collection choose (cache.md 12.3): for their state, age, number or size."""

from __future__ import annotations

import os
from collections.abc import Container, Iterable, Iterator

from gecli.cache.gc_actions import Action, GcPolicy
from gecli.cache.survey import BROKEN, EntryRow, LooseFile, Survey
from gecli.cache.weight_files import weight_dir, weight_files_of

# A bare model that no index names may be somebody's only copy, or half written: it goes only when its state is named.
_UNLISTED = frozenset(("legacy", "shadowed"))

Chosen = dict[tuple[str, str], Action]  # by key and stem


def chosen_entries(found: Survey, policy: GcPolicy, now: float) -> Chosen:
    """Entries of one layer to remove, whatever their size; each for the first reason that applies."""
    chosen: Chosen = {}
    entries = [row for row in found.rows if not row.is_slicing]
    rows = listed(found)
    spared = protected(found, policy)
    for row in entries if "broken" in policy.only else rows:
        if row.state in BROKEN and policy.removes("broken"):
            choose(chosen, row, row.state)
    for row in rows:
        if "jit-orphan" in row.problems and policy.removes("orphans") and now - row.used_s > policy.grace_s:
            choose(chosen, row, "jit-orphan")
    for row in entries:
        for state in sorted(policy.states.intersection(row.problems)):
            choose(chosen, row, state)
    for row in rows:
        if policy.everything:
            choose(chosen, row, "all")
    for row in rows:
        if policy.max_age_s is not None and now - row.used_s > policy.max_age_s and id(row) not in spared:
            choose(chosen, row, "max-age")
    if policy.keep_last is not None:
        for row in _beyond_last(found, policy.keep_last):
            choose(chosen, row, "keep-last")
    return chosen


def choose(chosen: Chosen, row: EntryRow, why: str) -> None:
    action = Action("remove", why, row.key, row.stem, size_bytes=row.size_bytes, used_s=row.used_s, graph=row.graph)
    chosen.setdefault((row.key, row.stem), action)


def listed(found: Survey) -> list[EntryRow]:
    """The entries that an index names, or should."""
    return [row for row in found.rows if not row.is_slicing and not _UNLISTED.intersection(row.problems)]


def bare_bytes(found: Survey, gone: Container[tuple[str, str]]) -> int:
    """The models without a record that stay: they count, and go only when they are asked for."""
    bare = (row for row in found.rows if _UNLISTED.intersection(row.problems))
    return sum(row.size_bytes for row in bare if (row.key, row.stem) not in gone)


def protected(found: Survey, policy: GcPolicy) -> set[int]:
    """The entries that --protect-last keeps whatever their age and size; none without it."""
    if not policy.protect_last or policy.keep_last is None:
        return set()
    beyond = {id(row) for row in _beyond_last(found, policy.keep_last)}
    return {id(row) for row in listed(found) if id(row) not in beyond}


def _beyond_last(found: Survey, count: int) -> list[EntryRow]:
    """All but the `count` most recently created of every key, and of every slice of a graph.

    A version of a slice has a key of its own, so by its key each would be the last one.
    """
    slices = {
        version: (graph, str(number))
        for graph, each in found.slicings.items()
        for number, versions in enumerate(each.versions)
        for version in versions
    }
    groups: dict[tuple[str, str], list[EntryRow]] = {}
    for row in listed(found):
        groups.setdefault(slices.get(row.key, (row.key, "")), []).append(row)
    return [row for rows in groups.values() for row in sorted(rows, key=lambda row: (-row.created_s, row.stem))[count:]]


class SizeLimit:
    """What goes so that the rest is small enough: what was set aside, then the least recently used of both layers.

    Every weight file counts once. Slices go with the last version of theirs, those behind others first.
    """

    def __init__(self, found: Survey, chosen: list[Chosen], spared: set[int]) -> None:
        self._spared = spared
        self._layers = found.layers
        self._rows: list[tuple[int, EntryRow]] = []
        self._users: list[dict[str, int]] = []
        self._sizes: list[dict[str, int]] = []
        self._total = 0
        for number, (layer, gone) in enumerate(zip(found.layers, chosen)):
            kept = [row for row in listed(layer) if (row.key, row.stem) not in gone]
            self._rows += [(number, row) for row in kept]
            users: dict[str, int] = {}
            for row in kept:
                for name in weight_files_of(row.weights):
                    users[name] = users.get(name, 0) + 1
            sizes = {name: _size(os.path.join(weight_dir(layer.directory), name)) for name in users}
            self._users.append(users)
            self._sizes.append(sizes)
            self._total += sum(row.size_bytes for row in kept) + sum(sizes.values()) + bare_bytes(layer, gone)
        self._slices = _SliceSizes(found, {row.key for _, row in self._rows if row.graph})
        self._total += self._slices.total

    def beyond(self, limit: int, quarantined: Iterable[LooseFile]) -> Iterator[LooseFile | tuple[int, EntryRow]]:
        """What to remove, in order; entries with the number of their layer."""
        aside = sorted(quarantined, key=lambda each: (each.changed_s, each.path))
        total = self._total + sum(each.size_bytes for each in aside)
        for file in aside:
            if total <= limit:
                return
            total -= file.size_bytes
            yield file
        waiting = sorted(
            (pair for pair in self._rows if id(pair[1]) not in self._spared),
            key=lambda pair: (pair[1].used_s, pair[0], pair[1].stem),
        )
        while waiting and total > limit:
            position = self._slices.instead_of(waiting)
            number, row = waiting.pop(position)
            total -= row.size_bytes + self._weights_of(number, row) + self._slices.without(row)
            yield number, row

    def _weights_of(self, number: int, row: EntryRow) -> int:
        """The bytes of the weight files that nobody uses without this entry."""
        freed = 0
        users, sizes = self._users[number], self._sizes[number]
        for name in weight_files_of(row.weights):
            users[name] -= 1
            freed += 0 if users[name] else sizes[name]
        return freed


class _SliceSizes:
    """The bytes of the slices of every graph while their versions go one by one."""

    def __init__(self, found: Survey, kept: set[str]) -> None:
        self._slicings = found.jit.slicings if found.jit is not None else {}
        # A version that was not asked for (--key) stays; of those that were, what is left.
        shown = {row.key for row in found.jit.rows if not row.is_slicing} if found.jit is not None else set()
        self._living = {
            key: [{each for each in versions if each in kept or each not in shown} for versions in slicing.usable]
            for key, slicing in self._slicings.items()
        }
        self.total = 0
        for key, lists in self._living.items():
            self._cut(key)
            if lists:
                self.total += self._slicings[key].size_bytes - self._slicings[key].bytes_from(len(lists))

    def _cut(self, key: str) -> None:
        lists = self._living[key]
        for number, versions in enumerate(lists):
            if not versions:
                del lists[number:]
                return

    def instead_of(self, waiting: list[tuple[int, EntryRow]]) -> int:
        """Which entry goes in place of the least recently used one: one of the last slice, rather than a whole slice
        in front of it."""
        row = waiting[0][1]
        lists = self._living.get(row.graph, [])
        own = next((number for number, versions in enumerate(lists) if row.key in versions), None)
        if own is None or len(lists[own]) > 1 or own == len(lists) - 1:
            return 0
        return next((position for position, pair in enumerate(waiting) if pair[1].key in lists[-1]), 0)

    def without(self, row: EntryRow) -> int:
        """The bytes of slices that go with this version."""
        lists = self._living.get(row.graph, [])
        own = next((number for number, versions in enumerate(lists) if row.key in versions), None)
        if own is None:
            return 0
        lists[own].discard(row.key)
        if lists[own]:
            return 0
        slicing = self._slicings[row.graph]
        freed = slicing.bytes_from(own) - slicing.bytes_from(len(lists))
        self._cut(row.graph)
        return freed


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0
