"""Taking the entries of an archive into a cache directory, each under the lock of its key (cache.md 12.5).

A file gets its name once its content has the digest of the archive's list; the index comes last. An entry that is
there and whole stays; one that is there and damaged goes to the quarantine.

Many entries of one key cost no more for each than few: the directory is listed once, an index written once for many.
"""

from __future__ import annotations

import fnmatch
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import groupby, islice
from typing import NamedTuple

from gecli.artifacts.shared_files import SHARED_MODE, make_folder
from gecli.cache.archive import WEIGHTS, Archive, ArchivedEntry, ArchivedFile, DamagedArchive
from gecli.cache.cache_conf import CacheConf
from gecli.cache.candidate import OM_MAGIC
from gecli.cache.index import IndexRecord, new_record
from gecli.cache.layout import ENTRY_SUFFIXES, OM, RDCPKT, SIDECAR, entry_path, free_stem
from gecli.cache.lock import KeyLock, OnWait
from gecli.cache.model_cache import CacheDir, remember_request
from gecli.cache.present_entries import PresentEntries
from gecli.cache.recovery import append_records, names_by_key, recover, set_aside, set_aside_entry
from gecli.cache.sidecar import CONFIRMED, InvalidSidecar, Sidecar, parse_sidecar
from gecli.cache.stat_index import StatIndex
from gecli.cache.store import publish, seal, sync_directory, temporary
from gecli.cache.verify import entry_problems
from gecli.cache.weight_files import BadWeightRow, damaged_weight, fault_of_rows, weight_dir, weights_of_sidecar

AT_ONCE = 500  # entries whose records are written together


class Imported(NamedTuple):
    """What became of an entry. `state`: imported, present, or refused with `why`; `stem` is its name here.

    `kind`: entry, or of the JIT layer version, or slices, the graphs and lists of all slices of a graph.
    """

    entry: ArchivedEntry
    state: str
    stem: str = ""
    why: str = ""
    kind: str = "entry"


def import_entries(
    directory: str,
    archive: Archive,
    *,
    key_glob: str | None = None,
    wait_s: float,
    mode: int,
    style: str = "seed",
    on_wait: OnWait | None = None,
) -> Iterator[Imported]:
    """Import the entries whose keys fit, in the order of the archive, then slices with their compiled versions.

    Raises DamagedArchive, LockTimeout, LockUnavailable and OSError; what was imported before stays.
    """
    importer = EntryImporter(directory, archive, mode, style)
    slices = [each for each in archive.manifest.slices if key_glob is None or fnmatch.fnmatchcase(each.key, key_glob)]
    if slices:
        from gecli.cache.import_slices import SlicesImporter

        of_slices = SlicesImporter(directory, archive, mode, style, wait_s, on_wait)
        for each in slices:
            of_slices.check(each)
    chosen = [each for each in archive.manifest.entries if key_glob is None or fnmatch.fnmatchcase(each.key, key_glob)]
    for key, entries in _of_one_key(chosen):
        taken: list[Imported] = []
        try:
            with KeyLock(directory, key, timeout_s=wait_s, on_wait=on_wait, shared=mode == SHARED_MODE):
                importer.take(key, entries, taken)
        except (DamagedArchive, OSError):
            yield from taken
            raise
        yield from taken
    for each in slices:
        yield from of_slices.take(each)


def _of_one_key(entries: Iterable[ArchivedEntry]) -> Iterator[tuple[str, list[ArchivedEntry]]]:
    """Neighbours of one key, at most so many that nobody waits long for its lock."""
    for key, neighbours in groupby(entries, key=lambda each: each.key):
        while some := list(islice(neighbours, AT_ONCE)):
            yield key, some


class EntryImporter:
    """Imports entries into one directory; `folder` is in front of their names in the archive."""

    def __init__(self, directory: str, archive: Archive, mode: int, style: str, folder: str = "") -> None:
        self.folder = folder
        self.directory = directory
        self.archive = archive
        self.mode = mode
        self.style = style
        self.weights = {file.name: file for file in archive.manifest.weights}
        self._names: dict[str, list[str]] | None = None
        self._placed: set[str] = set()
        self._other_content: set[str] = set()

    def take(self, key: str, entries: Iterable[ArchivedEntry], taken: list[Imported]) -> None:
        """Import entries of a key, whose lock is held; `taken` gets those that came to an end, whatever happens then.

        The index is written once, behind the files of all.
        """
        if self._names is None:
            self._names = names_by_key(set(os.listdir(self.directory)))
        recover(self.directory, key, StatIndex(trusting=False), self.mode, self._names.get(key, []))
        present = PresentEntries(self.directory, key)
        records: list[IndexRecord] = []
        try:
            for entry in entries:
                taken.append(self._taken(entry, present, records))
        finally:
            if records:
                sync_directory(self.directory)
                append_records(self.directory, key, records, self.mode)

    def _taken(self, entry: ArchivedEntry, present: PresentEntries, records: list[IndexRecord]) -> Imported:
        self._require_om(entry)
        sidecar = self.sidecar_of(entry)
        for record in present.same_as(entry, sidecar):
            problems = entry_problems(self.directory, entry.key, record, fast=False)
            if not problems:
                return Imported(entry, "present", record.stem)
            if problems[0].kind == "io-error":
                continue  # it may be whole
            if record.stem != entry.key:  # a bare {key}.om is not ours to move
                set_aside_entry(self.directory, entry.key, record.stem, self.mode)
                present.remove(record.stem)
        for name in entry.weights:
            self._place_weight(self.weights[name])
        conflict = self._weight_conflict(entry, sidecar)
        if conflict:
            return Imported(entry, "refused", why=conflict)
        stem = self._store(entry, sidecar)
        records.append(new_record(entry.key, stem, has_rdcpkt=RDCPKT in entry.files))
        present.add(records[-1], sidecar, entry)
        return Imported(entry, "imported", stem)

    def _require_om(self, entry: ArchivedEntry) -> None:
        om = entry.files[OM]
        head = next(iter(self.archive.blocks(om, self.folder)), b"")
        if not head.startswith(OM_MAGIC):
            raise DamagedArchive(f"{om.name} is no OM file")

    def sidecar_of(self, entry: ArchivedEntry) -> Sidecar | None:
        """The sidecar in the archive, which must tell of the files beside it."""
        file = entry.files.get(SIDECAR)
        if file is None:
            return None
        try:
            sidecar = parse_sidecar(self.archive.content(file, self.folder), entry.key, entry.stem)
        except InvalidSidecar as error:
            raise DamagedArchive(f"{file.name}: {error}") from error
        if sidecar is None:
            return None  # of another schema: the entry counts as another tool's
        for kind in ("om", "rdcpkt"):
            named, held = sidecar.file_facts(kind), entry.files.get(f".{kind}")
            if named != (None if held is None else (held.size_bytes, held.sha256)):
                raise DamagedArchive(f"{file.name} tells of another .{kind}")
        try:
            needed = {each.file for each in weights_of_sidecar(sidecar)}
            fault = fault_of_rows(sidecar, lambda: self.archive.model(entry.files[OM], self.folder))
        except BadWeightRow as error:
            raise DamagedArchive(f"{file.name}: {error}") from error
        if needed != set(entry.weights):
            raise DamagedArchive(f"{file.name} tells of other weight files")
        if fault:
            raise DamagedArchive(f"{file.name}: {fault}")
        return sidecar

    def _store(self, entry: ArchivedEntry, sidecar: Sidecar | None) -> str:
        """Write the files of an entry; what its name is here."""
        stem = self._free_stem(entry)
        self._publish(entry.files[OM], entry_path(self.directory, stem, OM))
        if RDCPKT in entry.files:
            self._publish(entry.files[RDCPKT], entry_path(self.directory, stem, RDCPKT))
        if sidecar is not None and sidecar.combined:  # one without that holds a confirmation only
            sidecar.content["entry"] = stem
            if sidecar.is_confirmed:
                sidecar.content[CONFIRMED] = False  # nobody has looked at it here
            with temporary(self.directory, stem, SIDECAR, self.mode) as (stream, path):
                stream.write(sidecar.text().encode("utf-8", "surrogateescape"))
                seal(stream)
                publish(path, entry_path(self.directory, stem, SIDECAR))
        cache = CacheDir(self.directory, CacheConf(shared=self.mode == SHARED_MODE))
        for request in sidecar.requests if sidecar is not None else ():
            remember_request(cache, entry.key, stem, request)
        return stem

    def _free_stem(self, entry: ArchivedEntry) -> str:
        """The name that the entry had, unless it is taken here, or is that of a bare model."""
        names = [entry_path(self.directory, entry.stem, suffix) for suffix in ENTRY_SUFFIXES]
        if entry.stem == entry.key or any(map(os.path.lexists, names)):
            return free_stem(self.directory, entry.key, self.style)
        return entry.stem

    def _publish(self, file: ArchivedFile, target: str, member_folder: str = "") -> None:
        with self._written(file, target, member_folder) as path:
            publish(path, target)

    @contextmanager
    def _written(self, file: ArchivedFile, target: str, member_folder: str = "") -> Iterator[str]:
        """A temporary file beside the target with the content of a member, its digest checked."""
        folder, name = os.path.split(target)
        stem, suffix = os.path.splitext(name)
        with temporary(folder, stem, suffix, self.mode) as (stream, path):
            for block in self.archive.blocks(file, self.folder + member_folder):
                stream.write(block)
            seal(stream)
            yield path

    # ------------------------------------------------------------------ weights

    def _place_weight(self, file: ArchivedFile) -> None:
        """Make a weight file be there: one with the same content stays, one of a single weight is replaced."""
        if file.name in self._placed:
            return
        folder = weight_dir(self.directory)
        make_folder(folder, self.mode)
        target = os.path.join(folder, file.name)
        if not os.path.lexists(target):
            self._publish(file, target, WEIGHTS)
        elif _has_content(target, file):
            os.utime(target)
        elif not file.name.endswith("_weight_combined"):
            # Its name is its digest, so whatever stands there is damaged.
            set_aside(self.directory, [target], self.mode)
            self._publish(file, target, WEIGHTS)
        else:
            self._other_content.add(file.name)
        self._placed.add(file.name)

    def _weight_conflict(self, entry: ArchivedEntry, sidecar: Sidecar | None) -> str:
        """Why an entry cannot use the weight files that are here; "" when it can.

        A combined file of the same name may be another one. Models that are here would break if it were replaced.
        """
        others = [name for name in entry.weights if name in self._other_content]
        if others and sidecar is not None:
            damage = damaged_weight(weight_dir(self.directory), weights_of_sidecar(sidecar), hashed=True)
            others = [] if damage is None else [damage[1]]
        return f"a weight file of the same name is here, with other content: {others[0]}" if others else ""


def _has_content(path: str, file: ArchivedFile) -> bool:
    try:
        return (
            os.path.isfile(path)
            and os.path.getsize(path) == file.size_bytes
            and StatIndex().sha256(path) == file.sha256
        )
    except OSError:
        return False
