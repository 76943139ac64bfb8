"""What a garbage collection removes beside entries: loose files, hints, locks, weights, the quarantine (cache.md 12.3).

Everything here selects; nothing is changed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence

from gecli.cache.gc_actions import UNREFERENCED, Action, GcPolicy
from gecli.cache.gc_lock import gc_lock_path
from gecli.cache.index import index_path
from gecli.cache.layout import ENTRY_SUFFIXES, OM, PRIVATE, entry_path, host_name, is_alive, request_dir
from gecli.cache.lock import abandoned_records, inflight_records
from gecli.cache.model_cache import read_request_hint
from gecli.cache.quarantine import KEPT_S
from gecli.cache.survey import LooseFile, Survey
from gecli.cache.weight_files import weight_dir
from gecli.planning.weight_names import META_NAME
from gecli.wire.regular_file import io_fault, open_regular

HINT_AGE_S = 30 * 86400.0  # rows and memos not rewritten for so long serve nobody


def loose_garbage(found: Survey, policy: GcPolicy, now: float) -> Iterator[Action]:
    empties = _empties(found, policy)
    for each in found.loose:
        age = now - each.changed_s
        if each.kind == "tmp" and policy.removes("tmp") and age > policy.grace_s and not _is_written(each):
            yield _removal(each, "tmp")
        elif each.kind == "hint" and not policy.only and (empties or age > HINT_AGE_S or _leads_nowhere(each)):
            yield _removal(each, "hint")
        elif each.key in found.broken_indexes or each.kind != "orphan" or _is_unread(found, each):
            continue  # the rebuilt index may name it, or it may be part of a whole entry
        elif policy.removes("orphans") and age > policy.grace_s:
            yield _removal(each, "orphan")
    if policy.removes("tmp"):
        for path in abandoned_records(found.directory, now - policy.grace_s):
            yield Action("remove", "tmp", "", path=path)
        marker = marker_path(found.directory)
        if empties and os.path.lexists(marker):
            yield Action("remove", "hint", "", path=marker)


def left_unread(found: Survey, chosen: Sequence[Mapping[tuple[str, str], Action]]) -> Iterator[str]:
    """What stays because it cannot be read, and may be whole, in sentences."""
    for layer, gone in zip(found.layers, chosen):
        for key, why in sorted(layer.unreadable.items()):
            yield f"key {key} was left alone: its index cannot be read: {why}"
        if layer.unlisted:
            yield f"what --jit keeps was left alone: its slices cannot be listed: {layer.unlisted}"
        for row in layer.rows:
            if "io-error" in row.problems and row.key not in layer.unreadable and (row.key, row.stem) not in gone:
                yield f"entry {row.stem} was left alone: a file of it cannot be read (io-error)"
        for each in layer.loose:
            if each.kind == "orphan" and _is_unread(layer, each):
                yield f"{os.path.basename(each.path)} was left alone: a file of its entry cannot be read (io-error)"


def _is_unread(found: Survey, each: LooseFile) -> bool:
    """Whether a file without an index record may belong to a whole entry, of which something cannot be read."""
    stem = stem_of_path(each.path)
    for suffix in ENTRY_SUFFIXES:
        try:
            os.close(open_regular(entry_path(found.directory, stem, suffix)))
        except OSError as error:
            if io_fault(error):
                return True
    return False


def quarantine_garbage(found: Survey, policy: GcPolicy, now: float, chosen: list[LooseFile]) -> Iterator[Action]:
    """What was set aside so long ago that nobody looks at it any more, or is asked for."""
    is_asked = "quarantine" in policy.only or _empties(found, policy)
    age_s = policy.grace_s if is_asked else max(KEPT_S, policy.grace_s)
    for each in found.quarantined if policy.removes("quarantine") else ():
        why = "quarantine" if now - each.changed_s > age_s else "max-size" if each in chosen else ""
        if why:
            yield _removal(each, why)


def weight_garbage(
    found: Survey, policy: GcPolicy, now: float, actions: list[Action], notes: list[str] | None
) -> list[Action]:
    """Weight files that nothing refers to, or will once these actions are done."""
    if not os.path.isdir(weight_dir(found.directory)):
        return []
    from gecli.cache.weight_sweep import UnknownReferences, unreferenced

    gone = {(each.key, each.stem) for each in actions if each.verb == "remove" and each.stem}
    gone |= {(each.key, stem_of_path(each.path)) for each in actions if each.why == "orphan" and each.path}
    try:
        files = unreferenced(found.directory, now, policy.grace_s, gone)
    except UnknownReferences as error:
        if notes is not None:
            notes.append(f"no weight file is removed: {error}")
        return []
    return [Action("remove", UNREFERENCED, "", path=each.path, size_bytes=each.size_bytes) for each in files]


def idle_locks(found: Survey, policy: GcPolicy, now: float, actions: list[Action]) -> Iterator[Action]:
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


def common_locks(found: Survey, policy: GcPolicy, now: float, actions: list[Action]) -> Iterator[Action]:
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


def _empties(found: Survey, policy: GcPolicy) -> bool:
    """Whether the run leaves nothing for which hints could be of use."""
    return policy.everything and not policy.only and found.key_glob is None


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


def marker_path(directory: str) -> str:
    """The file whose time is that of the last automatic run."""
    return os.path.join(directory, PRIVATE, "gc.stamp")


def stem_of_path(path: str) -> str:
    return os.path.basename(path).partition(".")[0]
