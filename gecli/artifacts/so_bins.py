"""SO_BINS: shared libraries inside an OM (GE: SoBinStore). GE loads them into the process; gecli only lists them."""

from __future__ import annotations

import struct

from gecli.artifacts.kernel_store import KERNEL_MAGIC, MAX_NAME_BYTES, MAX_RECORDS
from gecli.errors import InputError
from gecli.records import dataclass
from gecli.wire.byte_source import ByteSource, MemorySource
from gecli.wire.om_faults import om_error

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


def list_libraries(data: bytes | ByteSource, *, path: str | None = None, offset: int = 0) -> tuple[StoredLibrary, ...]:
    """The libraries of the partition, of which only heads and names are read.

    Raises InputError (bad-kernels) when a record or their number is wrong.
    """
    source: ByteSource = MemorySource(data) if isinstance(data, bytes) else data
    if source.size < 4:
        raise _fail(path, offset, f"{source.size} bytes, the count of libraries has 4")
    declared = int.from_bytes(source.read(0, 4), "little")
    found: list[StoredLibrary] = []
    position = 4
    while position < source.size and len(found) < min(declared, MAX_RECORDS):
        left = source.size - position
        head = source.read(position, min(_HEAD.size, left))
        if len(head) < _HEAD.size:
            raise _fail(path, offset + position, f"{left} bytes are left, a record has at least {_HEAD.size}")
        mark, name_len, kind, vendor_len, bin_len = _HEAD.unpack(head)
        if mark != KERNEL_MAGIC:
            raise _fail(path, offset + position, f"expected the mark {KERNEL_MAGIC:#x}, found {mark:#x}")
        if name_len + vendor_len + bin_len > left - _HEAD.size:
            why = f"a record of {_HEAD.size} + {name_len} + {vendor_len} + {bin_len} bytes, {left} are left"
            raise _fail(path, offset + position, why)
        if bin_len == 0:
            raise _fail(path, offset + position, f"library {len(found)} has 0 bytes")
        if vendor_len > MAX_NAME_BYTES:
            raise _fail(path, offset + position, f"a name of {vendor_len} bytes, at most {MAX_NAME_BYTES} are read")
        start = position + _HEAD.size
        names = source.read(start, name_len + vendor_len)
        name, vendor = (part.decode("utf-8", "surrogateescape") for part in (names[:name_len], names[name_len:]))
        found.append(StoredLibrary(name, vendor, kind, bin_len))
        position = start + name_len + vendor_len + bin_len
    if declared != len(found) or position < source.size:
        left = source.size - position
        raise _fail(path, offset, f"{declared} libraries are declared, {len(found)} are there, {left} bytes are left")
    return tuple(found)


def _fail(path: str | None, offset: int, why: str) -> InputError:
    return om_error("bad-kernels", path, f"SO_BINS: {why}", offset)
