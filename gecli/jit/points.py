"""Execution points: the slices of a model in memory, with their compiled versions (GE: ExecutionPoint, GEP)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any, NamedTuple

from numpy.typing import NDArray

from gecli.cache.candidate import Rejected
from gecli.cache.jit_files import MAX_VERSIONS, StoredSlice
from gecli.jit.guard import Guard
from gecli.records import dataclass
from gecli.runtime.model import LoadedModel

if TYPE_CHECKING:
    from gecli.ir.graph import Graph
    from gecli.jit.specialise import Specialised

Array = NDArray[Any]
OFTEN = 10  # runs of one size after which compiling for it alone pays: that costs what about ten runs of it save
MAX_COUNTED = 1000  # sizes whose runs are counted


class BrokenSlice(Exception):
    """A graph that the cache was believed to hold is not there."""


def is_empty(arrays: Sequence[Array]) -> bool:
    """Whether an input has no elements: such tensors have no place in a memory plan."""
    return any(array.size == 0 for array in arrays)


@dataclass(slots=True)
class CompiledVersion:
    """A slice compiled for the inputs that `guard` takes. `key` is empty when it is not in the cache, as is `stem`."""

    key: str
    guard: Guard
    hits: int = 0
    model: LoadedModel | None = None
    stem: str = ""  # of the entry, when it was found in the cache
    runs: dict[tuple[tuple[int, ...], ...], int] = field(default_factory=dict)  # of each size, where sizes are symbols


class SliceLookup(NamedTuple):
    """What the cache has for the inputs of a slice: a version, and those that do not fit or are damaged."""

    id: int
    version: CompiledVersion | None
    rejected: tuple[Rejected, ...]


@dataclass(slots=True)
class ExecutionPoint:
    """One slice. `waiting` are keys of versions in the cache that nobody has looked at; the graphs are read late."""

    stored: StoredSlice
    graph: Graph | None = None
    rest: Graph | None = None
    prepared: Specialised | None = None  # made while the graph was cut, for the inputs of that run
    versions: list[CompiledVersion] = field(default_factory=list)
    waiting: list[str] = field(default_factory=list)
    seen: set[str] = field(default_factory=set)  # keys that were looked at, whatever came of it

    @property
    def is_last(self) -> bool:
        return self.stored.rest is None

    @property
    def is_full(self) -> bool:
        """Whether a new version costs an old one."""
        return len(self.versions) >= MAX_VERSIONS

    def matching(self, arrays: Sequence[Array]) -> CompiledVersion | None:
        """The first version whose guard takes these inputs; those with fewer symbols come first."""
        for version in sorted(self.versions, key=lambda each: each.guard.free):
            if not version.guard.refusal(arrays, self.stored.formats):
                return version
        return None

    def refusals(self, arrays: Sequence[Array]) -> list[Rejected]:
        """The versions of the cache that do not take these inputs, and why."""
        refused = ((version.stem, version.guard.refusal(arrays, self.stored.formats)) for version in self.versions)
        return [Rejected(stem, "guard_failed", why) for stem, why in refused if stem and why]

    def changed(self, arrays: Sequence[Array]) -> tuple[list[set[int]], set[int]]:
        """The axes of each input, and the inputs whose values, that are not those of every version before.

        They have been seen to change, so they become symbols. Versions for other ranks and for tensors without
        elements say nothing.
        """
        free: list[set[int]] = [set() for _ in arrays]
        varied: set[int] = set()
        for version in self.versions:
            rules = version.guard.inputs
            if len(rules) != len(arrays) or 0 in version.guard.fixed("shape").values():
                continue
            if any(len(rule.dims) != array.ndim for rule, array in zip(rules, arrays)):
                continue
            for axes, rule, array in zip(free, rules, arrays):
                axes |= {axis for axis, size in enumerate(array.shape) if rule.dims[axis] != size}
            for (index, elem), value in version.guard.fixed("value").items():
                array = arrays[index]
                if elem >= array.size or array.reshape(-1)[elem] != value:
                    varied.add(index)
        return free, varied

    def runs_often(self, version: CompiledVersion, arrays: Sequence[Array]) -> bool:
        """Count a run; whether a version for exactly these sizes would be faster, and has its place."""
        if not version.guard.free or self.is_full or is_empty(arrays):
            return False
        if any(each.model is not None and each.model.program is None for each in self.versions if not each.guard.free):
            return False  # sizes that only running gives: known inputs do not make it faster
        sizes = tuple(array.shape for array in arrays)
        if sizes not in version.runs and len(version.runs) >= MAX_COUNTED:
            version.runs.clear()  # none of them came often
        version.runs[sizes] = version.runs.get(sizes, 0) + 1
        return version.runs[sizes] == OFTEN

    def add(self, version: CompiledVersion) -> None:
        """Append a version; of ten the one with the fewest hits goes first."""
        self.versions.sort(key=lambda each: -each.hits)
        while self.is_full:
            self.versions.pop()
        self.versions.append(version)

    def offer(self, keys: Sequence[str]) -> None:
        """Versions that another process stored."""
        known = {version.key for version in self.versions} | set(self.waiting) | self.seen
        self.waiting += [key for key in keys if key not in known]

    def record_hits(self) -> None:
        """Bring the versions and their hits into the record that is stored."""
        self.stored.versions = {version.key: version.hits for version in self.versions if version.key}
