"""Keeping the slices of a graph and their compiled versions in `{cache_dir}/jit` (GE: CompiledModelCache; cache.md 9).

Under the lock of the user graph: the graphs, then `gep_list.json`, `gecli_slicing.json` and last `slicing_result.json`,
each at once. A process that is killed leaves what was there before, or files that nobody names.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, BinaryIO, NamedTuple

from gecli.artifacts.shared_files import make_folder
from gecli.cache.candidate import Found, Rejected, Wanted
from gecli.cache.events import event, hit_event, record
from gecli.cache.index import NO_FILE, UnreadableIndex, index_path, read_index
from gecli.cache.jit_files import (
    MAX_VERSIONS,
    REST_GRAPH,
    RESULT,
    SLICE_GRAPH,
    SLICING,
    VERSIONS,
    Facts,
    Restored,
    StoredSlice,
    hierarchy_dir,
    jit_dir,
    restore,
    result_text,
    slicing_text,
    version_key,
    versions_text,
)
from gecli.cache.layout import entry_path, host_name, is_alive
from gecli.cache.lock import KeyLock, LockTimeout, LockUnavailable, OnWait, lock_path
from gecli.cache.model_cache import CacheDir, look, note_use
from gecli.cache.recovery import append_record, recover, set_aside_entry
from gecli.cache.sidecar import InvalidSidecar, Sidecar, read_sidecar
from gecli.cache.stat_index import StatIndex
from gecli.cache.store import file_mode, replace_file, seal, store_entry, sync_directory, temporary

MENDED = ("index_corrupt", "index_entry_invalid")
SET_ASIDE = (
    "om_corrupt", "rdcpkt_corrupt", "sidecar_invalid", "guard_unreadable", "fingerprint_mismatch", "load_failed",
)  # fmt: skip
LEFT_BEHIND = re.compile(r"\..+\.tmp\.(\d+)\.[0-9a-f]+")
Graphs = Mapping[str, Iterable[bytes]]  # name of a .pb file -> its bytes


class Version(NamedTuple):
    """A compiled version on disk: its entry, and the guard that its sidecar holds."""

    stem: str
    guard: Any


class JitStore:
    """The files of one user graph. Methods that write need `lock()` and raise OSError."""

    def __init__(
        self, cache: CacheDir, key: str, facts: Facts, stats: StatIndex, lock_timeout_s: float, on_wait: OnWait | None
    ) -> None:
        self.cache = cache
        self.key = key
        self.facts = facts
        self.stats = stats
        self.directory = jit_dir(cache.path)
        self.home = hierarchy_dir(cache.path, key)
        self._entries = CacheDir(self.directory, cache.conf, cache.mode, cache.verify)
        self._timeout_s = lock_timeout_s
        self._on_wait = on_wait
        self._mode = file_mode(cache.conf.shared)

    @property
    def may_read(self) -> bool:
        return self.cache.mode in ("rw", "ro")

    @property
    def may_write(self) -> bool:
        return self.cache.may_write

    def lock(self) -> KeyLock:
        """The lock of the user graph. Raises LockTimeout, LockUnavailable, OSError when entered or made."""
        make_folder(self.directory, self._mode)
        return KeyLock(
            self.directory, self.key, timeout_s=self._timeout_s, on_wait=self._on_wait, shared=self.cache.conf.shared
        )

    def restore(self) -> Restored:
        return restore(self.cache.path, self.key, self.facts, self.stats) if self.may_read else Restored([], "refresh")

    # ------------------------------------------------------------------ compiled versions

    def version(self, key: str) -> Version | Rejected:
        """The entry of a compiled version and its guard, without a look at the model itself."""
        stem = key
        try:
            content = read_index(self.directory, key)
            records = [] if content is None else [each for each in content.records if each.graph_key == key]
            if not records:
                return Rejected(key, "no_entry")
            stem = records[0].stem
            sidecar = read_sidecar(self.directory, key, stem)
        except UnreadableIndex:
            return Rejected(key, "index_corrupt")
        except InvalidSidecar as error:
            return Rejected(stem, "sidecar_invalid", str(error))
        except OSError as error:
            reason = "sidecar_invalid" if error.errno in NO_FILE else "io_error"
            return Rejected(stem, reason, error.strerror or str(error))
        guard = None if sidecar is None else sidecar.content.get("guard")
        if guard is None:
            return Rejected(stem, "guard_unreadable", "the entry has no guard that gecli reads")
        return Version(stem, guard)

    def find(self, key: str, wanted: Wanted) -> Found | Rejected:
        """The entry of a compiled version after every check of the model cache."""
        lookup = look(self._entries, key, wanted, self.stats)
        if lookup.found is not None:
            note_use(self._entries, lookup.found, self.stats)  # gc goes by that
            if self.may_write:
                record(self.cache.path, hit_event(lookup.found._replace(key=self.key, via="jit")))
            return lookup.found
        return lookup.rejected[-1] if lookup.rejected else Rejected(key, lookup.reason)

    def put_in_order(self, key: str, found: Rejected) -> None:
        """Set a version that cannot be used aside, or mend its index, so that nobody stumbles over it again."""
        if not self.may_write:
            return
        lock = KeyLock(self.directory, key, timeout_s=0, shared=self.cache.conf.shared)
        with suppress(OSError, LockTimeout, LockUnavailable), lock:
            if found.reason in MENDED:
                recover(self.directory, key, self.stats, self._mode)
            elif found.reason in SET_ASIDE:
                set_aside_entry(self.directory, key, found.stem, self._mode)

    def om_path(self, stem: str) -> str:
        return entry_path(self.directory, stem, ".om")

    def new_key(self, slice_id: int) -> str:
        """A key that no compiled version has."""
        ns = time.time_ns()
        while True:
            key = version_key(self.key, slice_id, ns)
            if not os.path.lexists(index_path(self.directory, key)) and not os.path.lexists(
                lock_path(self.directory, key)
            ):
                return key
            ns += 1

    def store(
        self,
        key: str,
        write_om: Callable[[BinaryIO], None],
        rdcpkt: bytes | None,
        describe: Callable[[str, dict[str, Any]], Sidecar],
        seconds: float,
    ) -> str:
        """Keep a compiled version, which took `seconds`, as an entry of its own; returns its stem."""
        with KeyLock(self.directory, key, timeout_s=self._timeout_s, shared=self.cache.conf.shared):
            recover(self.directory, key, self.stats, self._mode)
            written = store_entry(
                self.directory,
                key,
                write_om,
                rdcpkt,
                describe,
                style=self.cache.conf.timestamp,
                mode=self._mode,
                stats=self.stats,
                append=lambda record: append_record(self.directory, record, self._mode),
            )
        size_bytes = sum(size for size, _ in written.digests.values())
        written_event = event("write", self.key, seconds=seconds, size_bytes=size_bytes)
        record(self.cache.path, event("miss", self.key, "no_entry"), written_event)
        return written.stem

    # ------------------------------------------------------------------ how the graph was cut

    def set_aside(self) -> None:
        """Move what belongs to another graph, options or tools out of the way."""
        from gecli.cache.quarantine import set_aside_tree

        if os.path.isdir(self.home):
            set_aside_tree(self.cache.path, self.home, f"jit-{self.key}", self._mode)

    def save(self, slices: Sequence[StoredSlice], graphs_of: Callable[[int], Graphs]) -> list[StoredSlice]:
        """Write the slices that have compiled versions, joined with what another process wrote; returns what is kept.

        Where the other process cut the graph in another place, its slices stay and nothing behind them is written.
        """
        kept = _joined(slices, self.restore().slices, self._exists)
        for each in kept:
            folder = os.path.join(self.home, str(each.id))
            make_folder(folder, self._mode)
            _remove_left_behind(folder)
            self._save_graphs(folder, each, graphs_of)
            self._replace(os.path.join(folder, VERSIONS), versions_text(each))
        if kept:
            self._remove_left_versions()
            _remove_left_behind(self.home)
            self._replace(os.path.join(self.home, SLICING), slicing_text(kept, self.facts))
            self._replace(os.path.join(self.home, RESULT), result_text(kept, self.key))
        return kept

    def _remove_left_versions(self) -> None:
        """Temporary files of versions: who writes one holds the lock that is held here, so their writers are gone."""
        name = version_key(self.key, 0, 0).removesuffix("_0_0")
        form = re.compile(rf"\.{re.escape(name)}_\d+_\d{{19,}}[._].*\.tmp\.\d+\.[0-9a-f]+")
        with suppress(OSError):
            for found in os.listdir(self.directory):
                if form.fullmatch(found):
                    with suppress(OSError):
                        os.unlink(os.path.join(self.directory, found))

    def _exists(self, key: str) -> bool:
        return os.path.exists(index_path(self.directory, key))

    def _save_graphs(self, folder: str, each: StoredSlice, graphs_of: Callable[[int], Graphs]) -> None:
        wanted = {SLICE_GRAPH: each.pb_sha256, REST_GRAPH: each.rest_pb_sha256}
        graphs: Graphs | None = None
        for name, digest in wanted.items():
            path = os.path.join(folder, name)
            if digest is None:
                with suppress(FileNotFoundError):
                    os.unlink(path)
                continue
            if _has_digest(path, digest, self.stats):
                continue
            graphs = graphs_of(each.id) if graphs is None else graphs
            self._write(folder, name, graphs[name])

    def _write(self, folder: str, name: str, chunks: Iterable[bytes]) -> None:
        stem, suffix = os.path.splitext(name)
        with temporary(folder, stem, suffix, self._mode) as (stream, made):
            for chunk in chunks:
                stream.write(chunk)
            seal(stream)
            os.rename(made, os.path.join(folder, name))
        sync_directory(folder)

    def _replace(self, path: str, text: str) -> None:
        data = text.encode("utf-8", "surrogateescape")
        with suppress(OSError), open(path, "rb") as stream:
            if stream.read(len(data) + 1) == data:
                return
        replace_file(path, data, self._mode)


def _joined(
    own: Sequence[StoredSlice], other: Sequence[StoredSlice], exists: Callable[[str], bool]
) -> list[StoredSlice]:
    """Own slices with the versions of the other list, own first; the slices that only the other has behind them."""
    kept: list[StoredSlice] = []
    for position in range(max(len(own), len(other))):
        mine = own[position] if position < len(own) else None
        theirs = other[position] if position < len(other) else None
        if mine is not None and theirs is not None and mine.digest != theirs.digest:
            kept += other[position:]
            break
        each = mine or theirs
        assert each is not None
        if kept and kept[-1].rest != each.parent:
            break
        versions = dict(each.versions)
        for key, hits in (theirs.versions if theirs is not None else {}).items():
            versions[key] = max(hits, versions.get(key, 0))
        each.versions = _best({key: hits for key, hits in versions.items() if exists(key)})
        if not each.versions:
            break  # GE's restore would trip over a slice without versions
        kept.append(each)
    return kept


def _best(versions: dict[str, int]) -> dict[str, int]:
    """At most ten: those with the most hits, in their order."""
    if len(versions) <= MAX_VERSIONS:
        return versions
    chosen = set(sorted(versions, key=lambda key: -versions[key])[:MAX_VERSIONS])
    return {key: hits for key, hits in versions.items() if key in chosen}


def _has_digest(path: str, digest: str, stats: StatIndex) -> bool:
    try:
        return stats.sha256(path) == digest
    except OSError:
        return False


def _remove_left_behind(folder: str) -> None:
    """Temporary files of writers that are gone."""
    with suppress(OSError):
        for name in os.listdir(folder):
            found = LEFT_BEHIND.fullmatch(name)
            if found is not None and not is_alive(host_name(), int(found[1])):
                with suppress(OSError):
                    os.unlink(os.path.join(folder, name))
