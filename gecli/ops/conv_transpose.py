"""Transposed convolutions, input gradients (Conv2DTranspose, Conv2DBackpropInput...) and ONNX's ConvTranspose."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gecli.ir.dtype import DataType
from gecli.ir.format import Format
from gecli.ir.op_desc import Port
from gecli.ir.tensor_desc import UNKNOWN_RANK, TensorDesc
from gecli.ops.conv_kernels import (
    check_gradient_size,
    depthwise_to_oihw,
    filter_layout,
    input_gradient,
    oihw_shape,
    to_oihw,
)
from gecli.ops.conv_steps import Problem, bind_transposed, scratch_of
from gecli.ops.convolution import ConvAttributes
from gecli.ops.inference import InferenceError
from gecli.ops.numeric import Array, Step, in_float32, is_half
from gecli.ops.onnx_import import Builder, OnnxNode, importer
from gecli.ops.operator import operator, value_of
from gecli.ops.window_import import Window, input_size, read_window
from gecli.ops.windows import (
    Geometry,
    Pads,
    channels_first,
    flat,
    in_layout,
    join_shape,
    spatial,
    spatial_axes,
    split_shape,
)

# The value of a size input, or a size attribute.
Sizes = Sequence[int] | Array


class Transposed(ConvAttributes):
    """The adjoint of a convolution as a forward operator: x takes the place of the gradient."""

    output_padding: tuple[int, ...] = (0, 0, 0, 0)

    def resolve(
        self, kernel: Sequence[int], size: Sequence[int], given: Sizes | None
    ) -> tuple[Geometry, tuple[int, ...]]:
        """The window and the output size for an input of `size`; `given` is the value of input_size."""
        geometry = self.geometry(kernel, [-1] * len(kernel))
        extra = spatial(self.output_padding, self.data_format)
        wanted = None if given is None else tuple(int(v) for v in given)
        if wanted is not None and len(wanted) == len(self.data_format):
            wanted = tuple(wanted[axis] for axis in spatial_axes(self.data_format))
        if wanted is not None and not any(wanted):
            wanted = None
        if self.auto_pad.startswith("SAME"):
            out = wanted or tuple(dim * s if dim >= 0 else -1 for dim, s in zip(size, geometry.strides))
            return geometry._replace(pads=split_padding(geometry, size, extra, out, self.auto_pad)), out
        if wanted is not None:
            return geometry, wanted
        return geometry, transposed_size(geometry, size, extra)

    def infer_output(self, x: TensorDesc, filter: TensorDesc, given: Sizes | None, size_unknown: bool) -> TensorDesc:
        rank = len(self.data_format)
        shape = (-1,) * rank if x.logical_shape == UNKNOWN_RANK else x.logical_shape
        batch, channels, size = split_shape(shape, self.data_format)
        dtype = DataType.INT32 if x.dtype == DataType.INT8 else x.dtype
        fmt = Format.parse(self.data_format)
        if filter.rank is None:
            return TensorDesc(dtype, (-1,) * rank, fmt)
        out_channels, depth, *kernel = oihw_shape(filter.logical_shape, filter_layout(filter, self.data_format))
        if channels >= 0 and out_channels >= 0 and channels != out_channels:
            raise InferenceError(f"x {list(shape)} has {channels} channels, filter {list(filter.logical_shape)}")
        _, out = self.resolve(kernel, size, given)
        if size_unknown:
            out = (-1,) * len(out)
        features = depth * self.groups if depth >= 0 else -1
        return TensorDesc(dtype, join_shape(batch, features, out, self.data_format), fmt)

    def compute(self, x: Array, w: Array, bias: Array | None, given: Sizes | None) -> Array:
        first = channels_first(x, self.data_format)
        geometry, out = self.resolve(w.shape[2:], first.shape[2:], given)
        integer = first.dtype.kind in "iu"
        if integer:
            first, w = first.astype(np.float64), w.astype(np.float64)
        y = input_gradient(w, first, out, geometry, self.groups)
        if integer:
            y = y.astype(np.int32)
        if bias is not None:
            y += bias.reshape(-1, *[1] * (y.ndim - 2)).astype(y.dtype, copy=False)
        return in_layout(y, self.data_format)

    def bind_over(
        self, x: Array, w: Array, bias: Array | None, y: Array, given: Sizes | None, fixed: bool
    ) -> Step | None:
        if self.data_format.endswith("C") or (bias is not None and bias.dtype != np.float32):
            return None
        geometry, _ = self.resolve(w.shape[2:], x.shape[2:], given)
        return bind_transposed(Problem(x, w, bias, y, geometry, self.groups, fixed), scratch_of(self))


def transposed_size(geometry: Geometry, size: Sequence[int], extra: Sequence[int]) -> tuple[int, ...]:
    """(in - 1) * stride + output_padding + window extent - pads."""
    return tuple(
        (dim - 1) * s + more + span - before - after if dim >= 0 and span >= 0 else -1
        for dim, s, more, span, (before, after) in zip(size, geometry.strides, extra, geometry.extent, geometry.pads)
    )


def split_padding(
    geometry: Geometry, size: Sequence[int], extra: Sequence[int], out: Sequence[int], auto_pad: str
) -> Pads:
    """The pads with which `size` becomes `out`; SAME_LOWER puts the odd one first."""
    bare = transposed_size(geometry._replace(pads=((0, 0),) * len(size)), size, extra)
    pads = []
    for full, wanted in zip(bare, out):
        total = max(full - wanted, 0) if full >= 0 and wanted >= 0 else 0
        before = total - total // 2 if auto_pad == "SAME_LOWER" else total // 2
        pads.append((before, total - before))
    return tuple(pads)


class SizedTransposed(Transposed):
    """input_size is an input: zeros mean the natural size."""

    def infer(
        self,
        input_size: TensorDesc,
        x: TensorDesc,
        filter: TensorDesc,
        bias: TensorDesc | None = None,
        offset_w: TensorDesc | None = None,
    ) -> TensorDesc:
        given = value_of(input_size)
        return self.infer_output(x, filter, given, given is None)

    @in_float32
    def kernel(
        self,
        input_size: Array,
        x: Array,
        filter: Array,
        bias: Array | None = None,
        offset_w: Array | None = None,
    ) -> Array:
        return self.compute(x, to_oihw(filter, self.layout(2)), bias, input_size)

    def bind(self, inputs: Sequence[Array | None], outputs: Sequence[Array]) -> Step | None:
        given, x, filter, bias, *_ = (*inputs, None, None)
        assert given is not None and x is not None and filter is not None
        w = to_oihw(filter, self.layout(2))
        return self.bind_over(x, w, bias, outputs[0], given, 2 in self.constant_inputs)


@operator()
class Conv2DTranspose(SizedTransposed):
    """The adjoint of Conv2D applied to x, plus bias; filter N = channels of x."""

    foldable = False
    shape_inputs = (0,)
    inputs = ("input_size", "x", "filter", "bias?", "offset_w?")


@operator()
class Conv3DTranspose(SizedTransposed):
    """Conv2DTranspose over three axes."""

    dilations: tuple[int, ...] = (1, 1, 1, 1, 1)
    output_padding: tuple[int, ...] = (0, 0, 0, 0, 0)
    data_format: str = "NDHWC"
    foldable = False
    shape_inputs = (0,)
    inputs = ("input_size", "x", "filter", "bias?", "offset_w?")


@operator()
class Conv2DTransposeD(Transposed):
    """Conv2DTranspose with the size as an attribute."""

    input_size: tuple[int, ...]
    foldable = False
    inputs = ("x", "filter", "bias?", "offset_w?")

    def infer(
        self, x: TensorDesc, filter: TensorDesc, bias: TensorDesc | None = None, offset_w: TensorDesc | None = None
    ) -> TensorDesc:
        return self.infer_output(x, filter, self.input_size, False)

    @in_float32
    def kernel(self, x: Array, filter: Array, bias: Array | None = None, offset_w: Array | None = None) -> Array:
        return self.compute(x, to_oihw(filter, self.layout()), bias, self.input_size)

    def bind(self, inputs: Sequence[Array | None], outputs: Sequence[Array]) -> Step | None:
        x, filter, bias, *_ = (*inputs, None, None)
        assert x is not None and filter is not None
        w = to_oihw(filter, self.layout())
        return self.bind_over(x, w, bias, outputs[0], self.input_size, 1 in self.constant_inputs)


@operator()
class Deconvolution(Transposed):
    """Conv2DTranspose without sizes; strides are [h, w], data NCHW."""

    strides: tuple[int, ...] = (1, 1)
    pads: tuple[int, ...] = (0, 0, 0, 0)
    data_format: str = "NCHW"
    foldable = False
    inputs = ("x", "filter", "bias?", "offset_w?")

    def infer(
        self, x: TensorDesc, filter: TensorDesc, bias: TensorDesc | None = None, offset_w: TensorDesc | None = None
    ) -> TensorDesc:
        return self.infer_output(x, filter, None, False)

    @in_float32
    def kernel(self, x: Array, filter: Array, bias: Array | None = None, offset_w: Array | None = None) -> Array:
        return self.compute(x, to_oihw(filter, self.layout()), bias, None)

    def bind(self, inputs: Sequence[Array | None], outputs: Sequence[Array]) -> Step | None:
        x, filter, bias, *_ = (*inputs, None, None)
        assert x is not None and filter is not None
        w = to_oihw(filter, self.layout())
        return self.bind_over(x, w, bias, outputs[0], None, 1 in self.constant_inputs)


class BackpropInput(ConvAttributes):
    """The gradient of a convolution in its input; the size of that input must be known."""

    def infer_gradient(self, size: Sizes | None, filter: TensorDesc, g: TensorDesc) -> TensorDesc:
        fmt = Format.parse(self.data_format)
        dtype = self.declared(DataType.INT32 if filter.dtype == DataType.INT8 else filter.dtype)
        if size is None:
            return TensorDesc(dtype, (-1,) * len(self.data_format), fmt)
        shape = tuple(int(v) for v in size)
        _, _, spatial_size = split_shape(shape, self.data_format)
        if filter.rank is not None and g.logical_shape != UNKNOWN_RANK:
            kernel = self.kernel_size(filter)
            _, _, out = split_shape(g.logical_shape, self.data_format)
            check_gradient_size(spatial_size, out, self.geometry(kernel, spatial_size), "input_size")
        return TensorDesc(dtype, shape, fmt)

    def declared(self, dtype: DataType) -> DataType:
        """FLOAT where the node declares it over 16-bit operands."""
        kept = self.out_descs[0].dtype if self.out_descs else dtype
        return kept if kept in (DataType.FLOAT, DataType.INT32) else dtype

    def kernel_size(self, filter: TensorDesc) -> tuple[int, ...]:
        return oihw_shape(filter.logical_shape, filter_layout(filter, self.data_format))[2:]

    def gradient(self, size: Sizes, w: Array, g: Array, groups: int) -> Array:
        """The gradient in data layout, in the declared dtype; 16-bit operands accumulate in FLOAT."""
        out = g.dtype
        wide = [a.astype(np.float32) if is_half(a.dtype) else a for a in (w, channels_first(g, self.data_format))]
        if out.kind in "iu":
            wide, out = [a.astype(np.float64) for a in wide], np.dtype(np.int32)
        _, _, spatial_size = split_shape(tuple(int(v) for v in size), self.data_format)
        geometry = self.geometry(w.shape[2:], spatial_size)
        y = input_gradient(wide[0], wide[1], spatial_size, geometry, groups)
        if self.out_descs and self.out_descs[0].dtype == DataType.FLOAT:
            out = np.dtype(np.float32)
        return in_layout(y, self.data_format).astype(out, copy=False)


class SizedBackpropInput(BackpropInput):
    def infer(self, input_size: TensorDesc, filter: TensorDesc, out_backprop: TensorDesc) -> TensorDesc:
        return self.infer_gradient(value_of(input_size), filter, out_backprop)

    def kernel(self, input_size: Array, filter: Array, out_backprop: Array) -> Array:
        return self.gradient(input_size, to_oihw(filter, self.layout()), out_backprop, self.groups)


@operator()
class Conv2DBackpropInput(SizedBackpropInput):
    """The adjoint of Conv2D in x."""

    foldable = False
    shape_inputs = (0,)
    inputs = ("input_size", "filter", "out_backprop")


@operator()
class Conv3DBackpropInput(SizedBackpropInput):
    """The adjoint of Conv3D in x."""

    dilations: tuple[int, ...] = (1, 1, 1, 1, 1)
    data_format: str = "NDHWC"
    foldable = False
    shape_inputs = (0,)
    inputs = ("input_size", "filter", "out_backprop")


class AttributeBackpropInput(BackpropInput):
    input_size: tuple[int, ...]

    def infer(self, filter: TensorDesc, out_backprop: TensorDesc) -> TensorDesc:
        return self.infer_gradient(self.input_size, filter, out_backprop)

    def kernel(self, filter: Array, out_backprop: Array) -> Array:
        return self.gradient(self.input_size, to_oihw(filter, self.layout(0)), out_backprop, self.groups)


@operator()
class Conv2DBackpropInputD(AttributeBackpropInput):
    """Conv2DBackpropInput with the size as an attribute."""

    foldable = False
    inputs = ("filter", "out_backprop")


@operator()
class Conv3DBackpropInputD(AttributeBackpropInput):
    """Conv3DBackpropInput with the size as an attribute."""

    dilations: tuple[int, ...] = (1, 1, 1, 1, 1)
    data_format: str = "NDHWC"
    foldable = False
    inputs = ("filter", "out_backprop")


@operator()
class DepthwiseConv2DBackpropInput(BackpropInput):
    """The adjoint of DepthwiseConv2D in its input."""

    foldable = False
    shape_inputs = (0,)
    outputs = ("input_grad",)
    inputs = ("input_size", "filter", "out_backprop")

    def infer(self, input_size: TensorDesc, filter: TensorDesc, out_backprop: TensorDesc) -> TensorDesc:
        return self.infer_gradient(value_of(input_size), filter, out_backprop)

    def kernel(self, input_size: Array, filter: Array, out_backprop: Array) -> Array:
        channels = int(input_size[self.data_format.index("C")])
        return self.gradient(input_size, depthwise_to_oihw(filter, self.layout()), out_backprop, channels)


@operator()
class DepthwiseConv2DBackpropInputD(BackpropInput):
    """DepthwiseConv2DBackpropInput with the size as an attribute."""

    input_size: tuple[int, ...]
    foldable = False
    outputs = ("input_grad",)
    inputs = ("filter", "out_backprop")

    def infer(self, filter: TensorDesc, out_backprop: TensorDesc) -> TensorDesc:
        return self.infer_gradient(self.input_size, filter, out_backprop)

    def kernel(self, filter: Array, out_backprop: Array) -> Array:
        channels = self.input_size[self.data_format.index("C")]
        return self.gradient(self.input_size, depthwise_to_oihw(filter, self.layout(0)), out_backprop, channels)


@importer("ConvTranspose")
def conv_transpose(node: OnnxNode, build: Builder) -> None:
    """Conv2DTranspose or Conv3DTranspose; output_shape becomes pads (formats.md row 76)."""
    x, w, bias = node.input(0), node.input(1), node.optional(2)
    auto_pad = str(node.attr("auto_pad", "NOTSET"))
    window = read_window(node._replace(attrs={**node.attrs, "auto_pad": "NOTSET"}), build, w)
    rank = len(window.kernel)
    if rank not in (1, 2, 3):
        raise node.fault(f"a transposed convolution over {rank} axes is not supported")
    extra = tuple(node.attr("output_padding", (0,) * rank))
    wanted = node.attr("output_shape")
    size = input_size(build, x, rank)
    wanted = None if wanted is None else tuple(wanted)[-rank:]
    if auto_pad == "VALID":
        window = window._replace(pads=(0, 0) * rank)
    elif wanted is not None or auto_pad.startswith("SAME"):
        window = window._replace(auto_pad=auto_pad if auto_pad == "SAME_UPPER" else "SAME_LOWER")
        if size is not None and min(window.kernel) >= 0:
            window = _resolved(window, size, extra, wanted)
    if rank == 1:
        x, w = build.op("Unsqueeze", x, axes=(2,)), build.op("Unsqueeze", w, axes=(2,))
        window, extra = window.with_leading_axis(), (0, *extra)
        wanted = None if wanted is None else (1, *wanted)
    given = (0, 0, *(wanted or (0,) * len(window.kernel)))
    attributes = {
        **window.attributes("NCDHW" if rank == 3 else "NCHW"),
        "groups": node.attr("group", 1),
        "output_padding": (0, 0, *extra),
    }
    size_input: Port = build.const(np.asarray(given, np.int32), "input_size")
    y = build.op("Conv3DTranspose" if rank == 3 else "Conv2DTranspose", size_input, x, w, bias, **attributes)
    build.output(0, build.op("Squeeze", y, axis=(2,)) if rank == 1 else y)


def _resolved(window: Window, size: Sequence[int], extra: Sequence[int], wanted: Sequence[int] | None) -> Window:
    """The window with the pads that lead to the wanted size."""
    geometry = Geometry(window.kernel, window.strides, window.dilations, ((0, 0),) * len(size))
    out = wanted or tuple(dim * s for dim, s in zip(size, window.strides))
    pads = split_padding(geometry, size, extra, out, window.auto_pad)
    return window._replace(pads=flat(pads), auto_pad="NOTSET")
