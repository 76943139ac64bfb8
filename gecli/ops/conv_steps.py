"""Prepared float32 convolutions over fixed arrays: views, scratch and packed filters made once (runtime.md 10.5).

Measured on one thread: columns in bands of output rows that stay in the cache reach 80 % of BLAS speed for 3x3, and
the BLAS call writes straight into the output.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from gecli.ops.intra_op import (
    ELEMENTS_PER_US,
    FLOPS_PER_US,
    divided,
    even,
    parts_for,
    shared,
    side_by_side,
)
from gecli.ops.numeric import Action, Array, Step, sequence
from gecli.ops.windows import Geometry, Pads, inner, tap_slices, window_view

# A band of columns (or of output, for 1x1) of this size stays in the second level cache.
BAND_BYTES = 1 << 20
# The same for the columns of a depthwise slab.
SLAB_BYTES = 512 << 10

Scratch = Callable[[int], Array]


class Problem(NamedTuple):
    """A convolution over fixed float32 arrays [N, C, spatial...]; `filter_fixed`: w never changes."""

    x: Array
    w: Array
    bias: Array | None
    y: Array
    geometry: Geometry
    groups: int
    filter_fixed: bool


def private_scratch(nbytes: int) -> Array:
    """Work memory of one node; the executor may lend shared memory instead (`op.lend_scratch`)."""
    return np.empty(nbytes, np.uint8)


def scratch_of(op: Any) -> Scratch:
    """The scratch source of an operator: `nbytes -> uint8 array` whose contents last only within one step."""
    return getattr(op, "lend_scratch", None) or private_scratch


def floats(scratch: Scratch, *sizes: int) -> list[Array]:
    """Float32 work buffers of these element counts, out of one piece of scratch."""
    memory = scratch(4 * sum(sizes))[: 4 * sum(sizes)].view(np.float32)
    ends = np.cumsum(sizes)
    return [memory[end - size : end] for size, end in zip(sizes, ends)]


def bind_convolution(problem: Problem, scratch: Scratch) -> Step | None:
    """The fastest recipe for this problem; None for other types than float32 and for empty arrays."""
    arrays = (problem.x, problem.w, problem.y)
    if any(a.dtype != np.float32 or a.size == 0 for a in arrays):
        return None
    actions: list[Action] = []
    w = problem.w
    if not w.flags.c_contiguous:
        packed = np.ascontiguousarray(w)
        if not problem.filter_fixed:
            actions.append((np.copyto, (packed, w)))
        problem = problem._replace(w=packed)
    if problem.geometry.is_pointwise and all(s == 1 for s in problem.geometry.strides):
        actions += _pointwise(problem)
    elif w.shape[1] == 1 and w.shape[0] == problem.x.shape[1] == problem.groups > 1 and w.ndim == 4:
        actions += _depthwise(problem, scratch)
    elif _favours_row_shifts(problem):
        actions += _row_shifts(problem, scratch)
    else:
        actions += _banded(problem, scratch)
    return sequence(actions)


def _pointwise(p: Problem) -> list[Action]:
    """1x1: one matmul without a copy, in bands only so that the bias finds the output in the cache."""
    groups, images, features = p.groups, p.x.shape[0], p.w.shape[0]
    matrix = p.w.reshape(groups, features // groups, -1)
    x = p.x.reshape(images, groups, p.x.shape[1] // groups, -1)
    y = p.y.reshape(images, groups, features // groups, -1)
    if groups == 1:
        matrix, x, y = matrix[0], x[:, 0], y[:, 0]
    bias = None if p.bias is None else p.bias.reshape(*y.shape[1:-1], 1)
    count = x.shape[-1]
    microseconds = _microseconds(p, matrix.shape[-1]) / images
    if groups == 1 and count < features:
        parts = [(slice(None), rows) for rows in divided(features, parts_for(microseconds, features), 16)]
    else:
        width = count if bias is None else max(BAND_BYTES // (4 * features), 64)
        bands = even(-(-count // width), parts_for(microseconds, count))
        parts = [(columns, slice(None)) for columns in divided(count, bands, 16)]

    def product_of(image: int, columns: slice, rows: slice) -> list[Action]:
        out = y[image][..., rows, columns]
        actions: list[Action] = [(np.matmul, (matrix[..., rows, :], x[image][..., columns], out))]
        if bias is not None:
            actions.append((np.add, (out, bias[..., rows, :], out)))
        return actions

    pieces = [(image, *part) for image in range(images) for part in parts]
    return shared(pieces, microseconds * images, lambda piece: product_of(*piece))


def _banded(p: Problem, scratch: Scratch) -> list[Action]:
    """Columns of a band of output rows, then one matmul into the output."""
    geometry, groups, out = p.geometry, p.groups, p.y.shape[2:]
    spatial, images = len(out), p.x.shape[0]
    matrix = p.w.reshape(groups, p.w.shape[0] // groups, -1)
    depth = matrix.shape[2]
    axis = next((axis for axis, dim in enumerate(out) if dim > 1), 0)  # bands are cut here: a signal has one row
    rest = int(np.prod(out[axis + 1 :]))
    microseconds = _microseconds(p, depth) / images
    threads = parts_for(microseconds, out[axis])
    rows = min(max(BAND_BYTES // (4 * groups * depth * rest), 1), out[axis])
    bands = divided(out[axis], even(-(-out[axis] // rows), threads))
    size = groups * depth * (bands[0].stop - bands[0].start) * rest
    border, *columns = floats(scratch, _border_size(p.x, geometry.pads), *[size] * threads)
    source, fill = _padded_input(p.x, geometry.pads, border)
    view = window_view(source, geometry, out)
    y = p.y.reshape(images, groups, p.w.shape[0] // groups, -1)
    bias = None if p.bias is None else p.bias.reshape(groups, -1, 1)

    def convolved(image: int, band: slice, memory: Array) -> list[Action]:
        windows = view[image if source is p.x else 0][(*[slice(None)] * (1 + spatial + axis), band)]
        count = (band.stop - band.start) * rest
        used = memory[: groups * depth * count]
        target = y[image][:, :, band.start * rest : band.stop * rest]
        actions: list[Action] = [
            (np.copyto, (used.reshape(windows.shape), windows)),
            (np.matmul, _drop_group(matrix, used.reshape(groups, depth, count), target)),
        ]
        if bias is not None:
            actions.append((np.add, (target, bias, target)))
        return actions

    actions: list[Action] = []
    for image in range(images):
        actions += fill(image)
        runs = divided(len(bands), threads)
        actions += side_by_side(
            [[a for band in bands[run] for a in convolved(image, band, memory)] for run, memory in zip(runs, columns)]
        )
    return actions


def _microseconds(p: Problem, depth: int) -> float:
    """About how long the products of a convolution take in one thread."""
    return 2.0 * p.y.size * depth / FLOPS_PER_US


def _favours_row_shifts(p: Problem) -> bool:
    """True where few output channels make it cheaper to add kh partial sums than to copy kh times the columns."""
    if p.groups != 1 or p.w.ndim != 4 or p.geometry.strides[0] != 1 or not p.filter_fixed:
        return False
    out_channels, depth, kh, kw = p.w.shape
    return depth * kw * (kh - 1) > 3 * kh * out_channels


def _row_shifts(p: Problem, scratch: Scratch) -> list[Action]:
    """Columns of kw taps only: one matmul gives the contribution of each kernel row, which is added where it belongs.

    Measured: 3x3 from 96 to 24 channels at 160x160 9 ms, with whole columns 16 ms.
    """
    out_channels, depth, kh, kw = p.w.shape
    geometry, (oh, ow) = p.geometry, p.y.shape[2:]
    dh = geometry.dilations[0]
    matrix = np.ascontiguousarray(p.w.transpose(2, 0, 1, 3)).reshape(kh * out_channels, depth * kw)
    halo = (kh - 1) * dh
    # Each thread has its own output rows, and the padded rows around them that others need too.
    regions = divided(oh, parts_for(_microseconds(p, depth * kh * kw) / len(p.x), max(oh // (4 * halo + 1), 1)))
    height = oh + halo
    band = min(max(BAND_BYTES // (4 * ow * (depth * kw + kh * out_channels)), 1), height)
    sizes = (depth * kw * band * ow, kh * out_channels * band * ow)
    border, *memory = floats(scratch, _border_size(p.x, geometry.pads), *sizes * len(regions))
    source, fill = _padded_input(p.x, geometry.pads, border)
    # One window row high, as if the kernel had a single row: every padded row gets its columns once.
    row = Geometry((1, kw), (1, geometry.strides[1]), (1, geometry.dilations[1]), ((0, 0), (0, 0)))
    view = window_view(source, row, (height, ow))[:, :, 0]
    bias = np.float32(0) if p.bias is None else p.bias.reshape(-1, 1, 1)

    def convolved(image: int, region: slice, columns: Array, parts: Array) -> list[Action]:
        windows = view[image if source is p.x else 0]
        actions: list[Action] = [(np.copyto, (p.y[image, :, region], bias))]
        for start in range(region.start, region.stop + halo, band):
            count = min(band, region.stop + halo - start)
            used = columns[: depth * kw * count * ow]
            sums = parts[: kh * out_channels * count * ow]
            actions.append((np.copyto, (used.reshape(depth, kw, count, ow), windows[:, :, start : start + count])))
            products = (matrix, used.reshape(depth * kw, -1), sums.reshape(kh * out_channels, -1))
            actions.append((np.matmul, products))
            for i, part in enumerate(sums.reshape(kh, out_channels, count, ow)):
                low, high = max(start, region.start + i * dh), min(start + count, region.stop + i * dh)
                if low < high:
                    target = p.y[image, :, low - i * dh : high - i * dh]
                    actions.append((np.add, (target, part[:, low - start : high - start], target)))
        return actions

    actions: list[Action] = []
    for image in range(len(p.x)):
        actions += fill(image)
        work = zip(regions, memory[::2], memory[1::2])
        actions += side_by_side([convolved(image, *each) for each in work])
    return actions


def _drop_group(*arrays: Array) -> tuple[Array, ...]:
    """The operands of a batched matmul, as plain matrices when there is one group."""
    return tuple(a[0] for a in arrays) if arrays[0].shape[0] == 1 else arrays


def _border_size(x: Array, pads: Pads) -> int:
    """Elements of one image with its border; 0 when it has none."""
    return x.shape[1] * int(np.prod(_bordered(x, pads))) if any(b or a for b, a in pads) else 0


def _bordered(x: Array, pads: Pads) -> list[int]:
    return [d + b + a for d, (b, a) in zip(x.shape[2:], pads)]


def _padded_input(x: Array, pads: Pads, memory: Array) -> tuple[Array, Callable[[int], list[Action]]]:
    """A bordered buffer in `memory` for one image and the actions that fill it; `x` itself when there is no border."""
    if not memory.size:
        return x, lambda image: []
    buffer = memory.reshape(1, x.shape[1], *_bordered(x, pads))
    middle = buffer[inner(x.shape[2:], pads)]
    zero = np.float32(0)
    border: list[Action] = []
    for axis, (before, after) in enumerate(pads, 2):
        end = buffer.shape[axis] - after
        for side in (slice(before), slice(end, None)):
            if side.start != buffer.shape[axis] and side.stop != 0:
                border.append((np.copyto, (buffer[(*[slice(None)] * axis, side)], zero)))

    def fill(image: int) -> list[Action]:
        # All images of a step share the border; other steps write to the same memory.
        return [*(border if image == 0 else ()), (np.copyto, (middle, x[image : image + 1]))]

    return buffer, fill


class _Planes(NamedTuple):
    """How the padded planes of a depthwise convolution lie: one row-major plane per phase of the strides."""

    strides: tuple[int, int]
    rows: int
    pitch: int

    def shift(self, i: int, j: int) -> tuple[int, int, int]:
        """Phase and offset of the padded element (i, j)."""
        sh, sw = self.strides
        return i % sh, j % sw, i // sh * self.pitch + j // sw


def _depthwise(p: Problem, scratch: Scratch) -> list[Action]:
    """One small product per channel over columns made of long rows.

    A plane is stored row after row with its border, so that one tap over a band of rows is one contiguous piece;
    strides split the plane into phases first. Measured: 5x5 on 192 channels of 40x40 1.5 ms, multiply and add by
    taps 7 ms.
    """
    geometry = p.geometry
    (height, width), (oh, ow) = p.x.shape[2:], p.y.shape[2:]
    (top, bottom), (left, right) = geometry.pads
    sh, sw = geometry.strides
    planes = _Planes((sh, sw), -(-(height + top + bottom) // sh), -(-(width + left + right) // sw))
    pitch, channels = planes.pitch, p.x.shape[1]
    taps = int(np.prod(geometry.kernel))
    # A column is written and read once for each tap, far below the speed of large products.
    threads = parts_for(p.y.size * taps / ELEMENTS_PER_US, channels * len(p.x))
    band = min(max(SLAB_BYTES // (4 * taps * pitch), 1), oh)
    slab = min(max(SLAB_BYTES // (4 * taps * pitch * band), 1), -(-channels * len(p.x) // threads), channels)
    # Zeroed once: the borders are never written again, so these buffers are private to the node.
    buffers = np.zeros((threads, slab, sh, sw, planes.rows * pitch), np.float32)
    memory = floats(scratch, *(slab * taps * band * pitch, slab * band * pitch) * threads)
    matrix = p.w.reshape(channels, 1, taps)
    bias = np.zeros(channels, np.float32) if p.bias is None else p.bias

    def convolved(image: int, part: slice, buffer: Array, columns: Array, sums: Array) -> list[Action]:
        count = part.stop - part.start
        actions: list[Action] = []
        for a, b in product(range(sh), range(sw)):
            source = p.x[image, part, (a - top) % sh :: sh, (b - left) % sw :: sw]
            r, q = ((a - top) % sh + top) // sh, ((b - left) % sw + left) // sw
            grid = buffer[:count, a, b].reshape(count, planes.rows, pitch)
            actions.append((np.copyto, (grid[:, r : r + source.shape[1], q : q + source.shape[2]], source)))
        for first in range(0, oh, band):
            lines = min(band, oh - first)
            length = (lines - 1) * pitch + ow
            filled = columns[: count * taps * length].reshape(count, taps, length)
            actions += _fill_taps(filled, buffer[:count], planes, geometry, first)
            total = sums[: count * lines * pitch].reshape(count, 1, lines * pitch)
            actions.append((np.matmul, (matrix[part], filled, total[:, :, :length])))
            valid = total.reshape(count, lines, pitch)[:, :, :ow]
            target = p.y[image, part, first : first + lines]
            actions.append((np.add, (valid, bias[part, None, None], target)))
        return actions

    slabs = [(image, part) for image in range(len(p.x)) for part in divided(channels, -(-channels // slab))]
    work = zip(divided(len(slabs), threads), buffers, memory[::2], memory[1::2])
    return side_by_side([[a for each in slabs[run] for a in convolved(*each, *own)] for run, *own in work])


def _fill_taps(filled: Array, buffer: Array, planes: _Planes, geometry: Geometry, first: int) -> list[Action]:
    """Actions that copy the pieces of all taps for output rows from `first` on into `filled` [n, taps, length]."""
    (kh, kw), (dh, dw) = geometry.kernel, geometry.dilations
    length = filled.shape[2]
    if planes.strides == (1, 1):
        flat = buffer[:, 0, 0, first * planes.pitch :]
        view = np.lib.stride_tricks.as_strided(
            flat, (len(flat), kh, kw, length), (flat.strides[0], dh * planes.pitch * 4, dw * 4, 4)
        )
        return [(np.copyto, (filled.reshape(view.shape), view))]
    actions: list[Action] = []
    for number, (i, j) in enumerate(product(range(kh), range(kw))):
        a, b, shift = planes.shift(i * dh, j * dw)
        start = first * planes.pitch + shift
        actions.append((np.copyto, (filled[:, number], buffer[:, a, b, start : start + length])))
    return actions


def bind_channels_last(problem: Problem, scratch: Scratch) -> Step | None:
    """The same for x [N, H, W, C], y [N, OH, OW, Cout] and a filter [kh, kw, Cin, Cout] without groups."""
    p = problem
    if any(a.dtype != np.float32 or a.size == 0 for a in (p.x, p.w, p.y)) or p.groups != 1:
        return None
    actions: list[Action] = []
    w = p.w
    if not w.flags.c_contiguous:
        packed = np.ascontiguousarray(w)
        if not p.filter_fixed:
            actions.append((np.copyto, (packed, w)))
        w = packed
    matrix = w.reshape(-1, w.shape[-1])
    depth = matrix.shape[0]
    images, oh, ow, channels = p.y.shape
    y = p.y.reshape(images, oh * ow, channels)
    pointwise = p.geometry.is_pointwise and p.geometry.strides == (1, 1)
    x = p.x.reshape(images, -1, p.x.shape[3])
    threads = parts_for(_microseconds(p, depth) / images, oh)
    rows = oh if pointwise else min(max(BAND_BYTES // (4 * depth * ow), 1), oh)
    bands = divided(oh, even(-(-oh // rows), threads))
    size = 0 if pointwise else (bands[0].stop - bands[0].start) * ow * depth
    memory = floats(scratch, *[size] * threads)
    source, fill = _padded_last(p.x, p.geometry.pads)
    view = _windows_last(source, p.geometry, (oh, ow))

    def convolved(image: int, band: slice, columns: Array) -> list[Action]:
        positions = slice(band.start * ow, band.stop * ow)
        target, used = y[image, positions], x[image, positions]
        actions: list[Action] = []
        if not pointwise:
            windows = view[image if source is p.x else 0, band]
            used = columns[: len(target) * depth].reshape(len(target), depth)
            actions.append((np.copyto, (used.reshape(windows.shape), windows)))
        actions.append((np.matmul, (used, matrix, target)))
        if p.bias is not None:
            actions.append((np.add, (target, p.bias, target)))
        return actions

    for image in range(images):
        if not pointwise:
            actions += fill(image)
        work = zip(divided(len(bands), threads), memory)
        actions += side_by_side([[a for band in bands[run] for a in convolved(image, band, own)] for run, own in work])
    return sequence(actions)


def _padded_last(x: Array, pads: Pads) -> tuple[Array, Callable[[int], list[Action]]]:
    if not any(b or a for b, a in pads):
        return x, lambda image: []
    (top, bottom), (left, right) = pads
    _, height, width, channels = x.shape
    buffer = np.zeros((1, height + top + bottom, width + left + right, channels), np.float32)
    middle = buffer[:, top : top + height, left : left + width]
    return buffer, lambda image: [(np.copyto, (middle, x[image : image + 1]))]


def _windows_last(x: Array, geometry: Geometry, out: Sequence[int]) -> Array:
    """View [N, OH, OW, kh, kw, C] of a padded [N, H, W, C] array."""
    n, h, w, c = x.strides
    (sh, sw), (dh, dw) = geometry.strides, geometry.dilations
    shape = (x.shape[0], *out, *geometry.kernel, x.shape[3])
    return np.lib.stride_tricks.as_strided(x, shape, (n, h * sh, w * sw, h * dh, w * dw, c))


def bind_transposed(problem: Problem, scratch: Scratch) -> Step | None:
    """The adjoint in x: one matmul to columns, then every tap added where it belongs.

    `problem.x` is what stands in for the gradient, `problem.w` [channels of x, Cout/groups, kernel...].
    """
    p = problem
    if any(a.dtype != np.float32 or a.size == 0 for a in (p.x, p.w, p.y)):
        return None
    if not p.filter_fixed and not p.w.flags.c_contiguous:
        return None
    geometry, groups, size = p.geometry, p.groups, p.x.shape[2:]
    matrix = np.ascontiguousarray(p.w).reshape(groups, p.w.shape[0] // groups, -1).swapaxes(1, 2)
    ends = tuple((n - 1) * s + span for n, s, span in zip(size, geometry.strides, geometry.extent))
    if geometry.kernel == geometry.strides and ends == p.y.shape[2:] and set(geometry.dilations) == {1}:
        return sequence(_transposed_tiles(p, matrix, scratch))
    return sequence(_transposed_sums(p, matrix, ends, scratch))


def _transposed_tiles(p: Problem, matrix: Array, scratch: Scratch) -> list[Action]:
    """Windows that neither overlap nor leave gaps: each tap is written once, in bands of rows."""
    groups, (rows, *rest), features = p.groups, p.x.shape[2:], p.y.shape[1]
    inner_size = int(np.prod(rest))
    height = matrix.shape[1] * groups
    band = min(max(SLAB_BYTES // (4 * height * inner_size), 1), rows)
    (memory,) = floats(scratch, height * band * inner_size)
    bias = np.float32(0) if p.bias is None else p.bias.reshape(-1, *[1] * (p.x.ndim - 2))
    x = p.x.reshape(p.x.shape[0], groups, -1, rows * inner_size)
    actions: list[Action] = []
    for image, start in product(range(len(x)), range(0, rows, band)):
        count = min(band, rows - start)
        columns = memory[: height * count * inner_size]
        source = x[image][:, :, start * inner_size : (start + count) * inner_size]
        actions.append((np.matmul, _drop_group(matrix, source, columns.reshape(groups, -1, count * inner_size))))
        planes = columns.reshape(features, -1, count, *rest)
        step = p.geometry.strides[0]
        target = p.y[image, :, start * step : (start + count) * step]
        for number, tap in enumerate(product(*map(range, p.geometry.kernel))):
            place = target[(slice(None), *(slice(t, None, s) for t, s in zip(tap, p.geometry.strides)))]
            actions.append((np.add, (planes[:, number], bias, place)))
    return actions


def _transposed_sums(p: Problem, matrix: Array, ends: Sequence[int], scratch: Scratch) -> list[Action]:
    """Overlapping windows: the taps are added into the output, or into a bordered copy of it."""
    geometry, groups, size, features = p.geometry, p.groups, p.x.shape[2:], p.y.shape[1]
    positions = int(np.prod(size))
    taps = list(product(*map(range, geometry.kernel)))
    (memory,) = floats(scratch, features * len(taps) * positions)
    columns = memory.reshape(groups, matrix.shape[1], positions)
    planes = memory.reshape(features, len(taps), *size)
    # Each thread has whole output channels; those of several groups stay together in their batched product.
    most = features if groups == 1 else 1
    parts = divided(features, parts_for(2.0 * columns.size * matrix.shape[2] / FLOPS_PER_US, most))
    bias = np.zeros(features, np.float32) if p.bias is None else p.bias
    bias = bias.reshape(-1, *[1] * len(size))
    bordered = any(b or a for b, a in geometry.pads) or tuple(ends) != p.y.shape[2:]
    # Large enough for every window and for the output itself.
    bounds = tuple(max(end, before + dim) for end, dim, (before, _) in zip(ends, p.y.shape[2:], geometry.pads))
    total = np.empty((features, *bounds), np.float32) if bordered else None

    def summed(image: int, part: slice) -> list[Action]:
        rows = slice(part.start * len(taps), part.stop * len(taps)) if groups == 1 else slice(None)
        source = p.x[image].reshape(groups, -1, positions)
        actions: list[Action] = [(np.matmul, _drop_group(matrix[:, rows], source, columns[:, rows]))]
        target = (p.y[image] if total is None else total)[part]
        actions.append((np.copyto, (target, bias[part])))
        for number, tap in enumerate(taps):
            place = target[tap_slices(geometry, size, tap)[1:]]
            actions.append((np.add, (planes[part, number], place, place)))
        if total is not None:
            actions.append((np.copyto, (p.y[image, part], target[inner(p.y.shape[2:], geometry.pads)[1:]])))
        return actions

    return [a for image in range(p.x.shape[0]) for a in side_by_side([summed(image, part) for part in parts])]
