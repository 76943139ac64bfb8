"""Convolution and its two gradients on arrays [N, C, spatial...] with filters [Cout, Cin/groups, kernel...]."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy as np

from gecli.ir.format import Format
from gecli.ir.tensor_desc import TensorDesc
from gecli.ops.inference import InferenceError
from gecli.ops.numeric import Array
from gecli.ops.windows import Geometry, covered, inner, pad_for, pad_spatial, tap_slices, window_view

# Above this many bytes of columns, an image is convolved in bands of output rows.
COLUMN_BYTES = 8 << 20
# A float32 sum of integers is exact while it stays below 2^24.
EXACT_FLOAT32 = 1 << 24

# Filter layouts as permutations to [Cout, Cin, spatial...].
_TO_OIHW = {
    "NCHW": (0, 1, 2, 3),
    "HWCN": (3, 2, 0, 1),
    "FILTER_HWCK": (3, 2, 0, 1),
    "NHWC": (0, 3, 1, 2),
    "CHWN": (3, 0, 1, 2),
    "NCDHW": (0, 1, 2, 3, 4),
    "DHWCN": (4, 3, 0, 1, 2),
    "DHWNC": (3, 4, 0, 1, 2),
    "NDHWC": (0, 4, 1, 2, 3),
}


def filter_layout(desc: TensorDesc | None, data_format: str) -> str:
    """The layout of a filter: its own origin format, or what goes with the data format (training.md 5)."""
    name = "ND" if desc is None else Format(desc.logical_format).primary.name
    if name in _TO_OIHW and len(_TO_OIHW[name]) == len(data_format):
        return name
    return {"NHWC": "HWCN", "NDHWC": "DHWCN"}.get(data_format, data_format)


def to_oihw(w: Array, layout: str) -> Array:
    """A view [Cout, Cin, kernel...] of a filter. Raises ValueError for a layout that no filter has."""
    if layout not in _TO_OIHW:
        raise ValueError(f"a filter has no layout {layout!r}")
    return w.transpose(_TO_OIHW[layout])


def from_oihw(w: Array, layout: str) -> Array:
    """The reverse of `to_oihw`, contiguous."""
    return np.ascontiguousarray(w.transpose(np.argsort(_TO_OIHW[layout])))


def oihw_shape(shape: Sequence[int], layout: str) -> tuple[int, ...]:
    if len(shape) != len(_TO_OIHW[layout]):
        raise InferenceError(f"filter shape {list(shape)} does not fit {layout}")
    return tuple(shape[axis] for axis in _TO_OIHW[layout])


def depthwise_to_oihw(w: Array, layout: str) -> Array:
    """A depthwise filter [kh, kw, C, K] (HWCN) as a grouped one [C*K, 1, kh, kw].

    In NCHW it is [K, C, kh, kw], or already [C*K, 1, kh, kw].
    """
    full = to_oihw(w, layout)
    multiplier, channels = full.shape[:2]
    if channels == 1:
        return full
    return np.ascontiguousarray(full.swapaxes(0, 1)).reshape(channels * multiplier, 1, *full.shape[2:])


def depthwise_from_oihw(w: Array, shape: Sequence[int], layout: str) -> Array:
    """The reverse of `depthwise_to_oihw` for a filter of `shape` in `layout`."""
    multiplier, channels, *kernel = oihw_shape(shape, layout)
    if channels == 1:
        return from_oihw(w, layout)
    return from_oihw(w.reshape(channels, multiplier, *kernel).swapaxes(0, 1), layout)


def convolve(x: Array, w: Array, geometry: Geometry, groups: int = 1) -> Array:
    """y[b, co, o] = sum of x[b, ci, o*s + k*d - p] * w[co, ci, k]; integers give int32 sums that are exact."""
    if x.dtype.kind in "iu":
        return _exact(x, w, geometry, groups)
    out = geometry.output(x.shape[2:])
    y = np.empty((x.shape[0], w.shape[0], *out), np.result_type(x, w))
    if y.size == 0 or w.size == 0:
        y[...] = 0
        return y
    padded = pad_spatial(x, geometry.pads)
    if w.shape[1] == 1 and groups > 1:
        _depthwise(padded, w, geometry, y)
        return y
    matrix = np.ascontiguousarray(w).reshape(groups, w.shape[0] // groups, -1)
    view = window_view(padded, geometry, out)
    first = 2 + len(geometry.kernel)
    for image in range(x.shape[0]):
        for rows in _bands(matrix.shape[2] * groups, out, y.itemsize):
            columns = view[(slice(image, image + 1), *[slice(None)] * (first - 1), rows)]
            count = columns.shape[first] * int(np.prod(out[1:]))
            columns = columns.reshape(groups, matrix.shape[2], count)
            y[image, :, rows] = np.matmul(matrix, columns).reshape(w.shape[0], -1, *out[1:])
    return y


def _bands(height: int, out: Sequence[int], itemsize: int) -> list[slice]:
    row = max(height * int(np.prod(out[1:])) * itemsize, 1)
    step = max(COLUMN_BYTES // row, 1)
    return [slice(start, min(start + step, out[0])) for start in range(0, out[0], step)]


def _depthwise(padded: Array, w: Array, geometry: Geometry, y: Array) -> None:
    channels = padded.shape[1]
    out = y.shape[2:]
    multiplier = w.shape[0] // channels
    grouped = y.reshape(y.shape[0], channels, multiplier, *out)
    taps = w.reshape(1, channels, multiplier, -1)
    for number, tap in enumerate(product(*map(range, geometry.kernel))):
        values = padded[tap_slices(geometry, out, tap)][:, :, None]
        factor = taps[..., number].reshape(1, channels, multiplier, *[1] * len(out))
        if number == 0:
            np.multiply(values, factor, out=grouped)
        else:
            grouped += values * factor


def _exact(x: Array, w: Array, geometry: Geometry, groups: int) -> Array:
    """Integer convolution through float BLAS, in a precision in which no sum can round."""
    terms = w.size // max(w.shape[0], 1)
    bound = terms * _largest(x) * _largest(w)
    wide = np.float32 if bound < EXACT_FLOAT32 else np.float64
    y = convolve(x.astype(wide), w.astype(wide), geometry, groups)
    return y.astype(np.int64).astype(np.int32)


def _largest(x: Array) -> int:
    return max(abs(int(x.min())), abs(int(x.max()))) if x.size else 0


def filter_gradient(x: Array, g: Array, geometry: Geometry, groups: int = 1) -> Array:
    """The adjoint of `convolve` in w: [Cout, Cin/groups, kernel...]."""
    out = g.shape[2:]
    depth = x.shape[1] // groups
    result = np.zeros((groups, g.shape[1] // groups, depth * int(np.prod(geometry.kernel))), np.result_type(x, g))
    view = window_view(pad_for(x, geometry, out), geometry, out)
    for image in range(x.shape[0]):
        columns = view[image : image + 1].reshape(groups, result.shape[2], -1)
        gradient = g[image].reshape(groups, result.shape[1], -1)
        result += np.matmul(gradient, columns.swapaxes(1, 2))
    return result.reshape(g.shape[1], depth, *geometry.kernel)


def input_gradient(w: Array, g: Array, size: Sequence[int], geometry: Geometry, groups: int = 1) -> Array:
    """The adjoint of `convolve` in x, for an input of spatial `size`."""
    out = g.shape[2:]
    depth = w.shape[1]
    matrix = np.ascontiguousarray(w).reshape(groups, w.shape[0] // groups, -1).swapaxes(1, 2)
    result = np.empty((g.shape[0], groups * depth, *size), np.result_type(w, g))
    padded_size = covered(size, geometry, out)
    taps = list(product(*map(range, geometry.kernel)))
    for image in range(g.shape[0]):
        columns = np.matmul(matrix, g[image].reshape(groups, w.shape[0] // groups, -1))
        columns = columns.reshape(1, groups * depth, len(taps), *out)
        padded = np.zeros((1, groups * depth, *padded_size), result.dtype)
        for number, tap in enumerate(taps):
            padded[tap_slices(geometry, out, tap)] += columns[:, :, number]
        result[image : image + 1] = padded[inner(size, geometry.pads)]
    return result


def check_gradient_size(size: Sequence[int], out: Sequence[int], geometry: Geometry, what: str) -> None:
    """Raise InferenceError unless a forward pass over `size` gives `out`; names the size that would fit."""
    fits = geometry.output(size)
    if any(a >= 0 and b >= 0 and a != b for a, b in zip(fits, out)):
        raise InferenceError(
            f"{what} {list(size)} gives an output of {list(fits)}, but the gradient has the size {list(out)}"
        )
