"""The entries that a key has already, as an import looks for them: by what they were made from, or by their content."""

from __future__ import annotations

import os

from gecli.cache.archive import ArchivedEntry
from gecli.cache.index import IndexRecord
from gecli.cache.layout import OM
from gecli.cache.sidecar import InvalidSidecar, Sidecar, read_sidecar
from gecli.cache.stat_index import StatIndex
from gecli.cache.verify import records_of

Records = dict[str, IndexRecord]  # by stem, in the order of the index


class PresentEntries:
    """The entries of one key; every sidecar is read once, and an .om only when an entry without a sidecar comes.

    Make it with the key's lock held, and forget it with the lock.
    """

    def __init__(self, directory: str, key: str) -> None:
        self._directory = directory
        self._unreadable: Records = {}
        self._made_from: dict[str, Records] = {}
        self._of_content: dict[str, Records] | None = None
        self._readable: Records = {}
        for record in records_of(directory, key):
            try:
                sidecar = read_sidecar(directory, key, record.stem)
            except (InvalidSidecar, OSError):
                self._unreadable[record.stem] = record
            else:
                self.add(record, sidecar)

    def add(self, record: IndexRecord, sidecar: Sidecar | None, om_sha256: str = "") -> None:
        """An entry that has come; the digest of its .om is asked for if need be."""
        self._readable[record.stem] = record
        if sidecar is not None and sidecar.combined:
            self._made_from.setdefault(sidecar.combined, {})[record.stem] = record
        if self._of_content is not None:
            self._of_content.setdefault(om_sha256, {})[record.stem] = record

    def remove(self, stem: str) -> None:
        """An entry has gone."""
        self._unreadable.pop(stem, None)
        self._readable.pop(stem, None)

    def same_as(self, entry: ArchivedEntry, sidecar: Sidecar | None) -> list[IndexRecord]:
        """The entries that were made from the same, or consist of the same model, or have its name and no sidecar."""
        found = [self._unreadable[entry.stem]] if entry.stem in self._unreadable else []
        if sidecar is not None and sidecar.combined:
            same = self._made_from.get(sidecar.combined, {})
        else:
            same = self._contents().get(entry.files[OM].sha256, {})
        return [*found, *(record for stem, record in same.items() if self._readable.get(stem) is record)]

    def _contents(self) -> dict[str, Records]:
        if self._of_content is None:
            stats = StatIndex()
            self._of_content = {}
            for stem, record in self._readable.items():
                try:
                    digest = stats.sha256(os.path.join(self._directory, record.om_name))
                except OSError:
                    continue  # the entry is damaged, and equal to none
                self._of_content.setdefault(digest, {})[stem] = record
        return self._of_content
