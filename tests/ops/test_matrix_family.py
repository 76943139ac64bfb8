"""Matrix products against onnxruntime, and the exact integer product."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from gecli.ir.dtype import DataType
from gecli.ir.tensor_desc import TensorDesc
from gecli.ops.inference import InferenceError
from gecli.ops.integer_matmul import integer_matmul
from gecli.ops.matrix import einsum_shape
from gecli.ops.registry import find
from tests.ops.onnx_judge import assert_close, judge

RANDOM = np.random.default_rng(22)


def normal(*shape: int, dtype: Any = np.float32) -> NDArray[Any]:
    return RANDOM.standard_normal(shape).astype(dtype)


def op(type: str, **attrs: Any) -> Any:
    kind = find(type)
    assert kind is not None
    return kind.cls(**attrs)


@pytest.mark.parametrize(
    "a, b",
    [
        ((3, 4), (4, 5)),
        ((2, 3, 4), (4, 5)),
        ((2, 1, 3, 4), (5, 4, 2)),
        ((4,), (4, 5)),
        ((3, 4), (4,)),
        ((2, 3, 4), (4,)),
        ((4,), (4,)),
        ((0, 4), (4, 3)),
        ((2, 0), (0, 3)),
    ],
)
def test_matmul_equals_onnxruntime(a: tuple[int, ...], b: tuple[int, ...]) -> None:
    judge("MatMul", [normal(*a), normal(*b)], constant=(1,))


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.uint32, np.float64, np.float16])
def test_matmul_of_other_types(dtype: Any) -> None:
    judge("MatMul", [(normal(3, 4) * 9).astype(dtype), (normal(4, 5) * 9).astype(dtype)], judge_with="reference")


@pytest.mark.parametrize(
    "inputs, attrs",
    [
        ([normal(3, 4), normal(4, 5), normal(5)], {}),
        ([normal(4, 3), normal(5, 4), normal(3, 1)], {"transA": 1, "transB": 1, "alpha": 0.5, "beta": 2.0}),
        ([normal(3, 4), normal(5, 4), normal(5)], {"transB": 1, "alpha": 0.5}),
        ([normal(4, 3), normal(3, 4)], {"alpha": 0.5}),
        ([normal(4, 3), normal(3, 4), normal()], {}),
    ],
    ids=["bias", "all", "alpha and bias", "no C", "scalar C"],
)
def test_gemm_equals_onnxruntime(inputs: list[Any], attrs: dict[str, Any]) -> None:
    judge("Gemm", inputs, attrs=attrs, constant=tuple(range(1, len(inputs))))


@pytest.mark.parametrize(
    "equation, shapes",
    [
        ("ij,jk->ik", [(4, 3), (3, 4)]),
        ("...ij,...jk", [(2, 4, 3), (2, 3, 4)]),
        ("ii->i", [(4, 4)]),
        ("bhwc,hkc->bhwk", [(2, 3, 4, 5), (3, 6, 5)]),
        (" i , i -> ", [(4,), (4,)]),
        ("ab,bc,cd->da", [(2, 3), (3, 4), (4, 5)]),
    ],
)
def test_einsum_equals_onnxruntime(equation: str, shapes: list[tuple[int, ...]]) -> None:
    judge("Einsum", [normal(*shape) for shape in shapes], attrs={"equation": equation})


def test_einsum_without_arrow_sorts_the_letters_that_occur_once() -> None:
    assert einsum_shape("ba,ac", [(2, 3), (3, 4)]) == (2, 4)
    assert einsum_shape("ij->...", [(2, 3)]) == ()
    with pytest.raises(InferenceError, match="'j'"):
        einsum_shape("ij,jk", [(2, 3), (4, 5)])


def test_det_equals_onnxruntime() -> None:
    judge("Det", [normal(2, 4, 4)])
    judge("Det", [normal(3, 3)])


@pytest.mark.parametrize("dtype, wanted", [(np.int8, np.int32), (np.uint8, np.int32), (np.int64, np.int64)])
@pytest.mark.parametrize("depth", [7, 1000, 3000])
def test_integer_products_are_exact(dtype: Any, wanted: Any, depth: int) -> None:
    limits = np.iinfo(np.int8 if dtype != np.uint8 else np.uint8)
    a, b = (RANDOM.integers(limits.min, limits.max, s, endpoint=True).astype(dtype) for s in ((3, depth), (depth, 2)))
    got = integer_matmul(a, b)
    assert got.dtype == wanted
    np.testing.assert_array_equal(got, a.astype(np.int64) @ b.astype(np.int64))


def test_int32_products_wrap() -> None:
    a = np.full((1, 2), 2**30, np.int32)
    np.testing.assert_array_equal(integer_matmul(a, a.T), np.int32([[0]]))


def test_half_precision_accumulates_in_float32() -> None:
    a, b = normal(4, 2048, dtype=np.float16), normal(2048, 3, dtype=np.float16)
    expected = (a.astype(np.float32) @ b.astype(np.float32)).astype(np.float16)
    np.testing.assert_array_equal(op("MatMulV2").kernel(a, b), expected)


def test_fully_connection_flattens_from_its_axis() -> None:
    x, w, b = normal(2, 3, 4, 5), normal(6, 60), normal(6)
    y = op("FullyConnection", num_output=6).kernel(x, w, b)
    assert y.shape == (2, 6, 1, 1)
    assert_close(y.reshape(2, 6), x.reshape(2, 60) @ w.T + b, "y", bar=1e-6)
    desc = op("FullyConnection", num_output=6).infer(TensorDesc(DataType.FLOAT, (2, 3, 4, 5)), None)
    assert desc.shape == (2, 6, 1, 1)


def test_a_mismatch_names_both_shapes() -> None:
    with pytest.raises(InferenceError, match=r"\[2, 3\] by \[4, 5\]"):
        op("MatMulV2").infer(TensorDesc(DataType.FLOAT, (2, 3)), TensorDesc(DataType.FLOAT, (4, 5)))
