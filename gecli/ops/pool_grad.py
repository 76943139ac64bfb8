"""Gradients of the pooling operators."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np

from gecli.ir.format import Format
from gecli.ir.tensor_desc import TensorDesc
from gecli.ops.inference import InferenceError, plain
from gecli.ops.numeric import Array, in_float32, is_half
from gecli.ops.operator import operator, value_of
from gecli.ops.pool_kernels import argmax_windows, average_divisor
from gecli.ops.pooling import PlaneArgmax, PoolAttributes
from gecli.ops.windows import Geometry, channels_first, covered, in_layout, inner, split_shape, tap_slices


class MaxGradient(PoolAttributes):
    """The first element that equals a window's maximum gets the window's whole gradient."""

    def infer_gradient(self, x1: TensorDesc, x2: TensorDesc, grad: TensorDesc) -> TensorDesc:
        known = [desc.logical_shape for desc in (x2, grad) if min(desc.logical_shape, default=0) >= 0]
        if len(known) == 2 and known[0] != known[1]:
            raise InferenceError(f"the output {list(known[0])} and its gradient {list(known[1])} differ in shape")
        return plain(x1)

    def gradient(self, x1: Array, grad: Array) -> Array:
        first, g = channels_first(x1, self.data_format), channels_first(grad, self.data_format)
        geometry = self.geometry(first.shape[2:])
        # The maximum is found in x1 itself: a 16-bit x2 cannot lose the position.
        _, index = argmax_windows(first, geometry, g.shape[2:], skip_nan=False)
        return in_layout(scatter_planes(index, g, first.shape), self.data_format).astype(grad.dtype, copy=False)


def scatter_planes(index: Array, g: Array, shape: Sequence[int]) -> Array:
    """Add each gradient at its index within the plane of its sample and channel; 16-bit sums are FLOAT."""
    planes = shape[0] * shape[1]
    area = int(np.prod(shape[2:]))
    wide = g.astype(np.float32) if is_half(g.dtype) else g
    total = np.zeros((planes, area), wide.dtype)
    rows = np.repeat(np.arange(planes), index.size // max(planes, 1))
    np.add.at(total, (rows, index.reshape(-1)), np.ascontiguousarray(wide).reshape(-1))
    return total.reshape(tuple(shape))


@operator()
class MaxPoolGrad(MaxGradient):
    """The gradient of MaxPool: x1 is its input, x2 its output."""

    padding: str

    def infer(self, x1: TensorDesc, x2: TensorDesc, grad: TensorDesc) -> TensorDesc:
        return self.infer_gradient(x1, x2, grad)

    def kernel(self, x1: Array, x2: Array, grad: Array) -> Array:
        return self.gradient(x1, grad)


@operator()
class MaxPoolV3Grad(MaxGradient):
    """The gradient of MaxPoolV3."""

    padding_mode: str = "CALCULATED"
    pads: tuple[int, ...] = (0, 0, 0, 0)
    data_format: str = "NCHW"
    global_pooling: bool = False
    ceil_mode: bool = False
    outputs = ("out_grad",)

    def infer(self, orig_input: TensorDesc, orig_output: TensorDesc, grad: TensorDesc) -> TensorDesc:
        return self.infer_gradient(orig_input, orig_output, grad)

    def kernel(self, orig_input: Array, orig_output: Array, grad: Array) -> Array:
        return self.gradient(orig_input, grad)


@operator()
class MaxPoolGradWithArgmax(PoolAttributes):
    """The gradient of MaxPoolWithArgmax: each gradient added at its index in the image."""

    padding: str
    include_batch_in_index: bool = False

    def infer(self, x: TensorDesc, grad: TensorDesc, argmax: TensorDesc) -> TensorDesc:
        return plain(x)

    def kernel(self, x: Array, grad: Array, argmax: Array) -> Array:
        wide = grad.astype(np.float32) if is_half(grad.dtype) else grad
        total = np.zeros((x.shape[0], x.size // max(x.shape[0], 1)), wide.dtype)
        index = argmax.reshape(x.shape[0], -1).astype(np.int64)
        if self.include_batch_in_index:
            index = index - (np.arange(x.shape[0]) * total.shape[1])[:, None]
        rows = np.repeat(np.arange(x.shape[0]), index.shape[1])
        np.add.at(total, (rows, index.reshape(-1)), wide.reshape(-1))
        return total.reshape(x.shape).astype(grad.dtype, copy=False)


@operator(aliases=("MaxPoolGradWithArgmaxV2",))
class MaxPoolGradWithArgmaxV1(PlaneArgmax):
    """The gradient of MaxPoolWithArgmaxV1: indices count within a plane."""

    def infer(self, x: TensorDesc, grad: TensorDesc, argmax: TensorDesc) -> TensorDesc:
        return plain(x)

    def kernel(self, x: Array, grad: Array, argmax: Array) -> Array:
        if argmax.dtype == np.uint16:
            raise ValueError("a UINT16 argmax is a device bit mask and cannot be read")
        return scatter_planes(argmax.astype(np.int64), grad, x.shape).astype(grad.dtype, copy=False)


class AverageGradient(PoolAttributes):
    """Each window spreads its gradient evenly over the elements it averaged."""

    def infer_gradient(self, size: Sequence[int] | Array | None, grad: TensorDesc) -> TensorDesc:
        fmt = Format.parse(self.data_format)
        if size is None:
            return TensorDesc(grad.dtype, (-1,) * len(self.data_format), fmt)
        return TensorDesc(grad.dtype, tuple(int(v) for v in size), fmt)

    @in_float32
    def spread(self, grad: Array, size: Array) -> Array:
        g = channels_first(grad, self.data_format)
        batch, channels, spatial_size = split_shape(tuple(int(v) for v in size), self.data_format)
        geometry = self.geometry(spatial_size)
        share = g / self.divisor(geometry, spatial_size, g.shape[2:]).astype(g.dtype)
        padded = np.zeros((batch, channels, *covered(spatial_size, geometry, g.shape[2:])), g.dtype)
        for tap in product(*map(range, geometry.kernel)):
            padded[tap_slices(geometry, g.shape[2:], tap)] += share
        return in_layout(padded[inner(spatial_size, geometry.pads)], self.data_format)

    def divisor(self, geometry: Geometry, size: Sequence[int], out: Sequence[int]) -> Array:
        own: Any = self
        fixed = getattr(own, "divisor_override", 0)
        if fixed > 0:
            return np.full((1,) * len(out), fixed, np.float64)
        return average_divisor(geometry, size, out, getattr(own, "exclusive", True))


@operator()
class AvgPoolGrad(AverageGradient):
    """The gradient of AvgPool."""

    padding: str
    shape_inputs = (0,)
    outputs = ("out_grad",)

    def infer(self, orig_input_shape: TensorDesc, input_grad: TensorDesc) -> TensorDesc:
        return self.infer_gradient(value_of(orig_input_shape), input_grad)

    def kernel(self, orig_input_shape: Array, input_grad: Array) -> Array:
        return self.spread(input_grad, orig_input_shape)


@operator()
class AvgPoolGradD(AverageGradient):
    """AvgPoolGrad with the shape as an attribute; the two matrices are device helpers and ignored."""

    orig_input_shape: tuple[int, ...]
    padding: str
    outputs = ("out_grad",)

    def infer(
        self, input_grad: TensorDesc, mean_matrix: TensorDesc | None = None, kernel_matrix: TensorDesc | None = None
    ) -> TensorDesc:
        return self.infer_gradient(self.orig_input_shape, input_grad)

    def kernel(self, input_grad: Array, mean_matrix: Array | None = None, kernel_matrix: Array | None = None) -> Array:
        return self.spread(input_grad, np.asarray(self.orig_input_shape))


class AverageV2Fields(AverageGradient):
    padding_mode: str = "CALCULATED"
    pads: tuple[int, ...] = (0, 0, 0, 0)
    data_format: str = "NCHW"
    global_pooling: bool = False
    ceil_mode: bool = False
    exclusive: bool = True
    divisor_override: int = 0


@operator()
class AvgPoolV2Grad(AverageV2Fields):
    """The gradient of AvgPoolV2."""

    shape_inputs = (0,)
    outputs = ("out_grad",)

    def infer(self, orig_input_shape: TensorDesc, input_grad: TensorDesc) -> TensorDesc:
        return self.infer_gradient(value_of(orig_input_shape), input_grad)

    def kernel(self, orig_input_shape: Array, input_grad: Array) -> Array:
        return self.spread(input_grad, orig_input_shape)


@operator()
class AvgPoolV2GradD(AverageV2Fields):
    """AvgPoolV2Grad with the shape as an attribute."""

    orig_input_shape: tuple[int, ...]
    outputs = ("out_grad",)

    def infer(
        self, input_grad: TensorDesc, mean_matrix: TensorDesc | None = None, kernel_matrix: TensorDesc | None = None
    ) -> TensorDesc:
        return self.infer_gradient(self.orig_input_shape, input_grad)

    def kernel(self, input_grad: Array, mean_matrix: Array | None = None, kernel_matrix: Array | None = None) -> Array:
        return self.spread(input_grad, np.asarray(self.orig_input_shape))
