"""SO_BINS: shared libraries inside an OM (GE: SoBinStore). GE loads them into the process; gecli only lists them."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from gecli.artifacts.kernel_store import KERNEL_MAGIC
from gecli.errors import InputError

_HEAD = struct.Struct("<IHHII")
KINDS = ("space registry", "op master device", "autofuse", "custom op")


@dataclass(frozen=True, slots=True)
class StoredLibrary:
    """One library: its name, the vendor's name, and its size."""

    name: str
    vendor: str
    kind: int
    size_bytes: int

    @property
    def kind_name(self) -> str:
        return KINDS[self.kind] if self.kind < len(KINDS) else f"UNKNOWN_{self.kind}"


def list_libraries(data: bytes, *, path: str | None = None, offset: int = 0) -> tuple[StoredLibrary, ...]:
    """The libraries of the partition. Raises InputError (bad-kernels) when a record or their number is wrong."""
    found: list[StoredLibrary] = []
    position = 4
    while position < len(data):
        left = len(data) - position
        if left < _HEAD.size:
            raise _fail(path, offset + position, f"{left} bytes are left, a record has at least {_HEAD.size}")
        mark, name_len, kind, vendor_len, bin_len = _HEAD.unpack_from(data, position)
        if mark != KERNEL_MAGIC:
            raise _fail(path, offset + position, f"expected the mark {KERNEL_MAGIC:#x}, found {mark:#x}")
        if bin_len == 0 or name_len + vendor_len + bin_len > left - _HEAD.size:
            raise _fail(path, offset + position, f"{name_len} + {vendor_len} + {bin_len} bytes, {left} are left")
        start = position + _HEAD.size
        name = data[start : start + name_len].decode("utf-8", "surrogateescape")
        vendor = data[start + name_len : start + name_len + vendor_len].decode("utf-8", "surrogateescape")
        found.append(StoredLibrary(name, vendor, kind, bin_len))
        position = start + name_len + vendor_len + bin_len
    declared = int.from_bytes(data[:4], "little")
    if len(data) < 4 or declared != len(found):
        raise _fail(path, offset, f"{declared} libraries are declared, {len(found)} are there")
    return tuple(found)


def _fail(path: str | None, offset: int, why: str) -> InputError:
    return InputError("G3013", "SO_BINS is broken", kind="bad-kernels", why=why, file=path, offset=offset)
