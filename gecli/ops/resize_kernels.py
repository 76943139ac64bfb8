"""Interpolation along one axis at a time: where each output element reads and with which weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from gecli.ops.numeric import Array


class AxisPlan(NamedTuple):
    """How one axis is resampled: output o is the sum over t of weights[o, t] * x[taps[o, t]].

    `weights` is None for nearest; `outside` marks the outputs that get the extrapolation value.
    """

    axis: int
    taps: Array
    weights: Array | None
    outside: Array | None


class Method(NamedTuple):
    """The attributes of `Resize` that decide the weights."""

    mode: str = "nearest"
    coordinates: str = "half_pixel"
    nearest: str = "round_prefer_floor"
    cubic_a: float = -0.75
    exclude_outside: bool = False
    antialias: bool = False


def source_positions(
    method: Method, size: int, count: int, scale: float, roi: tuple[float, float] = (0.0, 1.0)
) -> Array:
    """For each output element its place on the input axis.

    In float32, in the order in which ONNX's formulas are usually computed: ties of nearest depend on it.
    """
    f = np.float32
    o = np.arange(count, dtype=f)
    mode = method.coordinates
    if mode == "align_corners":
        return np.zeros(count, f) if count == 1 else o * f(size - 1) / f(count - 1)
    if mode == "asymmetric":
        return o / f(scale)
    if mode == "tf_half_pixel_for_nn":
        return (o + f(0.5)) / f(scale)
    if mode == "tf_crop_and_resize":
        begin, end = roi
        if count == 1:
            return np.full(1, 0.5 * (begin + end) * (size - 1), f)
        return f(begin) * f(size - 1) + o * f(end - begin) * f(size - 1) / f(count - 1)
    if mode == "pytorch_half_pixel" and count == 1:
        return np.zeros(1, f)
    if mode == "half_pixel_symmetric":
        offset = size / 2 * (1 - count / (scale * size))
        return f(offset) + ((o + f(0.5)) / f(scale) - f(0.5))
    if mode not in ("half_pixel", "pytorch_half_pixel"):
        raise ValueError(f"unknown coordinate_transformation_mode {mode!r}")
    return (o + f(0.5)) / f(scale) - f(0.5)


def nearest_index(positions: Array, mode: str, scale: float) -> Array:
    """Rounded positions. `simple` is the rule before opset 11: down when enlarging, up when shrinking."""
    if mode == "simple":
        mode = "ceil" if scale < 1 else "floor"
    half = positions.dtype.type(0.5)
    if mode == "floor":
        rounded = np.floor(positions)
    elif mode == "ceil":
        rounded = np.ceil(positions)
    elif mode == "round_prefer_ceil":
        rounded = np.floor(positions + half)
    elif mode == "round_prefer_floor":
        rounded = np.ceil(positions - half)
    else:
        raise ValueError(f"unknown nearest_mode {mode!r}")
    return rounded.astype(np.intp)


def axis_plan(
    method: Method, axis: int, size: int, count: int, scale: float, roi: tuple[float, float] = (0.0, 1.0)
) -> AxisPlan | None:
    """The plan for one axis; None when it stays as it is."""
    cropping = method.coordinates == "tf_crop_and_resize"
    if size == count and (scale == 1 or method.coordinates == "align_corners") and not (cropping and roi != (0.0, 1.0)):
        return None
    positions = source_positions(method, size, count, scale, roi)
    outside = (positions < 0) | (positions > size - 1) if cropping else None
    if method.mode == "nearest":
        index = np.clip(nearest_index(positions, method.nearest, scale), 0, size - 1)
        return AxisPlan(axis, index[:, None], None, outside)
    shrink = min(scale, 1.0) if method.antialias else 1.0
    base, taps = _taps(positions, 2 if method.mode == "cubic" else 1, shrink)
    distance = np.abs((base[:, None] + taps) - positions.astype(np.float64)[:, None]) * shrink
    weights = _cubic(distance, method.cubic_a) if method.mode == "cubic" else np.maximum(1 - distance, 0)
    index = base[:, None] + taps
    if method.exclude_outside:
        weights = np.where((index >= 0) & (index < size), weights, 0)
    if method.exclude_outside or method.antialias:
        weights = weights / weights.sum(axis=1, keepdims=True)
    return AxisPlan(axis, np.clip(index, 0, size - 1), weights, outside)


def _taps(positions: Array, reach: int, shrink: float) -> tuple[Array, Array]:
    """The element left of each position, and the offsets from it that carry weight."""
    base = np.floor(positions).astype(np.intp)
    first = int(np.floor(-reach / shrink)) + 1
    return base, np.arange(first, 2 - first)


def _cubic(distance: Array, a: float) -> Array:
    """Keys' convolution kernel."""
    d = distance
    near = ((a + 2) * d - (a + 3)) * d * d + 1
    far = ((a * d - 5 * a) * d + 8 * a) * d - 4 * a
    return np.where(d <= 1, near, np.where(d < 2, far, 0.0))


def resample(x: Array, plans: Sequence[AxisPlan], extrapolation: float = 0.0) -> Array:
    """Apply the plans one after the other."""
    y = x
    for plan in plans:
        y = _along(y, plan)
    for plan in plans:
        if plan.outside is not None and plan.outside.any():
            y = y.copy() if y is x else y
            y[(slice(None),) * plan.axis + (plan.outside,)] = extrapolation
    return y


def _along(x: Array, plan: AxisPlan) -> Array:
    if plan.weights is None:
        return x.take(plan.taps[:, 0], axis=plan.axis)
    kind = x.dtype if x.dtype.kind == "f" else np.dtype(np.float32)
    shape = [1] * x.ndim
    shape[plan.axis] = -1
    total: Any = 0
    for tap in range(plan.taps.shape[1]):
        weight = plan.weights[:, tap].astype(kind).reshape(shape)
        if weight.any():
            total = total + x.take(plan.taps[:, tap], axis=plan.axis) * weight
    return np.asarray(total, kind)


def repeats(plans: Sequence[AxisPlan], shape: Sequence[int]) -> dict[int, int] | None:
    """The factor of each axis when every plan repeats each element a fixed number of times; None otherwise."""
    found: dict[int, int] = {}
    for plan in plans:
        count, size = len(plan.taps), shape[plan.axis]
        if plan.weights is not None or plan.outside is not None or not size or count % size:
            return None
        if not np.array_equal(plan.taps[:, 0], np.arange(count) // (count // size)):
            return None
        found[plan.axis] = count // size
    return found
