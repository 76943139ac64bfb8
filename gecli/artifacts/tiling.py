"""TILING_DATA: listed, not interpreted (GE: TilingData)."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from gecli.errors import InputError

MAGIC = 0xDD776EFE
_HEAD = struct.Struct("<III")


@dataclass(frozen=True, slots=True)
class TilingInfo:
    """Version, payload length, and the tag of each record."""

    version: int
    size_bytes: int
    tags: tuple[int, ...]


def list_tiling(data: bytes, *, path: str | None = None, offset: int = 0) -> TilingInfo:
    """What the partition says about itself. Raises InputError (bad-kernels) when it is not well formed."""
    if len(data) < _HEAD.size:
        raise _fail(path, offset, f"{len(data)} bytes, the head has {_HEAD.size}")
    mark, version, length = _HEAD.unpack_from(data)
    if mark != MAGIC:
        raise _fail(path, offset, f"expected the mark {MAGIC:#x}, found {mark:#x}")
    if length != len(data) - _HEAD.size:
        raise _fail(path, offset + 8, f"{length} bytes are declared, {len(data) - _HEAD.size} are there")
    tags: list[int] = []
    position = _HEAD.size
    while position < len(data):
        size = int.from_bytes(data[position + 1 : position + 5], "little")
        if len(data) - position < 5 or size > len(data) - position - 5:
            raise _fail(path, offset + position, f"record {len(tags)} ends outside the partition")
        tags.append(data[position])
        position += 5 + size
    return TilingInfo(version, length, tuple(tags))


def _fail(path: str | None, offset: int, why: str) -> InputError:
    return InputError("G3013", "TILING_DATA is broken", kind="bad-kernels", why=why, file=path, offset=offset)
