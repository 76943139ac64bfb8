"""What is in a cache directory: one row an entry with its state, and the files that belong to none (cache.md 12.1).

Fast checks only; nothing is written, and no file is read in full.
"""

from __future__ import annotations

import fnmatch
import os
import re
import stat
from collections.abc import Iterable
from dataclasses import field, replace
from datetime import UTC, datetime

from gecli.cache.cache_conf import BrokenConf, read_cache_conf
from gecli.cache.candidate import damaged_file, looks_like_om, maker_of, missing_file
from gecli.cache.graph_key import is_graph_key
from gecli.cache.index import SUFFIX, IndexContent, IndexRecord, UnreadableIndex, read_index
from gecli.cache.layout import FILE_PATTERN, OM, PRIVATE, SIDECAR, entry_path, quarantine_dir, request_dir, stat_dir
from gecli.cache.lock import is_busy
from gecli.cache.recovery import adoptable, files_of, names_by_key
from gecli.cache.sidecar import InvalidSidecar, Sidecar, last_used_ns, read_sidecar
from gecli.cache.stat_index import StatIndex
from gecli.cache.weight_files import BadWeightRow, WeightRange, damaged_weight, weight_dir, weights_of_sidecar
from gecli.records import dataclass
from gecli.version import __version__

# The worst first: an entry shows the first of its problems in this order.
STATES = (
    "index-corrupt", "io-error", "bad-path", "om-missing", "om-corrupt", "rdcpkt-missing", "rdcpkt-corrupt",
    "sidecar-invalid", "weights-missing", "weights-corrupt", "duplicate-files", "orphan", "shadowed", "superseded",
    "jit-orphan", "stale-toolchain", "unconfirmed", "recovered", "foreign", "legacy", "busy", "ok",
)  # fmt: skip
BROKEN = frozenset(STATES[: STATES.index("orphan")]) - {"index-corrupt", "io-error", "duplicate-files"}
JIT = "jit"
OF_FILES = ("tmp", "orphan")  # states of files that belong to no entry; `orphan` also of an entry without a record
TEMPORARY = re.compile(r"\..+\.tmp\.\d+\.[0-9a-f]+")


@dataclass(frozen=True, slots=True)
class EntryRow:
    """One entry. Times are seconds since the epoch; `adopts` marks a complete entry that the index does not name."""

    key: str
    stem: str
    created_s: float
    used_s: float
    size_bytes: int
    problems: tuple[str, ...]
    before_count: int = 0
    after_count: int = 0
    fingerprint: str = ""
    made_by: str = "ge"
    adopts: bool = False
    layer: str = "graph"
    weights: tuple[WeightRange, ...] = ()
    shares_weights: bool = False  # another entry refers to the same bytes
    waits: bool = False  # with cache_manual_check it is not used before it is confirmed

    @property
    def weights_bytes(self) -> int:
        return sum(length for _, _, length in {(each.file, each.offset, each.length) for each in self.weights})

    @property
    def state(self) -> str:
        """The worst problem, or `ok`."""
        return min(self.problems, key=STATES.index, default="ok")


@dataclass(frozen=True, slots=True)
class LooseFile:
    """A file without an entry. `kind`: orphan, tmp, hint, lock, unknown."""

    path: str
    kind: str
    size_bytes: int
    changed_s: float
    key: str = ""


@dataclass(slots=True)
class Survey:
    """The directory at one moment; keys whose lock is held, and keys whose index cannot be read."""

    directory: str
    rows: list[EntryRow] = field(default_factory=list)
    loose: list[LooseFile] = field(default_factory=list)
    busy_keys: set[str] = field(default_factory=set)
    broken_indexes: list[str] = field(default_factory=list)
    reclaimable_bytes: int = 0  # filled in by who asks gc
    jit: Survey | None = None  # the same of the JIT layer, which is a cache directory inside

    @property
    def all_rows(self) -> list[EntryRow]:
        return self.rows + (self.jit.rows if self.jit is not None else [])

    @property
    def total_bytes(self) -> int:
        return sum(row.size_bytes for row in self.rows)

    def weights_bytes(self, rows: Iterable[EntryRow]) -> int:
        """The weights that these entries refer to, each counted once."""
        places = {(each.file, each.offset, each.length) for row in rows for each in row.weights}
        return sum(length for _, _, length in places)


def survey(directory: str, key_glob: str | None = None) -> Survey:
    """Look at every entry of the keys that fit, and at the JIT layer. Raises OSError when nothing can be listed."""
    found = _survey(directory, key_glob)
    inside = os.path.join(directory, JIT)
    if os.path.isdir(inside):
        found.jit = _of_jit(directory, _survey(inside, None), key_glob)
    return found


def _of_jit(directory: str, found: Survey, key_glob: str | None) -> Survey:
    """The JIT layer: versions that no slice lists are orphans; a key is that of a version or of its graph."""
    from gecli.cache.jit_survey import listed_versions

    listed = listed_versions(directory)
    rows = []
    for row in found.rows:
        if selected(row.key, key_glob) or selected((listed or {}).get(row.key, ""), key_glob):
            is_orphan = listed is not None and row.key not in listed
            rows.append(_with(replace(row, layer="jit"), ("jit-orphan",) * is_orphan))
    found.rows = rows
    found.loose = [each for each in found.loose if selected(each.key, key_glob)]
    found.broken_indexes = [key for key in found.broken_indexes if selected(key, key_glob)]
    return found


def _survey(directory: str, key_glob: str | None) -> Survey:
    names = set(os.listdir(directory))
    found = Survey(directory)
    is_manual = _is_manual(directory)
    owned: set[str] = set()
    by_key = names_by_key(names)
    for key in keys_in(names):
        content = _content(directory, key, found)
        owned |= _names_of(content)
        if not selected(key, key_glob):
            continue
        if is_busy(directory, key):
            found.busy_keys.add(key)
        rows = _with_superseded(_rows(directory, key, content, names, by_key.get(key, [])))
        is_busy_key = key in found.busy_keys
        found.rows += [
            _with(row, ("unconfirmed",) * (is_manual and row.waits) + ("busy",) * is_busy_key) for row in rows
        ]
        owned |= {os.path.basename(path) for row in rows for path in files_of(directory, row.stem)}
    _mark_shared(found)
    owners = _owners(names)
    found.loose = [
        each for name in sorted(names - owned) if (each := _loose(directory, name, owners, key_glob)) is not None
    ]
    found.loose += _private(directory)
    return found


def _with(row: EntryRow, problems: tuple[str, ...]) -> EntryRow:
    return replace(row, problems=(*row.problems, *problems)) if problems else row


def _is_manual(directory: str) -> bool:
    try:
        return read_cache_conf(directory).manual_check
    except BrokenConf:
        return False  # no compile uses the directory then


def _mark_shared(found: Survey) -> None:
    """Mark the entries whose weights another entry of any shown key refers to."""
    users: dict[tuple[str, int], int] = {}
    for row in found.rows:
        for place in {(each.file, each.offset) for each in row.weights}:
            users[place] = users.get(place, 0) + 1
    found.rows = [
        replace(row, shares_weights=True) if any(users[each.file, each.offset] > 1 for each in row.weights) else row
        for row in found.rows
    ]


def keys_in(names: Iterable[str]) -> list[str]:
    """Keys with an index, then legacy keys: a bare .om whose name is no entry of another key."""
    indexed = {name.removesuffix(SUFFIX) for name in names if name.endswith(SUFFIX)}
    owners = _owners(names)
    legacy = {
        stem
        for stem in (name.removesuffix(OM) for name in names if name.endswith(OM))
        if owner_of(f"{stem}{OM}", owners) is None
    }
    waiting = {owner for name in names if (owner := owner_of(name, owners)) is not None}
    return sorted(key for key in indexed | legacy | waiting if is_graph_key(key))


def _owners(names: Iterable[str]) -> set[str]:
    """Names that are keys for certain: they have an index, a lock, or an entry with a sidecar."""
    owners = {name.rpartition(".")[0] for name in names if name.endswith((SUFFIX, ".lock"))}
    sidecars = (re.match(FILE_PATTERN, name, re.ASCII) for name in names if name.endswith(SIDECAR))
    return owners | {found["key"] for found in sidecars if found}


def owner_of(name: str, owners: set[str]) -> str | None:
    """The key that an entry's file belongs to by its name, if that key is known."""
    found = re.match(FILE_PATTERN, name, re.ASCII)
    return found["key"] if found and found["key"] in owners else None


def _content(directory: str, key: str, found: Survey) -> IndexContent | None:
    try:
        return read_index(directory, key)
    except (UnreadableIndex, OSError):
        found.broken_indexes.append(key)
        return IndexContent([], [], {})


def _rows(directory: str, key: str, content: IndexContent | None, names: set[str], own: list[str]) -> list[EntryRow]:
    records = [record for record in content.records if record.graph_key == key] if content else []
    seen: set[str] = set()
    rows = []
    for record in records:
        row = _row(directory, key, record)
        if record.om_name in seen:
            row = replace(row, problems=(*row.problems, "duplicate-files"))
        seen.add(record.om_name)
        rows.append(row)
    for record in adoptable(directory, key, content, StatIndex(), hashed=False, names=own):
        rows.append(replace(_row(directory, key, record), adopts=True, problems=("orphan",)))
    bare = f"{key}{OM}"
    if bare in names and bare not in seen:
        state = "shadowed" if content is not None else "legacy"
        rows.append(replace(_row(directory, key, IndexRecord(key, bare, "", {})), problems=(state,)))
    return rows


def _row(directory: str, key: str, record: IndexRecord) -> EntryRow:
    stem = record.stem
    problems = [record.problem.replace("_", "-")] if record.problem else []
    missing = missing_file(directory, record) if not problems else None
    if missing:
        problems.append(missing[0].replace("_", "-"))
    sidecar = None
    try:
        sidecar = read_sidecar(directory, key, stem) if not record.problem else None
    except (InvalidSidecar, OSError):
        problems.append("sidecar-invalid")
    weights: tuple[WeightRange, ...] = ()
    if not problems:
        problems += _damage(directory, record, sidecar)
    if sidecar is not None and not problems:
        weights, problems = _weights(directory, sidecar)
    used = (last_used_ns(directory, stem) or 0) / 1e9
    row = EntryRow(key, stem, used, used, _size(directory, stem), tuple(problems))
    if sidecar is None or not sidecar.combined:
        row = replace(row, made_by=maker_of(os.path.join(directory, record.om_name)))
    return row if sidecar is None else _described(replace(row, weights=weights), sidecar)


def _weights(directory: str, sidecar: Sidecar) -> tuple[tuple[WeightRange, ...], list[str]]:
    """The external weights of an entry with a sidecar, and what is wrong with their files at the first glance.

    Those of other entries stand in their graphs, which are not read here.
    """
    try:
        ranges = tuple(weights_of_sidecar(sidecar))
    except BadWeightRow:
        return (), ["sidecar-invalid"]
    damage = damaged_weight(weight_dir(directory), ranges)
    if damage is None:
        return ranges, []
    reason = damage[0].replace("_", "-")
    return ranges, ["weights-corrupt" if reason == "weights-unsafe" else reason]


def _damage(directory: str, record: IndexRecord, sidecar: Sidecar | None) -> list[str]:
    if sidecar is not None:
        damage = damaged_file(directory, record, sidecar, StatIndex(), hashed=False)
        if damage:
            return [damage[0].replace("_", "-")]
    if not looks_like_om(os.path.join(directory, record.om_name)):
        return ["om-corrupt"]
    if sidecar is None or not sidecar.combined:
        return ["recovered" if record.raw.get("gecli_recovered") else "foreign"]
    return []


def _described(row: EntryRow, sidecar: Sidecar) -> EntryRow:
    by = sidecar.content.get("created_by")
    tool = by if isinstance(by, dict) else {}
    version = str(tool.get("version", ""))
    variables = sidecar.content.get("vars")
    names = variables if isinstance(variables, dict) else {}
    problems = row.problems
    if sidecar.combined and version != __version__:
        problems = (*problems, "stale-toolchain")
    return replace(
        row,
        created_s=_created(sidecar, row.created_s),
        problems=problems,
        waits=sidecar.waits_for_confirmation,
        before_count=len(names.get("before") or ()),
        after_count=len(names.get("after") or ()),
        fingerprint=sidecar.combined.removeprefix("sha256:"),
        made_by=f"{tool.get('tool', row.made_by)} {version}".strip(),
    )


def _created(sidecar: Sidecar, otherwise: float) -> float:
    try:
        text = str(sidecar.content.get("created_utc"))
        return datetime.strptime(text, "%Y-%m-%dT%H:%M:%S.%fZ").replace(tzinfo=UTC).timestamp()
    except ValueError:
        return otherwise


def _with_superseded(rows: list[EntryRow]) -> list[EntryRow]:
    """Mark healthy entries that a newer one of the same key with another fingerprint replaces."""
    return [
        replace(row, problems=(*row.problems, "superseded"))
        if row.fingerprint
        and any(
            other.fingerprint and other.fingerprint != row.fingerprint and other.created_s > row.created_s
            for other in rows
        )
        else row
        for row in rows
    ]


def _size(directory: str, stem: str) -> int:
    found = (_status(path) for path in files_of(directory, stem))
    return sum(status.st_size for status in found if status is not None)


def _status(path: str) -> os.stat_result | None:
    """What a name stands for; None when it vanished since it was listed: others write and collect meanwhile."""
    try:
        return os.lstat(path)
    except OSError:
        return None


def _names_of(content: IndexContent | None) -> set[str]:
    """Files that any index names, whatever its key: a shared index is legal."""
    return {name for record in content.records for name in (record.om_name, record.rdcpkt_name)} if content else set()


def _loose(directory: str, name: str, owners: set[str], key_glob: str | None) -> LooseFile | None:
    path = os.path.join(directory, name)
    if name == PRIVATE or name in ("cache.conf", "weight", "jit") or name.endswith(SUFFIX) or os.path.isdir(path):
        return None
    status = _status(path)
    if status is None:
        return None
    kind, key = "unknown", ""
    if TEMPORARY.fullmatch(name):
        kind = "tmp"
    elif re.match(FILE_PATTERN, name, re.ASCII):
        kind, key = "orphan", owner_of(name, owners) or ""
    elif name.endswith(".lock"):
        kind, key = "lock", name.removesuffix(".lock")
    if key_glob and not selected(key, key_glob):
        return None
    return LooseFile(path, kind, status.st_size, status.st_mtime, key)


def _private(directory: str) -> list[LooseFile]:
    """Files of the stat index, which are a cache of their own and never missed, and what writers left half made."""
    found = []
    for folder in (stat_dir(directory), request_dir(directory), quarantine_dir(directory)):
        try:
            names = sorted(os.listdir(folder))
        except OSError:
            continue
        for name in names:
            is_temporary = TEMPORARY.fullmatch(name) is not None
            path = os.path.join(folder, name)
            status = _status(path) if is_temporary or folder == stat_dir(directory) else None
            if status is not None and not stat.S_ISDIR(status.st_mode):
                kind = "tmp" if is_temporary else "hint"
                found.append(LooseFile(path, kind, status.st_size, status.st_mtime))
    return found


def selected(key: str, glob: str | None) -> bool:
    return glob is None or fnmatch.fnmatchcase(key, glob)


def exists(directory: str, row: EntryRow) -> bool:
    return os.path.exists(entry_path(directory, row.stem, OM))
