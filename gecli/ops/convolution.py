"""Convolutions: Conv2D, Conv3D, DepthwiseConv2D and ONNX's Conv."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gecli.ir.dtype import DataType
from gecli.ir.format import Format
from gecli.ir.tensor_desc import UNKNOWN_RANK, TensorDesc
from gecli.ops.bound import Bound
from gecli.ops.conv_kernels import convolve, depthwise_to_oihw, filter_layout, oihw_shape, to_oihw
from gecli.ops.conv_steps import Problem, bind_channels_last, bind_convolution, scratch_of
from gecli.ops.inference import InferenceError
from gecli.ops.numeric import Array, Step, in_float32
from gecli.ops.onnx_import import Builder, OnnxNode, importer
from gecli.ops.operator import operator
from gecli.ops.window_import import read_window
from gecli.ops.windows import (
    Geometry,
    channels_first,
    in_layout,
    join_shape,
    pairs,
    same_pads,
    spatial,
    split_shape,
)

INTEGER_INPUTS = frozenset([DataType.INT8, DataType.UINT8, DataType.INT4])


class ConvAttributes(Bound):
    """The attributes that all convolutions share; lists are in data_format order, pads `[t, b, l, r]`."""

    strides: tuple[int, ...]
    pads: tuple[int, ...]
    dilations: tuple[int, ...] = (1, 1, 1, 1)
    groups: int = 1
    data_format: str = "NHWC"
    offset_x: int = 0
    # SAME_UPPER, SAME_LOWER or VALID of a model whose input size was unknown at import.
    auto_pad: str = "NOTSET"

    def geometry(self, kernel: Sequence[int], size: Sequence[int]) -> Geometry:
        """The window for a filter of `kernel` over an input of spatial `size`."""
        strides = spatial(self.strides, self.data_format)
        dilations = spatial(self.dilations, self.data_format)
        pads = pairs(self.pads)
        # GE writes pads of -1 for SAME.
        if self.auto_pad.startswith("SAME") or any(p < 0 for p in self.pads):
            pads = same_pads(size, kernel, strides, dilations, self.auto_pad == "SAME_LOWER")
        elif self.auto_pad == "VALID":
            pads = ((0, 0),) * len(strides)
        return Geometry(tuple(kernel), strides, dilations, pads)

    def layout(self, slot: int = 1) -> str:
        """The layout of the filter at input `slot`."""
        return filter_layout(self.in_descs[slot] if slot < len(self.in_descs) else None, self.data_format)


class ConvInference(ConvAttributes):
    def infer(
        self, x: TensorDesc, filter: TensorDesc, bias: TensorDesc | None = None, offset_w: TensorDesc | None = None
    ) -> TensorDesc:
        rank = len(self.data_format)
        dtype = DataType.INT32 if x.dtype in INTEGER_INPUTS else x.dtype
        fmt = Format.parse(self.data_format)
        if filter.rank is None:
            return TensorDesc(dtype, (-1,) * rank, fmt)
        out_channels, depth, *kernel = self.filter_shape(filter)
        shape = (-1,) * rank if x.logical_shape == UNKNOWN_RANK else x.logical_shape
        batch, channels, size = split_shape(shape, self.data_format)
        groups = self.group_count(channels)
        if min(channels, depth) >= 0 and groups >= 0 and channels != depth * groups:
            raise InferenceError(
                f"input {list(shape)} has {channels} channels, filter {list(filter.logical_shape)} wants "
                f"{depth} x {groups} groups"
            )
        out = self.geometry(kernel, size).output(size)
        return TensorDesc(dtype, join_shape(batch, out_channels, out, self.data_format), fmt)

    def filter_shape(self, filter: TensorDesc) -> tuple[int, ...]:
        """[Cout, Cin/groups, kernel...]."""
        return oihw_shape(filter.logical_shape, filter_layout(filter, self.data_format))

    def group_count(self, channels: int) -> int:
        return self.groups

    def filter_array(self, filter: Array) -> Array:
        return to_oihw(filter, self.layout())

    @in_float32
    def kernel(self, x: Array, filter: Array, bias: Array | None = None, offset_w: Array | None = None) -> Array:
        first = channels_first(x, self.data_format)
        w = self.filter_array(filter)
        y = convolve(first, w, self.geometry(w.shape[2:], first.shape[2:]), self.group_count(first.shape[1]))
        if bias is not None:
            y += bias.reshape(-1, *[1] * (y.ndim - 2)).astype(y.dtype, copy=False)
        return in_layout(y, self.data_format)

    def bind(self, inputs: Sequence[Array | None], outputs: Sequence[Array]) -> Step | None:
        x, filter, bias, *_ = (*inputs, None, None)
        assert x is not None and filter is not None
        first = channels_first(x, self.data_format)
        w = self.filter_array(filter)
        if bias is not None and bias.dtype != np.float32:
            return None
        fixed = 1 in self.constant_inputs
        geometry = self.geometry(w.shape[2:], first.shape[2:])
        problem = Problem(x, w, bias, outputs[0], geometry, self.group_count(first.shape[1]), fixed)
        if not self.data_format.endswith("C"):
            return bind_convolution(problem, scratch_of(self)) if fixed or np.shares_memory(w, filter) else None
        if self.data_format != "NHWC":
            return None
        return bind_channels_last(problem._replace(w=w.transpose(2, 3, 1, 0)), scratch_of(self))


@operator()
class Conv2D(ConvInference):
    """y[b, co, o] = sum of x[b, ci, o*s + k*d - p] * filter[k, ci, co], plus bias."""

    foldable = False
    inputs = ("x", "filter", "bias?", "offset_w?")


@operator()
class Conv3D(ConvInference):
    """Conv2D with three spatial axes and pads `[front, back, t, b, l, r]`."""

    dilations: tuple[int, ...] = (1, 1, 1, 1, 1)
    data_format: str = "NDHWC"
    foldable = False
    inputs = ("x", "filter", "bias?", "offset_w?")


@operator()
class DepthwiseConv2D(ConvInference):
    """Each channel with its own K filters [kh, kw, C, K]: output channel c*K + k."""

    foldable = False
    inputs = ("x", "filter", "bias?", "offset_w?")

    def filter_shape(self, filter: TensorDesc) -> tuple[int, ...]:
        multiplier, channels, *kernel = super().filter_shape(filter)
        if channels == 1:
            return (multiplier, 1, *kernel)
        return (multiplier * channels if min(multiplier, channels) >= 0 else -1, 1, *kernel)

    def group_count(self, channels: int) -> int:
        return channels

    def filter_array(self, filter: Array) -> Array:
        return depthwise_to_oihw(filter, self.layout())


@importer("Conv")
def conv(node: OnnxNode, build: Builder) -> None:
    """Conv2D or Conv3D; 1-D goes through an axis of size 1 (formats.md rows 73 to 75)."""
    x, w, bias = node.input(0), node.input(1), node.optional(2)
    window = read_window(node, build, w)
    rank = len(window.kernel)
    if rank == 1:
        x, w = build.op("Unsqueeze", x, axes=(2,)), build.op("Unsqueeze", w, axes=(2,))
        window = window.with_leading_axis()
    if len(window.kernel) not in (2, 3):
        raise node.fault(f"a convolution over {rank} axes is not supported", "use 1, 2 or 3 spatial axes")
    attributes = window.attributes("NCHW" if len(window.kernel) == 2 else "NCDHW")
    attributes["groups"] = node.attr("group", 1)
    y = build.op("Conv2D" if len(window.kernel) == 2 else "Conv3D", x, w, bias, **attributes)
    build.output(0, build.op("Squeeze", y, axis=(2,)) if rank == 1 else y)
