"""Repair under the lock of a key: broken indexes, entries that were cut off before the index, damaged files.

Nothing is thrown away: what cannot be used goes to `.gecli/quarantine/` (cache.md 2.2, 4.5, 5.3).
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Collection, Iterable, Sequence
from typing import Any

from gecli.artifacts.shared_files import make_folder, mode_in
from gecli.cache.candidate import damaged_file, om_fault
from gecli.cache.events import event
from gecli.cache.events import record as record_event
from gecli.cache.index import (
    IndexContent,
    IndexRecord,
    NamedFiles,
    UnreadableIndex,
    index_path,
    named_files,
    new_record,
    read_index,
)
from gecli.cache.layout import (
    ENTRY_SUFFIXES,
    OM,
    RDCPKT,
    SIDECAR,
    STEM_PATTERN,
    TEMPORARY_PATTERN,
    entry_path,
    host_name,
    is_alive,
    order_of,
    quarantine_dir,
)
from gecli.cache.sidecar import InvalidSidecar, read_sidecar
from gecli.cache.stat_index import StatIndex
from gecli.cache.store import replace_file, write_index

GRACE_S = 3600.0
_TAIL = r"_\d{8}_?\d{6}(?:_\d+)?\.(?:om|rdcpkt|gecli\.json)"
_OWNER, _OWNER_SHORT = re.compile(f"(.+){_TAIL}", re.ASCII), re.compile(f"(.+?){_TAIL}", re.ASCII)
_BEHIND_KEY = re.compile(r"(_\d{8}_?\d{6})(_\d+)?\.(?:om|rdcpkt|gecli\.json)", re.ASCII)
STAMP_DIGITS = 14  # of a time stamp without `_`


def recover(directory: str, key: str, stats: StatIndex, mode: int, names: Collection[str] | None = None) -> list[str]:
    """Bring the index of a key in order; what was done, in sentences. Needs the key's lock. Raises OSError.

    `names` as for `stems_of`; then nobody looks for old temporary files either.
    """
    done: list[str] = []
    try:
        content = read_index(directory, key)
    except UnreadableIndex as error:
        done.append(f"the index of key {key} cannot be read ({error}) and was rebuilt")
        set_aside(directory, [index_path(directory, key)], mode)
        content = _rebuilt(directory, key, stats)
        if content.records:
            write_index(directory, key, content, mode)
        return done
    changed = False
    if content is not None and content.malformed:
        _keep_malformed(directory, key, content.malformed, mode)
        done.append(f"{len(content.malformed)} malformed records of the index of key {key} were set aside")
        content, changed = IndexContent(content.records, [], content.others), True
    adopted = adoptable(directory, key, content, stats, names=names)
    if adopted:
        content = content or IndexContent([], [], {})
        content = IndexContent([*content.records, *adopted], [], content.others)
        done += [f"entry {record.stem} was complete but not indexed" for record in adopted]
        changed = True
    if changed and content is not None:
        write_index(directory, key, content, mode)
    if adopted:
        record_event(directory, event("adopted", key, count=len(adopted)))
    if names is None:
        remove_old_temporaries(directory, key)
    return done


def append_record(directory: str, record: IndexRecord, mode: int) -> None:
    """Add a record to the index as it is now, not as it was at the look-up. Raises OSError."""
    append_records(directory, record.graph_key, [record], mode)


def append_records(directory: str, key: str, records: Sequence[IndexRecord], mode: int) -> None:
    """Add records of one key to its index. Raises OSError."""
    try:
        content = read_index(directory, key) or IndexContent([], [], {})
    except UnreadableIndex:
        set_aside(directory, [index_path(directory, key)], mode)
        content = IndexContent([], [], {})
    names = {record.om_name for record in records}
    kept = [each for each in content.records if each.problem or each.om_name not in names]
    write_index(directory, key, IndexContent([*kept, *records], [], content.others), mode)


def remove_records(directory: str, key: str, stems: Iterable[str], mode: int) -> None:
    """Take records out of the index, before their files go.

    An index that becomes empty is deleted, unless a `{key}.om` without a record would come back to life. Raises
    OSError.
    """
    gone = set(stems)
    try:
        content = read_index(directory, key)
    except UnreadableIndex:
        return
    if content is None:
        return
    kept = [each for each in content.records if each.graph_key != key or each.stem not in gone]
    if len(kept) == len(content.records):
        return
    if kept or content.malformed or os.path.lexists(entry_path(directory, key, OM)):
        write_index(directory, key, IndexContent(kept, content.malformed, content.others), mode)
    else:
        os.unlink(index_path(directory, key))


def set_aside_entry(directory: str, key: str, stem: str, mode: int, named: NamedFiles | None = None) -> None:
    """Move a damaged entry out of the way, its index record first. Raises OSError.

    Files that a record of another key names stay; `named` as for `own_files_of`.
    """
    named = named_files(directory) if named is None else named
    remove_records(directory, key, [stem], mode)
    named.remove(key, stem)
    set_aside(directory, own_files_of(directory, key, stem, named), mode)
    record_event(directory, event("quarantined", key))


def adoptable(
    directory: str,
    key: str,
    content: IndexContent | None,
    stats: StatIndex,
    *,
    hashed: bool = True,
    names: Collection[str] | None = None,
) -> list[IndexRecord]:
    """Complete entries of a key that no index record names: a crash came between files and index.

    `names` as for `stems_of`.
    """
    known = {record.stem for record in content.records} if content else set()
    found = []
    for stem in stems_of(directory, key, names):
        if stem in known or not os.path.exists(entry_path(directory, stem, SIDECAR)):
            continue
        record = _complete(directory, key, stem, stats, hashed=hashed)
        if record is not None:
            found.append(record)
    return found


def names_by_key(names: Collection[str]) -> dict[str, list[str]]:
    """The names in a directory that `stems_of` needs for each key, for those who ask for many keys."""
    found: dict[str, list[str]] = {}
    for name in names:
        longest, shortest = _OWNER.fullmatch(name), _OWNER_SHORT.fullmatch(name)
        if longest is None or shortest is None:
            continue
        for key in {longest[1], shortest[1]}:
            found.setdefault(key, []).append(name)
        if longest[1] != shortest[1]:
            deciding = (f"{longest[1]}.idx", f"{longest[1]}.lock")
            found[shortest[1]] += [each for each in deciding if each in names]
    return found


def stems_of(directory: str, key: str, names: Collection[str] | None = None) -> list[str]:
    """The stems of a key that have any file, oldest first; `names` are those in the directory, if they are known."""
    names = os.listdir(directory) if names is None else names
    found = set()
    for name in names:
        match = _BEHIND_KEY.fullmatch(name, len(key)) if name.startswith(key) else None
        # GE's stamp of 14 digits looks like a suffix number: the file is of the longest key that is one.
        if match is None:
            continue
        first, number = key + match[1], match[2] or ""
        if len(number) == STAMP_DIGITS + 1 and {f"{first}.idx", f"{first}.lock"}.intersection(names):
            continue
        found.add(first + number)
    return sorted(found, key=order_of)


def remove_old_temporaries(directory: str, key: str, grace_s: float = GRACE_S) -> None:
    """Remove what writers that died left behind."""
    for path in old_temporaries(directory, time.time(), grace_s):
        name = os.path.basename(path)
        match = re.fullmatch(TEMPORARY_PATTERN, name)
        if (match and match["key"] == key) or name.startswith(f".{key}.idx.tmp."):
            _unlink(path)


def old_temporaries(directory: str, now: float, grace_s: float) -> list[str]:
    """Temporary files older than the grace time whose writer is gone."""
    found = []
    for name in sorted(os.listdir(directory)):
        match = re.fullmatch(r"\..+\.tmp\.(\d+)\.[0-9a-f]+", name)
        if match is None:
            continue
        path = os.path.join(directory, name)
        try:
            age = now - os.lstat(path).st_mtime
        except OSError:
            continue
        if age > grace_s and not is_alive(host_name(), int(match[1])):
            found.append(path)
    return found


def _rebuilt(directory: str, key: str, stats: StatIndex) -> IndexContent:
    """An index from the files themselves; an .om without a sidecar is taken with the .rdcpkt of its stem."""
    records = []
    for stem in stems_of(directory, key):
        record = _complete(directory, key, stem, stats)
        if record is None and not os.path.exists(entry_path(directory, stem, SIDECAR)):
            fault = om_fault(entry_path(directory, stem, OM))
            if fault and fault[0] != "io_error":  # what cannot be read now may be whole
                continue
            has_rdcpkt = os.path.isfile(entry_path(directory, stem, RDCPKT))
            record = new_record(key, stem, has_rdcpkt=has_rdcpkt)
            record.raw["gecli_recovered"] = True
        if record is not None:
            records.append(record)
    return IndexContent(records, [], {})


def _complete(directory: str, key: str, stem: str, stats: StatIndex, *, hashed: bool = True) -> IndexRecord | None:
    try:
        sidecar = read_sidecar(directory, key, stem)
    except (InvalidSidecar, OSError):
        return None
    if sidecar is None or sidecar.file_facts("om") is None:
        return None
    record = new_record(key, stem, has_rdcpkt=sidecar.has_rdcpkt)
    return None if damaged_file(directory, record, sidecar, stats, hashed=hashed) else record


def _keep_malformed(directory: str, key: str, elements: list[Any], mode: int) -> None:
    import json

    make_folder(quarantine_dir(directory), mode)
    name = f"{key}.records.{_utc()}.json"
    replace_file(
        _free_name(os.path.join(quarantine_dir(directory), name)), json.dumps(elements, indent=1).encode(), mode
    )


def set_aside(directory: str, paths: list[str], mode: int = -1) -> None:
    """Move files, or what stands under their names, to the quarantine. Raises OSError."""
    target = quarantine_dir(directory)
    make_folder(target, mode_in(directory) if mode < 0 else mode)
    for path in paths:
        if os.path.lexists(path):
            os.replace(path, _free_name(os.path.join(target, f"{os.path.basename(path)}.{_utc()}")))


def _free_name(path: str) -> str:
    """A name of the quarantine that nothing has: two damages of one second are both kept."""
    found, number = path, 0
    while os.path.lexists(found):
        number += 1
        found = f"{path}.{number}"
    return found


def _utc() -> str:
    return time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())


def _unlink(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        return


def files_of(directory: str, stem: str) -> list[str]:
    """The files of an entry that exist, in the order in which they are deleted: the .om last."""
    order = (RDCPKT, SIDECAR, OM)
    assert set(order) == set(ENTRY_SUFFIXES)
    return [path for path in (entry_path(directory, stem, suffix) for suffix in order) if os.path.lexists(path)]


def own_files_of(directory: str, key: str, stem: str, named: NamedFiles) -> list[str]:
    """The files of an entry that no record of another key names; `named` are the files of all indexes.

    The sidecar belongs to the key whose name it holds, as long as that has the model.
    """
    om = entry_path(directory, stem, OM)
    files = [path for path in files_of(directory, stem) if not named.is_of_another(path, key)]
    if named.is_of_another(om, key) and not _is_sidecar_of(directory, key, stem):
        files = [path for path in files if not path.endswith(SIDECAR)]
    return files


def _is_sidecar_of(directory: str, key: str, stem: str) -> bool:
    try:
        return read_sidecar(directory, key, stem) is not None
    except (InvalidSidecar, OSError):
        return False


def is_stem(stem: str) -> bool:
    return re.fullmatch(STEM_PATTERN, stem) is not None
