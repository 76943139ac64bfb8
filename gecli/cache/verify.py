"""Checking a whole cache directory: every file of every entry is what the cache says it is (cache.md 12.2).

Takes no lock and changes nothing. What others do meanwhile is no fault: whatever looks wrong is looked at again, and
what a compile of a busy key has not finished is left out.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterator
from dataclasses import field

from gecli.cache.candidate import damaged_file, missing_file, om_fault
from gecli.cache.index import SUFFIX, IndexContent, IndexRecord, UnreadableIndex, read_index
from gecli.cache.layout import OM, entry_path
from gecli.cache.lock import is_busy
from gecli.cache.recovery import GRACE_S, adoptable, files_of, names_by_key
from gecli.cache.sidecar import InvalidSidecar, Sidecar, read_sidecar
from gecli.cache.stat_index import StatIndex
from gecli.cache.survey import JIT, Survey, keys_in, selected, survey
from gecli.cache.weight_files import (
    BadWeightRow,
    WeightRange,
    damaged_weight,
    row_fault,
    told_by_names,
    weight_dir,
    weight_files_of,
    weights_of,
)
from gecli.errors import GecliError
from gecli.records import dataclass
from gecli.version import __version__
from gecli.wire.regular_file import io_fault, read_regular

LOCK = ".lock"
FILE_NAME = "cache_file_name"  # in a record of an index
GARBAGE = ("tmp", "orphan")  # kinds of loose files that gc removes


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong. `kind` is a state of `cache ls`, or what is wrong with a file that is no entry's."""

    kind: str
    message: str
    key: str = ""
    entry: str = ""
    path: str = ""

    @property
    def what(self) -> str:
        return self.entry or os.path.basename(self.path) or self.key


@dataclass(slots=True)
class Verification:
    """What was looked at and what was found. `garbage` are files that wait for gc, `busy` the keys in use."""

    directory: str
    fast: bool
    entries: int = 0
    files: int = 0
    size_bytes: int = 0
    problems: list[Problem] = field(default_factory=list)
    garbage: list[str] = field(default_factory=list)
    busy: list[str] = field(default_factory=list)
    weights: list[WeightRange] = field(default_factory=list)  # of all entries
    notes: list[str] = field(default_factory=list)  # what could not be checked, in sentences
    jit: Verification | None = None

    @property
    def layers(self) -> list[Verification]:
        return [self] if self.jit is None else [self, self.jit]

    @property
    def all_problems(self) -> list[Problem]:
        return [each for layer in self.layers for each in layer.problems]


def verify(directory: str, key_glob: str | None = None, *, fast: bool = False) -> Verification:
    """Check every entry of the keys that fit; `fast` reads no file in full. Raises OSError, never for one file.

    The JIT layer is a cache directory inside, with slices that hang together.
    """
    found = _verify(directory, key_glob, fast=fast)
    inside = os.path.join(directory, JIT)
    if os.path.isdir(inside):
        found.jit = _verify(inside, _jit_glob(key_glob), fast=fast)
        _check_slices(found.jit, directory, key_glob)
    for layer, seen in zip(found.layers, survey(directory, key_glob).layers):
        layer.garbage = _garbage(seen)
    return found


def _jit_glob(key_glob: str | None) -> str | None:
    """The key of a version is that of its graph and two numbers."""
    return None if key_glob is None else f"{key_glob}*"


def _check_slices(found: Verification, directory: str, key_glob: str | None) -> None:
    """Count the slices of every graph and check how they hang together."""
    from gecli.cache.jit_verify import slicings_of

    for each in slicings_of(directory, lambda key: selected(key, key_glob), full=not found.fast):
        found.files += len(each.files)
        found.size_bytes += each.size_bytes
        if "foreign" in each.problems:
            found.notes.append(f"the slices of key {each.key} were cut by another tool and were not checked")
        if not each.fault:
            continue
        if each.is_busy:
            found.busy.append(each.key)
        else:
            kind = "io-error" if "io-error" in each.problems else "jit-broken"
            found.problems.append(Problem(kind, each.fault, each.key, path=each.home))


def _verify(directory: str, key_glob: str | None, *, fast: bool) -> Verification:
    found = Verification(directory, fast)
    names = set(os.listdir(directory))
    by_key = names_by_key(names)
    for key in keys_in(names):
        if selected(key, key_glob):
            _check_key(found, key, by_key.get(key, []))
    found.problems += [each for each in _other_files(directory, names) if selected(each.key, key_glob)]
    if key_glob is None:
        found.problems += weight_dir_problems(directory, {each.file for each in found.weights}, fast=fast)
    return found


def entry_problems(directory: str, key: str, record: IndexRecord, *, fast: bool) -> list[Problem]:
    """What is wrong with the entry of an index record; the first fault of each kind of file."""
    stem = record.stem
    path = entry_path(directory, stem, OM)
    if record.problem:
        named = str(record.raw.get(FILE_NAME, ""))[:200]
        message = f"the index names {named!r}, which is no .om that lies directly in the cache directory"
        return [Problem("bad-path", message, key, stem)]
    missing = missing_file(directory, record)
    if missing:
        return [_problem(missing, key, stem)]
    try:
        sidecar = read_sidecar(directory, key, stem)
    except InvalidSidecar as error:
        return [Problem("sidecar-invalid", str(error), key, stem, path)]
    except OSError as error:
        return [Problem("io-error", error.strerror or str(error), key, stem, path)]
    damage = _file_damage(directory, record, sidecar, fast=fast)
    if damage:
        return [_problem(damage, key, stem)]
    damage = _weight_damage(directory, record, sidecar, fast=fast)
    return [_problem(damage, key, stem)] if damage else []


def index_fault(directory: str, key: str) -> str:
    """Why the index of a key cannot be read; empty when it can, or when there is none."""
    try:
        read_index(directory, key)
    except (UnreadableIndex, OSError) as error:
        return getattr(error, "strerror", None) or str(error)
    return ""


def records_of(directory: str, key: str) -> list[IndexRecord]:
    """The records that a look-up would try, a legacy `{key}.om` among them; none when the index is unreadable.

    Members that gecli does not know are left out, because an index of another tool may hold anything.
    """
    try:
        content = read_index(directory, key)
    except (UnreadableIndex, OSError):
        return []
    if content is None:
        legacy = os.path.lexists(entry_path(directory, key, OM))
        return [IndexRecord(key, f"{key}{OM}", "", {})] if legacy else []
    return [_bare(record) for record in content.records if record.graph_key == key]


def _bare(record: IndexRecord) -> IndexRecord:
    named = record.raw.get(FILE_NAME)
    return record._replace(raw={FILE_NAME: named} if record.problem else {})


def _check_key(found: Verification, key: str, names: list[str]) -> None:
    directory = found.directory
    content: IndexContent | None = None
    try:
        content = read_index(directory, key)
    except (UnreadableIndex, OSError) as error:
        kind = "index-corrupt" if isinstance(error, UnreadableIndex) else "io-error"
        why = getattr(error, "strerror", None) or str(error)
        found.problems.append(Problem(kind, why, key, path=os.path.join(directory, key + SUFFIX)))
    if content is not None and content.malformed:
        count = len(content.malformed)
        message = f"{count} {'record is' if count == 1 else 'records are'} malformed"
        found.problems.append(Problem("index-entry-invalid", message, key, path=os.path.join(directory, key + SUFFIX)))
    content = None  # it is read again
    seen: set[str] = set()
    suspects: list[tuple[IndexRecord, list[Problem]]] = []
    for record in records_of(directory, key):
        problems = entry_problems(directory, key, record, fast=found.fast)
        if record.om_name in seen and not record.problem:
            problems = [Problem("duplicate-files", "two records of the index name its files", key, record.stem)]
        else:
            _count(found, record)
        seen.add(record.om_name)
        if problems:
            suspects.append((record, problems))
    if suspects:
        now = records_of(directory, key)  # an entry that gc took away meanwhile was no problem
        found.problems += [each for record, problems in suspects if record in now for each in problems]
    _check_orphans(found, key, names)


def _check_orphans(found: Verification, key: str, names: list[str]) -> None:
    """Complete entries that the index does not name, unless a compile is just going to do so."""
    if not _orphans(found.directory, key, names):
        return
    if is_busy(found.directory, key):
        found.busy.append(key)
        return
    for record in _orphans(found.directory, key):
        message = "it is complete, and the index does not name it; the next compile of its key does"
        path = entry_path(found.directory, record.stem, OM)
        found.problems.append(Problem("orphan", message, key, record.stem, path))


def _orphans(directory: str, key: str, names: list[str] | None = None) -> list[IndexRecord]:
    try:
        content = read_index(directory, key)
        return adoptable(directory, key, content, StatIndex(), hashed=False, names=names)
    except (UnreadableIndex, OSError):
        return []  # told by the index's own problem; rebuilding finds them


def _file_damage(directory: str, record: IndexRecord, sidecar: Sidecar | None, *, fast: bool) -> tuple[str, str] | None:
    if sidecar is not None:
        damage = damaged_file(directory, record, sidecar, StatIndex(trusting=False), hashed=not fast)
        if damage:
            return damage
    om = os.path.join(directory, record.om_name)
    fault = om_fault(om)
    if fault:
        return fault
    if fast:
        return None
    return _foreign_damage(directory, record) if sidecar is None else _swapped(om, sidecar)


def _swapped(om: str, sidecar: Sidecar) -> tuple[str, str] | None:
    """An OM that says itself that it was compiled from something else than the sidecar beside it says.

    Digests do not show that when both were changed. Asked only of this version's entries: others may digest otherwise,
    and versions of slices have another fingerprint.
    """
    from gecli.artifacts.om_file import read_om
    from gecli.cache.fingerprint import source_of

    made, by = sidecar.fingerprint, sidecar.content.get("created_by")
    is_ours = isinstance(by, dict) and by.get("version") == __version__
    if not (sidecar.combined and is_ours) or sidecar.content.get("guard") is not None:
        return None
    try:
        told = read_om(om).model().root.attrs.get("_gecli_fp")
    except (GecliError, OSError):
        return None  # it is what was written
    graph, weights, options = (str(made.get(name)) for name in ("graph", "weights", "options"))
    wanted = source_of(graph, weights, options, __version__)
    return None if told == wanted else ("om_corrupt", "it was compiled from something else than its .gecli.json says")


def _foreign_damage(directory: str, record: IndexRecord) -> tuple[str, str] | None:
    """Without a sidecar the files themselves must be sound: nothing tells what they should be."""
    from gecli.artifacts.om_file import read_om
    from gecli.artifacts.rdcpkt import read_rdcpkt

    try:
        om = read_om(os.path.join(directory, record.om_name))
        om.require_runnable()
        om.model().require_sound()
        fault = om.verify_checksum()
    except (GecliError, OSError) as error:
        return "io_error" if io_fault(error) else "om_corrupt", str(error)
    if fault is not None:
        return "om_corrupt", fault.message
    if record.rdcpkt_name:
        try:
            read_rdcpkt(os.path.join(directory, record.rdcpkt_name))
        except GecliError as error:
            return "io_error" if io_fault(error) else "rdcpkt_corrupt", error.first.message
    return None


def _weight_damage(
    directory: str, record: IndexRecord, sidecar: Sidecar | None, *, fast: bool
) -> tuple[str, str] | None:
    if fast and sidecar is None:
        return None  # its weights stand in its graph only
    try:
        ranges = weights_of(directory, record.stem, sidecar)
        if sidecar is None:
            ranges = told_by_names(ranges)
        damage = damaged_weight(weight_dir(directory), ranges, StatIndex(trusting=False), hashed=not fast)
        if damage is not None or sidecar is None or fast:
            return damage
        fault = row_fault(directory, record.stem, sidecar)
        return ("sidecar_invalid", fault) if fault else None
    except BadWeightRow as error:
        return "sidecar_invalid" if sidecar is not None else "om_corrupt", str(error)
    except (GecliError, OSError) as error:
        return "io_error" if io_fault(error) else "om_corrupt", str(error)


def _count(found: Verification, record: IndexRecord) -> None:
    """Count the files of an entry; a weight file that entries share once."""
    found.entries += 1
    paths = files_of(found.directory, record.stem)
    try:
        sidecar = read_sidecar(found.directory, record.graph_key, record.stem)
        ranges = weights_of(found.directory, record.stem, sidecar) if sidecar is not None else []
        known = {each.file for each in found.weights}
        names = [name for name in weight_files_of(ranges) if name not in known]
        paths += [os.path.join(weight_dir(found.directory), name) for name in names]
        found.weights += ranges
    except (InvalidSidecar, BadWeightRow, GecliError, OSError):
        pass  # a problem of the entry
    for path in paths:
        try:
            size = os.stat(path).st_size
        except OSError:
            continue
        found.files += 1
        found.size_bytes += size


def weight_dir_problems(directory: str, referenced: set[str], *, fast: bool) -> list[Problem]:
    """What is wrong with `meta.json`, and with weight files that no entry refers to but the next compile would use."""
    from gecli.artifacts.weight_meta import MAX_META_BYTES, parse_meta
    from gecli.planning.weight_names import META_NAME, is_split_name, split_name

    folder = weight_dir(directory)
    path = os.path.join(folder, META_NAME)
    try:
        names = sorted(os.listdir(folder))
        meta = parse_meta(read_regular(path, MAX_META_BYTES)) if META_NAME in names else None
    except OSError as error:
        kind = "io-error" if io_fault(error) else "meta-invalid"
        is_absent = isinstance(error, FileNotFoundError)
        return [] if is_absent else [Problem(kind, error.strerror or str(error), path=path)]
    problems = []
    if META_NAME in names and meta is None:
        problems.append(Problem("meta-invalid", "it is not the JSON of a weight directory", path=path))
    gone = sorted(name for name in map(os.path.basename, meta.files.values()) if name not in names) if meta else []
    if gone:
        problems.append(Problem("meta-invalid", f"it names files that are missing: {', '.join(gone[:3])}", path=path))
    for name in names if not fast else ():
        if is_split_name(name) and name not in referenced:
            file = os.path.join(folder, name)
            try:
                is_right = split_name(StatIndex(trusting=False).sha256(file)) == name
            except FileNotFoundError:
                continue
            except OSError as error:
                if why := io_fault(error):
                    problems.append(Problem("io-error", why, path=file))
                    continue
                is_right = False
            if not is_right:
                problems.append(Problem("weights-corrupt", "its content is not that of its name", path=file))
    return problems


def _other_files(directory: str, names: set[str]) -> Iterator[Problem]:
    """Locks that cannot be locked, and settings that cannot be used."""
    from gecli.cache.cache_conf import NAME, BrokenConf, read_cache_conf

    for name in sorted(name for name in names if name.endswith(LOCK)):
        why = _why_no_lock(os.path.join(directory, name))
        if why:
            yield Problem("lock-invalid", why, name.removesuffix(LOCK), path=os.path.join(directory, name))
    path = os.path.join(directory, NAME)
    try:
        for each in read_cache_conf(directory).warnings:
            yield Problem("conf-invalid", f"{each.message}; {each.do}", path=path)
    except BrokenConf as error:
        yield Problem("conf-invalid", str(error), path=path)


def _why_no_lock(path: str) -> str:
    try:
        mode = os.lstat(path).st_mode
    except FileNotFoundError:
        return ""
    except OSError as error:
        return error.strerror or str(error)
    if not stat.S_ISREG(mode):
        return "it is no regular file, so nobody can lock it"
    return "" if os.access(path, os.R_OK) else "it cannot be opened, so this user cannot lock the key"


def _garbage(found: Survey) -> list[str]:
    """Files without an entry, and versions that no slice lists, that are old enough for gc."""
    old = time.time() - GRACE_S
    names = [
        os.path.relpath(each.path, found.directory)
        for each in found.loose
        if each.kind in GARBAGE and each.changed_s < old
    ]
    orphans = (row for row in found.rows if "jit-orphan" in row.problems and row.used_s < old)
    return [*names, *(row.stem if row.is_slicing else f"{row.stem}{OM}" for row in orphans)]


def _problem(damage: tuple[str, str], key: str, stem: str) -> Problem:
    reason, evidence = damage
    return Problem(reason.replace("_", "-"), evidence, key, stem)
