"""The lock of what concerns a whole cache directory, `.gecli/gc.lock`: the sweep of weights and the counters."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from gecli.artifacts.shared_files import give_to_group, make_folder, mode_in
from gecli.cache.layout import PRIVATE

NAME = "gc.lock"


@contextmanager
def gc_lock(directory: str) -> Iterator[bool]:
    """Hold it for the block without waiting; False when somebody else does. Raises OSError when it cannot be made.

    Where files cannot be locked the block runs without.
    """
    folder = os.path.join(directory, PRIVATE)
    mode = mode_in(directory)
    make_folder(folder, mode)
    path = os.path.join(folder, NAME)
    handle = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o666)
    give_to_group(handle, mode)
    try:
        yield _is_locked(handle) and _is_named(handle, path)
    finally:
        os.close(handle)


def remove_gc_lock(directory: str) -> bool:
    """Remove the file, which is made anew when it is needed; False when somebody holds it. Raises OSError."""
    with gc_lock(directory) as is_held:
        if is_held:
            os.unlink(gc_lock_path(directory))
        return is_held


def gc_lock_path(directory: str) -> str:
    return os.path.join(directory, PRIVATE, NAME)


def _is_named(handle: int, path: str) -> bool:
    """Whether the file still has its name: a run that removes locks holds it while it does so."""
    try:
        return os.path.samestat(os.fstat(handle), os.stat(path))
    except OSError:
        return False


def _is_locked(handle: int) -> bool:
    try:
        import fcntl

        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except (ImportError, OSError):
        return True
    return True
