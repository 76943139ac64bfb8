"""The lock of what concerns a whole cache directory, `.gecli/gc.lock`: the sweep of weights and the counters."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from gecli.cache.layout import PRIVATE


@contextmanager
def gc_lock(directory: str) -> Iterator[bool]:
    """Hold it for the block without waiting; False when somebody else does. Raises OSError when it cannot be made.

    Where files cannot be locked the block runs without.
    """
    folder = os.path.join(directory, PRIVATE)
    os.makedirs(folder, exist_ok=True)
    handle = os.open(os.path.join(folder, "gc.lock"), os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o666)
    try:
        yield _is_locked(handle)
    finally:
        os.close(handle)


def _is_locked(handle: int) -> bool:
    try:
        import fcntl

        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except (ImportError, OSError):
        return True
    return True
