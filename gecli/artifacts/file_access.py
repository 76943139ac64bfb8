"""Reading ranges of a file that the user named."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager

from gecli.errors import InputError


@contextmanager
def opened(path: str) -> Iterator[int]:
    """A file descriptor for reading. Raises InputError naming the reason when the file cannot be opened."""
    try:
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0))
    except OSError as error:
        raise InputError(
            "E13001", f"cannot open {path}", why=error.strerror or "", file=path, do="check the path"
        ) from error
    try:
        yield handle
    except OSError as error:
        if error.errno not in (errno.EISDIR, errno.EIO, errno.ESPIPE, errno.EINVAL):
            raise
        raise InputError("E13001", f"cannot read {path}", why=error.strerror or "", file=path) from error
    finally:
        os.close(handle)


def pread(handle: int, offset: int, length: int) -> bytes:
    """Bytes of a file; fewer than asked for only at its end."""
    parts: list[bytes] = []
    while length > 0:
        block = os.pread(handle, min(length, 1 << 30), offset)
        if not block:
            break
        parts.append(block)
        offset += len(block)
        length -= len(block)
    return parts[0] if len(parts) == 1 else b"".join(parts)
