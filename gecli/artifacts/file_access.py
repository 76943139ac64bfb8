"""Reading ranges of a file that the user named."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO

from gecli.errors import GecliError, InputError
from gecli.wire.byte_source import FileSource
from gecli.wire.file_state import FileState
from gecli.wire.regular_file import open_regular

READ_FAILURES = (errno.EIO, errno.ESPIPE, errno.EINVAL, getattr(errno, "ESTALE", errno.EIO))


@contextmanager
def opened(path: str) -> Iterator[int]:
    """A file descriptor of a regular file. Raises InputError when it cannot be opened or read."""
    with _reported(path, "open"):
        handle = open_regular(path)
    try:
        with _reported(path, "read"):
            yield handle
    finally:
        os.close(handle)


@contextmanager
def opened_stream(path: str) -> Iterator[BinaryIO]:
    """The same as a stream."""
    with opened(path) as handle, os.fdopen(handle, "rb", closefd=False) as stream:
        yield stream


@contextmanager
def unchanged(path: str) -> Iterator[FileState]:
    """Raises InputError when a file changed in here, also in place of the error which that led to."""
    state = FileState(path)
    try:
        yield state
    except (OSError, EOFError, GecliError) as error:
        try:
            state.require_same()
        except InputError as changed:
            raise changed from error
        raise
    state.require_same()


def read_whole(path: str, limit_bytes: int) -> bytes:
    """The content of a regular file of a bounded size. Raises InputError."""
    with opened(path) as handle:
        _require_size(path, os.fstat(handle).st_size, limit_bytes)
        return pread(handle, 0, limit_bytes)


@contextmanager
def opened_source(path: str, limit_bytes: int) -> Iterator[FileSource]:
    """A regular file of a bounded size, to be read in pieces. Raises InputError when it cannot be opened or read."""
    with _reported(path, "open"):
        source = FileSource(path)
    with source, _reported(path, "read"):
        _require_size(path, source.size, limit_bytes)
        yield source


def _require_size(path: str, size: int, limit_bytes: int) -> None:
    if size > limit_bytes:
        raise InputError(
            "E13015", f"{path} is too large", file=path, why=f"{size} bytes, at most {limit_bytes} are read",
            do="check that it is the right file", expected=limit_bytes, actual=size,
        )  # fmt: skip


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


@contextmanager
def _reported(path: str, verb: str) -> Iterator[None]:
    """Failures of this file as InputError; those of a file that is written meanwhile pass."""
    try:
        yield
    except OSError as error:
        if verb == "read" and (error.filename is not None or error.errno not in READ_FAILURES):
            raise
        code = "E13001" if verb == "open" else "E13003"
        raise InputError(
            code,
            f"cannot {verb} {path}",
            why=error.strerror or str(error),
            file=path,
            do="check the path and its permissions",
        ) from error
