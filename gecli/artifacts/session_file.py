"""Session snapshots as files: locks, reading and writing (variables.md 6, 15.3)."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING

from gecli.errors import CacheError, InputError, OutputError

if TYPE_CHECKING:
    from gecli.variables.var_manager import VarManager

POLL_S = 0.05


@contextmanager
def locked_sessions(start: str | None, target: str | None, timeout_s: float) -> Iterator[None]:
    """Hold the locks of the session files: two commands never continue one session at the same time.

    Raises CacheError (G5001) when another command keeps one for longer than `timeout_s`, and InputError.
    """
    paths = {os.path.realpath(path) for path in (start, target) if path}
    # Where no command is at work, a session that cannot be read is refused before anything is written.
    if start and not os.path.exists(f"{os.path.realpath(start)}.lock"):
        from gecli.wire.regular_file import open_regular

        try:
            os.close(open_regular(start))
        except OSError as error:
            raise _no_session(start, error) from error
    with ExitStack() as stack:
        for path in sorted(paths):
            stack.enter_context(_locked(path, timeout_s))
        yield


def read_session(path: str) -> VarManager:
    """The variables of a snapshot; the device where it was made does not matter. Raises InputError."""
    from gecli.wire.byte_source import FileSource
    from gecli.wire.var_session import read_var_manager

    try:
        with FileSource(path) as source:
            return read_var_manager(source, path=path, device_id=0)
    except OSError as error:
        raise _no_session(path, error) from error


def write_session(manager: VarManager, path: str, *, seed_keys: bool = False) -> None:
    """Publish the snapshot that a later command continues from. Raises OutputError."""
    from gecli.artifacts.publish import publish_bytes
    from gecli.wire.var_session import encode_var_manager

    publish_bytes(path, encode_var_manager(manager, seed_keys=seed_keys))


@contextmanager
def _locked(path: str, timeout_s: float) -> Iterator[None]:
    """An exclusive flock on `<path>.lock`, which is removed by its holder.

    Whoever got the lock of a file that is no longer the one of that name tries again, so two commands never hold
    two files of one name.
    """
    import fcntl

    lock = f"{path}.lock"
    end = time.monotonic() + timeout_s
    while True:
        descriptor = _opened_lock(lock)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_file_of(descriptor, lock):
                break
            os.close(descriptor)
            continue
        except BlockingIOError:
            os.close(descriptor)
        except BaseException:
            os.close(descriptor)
            raise
        if time.monotonic() >= end:
            raise CacheError(
                "G5001",
                f"session file {path} is in use",
                why=f"another command has held its lock for {timeout_s:g} s",
                do="wait, or raise --lock-timeout",
                kind="lock_timeout",
                file=path,
            )
        time.sleep(POLL_S)
    try:
        yield
    finally:
        with suppress(OSError):
            os.unlink(lock)
        os.close(descriptor)


def _opened_lock(lock: str) -> int:
    try:
        os.makedirs(os.path.dirname(lock), exist_ok=True)
        return os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | getattr(os, "O_NONBLOCK", 0), 0o666)
    except OSError as error:
        why = error.strerror or str(error)
        raise OutputError("G6001", f"{lock} cannot be written", why=why, file=lock) from error


def _is_file_of(descriptor: int, path: str) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except FileNotFoundError:
        return False


def _no_session(path: str, error: OSError) -> InputError:
    return InputError(
        "E13001",
        f"session file {path} cannot be read",
        why=error.strerror or str(error),
        do="the first command of a session has --session-out only",
        file=path,
        option="--session-in",
    )
