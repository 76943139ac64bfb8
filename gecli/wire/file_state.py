"""Whether a file is still the one that was read: its parts are opened by name again when somebody needs them."""

from __future__ import annotations

import os

from gecli.errors import InputError


class FileState:
    """What a file was when the reading of it began."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._first = _state(path)

    def require_same(self) -> None:
        """Raises InputError when the file was replaced, written or removed since: what was read may be of two files."""
        if self._first is not None and _state(self.path) != self._first:
            raise InputError(
                "E13003", f"{self.path} changed while it was read", file=self.path,
                why="what was read of it may be parts of two files", do="try again when nobody writes it any more",
            )  # fmt: skip


def _state(path: str) -> tuple[int, ...] | None:
    try:
        found = os.stat(path)
    except (OSError, ValueError):
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns
