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
from datetime import datetime
from typing import TYPE_CHECKING

from gecli.cache.cache_conf import BrokenConf, read_cache_conf
from gecli.cache.candidate import damaged_file, maker_of, missing_file, om_fault
from gecli.cache.events import stats_dir
from gecli.cache.graph_key import is_graph_key
from gecli.cache.index import SUFFIX, IndexContent, IndexRecord, NamedFiles, UnreadableIndex, read_index
from gecli.cache.layout import (
    ENTRY_SUFFIXES,
    FILE_PATTERN,
    OM,
    PRIVATE,
    SIDECAR,
    created_of,
    entry_path,
    quarantine_dir,
    request_dir,
    stat_dir,
)
from gecli.cache.lock import is_busy
from gecli.cache.recovery import adoptable, names_by_key
from gecli.cache.sidecar import InvalidSidecar, Sidecar, last_used_ns, read_sidecar
from gecli.cache.stat_index import StatIndex
from gecli.cache.weight_files import BadWeightRow, WeightRange, damaged_weight, weight_dir, weights_of_sidecar
from gecli.records import dataclass
from gecli.version import __version__

if TYPE_CHECKING:
    from gecli.cache.jit_survey import Slicing

# The worst first: an entry shows the first of its problems in this order.
STATES = (
    "index-corrupt", "io-error", "bad-path", "om-missing", "om-corrupt", "rdcpkt-missing", "rdcpkt-corrupt",
    "sidecar-invalid", "weights-missing", "weights-corrupt", "duplicate-files", "orphan", "shadowed", "superseded",
    "jit-broken", "jit-orphan", "jit-stale", "stale-toolchain", "unconfirmed", "recovered", "foreign", "legacy", "busy",
    "ok",
)  # fmt: skip
BROKEN = frozenset(STATES[: STATES.index("orphan")]) - {"index-corrupt", "io-error", "duplicate-files"}
JIT = "jit"
QUARANTINE = "quarantine"
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
    graph: str = ""  # in the JIT layer: the key of the graph that it is a version of
    is_slicing: bool = False  # the slices of that graph, not an entry

    @property
    def weights_bytes(self) -> int:
        return sum(length for _, _, length in {(each.file, each.offset, each.length) for each in self.weights})

    @property
    def state(self) -> str:
        """The worst problem, or `ok`."""
        return min(self.problems, key=STATES.index, default="ok")


@dataclass(frozen=True, slots=True)
class LooseFile:
    """A file without an entry. `kind`: orphan, tmp, hint, lock, quarantine, unknown."""

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
    unreadable: dict[str, str] = field(default_factory=dict)  # those of them that may be whole, and why
    reclaimable_bytes: int = 0  # filled in by who asks gc
    unreferenced_bytes: int = 0  # of weight files that no entry refers to; filled in by who looks for them
    named: NamedFiles = field(default_factory=NamedFiles)  # of all keys
    jit: Survey | None = None  # the same of the JIT layer, which is a cache directory inside
    unlisted: str = ""  # why nobody knows which slices the JIT layer has
    slicings: dict[str, Slicing] = field(default_factory=dict)  # of the JIT layer, whatever keys were asked for
    key_glob: str | None = None

    @property
    def layers(self) -> list[Survey]:
        return [self] if self.jit is None else [self, self.jit]

    @property
    def all_rows(self) -> list[EntryRow]:
        return self.rows + (self.jit.rows if self.jit is not None else [])

    @property
    def total_bytes(self) -> int:
        return sum(row.size_bytes for row in self.rows)

    @property
    def quarantined(self) -> list[LooseFile]:
        """What was set aside in any layer."""
        return [each for layer in self.layers for each in layer.loose if each.kind == QUARANTINE]

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
    from gecli.cache.jit_survey import slicings, temporary_trees, why_unlisted
    from gecli.cache.quarantine import tree_bytes

    found.slicings, found.key_glob, found.unlisted = slicings(directory), key_glob, why_unlisted(directory)
    graphs = _graphs_of(found)
    found.busy_keys |= {graph for graph in set(graphs.values()) if graph and is_busy(found.directory, graph)}
    rows = [_of_graph(row, graphs[row.key], found) for row in found.rows]
    rows += [_row_of_slicing(each, found.rows) for each in found.slicings.values()]
    found.rows = [row for row in rows if selected(row.key, key_glob) or selected(row.graph, key_glob)]
    found.loose = [each for each in found.loose if selected(each.key, key_glob)]
    for each in found.slicings.values():
        if selected(each.key, key_glob):
            found.loose += [LooseFile(path, "tmp", size, when, each.key) for path, when, size in each.temporaries]
            found.loose += [
                LooseFile(os.path.join(each.home, name), "unknown", 0, 0.0, each.key) for name in each.strays
            ]
    found.loose += [LooseFile(path, "tmp", tree_bytes(path), when) for path, when in temporary_trees(directory)]
    found.broken_indexes = [key for key in found.broken_indexes if selected(key, key_glob)]
    return found


def _graphs_of(found: Survey) -> dict[str, str]:
    """The graph key of every version: that of the slices that list it, else the one in its name."""
    from gecli.cache.jit_survey import graph_of_version

    locks = [each.key for each in found.loose if each.kind == "lock"]
    known = sorted({*found.slicings, *locks})
    listing = {version: key for key, each in found.slicings.items() for version in each.listed}
    return {row.key: listing.get(row.key) or graph_of_version(row.key, known) for row in found.rows}


def _of_graph(row: EntryRow, graph: str, found: Survey) -> EntryRow:
    each = found.slicings.get(graph)
    problems: tuple[str, ...] = ("busy",) if graph in found.busy_keys else ()
    if found.unlisted or (each is not None and "io-error" in each.problems):
        problems = ("io-error", *problems)  # nobody knows which slice lists it
    elif each is None or row.key not in each.listed:
        # What a damaged list said of the version is not known: it goes with that list.
        is_lost = each is not None and "jit-broken" in each.problems
        problems = ("jit-broken" if is_lost else "jit-orphan", *problems)
    elif row.key in each.unfit:
        problems = ("jit-stale", *problems)
    return _with(replace(row, layer="jit", graph=graph), problems)


def _row_of_slicing(each: Slicing, rows: Iterable[EntryRow]) -> EntryRow:
    """The slices of a graph as a row; they are used when their versions are."""
    from gecli.cache.jit_files import HIERARCHY

    listed = each.listed
    used = max([each.changed_s, *(row.used_s for row in rows if row.key in listed)])
    made_by = "ge" if "foreign" in each.problems else "gecli"
    return EntryRow(
        each.key,
        os.path.join(HIERARCHY, each.key),
        each.created_s,
        used,
        each.size_bytes,
        (*each.problems, *("busy",) * each.is_busy),
        fingerprint="" if each.facts is None else each.facts.graph.removeprefix("sha256:"),
        made_by=made_by,
        layer=JIT,
        graph=each.key,
        is_slicing=True,
    )


def _survey(directory: str, key_glob: str | None) -> Survey:
    names = set(os.listdir(directory))
    found = Survey(directory, key_glob=key_glob)
    is_manual = _is_manual(directory)
    owned: set[str] = set()
    by_key = names_by_key(names)
    for key in keys_in(names):
        content = _content(directory, key, found)
        owned |= _names_of(content)
        if content is not None:
            found.named.add(content)
        if not selected(key, key_glob):
            continue
        if is_busy(directory, key):
            found.busy_keys.add(key)
        rows = _with_superseded(_rows(directory, key, content, names, by_key.get(key, [])))
        if key in found.unreadable:  # it may name them
            rows = [replace(row, adopts=False, problems=("io-error",)) for row in rows]
        is_busy_key = key in found.busy_keys
        found.rows += [
            _with(row, ("unconfirmed",) * (is_manual and row.waits) + ("busy",) * is_busy_key) for row in rows
        ]
        owned |= {row.stem + suffix for row in rows for suffix in ENTRY_SUFFIXES}
    _mark_shared(found)
    owners = _owners(names)
    found.loose = [
        each for name in sorted(names - owned) if (each := _loose(directory, name, owners, key_glob)) is not None
    ]
    found.loose += _private(directory)
    return found


def _with(row: EntryRow, problems: tuple[str, ...]) -> EntryRow:
    more = tuple(each for each in problems if each not in row.problems)
    return replace(row, problems=(*row.problems, *more)) if more else row


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
    except UnreadableIndex:
        found.broken_indexes.append(key)
    except OSError as error:
        found.broken_indexes.append(key)
        found.unreadable[key] = error.strerror or str(error)
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
        found = _row(directory, key, IndexRecord(key, bare, "", {}))
        damage = tuple(each for each in found.problems if each == "om-corrupt" and content is None)
        rows.append(replace(found, problems=(*damage, "shadowed" if content is not None else "legacy")))
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
    except (InvalidSidecar, OSError) as error:
        problems.append("sidecar-invalid" if isinstance(error, InvalidSidecar) else "io-error")
    weights: tuple[WeightRange, ...] = ()
    if not problems:
        problems += _damage(directory, record, sidecar)
    if sidecar is not None and not problems:
        weights, problems = _weights(directory, sidecar)
    used = (last_used_ns(directory, stem) or 0) / 1e9
    named = created_of(stem)
    row = EntryRow(key, stem, used if named is None else named, used, _size(directory, stem), tuple(problems))
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
    fault = om_fault(os.path.join(directory, record.om_name))
    if fault:
        return [fault[0].replace("_", "-")]
    if sidecar is None or not sidecar.combined:
        # An OM of gecli says what it was compiled from: a look-up takes it for that, whatever `foreign_entries` is.
        is_ours = maker_of(os.path.join(directory, record.om_name)) == "gecli"
        return ["recovered"] * (is_ours or bool(record.raw.get("gecli_recovered"))) + ["foreign"] * (not is_ours)
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
        when = datetime.fromisoformat(text)
    except ValueError:
        return otherwise
    return otherwise if when.tzinfo is None else when.timestamp()


def _with_superseded(rows: list[EntryRow]) -> list[EntryRow]:
    """Mark healthy entries that a newer one of the same key with another fingerprint replaces."""
    newest: dict[str, float] = {}
    for row in rows:
        if row.fingerprint:
            newest[row.fingerprint] = max(row.created_s, newest.get(row.fingerprint, row.created_s))
    latest = sorted(newest, key=lambda fingerprint: newest[fingerprint])[-2:]  # the last one that is another's decides
    return [
        _with(row, ("superseded",))
        if row.fingerprint and any(each != row.fingerprint and newest[each] > row.created_s for each in latest)
        else row
        for row in rows
    ]


def _size(directory: str, stem: str) -> int:
    found = (_status(entry_path(directory, stem, suffix)) for suffix in ENTRY_SUFFIXES)
    return sum(status.st_size for status in found if status is not None)


def _status(path: str) -> os.stat_result | None:
    """What a name stands for; None when it vanished since it was listed: others write and collect meanwhile."""
    try:
        return os.lstat(path)
    except OSError:
        return None


def _names_of(content: IndexContent | None) -> set[str]:
    """Files of entries that any index names, whatever its key: a shared index is legal."""
    records = content.records if content else []
    return {name for record in records for name in (*record.file_names, f"{record.stem}{SIDECAR}")}


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
    """Hints, which are a cache of their own and never missed, what writers left half made, and what was set aside."""
    from gecli.cache.quarantine import quarantined

    found = []
    hints = (stat_dir(directory), request_dir(directory))
    for folder in (*hints, quarantine_dir(directory), stats_dir(directory)):
        try:
            names = sorted(os.listdir(folder))
        except OSError:
            continue
        for name in names:
            is_temporary = TEMPORARY.fullmatch(name) is not None
            path = os.path.join(folder, name)
            status = _status(path) if is_temporary or folder in hints else None
            if status is not None and not stat.S_ISDIR(status.st_mode):
                kind = "tmp" if is_temporary else "hint"
                found.append(LooseFile(path, kind, status.st_size, status.st_mtime))
    found += [LooseFile(each.path, QUARANTINE, each.size_bytes, each.since_s) for each in quarantined(directory)]
    return found


def selected(key: str, glob: str | None) -> bool:
    return glob is None or fnmatch.fnmatchcase(key, glob)
