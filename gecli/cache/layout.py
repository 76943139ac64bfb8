"""Names inside a cache directory (cache.md 2.1)."""

from __future__ import annotations

import errno
import os
import time

PRIVATE = ".gecli"
OM, RDCPKT, SIDECAR = ".om", ".rdcpkt", ".gecli.json"
ENTRY_SUFFIXES = (OM, RDCPKT, SIDECAR)
TIMESTAMPS = {"seed": "%Y%m%d_%H%M%S", "ge": "%Y%m%d%H%M%S"}
STEM_PATTERN = r"(?P<key>[A-Za-z0-9_-]{1,128})_(?P<ts>\d{8}_?\d{6})(?:_(?P<n>\d+))?"
FILE_PATTERN = rf"^{STEM_PATTERN}\.(?:om|rdcpkt|gecli\.json)$"
TEMPORARY_PATTERN = rf"^\.{STEM_PATTERN}\.(?:om|rdcpkt|gecli\.json)\.tmp\.(?P<pid>\d+)\.[0-9a-f]+$"


def private_dir(directory: str, name: str) -> str:
    return os.path.join(directory, PRIVATE, name)


def inflight_dir(directory: str) -> str:
    return private_dir(directory, "inflight")


def quarantine_dir(directory: str) -> str:
    return private_dir(directory, "quarantine")


def stat_dir(directory: str) -> str:
    return private_dir(directory, "stat")


def request_dir(directory: str) -> str:
    return private_dir(directory, "req")


def entry_path(directory: str, stem: str, suffix: str) -> str:
    return os.path.join(directory, stem + suffix)


def stem_of(key: str, when: float | None, style: str) -> str:
    """`{key}_{time stamp}`: local time, or with SOURCE_DATE_EPOCH that instant in UTC."""
    epoch = os.environ.get("SOURCE_DATE_EPOCH", "")
    is_given = epoch.isascii() and epoch.isdecimal() and len(epoch) < 12
    moment = time.gmtime(int(epoch)) if is_given else time.localtime(when)
    return f"{key}_{time.strftime(TIMESTAMPS[style], moment)}"


def free_stem(directory: str, key: str, style: str, when: float | None = None) -> str:
    """A stem that no file has yet: `_1`, `_2`, ... behind the time stamp if need be.

    GE takes the stamp before it waits for the lock, so that two compiles may truncate each other's files.
    """
    first = stem_of(key, when, style)
    taken = {name.partition(".")[0] for name in os.listdir(directory) if name.startswith(first)}
    stem, number = first, 0
    while stem in taken:
        number += 1
        stem = f"{first}_{number}"
    return stem


def order_of(stem: str) -> tuple[str, int]:
    """Sort key of stems of one key: time stamp, then suffix number."""
    import re

    found = re.fullmatch(STEM_PATTERN, stem)
    return (found["ts"].replace("_", ""), int(found["n"] or 0)) if found else (stem, 0)


def created_of(stem: str) -> float | None:
    """When an entry was made as its name says, which a copy keeps; None for a name without a time stamp."""
    import re

    found = re.fullmatch(STEM_PATTERN, stem, re.ASCII)
    try:
        return time.mktime(time.strptime(found["ts"].replace("_", ""), "%Y%m%d%H%M%S")) if found else None
    except (ValueError, OverflowError):
        return None


def host_name() -> str:
    """The name of this machine, for records that say who holds or writes something."""
    return os.uname().nodename if hasattr(os, "uname") else os.environ.get("COMPUTERNAME", "host")


def is_alive(host: str, pid: object) -> bool:
    """Whether a process may still run: True for every process of another host, and where asking would end it."""
    if host != host_name() or os.name == "nt":
        return True
    if not isinstance(pid, int) or pid <= 0:
        return False
    try:
        os.kill(pid, 0)
    except OSError as error:
        return error.errno == errno.EPERM
    return True
