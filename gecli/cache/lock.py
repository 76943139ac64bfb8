"""The lock of a graph key: `flock` on `{key}.lock`, the file that GE locks too (cache.md 6.1).

Held through look-up, compile and write. It keeps two processes from doing the same work; the integrity of entries does
not depend on it.
"""

from __future__ import annotations

import errno
import os
import stat
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any

from gecli.artifacts.publish import forget, remove_when_stopped
from gecli.artifacts.shared_files import SHARED_MODE, give_to_group, make_folder
from gecli.cache.layout import host_name, inflight_dir, is_alive
from gecli.json_text import parse_json
from gecli.wire.regular_file import open_regular, read_regular

POLL_S = 0.05
MAX_RECORD_BYTES = 1 << 16
NOTICE_S = 1.0  # a wait shorter than this is not worth a line

OnWait = Callable[[float, str], None]

_held: set[tuple[str, int]] = set()


class LockTimeout(Exception):
    """Somebody else held the lock all the time; the message says who, as far as known."""


class LockUnavailable(Exception):
    """This file cannot be locked here; the message is the system's reason."""


class KeyLock:
    """The exclusive lock of one key, a context manager. A fresh object for each use.

    `leaves_record` off writes nothing below the directory but the lock file, so that others cannot say who waits.
    `on_wait(seconds, holder)` is called about once a second while somebody else holds it. Raises LockTimeout after
    `timeout_s`, LockUnavailable, and RuntimeError when this thread holds the key already, which would never end.
    """

    def __init__(
        self,
        directory: str,
        key: str,
        *,
        timeout_s: float,
        on_wait: OnWait | None = None,
        shared: bool = False,
        leaves_record: bool = True,
    ) -> None:
        self.directory = directory
        self.key = key
        self.timeout_s = timeout_s
        self.on_wait = on_wait
        self.mode = SHARED_MODE if shared else -1
        self.leaves_record = leaves_record
        self._lock: Any = None
        self._record = ""

    def __enter__(self) -> KeyLock:
        token = self._token()
        if token in _held:
            raise RuntimeError(f"this thread holds the lock of key {self.key} already")
        lock = _file_lock(lock_path(self.directory, self.key), self.mode)
        try:
            self._wait(lock)
            self._lock = lock
            _held.add(token)
            if self.leaves_record:
                self._record = _record_path(self.directory)
                remove_when_stopped(self._record)  # a signal may come when no block catches it
                if not _write_record(self._record, self.key, self.mode):
                    self._forget_record()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._forget_record()
        if self._lock is not None:
            _held.discard(self._token())
            self._lock.release()
            self._lock = None

    def _forget_record(self) -> None:
        if self._record:
            _remove(self._record)
            forget(self._record)
            self._record = ""

    def _token(self) -> tuple[str, int]:
        return os.path.realpath(lock_path(self.directory, self.key)), threading.get_ident()

    def _wait(self, lock: Any) -> None:
        from filelock import Timeout

        start = time.monotonic()
        while True:
            waited = time.monotonic() - start
            left = self.timeout_s - waited
            try:
                # Never a blocking flock: on some network file systems it cannot be interrupted.
                lock.acquire(timeout=max(min(NOTICE_S, left), 0), poll_interval=POLL_S)
                return
            except Timeout:
                if time.monotonic() - start >= self.timeout_s:
                    raise LockTimeout(holder_of(self.directory, self.key)) from None
                if self.on_wait:
                    self.on_wait(time.monotonic() - start, holder_of(self.directory, self.key))
            except (OSError, NotImplementedError) as error:
                raise LockUnavailable(getattr(error, "strerror", None) or str(error)) from error


def _file_lock(path: str, mode: int) -> Any:
    """A flock; never a soft lock in its place, which would exclude nobody but gecli."""
    from filelock import FileLock

    try:
        return FileLock(path, mode=mode, fallback_to_soft=False)
    except TypeError:  # before filelock had soft locks to fall back to; those raise NotImplementedError
        return FileLock(path, mode=mode)


def wait_for_writers(directory: str, key: str, timeout_s: float) -> bool:
    """Read-only use: wait until nobody compiles this key; False when that took too long.

    The lock file is opened for reading and locked shared for a moment. Without a lock file, or where that is not
    possible, there is nothing to wait for.
    """
    try:
        import fcntl

        descriptor = open_regular(lock_path(directory, key))
    except (ImportError, OSError):
        return True
    try:
        end = time.monotonic() + timeout_s
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
                return True
            except BlockingIOError:
                if time.monotonic() >= end:
                    return False
                time.sleep(POLL_S)
            except OSError:
                return True
    finally:
        os.close(descriptor)


def lock_path(directory: str, key: str) -> str:
    return os.path.join(directory, f"{key}.lock")


def unusable_lock(directory: str, key: str, error: LockUnavailable) -> OSError:
    """The same as an error of the system, for those who go on without the key."""
    return OSError(errno.ENOLCK, f"its lock cannot be used: {error}", lock_path(directory, key))


def is_busy(directory: str, key: str) -> bool:
    """Whether somebody holds the lock right now; takes none."""
    return not wait_for_writers(directory, key, 0)


def holder_of(directory: str, key: str) -> str:
    """Who holds a key, in words: `pid 4711 on hostA`; a GE process leaves no record."""
    for record in inflight_records(directory):
        if record.get("key") == key and is_alive(str(record.get("host")), record.get("pid")):
            return f"pid {record.get('pid')} on {record.get('host')}"
    return "another process"


def inflight_records(directory: str) -> list[dict[str, Any]]:
    """The records of running compiles, in the order of their file names; unreadable ones are left out."""
    found = []
    try:
        names = sorted(os.listdir(inflight_dir(directory)))
    except OSError:
        return []
    for name in names:
        path = os.path.join(inflight_dir(directory), name)
        try:
            record = parse_json(read_regular(path, MAX_RECORD_BYTES), raw_bytes=True)
        except (OSError, ValueError, RecursionError):
            continue
        if isinstance(record, dict):
            found.append({**record, "file": path})
    return found


def abandoned_records(directory: str, before_s: float) -> list[str]:
    """Records, older than a moment, of processes of this host that are gone; a writer may die before a record is whole.

    What they say stands in their names too.
    """
    try:
        names = sorted(os.listdir(inflight_dir(directory)))
    except OSError:
        return []
    own = _host_in_names()
    found = []
    for name in names:
        host, _, rest = name.removesuffix(".json").rpartition("-")[0].rpartition("-")
        path = os.path.join(inflight_dir(directory), name)
        if host != own or not rest.isdecimal() or is_alive(host_name(), int(rest)):
            continue
        try:
            status = os.lstat(path)
        except OSError:
            continue
        if status.st_mtime < before_s and not stat.S_ISDIR(status.st_mode):
            found.append(path)
    return found


def _host_in_names() -> str:
    return host_name().replace("/", "_")


def _record_path(directory: str) -> str:
    return os.path.join(inflight_dir(directory), f"{_host_in_names()}-{os.getpid()}-{os.urandom(6).hex()}.json")


def _write_record(path: str, key: str, mode: int) -> bool:
    """Say who holds the key; the lock file itself stays empty, as GE leaves it. False when that is not possible."""
    import json

    content = {"host": host_name(), "pid": os.getpid(), "key": key, "since": round(time.time(), 3), "weights": []}
    try:
        make_folder(os.path.dirname(path), mode)
        with open(path, "x", encoding="utf-8") as stream:
            give_to_group(stream.fileno(), mode)
            stream.write(json.dumps(content))
    except OSError:
        return False
    return True


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        return
