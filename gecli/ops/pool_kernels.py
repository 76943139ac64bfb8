"""Windowed maxima, sums and argmax on arrays [N, C, spatial...]."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial, reduce
from itertools import product
from typing import Any

import numpy as np

from gecli.ops.numeric import Array, Step, is_half
from gecli.ops.windows import Geometry, covering_pads, inner, pad_for, tap_slices


def lowest(dtype: Any) -> Any:
    """A value that never wins a maximum."""
    return np.iinfo(dtype).min if dtype.kind in "iu" else -np.inf


def max_windows(x: Array, geometry: Geometry, out: Sequence[int]) -> Array:
    """The maximum of each window; padding never wins, NaN does."""
    if is_half(x.dtype):
        return max_windows(x.astype(np.float32), geometry, out).astype(x.dtype)
    return _axis_by_axis(np.maximum, pad_for(x, geometry, out, lowest(x.dtype)), geometry, out)


def sum_windows(x: Array, geometry: Geometry, out: Sequence[int]) -> Array:
    """The sum of each window, padding counting as 0."""
    return _axis_by_axis(np.add, pad_for(x, geometry, out), geometry, out)


def average_windows(x: Array, geometry: Geometry, out: Sequence[int], divisor: Array) -> Array:
    return (sum_windows(x, geometry, out) / divisor).astype(x.dtype, copy=False)


def average_divisor(geometry: Geometry, size: Sequence[int], out: Sequence[int], exclusive: bool) -> Array:
    """How many elements each window meets: inside the input, or inside the input and its declared pads."""
    counts = []
    for dim, (before, after), k, s, d, count in zip(
        size, geometry.pads, geometry.kernel, geometry.strides, geometry.dilations, out
    ):
        low, high = (0, dim) if exclusive else (-before, dim + after)
        positions = (np.arange(count) * s - before)[:, None] + np.arange(k) * d
        counts.append(np.maximum(((positions >= low) & (positions < high)).sum(axis=1), 1))
    return reduce(np.multiply.outer, counts)


def _axis_by_axis(ufunc: np.ufunc, padded: Array, geometry: Geometry, out: Sequence[int]) -> Array:
    """max and sum over a box are those over rows of those over columns."""
    value = padded
    for axis, taps in enumerate(_axis_slices(geometry, out), start=2):
        parts = [value[(slice(None),) * axis + (tap,)] for tap in taps]
        value = parts[0].copy()
        for part in parts[1:]:
            ufunc(value, part, out=value)
    return value


def _axis_slices(geometry: Geometry, out: Sequence[int]) -> list[list[slice]]:
    """For each axis, the slice of a padded axis that each kernel position meets."""
    return [
        [slice(t * d, t * d + (count - 1) * s + 1, s) for t in range(k)]
        for k, s, d, count in zip(geometry.kernel, geometry.strides, geometry.dilations, out)
    ]


def bind_windows(ufunc: np.ufunc, x: Array, y: Array, geometry: Geometry, border: Any) -> Step:
    """A prepared running `ufunc` over the windows of `x` into `y`, axis by axis."""
    pads = covering_pads(x.shape[2:], geometry, y.shape[2:])
    value: Array = x
    actions: list[Callable[[], Any]] = []
    if any(b or a for b, a in pads):
        size = tuple(dim + b + a for dim, (b, a) in zip(x.shape[2:], pads))
        value = np.full((*x.shape[:2], *size), border, x.dtype)
        actions.append(partial(np.copyto, value[inner(x.shape[2:], pads)], x))
    slices = _axis_slices(geometry, y.shape[2:])
    for axis, taps in enumerate(slices, start=2):
        parts = [value[(slice(None),) * axis + (tap,)] for tap in taps]
        value = y if axis == y.ndim - 1 else np.empty(parts[0].shape, x.dtype)
        if len(parts) == 1:
            actions.append(partial(np.copyto, value, parts[0]))
        else:
            actions.append(partial(ufunc, parts[0], parts[1], out=value))
            actions += [partial(ufunc, value, part, out=value) for part in parts[2:]]

    def run() -> None:
        for action in actions:
            action()

    return run


def argmax_windows(x: Array, geometry: Geometry, out: Sequence[int], *, skip_nan: bool) -> tuple[Array, Array]:
    """Each window's maximum and the row-major index in its plane of the first element that equals it.

    A NaN is the maximum of its window, or is passed over with `skip_nan`.
    """
    wide = x.astype(np.float32) if is_half(x.dtype) else x
    padded = pad_for(wide, geometry, out, lowest(wide.dtype))
    plane = np.arange(int(np.prod(x.shape[2:])), dtype=np.int64).reshape(1, 1, *x.shape[2:])
    places = pad_for(plane, geometry, out, -1)
    best = np.full((*x.shape[:2], *out), lowest(wide.dtype), wide.dtype)
    index = np.full(best.shape, -1, np.int64)
    for tap in product(*map(range, geometry.kernel)):
        here = tap_slices(geometry, out, tap)
        value, place = padded[here], np.broadcast_to(places[here], best.shape)
        better = (value > best) | ((index < 0) & (place >= 0) & ~np.isnan(value) if skip_nan else index < 0)
        if skip_nan:
            better &= place >= 0
        else:
            better = (better | (np.isnan(value) & ~np.isnan(best))) & (place >= 0)
        best[better] = value[better]
        index[better] = place[better]
    return best.astype(x.dtype, copy=False), np.maximum(index, 0)
