"""Reading the text files that options name: of a bounded size, never waiting for a pipe, foreign ones named."""

from __future__ import annotations

import errno
import os
import stat

LIMIT_BYTES = 64 << 20
_FOREIGN = (
    (b"version https://git-lfs", "it is a git-lfs pointer; git lfs pull brings the file"),
    (b"<!doctype html", "it is an HTML page"),
    (b"<html", "it is an HTML page"),
)


def read_text_file(path: str) -> str:
    """The text of a file in UTF-8. Raises OSError, and ValueError with the reason for what is no text."""
    handle = _opened(path)
    try:
        parts = []
        left = LIMIT_BYTES + 1
        while left > 0 and (block := os.read(handle, min(left, 1 << 20))):
            parts.append(block)
            left -= len(block)
        is_pipe = stat.S_ISFIFO(os.fstat(handle).st_mode)
    finally:
        os.close(handle)
    data = b"".join(parts)
    if left <= 0:
        raise OSError(errno.EFBIG, f"it has more than {LIMIT_BYTES} bytes", path)
    if is_pipe and not data:
        raise OSError(errno.ENXIO, "Is a pipe that nobody writes to", path)
    return _text(data)


def why_unreadable(error: OSError | ValueError) -> str:
    """The words for the errors of `read_text_file`."""
    return getattr(error, "strerror", None) or str(error)


def _opened(path: str) -> int:
    """A pipe without a writer does not block; one with a writer, as a shell makes it, is read to its end."""
    try:
        handle = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0))
    except ValueError as error:  # a NUL in the name
        raise OSError(errno.EINVAL, str(error), path) from error
    if hasattr(os, "set_blocking"):
        os.set_blocking(handle, True)
    return handle


def _text(data: bytes) -> str:
    head = data[:64].lstrip().lower()
    why = next((why for magic, why in _FOREIGN if head.startswith(magic)), "")
    if not why and b"\0" in data:
        why = f"it is no text: a NUL character stands at byte {data.index(0)}"
    if why:
        raise ValueError(why)
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"it is no text in UTF-8: byte {data[error.start]:#04x} at {error.start}") from error
