"""Opening files that others made: only regular ones, and never waiting for a writer."""

from __future__ import annotations

import errno
import os
import stat

# What these tell is that there is no such file, or something else in its place.
_OF_NO_FILE = (
    errno.ENOENT, errno.ENOTDIR, errno.EINVAL, errno.EISDIR, errno.ELOOP, errno.ENXIO, errno.ENAMETOOLONG,
)  # fmt: skip
_KINDS = (
    (stat.S_ISDIR, errno.EISDIR, "Is a directory"),
    (stat.S_ISFIFO, errno.EINVAL, "Is a pipe, not a file"),
    (stat.S_ISSOCK, errno.EINVAL, "Is a socket, not a file"),
)


def open_regular(path: str) -> int:
    """A descriptor for reading. Raises OSError, also for directories, pipes and devices.

    A pipe nobody writes to would block for ever, and a device may have no end.
    """
    try:
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0))
    except ValueError as error:  # a NUL in the name
        raise OSError(errno.EINVAL, str(error), path) from error
    mode = os.fstat(handle).st_mode
    if stat.S_ISREG(mode):
        return handle
    os.close(handle)
    number, words = next(
        ((number, words) for is_kind, number, words in _KINDS if is_kind(mode)),
        (errno.EINVAL, "Is a device, not a file"),
    )
    raise OSError(number, words, path)


def io_fault(error: BaseException | None) -> str:
    """The system's reason why a file cannot be read, which may be whole all the same: no permission, a disk that fails.

    Empty for an error that tells of the content, and where there is no such file. Looks at the causes of an error too.
    """
    while error is not None:
        if isinstance(error, OSError):
            return "" if error.errno in _OF_NO_FILE else error.strerror or str(error)
        error = error.__cause__
    return ""


def read_regular(path: str, limit_bytes: int = 1 << 30) -> bytes:
    """The content of a small regular file, cut off at the limit. Raises OSError as `open_regular` does.

    On a network file system a file that another machine replaces at this moment is stale; it is asked for once more.
    """
    try:
        return _content(path, limit_bytes)
    except OSError as error:
        if error.errno != errno.ESTALE:
            raise
    return _content(path, limit_bytes)


def _content(path: str, limit_bytes: int) -> bytes:
    handle = open_regular(path)
    try:
        parts = []
        while limit_bytes > 0 and (block := os.read(handle, min(limit_bytes, 1 << 20))):
            parts.append(block)
            limit_bytes -= len(block)
        return b"".join(parts)
    finally:
        os.close(handle)
