"""Writing the slices of a graph and their compiled versions into an archive (cache.md 9.2, 12.5).

The lists in the archive name exactly the versions that are in it, whatever a run or gc does to the directory meanwhile.
"""

from __future__ import annotations

import hashlib
import os

from gecli.cache.archive import SLICES, VERSIONS, ArchivedFile, ArchivedSlices
from gecli.cache.export_archive import EntryPlanner
from gecli.cache.jit_files import (
    REST_GRAPH,
    RESULT,
    SLICE_GRAPH,
    SLICING,
    Facts,
    OnDisk,
    StoredSlice,
    result_text,
    slicing_text,
    versions_text,
)
from gecli.cache.jit_files import VERSIONS as VERSION_LIST
from gecli.cache.jit_survey import hierarchies, repaired_slices, slicing
from gecli.cache.stat_index import StatIndex
from gecli.cache.survey import JIT
from gecli.cache.verify import Problem, records_of


class SlicesPlanner:
    """The slices of several graphs, what their members are read from, and what is damaged."""

    def __init__(self, directory: str) -> None:
        self.directory = directory
        self.slices: list[ArchivedSlices] = []
        self.paths: dict[str, str] = {}
        self.texts: dict[str, bytes] = {}
        self.left_out: list[Problem] = []

    def add(self, key: str) -> None:
        """Take the slices of a graph key, if there are any. Raises OSError."""
        home = os.path.join(hierarchies(self.directory), key)
        if not os.path.isdir(home):
            return
        found = slicing(self.directory, key, full=True)
        kept, facts = repaired_slices(self.directory, key, OnDisk(home, StatIndex(trusting=False)))
        if facts is None or found.fault:
            kind = "foreign" if "foreign" in found.problems else "jit-broken"
            why = found.fault or "these slices were cut by another tool, or only begun"
            self.left_out.append(Problem(kind, why, key, path=home))
            return
        planner = EntryPlanner(os.path.join(self.directory, JIT), VERSIONS)
        kept = [each for each in kept if self._with_whole_versions(each, planner)]
        ids = [each.id for each in kept]
        kept = kept[: next((number for number, each in enumerate(ids) if each != number), len(ids))]
        self.left_out += planner.left_out
        if kept:
            listed = {version for each in kept for version in each.versions}
            entries = tuple(entry for entry in planner.entries if entry.key in listed)
            self.paths |= planner.paths
            self.slices.append(ArchivedSlices(key, self._files(key, home, kept, facts), entries))

    def _with_whole_versions(self, each: StoredSlice, planner: EntryPlanner) -> bool:
        """Keep those versions of a slice that are whole; whether there is any."""
        for version in list(each.versions):
            records = records_of(planner.directory, version)
            if not records or not planner.add(version, records[0]):
                del each.versions[version]
        return bool(each.versions)

    def _files(self, key: str, home: str, kept: list[StoredSlice], facts: Facts) -> dict[str, ArchivedFile]:
        files: dict[str, ArchivedFile] = {}

        def take_text(name: str, text: str) -> None:
            data = text.encode("utf-8", "surrogateescape")
            files[name] = ArchivedFile(name, len(data), hashlib.sha256(data).hexdigest())
            self.texts[f"{SLICES}{key}/{name}"] = data

        take_text(SLICING, slicing_text(kept, facts))
        take_text(RESULT, result_text(kept, key))
        for each in kept:
            take_text(f"{each.id}/{VERSION_LIST}", versions_text(each))
            for name, digest in ((SLICE_GRAPH, each.pb_sha256), (REST_GRAPH, each.rest_pb_sha256)):
                if digest is not None:
                    member = f"{each.id}/{name}"
                    path = os.path.join(home, member)
                    files[member] = ArchivedFile(member, os.path.getsize(path), digest)
                    self.paths[f"{SLICES}{key}/{member}"] = path
        return files
