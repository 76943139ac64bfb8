"""`meta.json` of a weight directory: which content lies in which file (cache.md 8.4, 8.5; GE: FileConstantMeta).

It is a hint that can be made anew, never an error. GE locks this very inode, so it is rewritten in place.
"""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import field
from typing import Any

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


@contextmanager
def locked_meta(
    folder: str, *, timeout_s: float = 60.0, mode: int = 0o666
) -> Iterator[tuple[WeightMeta, Callable[[], None]]]:
    """The content of `meta.json` and a function that writes it back, with its lock held.

    The directory is made, and the file if it is missing. Read after the lock was taken, because a peer may have
    waited too. Raises OSError, and MetaLocked.
    """
    os.makedirs(folder or ".", exist_ok=True)
    path = os.path.join(folder, META_NAME)
    remove_odd(path)
    flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0)
    handle = os.open(path, flags | getattr(os, "O_NONBLOCK", 0), mode)
    try:
        _lock(handle, time.monotonic() + timeout_s)
        before = _read(handle)
        meta = parse_meta(before) or rebuilt_meta(folder)
        yield meta, lambda: _rewrite(handle, before, meta.text().encode("utf-8", "surrogateescape"))
    finally:
        os.close(handle)


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


def _rewrite(handle: int, before: bytes, data: bytes) -> None:
    if data == before:
        return
    os.ftruncate(handle, 0)
    at = 0
    while at < len(data):
        at += os.pwrite(handle, data[at:], at)
    os.fsync(handle)
