"""Opening external weight files: what an OM names is looked for in a directory and never leads out of it.

cache.md 8.6. Loads nothing but `os`.
"""

from __future__ import annotations

import errno
import os
import stat

READ_BYTES = 1 << 20


class UnsafeWeight(Exception):
    """A weight file is refused: its name, its kind, or where it leads. The text says why."""


def base_name(location: str) -> str:
    """The file that a location names inside its directory: what follows the last `/`. Raises UnsafeWeight."""
    name = location.rpartition("/")[2]
    if name in ("", ".", ".."):
        raise UnsafeWeight(f"{location!r} names no file")
    if "\0" in name:
        raise UnsafeWeight(f"{location!r} holds a NUL character")
    return name


def open_weight(directory: str, name: str) -> int:
    """A descriptor of the regular file `name` in a weight directory, for reading.

    The directory may be a symbolic link, it is the user's choice; one inside it must stay inside. Raises
    UnsafeWeight, FileNotFoundError and other OSError.
    """
    flags = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0)
    folder = os.open(directory or ".", flags | getattr(os, "O_DIRECTORY", 0))
    try:
        handle = _open_inside(folder, directory or ".", name, flags)
    finally:
        os.close(folder)
    if stat.S_ISREG(os.fstat(handle).st_mode):
        return handle
    os.close(handle)
    raise UnsafeWeight(f"{os.path.join(directory, name)} is no regular file")


def _open_inside(folder: int, directory: str, name: str, flags: int) -> int:
    no_link = flags | getattr(os, "O_NOFOLLOW", 0)
    try:
        return os.open(name, no_link, dir_fd=folder)
    except OSError as error:
        if error.errno not in (errno.ELOOP, errno.EMLINK):
            raise
    real, inside = os.path.realpath(os.path.join(directory, name)), os.path.realpath(directory)
    if os.path.commonpath((real, inside)) != inside:
        raise UnsafeWeight(f"{os.path.join(directory, name)} is a symbolic link that leads out of its directory")
    return os.open(os.path.relpath(real, inside), no_link, dir_fd=folder)


def sha256_of_range(handle: int, offset: int, length: int) -> str:
    """64 hex digits of a part of an open file. Raises OSError, and EOFError when it is not all there."""
    import hashlib

    digest = hashlib.sha256()
    while length > 0:
        block = os.pread(handle, min(length, READ_BYTES), offset)
        if not block:
            raise EOFError(f"{length} bytes are missing at offset {offset}")
        digest.update(block)
        offset += len(block)
        length -= len(block)
    return digest.hexdigest()
