"""Normalisations against onnxruntime and the worked numbers of the training specification."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from gecli.ops.registry import find
from tests.ops.onnx_judge import assert_close, judge

RANDOM = np.random.default_rng(23)


def normal(*shape: int, dtype: Any = np.float32) -> NDArray[Any]:
    return RANDOM.standard_normal(shape).astype(dtype)


def positive(*shape: int) -> NDArray[Any]:
    return np.abs(normal(*shape)) + np.float32(0.1)


def op(type: str, **attrs: Any) -> Any:
    kind = find(type)
    assert kind is not None
    return kind.cls(**attrs)


@pytest.mark.parametrize("shape", [(2, 3, 5, 4), (2, 3), (2, 3, 4), (2, 3, 2, 3, 4)])
@pytest.mark.parametrize("opset", [7, 9, 14, 15])
def test_batch_normalization_equals_onnxruntime(opset: int, shape: tuple[int, ...]) -> None:
    inputs = [normal(*shape), normal(3), normal(3), normal(3), positive(3)]
    judge("BatchNormalization", inputs, attrs={"epsilon": 1e-3}, opset=opset, constant=(1, 2, 3, 4))


def test_training_updates_the_running_statistics() -> None:
    inputs = [normal(2, 3, 5, 4), normal(3), normal(3), normal(3), positive(3)]
    judge("BatchNormalization", inputs, attrs={"training_mode": 1, "momentum": 0.7}, opset=15, outputs=3)


HALF = [normal(2, 3, 8, dtype=np.float16), normal(8, dtype=np.float16), normal(8, dtype=np.float16)]
CASES: dict[str, tuple[str, list[Any], dict[str, Any], int, int]] = {
    "instance": ("InstanceNormalization", [normal(2, 3, 5, 4), normal(3), normal(3)], {}, 17, 1),
    "instance 1-D": ("InstanceNormalization", [normal(2, 3, 9), normal(3), normal(3)], {"epsilon": 1e-2}, 17, 1),
    "layer": ("LayerNormalization", [normal(2, 3, 8), normal(8), normal(8)], {}, 17, 1),
    "layer without beta": ("LayerNormalization", [normal(2, 3, 8), normal(8)], {"epsilon": 1e-2}, 17, 1),
    "layer axis": ("LayerNormalization", [normal(2, 3, 8), normal(3, 8), normal(3, 8)], {"axis": 1}, 17, 3),
    "layer spread": ("LayerNormalization", [normal(2, 3, 8), normal(1, 8), normal(1)], {"axis": 1}, 17, 1),
    "layer half": ("LayerNormalization", HALF, {}, 17, 1),
    "group": ("GroupNormalization", [normal(2, 6, 4, 3), normal(6), normal(6)], {"num_groups": 3}, 21, 1),
    "rms": ("RMSNormalization", [normal(2, 6, 4), normal(4)], {}, 23, 1),
    "lrn": ("LRN", [normal(2, 7, 4, 3)], {"size": 3, "alpha": 0.3}, 17, 1),
    "mean variance": ("MeanVarianceNormalization", [normal(2, 7, 4, 3)], {}, 13, 1),
    "l1": ("LpNormalization", [normal(2, 3, 8)], {"axis": 1, "p": 1}, 17, 1),
    "l2": ("LpNormalization", [normal(2, 3, 8)], {}, 17, 1),
}


@pytest.mark.parametrize("name", CASES)
def test_a_normalisation_equals_onnxruntime(name: str) -> None:
    type, inputs, attrs, opset, outputs = CASES[name]
    judge(type, inputs, attrs=attrs, opset=opset, outputs=outputs, constant=tuple(range(1, len(inputs))))


def test_group_normalization_before_opset_21_has_one_scale_per_group() -> None:
    inputs = [normal(2, 6, 4, 3), normal(3), normal(3)]
    judge("GroupNormalization", inputs, attrs={"num_groups": 3}, opset=18, judge_with="reference")


def test_an_even_lrn_window_takes_one_more_channel_above() -> None:
    x = normal(1, 5, 2, 2)
    squares = np.square(x)
    total = np.stack([squares[:, max(0, c - 1) : c + 3].sum(axis=1) for c in range(5)], axis=1)
    expected = x / (1 + np.float32(0.3 / 4) * total) ** np.float32(0.75)
    judge("LRN", [x], attrs={"size": 4, "alpha": 0.3}, expected=[expected])


def test_batch_norm_in_training_gives_the_worked_statistics() -> None:
    x = np.float32([1, 2, 3, 6]).reshape(1, 2, 2, 1)
    y, mean, variance, saved_mean, saved_variance, reserve = op("BatchNorm").kernel(x, np.float32([2]), np.float32([1]))
    assert mean.tolist() == saved_mean.tolist() == [3]
    np.testing.assert_allclose([variance[0], saved_variance[0]], [14 / 3, 3.5], rtol=1e-6)
    normalised = np.array([-1.069030, -0.534515, 0, 1.603545])
    np.testing.assert_allclose(y.reshape(-1), normalised * 2 + 1, atol=2e-6)
    assert reserve.tolist() == [0]


def test_running_statistics_mix_with_the_averaging_factor() -> None:
    x = np.float32([1, 2, 3, 6]).reshape(1, 2, 2, 1)
    layer = op("BatchNorm", exponential_avg_factor=0.25)
    _, mean, variance, *_ = layer.kernel(x, np.float32([2]), np.float32([1]), np.float32([7]), np.float32([2]))
    np.testing.assert_allclose([mean[0], variance[0]], [6, 0.75 * 2 + 0.25 * 14 / 3], rtol=1e-6)


def test_half_precision_keeps_float_statistics() -> None:
    x = normal(4, 8, 8, 3, dtype=np.float16)
    y, mean, *_ = op("BatchNorm").kernel(x, positive(3), normal(3))
    assert y.dtype == np.float16 and mean.dtype == np.float32
    assert_close(mean, x.astype(np.float64).mean(axis=(0, 1, 2)).astype(np.float32), "mean", bar=1e-6)


def test_the_inference_forms_agree() -> None:
    x, scale, offset, mean, variance = normal(2, 3, 4, 4), normal(3), normal(3), normal(3), positive(3)
    attrs = {"epsilon": 1e-3, "is_training": False, "data_format": "NCHW"}
    expected = op("BatchNorm", **attrs).kernel(x, scale, offset, mean, variance)[0]
    assert_close(op("BNInfer", epsilon=1e-3).kernel(x, scale, offset, mean, variance), expected, "BNInfer", bar=1e-6)
    inference = op("BNInference", epsilon=1e-3)
    one = np.float32([1])
    assert_close(inference.kernel(x, mean, variance, one, scale, offset), expected, "BNInference", bar=1e-6)
    root = (1 / np.sqrt(variance + np.float32(1e-3))).astype(np.float32)
    assert_close(op("BNInferenceD").kernel(x, -mean, root, scale, offset), expected, "BNInferenceD", bar=1e-5)


def test_l2_normalize_divides_by_no_less_than_eps() -> None:
    layer = op("L2Normalize", axis=(1,), eps=0.5)
    y = layer.kernel(np.float32([[3, 4], [0.1, 0]]))
    np.testing.assert_allclose(y, [[0.6, 0.8], [0.2, 0]], rtol=1e-6)


def test_layer_norm_v3_returns_the_inverse_deviation() -> None:
    x = normal(4, 6)
    y, mean, rstd = op("LayerNormV3", begin_norm_axis=1).kernel(x, np.ones(6, np.float32), np.zeros(6, np.float32))
    np.testing.assert_allclose(y, (x - mean) * rstd, rtol=1e-5, atol=1e-6)
