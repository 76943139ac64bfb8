"""Weight files that no entry refers to: mark and sweep (cache.md 12.3).

Every entry of the directory is a root, whatever keys a command was asked for. What an entry refers to may not be
known: then nothing is swept, because unknown references are no garbage.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Collection, Iterable
from contextlib import suppress
from typing import NamedTuple

from gecli.artifacts.shared_files import mode_in
from gecli.artifacts.weight_meta import MetaLocked, WeightMeta, locked_meta
from gecli.cache.gc_lock import gc_lock
from gecli.cache.index import UnreadableIndex, read_index
from gecli.cache.layout import OM, entry_path, host_name, is_alive
from gecli.cache.lock import inflight_records
from gecli.cache.recovery import names_by_key, stems_of
from gecli.cache.sidecar import InvalidSidecar, read_sidecar
from gecli.cache.survey import keys_in
from gecli.cache.weight_files import BadWeightRow, WeightRange, weight_dir, weights_of
from gecli.errors import GecliError
from gecli.planning.weight_names import COMBINED_SUFFIX, is_weight_file

FOREIGN_RECORD_S = 86400.0  # how long a record of a process on another host counts
META_WAIT_S = 2.0
CLOCK_S = 2.0  # between the clock of a record and the times of files
# Siblings that writers publish from, by `gecli.artifacts.publish` and by an import.
_TEMPORARY = re.compile(r"\..+\.tmp[-.](\d+)[-.][0-9a-f]+")

Entry = tuple[str, str]  # key and stem


class UnknownReferences(Exception):
    """What some entry refers to cannot be found out; the text says which one and why."""


class Unreferenced(NamedTuple):
    """A file of the weight directory that nothing refers to."""

    path: str
    size_bytes: int
    changed_s: float
    is_temporary: bool = False


def unreferenced(
    directory: str, now: float, grace_s: float, without: Collection[Entry] = frozenset()
) -> list[Unreferenced]:
    """What a sweep removes once the entries in `without` are gone. Changes nothing. Raises UnknownReferences."""
    running = _in_flight(directory, now)  # before the references: a compile that ends in between has made its entry
    found = [each for each in _candidates(directory, now, grace_s) if not _is_in_use(each, running)]
    if all(each.is_temporary for each in found):
        return found
    kept = _referenced(directory, without)
    return [each for each in found if each.is_temporary or os.path.basename(each.path) not in kept]


def sweep(directory: str, paths: Iterable[str], now: float, grace_s: float) -> list[str] | None:
    """Remove those of `paths` that nothing refers to still; the removed ones, None when somebody else sweeps.

    Their names leave `meta.json` in the same moment, under its lock, which writers of combined files hold too. Raises
    OSError, and UnknownReferences.
    """
    wanted = set(paths)
    with gc_lock(directory) as is_held:
        if not is_held:
            return None
        try:
            folder, mode = weight_dir(directory), mode_in(directory)
            with locked_meta(folder, timeout_s=META_WAIT_S, mode=mode) as (meta, save):
                found = [each for each in unreferenced(directory, now, grace_s) if each.path in wanted]
                removed = [each.path for each in found if _removed(each)]
                if _forget(meta, {os.path.basename(path) for path in removed}):
                    save()
                return removed
        except MetaLocked:
            return None


def _removed(each: Unreferenced) -> bool:
    """Remove a file, unless a compile touched it a moment ago because it needs it."""
    try:
        if os.lstat(each.path).st_mtime != each.changed_s:
            return False
        os.unlink(each.path)
    except FileNotFoundError:
        return True
    return True


def combined_shares(directory: str, ranges: Iterable[WeightRange]) -> dict[str, tuple[int, int]]:
    """(bytes referred to, size) of each combined file: it is removed only as a whole, so the rest stays in it."""
    used: dict[str, dict[int, int]] = {}
    for each in ranges:
        if each.file.endswith(COMBINED_SUFFIX):
            places = used.setdefault(each.file, {})
            places[each.offset] = max(places.get(each.offset, 0), each.length)
    shares = {}
    for name, places in sorted(used.items()):
        with suppress(OSError):
            size = os.stat(os.path.join(weight_dir(directory), name)).st_size
            shares[name] = (sum(places.values()), size)
    return shares


def _candidates(directory: str, now: float, grace_s: float) -> list[Unreferenced]:
    """Files old enough, by the patterns of their names; links among them are unlinked, never followed."""
    folder = weight_dir(directory)
    found = []
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        return []
    for name in names:
        temporary = _TEMPORARY.fullmatch(name)
        if not is_weight_file(name) and (temporary is None or is_alive(host_name(), int(temporary[1]))):
            continue
        path = os.path.join(folder, name)
        try:
            status = os.lstat(path)
        except OSError:
            continue
        if not stat.S_ISDIR(status.st_mode) and now - status.st_mtime > grace_s:
            found.append(Unreferenced(path, status.st_size, status.st_mtime, temporary is not None))
    return found


def _referenced(directory: str, without: Collection[Entry]) -> set[str]:
    """The weight files of every entry, indexed or complete without it, and of bare models."""
    names: set[str] = set()
    listed = set(os.listdir(directory))
    by_key = names_by_key(listed)
    for key in keys_in(listed):
        try:
            content = read_index(directory, key)
        except (UnreadableIndex, OSError) as error:
            raise UnknownReferences(f"the index of key {key} cannot be read: {error}") from error
        stems = {record.stem for record in content.records if record.graph_key == key} if content else set()
        stems |= {*stems_of(directory, key, by_key.get(key, [])), key}
        for stem in sorted(stems):
            if (key, stem) not in without and os.path.isfile(entry_path(directory, stem, OM)):
                names |= _names_of(directory, key, stem)
    return names


def _names_of(directory: str, key: str, stem: str) -> set[str]:
    try:
        sidecar = read_sidecar(directory, key, stem) if stem != key else None
        return {each.file for each in weights_of(directory, stem, sidecar)}
    except FileNotFoundError:
        return set()  # removed since it was listed
    except (InvalidSidecar, BadWeightRow, GecliError, OSError) as error:
        raise UnknownReferences(f"what entry {stem} refers to cannot be read: {error}") from error


class InFlight(NamedTuple):
    """What running compiles may be going to refer to: files that they named, and when the first of them began."""

    names: frozenset[str]
    since_s: float | None


def _in_flight(directory: str, now: float) -> InFlight:
    names: set[str] = set()
    begins = []
    for record in inflight_records(directory):
        host, since = str(record.get("host")), record.get("since")
        began = since if isinstance(since, int | float) and 0 < since <= now else 0.0
        if is_alive(host, record.get("pid")) and (host == host_name() or now - began < FOREIGN_RECORD_S):
            begins.append(began)
            weights = record.get("weights")
            names |= {os.path.basename(str(each)) for each in weights} if isinstance(weights, list) else set()
    return InFlight(frozenset(names), min(begins, default=None))


def _is_in_use(each: Unreferenced, running: InFlight) -> bool:
    """Whether a running compile may have written or found the file, however short the grace time is.

    It touches the files of single weights that it uses, but not a combined file whose bytes it found.
    """
    name = os.path.basename(each.path)
    if running.since_s is None or each.is_temporary:
        return False
    return name in running.names or each.changed_s >= running.since_s - CLOCK_S or name.endswith(COMBINED_SUFFIX)


def _forget(meta: WeightMeta, names: set[str]) -> bool:
    gone = [spelling for spelling, path in meta.files.items() if os.path.basename(path) in names]
    for spelling in gone:
        del meta.files[spelling]
        meta.offsets.pop(spelling, None)
    return bool(gone)
