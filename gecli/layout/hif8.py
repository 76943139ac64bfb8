"""HIFLOAT8: tapered eight-bit floats, decoded and encoded by table."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gecli.ir.dtype import DataType

NAN_CODE = 0x80
INF_CODE = 0x6F
MIN_EXPONENT = -22

# First body of each class, width of its exponent field, and of its mantissa below the field.
_CLASSES = ((96, 4, 1), (64, 3, 2), (32, 2, 3), (16, 1, 3), (8, 0, 3))
# Rounding happens on at most four mantissa bits (three kept, one to round), so the top 13 bits of a float32 decide.
_KEY_SHIFT = 19


def decode(codes: NDArray[np.uint8]) -> NDArray[np.float32]:
    """The float32 value of each code."""
    return _decoded()[codes]


def encode(values: NDArray[np.float32]) -> NDArray[np.uint8]:
    """The code nearest to each value, halves away from zero; too large gives infinity, too small zero (unsigned)."""
    values = np.ascontiguousarray(values, dtype=np.float32)
    codes: NDArray[np.uint8] = _encoded()[values.view(np.uint32) >> _KEY_SHIFT]
    # A NaN whose payload lies below the key looks like an infinity there.
    nan = np.isnan(values)
    if nan.any():
        codes[nan] = NAN_CODE
    return codes


def of_numbers(values: NDArray[Any], dtype: DataType) -> NDArray[Any]:
    """Numbers that somebody wrote, as elements of `dtype`: codes of HIFLOAT8, otherwise by numpy's conversion."""
    return encode(values.astype(np.float32)) if dtype is DataType.HIFLOAT8 else values.astype(dtype.numpy)


def _body_value(body: int) -> float:
    if body == 0:
        return 0.0
    if body < 8:
        return 2.0 ** (body + MIN_EXPONENT - 1)
    first, field_bits, mantissa_bits = next(row for row in _CLASSES if body >= row[0])
    field, mantissa = divmod(body - first, 1 << mantissa_bits)
    return float(2.0 ** _exponent(field, field_bits) * (1 + mantissa / (1 << mantissa_bits)))


def _exponent(field: int, bits: int) -> int:
    """Sign in the top bit, magnitude below it with an implicit leading one."""
    if bits == 0:
        return 0
    leading = 1 << (bits - 1)
    negative, rest = divmod(field, leading)
    return -(leading + rest) if negative else leading + rest


@cache
def _decoded() -> NDArray[np.float32]:
    positive = [_body_value(body) for body in range(128)]
    positive[INF_CODE] = float("inf")
    table = np.array(positive + [-value for value in positive], dtype=np.float32)
    table[NAN_CODE] = np.nan
    return _frozen(table)


@cache
def _encoded() -> NDArray[np.uint8]:
    bodies = sorted(range(128), key=_body_value)  # by value; the infinity pattern reads as 1.5 * 2 ** 15, the last
    values = np.array([_body_value(body) for body in bodies])
    keys = np.arange(1 << (32 - _KEY_SHIFT), dtype=np.uint32)
    magnitudes = ((keys & 0xFFF) << _KEY_SHIFT).view(np.float32)
    magnitudes[np.isnan(magnitudes)] = 0  # replaced below and in `encode`
    # Ties go up: the midpoint itself already belongs to the larger code.
    midpoints = (values[:-1] + values[1:]) / 2
    codes = np.array(bodies, dtype=np.uint8)[np.searchsorted(midpoints, magnitudes, side="right")]
    codes[(codes != 0) & (keys >> 12 == 1)] |= 0x80
    codes[(keys & 0xFFF) > 0xFF0] = NAN_CODE
    return _frozen(codes)


def _frozen(table: NDArray[Any]) -> NDArray[Any]:
    table.flags.writeable = False
    return table
