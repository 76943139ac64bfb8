"""Prepared float32 normalisations over fixed arrays, in blocks that stay in the cache."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gecli.ops.numeric import Array, Step

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

    def run() -> None:
        for source, target, scale, offset in blocks:
            np.multiply(source, scale, target)
            np.add(target, offset, target)

    return run


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
    size = min(max(BLOCK_BYTES // (4 * width), 1), len(rows))
    squares = np.empty((size, width), np.float32)
    roots = np.empty((size, 1), np.float32)
    weights = None if gamma is None else gamma.reshape(width)
    offsets = None if beta is None else beta.reshape(width)
    count, small = np.float32(width), np.float32(epsilon)
    blocks = []
    for start in range(0, len(rows), size):
        part = slice(start, start + size)
        taken = len(rows[part])
        blocks.append((rows[part], result[part], mean[part], variance[part], squares[:taken], roots[:taken]))

    def run() -> None:
        for source, target, m, v, square, root in blocks:
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

    return run
