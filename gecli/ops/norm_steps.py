"""Prepared float32 normalisations over fixed arrays, in blocks that stay in the cache."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gecli.ops.intra_op import (
    ELEMENTS_PER_US,
    FORMULA_ELEMENTS_PER_US,
    divided,
    even,
    parts_for,
    shared,
    side_by_side,
)
from gecli.ops.numeric import Action, Array, Step, sequence

BLOCK_BYTES = 256 << 10


def bind_affine(x: Array, y: Array, factor: Array, shift: Array, axis: int) -> Step:
    """y = x * factor + shift with vectors along one axis."""
    if axis == x.ndim - 1:
        rows, result = x.reshape(-1, x.shape[-1]), y.reshape(-1, x.shape[-1])
        size = max(BLOCK_BYTES // (4 * x.shape[-1]), 1)
        blocks = [
            (rows[start : start + size], result[start : start + size], factor, shift)
            for start in range(0, len(rows), size)
        ]
    else:
        channels = x.shape[axis]
        planes = x.reshape(-1, channels, x.size // max(channels * int(np.prod(x.shape[:axis])), 1))
        result = y.reshape(planes.shape)
        size = max(BLOCK_BYTES // (4 * planes.shape[2]), 1)
        blocks = [
            (
                planes[image, start : start + size],
                result[image, start : start + size],
                factor[start : start + size, None],
                shift[start : start + size, None],
            )
            for image in range(len(planes))
            for start in range(0, channels, size)
        ]

    def affine(source: Array, target: Array, scale: Array, offset: Array) -> list[Action]:
        return [(np.multiply, (source, scale, target)), (np.add, (target, offset, target))]

    return sequence(shared(blocks, 2 * x.size / ELEMENTS_PER_US, lambda block: affine(*block)))


def bind_layer_norm(
    x: Array, gamma: Array | None, beta: Array | None, outputs: Sequence[Array], axis: int, epsilon: float
) -> Step | None:
    """y, mean and variance over the axes from `axis` on; None for other types than float32."""
    y = outputs[0]
    width = int(np.prod(x.shape[axis:]))
    if x.dtype != np.float32 or not x.size:
        return None
    if any(p is not None and (p.dtype != np.float32 or p.size != width) for p in (gamma, beta)):
        return None
    rows, result = x.reshape(-1, width), y.reshape(-1, width)
    mean = outputs[1].reshape(-1, 1) if len(outputs) > 1 else np.empty((len(rows), 1), np.float32)
    variance = outputs[2].reshape(-1, 1) if len(outputs) > 2 else np.empty((len(rows), 1), np.float32)
    threads = parts_for(x.size / FORMULA_ELEMENTS_PER_US, len(rows))
    parts = divided(len(rows), even(-(-4 * x.size // BLOCK_BYTES), threads))
    size = parts[0].stop
    weights = None if gamma is None else gamma.reshape(width)
    offsets = None if beta is None else beta.reshape(width)
    count, small = np.float32(width), np.float32(epsilon)

    def normalise(source: Array, target: Array, m: Array, v: Array, square: Array, root: Array) -> None:
        np.add.reduce(source, axis=1, keepdims=True, out=m)
        np.divide(m, count, m)
        np.subtract(source, m, target)
        np.multiply(target, target, square)
        np.add.reduce(square, axis=1, keepdims=True, out=v)
        np.divide(v, count, v)
        np.add(v, small, root)
        np.sqrt(root, root)
        np.divide(target, root, target)
        if weights is not None:
            np.multiply(target, weights, target)
        if offsets is not None:
            np.add(target, offsets, target)

    programs: list[list[Action]] = []
    for run in divided(len(parts), threads):
        squares, roots = np.empty((size, width), np.float32), np.empty((size, 1), np.float32)
        cut = [(rows[part], result[part], mean[part], variance[part]) for part in parts[run]]
        programs.append([(normalise, (*each, squares[: len(each[0])], roots[: len(each[0])])) for each in cut])
    return sequence(side_by_side(programs))
