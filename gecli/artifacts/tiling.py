"""TILING_DATA: listed, not interpreted (GE: TilingData)."""

from __future__ import annotations

import struct

from gecli.errors import InputError
from gecli.records import dataclass
from gecli.wire.byte_source import ByteSource, MemorySource
from gecli.wire.om_faults import om_error

MAGIC = 0xDD776EFE
MAX_RECORDS = 1 << 20  # bounds the time and the memory of a list
_HEAD = struct.Struct("<III")
_RECORD_BYTES = 5


@dataclass(frozen=True, slots=True)
class TilingInfo:
    """Version, payload length, and the tag of each record."""

    version: int
    size_bytes: int
    tags: tuple[int, ...]


def list_tiling(data: bytes | ByteSource, *, path: str | None = None, offset: int = 0) -> TilingInfo:
    """What the partition says about itself. Raises InputError (bad-kernels) when it is not well formed."""
    source: ByteSource = MemorySource(data) if isinstance(data, bytes) else data
    size = source.size
    if size < _HEAD.size:
        raise _fail(path, offset, f"{size} bytes, the head has {_HEAD.size}")
    mark, version, length = _HEAD.unpack(source.read(0, _HEAD.size))
    if mark != MAGIC:
        raise _fail(path, offset, f"expected the mark {MAGIC:#x}, found {mark:#x}")
    if length != size - _HEAD.size:
        raise _fail(path, offset + 8, f"{length} bytes are declared, {size - _HEAD.size} are there")
    tags = bytearray()
    position = _HEAD.size
    while position < size:
        head = source.read(position, min(_RECORD_BYTES, size - position))
        body = int.from_bytes(head[1:], "little")
        left = size - position
        if left < _RECORD_BYTES or body > left - _RECORD_BYTES:
            raise _fail(path, offset + position, f"record {len(tags)} has {body} bytes, {left} are left with its head")
        if len(tags) == MAX_RECORDS:
            raise _fail(path, offset + position, f"{left} bytes are left, at most {MAX_RECORDS} records are read")
        tags.append(head[0])
        position += _RECORD_BYTES + body
    return TilingInfo(version, length, tuple(tags))


def _fail(path: str | None, offset: int, why: str) -> InputError:
    return om_error("bad-kernels", path, f"TILING_DATA: {why}", offset)
