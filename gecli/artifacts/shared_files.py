"""Files and directories that a group of users writes together: the one rule for all that a shared cache holds."""

from __future__ import annotations

import os
from contextlib import suppress

SHARED_MODE = 0o664  # of files; it is also how a function is told that what it makes is the group's


def give_to_group(handle: int, mode: int) -> None:
    """Let the group use a file that was just made, whatever the umask, if `mode` is that of shared files."""
    if mode == SHARED_MODE:
        with suppress(OSError):  # a file system without permissions
            os.fchmod(handle, mode)


def make_folder(path: str, mode: int) -> None:
    """Make a directory with those above it that are missing; `mode` is that of new files in it. Raises OSError.

    In a shared cache the group may write into all of them, whatever the umask; setgid stays as the system inherits it.
    """
    if os.path.isdir(path):
        return
    missing = [path]
    while (above := os.path.dirname(missing[-1])) and not os.path.isdir(above):
        missing.append(above)
    os.makedirs(path, exist_ok=True)
    if mode != SHARED_MODE:
        return
    for each in missing:
        with suppress(OSError):  # another user's, who made it at the same time
            os.chmod(each, os.stat(each).st_mode & 0o7777 | 0o775)


def mode_in(directory: str) -> int:
    """The mode of new files for one who knows the directory only: the group's where the group may write."""
    try:
        return SHARED_MODE if os.stat(directory).st_mode & 0o020 else 0o644
    except OSError:
        return 0o644
