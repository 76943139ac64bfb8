"""Kernel stores: TBE_KERNELS, CUST_AICPU_KERNELS and CUSTOM_OPS (GE: KernelStore). Contents are never executed."""

from __future__ import annotations

import struct

from gecli.errors import InputError
from gecli.records import dataclass
from gecli.wire.byte_source import ByteSource, MemorySource
from gecli.wire.om_faults import om_error

KERNEL_MAGIC = 0x5D776EFD
CUSTOM_OP_MAGIC = 0x4B43534B
MAX_RECORDS = 1 << 16  # bounds the memory of a list; the largest known store has some hundred
MAX_NAME_BYTES = 1 << 16
_HEAD = struct.Struct("<III")


@dataclass(frozen=True, slots=True)
class StoredKernel:
    """One record: where its bytes lie inside the partition."""

    name: str
    offset_bytes: int
    size_bytes: int
    is_elf: bool


def list_kernels(
    data: bytes | ByteSource, *, magic: int = KERNEL_MAGIC, path: str | None = None, offset: int = 0
) -> tuple[StoredKernel, ...]:
    """The records of a kernel store; only their heads and names are read.

    Raises InputError (bad-kernels) at the first record that is not one; GE stops there without a word, and the model
    then loads with kernels missing.
    """
    source: ByteSource = MemorySource(data) if isinstance(data, bytes) else data
    found: list[StoredKernel] = []
    position, end = 0, source.size
    while position < end:
        left = end - position

        def fail(why: str) -> InputError:
            message = f"kernel store: broken behind {len(found)} good records: {why}"
            return om_error("bad-kernels", path, message, offset + position, actual=len(found))  # noqa: B023  # raised at once

        head = source.read(position, min(_HEAD.size, left))
        if len(head) < _HEAD.size:
            raise fail(f"{left} bytes are left, a record has at least {_HEAD.size}")
        if len(found) == MAX_RECORDS:
            raise fail(f"{left} bytes are left, at most {MAX_RECORDS} records are read")
        mark, name_len, bin_len = _HEAD.unpack(head)
        if mark != magic:
            raise fail(f"expected the mark {magic:#x}, found {mark:#x}")
        if name_len + bin_len > left - _HEAD.size:
            raise fail(f"a record of {_HEAD.size} + {name_len} + {bin_len} bytes, {left} are left")
        if name_len > MAX_NAME_BYTES:
            raise fail(f"a name of {name_len} bytes, at most {MAX_NAME_BYTES} are read")
        start = position + _HEAD.size
        body = start + name_len
        text = source.read(start, name_len + min(4, bin_len))
        name = text[:name_len].decode("utf-8", "surrogateescape")
        found.append(StoredKernel(name, body, bin_len, text[name_len:] == b"\x7fELF"))
        position = body + bin_len
    return tuple(found)
