"""Execution points: the slices of a model in memory, with their compiled versions (GE: ExecutionPoint, GEP)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import Any

from numpy.typing import NDArray

from gecli.cache.jit_files import MAX_VERSIONS, StoredSlice
from gecli.ir.graph import Graph
from gecli.jit.guard import Guard
from gecli.jit.specialise import Specialised
from gecli.records import dataclass
from gecli.runtime.model import LoadedModel

Array = NDArray[Any]


@dataclass(slots=True)
class CompiledVersion:
    """A slice compiled for the inputs that `guard` takes. `key` is empty when it is not in the cache."""

    key: str
    guard: Guard
    hits: int = 0
    model: LoadedModel | None = None
    origin: str = "compiled"  # or "cache"


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
        """The first version whose guard takes these inputs."""
        for version in self.versions:
            if not version.guard.refusal(arrays, self.stored.formats):
                return version
        return None

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
