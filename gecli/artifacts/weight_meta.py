"""`meta.json` of a weight directory: which content lies in which file (cache.md 8.4, 8.5; GE: FileConstantMeta).

It is a hint that can be made anew, never an error. GE locks this very inode, so it is rewritten in place.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import field
from typing import Any

from gecli.artifacts.shared_files import give_to_group, make_folder
from gecli.planning.weight_names import META_NAME, SPLIT_PREFIX, is_split_name
from gecli.records import dataclass

FILES, OFFSETS = "hash_to_weight_file", "hash_to_weight_offset"
MAX_META_BYTES = 1 << 28
POLL_S = 0.05


class MetaLocked(Exception):
    """Another process has held the lock of `meta.json` for too long."""


@dataclass(slots=True)
class WeightMeta:
    """Files and offsets by digest in GE's spelling. `others` are members that gecli does not know.

    `is_rebuilt`: the file was missing or damaged, and nothing tells what combined files hold.
    """

    files: dict[str, str] = field(default_factory=dict)
    offsets: dict[str, int] = field(default_factory=dict)
    others: dict[str, Any] = field(default_factory=dict)
    is_rebuilt: bool = field(default=False, compare=False)

    def text(self) -> str:
        """The bytes that GE writes: indent 4, sorted keys, no final newline."""
        import json

        content = {**self.others, FILES: self.files, OFFSETS: self.offsets}
        return json.dumps(content, indent=4, sort_keys=True, ensure_ascii=False)

    def data(self) -> bytes:
        return self.text().encode("utf-8", "surrogateescape")

    def record(self, spelling: str, path: str, offset: int | None = None) -> None:
        """Note where a content lies; without an offset it is a file of its own, and an older offset is dropped."""
        self.files[spelling] = path
        if offset is None:
            self.offsets.pop(spelling, None)
        else:
            self.offsets[spelling] = offset


def parse_meta(data: bytes) -> WeightMeta | None:
    """The content of a `meta.json`; None for bytes that are none. Rows of a wrong kind are left out."""
    from gecli.json_text import parse_json

    try:
        content = parse_json(data, raw_bytes=True)
    except (ValueError, RecursionError):
        return None
    if not isinstance(content, dict):
        return None
    files, offsets = content.pop(FILES, {}), content.pop(OFFSETS, {})
    if not isinstance(files, dict) or not isinstance(offsets, dict):
        return None
    return WeightMeta(
        {key: value for key, value in files.items() if isinstance(value, str)},
        {key: value for key, value in offsets.items() if type(value) is int and value >= 0},
        content,
    )


def rebuilt_meta(folder: str) -> WeightMeta:
    """What the names of a directory tell: the files of single weights."""
    try:
        names = sorted(name for name in os.listdir(folder) if is_split_name(name))
    except OSError:
        names = []
    files = {name[len(SPLIT_PREFIX) :]: os.path.join(folder, name) for name in names}
    return WeightMeta(files, is_rebuilt=True)


def remove_odd(path: str) -> bool:
    """Take away a link, pipe or socket that stands in place of a file; whether there was one.

    Nothing is written through it: a link may lead out of the directory, a pipe to nobody. Directories stay.
    """
    if not is_odd(path):
        return False
    try:
        os.unlink(path)
    except OSError:
        return False  # opening it tells why
    return True


def is_odd(path: str) -> bool:
    """Whether a link, pipe, socket or device stands there."""
    try:
        mode = os.lstat(path).st_mode
    except OSError:
        return False
    return not stat.S_ISREG(mode) and not stat.S_ISDIR(mode)


class MetaFile:
    """`meta.json`, open and locked. `before` is what it held then: None for a file that was made just now."""

    __slots__ = ("before", "changed_ns", "handle")

    def __init__(self, handle: int, *, is_new: bool) -> None:
        self.handle = handle
        self.before = None if is_new else _read(handle)
        self.changed_ns = os.fstat(handle).st_mtime_ns

    def meta(self, folder: str) -> WeightMeta:
        return parse_meta(self.before or b"") or rebuilt_meta(folder)

    def rewrite(self, data: bytes) -> None:
        """Change the content in place. What was there is put back when the disk is full. Raises OSError."""
        if data == self.before:
            return
        try:
            _write_over(self.handle, data)
        except BaseException:
            with suppress(OSError):
                _write_over(self.handle, self.before or b"")
            raise

    def set_time(self, time_ns: int) -> bool:
        """Set the time of the last change; whether the file system keeps it as exactly as that."""
        try:
            os.utime(self.handle, ns=(time_ns, time_ns))
        except (OSError, TypeError, NotImplementedError):  # a system that knows no descriptor there
            return False
        return os.fstat(self.handle).st_mtime_ns == time_ns


@contextmanager
def locked_file(folder: str, *, timeout_s: float = 60.0, mode: int = 0o666) -> Iterator[MetaFile]:
    """`meta.json` with its lock held. It is made if it is missing, and goes again when the block ends with an error.

    Read after the lock was taken, because a peer may have waited too. Raises OSError, and MetaLocked.
    """
    path = os.path.join(folder, META_NAME)
    remove_odd(path)
    handle, is_new = _open_locked(path, time.monotonic() + timeout_s, mode)
    try:
        yield MetaFile(handle, is_new=is_new)
    except BaseException:
        if is_new:
            with suppress(OSError):
                os.unlink(path)
        raise
    finally:
        os.close(handle)


@contextmanager
def locked_meta(
    folder: str, *, timeout_s: float = 60.0, mode: int = 0o666
) -> Iterator[tuple[WeightMeta, Callable[[], None]]]:
    """The content of `meta.json` and a function that writes it back, with its lock held.

    The directory is made, and the file if it is missing. Raises OSError, and MetaLocked.
    """
    make_folder(folder or ".", mode)
    with locked_file(folder, timeout_s=timeout_s, mode=mode) as file:
        meta = file.meta(folder)
        yield meta, lambda: file.rewrite(meta.data())


def _open_locked(path: str, end: float, mode: int) -> tuple[int, bool]:
    """The locked descriptor of the file that has the name, and whether it is new and nobody else wrote to it."""
    flags = os.O_RDWR | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    while True:
        try:
            handle, is_new = os.open(path, flags), False
        except FileNotFoundError:
            try:
                handle, is_new = os.open(path, flags | os.O_CREAT | os.O_EXCL, mode), True
                give_to_group(handle, mode)
            except FileExistsError:
                continue
        try:
            _lock(handle, end)
            found = os.fstat(handle)
            with suppress(FileNotFoundError):
                if os.path.samestat(found, os.stat(path)) or time.monotonic() >= end:
                    return handle, is_new and not found.st_size
        except BaseException:
            os.close(handle)
            raise
        os.close(handle)  # a failed compile took it away again


def _lock(handle: int, end: float) -> None:
    try:
        import fcntl
    except ImportError:  # a system without: what is lost is a hint
        return
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() >= end:
                raise MetaLocked from None
            time.sleep(POLL_S)
        except OSError as error:
            if error.errno in (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS):
                return
            raise


def _read(handle: int) -> bytes:
    parts = []
    at = 0
    while at < MAX_META_BYTES and (block := os.pread(handle, 1 << 20, at)):
        parts.append(block)
        at += len(block)
    return b"".join(parts)


def _write_over(handle: int, data: bytes) -> None:
    """Not emptied first: a full disk would not take back what was there."""
    at = 0
    while at < len(data):
        at += os.pwrite(handle, data[at:], at)
    os.ftruncate(handle, len(data))
    os.fsync(handle)
