"""Gradients of convolution, pooling and normalisation against central differences and worked numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from gecli.ir.dtype import DataType
from gecli.ir.format import Format
from gecli.ir.tensor_desc import TensorDesc
from gecli.ops.inference import InferenceError
from gecli.ops.operator import KnownDesc
from gecli.ops.registry import find

Array = NDArray[Any]
RANDOM = np.random.default_rng(25)
STEP = 1e-6


def op(type: str, **attrs: Any) -> Any:
    kind = find(type)
    assert kind is not None
    return kind.cls(**attrs)


def normal(*shape: int) -> Array:
    return RANDOM.standard_normal(shape)


def central(forward: Callable[[Array], Array], x: Array, g: Array) -> Array:
    """The gradient of sum(forward(x) * g), element by element."""
    result = np.zeros_like(x)
    for place in np.ndindex(x.shape):
        moved = x.copy()
        moved[place] += STEP
        upper = float((forward(moved) * g).sum())
        moved[place] -= 2 * STEP
        result[place] = (upper - float((forward(moved) * g).sum())) / (2 * STEP)
    return result


def close(got: Array, want: Array) -> None:
    np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-7)


def sizes(*shape: int) -> Array:
    return np.array(shape, np.int32)


CONVS: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "plain": ((1, 2, 4, 5), (3, 2, 3, 2), {"strides": (1, 1, 1, 1), "pads": (0, 0, 0, 0)}),
    "stride and pads": ((2, 2, 5, 4), (2, 2, 3, 3), {"strides": (1, 1, 2, 1), "pads": (1, 0, 1, 2)}),
    "rows left over": ((1, 1, 6, 6), (1, 1, 3, 3), {"strides": (1, 1, 2, 2), "pads": (0, 0, 0, 0)}),
    "dilated": (
        (1, 2, 6, 6),
        (2, 2, 2, 3),
        {"strides": (1, 1, 1, 2), "pads": (1, 1, 1, 1), "dilations": (1, 1, 3, 2)},
    ),
    "groups": ((1, 4, 4, 4), (2, 2, 3, 3), {"strides": (1, 1, 1, 1), "pads": (1, 1, 1, 1), "groups": 2}),
}


@pytest.mark.parametrize("name", CONVS)
def test_conv_gradients_are_the_adjoints(name: str) -> None:
    x_shape, w_shape, attrs = CONVS[name]
    attrs = {**attrs, "data_format": "NCHW"}
    x, w = normal(*x_shape), normal(*w_shape)
    conv = op("Conv2D", **attrs)
    g = normal(*conv.kernel(x, w).shape)
    dx, dw = central(lambda v: conv.kernel(v, w), x, g), central(lambda v: conv.kernel(x, v), w, g)
    close(op("Conv2DBackpropInput", **attrs).kernel(sizes(*x_shape), w, g), dx)
    close(op("Conv2DBackpropInputD", input_size=x_shape, **attrs).kernel(w, g), dx)
    close(op("Conv2DBackpropFilter", **attrs).kernel(x, sizes(*w_shape), g), dw)
    close(op("Conv2DBackpropFilterD", filter_size=w_shape, **attrs).kernel(x, g), dw)


def test_channels_last_gradients_take_hwcn_sizes() -> None:
    x, w = normal(1, 4, 5, 2), normal(3, 2, 2, 3)
    attrs = {"strides": (1, 2, 1, 1), "pads": (1, 0, 0, 1)}
    conv = op("Conv2D", **attrs)
    g = normal(*conv.kernel(x, w).shape)
    close(op("Conv2DBackpropInput", **attrs).kernel(sizes(*x.shape), w, g), central(lambda v: conv.kernel(v, w), x, g))
    close(op("Conv2DBackpropFilter", **attrs).kernel(x, sizes(*w.shape), g), central(lambda v: conv.kernel(x, v), w, g))


def test_conv3d_gradients_are_the_adjoints() -> None:
    x, w = normal(1, 2, 3, 4, 3), normal(2, 2, 2, 3, 2)
    attrs = {"strides": (1, 1, 1, 2, 1), "pads": (0, 1, 1, 1, 0, 0), "data_format": "NCDHW"}
    conv = op("Conv3D", **attrs)
    g = normal(*conv.kernel(x, w).shape)
    dx, dw = central(lambda v: conv.kernel(v, w), x, g), central(lambda v: conv.kernel(x, v), w, g)
    close(op("Conv3DBackpropInputD", input_size=x.shape, **attrs).kernel(w, g), dx)
    close(op("Conv3DBackpropFilterD", filter_size=w.shape, **attrs).kernel(x, g), dw)


def test_depthwise_gradients_are_the_adjoints() -> None:
    x, w = normal(1, 5, 4, 2), normal(3, 2, 2, 3)
    attrs = {"strides": (1, 2, 2, 1), "pads": (1, 1, 0, 1)}
    conv = op("DepthwiseConv2D", **attrs)
    g = normal(*conv.kernel(x, w).shape)
    dx, dw = central(lambda v: conv.kernel(v, w), x, g), central(lambda v: conv.kernel(x, v), w, g)
    close(op("DepthwiseConv2DBackpropInput", **attrs).kernel(sizes(*x.shape), w, g), dx)
    close(op("DepthwiseConv2DBackpropInputD", input_size=x.shape, **attrs).kernel(w, g), dx)
    close(op("DepthwiseConv2DBackpropFilter", **attrs).kernel(x, sizes(*w.shape), g), dw)
    close(op("DepthwiseConv2DBackpropFilterD", filter_size=w.shape, **attrs).kernel(x, g), dw)


def test_conv_gradients_give_the_worked_numbers() -> None:
    attrs = {"strides": (1, 1, 1, 1), "pads": (0, 0, 0, 0), "data_format": "NCHW"}
    x = np.arange(1, 10, dtype=np.float32).reshape(1, 1, 3, 3)
    g = np.float32([[1, 2], [3, 4]]).reshape(1, 1, 2, 2)
    w = np.float32([[1, 0], [0, -1]]).reshape(1, 1, 2, 2)
    dw = op("Conv2DBackpropFilter", **attrs).kernel(x, sizes(1, 1, 2, 2), g)
    dx = op("Conv2DBackpropInput", **attrs).kernel(sizes(1, 1, 3, 3), w, g)
    assert dw[0, 0].tolist() == [[37, 47], [67, 77]]
    assert dx[0, 0].tolist() == [[1, 2, 0], [3, 3, -2], [0, -3, -4]]


def test_filter_gradients_of_half_precision_accumulate_in_float() -> None:
    attrs = {"strides": (1, 1, 1, 1), "pads": (0, 0, 0, 0), "data_format": "NCHW"}
    x, g = (normal(4, 1, 32, 32).astype(np.float16) for _ in range(2))
    wide = op("Conv2DBackpropFilterD", filter_size=(1, 1, 1, 1), **attrs).kernel(x, g)
    assert wide.dtype == np.float32
    np.testing.assert_allclose(wide.reshape(()), (x.astype(np.float64) * g).sum(), rtol=1e-5)
    same = op("Conv2DBackpropFilter", **attrs).kernel(x, sizes(1, 1, 1, 1), g)
    assert same.dtype == np.float16


def test_a_gradient_that_does_not_fit_names_the_size_that_would() -> None:
    grad = op("Conv2DBackpropInput", strides=(1, 1, 2, 2), pads=(0, 0, 0, 0), data_format="NCHW")
    size = KnownDesc.of(TensorDesc(DataType.INT32, (4,)), sizes(1, 2, 9, 9))
    w = TensorDesc(DataType.FLOAT, (3, 2, 3, 3), Format.NCHW)
    with pytest.raises(InferenceError, match=r"input_size \[9, 9\].*\[4, 4\].*\[5, 5\]"):
        grad.infer(size, w, TensorDesc(DataType.FLOAT, (1, 3, 5, 5)))
    assert grad.infer(size, w, TensorDesc(DataType.FLOAT, (1, 3, 4, 4))).shape == (1, 2, 9, 9)


MAX_ATTRS: list[dict[str, Any]] = [
    {"ksize": (1, 1, 2, 3), "strides": (1, 1, 1, 2), "pads": (1, 0, 1, 1)},
    {"ksize": (1, 1, 3, 3), "strides": (1, 1, 2, 2), "ceil_mode": True},
    {"ksize": (1, 1, 1, 1), "strides": (1, 1, 1, 1), "global_pooling": True},
]


@pytest.mark.parametrize("attrs", MAX_ATTRS, ids=["pads", "ceil", "global"])
def test_v3_pool_gradients_are_the_adjoints(attrs: dict[str, Any]) -> None:
    x = RANDOM.permutation(60).astype(np.float64).reshape(1, 2, 6, 5)
    for forward_type, backward_type in (("MaxPoolV3", "MaxPoolV3Grad"), ("AvgPoolV2", "AvgPoolV2Grad")):
        forward = op(forward_type, **attrs)
        y = forward.kernel(x)
        g = normal(*y.shape)
        expected = central(forward.kernel, x, g)
        backward = op(backward_type, **attrs)
        inputs = (x, y, g) if backward_type.startswith("Max") else (sizes(*x.shape), g)
        np.testing.assert_allclose(backward.kernel(*inputs), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("attrs", [{"exclusive": False}, {"divisor_override": 3}, {}])
def test_avg_pool_v2_gradients_use_the_forward_divisor(attrs: dict[str, Any]) -> None:
    attrs = {**attrs, "ksize": (1, 1, 3, 2), "strides": (1, 1, 2, 2), "pads": (1, 1, 1, 0), "ceil_mode": True}
    x = normal(1, 2, 6, 5)
    forward = op("AvgPoolV2", **attrs)
    g = normal(*forward.kernel(x).shape)
    expected = central(forward.kernel, x, g)
    close(op("AvgPoolV2Grad", **attrs).kernel(sizes(*x.shape), g), expected)
    close(op("AvgPoolV2GradD", orig_input_shape=x.shape, **attrs).kernel(g), expected)


@pytest.mark.parametrize("padding", ["SAME", "VALID"])
def test_pool_gradients_are_the_adjoints(padding: str) -> None:
    attrs = {"ksize": (1, 3, 2, 1), "strides": (1, 2, 1, 1), "padding": padding}
    x = RANDOM.permutation(60).astype(np.float64).reshape(1, 6, 5, 2)
    forward = op("MaxPool", **attrs)
    g = normal(*forward.kernel(x).shape)
    expected = central(forward.kernel, x, g)
    np.testing.assert_allclose(op("MaxPoolGrad", **attrs).kernel(x, forward.kernel(x), g), expected, atol=1e-6)
    _, argmax = op("MaxPoolWithArgmax", **attrs).kernel(x)
    np.testing.assert_allclose(op("MaxPoolGradWithArgmax", **attrs).kernel(x, g, argmax), expected, atol=1e-6)
    mean = op("AvgPool", **attrs)
    expected = central(mean.kernel, x, g)
    close(op("AvgPoolGrad", **attrs).kernel(sizes(*x.shape), g), expected)
    close(op("AvgPoolGradD", orig_input_shape=x.shape, **attrs).kernel(g), expected)


def test_argmax_v1_gradients_are_the_adjoints() -> None:
    attrs = {"ksize": (1, 3, 2, 1), "strides": (1, 2, 1, 1), "pads": (1, 1, 0, 1)}
    x = RANDOM.permutation(60).astype(np.float64).reshape(1, 2, 6, 5)
    forward = op("MaxPoolWithArgmaxV1", **attrs)
    y, argmax = forward.kernel(x)
    g = normal(*y.shape)
    expected = central(lambda v: forward.kernel(v)[0], x, g)
    np.testing.assert_allclose(op("MaxPoolGradWithArgmaxV1", **attrs).kernel(x, g, argmax), expected, atol=1e-6)
    with pytest.raises(ValueError, match="bit mask"):
        op("MaxPoolGradWithArgmaxV1", **attrs).kernel(x, g, argmax.astype(np.uint16))


def test_batch_indices_may_count_over_the_whole_tensor() -> None:
    attrs = {"ksize": (1, 2, 2, 1), "strides": (1, 2, 2, 1), "padding": "VALID"}
    x, g = normal(3, 4, 4, 2), normal(3, 2, 2, 2)
    expected = op("MaxPoolGradWithArgmax", **attrs).kernel(x, g, op("MaxPoolWithArgmax", **attrs).kernel(x)[1])
    attrs["include_batch_in_index"] = True
    got = op("MaxPoolGradWithArgmax", **attrs).kernel(x, g, op("MaxPoolWithArgmax", **attrs).kernel(x)[1])
    np.testing.assert_array_equal(got, expected)


def test_pool_gradients_give_the_worked_numbers() -> None:
    two = op("MaxPoolGrad", ksize=(1, 1, 2, 2), strides=(1, 1, 2, 2), padding="VALID", data_format="NCHW")
    ones = np.ones((1, 1, 2, 2), np.float32)
    corner = np.float32([[[[5]]]])
    assert two.kernel(ones, ones[:, :, :1, :1], corner)[0, 0].tolist() == [[5, 0], [0, 0]]
    row = op("MaxPoolGrad", ksize=(1, 1, 1, 2), strides=(1, 1, 1, 1), padding="VALID", data_format="NCHW")
    x, g = np.float32([1, 3, 3, 2]).reshape(1, 1, 1, 4), np.float32([1, 2, 4]).reshape(1, 1, 1, 3)
    assert row.kernel(x, g, g).reshape(-1).tolist() == [0, 3, 4, 0]
    mean = op("AvgPoolGrad", ksize=(1, 1, 1, 2), strides=(1, 1, 1, 2), padding="SAME", data_format="NCHW")
    assert mean.kernel(sizes(1, 1, 1, 3), np.float32([2, 4]).reshape(1, 1, 1, 2)).reshape(-1).tolist() == [1, 1, 4]


def gradients(forward: Callable[..., Array], inputs: Sequence[Array], g: Array) -> list[Array]:
    """Central differences in every input."""
    found = []
    for slot in range(len(inputs)):

        def moved(value: Array, slot: int = slot) -> Array:
            return forward(*inputs[:slot], value, *inputs[slot + 1 :])

        found.append(central(moved, inputs[slot], g))
    return found


@pytest.mark.parametrize("data_format, shape", [("NHWC", (2, 2, 2, 3)), ("NCHW", (2, 3, 2, 2))])
def test_batch_norm_gradients_are_the_adjoints(data_format: str, shape: tuple[int, ...]) -> None:
    x, scale, offset, g = normal(*shape), normal(3), normal(3), normal(*shape)
    forward = op("BatchNorm", data_format=data_format)
    outputs = forward.kernel(x, scale, offset)
    dx, dscale, doffset = gradients(lambda *v: forward.kernel(*v)[0], [x, scale, offset], g)
    grad = op("BatchNormGrad", data_format=data_format).kernel(g, x, scale, outputs[3], outputs[4])
    for got, want in zip(grad, (dx, dscale, doffset, np.zeros(3), np.zeros(3))):
        close(got, want)


def test_the_two_step_batch_norm_equals_the_one_step_one() -> None:
    x, scale, offset, g = normal(2, 3, 2, 2), normal(3), normal(3), normal(2, 3, 2, 2)
    one = op("BatchNorm", data_format="NCHW").kernel(x, scale, offset)
    sums = op("BNTrainingReduce").kernel(x)
    y, mean, variance = op("BNTrainingUpdateV2", epsilon=1e-4).kernel(x, *sums, scale, offset)
    close(y, one[0])
    third = op("BNTrainingUpdateV3", epsilon=1e-4).kernel(x, *sums, scale, offset)
    for got, want in zip(third, one[:5]):
        close(got, want)
    expected = op("BatchNormGrad", data_format="NCHW").kernel(g, x, scale, one[3], one[4])
    dscale, doffset = op("BNTrainingUpdateGrad").kernel(g, x, mean, variance)
    dx = op("BNTrainingReduceGrad").kernel(g, x, dscale, doffset, scale, mean, variance)
    for got, want in zip((dx, dscale, doffset), expected):
        close(got, want)


def test_bn_training_update_moves_the_running_statistics() -> None:
    x = np.float32([1, 2, 3, 6]).reshape(1, 1, 2, 2)
    update = op("BNTrainingUpdate", factor=0.25, epsilon=1e-4)
    vectors = [np.float32([v]) for v in (12, 50, 2, 1, 7, 2)]
    _, mean, variance, batch_mean, batch_variance = update.kernel(x, *vectors)
    np.testing.assert_allclose([mean[0], variance[0]], [0.75 * 7 + 0.25 * 3, 0.75 * 2 + 0.25 * 14 / 3], rtol=1e-6)
    assert (batch_mean[0], batch_variance[0]) == (3, 3.5)
    assert update.type.writes == ("mean", "variance")


def test_a_cancelled_variance_is_not_negative() -> None:
    x = np.full((1, 1, 2, 2), 1000.1, np.float32)
    sums = (np.float32([4000.4]), np.float32([4000799.0]))
    _, _, variance = op("BNTrainingUpdateV2", epsilon=1e-4).kernel(x, *sums, np.float32([1]), np.float32([0]))
    assert variance[0] == 0


def test_bn_infer_grad_is_the_adjoint() -> None:
    x, scale, offset, mean, variance, g = (
        normal(2, 3, 2, 2),
        normal(3),
        normal(3),
        normal(3),
        np.ones(3),
        normal(2, 3, 2, 2),
    )
    forward = op("BNInfer", epsilon=1e-4)
    expected = central(lambda v: forward.kernel(v, scale, offset, mean, variance), x, g)
    close(op("BNInferGrad").kernel(g, scale, variance), expected)


def test_layer_norm_gradients_are_the_adjoints() -> None:
    x, gamma, beta, g = normal(2, 3, 4), normal(3, 4), normal(3, 4), normal(2, 3, 4)
    forward = op("LayerNorm", begin_norm_axis=1, epsilon=1e-12)
    expected = gradients(lambda *v: forward.kernel(*v)[0], [x, gamma, beta], g)
    _, mean, variance = forward.kernel(x, gamma, beta)
    whole = op("LayerNormGrad").kernel(g, x, variance, mean, gamma)
    third = op("LayerNormGradV3").kernel(g, x, 1 / np.sqrt(variance + 1e-12), mean, gamma)
    half = op("LayerNormXBackprop").kernel(g, x, variance, mean, gamma)
    second, kept = op("LayerNormXBackpropV2").kernel(g, x, variance, mean, gamma)
    parameters = op("LayerNormBetaGammaBackprop", shape_gamma=(3, 4)).kernel(g, x, variance, mean)
    again = op("LayerNormBetaGammaBackpropV2", shape_gamma=(3, 4)).kernel(g, kept)
    for found in (whole, third, (half, *parameters), (second, *again)):
        for got, want in zip(found, expected, strict=True):
            close(got, want)


def test_normalisation_gradients_give_the_worked_numbers() -> None:
    x, dy = np.float32([1, 2, 3, 6]).reshape(1, 1, 2, 2), np.float32([1, 0, 0, -1]).reshape(1, 1, 2, 2)
    vectors = (np.float32([2]), np.float32([3]), np.float32([3.5]))
    dx, dscale, doffset, *_ = op("BatchNormGrad", data_format="NCHW").kernel(dy, x, *vectors)
    np.testing.assert_allclose(dx.reshape(-1), [0.305459, -0.381785, 0, 0.076327], atol=2e-6)
    np.testing.assert_allclose([dscale[0], doffset[0]], [-2.672574, 0], atol=2e-6)
    gamma = np.float32([1, 2, 1, 1])
    row = (dy.reshape(1, 4), x.reshape(1, 4), np.float32([[3.5]]), np.float32([[3]]), gamma)
    pd_x, pd_gamma, pd_beta = op("LayerNormGrad").kernel(*row)
    np.testing.assert_allclose(pd_x[0], [0.152721, -0.190901, 0, 0.038180], atol=2e-6)
    np.testing.assert_allclose(pd_gamma, [-1.069045, 0, 0, -1.603567], atol=2e-6)
    assert pd_beta.tolist() == [1, 0, 0, -1]


def test_instance_group_and_rms_gradients_are_the_adjoints() -> None:
    x, g = normal(2, 4, 2, 3), normal(2, 4, 2, 3)
    gamma, beta = normal(4), normal(4)
    forward = op("InstanceNorm", data_format="NCHW")
    expected = gradients(lambda *v: forward.kernel(*v)[0], [x, gamma, beta], g)
    _, mean, variance = forward.kernel(x, gamma, beta)
    for got, want in zip(op("InstanceNormGrad").kernel(g, x, variance, mean, gamma), expected, strict=True):
        close(got, want)
    forward = op("GroupNorm", num_groups=2)
    expected = gradients(lambda *v: forward.kernel(*v)[0], [x, gamma, beta], g)
    _, mean, rstd = forward.kernel(x, gamma, beta)
    for got, want in zip(op("GroupNormGrad", num_groups=2).kernel(g, mean, rstd, x, gamma), expected, strict=True):
        close(got, want)
    forward, weights = op("RmsNorm"), normal(3)
    expected = gradients(lambda *v: forward.kernel(*v)[0], [x, weights], g)
    for got, want in zip(op("RmsNormGrad").kernel(g, x, forward.kernel(x, weights)[1], weights), expected, strict=True):
        close(got, want)


def test_l2_and_lrn_gradients_are_the_adjoints() -> None:
    x, g = normal(2, 7, 2, 2), normal(2, 7, 2, 2)
    forward = op("L2Normalize", axis=(1,))
    close(op("L2NormalizeGrad", dim=(1,)).kernel(x, forward.kernel(x), g), central(forward.kernel, x, g))
    attrs = {"depth_radius": 2, "alpha": 0.3, "beta": 0.75, "bias": 1.5}
    forward = op("LRN", **attrs)
    close(op("LRNGrad", **attrs).kernel(g, x, forward.kernel(x)), central(forward.kernel, x, g))
