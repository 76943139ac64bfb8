"""Activations, unary and binary mathematics, comparisons, casts: against onnxruntime and closed forms."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from gecli.ir.dtype import DataType
from gecli.ops.operator import REQUIRED
from gecli.ops.registry import find, load_all
from tests.ops.onnx_judge import Array, apply, assert_close, judge

RNG = np.random.default_rng(0)
X = (RNG.standard_normal((2, 3, 4, 5)) * 3).astype(np.float32)
ODD = X.copy()
ODD[0, 0, 0, :3] = [np.nan, np.inf, -np.inf]
UNIT = RNG.uniform(0.05, 0.95, (3, 4)).astype(np.float32)
INTS = RNG.integers(-7, 8, (3, 4)).astype(np.int32)
DIVISORS = np.array([1, -2, 3, -1], np.int32)
YES, NO = RNG.random((3, 4)) > 0.5, RNG.random(4) > 0.5

EVERYWHERE = [
    "Relu",
    "Sigmoid",
    "LeakyRelu",
    "Tanh",
    "Elu",
    "Selu",
    "HardSigmoid",
    "Softplus",
    "Softsign",
    "Abs",
    "Neg",
    "Ceil",
    "Floor",
    "Sign",
    "Round",
    "Cos",
    "Sin",
    "Tan",
    "Sinh",
    "Cosh",
    "Asinh",
    "Atan",
    "Exp",
    "Erf",
]


@pytest.mark.parametrize("op", EVERYWHERE)
def test_a_unary_operator_gives_what_onnxruntime_gives(op: str) -> None:
    for x in (X, X[:0], X[0, 0, 0, 0]):
        judge(op, [x])


@pytest.mark.parametrize("op", ["Relu", "Abs", "Neg", "Ceil", "Floor", "Sign", "Round", "IsNaN"])
def test_nan_and_infinity_pass_as_in_onnxruntime(op: str) -> None:
    judge(op, [ODD])


@pytest.mark.parametrize("op", [op for op in EVERYWHERE if op != "Selu"])
def test_half_precision_is_computed_in_float32_and_rounded_once(op: str) -> None:
    half = X.astype(np.float16)
    (wide,) = judge(op, [half.astype(np.float32)])
    (got,) = judge(op, [half], judge_with="reference")
    np.testing.assert_array_equal(got, wide.astype(np.float16))


@pytest.mark.parametrize("op", ["Sqrt", "Log", "Reciprocal", "Acos", "Asin", "Atanh", "Acosh"])
def test_a_unary_operator_with_a_domain_gives_what_onnxruntime_gives(op: str) -> None:
    judge(op, [UNIT + 1.5 if op == "Acosh" else UNIT])


@pytest.mark.parametrize(
    "op, attrs, opset",
    [
        ("HardSwish", {}, 14),
        ("Mish", {}, 18),
        ("Gelu", {}, 20),
        ("Gelu", {"approximate": "tanh"}, 20),
        ("Celu", {"alpha": 1.7}, 12),
        ("Shrink", {"lambd": 0.7, "bias": 0.2}, 9),
        ("ThresholdedRelu", {"alpha": 0.4}, 10),
        ("Selu", {"alpha": 2.0, "gamma": 3.0}, 17),
        ("LeakyRelu", {"alpha": -0.3}, 17),
        ("LeakyRelu", {"alpha": 2.3}, 17),
        ("LeakyRelu", {"alpha": 0.0}, 17),
        ("Elu", {"alpha": 0.3}, 17),
        ("HardSigmoid", {"alpha": 0.3, "beta": 0.4}, 17),
        ("Clip", {}, 6),
        ("Clip", {"min": -1.0, "max": 0.5}, 10),
        ("IsInf", {"detect_negative": 0}, 20),
        ("IsInf", {"detect_positive": 0}, 20),
        ("IsInf", {}, 20),
    ],
)
def test_attributes_and_opsets_mean_what_onnxruntime_means(op: str, attrs: dict[str, Any], opset: int) -> None:
    judge(op, [ODD if op == "IsInf" else X], attrs=attrs, opset=opset)


@pytest.mark.parametrize("op, attrs", [("Gelu", {}), ("QuickGelu", {"alpha": 1.3})])
def test_contributed_activations_give_what_onnxruntime_gives(op: str, attrs: dict[str, Any]) -> None:
    judge(op, [X], attrs=attrs, domain="com.microsoft")


def test_contributed_gelus_with_a_bias_give_what_onnxruntime_gives() -> None:
    bias = RNG.standard_normal(5).astype(np.float32)
    judge("BiasGelu", [X, bias], domain="com.microsoft")
    judge("FastGelu", [X, bias], domain="com.microsoft")


@pytest.mark.parametrize("constant", [(), (1,)])
@pytest.mark.parametrize("shape", [(3, 1, 1), (1,), (5,), (1, 3, 1, 1), (4, 1), (2, 3, 4, 5)])
def test_a_slope_of_any_shape_is_placed_as_in_onnxruntime(shape: tuple[int, ...], constant: tuple[int, ...]) -> None:
    slope = RNG.uniform(0.1, 2, shape).astype(np.float32)
    judge("PRelu", [ODD, slope], constant=constant)


@pytest.mark.parametrize("constant", [(), (1, 2)])
@pytest.mark.parametrize("bounds", [(-1, 2), (None, 2), (-1, None), (None, None), (2, -1)])
def test_clip_gives_what_onnxruntime_gives(bounds: tuple[Any, Any], constant: tuple[int, ...]) -> None:
    low, high = (None if bound is None else np.float32(bound) for bound in bounds)
    inputs = [X, low, high]
    while inputs[-1] is None:
        inputs.pop()
    judge("Clip", inputs, constant=constant)


@pytest.mark.parametrize(
    "op", ["Add", "Sub", "Mul", "Div", "Pow", "Mod", "Max", "Min", "Sum", "Mean", "Equal", "Less", "Greater"]
)
def test_a_binary_operator_broadcasts_as_in_onnxruntime(op: str) -> None:
    attrs = {"fmod": 1} if op == "Mod" else {}
    judge(op, [X, X[0, 0, 0]], attrs=attrs)
    judge(op, [X[:, :, :1], X[:1]], attrs=attrs)
    judge(op, [ODD, np.float32(3)], attrs=attrs, constant=(1,))
    judge(op, [np.float32(2), X[:0]], attrs=attrs)
    half = X.astype(np.float16)
    judge(op, [half, half[0, 0, 0]], attrs=attrs, judge_with="reference", bar=2e-3)


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize(
    "op", ["Add", "Sub", "Mul", "Div", "Mod", "Max", "Min", "Equal", "Less", "Greater", "LessOrEqual", "GreaterOrEqual"]
)
def test_a_binary_operator_of_integers_gives_what_onnxruntime_gives(op: str, dtype: Any) -> None:
    judge(op, [INTS.astype(dtype), DIVISORS.astype(dtype)])


@pytest.mark.parametrize("exponent", [2, 0.5, -1, 3, 1, 0.7])
def test_a_power_gives_what_onnxruntime_gives(exponent: float) -> None:
    judge("Pow", [UNIT, np.float32(exponent)], constant=(1,))


def test_the_result_of_pow_has_the_type_of_the_base() -> None:
    judge("Pow", [INTS, np.float32(2)])
    judge("Pow", [UNIT, np.int64(2)])


@pytest.mark.parametrize("op", ["Max", "Min", "Sum", "Mean"])
def test_a_variadic_operator_takes_one_or_many_operands(op: str) -> None:
    judge(op, [X])
    judge(op, [X, X + 1, X * 2, X[0]])
    judge(op, [X, X + 1, X * 2])


@pytest.mark.parametrize("op, opset", [("BitwiseAnd", 18), ("BitwiseOr", 18), ("BitwiseXor", 18)])
def test_bits_are_combined_as_in_onnxruntime(op: str, opset: int) -> None:
    judge(op, [INTS, DIVISORS], opset=opset)


@pytest.mark.parametrize("direction", ["LEFT", "RIGHT"])
@pytest.mark.parametrize("dtype", [np.uint8, np.uint32, np.uint64])
def test_shifts_give_what_onnxruntime_gives(direction: str, dtype: Any) -> None:
    judge("BitShift", [abs(INTS).astype(dtype), abs(DIVISORS).astype(dtype)], attrs={"direction": direction})


@pytest.mark.parametrize("op", ["And", "Or", "Xor"])
def test_logic_gives_what_onnxruntime_gives(op: str) -> None:
    judge(op, [YES, NO])
    judge("Not", [YES])


@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.int32, np.float64, np.uint8])
def test_where_chooses_and_broadcasts_as_in_onnxruntime(dtype: Any) -> None:
    judge("Where", [YES, INTS.astype(dtype), DIVISORS.astype(dtype)])
    judge("Where", [NO, np.array(3, dtype), np.array(5, dtype)])


@pytest.mark.parametrize("source", [np.float32, np.float16, np.float64, np.int64, np.int32, np.uint8, np.int8, bool])
def test_cast_converts_values_in_range_as_onnxruntime(source: Any) -> None:
    for to in (1, 2, 3, 6, 7, 9, 10, 11):
        judge("Cast", [(RNG.random((3, 4)) * 50).astype(source)], attrs={"to": to})


def test_cast_like_takes_the_type_of_its_second_input() -> None:
    judge("CastLike", [INTS, UNIT])


def test_compress_gathers_slices() -> None:
    condition = np.array([True, False, True])
    judge("Compress", [X, condition], attrs={"axis": 1})
    judge("Compress", [X, condition])


# ---------------------------------------------------------------------- types that only GE has

CLOSED_FORMS: list[tuple[str, tuple[Any, ...], dict[str, Any], Any]] = [
    ("Relu6", (X,), {}, np.clip(X, 0, 6)),
    ("Relu6D", (X,), {"scale": 2.0}, np.clip(X, 0, 6) * 2),
    ("HardTanh", (X,), {"min_val": -2.0, "max_val": 0.5}, np.clip(X, -2, 0.5)),
    ("FastGelu", (X,), {}, X / (1 + np.exp(-1.702 * X))),
    ("Swish", (X,), {"scale": 1.5}, X / (1 + np.exp(-1.5 * X))),
    ("CeluV2", (X,), {"alpha": 2.0}, np.maximum(X, 0) + 2 * np.expm1(np.minimum(X, 0) / 2)),
    ("ThresholdedRelu", (X,), {"alpha": 0.5}, np.where(X > 0.5, X, 0)),
    ("Expm1", (X,), {}, np.expm1(X)),
    ("Log1p", (UNIT,), {}, np.log1p(UNIT)),
    ("Rint", (X,), {}, np.rint(X)),
    ("Round", (X,), {"decimals": 1}, np.round(X, 1)),
    ("Rsqrt", (UNIT,), {}, 1 / np.sqrt(UNIT)),
    ("Square", (X,), {}, X * X),
    ("IsFinite", (ODD,), {}, np.isfinite(ODD)),
    ("Exp", (UNIT,), {"base": 2.0, "scale": 3.0, "shift": 1.0}, 2 ** (3 * UNIT + 1)),
    ("Log", (UNIT,), {"base": 10.0, "scale": 3.0, "shift": 1.0}, np.log10(3 * UNIT + 1)),
    ("Power", (UNIT,), {"power": 3.0, "scale": 2.0, "shift": 1.0}, (2 * UNIT + 1) ** 3),
    ("Muls", (INTS,), {"value": 3.0}, INTS * 3),
    ("Adds", (X,), {"value": 0.25}, X + np.float32(0.25)),
    ("ZerosLike", (X,), {}, np.zeros_like(X)),
    ("OnesLike", (INTS,), {}, np.ones_like(INTS)),
    ("DivNoNan", (INTS, INTS.T.reshape(3, 4) * 0), {}, INTS * 0),
    ("FloorDiv", (INTS, DIVISORS), {}, INTS // DIVISORS),
    ("FloorMod", (INTS, DIVISORS), {}, INTS % DIVISORS),
    ("TruncateDiv", (INTS, DIVISORS), {}, np.trunc(INTS / DIVISORS).astype(np.int32)),
    ("RealDiv", (INTS, DIVISORS * 0), {}, INTS * 0),
    ("SquaredDifference", (X, X[0]), {}, (X - X[0]) ** 2),
    ("Atan2", (X, X[0]), {}, np.arctan2(X, X[0])),
    ("NotEqual", (ODD, ODD), {}, np.isnan(ODD)),
    ("Axpy", (X, X[0]), {"alpha": 0.5}, X + 0.5 * X[0]),
    ("AddN", (X, X, X), {"N": 3}, X + X + X),
    ("Lerp", (X, X[0], np.float32(0.3)), {}, X + np.float32(0.3) * (X[0] - X)),
    ("BiasAdd", (X, X[0, 0, 0]), {}, X + X[0, 0, 0]),
    ("BiasAdd", (X, X[0, :, 0, 0]), {"data_format": "NCHW"}, X + X[:1, :, :1, :1]),
    ("Xdivy", (UNIT * 0, UNIT * 0), {}, UNIT * 0),
    ("Xlogy", (UNIT * 0, UNIT * 0), {}, UNIT * 0),
    ("Select", (np.array([True, False, True]), INTS, INTS * 2), {}, INTS * np.array([[1], [2], [1]], np.int32)),
    ("MaskedFill", (X, X > 0, np.float32(9)), {}, np.where(X > 0, np.float32(9), X)),
    ("Where", (YES,), {}, np.argwhere(YES)),
]


@pytest.mark.parametrize("type, inputs, attrs, expected", CLOSED_FORMS)
def test_a_ge_operator_follows_its_formula(type: str, inputs: Any, attrs: dict[str, Any], expected: Any) -> None:
    (got,) = apply(type, *inputs, **attrs)
    assert_close(got, np.asarray(expected, got.dtype), type)


SMOOTH = [
    "Sigmoid",
    "Tanh",
    "Erf",
    "Softplus",
    "Softsign",
    "Elu",
    "Selu",
    "Mish",
    "Gelu",
    "GeluV2",
    "FastGelu",
    "Swish",
    "HardSwish",
    "Exp",
    "Rsqrt",
]


@pytest.mark.parametrize("type", SMOOTH)
def test_float64_is_computed_in_float64(type: str) -> None:
    x = np.abs(X.astype(np.float64)) + 0.1
    (fine,) = apply(type, x)
    (coarse,) = apply(type, x.astype(np.float32))
    assert fine.dtype == np.float64
    assert_close(coarse, fine.astype(np.float32), type, bar=1e-6)


@pytest.mark.parametrize("type", [*SMOOTH, "Relu", "Abs", "Sqrt", "Neg", "Muls"])
def test_bfloat16_rounds_the_float32_result(type: str) -> None:
    attrs = {"value": 0.3} if type == "Muls" else {}
    x = (np.abs(X) + 0.1).astype(ml_dtypes.bfloat16)
    (got,) = apply(type, x, **attrs)
    (wide,) = apply(type, x.astype(np.float32), **attrs)
    if type != "Muls":  # its value is rounded to the type of x first
        np.testing.assert_array_equal(got, wide.astype(ml_dtypes.bfloat16))
    assert got.dtype == ml_dtypes.bfloat16


def test_erf_is_exact_to_the_last_bits_of_float32() -> None:
    x = np.linspace(-8, 8, 100_001)
    (exact,) = apply("Erf", x)
    (got,) = apply("Erf", x.astype(np.float32))
    assert np.abs(got - exact).max() < 3e-7
    (ends,) = apply("Erf", np.array([np.inf, -np.inf, np.nan, 1e30, -1e30, 0], np.float32))
    np.testing.assert_array_equal(ends, np.array([1, -1, np.nan, 1, -1, 0], np.float32))


def test_pieces_of_a_large_tensor_join_without_gaps() -> None:
    x = RNG.standard_normal(200_001).astype(np.float32)
    (got,) = apply("Sigmoid", x)
    assert_close(got, (1 / (1 + np.exp(-x.astype(np.float64)))).astype(np.float32), "Sigmoid", bar=1e-6)


@given(hnp.arrays(np.int32, st.integers(0, 20)), st.integers(-5, 5))
def test_integer_division_truncates_toward_zero_and_gives_0_for_0(x: Array, divisor: int) -> None:
    (got,) = apply("RealDiv", x, np.array(divisor, np.int32))
    expected = [0 if divisor == 0 else int(int(each) / divisor) for each in x]
    np.testing.assert_array_equal(got, np.array(expected, np.int64).astype(np.int32))


@given(hnp.arrays(np.float32, st.integers(0, 40), elements=st.floats(width=32)))
def test_float_to_int_truncates_saturates_and_turns_nan_into_0(x: Array) -> None:
    (got,) = apply("Cast", x, dst_type=DataType.INT32)
    clipped = np.clip(np.nan_to_num(x.astype(np.float64), posinf=1e300, neginf=-1e300), -(2**31), 2**31 - 1)
    np.testing.assert_array_equal(got, np.trunc(clipped).astype(np.int32))


ELEMENTWISE_FAMILIES = ("activation", "smooth_activation", "unary")


def unary_types() -> list[str]:
    """The registered types of the elementwise families with one input and no required attribute."""
    return sorted(
        name
        for name, kind in load_all().items()
        if kind.cls.__module__.removeprefix("gecli.ops.") in ELEMENTWISE_FAMILIES
        and len(kind.inputs) == 1
        and all(default is not REQUIRED for _, default in kind.attributes.values())
    )


@pytest.mark.parametrize("type", unary_types())
def test_an_operator_is_marked_zero_preserving_exactly_when_it_maps_0_to_0(type: str) -> None:
    kind = find(type)
    assert kind is not None
    zero = np.zeros(3, bool if type == "LogicalNot" else np.int32 if type == "Invert" else np.float32)
    (got,) = apply(type, zero)
    maps = bool((got == 0).all())
    # These map 0 to 0 by default only: other attributes move it.
    assert kind.zero_preserving == (maps and type not in ("HardTanh", "Power", "Shrink", "Threshold"))


@pytest.mark.parametrize("type", [name for name in unary_types() if name not in ("IsNan", "IsInf", "IsFinite")])
def test_bind_may_write_over_its_input(type: str) -> None:
    kind = find(type)
    assert kind is not None
    x = np.abs(X) + 0.1 if type not in ("LogicalNot", "Invert") else INTS % 2 == 0
    expected = kind.cls().kernel(x)
    if hasattr(kind.cls, "bind"):
        step = kind.cls().bind([x], [x])
        assert step is not None
        step()
        assert_close(x, expected, type, bar=1e-6)
