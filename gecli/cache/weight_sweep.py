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

from gecli.artifacts.weight_meta import MetaLocked, WeightMeta, locked_meta
from gecli.cache.gc_lock import gc_lock
from gecli.cache.index import UnreadableIndex, read_index
from gecli.cache.layout import OM, entry_path, host_name, is_alive
from gecli.cache.lock import inflight_records
from gecli.cache.recovery import stems_of
from gecli.cache.sidecar import InvalidSidecar, read_sidecar
from gecli.cache.survey import keys_in
from gecli.cache.weight_files import BadWeightRow, WeightRange, weight_dir, weights_of
from gecli.errors import GecliError
from gecli.planning.weight_names import COMBINED_SUFFIX, is_weight_file

FOREIGN_RECORD_S = 86400.0  # how long a record of a process on another host counts
META_WAIT_S = 2.0
# Siblings that writers publish from, by `gecli.artifacts.publish` and by an import.
_TEMPORARY = re.compile(r"\..+\.tmp[-.](\d+)[-.][0-9a-f]+")

Entry = tuple[str, str]  # key and stem


class UnknownReferences(Exception):
    """What some entry refers to cannot be found out; the text says which one and why."""


class Unreferenced(NamedTuple):
    """A file of the weight directory that nothing refers to."""

    path: str
    size_bytes: int
    is_temporary: bool = False


def unreferenced(
    directory: str, now: float, grace_s: float, without: Collection[Entry] = frozenset()
) -> list[Unreferenced]:
    """What a sweep removes once the entries in `without` are gone. Changes nothing. Raises UnknownReferences."""
    found = _candidates(directory, now, grace_s)
    if all(each.is_temporary for each in found):
        return found
    kept = _referenced(directory, without) | _in_flight(directory, now)
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
            with locked_meta(weight_dir(directory), timeout_s=META_WAIT_S) as (meta, save):
                removed = [each.path for each in unreferenced(directory, now, grace_s) if each.path in wanted]
                for path in removed:
                    with suppress(FileNotFoundError):
                        os.unlink(path)
                if _forget(meta, {os.path.basename(path) for path in removed}):
                    save()
                return removed
        except MetaLocked:
            return None


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
            found.append(Unreferenced(path, status.st_size, temporary is not None))
    return found


def _referenced(directory: str, without: Collection[Entry]) -> set[str]:
    """The weight files of every entry, indexed or complete without it, and of bare models."""
    names: set[str] = set()
    for key in keys_in(os.listdir(directory)):
        try:
            content = read_index(directory, key)
        except (UnreadableIndex, OSError) as error:
            raise UnknownReferences(f"the index of key {key} cannot be read: {error}") from error
        stems = {record.stem for record in content.records if record.graph_key == key} if content else set()
        stems |= {*stems_of(directory, key), key}
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


def _in_flight(directory: str, now: float) -> set[str]:
    """The weights that running compiles have written or found."""
    names: set[str] = set()
    for record in inflight_records(directory):
        host, since = str(record.get("host")), record.get("since")
        is_recent = isinstance(since, int | float) and now - since < FOREIGN_RECORD_S
        weights = record.get("weights")
        if isinstance(weights, list) and is_alive(host, record.get("pid")) and (host == host_name() or is_recent):
            names |= {os.path.basename(str(each)) for each in weights}
    return names


def _forget(meta: WeightMeta, names: set[str]) -> bool:
    gone = [spelling for spelling, path in meta.files.items() if os.path.basename(path) in names]
    for spelling in gone:
        del meta.files[spelling]
        meta.offsets.pop(spelling, None)
    return bool(gone)
