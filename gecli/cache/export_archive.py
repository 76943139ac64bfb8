"""Writing entries of a cache directory into an archive (cache.md 12.5). Takes no lock: entries are immutable."""

from __future__ import annotations

import errno
import hashlib
import io
import os
from collections.abc import Iterable, Mapping
from typing import BinaryIO, NamedTuple

from gecli.cache.archive import (
    MANIFEST,
    WEIGHTS,
    ArchivedEntry,
    ArchivedFile,
    Manifest,
    add,
    manifest_text,
    writing,
)
from gecli.cache.index import IndexRecord
from gecli.cache.layout import OM, RDCPKT, SIDECAR
from gecli.cache.sidecar import read_sidecar
from gecli.cache.stat_index import StatIndex
from gecli.cache.survey import JIT
from gecli.cache.verify import Problem, entry_problems, index_fault, records_of
from gecli.cache.weight_files import weight_dir, weight_files_of, weights_of
from gecli.errors import GecliError
from gecli.wire.regular_file import open_regular


class ExportPlan(NamedTuple):
    """What is going to be written, from which files or texts by member name, and the damaged entries that are not."""

    manifest: Manifest
    paths: dict[str, str]
    left_out: tuple[Problem, ...] = ()
    texts: Mapping[str, bytes] = {}


def plan_export(directory: str, keys: Iterable[str], stem: str = "") -> ExportPlan:
    """Read and check every entry of the keys, or the one that is named, with its weights. Raises OSError.

    The slices that `--jit` made of the graph of a key go along, with their compiled versions.
    """
    planner = EntryPlanner(directory)
    slices = None
    if not stem and os.path.isdir(os.path.join(directory, JIT)):
        from gecli.cache.export_slices import SlicesPlanner

        slices = SlicesPlanner(directory)
    for key in keys:
        if slices is not None:
            slices.add(key)
        fault = index_fault(directory, key)
        if fault:
            planner.left_out.append(Problem("index-corrupt", fault, key, path=f"{key}.idx"))
        seen: set[str] = set()
        for record in records_of(directory, key):
            if (not stem or record.stem == stem) and record.stem not in seen:
                seen.add(record.stem)
                planner.add(key, record)
    weights = tuple(planner.weights[name] for name in sorted(planner.weights))
    manifest, left_out = Manifest(tuple(planner.entries), weights), tuple(planner.left_out)
    if slices is None:
        return ExportPlan(manifest, planner.paths, left_out)
    manifest = manifest._replace(slices=tuple(slices.slices))
    paths = {**planner.paths, **slices.paths}
    return ExportPlan(manifest, paths, (*left_out, *slices.left_out), slices.texts)


class EntryPlanner:
    """Entries of one directory; `folder` is in front of their names in the archive."""

    def __init__(self, directory: str, folder: str = "") -> None:
        self.folder = folder
        self.directory = directory
        self.stats = StatIndex(trusting=False)
        self.entries: list[ArchivedEntry] = []
        self.weights: dict[str, ArchivedFile] = {}
        self.paths: dict[str, str] = {}
        self.left_out: list[Problem] = []

    def add(self, key: str, record: IndexRecord) -> bool:
        """Take an entry; False when it is damaged."""
        problems = entry_problems(self.directory, key, record, fast=False)
        if problems:
            self.left_out.append(problems[0])
            return False
        try:
            self.entries.append(self._archived(key, record))
        except (GecliError, FileNotFoundError) as error:  # removed since it was checked
            self.left_out.append(Problem("om-missing", str(error), key, record.stem))
            return False
        return True

    def _archived(self, key: str, record: IndexRecord) -> ArchivedEntry:
        sidecar = read_sidecar(self.directory, key, record.stem)
        names = {OM: record.om_name, RDCPKT: record.rdcpkt_name}
        if sidecar is not None:
            names[SIDECAR] = record.stem + SIDECAR
        files = {
            # The .rdcpkt of another tool's entry may have a name of its own.
            suffix: self._described(os.path.join(self.directory, name), record.stem + suffix)
            for suffix, name in names.items()
            if name
        }
        needed = weight_files_of(weights_of(self.directory, record.stem, sidecar))
        for name in needed:
            if name not in self.weights:
                path = os.path.join(weight_dir(self.directory), name)
                self.weights[name] = self._described(path, WEIGHTS + name)._replace(name=name)
        return ArchivedEntry(key, record.stem, files, tuple(needed))

    def _described(self, path: str, member: str) -> ArchivedFile:
        digest = self.stats.sha256(path)
        self.paths[self.folder + member] = path
        return ArchivedFile(member, os.path.getsize(path), digest)


def write_archive(stream: BinaryIO, plan: ExportPlan) -> None:
    """Write the archive of a plan. Raises OSError, ESTALE for a file that changed or vanished since."""
    text = manifest_text(plan.manifest).encode()
    with writing(stream) as tar:
        add(tar, MANIFEST, len(text), io.BytesIO(text))
        for member in plan.manifest.members():
            if member.name in plan.texts:
                add(tar, member.name, member.size_bytes, io.BytesIO(plan.texts[member.name]))
                continue
            with _CheckedSource(plan.paths[member.name], member) as source:
                add(tar, member.name, member.size_bytes, source)


class _CheckedSource(io.RawIOBase):
    """A file that must still have the content that was listed when it has been read to its end."""

    def __init__(self, path: str, member: ArchivedFile) -> None:
        self._path = path
        self._member = member
        self._digest = hashlib.sha256()
        self._left = member.size_bytes
        try:
            self._handle = open_regular(path)
        except FileNotFoundError as error:
            raise self._changed() from error

    def read(self, size: int = -1) -> bytes:
        block = os.read(self._handle, self._left if size < 0 else min(size, self._left))
        self._digest.update(block)
        self._left -= len(block)
        if (self._left and not block) or (not self._left and self._digest.hexdigest() != self._member.sha256):
            raise self._changed()
        return block

    def _changed(self) -> OSError:
        return OSError(errno.ESTALE, "it changed or was removed while it was exported", self._path)

    def close(self) -> None:
        if not self.closed and hasattr(self, "_handle"):
            os.close(self._handle)
        super().close()
