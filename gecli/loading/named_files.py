"""The data files that a model file names, found without parsing it, also when it cannot be loaded."""

from __future__ import annotations

import mmap
import os
import re
from collections.abc import Iterator

from gecli.json_text import parse_json
from gecli.wire.regular_file import open_regular

LOCATION = b"\x0a\x08location\x12"  # StringStringEntryProto of external data: key (field 1), then value (field 2)
# Of a tensor in a JSON graph, of data in the document of an OM.
FILE_MEMBER = re.compile(rb'"(?:file|\$ref)"\s*:\s*("(?:[^"\\]|\\.)*")')


def files_named_in(model: str, base_dir: str) -> Iterator[str]:
    """The files below `base_dir` that are there. Nothing for a model that cannot be read."""
    try:
        with open(open_regular(model), "rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data:
            names = sorted({*_locations(data), *_file_members(data)})
    except (OSError, ValueError):
        return
    for name in names:
        path = os.path.normpath(os.path.join(base_dir, name))
        if "\0" not in path and os.path.isfile(path):
            yield path


def _locations(data: mmap.mmap) -> Iterator[str]:
    position = data.find(LOCATION)
    while position >= 0:
        start = position + len(LOCATION)
        length, start = _varint(data, start)
        yield os.fsdecode(data[start : start + length])
        position = data.find(LOCATION, start)


def _varint(data: mmap.mmap, position: int) -> tuple[int, int]:
    """The length of a name and where it begins; two bytes are more than any path has."""
    low = data[position] if position < len(data) else 0
    if low < 0x80 or position + 1 >= len(data):
        return low & 0x7F, position + 1
    return (low & 0x7F) | (data[position + 1] & 0x7F) << 7, position + 2


def _file_members(data: mmap.mmap) -> Iterator[str]:
    if data[:64].lstrip()[:1] != b"{":
        return
    for found in FILE_MEMBER.finditer(data):
        try:
            yield str(parse_json(found[1], raw_bytes=True))
        except ValueError:
            continue
