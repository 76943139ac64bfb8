"""Pools whose windows are not a plain stride: Pooling (Caffe), AdaptiveAvgPool2d, ONNX's MaxUnpool."""

from __future__ import annotations

import numpy as np

from gecli.ir.format import Format
from gecli.ir.op_desc import Port
from gecli.ir.tensor_desc import UNKNOWN_RANK, TensorDesc
from gecli.ops.bound import Bound
from gecli.ops.numeric import Array, in_float32
from gecli.ops.onnx_import import Builder, OnnxNode, importer
from gecli.ops.operator import operator, value_of
from gecli.ops.pool_kernels import average_divisor, average_windows, max_windows
from gecli.ops.window_import import read_window
from gecli.ops.windows import Geometry, channels_first, in_layout, join_shape, pairs, split_shape


@operator()
class Pooling(Bound):
    """Caffe's pooling: mode 0 is the maximum, 1 the mean over the padded plane; ceil_mode 0 rounds sizes up."""

    mode: int = 0
    global_pooling: bool = False
    window: tuple[int, ...] = (1, 1)
    stride: tuple[int, ...] = (1, 1)
    pad: tuple[int, ...] = (0, 0, 0, 0)
    dilation: tuple[int, ...] = (1, 1, 1, 1)
    ceil_mode: int = 0
    data_format: str = "NCHW"
    zero_preserving = True

    def geometry(self, size: tuple[int, ...]) -> Geometry:
        if self.global_pooling:
            return Geometry(size, (1, 1), (1, 1), ((0, 0), (0, 0)))
        dilation = self.dilation[-2:] if self.data_format == "NCHW" else self.dilation[1:3]
        return Geometry(self.window, self.stride, dilation, pairs(self.pad))

    def infer(self, x: TensorDesc) -> TensorDesc:
        shape = (-1,) * 4 if x.logical_shape == UNKNOWN_RANK else x.logical_shape
        batch, channels, size = split_shape(shape, self.data_format)
        out = self.geometry(size).output(size, self.ceil_mode == 0)
        return TensorDesc(x.dtype, join_shape(batch, channels, out, self.data_format), Format.parse(self.data_format))

    @in_float32
    def kernel(self, x: Array) -> Array:
        first = channels_first(x, self.data_format)
        size = first.shape[2:]
        geometry = self.geometry(size)
        out = geometry.output(size, self.ceil_mode == 0)
        if self.mode == 0:
            y = max_windows(first, geometry, out)
        else:
            y = average_windows(first, geometry, out, average_divisor(geometry, size, out, exclusive=False))
        return in_layout(y, self.data_format)


@operator()
class AdaptiveAvgPool2d(Bound):
    """The mean over windows floor(i*in/out) .. ceil((i+1)*in/out) of the last two axes."""

    output_size: tuple[int, ...]
    zero_preserving = True

    def infer(self, x: TensorDesc) -> TensorDesc:
        if x.logical_shape == UNKNOWN_RANK:
            return TensorDesc(x.dtype, UNKNOWN_RANK, x.logical_format)
        return TensorDesc(x.dtype, (*x.logical_shape[:-2], *self.output_size), x.logical_format)

    @in_float32
    def kernel(self, x: Array) -> Array:
        y = np.empty((*x.shape[:-2], *self.output_size), x.dtype)
        rows, columns = (_windows(dim, out) for dim, out in zip(x.shape[-2:], self.output_size))
        for i, (top, bottom) in enumerate(rows):
            for j, (left, right) in enumerate(columns):
                y[..., i, j] = x[..., top:bottom, left:right].mean(axis=(-2, -1), dtype=x.dtype)
        return y


def _windows(dim: int, out: int) -> list[tuple[int, int]]:
    return [(i * dim // out, -(-(i + 1) * dim // out)) for i in range(out)]


@operator()
class MaxUnpool(Bound):
    """Values put back at flat indices of a tensor of zeros; `output_shape` overrides the natural size."""

    ksize: tuple[int, ...]
    strides: tuple[int, ...]
    pads: tuple[int, ...]
    shape_inputs = (2,)
    inputs = ("x", "indices", "output_shape?")

    def natural(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """The size whose pooling gave `shape`."""
        spatial = (
            (dim - 1) * s - before - after + k if dim >= 0 else -1
            for dim, s, k, (before, after) in zip(shape[2:], self.strides, self.ksize, pairs(self.pads))
        )
        return (*shape[:2], *spatial)

    def infer(self, x: TensorDesc, indices: TensorDesc, output_shape: TensorDesc | None = None) -> TensorDesc:
        if x.logical_shape == UNKNOWN_RANK:
            return TensorDesc(x.dtype, UNKNOWN_RANK, x.logical_format)
        given = value_of(output_shape)
        if output_shape is None:
            shape = self.natural(x.logical_shape)
        else:
            shape = (-1,) * len(x.logical_shape) if given is None else tuple(int(v) for v in given)
        return TensorDesc(x.dtype, shape, x.logical_format)

    def kernel(self, x: Array, indices: Array, output_shape: Array | None = None) -> Array:
        natural = self.natural(x.shape)
        y = np.zeros(natural if output_shape is None else tuple(int(v) for v in output_shape), x.dtype)
        places = np.unravel_index(indices.reshape(-1), natural)
        # Indices count in the natural shape, also where a larger output was asked for.
        y[places] = x.reshape(-1)
        return y


@importer("MaxUnpool", since=9)
def max_unpool(node: OnnxNode, build: Builder) -> None:
    window = read_window(node, build)
    shape: Port | None = node.optional(2)
    attrs = {"ksize": window.kernel, "strides": window.strides, "pads": window.pads}
    build.output(0, build.op("MaxUnpool", node.input(0), node.input(1), shape, **attrs))
