"""Quantisation operators against onnxruntime and their formulas."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gecli.ir.dtype import DataType
from gecli.ir.tensor_desc import UNKNOWN_RANK, TensorDesc
from gecli.ops.control import merged_outputs
from gecli.ops.inference import InferenceError
from gecli.ops.registry import find
from tests.ops.onnx_judge import judge

X = np.linspace(-3, 3, 24, dtype=np.float32).reshape(2, 3, 4)
SCALE = np.float32(0.02)


@pytest.mark.parametrize(
    "inputs, attrs, opset",
    [
        ([X, SCALE, np.uint8(128)], {}, 10),
        ([X, SCALE, np.int8(-3)], {}, 13),
        ([X, SCALE], {}, 13),
        ([X, np.float32([0.01, 0.02, 0.5]), np.uint8([3, 4, 5])], {"axis": 1}, 13),
        ([X, np.float32([0.01, 0.02, 0.5, 1]), np.int8([3, 4, 5, 6])], {"axis": -1}, 13),
        ([np.float32([0.5, 1.5, 2.5, -0.5, 300]), np.float32(1), np.int8(0)], {}, 13),
        ([X, np.float32(0.001), np.int16(7)], {}, 21),
        (
            [X.reshape(6, 4), np.full((3, 4), 0.5, np.float32), np.zeros((3, 4), np.uint8)],
            {"axis": 0, "block_size": 2},
            21,
        ),
    ],
)
def test_quantize_linear_gives_what_onnxruntime_gives(inputs: list[Any], attrs: dict[str, Any], opset: int) -> None:
    judge("QuantizeLinear", inputs, attrs=attrs, opset=opset, constant=range(1, len(inputs)))


@pytest.mark.parametrize(
    "inputs, attrs, opset",
    [
        ([np.arange(6, dtype=np.uint8), SCALE, np.uint8(3)], {}, 10),
        ([np.arange(6, dtype=np.int8), SCALE], {}, 13),
        ([np.int32([1 << 20, -5]), SCALE], {}, 13),
        ([np.arange(6, dtype=np.int8).reshape(3, 2), np.float32([1, 2, 4]), np.int8([1, 0, -1])], {"axis": 0}, 13),
        ([np.arange(6, dtype=np.uint8).reshape(3, 2), np.float32([1, 2]), np.uint8([1, 0])], {"axis": -1}, 13),
        ([np.arange(6, dtype=np.int8), np.float16(0.5), np.int8(1)], {}, 19),
        (
            [np.arange(8, dtype=np.int8).reshape(4, 2), np.float32([[1, 2], [3, 4]]), np.int8([[0, 1], [0, 0]])],
            {"axis": 0, "block_size": 2},
            21,
        ),
    ],
)
def test_dequantize_linear_gives_what_onnxruntime_gives(inputs: list[Any], attrs: dict[str, Any], opset: int) -> None:
    judge(
        "DequantizeLinear",
        inputs,
        attrs=attrs,
        opset=opset,
        constant=range(1, len(inputs)),
        dynamic="block_size" not in attrs,
    )


@pytest.mark.parametrize("x", [X, np.abs(X) + 1, -np.abs(X) - 1, np.zeros(3, np.float32), np.float32([[1e-3, 5]])])
def test_dynamic_quantize_linear_gives_what_onnxruntime_gives(x: Any) -> None:
    judge("DynamicQuantizeLinear", [x], opset=11, outputs=3)


@pytest.mark.parametrize(
    "type, attrs, inputs, expected",
    [
        ("AscendQuant", {"scale": 2.0, "offset": 1.0}, [np.float32([0.25, 1, 100, -100])], np.int8([2, 3, 127, -128])),
        (
            "AscendQuant",
            {"scale": 2.0, "offset": 0.0, "sqrt_mode": True, "round_mode": "Floor"},
            [np.float32([0.3])],
            np.int8([1]),
        ),
        (
            "AscendQuantV2",
            {"axis": 0},
            [np.float32([[1], [1]]), np.float32([2, 3]), np.float32([1, 0])],
            np.int8([[3], [3]]),
        ),
        ("AscendDequant", {}, [np.int32([[4, 6]]), np.float32([0.5, 2])], np.float32([[2, 12]])),
        (
            "AscendDequant",
            {"relu_flag": True},
            [np.int32([-4, 6]), np.float32([0.5]).view(np.uint32).astype(np.uint64)],
            np.float32([0, 3]),
        ),
        ("AscendAntiQuant", {"scale": 0.5, "offset": 2.0}, [np.int8([2, -2])], np.float32([2, 0])),
        ("AscendRequant", {}, [np.int32([1000, 3]), np.float32([0.5])], np.int8([127, 2])),
        (
            "Quantize",
            {"dtype": "torch.quint8"},
            [np.float32([1, -1]), np.float32([0.5]), np.int32([3])],
            np.uint8([5, 1]),
        ),
        ("Dequantize", {}, [np.uint8([0, 255]), np.float32([-1]), np.float32([1])], np.float32([-1, 1])),
        ("Dequantize", {}, [np.int8([-128, 127]), np.float32([-1]), np.float32([1])], np.float32([-1, 1])),
    ],
)
def test_device_quantisation_computes_its_formula(
    type: str, attrs: dict[str, Any], inputs: list[Any], expected: Any
) -> None:
    kind = find(type)
    assert kind is not None
    op = kind.cls(**attrs)
    result = op.kernel(*inputs)
    assert result.dtype == expected.dtype
    np.testing.assert_allclose(result, expected, atol=1e-6)
    described = op.infer(*[TensorDesc(DataType.from_numpy(x.dtype), x.shape) for x in inputs])
    assert (described.dtype.numpy, described.shape) == (expected.dtype, expected.shape)


def test_branches_with_different_dims_give_unknown_dims() -> None:
    a, b, c = (TensorDesc(DataType.FLOAT, dims) for dims in ((2, 3), (2, 4), (2,)))
    assert merged_outputs([[a], [b]])[0].shape == (2, -1)
    assert merged_outputs([[a], [c]])[0].shape == UNKNOWN_RANK
    with pytest.raises(InferenceError, match="branches have 1, 2 outputs"):
        merged_outputs([[a], [a, b]])


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
@pytest.mark.parametrize("zero", [None, "scalar", "columns"])
@pytest.mark.parametrize("depth, width", [(8, 5), (1100, 70), (530, 900)])
def test_integer_products_are_exact_in_every_tile(dtype: Any, zero: str | None, depth: int, width: int) -> None:
    random = np.random.default_rng(depth)
    limits = np.iinfo(dtype)
    a = random.integers(0, 256, (3, depth), np.uint8)
    b = random.integers(limits.min, limits.max + 1, (depth, width)).astype(dtype)
    a[0], b[:, 0] = 255, limits.max
    inputs: list[Any] = [a, b, np.array(7, np.uint8)]
    expected = (a.astype(np.int64) - 7) @ b.astype(np.int64)
    if zero is not None:
        shape = () if zero == "scalar" else (width,)
        inputs.append(random.integers(limits.min, limits.max + 1, shape).astype(dtype))
        expected = (a.astype(np.int64) - 7) @ (b.astype(np.int64) - inputs[3])
    kind = find("MatMulInteger")
    assert kind is not None
    made = kind.cls()
    made.constant_inputs = frozenset((1, 3))
    memory = np.full(1 << 23, 0x5A, np.uint8)
    made.lend_scratch = lambda size: memory[:size]
    y = np.empty((3, width), np.int32)
    step = made.bind(inputs, [y])
    for _ in range(2):
        step()
        np.testing.assert_array_equal(y, expected)
