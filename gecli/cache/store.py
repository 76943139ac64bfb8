"""Writing into a cache directory so that no reader ever sees half an entry (cache.md 5.3, 5.4)."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, BinaryIO

from gecli.artifacts.publish import forget, remove_when_stopped
from gecli.artifacts.shared_files import SHARED_MODE, give_to_group
from gecli.cache.index import IndexContent, IndexRecord, index_path, index_text, new_record
from gecli.cache.layout import OM, RDCPKT, SIDECAR, entry_path, free_stem
from gecli.cache.sidecar import Sidecar
from gecli.cache.stat_index import StatIndex, StatRow, touch_as_witness

WriteOm = Callable[[BinaryIO], None]
MAX_SUFFIX_TRIES = 1000
NO_SPACE = (errno.ENOSPC, errno.EDQUOT)

_full_directories: set[str] = set()  # after ENOSPC nothing more is tried in this process


class Written:
    """An entry that was stored: its stem and what its files hold."""

    __slots__ = ("digests", "record", "stem")

    def __init__(self, stem: str, record: IndexRecord, digests: dict[str, tuple[int, str]]) -> None:
        self.stem = stem
        self.record = record
        self.digests = digests


def store_entry(
    directory: str,
    key: str,
    write_om: WriteOm,
    rdcpkt: bytes | None,
    describe: Callable[[str, dict[str, Any]], Sidecar],
    *,
    style: str,
    mode: int,
    stats: StatIndex,
    append: Callable[[IndexRecord], None],
) -> Written:
    """Write the files of a new entry, then have `append` put its record into the index.

    The index comes last: it is what makes the entry exist. `describe(stem, files)` makes the sidecar. Call it with
    the key's lock held. Raises OSError; own temporary files are removed.
    """
    if directory in _full_directories:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), directory)
    try:
        return _store(directory, key, write_om, rdcpkt, describe, style, mode, stats, append)
    except OSError as error:
        if error.errno in NO_SPACE:
            _full_directories.add(directory)
        raise


def _store(
    directory: str,
    key: str,
    write_om: WriteOm,
    rdcpkt: bytes | None,
    describe: Callable[[str, dict[str, Any]], Sidecar],
    style: str,
    mode: int,
    stats: StatIndex,
    append: Callable[[IndexRecord], None],
) -> Written:
    stem = free_stem(directory, key, style)
    with temporary(directory, stem, OM, mode) as (stream, path):
        write_om(stream)
        seal(stream)
        om_digest = stats.sha256(path)
        om_size = os.path.getsize(path)
        stem = _publish_first(directory, stem, path, key, style)
    digests = {"om": (om_size, om_digest)}
    if rdcpkt is not None:
        import hashlib

        _write_new(directory, stem, RDCPKT, rdcpkt, mode)
        digests["rdcpkt"] = (len(rdcpkt), hashlib.sha256(rdcpkt).hexdigest())
    files = {kind: {"size": size, "sha256": digest} for kind, (size, digest) in digests.items()}
    sidecar = describe(stem, files)
    text = sidecar.text().encode("utf-8", "surrogateescape")
    _write_new(directory, stem, SIDECAR, text, mode)
    sync_directory(directory)
    record = new_record(key, stem, has_rdcpkt=rdcpkt is not None)
    append(record)
    for kind, (_, digest) in digests.items():
        stats.add(witness_row(entry_path(directory, stem, f".{kind}"), digest))
    if sidecar.asks_for_weight_files:  # whose rows need not be compared with the OM again
        import hashlib

        stats.add(witness_row(entry_path(directory, stem, SIDECAR), hashlib.sha256(text).hexdigest()))
    return Written(stem, record, digests)


@contextmanager
def temporary(directory: str, stem: str, suffix: str, mode: int) -> Iterator[tuple[BinaryIO, str]]:
    """A new file `.{stem}{suffix}.tmp.{pid}.{random}`, which is gone when the block ends."""
    path = os.path.join(directory, f".{stem}{suffix}.tmp.{os.getpid()}.{os.urandom(4).hex()}")
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
    remove_when_stopped(path)  # a signal may come where no block catches it
    try:
        with os.fdopen(os.open(path, flags, mode), "w+b") as stream:
            give_to_group(stream.fileno(), mode)
            yield stream, path
    finally:
        with suppress(OSError):
            os.unlink(path)
        forget(path)


def seal(stream: BinaryIO) -> None:
    stream.flush()
    os.fsync(stream.fileno())


def publish(path: str, target: str) -> None:
    """Give a finished temporary file its name without replacing anything. Raises FileExistsError, OSError."""
    try:
        os.link(path, target)
        return
    except FileExistsError:
        # A network file system may report a link that it made, when the answer was lost.
        if not os.path.samestat(os.lstat(path), os.lstat(target)):
            raise
        return
    except OSError:
        if os.path.lexists(target):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), target) from None
    os.rename(path, target)


def _publish_first(directory: str, stem: str, path: str, key: str, style: str) -> str:
    """Publish the .om, which takes the stem; the next suffix if somebody was faster."""
    for _ in range(MAX_SUFFIX_TRIES):
        try:
            publish(path, entry_path(directory, stem, OM))
            return stem
        except FileExistsError:
            stem = free_stem(directory, key, style)
    raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), stem)


def _write_new(directory: str, stem: str, suffix: str, data: bytes, mode: int) -> None:
    with temporary(directory, stem, suffix, mode) as (stream, path):
        stream.write(data)
        seal(stream)
        publish(path, entry_path(directory, stem, suffix))


def replace_file(path: str, data: bytes, mode: int) -> None:
    """Replace a file of the cache at once. Raises OSError."""
    folder, name = os.path.split(path)
    stem, suffix = os.path.splitext(name)
    with temporary(folder, stem, suffix, mode) as (stream, made):
        stream.write(data)
        seal(stream)
        try:
            os.rename(made, path)
        except FileNotFoundError:
            # A network file system may report a rename that it made, when the answer was lost.
            if not os.path.samestat(os.fstat(stream.fileno()), os.stat(path)):
                raise
    sync_directory(folder)


def write_index(directory: str, key: str, content: IndexContent, mode: int) -> None:
    """Replace the index of a key. Call it with the key's lock held. Raises OSError."""
    path = index_path(directory, key)
    replace_file(path, index_text(content).encode("utf-8", "surrogateescape"), mode)
    with suppress(OSError):
        touch_as_witness(path)


def sync_directory(directory: str) -> None:
    """Make names durable; where directories cannot be synced there is nothing to do."""
    with suppress(OSError):
        descriptor = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def forget_full(directory: str) -> None:
    """Let a directory be written again that was full: something was removed."""
    _full_directories.discard(directory)


def witness_row(path: str, sha256: str) -> StatRow | None:
    """Give a file that gecli wrote an mtime which proves later that it is unchanged; its row, if that is possible."""
    import time

    real = os.path.realpath(path)
    try:
        numbers = touch_as_witness(real)
    except OSError:
        return None
    return None if numbers is None else StatRow(real, numbers, sha256, time.time_ns(), is_witness=True)


def file_mode(shared: bool) -> int:
    """Permission bits of new files, before the umask; a shared cache sets them itself."""
    return SHARED_MODE if shared else 0o644
