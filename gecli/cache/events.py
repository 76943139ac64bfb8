"""What happens in a cache directory, one JSON line each in `.gecli/stats/{host}.jsonl` (cache.md 12.4).

A line is written at once at the end of the file, so processes do not mix theirs; nobody waits, and what cannot be
written is not counted. Loads nothing but `os` and `time`: a hit has no time for more.
"""

from __future__ import annotations

import os
import time

TYPE_CHECKING = False  # not from typing, which costs 7 ms
if TYPE_CHECKING:
    from gecli.cache.candidate import Found

MAX_LOG_BYTES = 1 << 20  # a longer file is set aside for the summary
MAX_LINE_BYTES = 512  # the key takes up to 128


def event(kind: str, key: str = "", why: str = "", *, seconds: float = 0.0, size_bytes: int = 0, count: int = 1) -> str:
    """The members of a line without its time.

    `kind`: hit, miss, write, write_error, adopted, quarantined or gc. `why` says how a hit came about, or is a reason
    code; it and the key hold nothing that JSON would escape.
    """
    parts = [f'"event":"{kind}"']
    parts += [f'"{name}":"{text}"' for name, text in (("key", key), ("why", why)) if text]
    parts += [f'"seconds":{seconds:.3f}'] if seconds else []
    parts += [f'"bytes":{size_bytes}'] if size_bytes else []
    parts += [f'"count":{count}'] if count != 1 else []
    return ",".join(parts)


def hit_event(found: Found) -> str:
    """How a hit is counted: by what, what it saved and how much was read."""
    sidecar = found.sidecar
    facts = [] if sidecar is None else [sidecar.file_facts("om"), sidecar.file_facts("rdcpkt")]
    size_bytes = sum(each[0] for each in facts if each is not None)
    seconds = 0.0 if sidecar is None else sidecar.compile_seconds
    return event("hit", found.key, found.via, seconds=seconds, size_bytes=size_bytes)


def record(directory: str, *events: str) -> None:
    """Append events. Never fails: counting is not worth a compile."""
    now = f"{time.time():.3f}"
    lines = [f'{{"time":{now},{each}}}\n' for each in events]
    data = "".join(line for line in lines if len(line) <= MAX_LINE_BYTES).encode("ascii", "replace")
    folder = stats_dir(directory)
    try:
        handle = _opened(folder)
        try:
            os.write(handle, data)
            is_long = os.fstat(handle).st_size > MAX_LOG_BYTES
        finally:
            os.close(handle)
    except OSError:
        return
    if is_long:
        from gecli.cache.statistics import fold

        fold(directory)


def stats_dir(directory: str) -> str:
    return os.path.join(directory, ".gecli", "stats")


def log_path(folder: str) -> str:
    host = os.uname().nodename if hasattr(os, "uname") else os.environ.get("COMPUTERNAME", "host")
    return os.path.join(folder, f"{host.replace('/', '_')}.jsonl")


def _opened(folder: str) -> int:
    flags = os.O_WRONLY | os.O_APPEND
    for name in ("O_CLOEXEC", "O_NOFOLLOW", "O_NONBLOCK"):  # a pipe in its place must not stop a compile
        flags |= getattr(os, name, 0)
    try:
        return os.open(log_path(folder), flags)
    except FileNotFoundError:
        return _made(folder, flags | os.O_CREAT)


def _made(folder: str, flags: int) -> int:
    """A new log; where the group may write into the cache directory it may write here too, whatever the umask."""
    from gecli.artifacts.shared_files import give_to_group, make_folder, mode_in

    mode = mode_in(os.path.dirname(os.path.dirname(folder)))
    make_folder(folder, mode)
    handle = os.open(log_path(folder), flags, 0o666)
    give_to_group(handle, mode)
    return handle
