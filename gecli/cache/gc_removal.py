"""Doing what a garbage collection selected: entries under the lock of their key, locks, weights (cache.md 12.3)."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence

from gecli.artifacts.weight_meta import MetaLocked, locked_meta
from gecli.cache.gc_actions import Action, Outcome
from gecli.cache.gc_garbage import stem_of_path
from gecli.cache.gc_lock import gc_lock_path, remove_gc_lock
from gecli.cache.index import NamedFiles, UnreadableIndex, index_path, read_index
from gecli.cache.lock import KeyLock, LockTimeout, LockUnavailable, lock_path, unusable_lock
from gecli.cache.model_cache import forget_entry_hints
from gecli.cache.recovery import adoptable, own_files_of, recover, remove_records, set_aside
from gecli.cache.sidecar import InvalidSidecar, last_used_ns, read_sidecar
from gecli.cache.stat_index import StatIndex
from gecli.cache.store import NO_SPACE
from gecli.planning.weight_names import META_NAME

AT_ONCE = 500  # entries of a key whose records go together: a crash leaves that many complete ones without a record


def collect_key(
    directory: str, key: str, actions: list[Action], outcome: Outcome, mode: int, named: NamedFiles
) -> None:
    """Do what was selected of a key; files that a record of another key in `named` names stay."""
    repairs = [each for each in actions if each.verb in ("adopt", "rebuild")]
    if repairs and not _recovered(directory, key, mode):
        outcome.spared += repairs
        actions = [each for each in actions if each not in repairs]
    orphans = [each for each in actions if each.why == "orphan" and each.path]
    completed = _completed(directory, key) if orphans else frozenset()
    entries: list[Action] = []
    for action in actions:
        if action.verb != "remove":
            outcome.done.append(action)
        elif action in orphans and stem_of_path(action.path) in completed:
            outcome.spared.append(action)  # its writer came to the end since the survey, or nearly
        elif action.path:
            _unlink(action.path)
            outcome.done.append(action)
        elif (last_used_ns(directory, action.stem) or 0) / 1e9 > action.used_s:
            outcome.spared.append(action)  # somebody used it since the survey
        else:
            entries.append(action)
    for begin in range(0, len(entries), AT_ONCE):
        some = entries[begin : begin + AT_ONCE]
        _remove_entries(directory, key, [each.stem for each in some], mode, named)
        outcome.done += some


def _recovered(directory: str, key: str, mode: int) -> bool:
    """Bring the index of a key in order; False where the disk has no room for that, which the rest may make."""
    try:
        recover(directory, key, StatIndex(), mode)
    except OSError as error:
        if error.errno not in NO_SPACE:
            raise
        return False
    return True


def _completed(directory: str, key: str) -> frozenset[str]:
    """The stems of a key that are entries now, or will be at the next look-up."""
    try:
        content = read_index(directory, key)
    except UnreadableIndex:
        content = None
    records = [*(content.records if content else ()), *adoptable(directory, key, content, StatIndex())]
    return frozenset(record.stem for record in records)


def _remove_entries(directory: str, key: str, stems: Sequence[str], mode: int, named: NamedFiles) -> None:
    """First the index, then the files: a crash in between leaves files that no reader looks at.

    A full disk has no room for another index; then the files go first, and a reader meets a record without its .om.
    """
    requests = {stem: _requests_of(directory, key, stem) for stem in stems}
    try:
        remove_records(directory, key, stems, mode)
        is_done = True
    except OSError as error:
        if error.errno not in NO_SPACE:
            raise
        is_done = False
    for stem in stems:
        named.remove(key, stem)
    for stem in stems:
        for path in own_files_of(directory, key, stem, named):
            if os.path.isdir(path) and not os.path.islink(path):
                set_aside(directory, [path])  # a folder under the name of a file is somebody's: keep it
            else:
                _unlink(path)
        forget_entry_hints(directory, stem, requests[stem])
    if not is_done:
        remove_records(directory, key, stems, mode)


def _requests_of(directory: str, key: str, stem: str) -> list[str]:
    try:
        sidecar = read_sidecar(directory, key, stem)
    except (InvalidSidecar, OSError):
        return []
    return sidecar.requests if sidecar is not None else []


def sweep_weights(directory: str, actions: list[Action], outcome: Outcome, grace_s: float) -> None:
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


def is_bare(directory: str, key: str, actions: list[Action]) -> bool:
    """Whether a bare model is all that there is of a key: nobody has ever locked it, so no lock is made for it."""
    paths = (index_path(directory, key), lock_path(directory, key))
    return all(each.stem == key for each in actions) and not any(map(os.path.lexists, paths))


def remove_lock(directory: str, action: Action, outcome: Outcome) -> None:
    """Remove a lock while it is held, unless its key has got an index since."""
    try:
        with KeyLock(directory, action.key, timeout_s=0, leaves_record=False):
            if os.path.lexists(index_path(directory, action.key)):
                outcome.spared.append(action)
                return
            _unlink(lock_path(directory, action.key))
    except LockTimeout:
        outcome.busy.append(action.key)
        return
    except LockUnavailable as error:
        outcome.leave(f"the lock of key {action.key} was", unusable_lock(directory, action.key, error), [action])
        return
    outcome.done.append(action)


def remove_common_lock(directory: str, path: str) -> bool:
    """Whether a lock that all keys share was removed: nobody holds it, and nothing needs it."""
    if path == gc_lock_path(directory):
        return remove_gc_lock(directory)
    try:
        with locked_meta(os.path.dirname(path), timeout_s=0):
            is_idle = os.listdir(os.path.dirname(path)) == [META_NAME]
            if is_idle:
                os.unlink(path)
            return is_idle
    except MetaLocked:
        return False


def _unlink(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        return
