"""Gradients of softmax, roots, reciprocals and abs (training.md 2)."""

from __future__ import annotations

import numpy as np

from gecli.ops.activation_grad import like_gradient, like_second
from gecli.ops.inference import normalise_axis
from gecli.ops.numeric import Array, in_float32
from gecli.ops.operator import operator


@operator()
class SoftmaxGrad:
    """s (g - sum(g s)), s being softmax's output."""

    axes: tuple[int, ...] = (-1,)
    outputs = ("grad_x",)
    infer = like_second

    @in_float32
    def kernel(self, softmax: Array, grad_softmax: Array) -> Array:
        axes = tuple(normalise_axis(axis, softmax.ndim) for axis in self.axes)
        return softmax * (grad_softmax - (grad_softmax * softmax).sum(axes, keepdims=True, dtype=softmax.dtype))


@operator()
class LogSoftmaxGrad:
    """g - exp(x) sum(g), x being log softmax's output."""

    axis: tuple[int, ...] = (-1,)
    infer = like_gradient

    @in_float32
    def kernel(self, grad: Array, x: Array) -> Array:
        axes = tuple(normalise_axis(axis, x.ndim) for axis in self.axis)
        return grad - np.exp(x) * grad.sum(axes, keepdims=True, dtype=x.dtype)


@operator()
class SqrtGrad:
    """dy / (2 y), y being sqrt's output."""

    outputs = ("z",)
    infer = like_second

    @in_float32
    def kernel(self, y: Array, dy: Array) -> Array:
        return y.dtype.type(0.5) * dy / y


@operator()
class RsqrtGrad:
    """-dy y^3 / 2, y being rsqrt's output."""

    outputs = ("z",)
    zero_preserving = True
    infer = like_second

    @in_float32
    def kernel(self, y: Array, dy: Array) -> Array:
        return y.dtype.type(-0.5) * dy * y * y * y


@operator()
class ReciprocalGrad:
    """-dy y^2, y being the output."""

    outputs = ("z",)
    zero_preserving = True
    infer = like_second

    @in_float32
    def kernel(self, y: Array, dy: Array) -> Array:
        return -dy * y * y


@operator()
class AbsGrad:
    """sign(y) dy, y being the input of abs."""

    outputs = ("z",)
    zero_preserving = True
    infer = like_second

    @in_float32
    def kernel(self, y: Array, dy: Array) -> Array:
        return np.sign(y) * dy


@operator()
class InvGrad:
    """-grad x^2, x being the output."""

    zero_preserving = True
    infer = like_second

    @in_float32
    def kernel(self, x: Array, grad: Array) -> Array:
        return -grad * x * x
