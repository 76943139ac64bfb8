"""Sliding windows over the spatial axes: sizes, padding rules, strided views; shared by convolution and pooling."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from gecli.ops.inference import InferenceError
from gecli.ops.numeric import Array

Pads = tuple[tuple[int, int], ...]


class Geometry(NamedTuple):
    """How a window moves: every field has one entry for each spatial axis, outermost first."""

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads: Pads

    @property
    def extent(self) -> tuple[int, ...]:
        """The input elements that one window spans."""
        return tuple((k - 1) * d + 1 for k, d in zip(self.kernel, self.dilations))

    def output(self, size: Sequence[int], ceil_mode: bool = False) -> tuple[int, ...]:
        """Output size for an input of `size`; -1 stays unknown. Raises InferenceError when no window fits."""
        if min(*self.strides, *self.dilations, 1) < 1:
            raise InferenceError(f"strides {list(self.strides)} and dilations {list(self.dilations)} must be positive")
        result = []
        for axis, (dim, span) in enumerate(zip(size, self.extent)):
            if dim < 0 or span < 0:
                result.append(-1)
                continue
            before, after = self.pads[axis]
            stride = self.strides[axis]
            room = dim + before + after - span
            count = (-(-room // stride) if ceil_mode else room // stride) + 1
            # A last window that would start in the trailing pad is dropped (training.md 3).
            if ceil_mode and (count - 1) * stride >= dim + before:
                count -= 1
            if count < 0 or (room < 0 and not ceil_mode):
                raise InferenceError(
                    f"the window {list(self.extent)} is larger than the padded input {list(size)} + {self.pads}"
                )
            result.append(count)
        return tuple(result)

    @property
    def is_pointwise(self) -> bool:
        return all(k == 1 for k in self.kernel) and not any(b or a for b, a in self.pads)


def same_pads(
    size: Sequence[int], kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int], lower: bool = False
) -> Pads:
    """Padding for SAME: out = ceil(in / stride), the odd element after (or before, with `lower`).

    Axes of unknown size get no padding.
    """
    pads = []
    for dim, k, stride, d in zip(size, kernel, strides, dilations):
        total = max((-(-dim // stride) - 1) * stride + (k - 1) * d + 1 - dim, 0) if dim >= 0 else 0
        first = total - total // 2 if lower else total // 2
        pads.append((first, total - first))
    return tuple(pads)


def spatial_axes(data_format: str) -> tuple[int, ...]:
    """Positions of D, H, W in a format string, in that order."""
    return tuple(data_format.index(letter) for letter in "DHW" if letter in data_format)


def spatial(values: Sequence[int], data_format: str) -> tuple[int, ...]:
    """The spatial entries of an attribute list in data_format order; a list without N and C is taken as it is."""
    axes = spatial_axes(data_format)
    if len(values) == len(axes):
        return tuple(values)
    if len(values) == 1:
        return (values[0],) * len(axes)
    return tuple(values[axis] for axis in axes)


def pairs(pads: Sequence[int]) -> Pads:
    """GE's interleaved `[b1, e1, b2, e2...]` as pairs."""
    return tuple(zip(pads[::2], pads[1::2]))


def interleaved(pads: Sequence[int]) -> tuple[int, ...]:
    """ONNX's `[b1..bn, e1..en]` in GE's order."""
    half = len(pads) // 2
    return tuple(value for axis in range(half) for value in (pads[axis], pads[half + axis]))


def flat(pads: Pads) -> tuple[int, ...]:
    """Pairs in GE's interleaved order."""
    return tuple(value for pair in pads for value in pair)


def pad_spatial(x: Array, pads: Pads, value: float | int = 0) -> Array:
    """`x` [N, C, spatial...] with a border of `value`; `x` itself when there is none."""
    if not any(before or after for before, after in pads):
        return x
    shape = (*x.shape[:2], *(dim + before + after for dim, (before, after) in zip(x.shape[2:], pads)))
    padded = np.full(shape, value, x.dtype) if value else np.zeros(shape, x.dtype)
    padded[inner(x.shape[2:], pads)] = x
    return padded


def inner(size: Sequence[int], pads: Pads) -> tuple[slice, ...]:
    """Where the input lies inside the padded array."""
    return (slice(None), slice(None), *(slice(before, before + dim) for dim, (before, _) in zip(size, pads)))


def covered(size: Sequence[int], geometry: Geometry, out: Sequence[int]) -> tuple[int, ...]:
    """The padded size that holds the input and every window of `out` positions."""
    return tuple(
        max(dim + before + after, (count - 1) * stride + span, before + dim)
        for dim, (before, after), count, stride, span in zip(
            size, geometry.pads, out, geometry.strides, geometry.extent
        )
    )


def covering_pads(size: Sequence[int], geometry: Geometry, out: Sequence[int]) -> Pads:
    """Padding with which `out` windows fit, whatever the declared trailing padding."""
    totals = covered(size, geometry, out)
    return tuple((before, total - dim - before) for dim, (before, _), total in zip(size, geometry.pads, totals))


def pad_for(x: Array, geometry: Geometry, out: Sequence[int], value: float | int = 0) -> Array:
    """`x` [N, C, spatial...] padded with `value` so that `out` windows fit."""
    return pad_spatial(x, covering_pads(x.shape[2:], geometry, out), value)


def window_view(padded: Array, geometry: Geometry, out: Sequence[int]) -> Array:
    """View [N, C, kernel..., out...] of a padded [N, C, spatial...] array, without a copy."""
    strides = padded.strides[2:]
    return np.lib.stride_tricks.as_strided(
        padded,
        (*padded.shape[:2], *geometry.kernel, *out),
        (
            *padded.strides[:2],
            *(step * d for step, d in zip(strides, geometry.dilations)),
            *(step * s for step, s in zip(strides, geometry.strides)),
        ),
    )


def tap_slices(geometry: Geometry, out: Sequence[int], tap: Sequence[int]) -> tuple[slice, ...]:
    """The elements of a padded array that kernel position `tap` meets."""
    return (
        slice(None),
        slice(None),
        *(
            slice(t * d, t * d + (count - 1) * s + 1 if count else t * d, s)
            for t, d, s, count in zip(tap, geometry.dilations, geometry.strides, out)
        ),
    )


def channels_first(x: Array, data_format: str) -> Array:
    """A view with axes N, C, spatial."""
    return np.moveaxis(x, -1, 1) if data_format.endswith("C") else x


def in_layout(x: Array, data_format: str) -> Array:
    """The reverse of `channels_first`, contiguous."""
    return np.ascontiguousarray(np.moveaxis(x, 1, -1)) if data_format.endswith("C") else np.ascontiguousarray(x)


def split_shape(shape: Sequence[int], data_format: str) -> tuple[int, int, tuple[int, ...]]:
    """(N, C, spatial) of a shape in this layout."""
    if len(shape) != len(data_format):
        raise InferenceError(f"shape {list(shape)} has not the {len(data_format)} dims of {data_format}")
    return shape[0], shape[data_format.index("C")], tuple(shape[axis] for axis in spatial_axes(data_format))


def join_shape(batch: int, channels: int, size: Sequence[int], data_format: str) -> tuple[int, ...]:
    if data_format.endswith("C"):
        return (batch, *size, channels)
    return (batch, channels, *size)
