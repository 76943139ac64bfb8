"""Packed storage of sub-byte elements: two int4 a byte, low nibble first; one-bit elements in little bit order."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from gecli.ir.dtype import DataType

Array = NDArray[Any]


def unpack(data: bytes | memoryview, dtype: DataType, shape: tuple[int, ...]) -> Array:
    """Elements of `dtype` from packed little-endian bytes, as an array of `shape` (read-only where no copy is made).

    Raises ValueError when the byte count does not fit the shape.
    """
    count = int(np.prod(shape, dtype=np.int64)) if shape else 1
    bits = dtype.bits
    if bits is None or bits >= 8:
        array = np.frombuffer(data, dtype=dtype.numpy)
        if array.size != count:
            raise ValueError(f"{len(data)} bytes of {dtype.serial} do not fill shape {list(shape)}")
        return array.reshape(shape)
    raw = np.frombuffer(data, dtype=np.uint8)
    if raw.size != dtype.nbytes(count):
        raise ValueError(f"{len(data)} bytes of {dtype.serial} do not fill shape {list(shape)}")
    lanes = np.unpackbits(raw, bitorder="little")[: count * bits].reshape(count, bits)
    codes = np.zeros(count, dtype=np.uint8)
    for bit in range(bits):
        codes |= lanes[:, bit] << bit
    if dtype in (DataType.INT4, DataType.INT2):
        sign = 1 << (bits - 1)
        codes = ((codes ^ sign).astype(np.int16) - sign).astype(np.int8).view(np.uint8)
        return codes.view(np.int8).astype(dtype.numpy).reshape(shape)
    try:
        target = dtype.numpy
    except ValueError:
        return codes.reshape(shape)
    if dtype in (DataType.UINT1, DataType.UINT2):
        return codes.astype(target).reshape(shape)
    return codes.view(target).reshape(shape)


def pack(array: Array, dtype: DataType) -> bytes:
    """Packed little-endian bytes of `array`, the inverse of `unpack`."""
    bits = dtype.bits
    if bits is None or bits >= 8:
        return np.ascontiguousarray(array, dtype=dtype.numpy).tobytes()
    if dtype in (DataType.INT4, DataType.INT2):
        codes = array.astype(np.int8).view(np.uint8)
    elif dtype in (DataType.UINT1, DataType.UINT2) or array.dtype == np.uint8:
        codes = array.astype(np.uint8)
    else:
        codes = np.ascontiguousarray(array).view(np.uint8)
    lanes = (codes.reshape(-1, 1) >> np.arange(bits, dtype=np.uint8)) & 1
    return np.packbits(lanes.astype(np.uint8).reshape(-1), bitorder="little").tobytes()
