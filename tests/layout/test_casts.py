"""Casts: rounding, saturation, NaN, and which pairs a road may contain."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from gecli.ir.dtype import DataType
from gecli.layout.cast import HOST_PAIRS, LOSSLESS_PAIRS, Mode, can_cast, cast, exact_embedding
from gecli.layout.transfer_error import TransferError

D = DataType
Array = NDArray[Any]
INF, NAN = float("inf"), float("nan")
COMPUTED = [t for t in D if can_cast(t, D.FLOAT)]


def values(data: list[Any], dtype: DataType) -> Array:
    return np.array(data, dtype.numpy)


def as_list(array: Array) -> list[float]:
    return [float(x) for x in array]


def all_halves() -> Array:
    return np.arange(65536, dtype=np.uint16).view(np.float16)


def test_there_are_20_host_pairs_and_none_with_bf16_or_bool() -> None:
    assert len(HOST_PAIRS) == 20
    assert {t for pair in HOST_PAIRS for t in pair} == {
        D.FLOAT, D.FLOAT16, D.INT32, D.UINT8, D.INT8, D.INT64, D.DOUBLE, D.HIFLOAT8,
    }  # fmt: skip
    assert not any(src == dst for src, dst in HOST_PAIRS)


def test_the_lossless_host_pairs_are_those_that_keep_every_value() -> None:
    assert {pair for pair in HOST_PAIRS if exact_embedding(*pair)} == LOSSLESS_PAIRS


def test_all_65536_halves_survive_float_and_back_with_quiet_nans() -> None:
    bits = np.arange(65536, dtype=np.uint16)
    wide = cast(all_halves(), D.FLOAT16, D.FLOAT)
    expected = bits | np.where(np.isnan(all_halves()), 0x200, 0).astype(np.uint16)
    assert np.array_equal(cast(wide, D.FLOAT, D.FLOAT16).view(np.uint16), expected)


def test_all_65536_halves_have_their_exact_value_as_float() -> None:
    wide = cast(all_halves(), D.FLOAT16, D.FLOAT)
    for pattern in range(65536):
        exponent, mantissa = pattern >> 10 & 31, pattern & 1023
        if exponent == 31:
            assert np.isinf(wide[pattern]) if mantissa == 0 else np.isnan(wide[pattern])
            continue
        magnitude = mantissa * 2.0**-24 if exponent == 0 else (1024 + mantissa) * 2.0 ** (exponent - 25)
        assert float(wide[pattern]) == (-magnitude if pattern >> 15 else magnitude)


@pytest.mark.parametrize(
    "value,ieee,saturated",
    [
        (65519.0, 65504.0, 65504.0), (65520.0, INF, 65504.0), (131071.0, INF, 65504.0), (131072.0, INF, 65504.0),
        (-65520.0, -INF, -65504.0), (INF, INF, 65504.0), (-INF, -INF, -65504.0), (2.0**-25, 0.0, 0.0),
        (2.0**-25 * 1.0001, 2.0**-24, 2.0**-24),
        (1.0 + 2.0**-11, 1.0, 1.0), (1.0 + 3 * 2.0**-11, 1.001953125, 1.001953125),
    ],
)  # fmt: skip
def test_float_to_half_at_the_corners(value: float, ieee: float, saturated: float) -> None:
    array = values([value], D.FLOAT)
    assert as_list(cast(array, D.FLOAT, D.FLOAT16)) == [ieee]
    assert as_list(cast(array, D.FLOAT, D.FLOAT16, "saturate")) == [saturated]


@pytest.mark.parametrize("mode", ["ieee", "saturate"])
def test_nan_becomes_a_quiet_half_with_its_sign(mode: Mode) -> None:
    patterns = np.array([0x7F800001, 0xFF800001, 0x7FC00000, 0x7F802000], np.uint32)
    halves = cast(patterns.view(np.float32), D.FLOAT, D.FLOAT16, mode).view(np.uint16)
    assert halves.tolist() == [0x7E00, 0xFE00, 0x7E00, 0x7E01]


@given(st.lists(st.floats(width=32, allow_nan=False), min_size=1, max_size=30))
def test_float_to_half_agrees_with_numpy(data: list[float]) -> None:
    array = values(data, D.FLOAT)
    with np.errstate(over="ignore"):
        expected = array.astype(np.float16)
    assert np.array_equal(cast(array, D.FLOAT, D.FLOAT16), expected)


@pytest.mark.parametrize(
    "src,data,dst,expected",
    [
        (D.INT32, [15272], D.FLOAT16, [15272.0]),
        (D.INT32, [65519, 65520, -70000, 2049, 2051], D.FLOAT16, [65504.0, INF, -INF, 2048.0, 2052.0]),
        (D.FLOAT16, [2.5, -2.5, 3.99, INF, -INF, NAN], D.INT32, [2, -2, 3, 2**31 - 1, -(2**31), 0]),
        (D.FLOAT, [1.9, -1.9, 3e9, -3e9, NAN, INF], D.INT32, [1, -1, 2**31 - 1, -(2**31), 0, 2**31 - 1]),
        (D.DOUBLE, [2147483647.9, 2147483648.0, -2147483648.9], D.INT32, [2**31 - 1, 2**31 - 1, -(2**31)]),
        (D.DOUBLE, [9.3e18, -9.3e18, NAN, 1e18], D.INT64, [2**63 - 1, -(2**63), 0, 10**18]),
        (D.FLOAT, [2e19, -1.0, NAN, 1.5], D.UINT64, [2**64 - 1, 0, 0, 1]),
        (D.FLOAT, [5e9, -1.0, 4294967040.0], D.UINT32, [2**32 - 1, 0, 4294967040]),
        (D.FLOAT, [300.0, -300.0, NAN, -1.5], D.INT8, [127, -128, 0, -1]),
        (D.FLOAT, [300.0, -1.0, 255.9], D.UINT8, [255, 0, 255]),
        (D.BF16, [300.0, -1.5, NAN], D.INT8, [127, -1, 0]),
        (D.INT32, [300, -1, 128], D.INT8, [44, -1, -128]),
        (D.INT32, [300, -1, 128], D.UINT8, [44, 255, 128]),
        (D.INT64, [2**32 + 5, -1, 2**31], D.INT32, [5, -1, -(2**31)]),
        (D.INT32, [7, 8, 100, -9], D.INT4, [7, 7, 7, -8]),
        (D.UINT8, [200, 3], D.INT4, [7, 3]),
        (D.FLOAT, [7.9, 8.0, -9.0, NAN], D.INT4, [7, 7, -8, 0]),
        (D.INT4, [7, -8], D.FLOAT, [7.0, -8.0]),
        (D.INT4, [7, -8], D.INT32, [7, -8]),
        (D.INT32, [5, -1, 1], D.UINT1, [1, 0, 1]),
        (D.INT32, [5, -5, 1], D.INT2, [1, -2, 1]),
        (D.INT32, [16777217], D.FLOAT, [16777216.0]),
        (D.INT64, [2**53 + 1], D.DOUBLE, [2.0**53]),
        (D.FLOAT, [0.0, -0.0, 0.5, NAN, INF], D.BOOL, [0, 0, 1, 1, 1]),
        (D.BF16, [0.0, 0.5, NAN], D.BOOL, [0, 1, 1]),
        (D.INT32, [0, 256, -1], D.BOOL, [0, 1, 1]),
        (D.COMPLEX64, [0, 1j, 1], D.BOOL, [0, 1, 1]),
        (D.BOOL, [True, False], D.FLOAT16, [1.0, 0.0]),
        (D.BOOL, [True, False], D.INT4, [1, 0]),
        (D.FLOAT, [1e9, INF, -INF, 449.0, 3.0], D.FLOAT8_E4M3FN, [448.0, 448.0, -448.0, 448.0, 3.0]),
        (D.FLOAT, [1e9, -INF, 57344.0, 3.0], D.FLOAT8_E5M2, [57344.0, -57344.0, 57344.0, 3.0]),
        (D.FLOAT, [1e9, -INF, NAN, 2.5], D.FLOAT4_E2M1, [6.0, -6.0, 0.0, 2.0]),
        (D.FLOAT, [1e9, NAN, 1.1], D.FLOAT6_E2M3, [7.5, 0.0, 1.125]),
        (D.INT32, [100000], D.FLOAT8_E5M2, [57344.0]),
        (D.COMPLEX64, [1 + 2j], D.FLOAT, [1.0]),
        (D.FLOAT, [1.5], D.COMPLEX128, [1.5]),
    ],
)  # fmt: skip
def test_casts_of_single_values(src: DataType, data: list[Any], dst: DataType, expected: list[float]) -> None:
    result = cast(values(data, src), src, dst)
    assert result.dtype == dst.numpy
    read = int if not dst.is_float else float
    assert [complex(x) if dst is D.COMPLEX128 else read(x) for x in result] == expected


def test_the_half_of_15272_has_the_bits_of_the_documents() -> None:
    assert cast(values([15272], D.INT32), D.INT32, D.FLOAT16).view(np.uint16).tolist() == [0x7375]


def test_int_to_half_saturates_on_request() -> None:
    assert as_list(cast(values([70000, -70000], D.INT32), D.INT32, D.FLOAT16, "saturate")) == [65504.0, -65504.0]


def test_narrow_floats_overflow_as_their_type_does_when_not_clamped() -> None:
    array = values([1e9], D.FLOAT)
    assert np.isnan(cast(array, D.FLOAT, D.FLOAT8_E4M3FN, clamp_narrow=False).astype(np.float32)[0])
    assert np.isinf(cast(array, D.FLOAT, D.FLOAT8_E5M2, clamp_narrow=False).astype(np.float32)[0])


def test_narrow_floats_keep_nan_where_they_have_one() -> None:
    for dtype in (D.FLOAT8_E4M3FN, D.FLOAT8_E5M2):
        assert np.isnan(cast(values([NAN], D.FLOAT), D.FLOAT, dtype).astype(np.float32)[0])


def bf16_bits(patterns: list[int]) -> list[int]:
    array = np.array(patterns, np.uint32).view(np.float32)
    return [int(x) for x in cast(array, D.FLOAT, D.BF16).view(np.uint16)]


def test_float_to_bf16_corners() -> None:
    assert bf16_bits([0x3F808000, 0x3F818000, 0x3F808001, 0x7F7FFFFF]) == [0x3F80, 0x3F82, 0x3F81, 0x7F80]
    assert bf16_bits([0x7F800001, 0xFFC12345, 0x7F800000]) == [0x7FC0, 0xFFC0, 0x7F80]


@given(st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=30))
def test_float_to_bf16_is_nearest_even_by_bits(patterns: list[int]) -> None:
    def rule(u: int) -> int:
        if u & 0x7FFFFFFF > 0x7F800000:
            return u >> 16 & 0x8000 | 0x7FC0
        return (u + 0x7FFF + (u >> 16 & 1)) >> 16 & 0xFFFF

    assert bf16_bits(patterns) == [rule(u) for u in patterns]


def test_bf16_to_float_is_exact_for_all_patterns() -> None:
    bits = np.arange(65536, dtype=np.uint16)
    wide = cast(bits.view(ml_dtypes.bfloat16), D.BF16, D.FLOAT)
    assert np.array_equal(wide.view(np.uint32), bits.astype(np.uint32) << 16)


def nearest(value: Fraction, dtype: DataType, candidates: NDArray[np.float32]) -> list[float]:
    """The candidates at the least distance from `value`."""
    distances = [abs(Fraction(float(c)) - value) for c in candidates]
    least = min(distances)
    return [float(c) for c, d in zip(candidates, distances) if d == least]


@pytest.mark.parametrize("dst,step", [(D.BF16, 2.0**-7), (D.FLOAT16, 2.0**-10)])
@pytest.mark.parametrize("sign", [1, -1])
def test_double_rounds_once(dst: DataType, step: float, sign: int) -> None:
    # Just above a tie: through float32 it would become the tie and go down to the even neighbour.
    above, tie, below = 1 + step / 2 + 2.0**-40, 1 + step / 2, 1 + 3 * step / 2 - 2.0**-40
    result = cast(values([sign * above, sign * tie, sign * below], D.DOUBLE), D.DOUBLE, dst)
    assert as_list(result) == [sign * (1 + step), sign * 1.0, sign * (1 + step)]


@given(st.integers(-(2**63), 2**63 - 1))
def test_integers_round_once_to_bf16(number: int) -> None:
    result = int(float(cast(values([number], D.INT64), D.INT64, D.BF16)[0]))
    shift = max(abs(number).bit_length() - 8, 0)
    quotient, rest = divmod(abs(number), 1 << shift)
    half = 1 << shift >> 1
    up = shift > 0 and (rest > half or (rest == half and quotient & 1 == 1))
    assert abs(result) == (quotient + up) << shift


@given(st.floats(min_value=-40000, max_value=40000))
def test_double_rounds_once_to_hif8(value: float) -> None:
    direct = int(cast(values([value], D.DOUBLE), D.DOUBLE, D.HIFLOAT8)[0])
    candidates = cast(np.arange(256, dtype=np.uint8), D.HIFLOAT8, D.FLOAT)
    finite = candidates[np.isfinite(candidates)]
    decoded = float(candidates[direct])
    if abs(value) < 1.25 * 2.0**15:
        assert decoded in nearest(Fraction(value), D.HIFLOAT8, finite)
    else:
        assert np.isinf(decoded)


def test_double_to_bf16_overflows_to_infinity_and_keeps_nan() -> None:
    result = cast(values([1e300, -1e300, 3.4e38, NAN], D.DOUBLE), D.DOUBLE, D.BF16).astype(np.float32)
    assert result[0] == INF and result[1] == -INF and result[2] == INF and np.isnan(result[3])


@pytest.mark.parametrize("src", COMPUTED, ids=lambda t: t.name)
@pytest.mark.parametrize("dst", COMPUTED, ids=lambda t: t.name)
def test_every_computed_pair_casts_and_keeps_shape_and_type(src: DataType, dst: DataType) -> None:
    for shape in ((), (0,), (2, 3)):
        result = cast(np.ones(shape, src.numpy), src, dst)
        assert isinstance(result, np.ndarray)
        assert (result.shape, result.dtype) == (shape, dst.numpy)


def sample(src: DataType) -> Array:
    """Every value of a narrow type, the corners of a wide one."""
    bits = src.bits or 0
    if src is D.BOOL:
        return np.array([False, True])
    if bits < 8:
        codes = np.arange(1 << bits, dtype=np.uint8)
        if src.is_integer:
            low = -(1 << (bits - 1)) if src in (D.INT4, D.INT2) else 0
            return (codes.astype(np.int8) + low).astype(src.numpy)
        return codes.view(src.numpy)
    if bits <= 16:
        return np.arange(1 << bits, dtype=f"u{bits // 8}").view(src.numpy)
    if src.is_float:
        info = np.finfo(src.numpy)
        corners = [info.max, info.min, info.tiny, info.smallest_subnormal, 1 + info.eps, NAN, INF, -0.0]
        return np.array(corners, src.numpy)
    limits = np.iinfo(src.numpy)
    return np.array([limits.max, limits.min, limits.max - 1, 1], src.numpy)


REAL = [t for t in COMPUTED if t not in (D.COMPLEX32, D.COMPLEX64, D.COMPLEX128)]


@pytest.mark.parametrize("src", REAL, ids=lambda t: t.name)
@pytest.mark.parametrize("dst", REAL, ids=lambda t: t.name)
def test_an_exact_embedding_survives_the_way_back_and_its_denial_is_true(src: DataType, dst: DataType) -> None:
    array = sample(src)
    back = cast(cast(array, src, dst), dst, src)
    wide, wide_back = (cast(a, src, D.DOUBLE) if src.is_float else a for a in (array, back))
    if src.is_float:
        kept = np.array_equal(wide, wide_back, equal_nan=True) and np.array_equal(
            np.signbit(wide[~np.isnan(wide)]), np.signbit(wide_back[~np.isnan(wide)])
        )
    else:
        kept = np.array_equal(wide, wide_back)
    if exact_embedding(src, dst):
        assert kept
    elif dst.is_float and src.is_float:
        assert not kept


def test_hif8_codes_survive_every_wider_float() -> None:
    codes = np.arange(256, dtype=np.uint8)
    for dtype in (D.FLOAT, D.FLOAT16, D.DOUBLE):
        assert np.array_equal(cast(cast(codes, D.HIFLOAT8, dtype), dtype, D.HIFLOAT8), codes)


def test_equal_types_return_the_array_itself() -> None:
    array = values([1], D.FLOAT)
    assert cast(array, D.FLOAT, D.FLOAT) is array


def test_casts_do_not_touch_their_argument() -> None:
    for src, dst in [(D.FLOAT, D.INT32), (D.FLOAT, D.FLOAT8_E4M3FN), (D.DOUBLE, D.BF16), (D.FLOAT, D.FLOAT4_E2M1)]:
        array = values([1e30, NAN, 1.5], src)
        array.flags.writeable = False
        cast(array, src, dst)


@pytest.mark.parametrize("src,dst", [(D.STRING, D.FLOAT), (D.FLOAT, D.HIFLOAT4), (D.RESOURCE, D.INT64)])
def test_types_that_are_only_moved_are_not_cast(src: DataType, dst: DataType) -> None:
    assert not can_cast(src, dst)
    with pytest.raises(TransferError) as caught:
        cast(np.zeros(1, np.float32), src, dst)
    assert (caught.value.kind, caught.value.reason) == ("145022", "CAST_PAIR")
