"""What was set aside, in `.gecli/quarantine/`: each thing has the moment of that behind its name (cache.md 2.2, 4.5).

People may want to look at it, so it stays for a month; then gc takes it away.
"""

from __future__ import annotations

import os
import re
import stat
import time
from collections.abc import Iterator
from typing import NamedTuple

from gecli.artifacts.shared_files import make_folder, mode_in
from gecli.cache.layout import quarantine_dir

KEPT_S = 30 * 86400.0
_STAMP = re.compile(r"[.](\d{8}T\d{6}Z)(?:[.-]\d+|[.]json)*", re.ASCII)


class Quarantined(NamedTuple):
    """A file, or a directory with all that is in it."""

    path: str
    size_bytes: int
    since_s: float


def quarantined(directory: str) -> list[Quarantined]:
    """What lies in the quarantine of a cache directory, by name; half written files are left out."""
    folder = quarantine_dir(directory)
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        return []
    found = []
    for name in names:
        path = os.path.join(folder, name)
        try:
            status = os.lstat(path)
        except OSError:
            continue
        if not name.startswith("."):
            found.append(Quarantined(path, tree_bytes(path), since_of(name, status)))
    return found


def since_of(name: str, status: os.stat_result) -> float:
    """When something was set aside; its own times are older. Without a stamp: when its name was last changed."""
    import calendar

    found = _STAMP.search(name)
    if found is None or found.end() != len(name):
        return max(status.st_mtime, status.st_ctime)
    try:
        return calendar.timegm(time.strptime(found[1], "%Y%m%dT%H%M%SZ"))
    except ValueError:
        return max(status.st_mtime, status.st_ctime)


def utc_stamp() -> str:
    return time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())


def set_aside_tree(directory: str, path: str, name: str, mode: int = -1) -> None:
    """Move a directory into the quarantine of `directory` under `name` and the time. Raises OSError."""
    target = quarantine_dir(directory)
    make_folder(target, mode_in(directory) if mode < 0 else mode)
    first = os.path.join(target, f"{name}.{utc_stamp()}")
    number, place = 0, first
    while os.path.lexists(place):
        number += 1
        place = f"{first}-{number}"
    os.rename(path, place)


def tree_bytes(path: str) -> int:
    """The bytes of a file, or of all files in a directory; what vanishes meanwhile has none. Follows no link."""
    return sum(status.st_size for _, status in tree_files(path))


def tree_files(path: str) -> Iterator[tuple[str, os.stat_result]]:
    """Every file in a directory with its status, or the file itself; links are files."""
    try:
        status = os.lstat(path)
        if not stat.S_ISDIR(status.st_mode):
            yield path, status
            return
        names = sorted(os.listdir(path))
    except OSError:
        return
    for name in names:
        yield from tree_files(os.path.join(path, name))


def remove_tree(path: str) -> None:
    """Remove a file or a directory with all that is in it; a link is unlinked. Raises OSError."""
    import shutil

    try:
        if os.path.isdir(path) and not os.path.islink(path):
            shutil.rmtree(path)
        else:
            os.unlink(path)
    except FileNotFoundError:
        return
