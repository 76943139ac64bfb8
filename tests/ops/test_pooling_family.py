"""Pools and regions against onnxruntime, and the rules that onnxruntime cannot judge."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from gecli.ops.registry import find
from tests.ops.onnx_judge import assert_close, judge

RANDOM = np.random.default_rng(21)
NAN = float("nan")


def normal(*shape: int) -> NDArray[Any]:
    return RANDOM.standard_normal(shape).astype(np.float32)


def op(type: str, **attrs: Any) -> Any:
    kind = find(type)
    assert kind is not None
    return kind.cls(**attrs)


WINDOWS: dict[str, dict[str, Any]] = {
    "plain": {"kernel_shape": [3, 3]},
    "uneven": {"kernel_shape": [3, 2], "strides": [2, 1], "pads": [1, 0, 1, 1]},
    "rounded up": {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1},
    "rounded up with pads": {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1, "pads": [1, 1, 1, 1]},
    "same upper": {"kernel_shape": [4, 3], "auto_pad": "SAME_UPPER", "strides": [3, 2]},
    "same lower": {"kernel_shape": [4, 3], "auto_pad": "SAME_LOWER", "strides": [1, 2]},
}
IMAGE = normal(2, 3, 9, 8)


@pytest.mark.parametrize("name", WINDOWS)
def test_pools_equal_onnxruntime(name: str) -> None:
    attrs = WINDOWS[name]
    judge("MaxPool", [IMAGE], attrs=attrs)
    judge("MaxPool", [IMAGE], attrs=attrs, outputs=2)
    judge("AveragePool", [IMAGE], attrs=attrs)
    judge("AveragePool", [IMAGE], attrs={**attrs, "count_include_pad": 1}, opset=19)


OTHERS: dict[str, tuple[str, list[Any], dict[str, Any], int]] = {
    "max dilated": ("MaxPool", [IMAGE], {"kernel_shape": [3, 2], "dilations": [2, 3], "pads": [1, 0, 1, 1]}, 17),
    "average dilated": ("AveragePool", [IMAGE], {"kernel_shape": [3, 2], "dilations": [2, 3]}, 19),
    "max bytes": ("MaxPool", [(IMAGE * 50).astype(np.int8)], {"kernel_shape": [3, 2], "pads": [1, 0, 1, 1]}, 17),
    "max 1-D": ("MaxPool", [normal(2, 5, 17)], {"kernel_shape": [3], "pads": [1, 1], "strides": [2]}, 17),
    "max 3-D": ("MaxPool", [normal(2, 3, 5, 6, 4)], {"kernel_shape": [2, 3, 3], "strides": [2, 1, 2]}, 17),
    "average 1-D": ("AveragePool", [normal(2, 5, 17)], {"kernel_shape": [3], "pads": [1, 1]}, 17),
    "average 3-D": ("AveragePool", [normal(2, 3, 5, 6, 4)], {"kernel_shape": [2, 3, 3], "pads": [1] * 6}, 17),
    "global average": ("GlobalAveragePool", [IMAGE], {}, 17),
    "global average 1-D": ("GlobalAveragePool", [normal(2, 3, 5)], {}, 17),
    "lp": ("LpPool", [IMAGE], {"p": 3, "kernel_shape": [3, 2], "pads": [1, 0, 1, 1], "strides": [2, 1]}, 17),
}


@pytest.mark.parametrize("name", OTHERS)
def test_a_pool_equals_onnxruntime(name: str) -> None:
    type, inputs, attrs, opset = OTHERS[name]
    judge(type, inputs, attrs=attrs, opset=opset)


@pytest.mark.parametrize("type", ["GlobalMaxPool", "GlobalLpPool"])
def test_a_global_pool_equals_onnxruntime(type: str) -> None:
    judge(type, [IMAGE])
    judge(type, [normal(2, 3, 4, 3, 5)])


def test_indices_may_count_column_by_column() -> None:
    judge("MaxPool", [IMAGE], attrs={"kernel_shape": [3, 2], "storage_order": 1}, outputs=2)


def test_a_half_precision_average_is_rounded_once() -> None:
    x = (normal(1, 2, 40, 40) * 100).astype(np.float16)
    pool = op("AvgPoolV2", ksize=(1, 1, 40, 40), strides=(1, 1, 1, 1))
    assert_close(pool.kernel(x)[0, :, 0, 0], x[0].astype(np.float64).mean(axis=(1, 2)).astype(np.float16), "mean")


def test_nan_is_the_maximum_of_its_window() -> None:
    x = np.float32([1, NAN, 2, 3]).reshape(1, 1, 1, 4)
    pool = op("MaxPoolV3", ksize=(1, 1, 1, 2), strides=(1, 1, 1, 2))
    np.testing.assert_array_equal(pool.kernel(x).reshape(-1), [NAN, 3])


def test_argmax_pooling_skips_nan_unless_told_otherwise() -> None:
    x = np.float32([1, NAN, NAN, NAN]).reshape(1, 1, 1, 4)
    attrs = {"ksize": (1, 1, 1, 2), "strides": (1, 1, 1, 2), "padding": "VALID", "data_format": "NCHW"}
    y, index = op("MaxPoolWithArgmax", **attrs).kernel(x)
    np.testing.assert_array_equal(y.reshape(-1), [1, -np.inf])
    assert index.reshape(-1).tolist()[0] == 0
    y, index = op("MaxPoolWithArgmax", nan_prop=True, **attrs).kernel(x)
    np.testing.assert_array_equal(y.reshape(-1), [NAN, NAN])
    assert index.reshape(-1).tolist() == [1, 2]


def test_argmax_counts_in_nhwc_order_within_the_image() -> None:
    x = np.zeros((2, 4, 4, 3), np.float32)
    x[1, 2, 3, 1] = 5
    pool = op("MaxPoolWithArgmax", ksize=(1, 4, 4, 1), strides=(1, 4, 4, 1), padding="VALID")
    y, index = pool.kernel(x)
    assert y[1, 0, 0].tolist() == [0, 5, 0]
    assert index[1, 0, 0].tolist() == [0, (2 * 4 + 3) * 3 + 1, 2]
    assert index.dtype == np.int64


def test_argmax_v1_counts_within_a_plane() -> None:
    x = np.float32([[1, 3], [2, 0]]).reshape(1, 1, 2, 2).repeat(2, axis=1)
    y, index = op("MaxPoolWithArgmaxV1", ksize=(1, 2, 2, 1), strides=(1, 2, 2, 1), pads=(1, 0, 0, 1)).kernel(x)
    assert y.reshape(-1).tolist() == [3, 3]
    assert index.reshape(-1).tolist() == [1, 1]
    assert index.dtype == np.int32


def test_adaptive_windows_follow_floor_and_ceil() -> None:
    x = np.arange(7, dtype=np.float32).reshape(1, 1, 1, 7)
    y = op("AdaptiveAvgPool2d", output_size=(1, 3)).kernel(x)
    assert y.reshape(-1).tolist() == [1, 3, 5]


def test_caffe_pooling_rounds_up_and_counts_pads_in_the_mean() -> None:
    x = np.ones((1, 1, 4, 4), np.float32)
    attrs = {"window": (3, 3), "stride": (2, 2), "pad": (1, 1, 1, 1)}
    assert op("Pooling", mode=0, **attrs).kernel(x).shape == (1, 1, 3, 3)
    mean = op("Pooling", mode=1, **attrs).kernel(x)
    np.testing.assert_allclose(mean[0, 0, 0], [4 / 9, 6 / 9, 2 / 6], rtol=1e-6)


ROIS = np.float32([[0, 0, 3, 4], [1, 2, 4.5, 4], [-1, -2, 8, 9]])


@pytest.mark.parametrize("sampling_ratio", [0, 2])
@pytest.mark.parametrize("opset", [10, 16])
@pytest.mark.parametrize("mode", ["avg", "max"])
def test_roi_align_equals_onnxruntime(mode: str, opset: int, sampling_ratio: int) -> None:
    attrs = {
        "mode": mode,
        "output_height": 2,
        "output_width": 3,
        "sampling_ratio": sampling_ratio,
        "spatial_scale": 0.9,
    }
    judge("RoiAlign", [normal(2, 3, 5, 6), ROIS, np.array([0, 1, 0])], attrs=attrs, opset=opset)


def test_max_roi_pool_equals_onnxruntime() -> None:
    rois = np.concatenate([np.float32([[0], [1], [0]]), ROIS], axis=1)
    judge("MaxRoiPool", [normal(2, 3, 5, 6), rois], attrs={"pooled_shape": [2, 3], "spatial_scale": 0.9})


def test_unpooled_values_return_to_their_indices() -> None:
    x = np.float32([5, 6, 7, 8]).reshape(1, 1, 2, 2)
    indices = np.array([5, 7, 13, 15]).reshape(1, 1, 2, 2)
    (y,) = judge("MaxUnpool", [x, indices], attrs={"kernel_shape": [2, 2], "strides": [2, 2]})
    assert y[0, 0, 1].tolist() == [0, 5, 0, 6]
