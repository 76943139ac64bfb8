"""Pooling: MaxPool, AvgPool and their variants, GlobalAveragePool and ONNX's pools."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gecli.ir.dtype import DataType
from gecli.ir.format import Format
from gecli.ir.op_desc import Port
from gecli.ir.tensor_desc import UNKNOWN_RANK, TensorDesc
from gecli.ops.bound import Bound
from gecli.ops.numeric import Array, Step, in_float32, is_half
from gecli.ops.onnx_import import Builder, OnnxNode, importer
from gecli.ops.operator import From, operator
from gecli.ops.pool_kernels import (
    argmax_windows,
    average_divisor,
    average_windows,
    bind_windows,
    lowest,
    max_windows,
)
from gecli.ops.window_import import Window, read_window
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


class PoolAttributes(Bound):
    """Window lists have one entry for each dim in data_format order; those of N and C are 1."""

    ksize: tuple[int, ...]
    strides: tuple[int, ...]
    data_format: str = "NHWC"

    def padding_rule(self) -> str:
        """SAME, VALID or CALCULATED; the attribute has two names."""
        own: Any = self
        rule = getattr(own, "padding_mode", None) or getattr(own, "padding", "CALCULATED")
        return str(rule)

    def geometry(self, size: Sequence[int]) -> Geometry:
        """The window over an input of spatial `size`."""
        own: Any = self
        kernel = spatial(self.ksize, self.data_format)
        strides = spatial(self.strides, self.data_format)
        dilations = spatial(getattr(own, "dilation", ()) or (1,) * len(self.data_format), self.data_format)
        none = ((0, 0),) * len(kernel)
        if getattr(own, "global_pooling", False):
            return Geometry(tuple(size), (1,) * len(kernel), (1,) * len(kernel), none)
        rule = self.padding_rule()
        if rule.startswith("SAME"):
            pads = same_pads(size, kernel, strides, dilations, rule == "SAME_LOWER")
        else:
            pads = none if rule == "VALID" else pairs(getattr(own, "pads", ())) or none
        return Geometry(kernel, strides, dilations, pads)

    def output_size(self, geometry: Geometry, size: Sequence[int]) -> tuple[int, ...]:
        rounded_up = bool(getattr(self, "ceil_mode", False)) and self.padding_rule() == "CALCULATED"
        return geometry.output(size, rounded_up)


class PoolInference(PoolAttributes):
    def infer(self, x: TensorDesc) -> TensorDesc:
        shape = (-1,) * len(self.data_format) if x.logical_shape == UNKNOWN_RANK else x.logical_shape
        batch, channels, size = split_shape(shape, self.data_format)
        out = self.output_size(self.geometry(size), size)
        return TensorDesc(x.dtype, join_shape(batch, channels, out, self.data_format), Format.parse(self.data_format))


class MaxKernel(PoolInference):
    def kernel(self, x: Array) -> Array:
        first = channels_first(x, self.data_format)
        geometry = self.geometry(first.shape[2:])
        return in_layout(max_windows(first, geometry, self.output_size(geometry, first.shape[2:])), self.data_format)

    def bind(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> Step | None:
        (x,), (y,) = inputs, outputs
        if is_half(x.dtype) or self.data_format.endswith("C") or not y.size:
            return None
        return bind_windows(np.maximum, x, y, self.geometry(x.shape[2:]), lowest(x.dtype))


@operator()
class MaxPool(MaxKernel):
    """The maximum of each window; padding never wins, NaN does."""

    padding: str
    ksize: tuple[int, ...]
    strides: tuple[int, ...]
    zero_preserving = True
    inputs = ("x",)


@operator()
class MaxPoolV3(MaxKernel):
    """MaxPool with explicit pads `[t, b, l, r]`, ceil_mode and global_pooling."""

    padding_mode: str = "CALCULATED"
    pads: tuple[int, ...] = (0, 0, 0, 0)
    data_format: str = "NCHW"
    global_pooling: bool = False
    ceil_mode: bool = False
    # GE ignores ONNX's dilations; gecli computes them.
    dilation: tuple[int, ...] = (1, 1, 1, 1)
    zero_preserving = True
    inputs = ("x",)


@operator()
class MaxPool3D(MaxKernel):
    """MaxPool over three axes."""

    padding: str
    pads: tuple[int, ...] = (0, 0, 0, 0, 0, 0)
    dilation: tuple[int, ...] = (1, 1, 1, 1, 1)
    ceil_mode: int = 0
    data_format: str = "NDHWC"
    zero_preserving = True
    inputs = ("x",)


class AverageKernel(PoolInference):
    def divisor(self, geometry: Geometry, size: Sequence[int], out: Sequence[int], dtype: Any) -> Array:
        """What each window's sum is divided by, in a shape that broadcasts against the output."""
        own: Any = self
        fixed = getattr(own, "divisor_override", 0)
        exclusive = getattr(own, "exclusive", not getattr(own, "count_include_pad", False))
        if fixed > 0:
            return np.full((1,) * len(out), fixed, dtype)
        return average_divisor(geometry, size, out, exclusive).astype(dtype)

    @in_float32
    def kernel(self, x: Array) -> Array:
        first = channels_first(x, self.data_format)
        size = first.shape[2:]
        geometry = self.geometry(size)
        out = self.output_size(geometry, size)
        y = average_windows(first, geometry, out, self.divisor(geometry, size, out, np.float64))
        return in_layout(y, self.data_format)

    def bind(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> Step | None:
        (x,), (y,) = inputs, outputs
        if x.dtype not in (np.float32, np.float64) or self.data_format.endswith("C") or not y.size:
            return None
        geometry = self.geometry(x.shape[2:])
        divisor = self.divisor(geometry, x.shape[2:], y.shape[2:], x.dtype)
        add = bind_windows(np.add, x, y, geometry, 0)

        def run() -> None:
            add()
            np.divide(y, divisor, y)

        return run


@operator()
class AvgPool(AverageKernel):
    """The mean of the elements of each window that lie inside the input."""

    padding: str
    ksize: tuple[int, ...]
    strides: tuple[int, ...]
    zero_preserving = True
    inputs = ("x",)


@operator()
class AvgPoolV2(AverageKernel):
    """AvgPool with explicit pads; the divisor counts pads unless `exclusive`, `divisor_override` > 0 replaces it."""

    padding_mode: str = "CALCULATED"
    pads: tuple[int, ...] = (0, 0, 0, 0)
    data_format: str = "NCHW"
    global_pooling: bool = False
    ceil_mode: bool = False
    exclusive: bool = True
    divisor_override: int = 0
    dilation: tuple[int, ...] = (1, 1, 1, 1)
    zero_preserving = True
    inputs = ("x",)


@operator()
class AvgPool3D(AverageKernel):
    """AvgPoolV2 over three axes."""

    pads: tuple[int, ...] = (0, 0, 0, 0, 0, 0)
    ceil_mode: bool = False
    count_include_pad: bool = True
    divisor_override: int = 0
    data_format: str = "NDHWC"
    padding: str = "CALCULATED"
    dilation: tuple[int, ...] = (1, 1, 1, 1, 1)
    zero_preserving = True
    inputs = ("x",)


@operator()
class MaxPoolWithArgmax(PoolAttributes):
    """The maximum of each window and the flat index of its first occurrence in the image.

    The index counts in the order of data_format. NaN is skipped unless `nan_prop`.
    """

    padding: str
    # A data type number: 3 is INT32; 7 (TensorFlow's) and 9 are INT64.
    Targmax: int = 7
    include_batch_in_index: bool = False
    nan_prop: bool = False
    # For ONNX's MaxPool with Indices; GE's operator knows SAME and VALID only.
    pads: tuple[int, ...] = ()
    dilation: tuple[int, ...] = ()
    ceil_mode: bool = False
    column_major: bool = False
    outputs = ("y", "argmax")
    inputs = ("x",)

    def infer(self, x: TensorDesc) -> tuple[TensorDesc, TensorDesc]:
        y = PoolInference.infer(self, x)  # type: ignore[arg-type]  # it only needs PoolAttributes
        return y, y.with_dtype(self.index_dtype())

    def index_dtype(self) -> DataType:
        return DataType.INT32 if self.Targmax == DataType.INT32 else DataType.INT64

    def kernel(self, x: Array) -> tuple[Array, Array]:
        first = channels_first(x, self.data_format)
        size = first.shape[2:]
        geometry = self.geometry(size)
        y, plane = argmax_windows(first, geometry, self.output_size(geometry, size), skip_nan=not self.nan_prop)
        index = self.flat_index(plane, first.shape)
        wanted = self.index_dtype().numpy
        return in_layout(y, self.data_format), in_layout(index, self.data_format).astype(wanted)

    def flat_index(self, plane: Array, shape: Sequence[int]) -> Array:
        """Indices within a plane as indices in the image or, with include_batch_in_index, in the tensor."""
        batch, channels, *size = shape
        area = int(np.prod(size))
        channel = np.arange(channels).reshape(1, -1, *[1] * len(size))
        if self.column_major:
            plane = np.ravel_multi_index(np.unravel_index(plane, tuple(size))[::-1], tuple(size[::-1]))
        index = plane * channels + channel if self.data_format.endswith("C") else plane + channel * area
        if self.include_batch_in_index:
            index = index + (np.arange(batch) * area * channels).reshape(-1, 1, *[1] * len(size))
        return index


class PlaneArgmax(Bound):
    """Attributes of the V1 and V2 argmax pools: lists `[1, h, w, 1]` over NCHW data, symmetric pads."""

    ksize: tuple[int, ...]
    strides: tuple[int, ...]
    pads: tuple[int, ...]
    dtype: int = 3
    dilation: tuple[int, ...] = (1, 1, 1, 1)
    ceil_mode: bool = False

    def geometry(self) -> Geometry:
        pads = tuple((p, p) for p in self.pads[1:3])
        return Geometry(self.ksize[1:3], self.strides[1:3], self.dilation[1:3], pads)


@operator(aliases=("MaxPoolWithArgmaxV2",))
class MaxPoolWithArgmaxV1(PlaneArgmax):
    """The maximum of each window of NCHW data and its index h*W + w inside the plane, as INT32."""

    outputs = ("y", "argmax")
    inputs = ("x",)

    def infer(self, x: TensorDesc) -> tuple[TensorDesc, TensorDesc]:
        shape = (-1,) * 4 if x.logical_shape == UNKNOWN_RANK else x.logical_shape
        batch, channels, size = split_shape(shape, "NCHW")
        out = self.geometry().output(size, self.ceil_mode)
        y = TensorDesc(x.dtype, (batch, channels, *out), Format.NCHW)
        return y, y.with_dtype(DataType.INT64 if self.dtype == DataType.INT64 else DataType.INT32)

    def kernel(self, x: Array) -> tuple[Array, Array]:
        geometry = self.geometry()
        y, index = argmax_windows(x, geometry, geometry.output(x.shape[2:], self.ceil_mode), skip_nan=False)
        return y, index.astype(np.int64 if self.dtype == DataType.INT64 else np.int32)


@operator(onnx=From("GlobalAveragePool"))
class GlobalAveragePool:
    """The mean over all spatial axes, which stay as 1."""

    zero_preserving = True

    def infer(self, x: TensorDesc) -> TensorDesc:
        if x.logical_shape == UNKNOWN_RANK:
            return TensorDesc(x.dtype, UNKNOWN_RANK, x.logical_format)
        shape = (*x.logical_shape[:2], *[1] * (len(x.logical_shape) - 2))
        return TensorDesc(x.dtype, shape, x.logical_format)

    @in_float32
    def kernel(self, x: Array) -> Array:
        return x.mean(axis=tuple(range(2, x.ndim)), keepdims=True, dtype=x.dtype)

    def bind(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> Step | None:
        (x,), (y,) = inputs, outputs
        if x.dtype not in (np.float32, np.float64) or not x.size:
            return None
        planes, result = x.reshape(y.size, -1), y.reshape(-1)
        count = x.dtype.type(planes.shape[1])

        def run() -> None:
            np.add.reduce(planes, axis=1, out=result)
            np.divide(result, count, result)

        return run


@importer("MaxPool")
def max_pool(node: OnnxNode, build: Builder) -> None:
    """MaxPoolV3, MaxPool3D, or MaxPoolWithArgmax when Indices are wanted (formats.md rows 78, 79)."""
    window = read_window(node, build)
    ceil_mode = bool(node.attr("ceil_mode", 0))

    def pool(x: Port, shown: Window, data_format: str) -> tuple[Port, ...]:
        common = {**_pool_attributes(shown, data_format), "ceil_mode": ceil_mode}
        if node.wants(1):
            wide = {"Targmax": int(DataType.INT64), "include_batch_in_index": True, "nan_prop": True}
            column_major = bool(node.attr("storage_order", 0))
            return build.ops(
                "MaxPoolWithArgmax", 2, x, padding=_rule(shown), column_major=column_major, **wide, **common
            )
        if data_format == "NCDHW":
            return (build.op("MaxPool3D", x, padding=_rule(shown), **{**common, "ceil_mode": int(ceil_mode)}),)
        return (build.op("MaxPoolV3", x, padding_mode=_rule(shown), **common),)

    _pool_over(node, build, node.input(0), window, pool)


@importer("AveragePool")
def average_pool(node: OnnxNode, build: Builder) -> None:
    """AvgPoolV2 or AvgPool3D (formats.md row 81)."""
    include = bool(node.attr("count_include_pad", 0))
    ceil_mode = bool(node.attr("ceil_mode", 0))

    def pool(x: Port, window: Window, data_format: str) -> tuple[Port, ...]:
        return (_average(build, x, window, data_format, ceil_mode=ceil_mode, include=include, divisor=0),)

    _pool_over(node, build, node.input(0), read_window(node, build), pool)


@importer("LpPool")
def lp_pool(node: OnnxNode, build: Builder) -> None:
    """(sum of |x|^p)^(1/p): an AvgPoolV2 whose divisor is 1 gives the sums."""
    p = float(node.attr("p", 2))
    ceil_mode = bool(node.attr("ceil_mode", 0))
    powers = build.op("Power", build.op("Abs", node.input(0)), power=p)

    def pool(x: Port, window: Window, data_format: str) -> tuple[Port, ...]:
        return (_average(build, x, window, data_format, ceil_mode=ceil_mode, include=True, divisor=1),)

    def root(port: Port) -> Port:
        return build.op("Power", port, power=1.0 / p)

    _pool_over(node, build, powers, read_window(node, build), pool, root)


@importer("GlobalMaxPool")
def global_max_pool(node: OnnxNode, build: Builder) -> None:
    """ReduceMax over every spatial axis."""
    build.output(0, build.op("ReduceMax", node.input(0), _spatial_axes(node, build), keep_dims=True))


@importer("GlobalLpPool")
def global_lp_pool(node: OnnxNode, build: Builder) -> None:
    """(sum of |x|^p)^(1/p) over every spatial axis."""
    p = float(node.attr("p", 2))
    powers = build.op("Power", build.op("Abs", node.input(0)), power=p)
    total = build.op("ReduceSum", powers, _spatial_axes(node, build), keep_dims=True)
    build.output(0, build.op("Power", total, power=1.0 / p))


def _spatial_axes(node: OnnxNode, build: Builder) -> Port:
    rank = build.rank(node.input(0))
    if rank is None:
        raise node.fault("the rank of the input is unknown", "give the model input a shape")
    return build.const(np.arange(2, rank, dtype=np.int32), "axes")


def _average(
    build: Builder, x: Port, window: Window, data_format: str, *, ceil_mode: bool, include: bool, divisor: int
) -> Port:
    attributes = {**_pool_attributes(window, data_format), "ceil_mode": ceil_mode, "divisor_override": divisor}
    if data_format == "NCDHW":
        return build.op("AvgPool3D", x, padding=_rule(window), count_include_pad=include, **attributes)
    return build.op("AvgPoolV2", x, padding_mode=_rule(window), exclusive=not include, **attributes)


def _pool_over(
    node: OnnxNode,
    build: Builder,
    x: Port,
    window: Window,
    pool: Callable[[Port, Window, str], tuple[Port, ...]],
    after: Callable[[Port], Port] | None = None,
) -> None:
    """Apply a 2-D or 3-D pool; 1-D goes through an axis of size 1."""
    rank = len(window.kernel)
    if rank not in (1, 2, 3):
        raise node.fault(f"pooling over {rank} axes is not supported", "use 1, 2 or 3 spatial axes")
    if rank == 1:
        x, window = build.op("Unsqueeze", x, axes=(2,)), window.with_leading_axis()
    for index, port in enumerate(pool(x, window, "NCDHW" if rank == 3 else "NCHW")):
        if rank == 1:
            port = build.op("Squeeze", port, axis=(2,))
        build.output(index, port if after is None else after(port))


def _pool_attributes(window: Window, data_format: str) -> dict[str, Any]:
    return {
        "ksize": (1, 1, *window.kernel),
        "strides": (1, 1, *window.strides),
        "pads": window.pads,
        "dilation": (1, 1, *window.dilations),
        "data_format": data_format,
    }


def _rule(window: Window) -> str:
    return {"NOTSET": "CALCULATED", "SAME_UPPER": "SAME"}.get(window.auto_pad, window.auto_pad)
