"""The entries that a key has already, as an import looks for them: by what they were made from, or by their content.

One key holds an entry for each state of the session's variables, so the variable record is part of both.
"""

from __future__ import annotations

import os

from gecli.cache.archive import ArchivedEntry
from gecli.cache.digest import digest_of, digest_of_json
from gecli.cache.index import IndexRecord
from gecli.cache.layout import OM, RDCPKT
from gecli.cache.sidecar import VARIABLE_MEMORY, InvalidSidecar, Sidecar, read_sidecar
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

    def add(self, record: IndexRecord, sidecar: Sidecar | None, entry: ArchivedEntry | None = None) -> None:
        """An entry that has come, of an archive or found here."""
        self._readable[record.stem] = record
        if sidecar is not None and sidecar.combined:
            self._made_from.setdefault(_made_from(sidecar), {})[record.stem] = record
        if self._of_content is not None and entry is not None:
            self._of_content.setdefault(_content_of(entry), {})[record.stem] = record

    def remove(self, stem: str) -> None:
        """An entry has gone."""
        self._unreadable.pop(stem, None)
        self._readable.pop(stem, None)

    def same_as(self, entry: ArchivedEntry, sidecar: Sidecar | None) -> list[IndexRecord]:
        """The entries that were made from the same in the same state of the variables, or consist of the same files, or
        have its name and a sidecar that cannot be read."""
        found = [self._unreadable[entry.stem]] if entry.stem in self._unreadable else []
        if sidecar is not None and sidecar.combined:
            same = self._made_from.get(_made_from(sidecar), {})
        else:
            same = self._contents().get(_content_of(entry), {})
        return [*found, *(record for stem, record in same.items() if self._readable.get(stem) is record)]

    def _contents(self) -> dict[str, Records]:
        if self._of_content is None:
            stats = StatIndex()
            self._of_content = {}
            for stem, record in self._readable.items():
                try:
                    digests = [
                        stats.sha256(os.path.join(self._directory, name))
                        for name in (record.om_name, record.rdcpkt_name)
                        if name
                    ]
                except OSError:
                    continue  # the entry is damaged, and equal to none
                self._of_content.setdefault(" ".join(digests), {})[stem] = record
        return self._of_content


def _made_from(sidecar: Sidecar) -> str:
    """What an entry was compiled from, the state of the variables included."""
    record = sidecar.file_facts("rdcpkt")
    placed = digest_of_json(sidecar.content.get(VARIABLE_MEMORY))
    return digest_of(sidecar.combined, "" if record is None else record[1], placed)


def _content_of(entry: ArchivedEntry) -> str:
    return " ".join(entry.files[suffix].sha256 for suffix in (OM, RDCPKT) if suffix in entry.files)
