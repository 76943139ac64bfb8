"""Casts between data types: the one implementation behind the Cast kernel, constant folding and trans roads.

Two implementations are how a variable with a folded Cast and one without would start to differ, so nothing else in
gecli converts elements.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gecli.ir.dtype import DataType
from gecli.layout import hif8
from gecli.layout.transfer_error import CAST_PAIR, TransferError

Array = NDArray[Any]
Mode = Literal["ieee", "saturate"]

_D = DataType
# GE's host casts (IsTransDataTypeSupport): the only Casts that may be folded into a variable.
HOST_PAIRS: frozenset[tuple[DataType, DataType]] = frozenset(
    (src, dst)
    for src, targets in {
        _D.FLOAT: (_D.FLOAT16, _D.INT32, _D.HIFLOAT8),
        _D.FLOAT16: (_D.FLOAT, _D.INT32, _D.HIFLOAT8),
        _D.INT32: (_D.FLOAT, _D.FLOAT16, _D.UINT8, _D.INT8, _D.INT64, _D.DOUBLE),
        _D.UINT8: (_D.FLOAT, _D.INT32),
        _D.INT8: (_D.FLOAT, _D.INT32),
        _D.INT64: (_D.INT32,),
        _D.DOUBLE: (_D.INT32,),
        _D.HIFLOAT8: (_D.FLOAT, _D.FLOAT16),
    }.items()
    for dst in targets
)
# Host casts that keep every value: what --strict-variable-cast lets through.
LOSSLESS_PAIRS: frozenset[tuple[DataType, DataType]] = frozenset(
    (
        (_D.INT8, _D.INT32),
        (_D.INT8, _D.FLOAT),
        (_D.UINT8, _D.INT32),
        (_D.UINT8, _D.FLOAT),
        (_D.INT32, _D.INT64),
        (_D.INT32, _D.DOUBLE),
        (_D.FLOAT16, _D.FLOAT),
        (_D.HIFLOAT8, _D.FLOAT),
        (_D.HIFLOAT8, _D.FLOAT16),
    )
)

_COMPLEX = frozenset((_D.COMPLEX32, _D.COMPLEX64, _D.COMPLEX128))
_INTEGERS = frozenset(t for t in _D if t.is_integer) | frozenset(
    (_D.QINT8, _D.QINT16, _D.QINT32, _D.QUINT8, _D.QUINT16, _D.DUAL_SUB_INT8, _D.DUAL_SUB_UINT8)
)
_FLOATS = frozenset(t for t in _D if t.is_float) - {_D.HIFLOAT4, _D.FLOAT4_E1M2}  # those two are only moved
_SUB_BYTE_INTEGERS = frozenset((_D.INT4, _D.INT2, _D.UINT2, _D.UINT1))
_LARGEST: dict[DataType, float] = {
    _D.FLOAT8_E5M2: 57344.0,
    _D.FLOAT8_E4M3FN: 448.0,
    _D.FLOAT8_E8M0: 2.0**127,
    _D.FLOAT6_E3M2: 28.0,
    _D.FLOAT6_E2M3: 7.5,
    _D.FLOAT4_E2M1: 6.0,
}
_NARROW_FLOATS = frozenset(_LARGEST)
_WITHOUT_NAN = frozenset((_D.FLOAT6_E3M2, _D.FLOAT6_E2M3, _D.FLOAT4_E2M1))
_NUMBERS = _INTEGERS | _FLOATS | _COMPLEX | {_D.BOOL}
FLOAT16_MAX = 65504.0


def can_cast(src: DataType, dst: DataType) -> bool:
    """True when `cast` converts between these types at run time (the road rule is `HOST_PAIRS`)."""
    return src == dst or (src in _NUMBERS and dst in _NUMBERS)


def cast(array: Array, src: DataType, dst: DataType, mode: Mode = "ieee", *, clamp_narrow: bool = True) -> Array:
    """The elements of `array`, of type `src`, as `dst`; `array` itself when the types are equal.

    Floats round to the nearest, halves to even, in one step; floats to integers truncate, saturate and turn NaN
    into 0; integers wrap, but saturate at 4 bits and below. In `saturate` mode float16 results stop at +-65504.
    Narrow floats stop at their largest value unless `clamp_narrow` is off (ONNX Cast with saturate = 0). Raises
    TransferError for types that cannot be computed on.
    """
    if src == dst:
        return array
    if not can_cast(src, dst):
        raise TransferError.because(
            CAST_PAIR, f"{src.serial} cannot be cast to {dst.serial}", expected="two numeric types", actual=src.serial
        )
    # numpy turns arrays without dims into scalars on the way; one dim is kept until the end.
    dims = array if array.ndim else array.reshape(1)
    with np.errstate(all="ignore"):
        return _converted(dims, src, dst, mode, clamp_narrow).reshape(array.shape)


def exact_embedding(src: DataType, dst: DataType) -> bool:
    """True when casting to `dst` and back gives the same element for every value of `src`, infinities included."""
    if src == dst:
        return True
    if src is _D.BOOL:
        return dst in _INTEGERS or (dst in _FLOATS and dst is not _D.FLOAT8_E8M0)
    if src in _INTEGERS and dst in _INTEGERS:
        low, high = _limits(src)
        return _limits(dst)[0] <= low and high <= _limits(dst)[1]
    if dst not in _RANGE:
        return False
    to = _RANGE[dst]
    if src in _INTEGERS:
        low, high = _limits(src)
        bits = max((-low - 1).bit_length(), high.bit_length())
        return to.signed and to.smallest <= 0 and bits <= to.precision and max(-low, high) <= 2.0**to.largest
    if src not in _RANGE or src is _D.FLOAT8_E5M2:  # its infinities are clamped on the way back
        return False
    of = _RANGE[src]
    return (
        of.precision <= to.precision
        and to.smallest <= of.smallest
        and of.largest <= to.largest
        and (to.nan or not of.nan)
        and (to.inf or not of.inf)
        and (to.negative_zero or not of.negative_zero)
        and (to.signed or not of.signed)
    )


def _converted(array: Array, src: DataType, dst: DataType, mode: Mode, clamp_narrow: bool) -> Array:
    if src is _D.HIFLOAT8:
        array, src = hif8.decode(array), _D.FLOAT
    if dst in _COMPLEX:
        return _computable(array, src).astype(np.complex128).astype(dst.numpy)
    if dst is _D.BOOL:
        return np.not_equal(_computable(array, src), 0)
    if src in _COMPLEX:
        array, src = _computable(array, src).real, _D.DOUBLE if src is _D.COMPLEX128 else _D.FLOAT
    if dst in _FLOATS:
        return _to_float(array, src, dst, mode, clamp_narrow)
    return _to_integer(array, src, dst)


class _FloatRange(NamedTuple):
    """What a float type can hold: significand bits, exponents of its smallest and largest power of two, specials."""

    precision: int
    smallest: int
    largest: int
    inf: bool = True
    nan: bool = True
    signed: bool = True
    negative_zero: bool = True


_RANGE: dict[DataType, _FloatRange] = {
    _D.DOUBLE: _FloatRange(53, -1074, 1023),
    _D.FLOAT: _FloatRange(24, -149, 127),
    _D.FLOAT16: _FloatRange(11, -24, 15),
    _D.BF16: _FloatRange(8, -133, 127),
    _D.HIFLOAT8: _FloatRange(4, -22, 15, negative_zero=False),
    _D.FLOAT8_E5M2: _FloatRange(3, -16, 15),
    _D.FLOAT8_E4M3FN: _FloatRange(4, -9, 8, inf=False),
    _D.FLOAT8_E8M0: _FloatRange(1, -127, 127, inf=False, signed=False, negative_zero=False),
    _D.FLOAT6_E3M2: _FloatRange(3, -4, 4, inf=False, nan=False),
    _D.FLOAT6_E2M3: _FloatRange(4, -3, 2, inf=False, nan=False),
    _D.FLOAT4_E2M1: _FloatRange(2, -1, 2, inf=False, nan=False),
}


def _limits(dtype: DataType) -> tuple[int, int]:
    bits = dtype.bits or 0
    unsigned = dtype.name.startswith(("U", "QU")) or dtype is _D.DUAL_SUB_UINT8
    return (0, (1 << bits) - 1) if unsigned else (-(1 << (bits - 1)), (1 << (bits - 1)) - 1)


def _computable(array: Array, src: DataType) -> Array:
    """`array` in a type that numpy itself computes with, without loss."""
    if src in (_D.BF16, *_NARROW_FLOATS):
        return array.astype(np.float32)
    if src is _D.COMPLEX32:
        return array.astype(np.complex64)
    return array.astype(np.int8) if src in _SUB_BYTE_INTEGERS else array


def _to_integer(array: Array, src: DataType, dst: DataType) -> Array:
    values = _computable(array, src)
    low, high = _limits(dst)
    if src in _FLOATS:
        values = _truncated(values, low, high)
    elif dst in _SUB_BYTE_INTEGERS and src is not _D.BOOL:
        # ml_dtypes would wrap; four bits and below saturate, as a quantiser wants.
        values = np.clip(values, low, high) if values.dtype.kind == "i" else np.minimum(values, high)
    if dst in _SUB_BYTE_INTEGERS:
        values = values.astype(np.uint8 if low == 0 else np.int8)
    return values.astype(dst.numpy)


def _truncated(values: Array, low: int, high: int) -> Array:
    """Floats toward zero as integers of the range, saturated, NaN as 0."""
    small = low >= -(1 << 31) and high < (1 << 31)
    kind: Any = np.int32 if small else np.int64 if high < (1 << 63) else np.uint64
    # Most tensors are in range; a NaN fails the comparison. Python compares a float with an integer exactly.
    if values.size and low - 1 < float(values.min()) and float(values.max()) < high + 1:
        return values.astype(kind)
    exact: Array = np.trunc(values.astype(np.float64))
    exact[np.isnan(exact)] = 0
    if small:  # float64 holds these limits
        return np.clip(exact, low, high, out=exact).astype(kind)
    # float(high) may round up past the limit, so the edges are compared, not clipped.
    over, under = exact >= float(high), exact <= float(low)
    result = np.where(over | under, 0, exact).astype(kind)
    result[over] = high
    result[under] = low
    return result


def _to_float(array: Array, src: DataType, dst: DataType, mode: Mode, clamp_narrow: bool) -> Array:
    if dst is _D.DOUBLE:
        return _computable(array, src).astype(np.float64)
    if dst is _D.FLOAT:
        return _half_to_float(array) if src is _D.FLOAT16 else array.astype(np.float32)
    if dst is _D.FLOAT16:
        half = _to_half(array, src)
        return _clamped(half, FLOAT16_MAX) if mode == "saturate" else half
    values = _to_float32_odd(array, src)
    if dst is _D.BF16:
        return values.astype(dst.numpy)
    if dst is _D.HIFLOAT8:
        return hif8.encode(values)
    return _to_narrow(values, dst, clamp_narrow)


def _to_narrow(values: Array, dst: DataType, clamp: bool) -> Array:
    if dst in _WITHOUT_NAN:
        values = np.where(np.isnan(values), np.float32(0), values)
    elif not clamp:
        return values.astype(dst.numpy)
    return _clamped(values, _LARGEST[dst]).astype(dst.numpy)


def _clamped(values: Array, largest: Any) -> Array:
    """Limited to +-largest with NaN kept."""
    bound = values.dtype.type(largest)
    return np.clip(values, -bound, bound)


def _half_to_float(half: Array) -> Array:
    """Exact. NaN bits are set here, because the processor's conversion quiets them and numpy's loop does not."""
    values = half.astype(np.float32)
    bits = np.asarray(half, order="C").view(np.uint16)
    nan = (bits & 0x7FFF) > 0x7C00
    if nan.any():
        wide = bits[nan].astype(np.uint32)
        values.view(np.uint32)[nan] = (wide & 0x8000) << 16 | 0x7FC00000 | (wide & 0x3FF) << 13
    return values


def _to_half(array: Array, src: DataType) -> Array:
    if src is _D.FLOAT:
        return _float_to_half(array)
    if src is _D.DOUBLE:
        return _canonical_half_nan(array.astype(np.float16))
    if src in _INTEGERS:
        # Exact in float64 up to 53 bits; above that every value is an infinity in float16 anyway.
        return _computable(array, src).astype(np.float64).astype(np.float16)
    return _float_to_half(array.astype(np.float32))


def _float_to_half(values: Array) -> Array:
    half = values.astype(np.float16)
    bits = half.view(np.uint16)
    nan = (bits & 0x7FFF) > 0x7C00
    if nan.any():
        wide = np.ascontiguousarray(values).view(np.uint32)[nan]
        bits[nan] = ((wide >> 16) & 0x8000 | 0x7E00 | (wide >> 13) & 0x3FF).astype(np.uint16)
    return half


def _canonical_half_nan(half: Array) -> Array:
    bits = half.view(np.uint16)
    nan = (bits & 0x7FFF) > 0x7C00
    if nan.any():
        bits[nan] = bits[nan] & 0x8000 | 0x7E00
    return half


def _to_float32_odd(array: Array, src: DataType) -> Array:
    """float32 values from which rounding to at most 22 bits equals rounding `array` itself, in one step.

    An inexact value is cut off and its last bit set (round to odd), so it can neither sit on a tie nor cross one.
    """
    if src in _INTEGERS:
        values = _to_float64_odd(_computable(array, src))
    elif src is _D.DOUBLE:
        values = np.ascontiguousarray(array)
    else:
        return np.ascontiguousarray(array, dtype=np.float32)
    near = np.ascontiguousarray(values.astype(np.float32))
    back = near.astype(np.float64)
    inexact = (back != values) & ~np.isnan(values)
    if inexact.any():
        bits = near.view(np.uint32)
        bits[inexact] -= (np.abs(back) > np.abs(values))[inexact]
        bits[inexact] |= 1
    return near


def _to_float64_odd(values: Array) -> Array:
    if values.dtype.itemsize < 8 or values.dtype.kind == "f":
        return values.astype(np.float64)
    big = values if values.dtype.kind == "u" else np.abs(values).view(np.uint64)
    if not (big >> 53).any():
        return values.astype(np.float64)
    # 64 bits minus 11 fit; the dropped ones stay as a sticky last bit.
    odd = ((values >> 11) | ((values & 0x7FF) != 0)) << 11
    return np.where(big >> 53 != 0, odd, values).astype(np.float64)
