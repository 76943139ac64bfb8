"""What garbage collection is asked to do, and what it does: policies and actions (cache.md 12.3)."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import field

from gecli.cache.survey import JIT
from gecli.records import dataclass

LOCK_AGE_S = 86400.0
UNREFERENCED = "unreferenced-weight"


@dataclass(frozen=True, slots=True)
class GcPolicy:
    """What to remove. Ages are seconds, sizes bytes.

    `only` limits a run to classes of garbage (tmp, broken, orphans, unreferenced_weights, quarantine); `states` adds
    entries in those states; `locks` adds lock files above `lock_age_s` whose key has no entry, or none when the run has
    ended.
    """

    max_age_s: float | None = None
    max_size_bytes: int | None = None
    keep_last: int | None = None
    states: frozenset[str] = frozenset()
    everything: bool = False
    only: frozenset[str] = frozenset()
    locks: bool = False
    lock_age_s: float = LOCK_AGE_S
    grace_s: float = 3600.0
    free_bytes: int | None = None
    protect_last: bool = False

    def removes(self, garbage: str) -> bool:
        return not self.only or garbage in self.only


@dataclass(frozen=True, slots=True)
class Action:
    """One thing to do: `verb` is adopt, rebuild or remove; `why` a policy or a state.

    In the JIT layer `graph` is the key of the user's graph; with `slice_id` the slices from that one on are meant.
    """

    verb: str
    why: str
    key: str
    stem: str = ""
    path: str = ""
    size_bytes: int = 0
    used_s: float = 0.0
    in_jit: bool = False
    graph: str = ""
    slice_id: int | None = None

    @property
    def is_weight(self) -> bool:
        return self.why == UNREFERENCED

    @property
    def what(self) -> str:
        name = self.stem or os.path.basename(self.path) or self.key
        return os.path.join(JIT, name) if self.in_jit else name


@dataclass(slots=True)
class Outcome:
    """What was done; `busy` are keys that were left alone because somebody holds their lock."""

    done: list[Action] = field(default_factory=list)
    spared: list[Action] = field(default_factory=list)
    busy: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)  # what was not done, and why
    failures: list[OSError] = field(default_factory=list)  # of what was to be removed

    def leave(self, what: str, error: OSError, actions: Sequence[Action]) -> None:
        """Keep that an error ended these actions; a failure when one of them was to remove something."""
        known = {id(each) for each in (*self.done, *self.spared)}
        left = [each for each in actions if id(each) not in known]
        self.spared += left
        self.notes.append(f"{what} left alone: {error.strerror or error}")
        if any(each.verb == "remove" for each in left):
            self.failures.append(error)

    @property
    def freed_bytes(self) -> int:
        return sum(action.size_bytes for action in self.done if action.verb == "remove")
