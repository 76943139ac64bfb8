"""HIFLOAT8: the codec against the definition of the format."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gecli.layout import hif8


def encode_one(value: float) -> int:
    return int(hif8.encode(np.array([value], np.float32))[0])


def defined(value: float) -> float:
    """The value that the rounding rule of the format gives, calculated with exact arithmetic."""
    if math.isnan(value) or value == 0:
        return value
    magnitude = abs(value)
    exponent = math.frexp(magnitude)[1] - 1 if not math.isinf(magnitude) else 99
    if exponent < -23:
        return 0.0
    if exponent > 15:
        return math.copysign(math.inf, value)
    if exponent == -23:
        return math.copysign(2.0**-22, value)
    width = abs(exponent)
    bits = 3 if width <= 3 else 2 if width <= 7 else 1 if width <= 15 else 0
    step = 2.0 ** (exponent - bits)
    rounded = math.floor(magnitude / step + 0.5) * step  # half away from zero; exact: powers of two
    return math.copysign(math.inf if rounded > 2.0**15 else rounded, value)


@pytest.mark.parametrize(
    "value,code,decoded",
    [
        (1.0, 0x08, 1.0), (1.0625, 0x09, 1.125), (-2.0, 0x90, -2.0), (0.3, 0x32, 0.3125), (5.0, 0x22, 5.0),
        (20.0, 0x41, 20.0), (100.0, 0x4A, 96.0), (32768.0, 0x6E, 32768.0), (2.0**-22, 0x01, 2.0**-22),
        (0.0, 0x00, 0.0), (-0.0, 0x00, 0.0), (math.inf, 0x6F, math.inf), (-math.inf, 0xEF, -math.inf),
        (1.25 * 2.0**15, 0x6F, math.inf), (1.2499 * 2.0**15, 0x6E, 2.0**15), (1e30, 0x6F, math.inf),
        (2.0**-23, 0x01, 2.0**-22), (2.0**-23 * 0.999, 0x00, 0.0), (-(2.0**-30), 0x00, 0.0),
    ],
)  # fmt: skip
def test_worked_values(value: float, code: int, decoded: float) -> None:
    assert encode_one(value) == code
    assert float(hif8.decode(np.array([code], np.uint8))[0]) == decoded


def test_all_256_codes_are_fixed_points() -> None:
    codes = np.arange(256, dtype=np.uint8)
    assert np.array_equal(hif8.encode(hif8.decode(codes)), codes)


def test_every_nan_becomes_the_one_nan_code() -> None:
    patterns = np.array([0x7FC00000, 0x7F800001, 0xFF800001, 0xFFFFFFFF], np.uint32)
    assert hif8.encode(patterns.view(np.float32)).tolist() == [0x80] * 4


def test_codes_of_one_sign_are_distinct_values() -> None:
    finite = hif8.decode(np.arange(0x6F, dtype=np.uint8))
    assert len(set(finite.tolist())) == 0x6F


@given(st.floats(width=32))
def test_encoding_rounds_as_the_format_defines(value: float) -> None:
    result = float(hif8.decode(np.array([encode_one(value)], np.uint8))[0])
    assert result == defined(value) or (math.isnan(result) and math.isnan(value))


@given(st.floats(min_value=-40000, max_value=40000, width=32))
def test_encoding_rounds_as_the_format_defines_inside_its_range(value: float) -> None:
    assert float(hif8.decode(np.array([encode_one(value)], np.uint8))[0]) == defined(value)


def test_ties_round_away_from_zero_in_every_binade() -> None:
    bodies = hif8.decode(np.array([b for b in range(1, 0x80) if b != 0x6F], np.uint8)).astype(np.float64)
    ordered = np.sort(bodies)
    ties = ((ordered[:-1] + ordered[1:]) / 2).astype(np.float32)
    assert np.array_equal(hif8.decode(hif8.encode(ties))[: len(ties)], ordered[1:].astype(np.float32))


def test_codec_keeps_the_shape_of_its_argument() -> None:
    values = np.ones((2, 3, 4), np.float32)
    assert hif8.decode(hif8.encode(values)).shape == (2, 3, 4)
    assert hif8.encode(values[:, ::2].transpose(2, 1, 0)).shape == (4, 2, 2)
