"""The partition tables of an OM file, in both widths (GE: ModelPartitionTable)."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from enum import IntEnum

from gecli.records import dataclass

MAX_PARTITIONS = 64
MAX_FLOW_PARTITIONS = 4096


class PartitionType(IntEnum):
    """What a partition holds. Files of other writers use further numbers, and some of these for other things."""

    MODEL_DEF = 0
    WEIGHTS_DATA = 1
    TASK_INFO = 2
    TBE_KERNELS = 3
    CUST_AICPU_KERNELS = 4
    SO_BINS = 5
    FLOW_MODEL = 6
    FLOW_SUBMODEL = 7
    MODEL_INOUT_INFO = 8
    STATIC_TASK_DESC = 9
    DYNAMIC_TASK_DESC = 10
    TASK_PARAM = 11
    TILING_DATA = 12
    PRE_MODEL_DESC = 20
    PRE_MODEL_SQE = 21
    PRE_KERNEL_ARGS = 22
    PRE_MODEL_DESC_EXTEND = 23
    BUNDLE_MODEL_INFO = 24
    BUNDLE_MODEL_VAR_INFO = 25
    CUSTOM_OPS = 26


PRELOAD_TYPES = frozenset((9, 10, 11, 20, 21, 22, 23))
REPEATABLE_TYPES = frozenset((PartitionType.FLOW_SUBMODEL, PartitionType.BUNDLE_MODEL_INFO))

_HIAI_NAMES = {
    3: "TASK_GRAPH",
    4: "SIGNATURE_INFO",
    5: "MODEL_CONFIG",
    6: "AIPP_CUSTOM_INFO",
    7: "ENCRYPT_INFO",
    8: "WEIGHT_INFO",
}


@dataclass(frozen=True, slots=True)
class Partition:
    """One partition: `offset_bytes` counts from the start of the file, `table_offset_bytes` is the entry's number."""

    type: int
    offset_bytes: int
    size_bytes: int
    table_offset_bytes: int

    @property
    def name(self) -> str:
        return partition_name(self.type)


def partition_name(number: int, *, mobile: bool = False) -> str:
    """The name of a partition type; unknown numbers keep their number."""
    if mobile and number in _HIAI_NAMES:
        return _HIAI_NAMES[number]
    try:
        return PartitionType(number).name
    except ValueError:
        return f"UNKNOWN_{number}"


def table_bytes(count: int, *, wide: bool = True) -> int:
    """Size of a table with `count` entries."""
    return 8 + 24 * count if wide else 4 + 12 * count


def pack_table(entries: Sequence[tuple[int, int]]) -> bytes:
    """A wide table for (type, size) entries that lie back to back."""
    parts = [struct.pack("<II", len(entries), 0)]
    offset = 0
    for number, size in entries:
        parts.append(struct.pack("<IIQQ", number, 0, offset, size))
        offset += size
    return b"".join(parts)


def unpack_entries(data: bytes, count: int, *, wide: bool) -> tuple[list[tuple[int, int, int]], bool]:
    """(type, offset, size) of `count` entries behind the table's head, and whether their padding is zero."""
    if not wide:
        return list(struct.iter_unpack("<III", data[4 : 4 + 12 * count])), True
    rows = list(struct.iter_unpack("<IIQQ", data[8 : 8 + 24 * count]))
    return [(number, offset, size) for number, _, offset, size in rows], not any(row[1] for row in rows)
