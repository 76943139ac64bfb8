"""Exact integer matrix products through float BLAS, in blocks in which no sum can round.

numpy multiplies integer matrices without BLAS, about a hundred times slower. A float32 product of integers is exact
while the sum of |a|*|b| stays below 2^24, a float64 one below 2^53.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gecli.ops.conv_steps import Scratch, floats
from gecli.ops.intra_op import FLOPS_PER_US, divided, matmul, parts_for, side_by_side
from gecli.ops.numeric import Action, Array, perform

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
        return matmul(a.astype(np.float32), b.astype(np.float32)).astype(np.int64)
    if block < SMALLEST_BLOCK:
        return matmul(a.astype(np.float64), b.astype(np.float64)).astype(np.int64)
    total: Array | int = 0
    for start in range(0, depth, block):
        rows = b[..., start : start + block, :] if b.ndim > 1 else b[start : start + block]
        total = total + matmul(a[..., start : start + block].astype(np.float32), rows.astype(np.float32)).astype(
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
    threads = parts_for(2.0 * rows.size * width / FLOPS_PER_US, -(-width // 64))
    columns = min(columns, -(-width // threads))
    left, *memory = floats(scratch, rows.size, *(count * columns, count * columns, block * columns) * threads)
    left = left.reshape(rows.shape)
    shift = None if b_zero is None or not b_zero.any() else np.broadcast_to(b_zero.astype(np.float32), (width,))

    def multiplied(tile: slice, part: Array, term: Array, wide: Array) -> list[Action]:
        target = result[:, tile]
        sums, terms = (memory[: target.size].reshape(target.shape) for memory in (part, term.view(np.int32)))
        actions: list[Action] = []
        for start in range(0, depth, block):
            weights = b[start : start + block, tile]
            right = wide[: weights.size].reshape(weights.shape)
            actions.append((np.copyto, (right, weights)))
            if shift is not None:
                actions.append((np.subtract, (right, shift[tile], right)))
            actions.append((np.matmul, (left[:, start : start + block], right, sums)))
            actions.append((_round_to, (terms if start else target, sums)))
            if start:
                actions.append((np.add, (target, terms, target)))
        return actions

    tiles = [slice(first, min(first + columns, width)) for first in range(0, width, columns)]
    work = zip(divided(len(tiles), threads), memory[::3], memory[1::3], memory[2::3])
    products = side_by_side([[a for tile in tiles[run] for a in multiplied(tile, *own)] for run, *own in work])

    def run() -> None:
        np.copyto(left, rows)
        if a_zero is not None:
            np.subtract(left, a_zero.reshape(()), left, casting="unsafe")
        perform(products)

    return run


def _round_to(whole: Array, exact: Array) -> None:
    """Whole numbers that are kept as floats, as integers."""
    np.copyto(whole, exact, casting="unsafe")


def _widest(dtype: np.dtype[Any], zero: Array | None) -> int:
    """The largest |b - zero| that an 8-bit type allows."""
    limits = np.iinfo(dtype)
    low, high = (0, 0) if zero is None else (int(zero.min()), int(zero.max()))
    return max(limits.max - low, high - limits.min)
