"""Bringing a cache directory in order after `gecli.cache.verify`, key by key under its lock (cache.md 12.2).

What is damaged goes to `.gecli/quarantine/`, its index record first; nothing is thrown away, and nothing that is whole
is touched: every fault is looked for again once the lock is held.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import field

from gecli.artifacts.shared_files import mode_in
from gecli.artifacts.weight_meta import MetaLocked, locked_meta
from gecli.cache.index import (
    IndexContent,
    IndexRecord,
    NamedFiles,
    UnreadableIndex,
    index_path,
    named_files,
    read_index,
)
from gecli.cache.layout import OM, SIDECAR, entry_path
from gecli.cache.lock import KeyLock, LockTimeout, LockUnavailable, OnWait
from gecli.cache.recovery import recover, set_aside, set_aside_entry
from gecli.cache.stat_index import StatIndex
from gecli.cache.store import file_mode, write_index
from gecli.cache.verify import Verification, entry_problems, records_of, weight_dir_problems
from gecli.cache.weight_files import weight_dir
from gecli.planning.weight_names import COMBINED_SUFFIX, spelled
from gecli.records import dataclass

OF_INDEXES = ("index-corrupt", "index-entry-invalid", "orphan")
OF_WEIGHTS = ("weights-corrupt", "meta-invalid")
BEYOND_REPAIR = ("io-error", "lock-invalid", "conf-invalid")
META_WAIT_S = 10.0


@dataclass(slots=True)
class Repairs:
    """What was done, in sentences, and the keys whose lock somebody held all the time, with who did."""

    done: list[str] = field(default_factory=list)
    busy: dict[str, str] = field(default_factory=dict)
    closed: set[str] = field(default_factory=set)  # those of `busy` whose lock cannot be used


def repair(found: Verification, *, wait_s: float, shared: bool = False, on_wait: OnWait | None = None) -> Repairs:
    """Repair what can be repaired of the problems found, in both layers. Raises OSError."""
    repairs = Repairs()
    for layer in found.layers:
        _repair_layer(layer, repairs, wait_s, shared, on_wait)
    if found.jit is not None:
        _repair_slices(found, found.jit, repairs, wait_s, shared, on_wait)
    return repairs


def _repair_slices(
    found: Verification, jit: Verification, repairs: Repairs, wait_s: float, shared: bool, on_wait: OnWait | None
) -> None:
    """Bring slices in order, behind their versions: a version that was set aside must leave its list."""
    from gecli.cache.jit_survey import slicings
    from gecli.cache.jit_verify import repair_slicing

    told = {each.key for each in jit.problems if each.kind == "jit-broken"}
    touched = {each.key for each in jit.problems}
    for key, each in slicings(found.directory).items():
        if key in told or (each.fault and touched & each.listed):
            with _locked(jit.directory, key, repairs, wait_s, shared, on_wait) as is_held:
                if is_held:
                    repair_slicing(found.directory, key, repairs.done.append, file_mode(shared), full=not found.fast)


def _repair_layer(found: Verification, repairs: Repairs, wait_s: float, shared: bool, on_wait: OnWait | None) -> None:
    mode = file_mode(shared)
    bare = {each.key for each in found.problems if each.entry and each.entry == each.key}
    bare = {key for key in bare if not os.path.lexists(index_path(found.directory, key))}
    for key in sorted(bare):
        _repair_bare(found, key, repairs.done.append, mode)
    keys = {each.key for each in found.problems if each.key and each.kind not in (*BEYOND_REPAIR, "jit-broken")} - bare
    for key in sorted(keys):
        with _locked(found.directory, key, repairs, wait_s, shared, on_wait) as is_held:
            if is_held:
                _repair_key(found, key, repairs.done.append, mode)
    if any(each.kind in OF_WEIGHTS for each in found.problems):
        _repair_weights(found, repairs)


@contextmanager
def _locked(
    directory: str, key: str, repairs: Repairs, wait_s: float, shared: bool, on_wait: OnWait | None
) -> Iterator[bool]:
    """The lock of a key for the block; False, and told, when it is not to be had."""
    with ExitStack() as stack:
        try:
            stack.enter_context(KeyLock(directory, key, timeout_s=wait_s, on_wait=on_wait, shared=shared))
        except LockTimeout as error:
            repairs.busy[key] = str(error)
        except LockUnavailable as error:
            repairs.busy[key] = str(error)
            repairs.closed.add(key)
        yield key not in repairs.busy


def _repair_weights(found: Verification, repairs: Repairs) -> None:
    """Set weight files aside that are not what their names say, and write `meta.json` anew."""
    folder = weight_dir(found.directory)
    try:
        with locked_meta(folder, timeout_s=META_WAIT_S, mode=mode_in(found.directory)) as (meta, save):
            problems = weight_dir_problems(found.directory, set(), fast=found.fast)
            for each in problems:
                if each.kind == "weights-corrupt":
                    set_aside(found.directory, [each.path])
                    repairs.done.append(f"weight file {each.what} was set aside ({each.kind})")
            for spelling, path in list(meta.files.items()):
                if not os.path.exists(os.path.join(folder, os.path.basename(path))):
                    del meta.files[spelling]
                    meta.offsets.pop(spelling, None)
            for each_range in found.weights:
                if each_range.file.endswith(COMBINED_SUFFIX) and each_range.sha256:
                    path = os.path.join(folder, each_range.file)
                    meta.record(spelled(each_range.sha256), path, each_range.offset)
            save()
            if any(each.kind == "meta-invalid" for each in problems):
                repairs.done.append("meta.json of the weights was written anew")
    except MetaLocked:
        repairs.busy["weight/meta.json"] = "another process"


def _repair_key(found: Verification, key: str, say: Callable[[str], None], mode: int) -> None:
    directory = found.directory
    if any(each.kind in OF_INDEXES for each in found.problems if each.key == key):
        for sentence in recover(directory, key, StatIndex(trusting=False), mode):
            say(sentence)
    _drop_unusable_records(directory, key, say, mode)
    named: NamedFiles | None = None
    for record in records_of(directory, key):
        for problem in entry_problems(directory, key, record, fast=found.fast):
            if problem.kind in BEYOND_REPAIR:
                break
            named = named_files(directory) if named is None else named
            set_aside_entry(directory, key, record.stem, mode, named)
            say(f"entry {record.stem} was set aside ({problem.kind})")
            break


def _repair_bare(found: Verification, key: str, say: Callable[[str], None], mode: int) -> None:
    """A model that no index names: no compile writes it, so it needs no lock. One that only lacks weights stays."""
    directory = found.directory
    suffixes = {"om-corrupt": OM, "sidecar-invalid": SIDECAR}
    for record in records_of(directory, key):
        for problem in entry_problems(directory, key, record, fast=found.fast):
            if problem.kind in suffixes and record.stem == key:
                path = entry_path(directory, key, suffixes[problem.kind])
                if named_files(directory).is_of_another(entry_path(directory, key, OM), key):
                    continue  # the other key's problem, if it is one
                set_aside(directory, [path], mode)
                say(f"{os.path.basename(path)}, which no index names, was set aside ({problem.kind})")


def _drop_unusable_records(directory: str, key: str, say: Callable[[str], None], mode: int) -> None:
    """Records that name files elsewhere, and second ones of the same files; what they name stays."""
    try:
        content = read_index(directory, key)
    except UnreadableIndex:
        return  # rebuilding it was tried
    if content is None:
        return
    kept: list[IndexRecord] = []
    for record in content.records:
        if record.problem:
            say(f"a record of the index of key {key} was removed ({record.problem.replace('_', '-')})")
        elif any(record.om_name == other.om_name and record.graph_key == other.graph_key for other in kept):
            say(f"the second record of entry {record.stem} was removed")
        else:
            kept.append(record)
    if len(kept) < len(content.records):
        write_index(directory, key, IndexContent(kept, content.malformed, content.others), mode)
