"""Garbage collection of a cache directory (cache.md 12.3).

`select` decides from a survey, `collect` acts on the decision. A dry run stops between the two, so it shows what the
real run does.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Iterator
from dataclasses import field, replace

from gecli.cache.cache_conf import CacheConf
from gecli.cache.events import event, record
from gecli.cache.index import UnreadableIndex, index_path, read_index
from gecli.cache.layout import PRIVATE, host_name, is_alive
from gecli.cache.lock import KeyLock, LockTimeout, LockUnavailable, abandoned_records, inflight_records, lock_path
from gecli.cache.model_cache import forget_entry_hints
from gecli.cache.recovery import adoptable, files_of, recover, remove_records, set_aside
from gecli.cache.sidecar import last_used_ns
from gecli.cache.stat_index import StatIndex
from gecli.cache.store import file_mode
from gecli.cache.survey import BROKEN, JIT, EntryRow, LooseFile, Survey, survey
from gecli.cache.weight_files import weight_dir, weight_files_of
from gecli.records import dataclass

HINT_AGE_S = 30 * 86400.0  # rows and memos not rewritten for so long serve nobody
LOCK_AGE_S = 86400.0
AUTOMATIC_PERIOD_S = 3600.0
AUTOMATIC_LIMIT_S = 2.0
UNREFERENCED = "unreferenced-weight"
# A bare model that no index names may be somebody's only copy: it goes only when its state is named.
_UNLISTED = frozenset(("legacy", "shadowed"))


@dataclass(frozen=True, slots=True)
class GcPolicy:
    """What to remove. Ages are seconds, sizes bytes.

    `only` limits a run to classes of garbage (tmp, broken, orphans, unreferenced_weights); `states` adds entries in
    those states; `locks` adds lock files above `lock_age_s` whose key has no entry, or none when the run has ended.
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
    """One thing to do: `verb` is adopt, rebuild or remove; `why` a policy or a state."""

    verb: str
    why: str
    key: str
    stem: str = ""
    path: str = ""
    size_bytes: int = 0
    used_s: float = 0.0
    in_jit: bool = False

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

    @property
    def freed_bytes(self) -> int:
        return sum(action.size_bytes for action in self.done if action.verb == "remove")


def select(
    found: Survey, policy: GcPolicy, now: float, *, skip_busy: bool = True, notes: list[str] | None = None
) -> list[Action]:
    """Everything that the policy asks for, in the order in which it is done. Changes nothing.

    Keys whose lock is held are left out, unless the run is going to wait for them. `notes` gets what is not going to be
    done, in sentences.
    """
    free = _selected_in(found, policy, now, skip_busy, notes)
    if found.jit is not None:
        limit = policy.max_size_bytes
        if limit is not None:
            left = max(limit - _size_after(found, free), 0)
            policy = replace(policy, max_size_bytes=left)
        inner = _selected_in(found.jit, policy, now, skip_busy, notes)
        free += [replace(each, in_jit=True) for each in inner]
    return list(_until(free, policy.free_bytes))


def _size_after(found: Survey, actions: list[Action]) -> int:
    """The bytes of the entries that stay."""
    gone = {(each.key, each.stem) for each in actions if each.verb == "remove" and each.stem}
    return sum(row.size_bytes for row in found.rows if (row.key, row.stem) not in gone)


def _selected_in(found: Survey, policy: GcPolicy, now: float, skip_busy: bool, notes: list[str] | None) -> list[Action]:
    """What the policy asks for in one layer."""
    actions: list[Action] = []
    if policy.removes("orphans"):
        actions += [Action("rebuild", "index-corrupt", key) for key in found.broken_indexes]
        actions += [Action("adopt", "orphan", row.key, row.stem) for row in found.rows if row.adopts]
    removals = [*_loose_garbage(found, policy, now), *_entries(found, policy, now)]
    if policy.locks:
        removals += _idle_locks(found, policy, now, actions + removals)
    free = [each for each in actions + removals if not skip_busy or each.key not in found.busy_keys]
    if policy.removes("unreferenced_weights"):
        free += _weight_garbage(found, policy, now, free, notes)
    return free


def _weight_garbage(
    found: Survey, policy: GcPolicy, now: float, actions: list[Action], notes: list[str] | None
) -> list[Action]:
    """Weight files that nothing refers to, or will once these actions are done."""
    if not os.path.isdir(weight_dir(found.directory)):
        return []
    from gecli.cache.weight_sweep import UnknownReferences, unreferenced

    gone = {(each.key, each.stem) for each in actions if each.verb == "remove" and each.stem}
    gone |= {(each.key, _stem_of(each.path)) for each in actions if each.why == "orphan" and each.path}
    try:
        files = unreferenced(found.directory, now, policy.grace_s, gone)
    except UnknownReferences as error:
        if notes is not None:
            notes.append(f"no weight file is removed: {error}")
        return []
    return [Action("remove", UNREFERENCED, "", path=each.path, size_bytes=each.size_bytes) for each in files]


def collect(
    found: Survey,
    actions: list[Action],
    *,
    wait_s: float = 0.0,
    shared: bool = False,
    limit_s: float | None = None,
    grace_s: float = 3600.0,
) -> Outcome:
    """Do what was selected, entries under the lock of their key; stop at a key's end when `limit_s` has passed.

    Raises OSError when a file cannot be removed or a key not be locked.
    """
    end = None if limit_s is None else time.monotonic() + limit_s
    outcome = _collect_in(found, [each for each in actions if not each.in_jit], wait_s, shared, end, grace_s)
    if found.jit is not None:
        own = [each for each in actions if each.in_jit]
        inner = _collect_in(found.jit, own, wait_s, shared, end, grace_s)
        for name in ("done", "spared", "busy", "notes"):
            getattr(outcome, name).extend(getattr(inner, name))
    order = {id(action): position for position, action in enumerate(actions)}
    outcome.done.sort(key=lambda action: order[id(action)])
    _count(found.directory, outcome)
    return outcome


def _collect_in(
    found: Survey, actions: list[Action], wait_s: float, shared: bool, end: float | None, grace_s: float
) -> Outcome:
    """Do what was selected of one layer."""
    outcome = Outcome(busy=[] if wait_s > 0 else sorted(found.busy_keys))
    for action in (each for each in actions if not each.key and not each.is_weight):
        _unlink(action.path)
        outcome.done.append(action)
    for key in sorted({each.key for each in actions if each.key}):
        if end is not None and time.monotonic() > end:
            break
        own = [each for each in actions if each.key == key]
        entries = [each for each in own if each.why != "lock"]
        try:
            if entries:
                with KeyLock(found.directory, key, timeout_s=wait_s, shared=shared):
                    _collect_key(found.directory, key, entries, outcome, file_mode(shared))
        except LockTimeout:
            outcome.busy.append(key)
            continue
        except LockUnavailable as error:
            raise OSError(errno.ENOLCK, str(error), lock_path(found.directory, key)) from error
        for each in own:
            if each.why == "lock":
                _remove_lock(found.directory, each, outcome)
    if end is None or time.monotonic() <= end:
        _sweep_weights(found.directory, [each for each in actions if each.is_weight], outcome, grace_s)
    return outcome


def _sweep_weights(directory: str, actions: list[Action], outcome: Outcome, grace_s: float) -> None:
    """Remove the weight files that are still without a reference, now that the entries are gone."""
    if not actions:
        return
    from gecli.cache.weight_sweep import UnknownReferences, sweep

    try:
        removed = sweep(directory, [each.path for each in actions], time.time(), grace_s)
    except UnknownReferences as error:
        outcome.notes.append(f"no weight file was removed: {error}")
        removed = []
    if removed is None:
        outcome.notes.append("no weight file was removed: another process is collecting or writing them")
    for action in actions:
        (outcome.done if action.path in (removed or ()) else outcome.spared).append(action)


def _count(directory: str, outcome: Outcome) -> None:
    """Count the run, and shorten the logs of the counters; a directory that only GE has used stays its own."""
    if outcome.done or os.path.isdir(os.path.join(directory, PRIVATE)):
        from gecli.cache.statistics import fold

        record(directory, event("gc", size_bytes=outcome.freed_bytes))
        fold(directory)


def collect_sometimes(directory: str, conf: CacheConf, now: float) -> Outcome | None:
    """The limits of cache.conf, at most once an hour, for a short time, without waiting for anybody.

    Never a reason for a compile to fail: what cannot be removed stays.
    """
    if conf.max_size is None and conf.max_age is None:
        return None
    marker = os.path.join(directory, PRIVATE, "gc.stamp")
    try:
        if os.path.exists(marker) and now - os.stat(marker).st_mtime < AUTOMATIC_PERIOD_S:
            return None
        with open(marker, "wb"):
            os.utime(marker, (now, now))
        found = survey(directory)
        policy = GcPolicy(max_age_s=conf.max_age, max_size_bytes=conf.max_size)
        return collect(found, select(found, policy, now), shared=conf.shared, limit_s=AUTOMATIC_LIMIT_S)
    except OSError:
        return None


def make_room(directory: str, conf: CacheConf, now: float) -> bool:
    """The size limit of cache.conf, at once, because the disk is full; whether anything was removed."""
    if conf.max_size is None:
        return False
    try:
        found = survey(directory)
        outcome = collect(
            found,
            select(found, GcPolicy(max_size_bytes=conf.max_size), now),
            shared=conf.shared,
            limit_s=AUTOMATIC_LIMIT_S,
        )
    except OSError:
        return False
    return any(each.verb == "remove" for each in outcome.done)


def _collect_key(directory: str, key: str, actions: list[Action], outcome: Outcome, mode: int) -> None:
    if any(each.verb in ("adopt", "rebuild") for each in actions):
        recover(directory, key, StatIndex(), mode)
    orphans = [each for each in actions if each.why == "orphan" and each.path]
    completed = _completed(directory, key) if orphans else frozenset()
    for action in actions:
        if action.verb != "remove":
            outcome.done.append(action)
        elif action in orphans and _stem_of(action.path) in completed:
            outcome.spared.append(action)  # its writer came to the end since the survey, or nearly
        elif action.path:
            _unlink(action.path)
            outcome.done.append(action)
        elif (last_used_ns(directory, action.stem) or 0) / 1e9 > action.used_s:
            outcome.spared.append(action)  # somebody used it since the survey
        else:
            _remove_entry(directory, key, action.stem, mode)
            outcome.done.append(action)


def _stem_of(path: str) -> str:
    return os.path.basename(path).partition(".")[0]


def _completed(directory: str, key: str) -> frozenset[str]:
    """The stems of a key that are entries now, or will be at the next look-up."""
    try:
        content = read_index(directory, key)
    except UnreadableIndex:
        content = None
    records = [*(content.records if content else ()), *adoptable(directory, key, content, StatIndex())]
    return frozenset(record.stem for record in records)


def _remove_entry(directory: str, key: str, stem: str, mode: int) -> None:
    """First the index, then the files: a crash in between leaves files that no reader looks at."""
    remove_records(directory, key, [stem], mode)
    for path in files_of(directory, stem):
        if os.path.isdir(path) and not os.path.islink(path):
            set_aside(directory, [path])  # a folder under the name of a file is somebody's: keep it
        else:
            _unlink(path)
    forget_entry_hints(directory, stem)


def _loose_garbage(found: Survey, policy: GcPolicy, now: float) -> Iterator[Action]:
    for each in found.loose:
        age = now - each.changed_s
        if each.kind == "tmp" and policy.removes("tmp") and age > policy.grace_s and not _is_written(each):
            yield _removal(each, "tmp")
        elif each.kind == "hint" and policy.removes("tmp") and age > HINT_AGE_S:
            yield _removal(each, "hint")
        elif each.key in found.broken_indexes:
            continue  # the rebuilt index may name it
        elif each.kind == "orphan" and policy.removes("orphans") and age > policy.grace_s:
            yield _removal(each, "orphan")
    if policy.removes("tmp"):
        for path in abandoned_records(found.directory, now - policy.grace_s):
            yield Action("remove", "tmp", "", path=path)


def _removal(each: LooseFile, why: str) -> Action:
    return Action("remove", why, each.key, path=each.path, size_bytes=each.size_bytes)


def _is_written(each: LooseFile) -> bool:
    """Whether the process that made a temporary file still runs."""
    pid = os.path.basename(each.path).rsplit(".", 2)[1]
    return is_alive(host_name(), int(pid))


def _idle_locks(found: Survey, policy: GcPolicy, now: float, actions: list[Action]) -> Iterator[Action]:
    """Locks that nothing belongs to, once the actions are done.

    Off by default, and after a day if nobody gives another age: a GE process that waits on the old file would hold a
    lock that excludes nobody. gecli opens the file anew at every attempt.
    """
    gone = {(each.key, each.stem) for each in actions if each.verb == "remove" and each.stem}
    used = {row.key for row in found.rows if (row.key, row.stem) not in gone}
    used |= {str(record.get("key")) for record in inflight_records(found.directory)}
    emptied = {key for key, _ in gone} - used
    for each in found.loose:
        if each.kind != "lock" or each.key in used or now - each.changed_s <= policy.lock_age_s:
            continue
        if each.key in emptied or not os.path.lexists(index_path(found.directory, each.key)):
            yield Action("remove", "lock", each.key, path=each.path)


def _remove_lock(directory: str, action: Action, outcome: Outcome) -> None:
    """Remove a lock while it is held, unless its key has got an index since."""
    try:
        with KeyLock(directory, action.key, timeout_s=0, leaves_record=False):
            if os.path.lexists(index_path(directory, action.key)):
                outcome.spared.append(action)
                return
            _unlink(lock_path(directory, action.key))
    except (LockTimeout, LockUnavailable):
        outcome.busy.append(action.key)
        return
    outcome.done.append(action)


def _entries(found: Survey, policy: GcPolicy, now: float) -> list[Action]:
    """Entries to remove: broken ones, states, age, number, size; each for the first reason that applies."""
    chosen: dict[tuple[str, str], Action] = {}

    def choose(row: EntryRow, why: str) -> None:
        action = Action("remove", why, row.key, row.stem, size_bytes=row.size_bytes, used_s=row.used_s)
        chosen.setdefault((row.key, row.stem), action)

    rows = _listed(found)
    protected = _protected(rows, policy)
    for row in rows:
        if row.state in BROKEN and policy.removes("broken"):
            choose(row, row.state)
    for row in rows:
        if "jit-orphan" in row.problems and policy.removes("orphans") and now - row.used_s > policy.grace_s:
            choose(row, "jit-orphan")
    for row in found.rows:
        for state in sorted(policy.states.intersection(row.problems)):
            choose(row, state)
    for row in rows:
        if policy.everything:
            choose(row, "all")
    for row in rows:
        if policy.max_age_s is not None and now - row.used_s > policy.max_age_s and id(row) not in protected:
            choose(row, "max-age")
    if policy.keep_last is not None:
        for row in _beyond_last(rows, policy.keep_last):
            choose(row, "keep-last")
    if policy.max_size_bytes is not None:
        for row in _beyond_size(found, policy.max_size_bytes, chosen, protected):
            choose(row, "max-size")
    return list(chosen.values())


def _listed(found: Survey) -> list[EntryRow]:
    return [row for row in found.rows if not _UNLISTED.intersection(row.problems)]


def _protected(rows: list[EntryRow], policy: GcPolicy) -> set[int]:
    if not policy.protect_last or policy.keep_last is None:
        return set()
    beyond = {id(row) for row in _beyond_last(rows, policy.keep_last)}
    return {id(row) for row in rows if id(row) not in beyond}


def _beyond_last(rows: list[EntryRow], count: int) -> list[EntryRow]:
    """Per key all but the `count` most recently created."""
    beyond = []
    for key in dict.fromkeys(row.key for row in rows):
        own = sorted((row for row in rows if row.key == key), key=lambda row: (-row.created_s, row.stem))
        beyond += own[count:]
    return beyond


def _beyond_size(
    found: Survey, limit: int, chosen: dict[tuple[str, str], Action], protected: set[int]
) -> Iterator[EntryRow]:
    """The least recently used entries until the rest, with every weight file once, is small enough."""
    kept = [row for row in _listed(found) if (row.key, row.stem) not in chosen]
    users: dict[str, int] = {}
    for row in kept:
        for name in weight_files_of(row.weights):
            users[name] = users.get(name, 0) + 1
    sizes = {name: _size(os.path.join(weight_dir(found.directory), name)) for name in users}
    total = sum(row.size_bytes for row in kept) + sum(sizes.values())
    for row in sorted(kept, key=lambda row: (row.used_s, row.stem)):
        if total <= limit:
            return
        if id(row) not in protected:
            total -= row.size_bytes
            for name in weight_files_of(row.weights):
                users[name] -= 1
                total -= 0 if users[name] else sizes[name]
            yield row


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0


def _until(actions: list[Action], wanted: int | None) -> Iterator[Action]:
    freed = 0
    for action in actions:
        if wanted is not None and freed >= wanted:
            return
        freed += action.size_bytes
        yield action


def _unlink(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        return
