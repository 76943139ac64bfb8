"""Garbage collection of a cache directory (cache.md 12.3).

`select` decides from a survey, `collect` acts on the decision. A dry run stops between the two, so it shows what the
real run does.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import replace

from gecli.artifacts.weight_meta import MetaLocked, locked_meta
from gecli.cache.cache_conf import CacheConf
from gecli.cache.events import event, record
from gecli.cache.gc_actions import UNREFERENCED, Action, GcPolicy, Outcome
from gecli.cache.gc_entries import Chosen, SizeLimit, choose, chosen_entries, listed, protected
from gecli.cache.gc_lock import gc_lock_path, remove_gc_lock
from gecli.cache.index import UnreadableIndex, index_path, read_index
from gecli.cache.layout import OM, PRIVATE, entry_path, host_name, is_alive, request_dir
from gecli.cache.lock import KeyLock, LockTimeout, LockUnavailable, abandoned_records, inflight_records, lock_path
from gecli.cache.model_cache import forget_entry_hints, read_request_hint
from gecli.cache.quarantine import KEPT_S, remove_tree
from gecli.cache.recovery import adoptable, files_of, recover, remove_records, set_aside
from gecli.cache.sidecar import InvalidSidecar, last_used_ns, read_sidecar
from gecli.cache.stat_index import StatIndex
from gecli.cache.store import NO_SPACE, file_mode
from gecli.cache.survey import LooseFile, Survey, survey
from gecli.cache.weight_files import weight_dir
from gecli.planning.weight_names import META_NAME

AT_ONCE = 500  # entries of a key whose records go together: a crash leaves that many complete ones without a record
HINT_AGE_S = 30 * 86400.0  # rows and memos not rewritten for so long serve nobody
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
    actions += _quarantine_garbage(found, policy, now, aside)
    return list(_until(actions, policy.free_bytes))


def _choose_by_size(found: Survey, policy: GcPolicy, now: float, chosen: list[Chosen]) -> list[LooseFile]:
    """Choose entries of both layers until the limit is kept; what goes of that which was set aside."""
    assert policy.max_size_bytes is not None
    spared = {each for layer in found.layers for each in protected(listed(layer), policy)}
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
        actions += [Action("rebuild", "index-corrupt", key) for key in found.broken_indexes]
        actions += [Action("adopt", "orphan", row.key, row.stem) for row in found.rows if row.adopts]
    actions += _loose_garbage(found, policy, now)
    for place, each in list(chosen.items()):
        if each.key in busy or each.graph in busy:
            del chosen[place]
    if found.slicings or any(each.graph for each in chosen.values()):
        from gecli.cache.gc_slices import of_slices

        actions += of_slices(found, chosen, policy, now, busy)
    else:
        actions += chosen.values()
    if policy.locks:
        actions += _idle_locks(found, policy, now, actions)
    free = [each for each in actions if each.key not in busy]
    if policy.removes("unreferenced_weights"):
        free += _weight_garbage(found, policy, now, free, notes)
    if policy.locks and found.key_glob is None:
        free += _common_locks(found, policy, now, free)
    return free


def _common_locks(found: Survey, policy: GcPolicy, now: float, actions: list[Action]) -> Iterator[Action]:
    """What all keys share and lock: `meta.json` of a weight directory that is empty otherwise, and gc's own lock."""
    if inflight_records(found.directory):
        return
    folder = weight_dir(found.directory)
    meta = os.path.join(folder, META_NAME)
    gone = {os.path.basename(each.path) for each in actions if each.is_weight}
    if set(_names(folder)) - gone == {META_NAME} and _is_older(meta, now, policy.lock_age_s):
        yield Action("remove", "lock", "", path=meta)
    lock = gc_lock_path(found.directory)
    if os.path.lexists(lock) and _is_older(lock, now, policy.lock_age_s):
        yield Action("remove", "lock", "", path=lock)


def _names(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _is_older(path: str, now: float, age_s: float) -> bool:
    try:
        return now - os.lstat(path).st_mtime > age_s
    except OSError:
        return False


def _remove_common_lock(directory: str, path: str) -> bool:
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


def _quarantine_garbage(found: Survey, policy: GcPolicy, now: float, chosen: list[LooseFile]) -> Iterator[Action]:
    """What was set aside so long ago that nobody looks at it any more, or is asked for."""
    is_asked = "quarantine" in policy.only or _empties(found, policy)
    age_s = policy.grace_s if is_asked else max(KEPT_S, policy.grace_s)
    for each in found.quarantined if policy.removes("quarantine") else ():
        why = "quarantine" if now - each.changed_s > age_s else "max-size" if each in chosen else ""
        if why:
            yield _removal(each, why)


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
    lock_age_s: float | None = None,
) -> Outcome:
    """Do what was selected, entries under the lock of their key; stop at a key's end when `limit_s` has passed.

    With `lock_age_s` locks that this run had to make do not outlast it: gc's own, and at 0 those of keys without an
    index. Raises OSError when a file cannot be removed or a key not be locked.
    """
    end = None if limit_s is None else time.monotonic() + limit_s
    outcome = Outcome()
    made = [] if lock_age_s is None else list(_locks_to_be_made(found, actions, with_keys=lock_age_s <= 0))
    for layer in found.layers:
        own = [each for each in actions if each.in_jit == (layer is found.jit)]
        inner = _collect_in(layer, own, wait_s, shared, end, grace_s)
        for name in ("done", "spared", "busy", "notes"):
            getattr(outcome, name).extend(getattr(inner, name))
    _count(found.directory, outcome)
    for layer in found.layers:  # behind the counters, which take gc's own lock
        for each in actions:
            if each.why == "lock" and not each.key and each.in_jit == (layer is found.jit):
                is_removed = _remove_common_lock(layer.directory, each.path)
                (outcome.done if is_removed else outcome.spared).append(each)
    for directory, key in made:
        if key and os.path.lexists(lock_path(directory, key)):
            _remove_lock(directory, Action("remove", "lock", key), Outcome())
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
        remove_tree(action.path)
        outcome.done.append(action)
    entries = [each for each in actions if each.key and each.why != "lock"]

    def collect_key(key: str, own: list[Action]) -> None:
        try:
            lock = KeyLock(found.directory, key, timeout_s=wait_s, shared=shared)
            with nullcontext() if _is_bare(found.directory, key, own) else lock:
                _collect_key(found.directory, key, own, outcome, file_mode(shared))
        except LockTimeout:
            outcome.busy.append(key)
        except LockUnavailable as error:
            raise OSError(errno.ENOLCK, str(error), lock_path(found.directory, key)) from error

    for graph in sorted({each.graph for each in entries if each.graph}):
        if end is not None and time.monotonic() > end:
            break
        from gecli.cache.gc_slices import collect_graph

        own = [each for each in entries if each.graph == graph]
        collect_graph(found, graph, own, outcome, wait_s, shared, collect_key)
    for key in sorted({each.key for each in entries if not each.graph}):
        if end is not None and time.monotonic() > end:
            break
        collect_key(key, [each for each in entries if each.key == key and not each.graph])
    for each in actions:
        if each.why == "lock" and each.key:
            _remove_lock(found.directory, each, outcome)
    if end is None or time.monotonic() <= end:
        _sweep_weights(found.directory, [each for each in actions if each.is_weight], outcome, grace_s)
    return outcome


def _is_bare(directory: str, key: str, actions: list[Action]) -> bool:
    """Whether a bare model is all that there is of a key: nobody has ever locked it, so no lock is made for it."""
    paths = (index_path(directory, key), lock_path(directory, key))
    return all(each.stem == key for each in actions) and not any(map(os.path.lexists, paths))


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
    marker = _marker(directory)
    try:
        # A marker of the future tells nothing: the clock was set back.
        if os.path.exists(marker) and 0 <= now - os.stat(marker).st_mtime < AUTOMATIC_PERIOD_S:
            return None
        with open(marker, "wb"):
            os.utime(marker, (now, now))
        found = survey(directory)
        policy = GcPolicy(max_age_s=conf.max_age, max_size_bytes=conf.max_size)
        return collect(found, select(found, policy, now), shared=conf.shared, limit_s=AUTOMATIC_LIMIT_S)
    except OSError:
        return None


def _marker(directory: str) -> str:
    """The file whose time is that of the last automatic run."""
    return os.path.join(directory, PRIVATE, "gc.stamp")


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
        elif action in orphans and _stem_of(action.path) in completed:
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
        _remove_entries(directory, key, [each.stem for each in some], mode)
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


def _remove_entries(directory: str, key: str, stems: Sequence[str], mode: int) -> None:
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
        for path in files_of(directory, stem):
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


def _empties(found: Survey, policy: GcPolicy) -> bool:
    """Whether the run leaves nothing for which hints could be of use."""
    return policy.everything and not policy.only and found.key_glob is None


def _loose_garbage(found: Survey, policy: GcPolicy, now: float) -> Iterator[Action]:
    empties = _empties(found, policy)
    for each in found.loose:
        age = now - each.changed_s
        if each.kind == "tmp" and policy.removes("tmp") and age > policy.grace_s and not _is_written(each):
            yield _removal(each, "tmp")
        elif each.kind == "hint" and not policy.only and (empties or age > HINT_AGE_S or _leads_nowhere(each)):
            yield _removal(each, "hint")
        elif each.key in found.broken_indexes:
            continue  # the rebuilt index may name it
        elif each.kind == "orphan" and policy.removes("orphans") and age > policy.grace_s:
            yield _removal(each, "orphan")
    if policy.removes("tmp"):
        for path in abandoned_records(found.directory, now - policy.grace_s):
            yield Action("remove", "tmp", "", path=path)
        marker = _marker(found.directory)
        if empties and os.path.lexists(marker):
            yield Action("remove", "hint", "", path=marker)


def _removal(each: LooseFile, why: str) -> Action:
    return Action("remove", why, each.key, path=each.path, size_bytes=each.size_bytes)


def _is_written(each: LooseFile) -> bool:
    """Whether the process that made a temporary file still runs."""
    pid = os.path.basename(each.path).rsplit(".", 2)[1]
    return is_alive(host_name(), int(pid))


def _leads_nowhere(each: LooseFile) -> bool:
    """Whether a hint names an entry that is gone."""
    folder, name = os.path.split(each.path)
    directory = os.path.dirname(os.path.dirname(folder))
    if folder != request_dir(directory):
        return False
    hint = read_request_hint(directory, name)
    return hint is None or not os.path.lexists(entry_path(directory, hint[1], OM))


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
