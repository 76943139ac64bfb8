"""Convolutions, transposed ones and their ONNX nodes against onnxruntime, and what their inference refuses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from gecli.ir.dtype import DataType
from gecli.ir.format import Format
from gecli.ir.tensor_desc import TensorDesc
from gecli.ops import conv_steps
from gecli.ops.inference import InferenceError
from gecli.ops.registry import find
from tests.ops.onnx_judge import assert_close, judge

RANDOM = np.random.default_rng(20)


def normal(*shape: int, dtype: Any = np.float32) -> NDArray[Any]:
    return RANDOM.standard_normal(shape).astype(dtype)


def bytes_of(*shape: int, dtype: Any = np.uint8) -> NDArray[Any]:
    limits = np.iinfo(dtype)
    return RANDOM.integers(limits.min, limits.max, shape, dtype, endpoint=True)


def op(type: str, **attrs: Any) -> Any:
    kind = find(type)
    assert kind is not None
    return kind.cls(**attrs)


IMAGE = (2, 6, 9, 8)
CONVS: dict[str, tuple[list[Any], dict[str, Any]]] = {
    "padded 3x3": ([normal(*IMAGE), normal(4, 6, 3, 3), normal(4)], {"pads": [1, 1, 1, 1]}),
    "no bias, uneven": (
        [normal(*IMAGE), normal(4, 6, 3, 3)],
        {"pads": [1, 0, 1, 2], "strides": [2, 1], "dilations": [1, 2]},
    ),
    "pointwise": ([normal(*IMAGE), normal(5, 6, 1, 1), normal(5)], {}),
    "pointwise stride": ([normal(*IMAGE), normal(5, 6, 1, 1), normal(5)], {"strides": [2, 2]}),
    "pointwise groups": ([normal(*IMAGE), normal(4, 3, 1, 1), normal(4)], {"group": 2}),
    "groups": ([normal(*IMAGE), normal(8, 3, 3, 3)], {"auto_pad": "SAME_LOWER", "strides": [2, 2], "group": 2}),
    "depthwise": ([normal(*IMAGE), normal(6, 1, 3, 3), normal(6)], {"pads": [1, 1, 1, 1], "group": 6}),
    "depthwise stride": (
        [normal(*IMAGE), normal(6, 1, 3, 3), normal(6)],
        {"pads": [1, 0, 1, 2], "strides": [2, 3], "group": 6},
    ),
    "depthwise dilated stride": (
        [normal(*IMAGE), normal(6, 1, 3, 3)],
        {"pads": [2, 0, 1, 2], "strides": [2, 1], "dilations": [3, 2], "group": 6},
    ),
    "depthwise multiplier": ([normal(*IMAGE), normal(12, 1, 3, 3), normal(12)], {"group": 6}),
    "same upper": ([normal(*IMAGE), normal(4, 6, 4, 3)], {"auto_pad": "SAME_UPPER", "strides": [3, 2]}),
    "valid": ([normal(*IMAGE), normal(4, 6, 4, 3)], {"auto_pad": "VALID"}),
    "few outputs": ([normal(2, 8, 9, 8), normal(2, 8, 3, 3), normal(2)], {"pads": [1, 1, 1, 1]}),
    "few outputs dilated": (
        [normal(2, 8, 9, 8), normal(1, 8, 3, 3)],
        {"pads": [2, 0, 1, 2], "strides": [1, 2], "dilations": [2, 1]},
    ),
    "1-D": ([normal(2, 5, 17), normal(4, 5, 3), normal(4)], {"pads": [1, 1], "strides": [2]}),
    "3-D": (
        [normal(1, 2, 5, 6, 7), normal(4, 2, 3, 3, 3), normal(4)],
        {"pads": [1, 1, 1, 1, 1, 1], "strides": [1, 2, 2]},
    ),
    "empty batch": ([normal(0, 6, 9, 8), normal(4, 6, 3, 3)], {}),
}


@pytest.mark.parametrize("name", CONVS)
def test_conv_equals_onnxruntime(name: str) -> None:
    inputs, attrs = CONVS[name]
    judge("Conv", inputs, attrs=attrs, constant=tuple(range(1, len(inputs))))
    judge("Conv", inputs, attrs=attrs)


@pytest.mark.parametrize("name", CONVS)
def test_narrow_bands_give_the_same_numbers(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conv_steps, "BAND_BYTES", 600)
    monkeypatch.setattr(conv_steps, "SLAB_BYTES", 600)
    inputs, attrs = CONVS[name]
    judge("Conv", inputs, attrs=attrs, constant=tuple(range(1, len(inputs))), dynamic=False)


def test_a_half_precision_conv_rounds_once() -> None:
    x, w = normal(1, 64, 6, 6, dtype=np.float16), normal(8, 64, 3, 3, dtype=np.float16)
    wide = op("Conv2D", strides=(1, 1, 1, 1), pads=(0, 0, 0, 0), data_format="NCHW")
    expected = wide.kernel(x.astype(np.float32), w.astype(np.float32)).astype(np.float16)
    np.testing.assert_array_equal(wide.kernel(x, w), expected)


def test_channels_last_data_takes_hwcn_filters_and_gives_the_same_numbers() -> None:
    x, w, bias = normal(2, 5, 9, 8), normal(4, 5, 3, 2), normal(4)
    attrs = {"strides": (1, 1, 2, 1), "pads": (1, 0, 1, 1)}
    expected = op("Conv2D", data_format="NCHW", **attrs).kernel(x, w, bias)
    last = op("Conv2D", data_format="NHWC", strides=(1, 2, 1, 1), pads=(1, 0, 1, 1))
    got = last.kernel(np.moveaxis(x, 1, -1), w.transpose(2, 3, 1, 0), bias)
    assert_close(got, np.ascontiguousarray(np.moveaxis(expected, 1, -1)), "NHWC", bar=1e-6)


def test_a_channels_last_bind_gives_what_the_kernel_gives() -> None:
    for kernel, strides, pads in (((3, 3), (1, 2, 2, 1), (1, 1, 1, 1)), ((1, 1), (1, 1, 1, 1), (0, 0, 0, 0))):
        x, w, bias = normal(2, 9, 8, 5), normal(*kernel, 5, 4), normal(4)
        conv = op("Conv2D", strides=strides, pads=pads)
        expected = conv.kernel(x, w, bias)
        y = np.empty_like(expected)
        step = conv.bind([x, w, bias], [y])
        assert step is not None
        step()
        assert_close(y, expected, "bind", bar=1e-6)


def test_depthwise_output_channel_is_c_times_k_plus_k() -> None:
    x, w = normal(2, 7, 6, 3), normal(3, 3, 3, 2)
    y = op("DepthwiseConv2D", strides=(1, 1, 1, 1), pads=(1, 1, 1, 1)).kernel(x, w)
    assert y.shape == (2, 7, 6, 6)
    for channel in range(3):
        for k in range(2):
            plain = op("Conv2D", strides=(1, 1, 1, 1), pads=(1, 1, 1, 1))
            one = plain.kernel(x[..., channel : channel + 1], w[:, :, channel : channel + 1, k : k + 1])
            assert_close(y[..., channel * 2 + k], one[..., 0], "channel", bar=1e-6)


def test_int8_conv_is_exact_beyond_float32() -> None:
    x, w = bytes_of(1, 400, 3, 3, dtype=np.int8), bytes_of(2, 400, 3, 3, dtype=np.int8)
    y = op("Conv2D", strides=(1, 1, 1, 1), pads=(0, 0, 0, 0), data_format="NCHW").kernel(x, w)
    expected = np.tensordot(w.astype(np.int64), x[0].astype(np.int64), 3).astype(np.int32)
    np.testing.assert_array_equal(y.reshape(-1), expected)
    assert y.dtype == np.int32


TRANSPOSED: dict[str, tuple[list[Any], dict[str, Any]]] = {
    "tiles": ([normal(2, 3, 5, 6), normal(3, 4, 2, 2), normal(4)], {"strides": [2, 2]}),
    "output padding": (
        [normal(2, 3, 5, 6), normal(3, 4, 3, 3)],
        {"strides": [2, 2], "pads": [1, 1, 1, 1], "output_padding": [1, 1]},
    ),
    "dilated": (
        [normal(2, 3, 5, 6), normal(3, 4, 3, 3), normal(4)],
        {"strides": [1, 2], "pads": [1, 0, 1, 2], "dilations": [2, 1]},
    ),
    "groups": ([normal(2, 4, 5, 6), normal(4, 2, 3, 3), normal(4)], {"group": 2, "strides": [2, 1]}),
    "group tiles": ([normal(2, 4, 5, 6), normal(4, 2, 2, 3), normal(4)], {"group": 2, "strides": [2, 3]}),
    "larger output": ([normal(2, 3, 5, 6), normal(3, 4, 3, 3)], {"strides": [3, 2], "output_shape": [14, 13]}),
    "smaller output": ([normal(2, 3, 5, 6), normal(3, 4, 3, 3)], {"strides": [3, 2], "output_shape": [10, 8]}),
    "same upper": ([normal(2, 3, 5, 6), normal(3, 4, 3, 3)], {"strides": [2, 2], "auto_pad": "SAME_UPPER"}),
    "same lower": ([normal(2, 3, 5, 6), normal(3, 4, 3, 3)], {"strides": [2, 2], "auto_pad": "SAME_LOWER"}),
    "1-D": ([normal(2, 3, 5), normal(3, 4, 3), normal(4)], {"strides": [2], "output_shape": [10]}),
    "3-D": ([normal(2, 3, 5, 6, 3), normal(3, 4, 3, 3, 2)], {"strides": [2, 2, 2]}),
}


@pytest.mark.parametrize("name", TRANSPOSED)
def test_conv_transpose_equals_onnxruntime(name: str) -> None:
    inputs, attrs = TRANSPOSED[name]
    judge("ConvTranspose", inputs, attrs=attrs, constant=(1,))


@pytest.mark.parametrize("name", ["tiles", "group tiles", "3-D"])
def test_narrow_bands_give_the_same_transposed_numbers(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conv_steps, "SLAB_BYTES", 600)
    inputs, attrs = TRANSPOSED[name]
    judge("ConvTranspose", inputs, attrs=attrs, constant=(1,), dynamic=False)


def test_deconvolution_equals_conv2d_transpose_without_sizes() -> None:
    x, w, bias = normal(2, 3, 5, 6), normal(3, 4, 3, 3), normal(4)
    sized = op("Conv2DTranspose", strides=(1, 1, 2, 2), pads=(1, 1, 1, 1), data_format="NCHW")
    plain = op("Deconvolution", strides=(2, 2), pads=(1, 1, 1, 1))
    expected = sized.kernel(np.zeros(4, np.int32), x, w, bias)
    np.testing.assert_array_equal(plain.kernel(x, w, bias), expected)
    fixed = op(
        "Conv2DTransposeD", input_size=(2, 4, 9, 11), strides=(1, 1, 2, 2), pads=(1, 1, 1, 1), data_format="NCHW"
    )
    np.testing.assert_array_equal(fixed.kernel(x, w, bias), expected)


QUANTISED: dict[str, tuple[str, list[Any], dict[str, Any]]] = {
    "matmul blocks": ("MatMulInteger", [bytes_of(2, 5, 1500), bytes_of(1500, 4, dtype=np.int8), np.uint8(7)], {}),
    "matmul zero points": ("MatMulInteger", [bytes_of(5, 15), bytes_of(15, 4), np.uint8(7), bytes_of(4)], {}),
    "matmul plain": ("MatMulInteger", [bytes_of(5, 15), bytes_of(15, 4)], {}),
    "matmul empty": ("MatMulInteger", [bytes_of(0, 15), bytes_of(15, 4)], {}),
    "qlinear matmul": (
        "QLinearMatMul",
        [
            bytes_of(5, 15), np.float32(0.1), np.uint8(7), bytes_of(15, 4), np.float32(0.05), np.uint8(30),
            np.float32(0.9), np.uint8(100),
        ],
        {},
    ),
    "conv": (
        "ConvInteger",
        [bytes_of(2, 3, 7, 6), bytes_of(4, 3, 3, 3), np.uint8(7), np.uint8(9)],
        {"pads": [1, 1, 1, 1]},
    ),
    "qlinear conv": (
        "QLinearConv",
        [
            bytes_of(2, 4, 7, 6), np.float32(0.1), np.uint8(7), bytes_of(4, 2, 3, 3, dtype=np.int8),
            np.float32([0.1, 0.2, 0.3, 0.4]), np.zeros(4, np.int8), np.float32(3), np.uint8(100),
            np.arange(4, dtype=np.int32),
        ],
        {"pads": [1, 1, 1, 1], "group": 2},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", QUANTISED)
def test_quantised_products_are_exact(name: str) -> None:
    type, inputs, attrs = QUANTISED[name]
    judge(type, inputs, attrs=attrs, constant=tuple(range(1, len(inputs))))
    judge(type, inputs, attrs=attrs)


def test_inference_names_both_shapes_of_a_channel_mismatch() -> None:
    conv = op("Conv2D", strides=(1, 1, 1, 1), pads=(0, 0, 0, 0), data_format="NCHW")
    x = TensorDesc(DataType.FLOAT, (1, 3, 8, 8), Format.NCHW)
    with pytest.raises(InferenceError, match=r"\[1, 3, 8, 8\].*\[4, 5, 3, 3\]"):
        conv.infer(x, TensorDesc(DataType.FLOAT, (4, 5, 3, 3)))


def test_inference_refuses_a_window_larger_than_the_input() -> None:
    conv = op("Conv2D", strides=(1, 1, 1, 1), pads=(0, 0, 0, 0), data_format="NCHW")
    with pytest.raises(InferenceError, match=r"\[9, 9\] is larger"):
        conv.infer(TensorDesc(DataType.FLOAT, (1, 3, 8, 8)), TensorDesc(DataType.FLOAT, (4, 3, 9, 9)))


def test_quant_batch_matmul_reads_the_float_in_a_uint64_scale() -> None:
    x1, x2 = bytes_of(3, 8, dtype=np.int8), bytes_of(8, 2, dtype=np.int8)
    scale = np.float32([0.01, 0.5])
    packed = scale.view(np.uint32).astype(np.uint64) | np.uint64(7 << 40)
    quantised = op("QuantBatchMatmulV3", dtype=DataType.INT8)
    exact = x1.astype(np.int32) @ x2.astype(np.int32)
    expected = np.clip(np.rint(exact.astype(np.float32) * scale), -128, 127).astype(np.int8)
    np.testing.assert_array_equal(quantised.kernel(x1, x2, packed), expected)


def test_deform_conv_equals_onnxruntime() -> None:
    x, w = normal(2, 4, 6, 5), normal(4, 4, 3, 2)
    judge("DeformConv", [x, w, normal(2, 12, 6, 4)], attrs={"pads": [1, 0, 1, 0]}, opset=19, constant=(1,))
    grouped = [x, normal(4, 2, 3, 2), normal(2, 24, 6, 4), normal(4), normal(2, 12, 6, 4)]
    attrs = {"group": 2, "offset_group": 2, "pads": [1, 0, 1, 0]}
    judge("DeformConv", grouped, attrs=attrs, opset=19, constant=(1,))


def test_col2im_equals_onnxruntime() -> None:
    image, block = np.array([5, 6]), np.array([2, 3])
    judge("Col2Im", [normal(2, 12, 16), image, block], opset=18)
    attrs = {"pads": [1, 0, 1, 1], "dilations": [2, 1]}
    judge("Col2Im", [normal(2, 12, 25), image, block], attrs=attrs, opset=18, constant=(1, 2))


@pytest.mark.parametrize(
    "x, w, attrs",
    [
        (normal(2, 5, 9, 8), normal(4, 5, 3, 3), {"pads": (1, 1, 1, 1)}),
        (normal(1, 5, 9, 8), normal(4, 5, 3, 3), {"pads": (0, 2, 1, 0), "strides": (1, 1, 2, 2)}),
        (normal(1, 96, 6, 8), normal(2, 96, 3, 3), {"pads": (1, 1, 1, 1)}),
        (normal(2, 3, 1, 40), normal(4, 3, 1, 7), {"pads": (0, 0, 3, 3)}),
    ],
)
def test_work_memory_holds_whatever_other_steps_left_in_it(x: Any, w: Any, attrs: dict[str, Any]) -> None:
    memory = np.empty(1 << 22, np.uint8)
    conv = op("Conv2D", data_format="NCHW", **{"strides": (1, 1, 1, 1), **attrs})
    conv.constant_inputs = frozenset([1])
    conv.lend_scratch = lambda size: memory[:size]
    expected = conv.kernel(x, w)
    y = np.empty_like(expected)
    step = conv.bind([x, w], [y])
    for _ in range(2):
        memory[:] = 0xFF  # NaN
        step()
        assert_close(y, expected, "bind", bar=1e-6)


@pytest.mark.parametrize("channels, stride", [(8, 1), (1, 2)])
def test_a_long_signal_is_convolved_in_bands_too(channels: int, stride: int) -> None:
    lent = []

    def lend(size: int) -> Any:
        lent.append(size)
        return np.empty(size, np.uint8)

    x, w = normal(1, channels, 1, 40_000), normal(channels // 2 or 1, channels, 1, 64)
    conv = op("Conv2D", data_format="NCHW", strides=(1, 1, 1, stride), pads=(0, 0, 0, 0))
    conv.lend_scratch = lend
    y = np.empty((1, len(w), 1, (40_000 - 64) // stride + 1), np.float32)
    conv.bind([x, w], [y])()
    assert_close(y, conv.kernel(x, w), "bind", bar=1e-6)
    assert sum(lent) <= 2 << 20  # the columns of all positions are 5 to 82 MB
