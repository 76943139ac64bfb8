"""Gradients of activations (training.md 2); outputs are described like the incoming gradient."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from gecli.ir.dtype import DataType
from gecli.ir.tensor_desc import UNKNOWN_DIM, UNKNOWN_RANK, TensorDesc
from gecli.ops.inference import InferenceError, broadcast_descs, plain
from gecli.ops.numeric import Array, Step, in_float32, is_half
from gecli.ops.operator import operator
from gecli.ops.rnn_cells import sigmoid
from gecli.ops.smooth_activation import erf_into

# The constants of GeluGrad, as its definition writes them.
GELU_K = 0.7978845608
GELU_CUBE = 0.044715
SELU_SCALE = 1.0507010
SELU_SCALE_ALPHA = 1.7580993


def like_gradient(self: Any, gradient: TensorDesc, other: TensorDesc) -> TensorDesc:
    """Gradient and the other operand have one shape. Raises InferenceError naming both."""
    _same(gradient, other)
    return plain(gradient)


def like_second(self: Any, other: TensorDesc, gradient: TensorDesc) -> TensorDesc:
    """As `like_gradient`, for types whose second input is the gradient."""
    _same(gradient, other)
    return plain(gradient)


def _same(a: TensorDesc, b: TensorDesc) -> None:
    if UNKNOWN_RANK in (a.shape, b.shape):
        return
    fits = len(a.shape) == len(b.shape) and all(
        x == y or UNKNOWN_DIM in (x, y) for x, y in zip(a.shape, b.shape, strict=True)
    )
    if not fits:
        raise InferenceError(f"shapes {list(a.shape)} and {list(b.shape)} must be equal")


def broadcasting(self: Any, gradient: TensorDesc, other: TensorDesc) -> TensorDesc:
    """Types that accept operands of different shapes (training.md 0)."""
    return broadcast_descs([gradient, other])


def softplus(x: Array) -> Array:
    return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))


def erf(x: Array) -> Array:
    """The error function as the forward operators compute it."""
    y = np.empty_like(x)
    erf_into(x, y, np.empty_like(x), np.empty_like(x))
    return y


def gelu_tanh_slope(x: Array) -> Array:
    """The derivative of the tanh form of gelu."""
    one = x.dtype.type(1)
    half, k = x.dtype.type(0.5), x.dtype.type(GELU_K)
    square = x * x
    t = np.tanh(k * (x + x.dtype.type(GELU_CUBE) * square * x))
    return half * (one + t) + half * x * (one - t * t) * k * (one + x.dtype.type(3 * GELU_CUBE) * square)


def gelu_slope(x: Array) -> Array:
    """The derivative of x Phi(x)."""
    half = x.dtype.type(0.5)
    density = np.exp(-half * x * x) * x.dtype.type(1 / math.sqrt(2 * math.pi))
    return half * (1 + erf(x * x.dtype.type(math.sqrt(0.5)))) + x * density


def swish_slope(x: Array, scale: float) -> Array:
    """The derivative of x sigmoid(scale x)."""
    factor = x.dtype.type(scale)
    s = sigmoid(factor * x)
    return s + factor * x * s * (1 - s)


@operator()
class ReluGrad:
    """The gradient where the feature (Relu's input or output) is above 0."""

    outputs = ("backprops",)
    zero_preserving = True

    def infer(self, gradients: TensorDesc, features: TensorDesc) -> TensorDesc:
        return broadcast_descs([gradients, features])

    def kernel(self, gradients: Array, features: Array) -> Array:
        return np.where(features > 0, gradients, gradients.dtype.type(0))

    def bind(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> Step | None:
        (gradients, features), y = inputs, outputs[0]
        if is_half(gradients.dtype):
            return None
        drop = np.empty(features.shape, np.bool_)
        zero = np.zeros((), y.dtype)

        def run() -> None:
            np.greater(features, 0, drop)
            np.logical_not(drop, drop)  # a NaN feature lets nothing pass
            np.copyto(y, gradients)
            np.copyto(y, zero, where=drop)

        return run


@operator()
class ReluV2:
    """max(x, 0), and one bit for each element: 1 where x > 0, least significant bit first."""

    outputs = ("y", "mask")

    def infer(self, x: TensorDesc) -> tuple[TensorDesc, ...]:
        count = -(-x.elements // 8) if x.is_static else UNKNOWN_DIM
        return plain(x), TensorDesc(DataType.UINT8, (count,))

    def kernel(self, x: Array) -> tuple[Array, ...]:
        return np.maximum(x, x.dtype.type(0)), np.packbits(x.reshape(-1) > 0, bitorder="little")


@operator()
class ReluGradV2:
    """The gradient where the mask's bit is 1."""

    outputs = ("backprops",)

    def infer(self, gradients: TensorDesc, mask: TensorDesc) -> TensorDesc:
        return plain(gradients)

    def kernel(self, gradients: Array, mask: Array) -> Array:
        bits = np.unpackbits(mask.reshape(-1), count=gradients.size, bitorder="little")
        return np.where(bits.reshape(gradients.shape) != 0, gradients, gradients.dtype.type(0))


@operator()
class Relu6Grad:
    """The gradient where 0 < feature < 6."""

    outputs = ("backprops",)
    zero_preserving = True
    infer = like_gradient

    def kernel(self, gradients: Array, features: Array) -> Array:
        return np.where((features > 0) & (features < 6), gradients, gradients.dtype.type(0))


@operator()
class LeakyReluGrad:
    """The gradient, times negative_slope where the feature is not above 0."""

    negative_slope: float = 0.0
    outputs = ("backprops",)
    zero_preserving = True
    infer = broadcasting

    @in_float32
    def kernel(self, gradients: Array, features: Array) -> Array:
        return np.where(features > 0, gradients, gradients * gradients.dtype.type(self.negative_slope))


@operator()
class PReluGrad:
    """The gradients of PRelu's input and weights."""

    outputs = ("dx", "da")

    def infer(self, grads: TensorDesc, features: TensorDesc, weights: TensorDesc) -> tuple[TensorDesc, ...]:
        _same(grads, features)
        return plain(grads), plain(weights)

    @in_float32
    def kernel(self, grads: Array, features: Array, weights: Array) -> tuple[Array, ...]:
        spread = weights
        if weights.ndim == 1 and weights.size > 1 and features.ndim > 1:
            spread = weights.reshape(-1, *[1] * (features.ndim - 2))  # [C] stands for axis 1
        dx = np.where(features > 0, grads, spread * grads)
        each = np.where(features > 0, grads.dtype.type(0), features * grads)
        aligned = (1,) * (features.ndim - spread.ndim) + spread.shape
        axes = tuple(axis for axis, dim in enumerate(aligned) if dim == 1)
        return dx, each.sum(axes, keepdims=True, dtype=grads.dtype).reshape(weights.shape)


@operator()
class SigmoidGrad:
    """dy y (1 - y), y being sigmoid's output."""

    complex_conj: bool = False
    outputs = ("z",)
    zero_preserving = True
    infer = like_second

    @in_float32
    def kernel(self, y: Array, dy: Array) -> Array:
        return dy * y * (1 - y)


@operator()
class TanhGrad:
    """dy (1 - y^2), y being tanh's output."""

    complex_conj: bool = False
    outputs = ("z",)
    zero_preserving = True
    infer = like_second

    @in_float32
    def kernel(self, y: Array, dy: Array) -> Array:
        return dy * (1 - y * y)


@operator()
class GeluGrad:
    """The gradient of gelu's tanh form; y is not used."""

    outputs = ("z",)
    zero_preserving = True

    def infer(self, dy: TensorDesc, x: TensorDesc, y: TensorDesc) -> TensorDesc:
        return like_gradient(self, dy, x)

    @in_float32
    def kernel(self, dy: Array, x: Array, y: Array) -> Array:
        return dy * gelu_tanh_slope(x)


@operator()
class GeluGradV2:
    """The gradient of gelu, exact or in its tanh form."""

    approximate: str = "none"
    outputs = ("z",)
    zero_preserving = True
    infer = like_gradient

    @in_float32
    def kernel(self, dy: Array, x: Array) -> Array:
        return dy * (gelu_tanh_slope(x) if self.approximate == "tanh" else gelu_slope(x))


@operator()
class FastGeluGrad:
    """The gradient of x sigmoid(1.702 x)."""

    outputs = ("z",)
    zero_preserving = True
    infer = like_gradient

    @in_float32
    def kernel(self, dy: Array, x: Array) -> Array:
        return dy * swish_slope(x, 1.702)


@operator()
class SoftplusGrad:
    """g sigmoid(f), f being softplus's input."""

    outputs = ("backprops",)
    zero_preserving = True
    infer = broadcasting

    @in_float32
    def kernel(self, gradients: Array, features: Array) -> Array:
        return gradients * sigmoid(features)


@operator()
class SoftplusV2Grad:
    """g sigmoid(beta f), g alone above the threshold."""

    beta: float = 1.0
    threshold: float = 20.0
    outputs = ("output_backprops",)
    zero_preserving = True

    def infer(self, input_gradients: TensorDesc, input_features: TensorDesc) -> TensorDesc:
        return like_gradient(self, input_gradients, input_features)

    @in_float32
    def kernel(self, input_gradients: Array, input_features: Array) -> Array:
        scaled = input_features * input_features.dtype.type(self.beta)
        return np.where(scaled > self.threshold, input_gradients, input_gradients * sigmoid(scaled))


@operator()
class SoftsignGrad:
    """g / (1 + |f|)^2."""

    outputs = ("output",)
    zero_preserving = True
    infer = like_gradient

    @in_float32
    def kernel(self, gradients: Array, features: Array) -> Array:
        return gradients / np.square(1 + np.abs(features))


@operator()
class EluGrad:
    """(min(a, 0) + 1) g, a being elu's output."""

    zero_preserving = True
    infer = like_gradient

    @in_float32
    def kernel(self, grads: Array, activations: Array) -> Array:
        return (np.minimum(activations, 0) + 1) * grads


@operator()
class EluGradV2:
    """The gradient of elu with its scales, from its output (is_result) or its input."""

    alpha: float = 1.0
    scale: float = 1.0
    input_scale: float = 1.0
    is_result: bool = False
    zero_preserving = True
    infer = like_gradient

    @in_float32
    def kernel(self, grads: Array, activations: Array) -> Array:
        kind = grads.dtype.type
        alpha, scale, inner = kind(self.alpha), kind(self.scale), kind(self.input_scale)
        if self.is_result:
            below = grads * inner * (activations + alpha * scale)
        else:
            below = grads * alpha * scale * inner * np.exp(inner * np.minimum(activations, 0))
        return np.where(activations > 0, grads * scale, below)


@operator()
class SeluGrad:
    """The gradient of selu from its output."""

    zero_preserving = True
    infer = like_gradient

    @in_float32
    def kernel(self, gradients: Array, outputs: Array) -> Array:
        kind = gradients.dtype.type
        return np.where(outputs < 0, gradients * (outputs + kind(SELU_SCALE_ALPHA)), gradients * kind(SELU_SCALE))


@operator()
class SiluGrad:
    """The gradient of x sigmoid(x)."""

    outputs = ("dx",)
    zero_preserving = True
    infer = like_gradient

    @in_float32
    def kernel(self, dy: Array, x: Array) -> Array:
        return dy * swish_slope(x, 1.0)


@operator()
class SwishGrad:
    """The gradient of x sigmoid(scale x); y is not used."""

    scale: float = 1.0
    outputs = ("grad_x",)
    zero_preserving = True

    def infer(self, grad: TensorDesc, x: TensorDesc, y: TensorDesc) -> TensorDesc:
        return like_gradient(self, grad, x)

    @in_float32
    def kernel(self, grad: Array, x: Array, y: Array) -> Array:
        return grad * swish_slope(x, self.scale)


@operator()
class HardSigmoidGrad:
    """g alpha where 0 < alpha x + beta < 1."""

    alpha: float = 0.16666666
    beta: float = 0.5
    zero_preserving = True

    def infer(self, grads: TensorDesc, input_x: TensorDesc) -> TensorDesc:
        return like_gradient(self, grads, input_x)

    @in_float32
    def kernel(self, grads: Array, input_x: Array) -> Array:
        kind = grads.dtype.type
        line = input_x * kind(self.alpha) + kind(self.beta)
        return np.where((line > 0) & (line < 1), grads * kind(self.alpha), kind(0))


@operator()
class HardSwishGrad:
    """0 below -3, g above 3, g (x / 3 + 1/2) between."""

    zero_preserving = True
    infer = like_gradient

    @in_float32
    def kernel(self, grad: Array, x: Array) -> Array:
        inner = grad * (x / 3 + grad.dtype.type(0.5))
        return np.where(x <= -3, grad.dtype.type(0), np.where(x >= 3, grad, inner))


@operator()
class HardtanhGrad:
    """g where min_val < result < max_val."""

    min_val: float = -1.0
    max_val: float = 1.0
    zero_preserving = True
    infer = like_second

    def kernel(self, result: Array, grad: Array) -> Array:
        return np.where((result > self.min_val) & (result < self.max_val), grad, grad.dtype.type(0))


@operator()
class LogSigmoidGrad:
    """g (1 - sigmoid(f))."""

    outputs = ("backprops",)
    zero_preserving = True
    infer = like_gradient

    @in_float32
    def kernel(self, grads: Array, features: Array) -> Array:
        return grads * sigmoid(-features)


@operator()
class MishGrad:
    """The gradient of x tanh(softplus(x)); tanhx, when given, is tanh(softplus(x))."""

    outputs = ("x_grad",)
    zero_preserving = True

    def infer(self, grad: TensorDesc, x: TensorDesc, tanhx: TensorDesc | None = None) -> TensorDesc:
        return like_gradient(self, grad, x)

    @in_float32
    def kernel(self, grad: Array, x: Array, tanhx: Array | None = None) -> Array:
        t = np.tanh(softplus(x)) if tanhx is None else tanhx
        return grad * (t + x * (1 - t * t) * sigmoid(x))
