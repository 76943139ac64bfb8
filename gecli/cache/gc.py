"""Garbage collection of a cache directory (cache.md 12.3).

`select` decides from a survey, `collect` acts on the decision. A dry run stops between the two, so it shows what the
real run does.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import nullcontext, suppress
from dataclasses import replace

from gecli.artifacts.shared_files import give_to_group
from gecli.cache.cache_conf import CacheConf
from gecli.cache.events import event, record
from gecli.cache.gc_actions import Action, GcPolicy, Outcome
from gecli.cache.gc_entries import Chosen, SizeLimit, choose, chosen_entries, protected
from gecli.cache.gc_garbage import (
    common_locks,
    idle_locks,
    left_unread,
    loose_garbage,
    marker_path,
    quarantine_garbage,
    weight_garbage,
)
from gecli.cache.gc_lock import gc_lock_path, remove_gc_lock
from gecli.cache.gc_removal import collect_key, is_bare, remove_common_lock, remove_lock, sweep_weights
from gecli.cache.layout import PRIVATE
from gecli.cache.lock import KeyLock, LockTimeout, LockUnavailable, lock_path, unusable_lock
from gecli.cache.quarantine import remove_tree
from gecli.cache.store import file_mode
from gecli.cache.survey import LooseFile, Survey, survey

AUTOMATIC_PERIOD_S = 3600.0
AUTOMATIC_LIMIT_S = 2.0


def select(
    found: Survey, policy: GcPolicy, now: float, *, skip_busy: bool = True, notes: list[str] | None = None
) -> list[Action]:
    """Everything that the policy asks for, in the order in which it is done. Changes nothing.

    Keys whose lock is held are left out, unless the run is going to wait for them. `notes` gets what is not going to be
    done, in sentences.
    """
    chosen = [chosen_entries(layer, policy, now) for layer in found.layers]
    aside: list[LooseFile] = []
    if policy.max_size_bytes is not None:
        aside = _choose_by_size(found, policy, now, chosen)
    actions: list[Action] = []
    for layer, entries in zip(found.layers, chosen):
        own = _selected_in(layer, policy, now, entries, skip_busy, notes)
        actions += [replace(each, in_jit=True) for each in own] if layer is found.jit else own
    actions += quarantine_garbage(found, policy, now, aside)
    if notes is not None:
        notes += left_unread(found, chosen)
    return list(_until(actions, policy.free_bytes))


def _choose_by_size(found: Survey, policy: GcPolicy, now: float, chosen: list[Chosen]) -> list[LooseFile]:
    """Choose entries of both layers until the limit is kept; what goes of that which was set aside."""
    assert policy.max_size_bytes is not None
    spared = {each for layer in found.layers for each in protected(layer, policy)}
    old = [each for each in found.quarantined if now - each.changed_s > policy.grace_s]
    aside = []
    for each in SizeLimit(found, chosen, spared).beyond(policy.max_size_bytes, old):
        if isinstance(each, LooseFile):
            aside.append(each)
        else:
            number, row = each
            choose(chosen[number], row, "max-size")
    return aside


def _selected_in(
    found: Survey, policy: GcPolicy, now: float, chosen: Chosen, skip_busy: bool, notes: list[str] | None
) -> list[Action]:
    """What the policy asks for in one layer."""
    busy = found.busy_keys if skip_busy else set()
    actions: list[Action] = []
    if policy.removes("orphans"):
        broken = [key for key in found.broken_indexes if key not in found.unreadable]
        actions += [Action("rebuild", "index-corrupt", key) for key in broken]
        actions += [Action("adopt", "orphan", row.key, row.stem) for row in found.rows if row.adopts]
    actions += loose_garbage(found, policy, now)
    for place, each in list(chosen.items()):
        if each.key in busy or each.graph in busy:
            del chosen[place]
    if found.slicings or any(each.graph for each in chosen.values()):
        from gecli.cache.gc_slices import of_slices

        actions += of_slices(found, chosen, policy, now, busy)
    else:
        actions += chosen.values()
    if policy.locks:
        actions += idle_locks(found, policy, now, actions)
    free = [each for each in actions if each.key not in busy]
    if policy.removes("unreferenced_weights"):
        free += weight_garbage(found, policy, now, free, notes)
    if policy.locks and found.key_glob is None:
        free += common_locks(found, policy, now, free)
    return free


def collect(
    found: Survey,
    actions: list[Action],
    *,
    wait_s: float = 0.0,
    shared: bool = False,
    limit_s: float | None = None,
    grace_s: float = 3600.0,
    lock_age_s: float | None = None,
) -> Outcome:
    """Do what was selected, entries under the lock of their key; stop at a key's end when `limit_s` has passed.

    With `lock_age_s` locks that this run had to make do not outlast it: gc's own, and at 0 those of keys without an
    index. What cannot be done at one key stops no other: `notes` say it, `failures` hold what was to be removed.
    """
    end = None if limit_s is None else time.monotonic() + limit_s
    outcome = Outcome()
    made = [] if lock_age_s is None else list(_locks_to_be_made(found, actions, with_keys=lock_age_s <= 0))
    for layer in found.layers:
        own = [each for each in actions if each.in_jit == (layer is found.jit)]
        inner = _collect_in(layer, own, wait_s, shared, end, grace_s)
        for name in ("done", "spared", "busy", "notes", "failures"):
            getattr(outcome, name).extend(getattr(inner, name))
    _count(found.directory, outcome)
    for layer in found.layers:  # behind the counters, which take gc's own lock
        for each in actions:
            if each.why == "lock" and not each.key and each.in_jit == (layer is found.jit):
                is_removed = remove_common_lock(layer.directory, each.path)
                (outcome.done if is_removed else outcome.spared).append(each)
    for directory, key in made:
        if key and os.path.lexists(lock_path(directory, key)):
            remove_lock(directory, Action("remove", "lock", key), Outcome())
        elif not key and os.path.lexists(gc_lock_path(directory)):
            remove_gc_lock(directory)
    order = {id(action): position for position, action in enumerate(actions)}
    outcome.done.sort(key=lambda action: order[id(action)])
    return outcome


def _locks_to_be_made(found: Survey, actions: list[Action], *, with_keys: bool) -> Iterator[tuple[str, str]]:
    """(directory, key) of the locks that do not exist and that the actions may make; no key for gc's own."""
    for layer in found.layers:
        own = [each for each in actions if each.in_jit == (layer is found.jit)] if with_keys else []
        for key in sorted({each.key for each in own} | {each.graph for each in own}):
            if key and not os.path.lexists(lock_path(layer.directory, key)):
                yield layer.directory, key
        if not os.path.lexists(gc_lock_path(layer.directory)):
            yield layer.directory, ""


def _collect_in(
    found: Survey, actions: list[Action], wait_s: float, shared: bool, end: float | None, grace_s: float
) -> Outcome:
    """Do what was selected of one layer."""
    outcome = Outcome(busy=[] if wait_s > 0 else sorted(found.busy_keys))
    for action in (each for each in actions if not each.key and not each.is_weight and each.why != "lock"):
        try:
            remove_tree(action.path)
            outcome.done.append(action)
        except OSError as error:
            outcome.leave(f"{action.what} was", error, [action])
    by_graph: dict[str, list[Action]] = {}
    by_key: dict[str, list[Action]] = {}
    for each in actions:
        if each.graph:
            by_graph.setdefault(each.graph, []).append(each)
        elif each.key and each.why != "lock":
            by_key.setdefault(each.key, []).append(each)

    def collect_locked(key: str, own: list[Action]) -> None:
        try:
            lock = KeyLock(found.directory, key, timeout_s=wait_s, shared=shared)
            with nullcontext() if is_bare(found.directory, key, own) else lock:
                collect_key(found.directory, key, own, outcome, file_mode(shared), found.named)
        except LockTimeout:
            outcome.busy.append(key)
        except LockUnavailable as error:
            outcome.leave(f"key {key} was", unusable_lock(found.directory, key, error), own)
        except OSError as error:
            outcome.leave(f"key {key} was", error, own)

    for graph, own in sorted(by_graph.items()):
        if end is not None and time.monotonic() > end:
            break
        from gecli.cache.gc_slices import collect_graph

        try:
            collect_graph(found, graph, own, outcome, wait_s, shared, collect_locked)
        except OSError as error:
            outcome.leave(f"what --jit keeps of key {graph} was", error, own)
    for key, own in sorted(by_key.items()):
        if end is not None and time.monotonic() > end:
            break
        collect_locked(key, own)
    for each in actions:
        if each.why == "lock" and each.key:
            remove_lock(found.directory, each, outcome)
    if end is None or time.monotonic() <= end:
        weights = [each for each in actions if each.is_weight]
        try:
            sweep_weights(found.directory, weights, outcome, grace_s)
        except OSError as error:
            outcome.leave("weights that no entry refers to were", error, weights)
    return outcome


def _count(directory: str, outcome: Outcome) -> None:
    """Count the run, and shorten the logs of the counters; a directory that only GE has used stays its own."""
    if outcome.failures and not outcome.done:
        return
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
    marker = marker_path(directory)
    try:
        # A marker of the future tells nothing: the clock was set back.
        if os.path.exists(marker) and 0 <= now - os.stat(marker).st_mtime < AUTOMATIC_PERIOD_S:
            return None
        with open(marker, "wb") as stream:
            give_to_group(stream.fileno(), file_mode(conf.shared))
            with suppress(PermissionError):  # another user's, whose time the opening has set
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


def _until(actions: list[Action], wanted: int | None) -> Iterator[Action]:
    freed = 0
    for action in actions:
        if wanted is not None and freed >= wanted:
            return
        freed += action.size_bytes
        yield action
