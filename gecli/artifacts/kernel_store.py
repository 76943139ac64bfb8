"""Kernel stores: TBE_KERNELS, CUST_AICPU_KERNELS and CUSTOM_OPS (GE: KernelStore). Contents are never executed."""

from __future__ import annotations

import struct
from dataclasses import dataclass

from gecli.errors import InputError

KERNEL_MAGIC = 0x5D776EFD
CUSTOM_OP_MAGIC = 0x4B43534B
_HEAD = struct.Struct("<III")


@dataclass(frozen=True, slots=True)
class StoredKernel:
    """One record: where its bytes lie inside the partition."""

    name: str
    offset_bytes: int
    size_bytes: int
    is_elf: bool


def list_kernels(
    data: bytes, *, magic: int = KERNEL_MAGIC, path: str | None = None, offset: int = 0
) -> tuple[StoredKernel, ...]:
    """The records of a kernel store.

    Raises InputError (bad-kernels) at the first record that is not one; GE stops there without a word, and the model
    then loads with kernels missing.
    """
    found: list[StoredKernel] = []
    position = 0
    while position < len(data):
        left = len(data) - position
        if left < _HEAD.size:
            raise _fail(path, offset + position, len(found), f"{left} bytes are left, a record has at least 12")
        mark, name_len, bin_len = _HEAD.unpack_from(data, position)
        if mark != magic:
            raise _fail(path, offset + position, len(found), f"expected the mark {magic:#x}, found {mark:#x}")
        if name_len + bin_len > left - _HEAD.size:
            raise _fail(
                path, offset + position, len(found), f"a record of {name_len} + {bin_len} bytes, {left} are left"
            )
        start = position + _HEAD.size
        body = start + name_len
        name = data[start:body].decode("utf-8", "surrogateescape")
        found.append(StoredKernel(name, body, bin_len, data[body : body + 4] == b"\x7fELF"))
        position = body + bin_len
    return tuple(found)


def _fail(path: str | None, offset: int, good: int, why: str) -> InputError:
    return InputError(
        "G3013",
        f"kernel store: broken behind {good} good records",
        kind="bad-kernels",
        why=why,
        file=path,
        offset=offset,
        actual=good,
    )
