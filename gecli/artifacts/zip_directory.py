"""The names in a ZIP archive, read from its directory in pieces: enough to tell an OM2 package from other archives."""

from __future__ import annotations

from gecli.artifacts.file_access import pread

_TAIL_BYTES = 22 + 0xFFFF  # the end record and the longest comment behind it
_WINDOW_BYTES = 1 << 16
_ENTRY = b"PK\x01\x02"
_ENTRY_BYTES = 46
_WIDE = 0xFFFFFFFF  # the number stands in the 64-bit end record


def archive_has(handle: int, base: int, size: int, name: str) -> bool:
    """True when the archive at `base` has a file of this name, itself or in one directory that holds all of it.

    False for broken archives.
    """
    place = _directory(handle, base, size)
    if place is None:
        return False
    wanted = name.encode()
    position, end = place
    window, start = b"", position
    while position + _ENTRY_BYTES <= end:
        at = position - start
        if at + _ENTRY_BYTES + 0xFFFF > len(window):
            window, start, at = pread(handle, base + position, min(2 * _WINDOW_BYTES, end - position)), position, 0
        entry = window[at : at + _ENTRY_BYTES]
        if len(entry) < _ENTRY_BYTES or entry[:4] != _ENTRY:
            return False
        lengths = [int.from_bytes(entry[k : k + 2], "little") for k in (28, 30, 32)]
        text = window[at + _ENTRY_BYTES : at + _ENTRY_BYTES + lengths[0]]
        root, _, rest = text.rpartition(b"/")
        if rest == wanted and b"/" not in root:
            return True
        position += _ENTRY_BYTES + sum(lengths)
    return False


def _directory(handle: int, base: int, size: int) -> tuple[int, int] | None:
    """Where the directory begins and ends, counted from `base`."""
    tail_at = max(0, size - _TAIL_BYTES)
    tail = pread(handle, base + tail_at, size - tail_at)
    at = tail.rfind(b"PK\x05\x06")
    if at < 0 or len(tail) - at < 22:
        return None
    length, begin = (int.from_bytes(tail[at + k : at + k + 4], "little") for k in (12, 16))
    if _WIDE in (length, begin):
        locator = tail[max(at - 20, 0) : at]
        if locator[:4] != b"PK\x06\x07":
            return None
        record = pread(handle, base + min(int.from_bytes(locator[8:16], "little"), size), 56)
        if len(record) < 56 or record[:4] != b"PK\x06\x06":
            return None
        length, begin = (int.from_bytes(record[k : k + 8], "little") for k in (40, 48))
    return (begin, begin + length) if begin + length <= tail_at + at else None
