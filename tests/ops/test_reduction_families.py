"""Reductions, softmax, sorting, running sums, one-hot, non-maximum suppression: against onnxruntime and numpy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from gecli.errors import CompileError
from gecli.ir.dtype import DataType
from gecli.ir.tensor_desc import TensorDesc
from gecli.ops.inference import InferenceError
from gecli.ops.operator import KnownDesc
from gecli.ops.registry import find
from tests.ops.onnx_judge import Array, apply, assert_close, judge

RNG = np.random.default_rng(1)
X = (RNG.standard_normal((2, 3, 4, 5)) * 3).astype(np.float32)
ROUGH = np.round(X)  # with equal elements
BOTH = pytest.mark.parametrize("constant", [(), (1,)])
REDUCTIONS = [
    "ReduceSum",
    "ReduceMean",
    "ReduceMax",
    "ReduceMin",
    "ReduceProd",
    "ReduceLogSum",
    "ReduceLogSumExp",
    "ReduceSumSquare",
    "ReduceL1",
    "ReduceL2",
]


def numbers(*values: int) -> Array:
    return np.array(values, np.int64)


@pytest.mark.parametrize("keep", [0, 1])
@pytest.mark.parametrize("axes", [(-1,), (2, 3), (1,), (0, 2), ()])
@pytest.mark.parametrize("op", REDUCTIONS)
def test_a_reduction_gives_what_onnxruntime_gives(op: str, axes: tuple[int, ...], keep: int) -> None:
    x = np.abs(X) if op == "ReduceLogSum" else X
    attrs = {"keepdims": keep}
    if op != "ReduceSum":
        judge(op, [x], attrs={**attrs, "axes": list(axes)} if axes else attrs, opset=11)
    for constant in ((), (1,)):
        judge(op, [x, numbers(*axes)] if axes else [x], attrs=attrs, opset=18, constant=constant)


@pytest.mark.parametrize("op", ["ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1"])
def test_a_reduction_of_integers_gives_what_onnxruntime_gives(op: str) -> None:
    judge(op, [(X * 3).astype(np.int32), numbers(1)], opset=18)


@pytest.mark.parametrize("op", [op for op in REDUCTIONS if op != "ReduceLogSumExp"])
def test_noop_with_empty_axes_reduces_nothing(op: str) -> None:
    judge(op, [np.abs(X)], attrs={"noop_with_empty_axes": 1}, opset=18, judge_with="reference")


@pytest.mark.parametrize("op", REDUCTIONS)
def test_half_precision_reductions_accumulate_in_float32(op: str) -> None:
    judge(op, [np.abs(X).astype(np.float16) / 4], opset=18, judge_with="reference", bar=2e-3)


@pytest.mark.parametrize("op", ["ReduceSum", "ReduceMax", "ReduceMin", "ReduceProd"])
def test_a_reduction_over_no_elements_gives_the_neutral_element(op: str) -> None:
    judge(op, [X[:, :0], numbers(1)], opset=20, constant=(1,), judge_with="reference")


def test_logsumexp_does_not_overflow() -> None:
    judge("ReduceLogSumExp", [X * 100, numbers(-1)], opset=18)


D_FORMS: list[tuple[str, Any]] = [
    ("ReduceSumD", np.add),
    ("ReduceProdD", np.multiply),
    ("ReduceMaxD", np.maximum),
    ("ReduceMinD", np.minimum),
]


@pytest.mark.parametrize("type, ufunc", D_FORMS)
def test_d_forms_take_axes_as_attribute(type: str, ufunc: np.ufunc) -> None:
    for axes in ((0,), (-1, 1), (2, 3)):
        for keep in (False, True):
            (got,) = apply(type, X, axes=axes, keep_dims=keep)
            assert_close(got, ufunc.reduce(X, axis=axes, keepdims=keep), type)
    (mean,) = apply("ReduceMeanD", X, axes=(1, 2))
    assert_close(mean, X.mean((1, 2)), "ReduceMeanD")


@pytest.mark.parametrize("type, function", [("ReduceAll", np.all), ("ReduceAny", np.any)])
def test_logic_over_axes(type: str, function: Any) -> None:
    flags = X > -2
    (got,) = apply(type, flags, np.array([1, 2], np.int32), keep_dims=True)
    np.testing.assert_array_equal(got, function(flags, axis=(1, 2), keepdims=True))
    (got,) = apply(f"{type}D", flags, axes=(3,))
    np.testing.assert_array_equal(got, function(flags, axis=3))


@pytest.mark.parametrize("p", [1.0, 2.0, 3.0, float("inf")])
def test_norms_follow_their_formula(p: float) -> None:
    (got,) = apply("LpNormV2", X, p=p, axes=(1,), keepdim=True)
    assert_close(got, np.linalg.norm(X, ord=p, axis=1, keepdims=True), "LpNormV2")


def test_the_mean_of_integers_is_summed_wide_and_truncated() -> None:
    big = np.array([[2**31 - 1, 2**31 - 2], [-3, 0]], np.int32)
    (got,) = apply("ReduceMean", big, np.array([1], np.int32), constant=(1,))
    np.testing.assert_array_equal(got, np.array([2**31 - 2, -1], np.int32))


def test_an_axis_out_of_range_is_named() -> None:
    kind = find("ReduceSum")
    assert kind is not None
    axes = KnownDesc.of(TensorDesc(DataType.INT32, (1,)), np.array([4], np.int32))
    with pytest.raises(InferenceError, match="axis 4 is out of range for rank 2"):
        kind.cls().infer(TensorDesc(DataType.FLOAT, (2, 3)), axes)


# ---------------------------------------------------------------------- softmax


@pytest.mark.parametrize("opset", [11, 13])
@pytest.mark.parametrize("attrs", [{}, {"axis": -1}, {"axis": 0}, {"axis": 1}, {"axis": 2}])
@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax", "Hardmax"])
def test_softmax_gives_what_onnxruntime_gives(op: str, attrs: dict[str, int], opset: int) -> None:
    judge(op, [X], attrs=attrs, opset=opset, dynamic=opset > 12 or op != "Hardmax")


def test_rows_of_very_different_size_are_exact() -> None:
    rows = RNG.standard_normal((300, 128)).astype(np.float32)
    rows[7] -= 1000
    rows[9, :60] = -np.inf
    rows[20] *= 50
    judge("Softmax", [rows])
    rows[11], rows[13, 5] = -np.inf, np.nan
    (got,) = judge("Softmax", [rows], judge_with="reference")
    assert np.isnan(got[11]).all() and np.isnan(got[13]).all() and not np.isnan(got[12]).any()


@pytest.mark.parametrize("shape", [(3, 5000), (0, 4), (1, 7), (40_000, 3)])
def test_softmax_of_long_empty_and_many_rows(shape: tuple[int, int]) -> None:
    judge("Softmax", [RNG.standard_normal(shape).astype(np.float32)])


def test_softmax_over_several_axes_is_one_softmax() -> None:
    (got,) = apply("SoftmaxV2", X, axes=(1, 3))
    assert_close(got.sum((1, 3)), np.ones((2, 4), np.float32), "sum")


# ---------------------------------------------------------------------- positions and order


@pytest.mark.parametrize("keep", [0, 1])
@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("op", ["ArgMax", "ArgMin"])
def test_positions_of_extrema_are_those_of_onnxruntime(op: str, axis: int, keep: int) -> None:
    judge(op, [ROUGH], attrs={"axis": axis, "keepdims": keep})
    judge(op, [ROUGH.astype(np.int32)], attrs={"axis": axis, "keepdims": keep})
    judge(op, [ROUGH], attrs={"axis": axis, "keepdims": keep, "select_last_index": 1}, dynamic=False)


def test_the_first_nan_is_the_maximum() -> None:
    x = np.array([1, np.nan, 5, np.nan], np.float32)
    assert apply("ArgMaxV2", x, np.int32(0), constant=(1,))[0] == 1
    assert apply("ArgMaxD", x, dimension=0)[0].dtype == np.int32
    values, where = apply("TopK", x, np.int32(3), constant=(1,))
    np.testing.assert_array_equal(values, np.array([np.nan, np.nan, 5], np.float32))
    np.testing.assert_array_equal(where, [1, 3, 2])


@BOTH
@pytest.mark.parametrize("largest", [0, 1])
@pytest.mark.parametrize("dtype", [np.float32, np.int64])
def test_top_k_gives_what_onnxruntime_gives(dtype: Any, largest: int, constant: tuple[int, ...]) -> None:
    for axis in (-1, 2, 1):
        attrs = {"axis": axis, "largest": largest}
        judge("TopK", [ROUGH.astype(dtype), numbers(3)], attrs=attrs, outputs=2, constant=constant)
    judge("TopK", [ROUGH], attrs={"axis": 1, "k": 2}, outputs=2, opset=9)


def test_top_k_refuses_more_elements_than_there_are() -> None:
    with pytest.raises(CompileError, match="cannot be evaluated"):
        apply("TopK", X, np.int32(6), constant=(1,))


@given(hnp.arrays(np.float32, hnp.array_shapes(max_dims=3, max_side=6), elements=st.floats(-3, 3, width=16)))
def test_sort_is_stable_both_ways(x: Array) -> None:
    for descending in (False, True):
        values, where = apply("Sort", x, descending=descending)
        order = np.argsort(-x if descending else x, axis=-1, kind="stable")
        np.testing.assert_array_equal(where, order)
        np.testing.assert_array_equal(values, np.take_along_axis(x, order, -1))


def test_unique_keeps_first_occurrences_or_sorts() -> None:
    x = np.array([5, 2, 5, 7, 2], np.int32)
    values, inverse = apply("Unique", x)
    np.testing.assert_array_equal(values, [5, 2, 7])
    np.testing.assert_array_equal(inverse, [0, 1, 0, 2, 1])
    values, inverse, counts = apply("UniqueWithCountsAndSorting", x)
    np.testing.assert_array_equal(values, [2, 5, 7])
    np.testing.assert_array_equal(inverse, [1, 0, 1, 2, 0])
    np.testing.assert_array_equal(counts, [2, 2, 1])


@pytest.mark.parametrize("x", [ROUGH, ROUGH[0, 0] > 0, ROUGH[:0], ROUGH.astype(np.int64)])
def test_non_zero_gives_what_onnxruntime_gives(x: Array) -> None:
    judge("NonZero", [x])


@BOTH
@pytest.mark.parametrize("exclusive", [0, 1])
@pytest.mark.parametrize("reverse", [0, 1])
def test_running_sums_give_what_onnxruntime_gives(reverse: int, exclusive: int, constant: tuple[int, ...]) -> None:
    judge("CumSum", [X, np.int64(-2)], attrs={"exclusive": exclusive, "reverse": reverse}, constant=constant)


def test_running_products_and_d_forms() -> None:
    (got,) = apply("CumprodD", X, axis=2, exclusive=True)
    expected = np.cumprod(X, 2)
    assert_close(got[:, :, 1:], expected[:, :, :-1], "CumprodD")
    assert_close(apply("CumsumD", X, axis=1)[0], np.cumsum(X, 1), "CumsumD")


@pytest.mark.parametrize("constant", [(), (1,), (1, 2)])
@pytest.mark.parametrize("axis", [-1, 0, 1])
def test_one_hot_gives_what_onnxruntime_gives(axis: int, constant: tuple[int, ...]) -> None:
    indices = np.array([[0, 5, -1], [7, -8, 2]], np.int64)
    judge("OneHot", [indices, np.int64(7), np.array([0.5, 3], np.float32)], attrs={"axis": axis}, constant=constant)


@pytest.mark.parametrize("center", [0, 1])
@pytest.mark.parametrize("limits", [(7, 0.3, 0.4), (40, 0.5, None), (30, None, None), (None, None, None)])
def test_non_maximum_suppression_gives_what_onnxruntime_gives(limits: tuple[Any, ...], center: int) -> None:
    boxes, scores = RNG.random((2, 40, 4)).astype(np.float32), RNG.random((2, 3, 40)).astype(np.float32)
    most, overlap, score = limits
    inputs: list[Any] = [boxes, scores]
    if most is not None:
        inputs.append(numbers(most))
    inputs += [np.array([value], np.float32) for value in (overlap, score) if value is not None]
    judge("NonMaxSuppression", inputs, attrs={"center_point_box": center})


def test_bincount_drops_what_is_out_of_range() -> None:
    values = np.array([0, 3, 1, 3, 9, -1], np.int32)
    (got,) = apply("Bincount", values, np.int32(4), np.zeros(0, np.float32))
    np.testing.assert_array_equal(got, np.array([1, 1, 0, 2], np.float32))
    (got,) = apply("Bincount", values, np.int32(4), np.arange(6, dtype=np.float32))
    np.testing.assert_array_equal(got, np.array([0, 2, 0, 4], np.float32))
