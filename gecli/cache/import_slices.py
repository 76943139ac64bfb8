"""Taking the slices of a graph and their compiled versions out of an archive (cache.md 9.2, 12.5).

Nothing is written before the chain, the lists and what the versions were made from have been found right. The versions
come first, then graphs and lists as a run writes them: what a killed import leaves is orphans.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

from gecli.artifacts.shared_files import SHARED_MODE
from gecli.cache.archive import VERSIONS, Archive, ArchivedEntry, ArchivedSlices, DamagedArchive
from gecli.cache.cache_conf import CacheConf
from gecli.cache.import_archive import EntryImporter, Imported
from gecli.cache.jit_files import (
    HIERARCHY,
    REST_GRAPH,
    RESULT,
    SLICE_GRAPH,
    Facts,
    OnDisk,
    StoredSlice,
    believed,
    hierarchy_dir,
    jit_dir,
    slicing_of,
)
from gecli.cache.jit_store import Graphs, JitStore
from gecli.cache.lock import KeyLock, OnWait
from gecli.cache.model_cache import CacheDir
from gecli.cache.stat_index import StatIndex


class _InArchive:
    """The files of a graph as `jit_files` reads them."""

    def __init__(self, archive: Archive, slices: ArchivedSlices) -> None:
        self.archive = archive
        self.slices = slices

    def data(self, name: str) -> bytes:
        if name not in self.slices.files:
            raise FileNotFoundError(name)
        return self.archive.content(self.slices.files[name], self.slices.folder)

    def fault(self, name: str, sha256: str) -> str:
        if name not in self.slices.files:
            return f"{name}: it is missing"
        return "" if self.slices.files[name].sha256 == sha256 else f"{name}: it is another graph"

    def names_result(self) -> bool:
        return RESULT in self.slices.files


class SlicesImporter:
    """Imports the slices of one graph into a cache directory."""

    def __init__(
        self, directory: str, archive: Archive, mode: int, style: str, wait_s: float, on_wait: OnWait | None
    ) -> None:
        self.directory = directory
        self.archive = archive
        self.mode = mode
        self.wait_s = wait_s
        self.on_wait = on_wait
        self.importer = EntryImporter(jit_dir(directory), archive, mode, style, VERSIONS)

    def check(self, each: ArchivedSlices) -> tuple[Facts, list[StoredSlice]]:
        """What the archive says of a graph. Raises DamagedArchive when its parts do not fit together."""
        files = _InArchive(self.archive, each)
        found = believed(files, each.key)
        if found.reason or not found.slices:
            raise DamagedArchive(f"the slices of key {each.key}: {found}")
        facts, _ = slicing_of(files)
        of_version = {version: part for part in found.slices for version in part.versions}
        needed = {name for part in found.slices for name in _names(part)} | set(each.files).intersection(_COMMON)
        if set(each.files) != needed or sorted(of_version) != sorted(entry.key for entry in each.entries):
            raise DamagedArchive(f"the slices of key {each.key} have other files or versions than they list")
        for entry in each.entries:
            self._check_version(entry, of_version[entry.key], facts)
        return facts, found.slices

    def _check_version(self, entry: ArchivedEntry, part: StoredSlice, facts: Facts) -> None:
        sidecar = self.importer.sidecar_of(entry)
        made = sidecar.fingerprint if sidecar is not None else {}
        found = made.get("weights"), made.get("options"), made.get("toolchain")
        if sidecar is None or sidecar.content.get("guard") is None or entry.weights:
            raise DamagedArchive(f"version {entry.stem} has no guard, or weights of its own")
        if found != (part.digest, facts.options, facts.toolchain):
            raise DamagedArchive(f"version {entry.stem} is of another slice")

    def take(self, each: ArchivedSlices) -> list[Imported]:
        """Import the slices of a graph. Raises DamagedArchive, LockTimeout, LockUnavailable and OSError."""
        facts, slices = self.check(each)
        summary = ArchivedEntry(each.key, os.path.join(HIERARCHY, each.key), each.files)
        shared = self.mode == SHARED_MODE
        cache = CacheDir(self.directory, CacheConf(shared=shared))
        store = JitStore(cache, each.key, facts, StatIndex(trusting=False), self.wait_s, self.on_wait)
        with store.lock():
            before, why = self._here(each.key, facts, slices, store)
            if why:
                return [Imported(summary, "refused", why=why, kind="slices")]
            taken: list[Imported] = []
            for entry in each.entries:
                with KeyLock(store.directory, entry.key, timeout_s=self.wait_s, on_wait=self.on_wait, shared=shared):
                    self.importer.take(entry.key, [entry], taken)
            kept = store.save(slices, lambda number: self._graphs(each, slices[number]))
        listed = {version for part in kept for version in part.versions}
        state = "present" if before >= listed else "imported"
        return [
            Imported(summary, state, summary.stem, kind="slices"),
            *(each._replace(kind="version") for each in taken),
        ]

    def _here(self, key: str, facts: Facts, slices: Iterable[StoredSlice], store: JitStore) -> tuple[set[str], str]:
        """The versions that the directory lists under the key, and why the slices there stand in the way."""
        files = OnDisk(hierarchy_dir(self.directory, key), StatIndex(trusting=False))
        found = believed(files, key)
        if found.reason == "jit_foreign":
            return set(), "slices that another tool cut are under this key"
        if found.reason not in ("", "no_entry"):
            store.set_aside()
            return set(), ""
        if not found.slices:
            return set(), ""
        if slicing_of(files)[0] != facts:
            return set(), "slices of another graph, or made with other options or tools, are under this key"
        if any(mine.digest != theirs.digest for mine, theirs in zip(slices, found.slices)):
            return set(), "the graph was cut in another place here"
        return {version for part in found.slices for version in part.versions}, ""

    def _graphs(self, each: ArchivedSlices, part: StoredSlice) -> Graphs:
        return {
            name: self.archive.blocks(each.files[f"{part.id}/{name}"], each.folder)
            for name in (SLICE_GRAPH, REST_GRAPH)
            if f"{part.id}/{name}" in each.files
        }


_COMMON = ("gecli_slicing.json", "slicing_result.json")


def _names(part: StoredSlice) -> list[str]:
    rest = [] if part.rest is None else [f"{part.id}/{REST_GRAPH}"]
    return [f"{part.id}/gep_list.json", f"{part.id}/{SLICE_GRAPH}", *rest]
