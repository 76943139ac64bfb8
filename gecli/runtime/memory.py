"""Simulated device memory of one loaded model: the feature-map arena and the mapped weights."""

from __future__ import annotations

import mmap
import os
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gecli.errors import InputError, RuntimeFault
from gecli.ir.dtype import DataType
from gecli.ir.packing import unpack
from gecli.ir.tensor_desc import Shape

Array = NDArray[Any]
POISON = 0xFF  # NaN in every float type, -1 as an integer
ALIGN_BYTES = 64  # what the widest vector loads want; feature-map offsets are multiples of 512


class Arena:
    """A block of memory that tensors are views of, filled with `fill`. Bounds are checked when a view is made."""

    def __init__(self, size_bytes: int, owner: str, fill: int = 0) -> None:
        try:
            raw = np.zeros(size_bytes + ALIGN_BYTES, dtype=np.uint8)
        except MemoryError as err:
            raise RuntimeFault(
                "G4005",
                f"{size_bytes} bytes of feature-map memory cannot be allocated",
                where=owner,
                kind="RT_OOM",
                do="compile for a smaller batch or input shape",
            ) from err
        if fill:
            raw[:] = fill
        shift = -raw.ctypes.data % ALIGN_BYTES
        self.bytes: Array = raw[shift : shift + size_bytes]
        self.owner = owner

    def view(self, offset: int, dtype: DataType, shape: Shape, where: str) -> Array:
        """The tensor at `offset`. Raises InputError (RT_ADDR_OUT_OF_RANGE) when it is not inside the arena."""
        numpy_type = dtype.numpy
        size = int(np.prod(shape, dtype=np.int64)) * numpy_type.itemsize
        if offset < 0 or offset + size > self.bytes.size:
            raise out_of_range(where, offset, size, self.bytes.size, "feature-map memory")
        return self.bytes[offset : offset + size].view(numpy_type).reshape(shape)


class MappedWeights:
    """The weights partition of an OM, read through a mapping: pages are touched when a kernel reads them.

    With `copy` they are read at once, and the file may change or go away afterwards.
    """

    def __init__(self, path: str, offset_bytes: int, size_bytes: int, *, copy: bool = False) -> None:
        self.size_bytes = size_bytes
        self._start = offset_bytes
        self._map: mmap.mmap | bytes | None = None
        if size_bytes and copy:
            with open(path, "rb") as stream:
                stream.seek(offset_bytes)
                self._map = stream.read(size_bytes)
            self._start = 0
        elif size_bytes:
            handle = os.open(path, os.O_RDONLY)
            try:
                self._map = mmap.mmap(handle, 0, access=mmap.ACCESS_READ)
            finally:
                os.close(handle)

    def view(self, offset: int, dtype: DataType, shape: Shape, where: str) -> Array:
        """The constant at `offset`, read-only. Raises InputError when it is not inside the weights."""
        count = int(np.prod(shape, dtype=np.int64))
        size = dtype.nbytes(count)
        if offset < 0 or offset + size > self.size_bytes:
            raise out_of_range(where, offset, size, self.size_bytes, "the weights")
        if not count or self._map is None:
            return np.zeros(shape, dtype.numpy)
        start = self._start + offset
        return unpack(memoryview(self._map)[start : start + size], dtype, shape)


def out_of_range(where: str, offset: int, size: int, limit: int, space: str) -> InputError:
    return InputError(
        "G4010",
        f"an operand lies outside {space}",
        where=where,
        why=f"offset {offset} + {size} bytes; {space} has {limit} bytes",
        do="compile the model again; the file does not agree with itself",
        kind="RT_ADDR_OUT_OF_RANGE",
        expected=limit,
        actual=offset + size,
    )
