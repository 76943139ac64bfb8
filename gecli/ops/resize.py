"""Resizing of images: Resize, the nearest and bilinear operators of GE, and ONNX's Resize and Upsample."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gecli.ir.dtype import DataType
from gecli.ir.format import Format
from gecli.ir.op_desc import Port
from gecli.ir.tensor_desc import UNKNOWN_RANK, TensorDesc
from gecli.ops.bound import Bound
from gecli.ops.inference import InferenceError
from gecli.ops.numeric import Array, Step, in_float32
from gecli.ops.onnx_import import Builder, OnnxNode, importer
from gecli.ops.operator import operator, value_of
from gecli.ops.resize_kernels import AxisPlan, Method, axis_plan, repeats, resample

# Planes repeated together, so that their rows are still in the cache when they are repeated.
REPEAT_BYTES = 256 << 10


class Resampling(Bound):
    """Kernel and bind of every resizing operator, from the plans of its axes."""

    extrapolation_value: float = 0.0

    def plans(self, x: Array, *rest: Array | None) -> list[AxisPlan]:
        raise NotImplementedError

    @in_float32
    def kernel(self, *inputs: Array | None) -> Array:
        x = inputs[0]
        assert x is not None
        plans = self.plans(x, *inputs[1:])
        y = resample(x, plans, self.extrapolation_value)
        if x.dtype.kind in "iu" and y.dtype.kind == "f":
            limits = np.iinfo(x.dtype)
            return np.clip(y, limits.min, limits.max).astype(x.dtype)
        return y.copy() if y is x else y

    def bind(self, inputs: Sequence[Array | None], outputs: Sequence[Array]) -> Step | None:
        x, (y,) = inputs[0], outputs
        changing = range(1, len(inputs))
        if x is None or not y.size or any(inputs[i] is not None and i not in self.constant_inputs for i in changing):
            return None
        plans = self.plans(x, *inputs[1:])
        factors = repeats(plans, x.shape)
        if factors is not None:
            return _bind_repeats(x, y, factors)
        if len(plans) != 1 and any(plan.weights is not None for plan in plans):
            return None
        return _bind_takes(x, y, plans)


def _spread(x: Array, y: Array, factors: dict[int, int]) -> tuple[Array, Array]:
    """`y` with every repeated axis split in two, and `x` shaped to broadcast against it."""
    wide: list[int] = []
    narrow: list[int] = []
    for axis, dim in enumerate(x.shape):
        wide += [dim, factors.get(axis, 1)]
        narrow += [dim, 1]
    return y.reshape(wide), x.reshape(narrow)


def _bind_repeats(x: Array, y: Array, factors: dict[int, int]) -> Step:
    """Whole repeats; over the last two axes first within the rows, then row by row, plane after plane."""
    if x.ndim < 3 or not set(factors) <= {x.ndim - 2, x.ndim - 1}:
        spread, source = _spread(x, y, factors)
        return lambda: np.copyto(spread, source)
    down, across = factors.get(x.ndim - 2, 1), factors.get(x.ndim - 1, 1)
    planes, results = x.reshape(-1, *x.shape[-2:]), y.reshape(-1, *y.shape[-2:])
    size = max(REPEAT_BYTES // max(results[0].nbytes, 1), 1)
    actions: list[tuple[Array, Array]] = []
    for start in range(0, len(planes), size):
        target = results[start : start + size]
        actions += [(target[:, ::down, j::across], planes[start : start + size]) for j in range(across)]
        actions += [(target[:, i::down], target[:, ::down]) for i in range(1, down)]

    def run() -> None:
        for place, value in actions:
            np.copyto(place, value)

    return run


def _bind_takes(x: Array, y: Array, plans: Sequence[AxisPlan]) -> Step | None:
    """Nearest by whole indices: one take for each axis."""
    if not plans or any(plan.weights is not None or plan.outside is not None for plan in plans):
        return None
    actions = []
    value = x
    for position, plan in enumerate(plans):
        index = plan.taps[:, 0]
        shape = (*value.shape[: plan.axis], len(index), *value.shape[plan.axis + 1 :])
        target = y if position == len(plans) - 1 else np.empty(shape, x.dtype)
        actions.append((value, index, plan.axis, target))
        value = target

    def run() -> None:
        for source, index, axis, target in actions:
            np.take(source, index, axis, target, "clip")

    return run


@operator()
class Resize(Resampling):
    """ONNX's Resize: every mode of coordinates and rounding.

    The size comes from `sizes`, else from `scales`; where both are given, `scales` place the elements.
    """

    coordinate_transformation_mode: str = "half_pixel"
    cubic_coeff_a: float = -0.75
    exclude_outside: int = 0
    extrapolation_value: float = 0.0
    mode: str = "nearest"
    nearest_mode: str = "round_prefer_floor"
    antialias: int = 0
    inputs = ("x", "roi?", "scales?", "sizes?")
    shape_inputs = (2, 3)

    def infer(
        self,
        x: TensorDesc,
        roi: TensorDesc | None = None,
        scales: TensorDesc | None = None,
        sizes: TensorDesc | None = None,
    ) -> TensorDesc:
        if x.logical_shape == UNKNOWN_RANK:
            return TensorDesc(x.dtype, UNKNOWN_RANK, x.logical_format)
        size, factor = value_of(sizes), value_of(scales)
        if size is not None and size.size:
            shape = tuple(int(v) for v in size.reshape(-1))
        elif factor is not None and factor.size:
            shape = scaled_shape(x.logical_shape, factor)
        else:
            shape = (-1,) * len(x.logical_shape)
        if len(shape) != len(x.logical_shape):
            raise InferenceError(f"Resize of shape {list(x.logical_shape)} to {len(shape)} dims")
        return TensorDesc(x.dtype, shape, x.logical_format)

    def plans(self, x: Array, *rest: Array | None) -> list[AxisPlan]:
        roi, scales, sizes = (*rest, None, None, None)[:3]
        given = None if scales is None or not scales.size else [float(v) for v in scales.reshape(-1)]
        if sizes is not None and sizes.size:
            shape = tuple(int(v) for v in sizes.reshape(-1))
        elif given is not None:
            shape = scaled_shape(x.shape, np.asarray(given))
        else:
            raise ValueError("Resize needs scales or sizes")
        method = Method(
            self.mode,
            self.coordinate_transformation_mode,
            self.nearest_mode,
            self.cubic_coeff_a,
            bool(self.exclude_outside),
            bool(self.antialias),
        )
        found = []
        for axis, (dim, count) in enumerate(zip(x.shape, shape)):
            scale = given[axis] if given is not None else count / max(dim, 1)
            span = (0.0, 1.0)
            if roi is not None and roi.size == 2 * x.ndim:
                span = (float(roi[axis]), float(roi[x.ndim + axis]))
            plan = axis_plan(method, axis, dim, count, scale, span)
            if plan is not None:
                found.append(plan)
        return found


def scaled_shape(shape: Sequence[int], scales: Array) -> tuple[int, ...]:
    """floor(dim * scale), computed in float32 as ONNX's users do."""
    factors = np.asarray(scales, np.float32).reshape(-1)
    return tuple(-1 if dim < 0 else int(np.floor(np.float32(dim) * factor)) for dim, factor in zip(shape, factors))


class ImageResize(Resampling):
    """The fields of GE's image operators: x in NCHW or NHWC, size = [height, width]."""

    align_corners: bool = False
    half_pixel_centers: bool = False

    def infer(self, x: TensorDesc, size: TensorDesc | None = None) -> TensorDesc:
        if x.logical_shape == UNKNOWN_RANK:
            return TensorDesc(x.dtype, (-1,) * 4, x.logical_format)
        if len(x.logical_shape) != 4:
            raise InferenceError(f"an image batch has 4 dims, got shape {list(x.logical_shape)}")
        known = value_of(size)
        shape = list(x.logical_shape)
        first = 1 if x.logical_format == Format.NHWC else 2
        shape[first : first + 2] = (-1, -1) if known is None else (int(known[0]), int(known[1]))
        return TensorDesc(self.result_dtype(x), tuple(shape), x.logical_format)

    def result_dtype(self, x: TensorDesc) -> DataType:
        return x.dtype

    def first_axis(self) -> int:
        desc = self.in_descs[0] if self.in_descs else None
        return 1 if desc is not None and desc.logical_format == Format.NHWC else 2

    def method(self) -> Method:
        raise NotImplementedError

    def plans(self, x: Array, *rest: Array | None) -> list[AxisPlan]:
        size = rest[0]
        assert size is not None
        first = self.first_axis()
        found = [
            axis_plan(self.method(), first + i, x.shape[first + i], int(size[i]), int(size[i]) / x.shape[first + i])
            for i in range(2)
        ]
        return [plan for plan in found if plan is not None]


@operator(aliases=("ResizeNearestNeighbor",))
class ResizeNearestNeighborV2(ImageResize):
    """Nearest: floor(o*in/out); floor((o+0.5)*in/out) with half pixels; rounded half up with aligned corners."""

    scales: tuple[float, ...] = ()
    zero_preserving = True
    inputs = ("x", "size")
    shape_inputs = (1,)

    def method(self) -> Method:
        if self.align_corners:
            return Method("nearest", "align_corners", "round_prefer_ceil")
        return Method("nearest", "tf_half_pixel_for_nn" if self.half_pixel_centers else "asymmetric", "floor")


@operator(aliases=("ResizeBilinear",))
class ResizeBilinearV2(ImageResize):
    """Bilinear with replicated edges; the coordinates follow the two flags."""

    scales: tuple[float, ...] = ()
    dtype: DataType = DataType.FLOAT
    zero_preserving = True
    inputs = ("x", "size")
    shape_inputs = (1,)

    def method(self) -> Method:
        if self.align_corners:
            return Method("linear", "align_corners")
        return Method("linear", "half_pixel" if self.half_pixel_centers else "asymmetric")


@operator()
class Upsample(Resampling):
    """Each element of NCHW data repeated stride_h x stride_w times and scaled."""

    scale: float = 1.0
    stride_h: int = 2
    stride_w: int = 2
    zero_preserving = True
    inputs = ("x",)

    def infer(self, x: TensorDesc) -> TensorDesc:
        shape = (-1,) * 4 if x.logical_shape == UNKNOWN_RANK else x.logical_shape
        factors = (1, 1, self.stride_h, self.stride_w)
        return TensorDesc(x.dtype, tuple(d * f if d >= 0 else -1 for d, f in zip(shape, factors)), x.logical_format)

    @in_float32
    def kernel(self, x: Array) -> Array:
        return x.repeat(self.stride_h, axis=2).repeat(self.stride_w, axis=3) * x.dtype.type(self.scale)

    def bind(self, inputs: Sequence[Array | None], outputs: Sequence[Array]) -> Step | None:
        x, (y,) = inputs[0], outputs
        if x is None or x.dtype != np.float32:
            return None
        spread, source = _spread(x, y, {2: self.stride_h, 3: self.stride_w})
        scale = x.dtype.type(self.scale)
        return lambda: np.multiply(source, scale, spread)


@importer("Resize", since=10)
def resize(node: OnnxNode, build: Builder) -> None:
    """ResizeNearestNeighborV2 where GE rounds as the ONNX mode does, else Resize (design decision 34)."""
    x = node.input(0)
    if node.opset < 11:
        attrs = {"mode": _mode(node), "coordinate_transformation_mode": "asymmetric", "nearest_mode": "simple"}
        build.output(0, _resize(build, x, None, node.input(1), None, attrs))
        return
    attrs = {
        name: node.attr(name, default)
        for name, default in (
            ("coordinate_transformation_mode", "half_pixel"),
            ("cubic_coeff_a", -0.75),
            ("exclude_outside", 0),
            ("extrapolation_value", 0.0),
            ("nearest_mode", "round_prefer_floor"),
            ("antialias", 0),
        )
    }
    attrs["mode"] = _mode(node)
    roi, scales, sizes = (_not_empty(build, node.optional(slot)) for slot in (1, 2, 3))
    if attrs["coordinate_transformation_mode"] != "tf_crop_and_resize":
        roi = None
    if node.attr("axes") is not None or node.attr("keep_aspect_ratio_policy", "stretch") != "stretch":
        roi, scales, sizes = _full_rank(node, build, x, roi, scales, sizes)
    build.output(0, _resize(build, x, roi, scales, sizes, attrs))


@importer("Upsample", since=7, until=9)
def upsample(node: OnnxNode, build: Builder) -> None:
    """Resize with asymmetric coordinates; the scales are an attribute before opset 9."""
    if node.opset < 9:
        scales = build.const(np.asarray(node.attr("scales"), np.float32), "scales")
    else:
        scales = node.input(1)
    attrs = {"mode": _mode(node), "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    build.output(0, _resize(build, node.input(0), None, scales, None, attrs))


def _mode(node: OnnxNode) -> str:
    mode = node.attr("mode", "nearest")
    return "linear" if mode in ("bilinear", "trilinear") else str(mode)


def _not_empty(build: Builder, port: Port | None) -> Port | None:
    """Exporters write an empty constant for an input that is left out."""
    value = build.constant(port)
    return None if value is not None and value.size == 0 else port


def _resize(
    build: Builder, x: Port, roi: Port | None, scales: Port | None, sizes: Port | None, attrs: dict[str, Any]
) -> Port:
    flags = _nearest_flags(build, x, scales, sizes, attrs)
    if flags is None:
        return build.op("Resize", x, roi, scales, sizes, **attrs)
    size, align_corners, half_pixel = flags
    return build.op(
        "ResizeNearestNeighborV2",
        x,
        build.const(np.asarray(size, np.int32), "size"),
        align_corners=align_corners,
        half_pixel_centers=half_pixel,
    )


def _nearest_flags(
    build: Builder, x: Port, scales: Port | None, sizes: Port | None, attrs: dict[str, Any]
) -> tuple[tuple[int, int], bool, bool] | None:
    """Size and flags of an equal ResizeNearestNeighborV2; None when there is none or the size is unknown."""
    rule = (attrs["coordinate_transformation_mode"], attrs["nearest_mode"])
    known = {
        ("asymmetric", "floor"): (False, False),
        ("half_pixel", "round_prefer_ceil"): (False, True),
        ("align_corners", "round_prefer_ceil"): (True, False),
    }.get(rule)
    desc = build.desc(x)
    if known is None or attrs["mode"] != "nearest" or desc is None or len(desc.logical_shape) != 4:
        return None
    shape = desc.logical_shape
    factors, target = build.constant(scales), build.constant(sizes)
    if min(shape[1:]) < 0:
        return None
    if target is not None:
        wanted = tuple(int(v) for v in target)
    elif factors is not None and sizes is None:
        wanted = scaled_shape(shape, factors)
        # With a scale that does not divide evenly, ONNX places the elements by the scale, GE by the sizes.
        if any(dim >= 0 and dim * float(f) != out for dim, out, f in zip(shape, wanted, factors)):
            return None
        if factors[0] != 1:
            return None
    else:
        return None
    if wanted[1] != shape[1] or (shape[0] >= 0 and wanted[0] != shape[0]) or (target is not None and shape[0] < 0):
        return None
    return (wanted[2], wanted[3]), *known


def _full_rank(
    node: OnnxNode, build: Builder, x: Port, roi: Port | None, scales: Port | None, sizes: Port | None
) -> tuple[Port | None, Port | None, Port | None]:
    """roi, scales and sizes of some axes as vectors over all of them, with the aspect ratio policy applied."""
    desc = build.desc(x)
    values = [build.constant(port) for port in (roi, scales, sizes)]
    unknown = any(port is not None and value is None for port, value in zip((roi, scales, sizes), values))
    if desc is None or desc.logical_shape == UNKNOWN_RANK or unknown:
        raise node.fault("axes and keep_aspect_ratio_policy need a known rank and constant scales or sizes")
    shape = desc.logical_shape
    rank = len(shape)
    axes = [axis % rank for axis in node.attr("axes", tuple(range(rank)))]
    region, factors, target = values
    policy = node.attr("keep_aspect_ratio_policy", "stretch")
    if target is not None and min(shape) < 0:
        raise node.fault("the input shape must be known to resize some of its axes to given sizes")
    if target is not None and policy != "stretch":
        ratios = [int(size) / shape[axis] for size, axis in zip(target, axes)]
        ratio = min(ratios) if policy == "not_larger" else max(ratios)
        target = np.asarray([int(np.floor(ratio * shape[axis] + 0.5)) for axis in axes])
        factors = np.full(len(axes), ratio)
    if region is not None:
        full = np.concatenate([np.zeros(rank, np.float32), np.ones(rank, np.float32)])
        for position, axis in enumerate(axes):
            full[axis], full[rank + axis] = region[position], region[len(axes) + position]
        roi = build.const(full, "roi")
    if factors is not None:
        wide = np.ones(rank, np.float32)
        wide[axes] = factors
        scales = build.const(wide, "scales")
    if target is not None:
        whole = np.asarray(shape, np.int64)
        whole[axes] = target
        sizes = build.const(whole, "sizes")
    return roi, scales, sizes
