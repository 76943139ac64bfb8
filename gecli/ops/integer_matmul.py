"""Exact integer matrix products through float BLAS, in blocks in which no sum can round.

numpy multiplies integer matrices without BLAS, about a hundred times slower. A float32 product of integers is exact
while the sum of |a|*|b| stays below 2^24, a float64 one below 2^53.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gecli.ops.conv_steps import Scratch, floats
from gecli.ops.numeric import Array

EXACT_FLOAT32 = 1 << 24
EXACT_FLOAT64 = 1 << 53
# Below this many terms per block float64 in one piece is faster than many float32 blocks.
SMALLEST_BLOCK = 128
# A tile of float32 weights of this size is still in the cache when it is multiplied.
TILE_BYTES = 1 << 20


def integer_matmul(a: Array, b: Array) -> Array:
    """a @ b, wrapping like the result type: int32 for 8-bit operands, otherwise numpy's common type."""
    narrow = a.dtype.itemsize == b.dtype.itemsize == 1 and a.dtype.kind in "iu" and b.dtype.kind in "iu"
    wanted = np.dtype(np.int32) if narrow else np.result_type(a, b)
    depth = a.shape[-1]
    if not a.size or not b.size:
        return np.matmul(a.astype(wanted), b.astype(wanted))
    per_term = max(magnitude(a), 1) * max(magnitude(b), 1)
    if depth * per_term >= EXACT_FLOAT64:
        return np.matmul(a.astype(wanted), b.astype(wanted))
    return exact_product(a, b, per_term).astype(wanted)


def exact_product(a: Array, b: Array, per_term: int) -> Array:
    """a @ b as int64 when no |a|*|b| exceeds `per_term`."""
    depth = a.shape[-1]
    block = EXACT_FLOAT32 // (per_term + 1)
    if block >= depth:
        return np.matmul(a.astype(np.float32), b.astype(np.float32)).astype(np.int64)
    if block < SMALLEST_BLOCK:
        return np.matmul(a.astype(np.float64), b.astype(np.float64)).astype(np.int64)
    total: Array | int = 0
    for start in range(0, depth, block):
        rows = b[..., start : start + block, :] if b.ndim > 1 else b[start : start + block]
        total = total + np.matmul(a[..., start : start + block].astype(np.float32), rows.astype(np.float32)).astype(
            np.int64
        )
    return np.asarray(total)


def magnitude(x: Array) -> int:
    """The largest absolute value in `x`."""
    return max(abs(int(x.min())), abs(int(x.max()))) if x.size else 0


def bind_integer_matmul(
    a: Array, b: Array, a_zero: Array | None, b_zero: Array | None, y: Array, scratch: Scratch, *, b_fixed: bool
) -> Callable[[], None] | None:
    """A prepared int32 product (a - a_zero) @ (b - b_zero) of 8-bit `a` and a fixed 8-bit matrix `b`.

    None where it does not apply: `b` or its zero point may change, or the zero point of `a` is not one number.
    `b` stays as it is: tiles of it become float32 in each run, which takes less time than reading four times the bytes.
    """
    if not b_fixed or b.ndim != 2 or a.ndim < 2 or not a.size or not b.size:
        return None
    if (a_zero is not None and a_zero.size != 1) or a.dtype.itemsize != 1 or b.dtype.itemsize != 1:
        return None
    depth, width = b.shape
    block = min(EXACT_FLOAT32 // (255 * _widest(b.dtype, b_zero) + 1), depth)
    columns = min(max(TILE_BYTES // (4 * block), 64), width)
    rows, result = a.reshape(-1, depth), y.reshape(-1, width)
    count = len(rows)
    left, part, term, wide = floats(scratch, rows.size, count * columns, count * columns, block * columns)
    left, term = left.reshape(rows.shape), term.view(np.int32)
    shift = None if b_zero is None or not b_zero.any() else np.broadcast_to(b_zero.astype(np.float32), (width,))
    tiles = []
    for first in range(0, width, columns):
        last = min(first + columns, width)
        target = result[:, first:last]
        sums, terms = (memory[: target.size].reshape(target.shape) for memory in (part, term))
        for start in range(0, depth, block):
            stop = min(start + block, depth)
            right = wide[: (stop - start) * (last - first)].reshape(stop - start, last - first)
            operands = (b[start:stop, first:last], right, None if shift is None else shift[first:last])
            tiles.append((*operands, left[:, start:stop], sums, terms if start else None, target))

    def run() -> None:
        np.copyto(left, rows)
        if a_zero is not None:
            np.subtract(left, a_zero.reshape(()), left, casting="unsafe")
        for weights, right, zeros, terms_of_a, sums, terms, target in tiles:
            np.copyto(right, weights)
            if zeros is not None:
                np.subtract(right, zeros, right)
            np.matmul(terms_of_a, right, out=sums)
            if terms is None:
                np.copyto(target, sums, casting="unsafe")
            else:
                np.copyto(terms, sums, casting="unsafe")
                np.add(target, terms, target)

    return run


def _widest(dtype: np.dtype[Any], zero: Array | None) -> int:
    """The largest |b - zero| that an 8-bit type allows."""
    limits = np.iinfo(dtype)
    low, high = (0, 0) if zero is None else (int(zero.min()), int(zero.max()))
    return max(limits.max - low, high - limits.min)
