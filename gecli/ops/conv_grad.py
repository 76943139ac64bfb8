"""Gradients of convolutions in their filters: Conv2DBackpropFilter and its depthwise and 3-D forms."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gecli.ir.dtype import DataType
from gecli.ir.tensor_desc import UNKNOWN_RANK, TensorDesc
from gecli.ops.conv_kernels import (
    check_gradient_size,
    depthwise_from_oihw,
    filter_gradient,
    filter_layout,
    from_oihw,
    oihw_shape,
)
from gecli.ops.convolution import ConvAttributes
from gecli.ops.inference import InferenceError
from gecli.ops.numeric import Array, is_half
from gecli.ops.operator import operator, value_of
from gecli.ops.windows import channels_first, split_shape


class BackpropFilter(ConvAttributes):
    """The adjoint in the filter. The result has the layout of the filter, which only the node's output tells."""

    def filter_layout(self) -> str:
        return filter_layout(self.out_descs[0] if self.out_descs else None, self.data_format)

    def infer_gradient(self, x: TensorDesc, size: Sequence[int] | Array | None, g: TensorDesc) -> TensorDesc:
        """The kernels of GE produce FLOAT; the definition says the dtype of x, kept where a node declares it."""
        declared = self.out_descs[0] if self.out_descs else None
        keeps = declared is not None and declared.dtype in (DataType.FLOAT, x.dtype)
        dtype = declared.dtype if declared is not None and keeps else self.default_dtype(x)
        fmt = TensorDesc(dtype, ()).format if declared is None else declared.logical_format
        if size is None:
            return TensorDesc(dtype, (-1,) * len(self.data_format), fmt)
        shape = tuple(int(v) for v in size)
        if UNKNOWN_RANK not in (x.logical_shape, g.logical_shape):
            self.check(shape, x, g)
        return TensorDesc(dtype, shape, fmt)

    def default_dtype(self, x: TensorDesc) -> DataType:
        return x.dtype

    def check(self, shape: Sequence[int], x: TensorDesc, g: TensorDesc) -> None:
        """Raise InferenceError unless x, gradient and filter size belong together."""
        _, depth, *kernel = oihw_shape(shape, self.filter_layout())
        _, channels, spatial_size = split_shape(x.logical_shape, self.data_format)
        _, _, out = split_shape(g.logical_shape, self.data_format)
        check_gradient_size(spatial_size, out, self.geometry(kernel, spatial_size), "x")
        if self.counts_channels() and channels >= 0 and channels != depth * self.groups:
            raise InferenceError(f"x {list(x.logical_shape)} has {channels} channels, filter_size is {list(shape)}")

    def counts_channels(self) -> bool:
        return True

    def gradient(self, x: Array, size: Sequence[int] | Array, g: Array, depthwise: bool = False) -> Array:
        """The gradient in filter layout and declared dtype; 16-bit operands accumulate in FLOAT."""
        wide = [a.astype(np.float32) if is_half(a.dtype) else a for a in (x, g)]
        first, gradient = (channels_first(a, self.data_format) for a in wide)
        shape = tuple(int(v) for v in size)
        layout = self.filter_layout()
        kernel = oihw_shape(shape, layout)[2:]
        geometry = self.geometry(kernel, first.shape[2:])
        groups = first.shape[1] if depthwise else self.groups
        result = filter_gradient(first, gradient, geometry, groups)
        placed = depthwise_from_oihw(result, shape, layout) if depthwise else from_oihw(result, layout)
        return placed.astype(self.result_dtype(x), copy=False)

    def result_dtype(self, x: Array) -> np.dtype[np.generic]:
        if self.out_descs and self.out_descs[0].dtype == DataType.FLOAT and x.dtype != np.float64:
            return np.dtype(np.float32)
        return x.dtype


class SizedBackpropFilter(BackpropFilter):
    def infer(self, x: TensorDesc, filter_size: TensorDesc, out_backprop: TensorDesc) -> TensorDesc:
        return self.infer_gradient(x, value_of(filter_size), out_backprop)

    def kernel(self, x: Array, filter_size: Array, out_backprop: Array) -> Array:
        return self.gradient(x, filter_size, out_backprop)


class AttributeBackpropFilter(BackpropFilter):
    filter_size: tuple[int, ...]

    def infer(self, x: TensorDesc, out_backprop: TensorDesc) -> TensorDesc:
        return self.infer_gradient(x, self.filter_size, out_backprop)

    def default_dtype(self, x: TensorDesc) -> DataType:
        return DataType.DOUBLE if x.dtype == DataType.DOUBLE else DataType.FLOAT

    def kernel(self, x: Array, out_backprop: Array) -> Array:
        return self.gradient(x, self.filter_size, out_backprop)

    def result_dtype(self, x: Array) -> np.dtype[np.generic]:
        return np.dtype(np.float64 if x.dtype == np.float64 else np.float32)


@operator()
class Conv2DBackpropFilter(SizedBackpropFilter):
    """The adjoint of Conv2D in its filter."""

    foldable = False
    shape_inputs = (1,)
    inputs = ("x", "filter_size", "out_backprop")


@operator()
class Conv2DBackpropFilterD(AttributeBackpropFilter):
    """Conv2DBackpropFilter with the size as an attribute; always FLOAT."""

    foldable = False
    inputs = ("x", "out_backprop")


@operator()
class Conv3DBackpropFilter(SizedBackpropFilter):
    """The adjoint of Conv3D in its filter."""

    dilations: tuple[int, ...] = (1, 1, 1, 1, 1)
    data_format: str = "NDHWC"
    foldable = False
    shape_inputs = (1,)
    inputs = ("x", "filter_size", "out_backprop")


@operator()
class Conv3DBackpropFilterD(AttributeBackpropFilter):
    """Conv3DBackpropFilter with the size as an attribute; always FLOAT."""

    dilations: tuple[int, ...] = (1, 1, 1, 1, 1)
    data_format: str = "NDHWC"
    foldable = False
    inputs = ("x", "out_backprop")


@operator()
class DepthwiseConv2DBackpropFilter(SizedBackpropFilter):
    """The adjoint of DepthwiseConv2D in its filter [kh, kw, C, K]; always FLOAT."""

    foldable = False
    shape_inputs = (1,)
    outputs = ("filter_grad",)
    inputs = ("input", "filter_size", "out_backprop")

    def default_dtype(self, x: TensorDesc) -> DataType:
        return DataType.DOUBLE if x.dtype == DataType.DOUBLE else DataType.FLOAT

    def counts_channels(self) -> bool:
        return False

    def kernel(self, x: Array, filter_size: Array, out_backprop: Array) -> Array:
        return self.gradient(x, filter_size, out_backprop, depthwise=True)

    def result_dtype(self, x: Array) -> np.dtype[np.generic]:
        return np.dtype(np.float64 if x.dtype == np.float64 else np.float32)


@operator()
class DepthwiseConv2DBackpropFilterD(AttributeBackpropFilter):
    """DepthwiseConv2DBackpropFilter with the size as an attribute."""

    foldable = False
    outputs = ("filter_grad",)
    inputs = ("input", "out_backprop")

    def counts_channels(self) -> bool:
        return False

    def kernel(self, x: Array, out_backprop: Array) -> Array:
        return self.gradient(x, self.filter_size, out_backprop, depthwise=True)
