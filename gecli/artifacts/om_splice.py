"""An OM file of any writer with another MODEL_DEF: every other partition stays byte for byte (cache.md 4.4)."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import BinaryIO

from gecli.artifacts.header import HEADER_BYTES
from gecli.artifacts.om_file import OmFile
from gecli.artifacts.om_writer import OmImage
from gecli.artifacts.partition_table import PartitionType, table_bytes
from gecli.ir.dtype import DataType
from gecli.ir.tensor_desc import TensorDesc
from gecli.ir.weight import FileSlice, Weight
from gecli.wire.om_faults import om_error

LENGTH_AT, MODEL_LENGTH_AT = 76, 184  # of the fields in the header, 4 and 8 bytes


class SplicedImage(OmImage):
    """A complete file whose `chunks` begin with its header, which has no digest of gecli."""

    __slots__ = ()

    @property
    def size_bytes(self) -> int:
        return sum(chunk.nbytes if isinstance(chunk, Weight) else len(chunk) for chunk in self.chunks)

    def write(self, stream: BinaryIO) -> None:
        for block in self.payload():
            stream.write(block)

    def write_unseekable(self, stream: BinaryIO) -> None:
        self.write(stream)


def spliced(om: OmFile, edit: Callable[[bytes], bytes]) -> OmImage | None:
    """The file with `edit` of its MODEL_DEF; None when that changes nothing. Raises InputError."""
    om.require_runnable()
    part = om.root.partition(PartitionType.MODEL_DEF)
    if part is None:
        raise om_error("no-model-def", om.path, "it has no MODEL_DEF", om.base)
    old = om.read(part)
    new = edit(old)
    if new == old:
        return None
    count, grown = len(om.root.partitions), len(new) - len(old)
    table_size = table_bytes(count, wide=om.wide)
    front = bytearray(om.slice(om.base, HEADER_BYTES + table_size))
    at, layout = (MODEL_LENGTH_AT, "<Q") if om.header.model_length else (LENGTH_AT, "<I")
    _add(front, at, layout, grown)
    start = part.offset_bytes - om.base - HEADER_BYTES - table_size  # as the table counts
    first, step, number, place, size = (8, 24, "<Q", 8, 16) if om.wide else (4, 12, "<I", 4, 8)
    for index, each in enumerate(om.root.partitions):
        row = HEADER_BYTES + first + step * index
        if each is part:
            _add(front, row + size, number, grown)
        elif struct.unpack_from(number, front, row + place)[0] > start:
            _add(front, row + place, number, grown)
    begin, end = om.base + len(front), part.offset_bytes + part.size_bytes
    chunks = (
        bytes(front),
        _slice(om.path, begin, part.offset_bytes),
        new,
        _slice(om.path, end, om.base + om.size_bytes),
    )
    return SplicedImage(om.header, chunks, ())


def unchanged(om: OmFile) -> OmImage:
    """The file as it is."""
    return SplicedImage(om.header, (_slice(om.path, om.base, om.base + om.size_bytes),), ())


def _add(data: bytearray, at: int, layout: str, amount: int) -> None:
    struct.pack_into(layout, data, at, struct.unpack_from(layout, data, at)[0] + amount)


def _slice(path: str, begin: int, end: int) -> Weight | bytes:
    if begin == end:
        return b""
    return Weight(TensorDesc(DataType.UINT8, (end - begin,)), FileSlice(path, begin, end - begin))
