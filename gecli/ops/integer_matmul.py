"""Exact integer matrix products through float BLAS, in blocks in which no sum can round.

numpy multiplies integer matrices without BLAS, about a hundred times slower. A float32 product of integers is exact
while the sum of |a|*|b| stays below 2^24, a float64 one below 2^53.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from gecli.ops.numeric import Array

EXACT_FLOAT32 = 1 << 24
EXACT_FLOAT64 = 1 << 53
# Below this many terms per block float64 in one piece is faster than many float32 blocks.
SMALLEST_BLOCK = 128


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
    a: Array, b: Array, a_zero: Array | None, b_zero: Array | None, y: Array, *, b_fixed: bool
) -> Callable[[], None] | None:
    """A prepared int32 product (a - a_zero) @ (b - b_zero) of 8-bit `a` and a fixed 8-bit matrix `b`.

    None where it does not apply: `b` or its zero point may change, or the zero point of `a` is not one number.
    """
    if not b_fixed or b.ndim != 2 or a.ndim < 2 or not a.size or not b.size:
        return None
    if (a_zero is not None and a_zero.size != 1) or a.dtype.itemsize != 1 or b.dtype.itemsize != 1:
        return None
    wide = b.astype(np.float32)
    if b_zero is not None:
        wide -= b_zero.astype(np.float32)
    depth = a.shape[-1]
    block = EXACT_FLOAT32 // (255 * max(int(np.abs(wide).max()), 1) + 1)
    rows, result = a.reshape(-1, depth), y.reshape(-1, b.shape[1])
    left = np.empty(rows.shape, np.float32)
    part = np.empty(result.shape, np.float32)
    term = np.empty(result.shape, np.int32) if depth > block else None
    spans = [(start, min(start + block, depth)) for start in range(0, depth, block)]
    blocks = [(left[:, start:stop], wide[start:stop]) for start, stop in spans]

    def run() -> None:
        np.copyto(left, rows)
        if a_zero is not None:
            np.subtract(left, a_zero.reshape(()), left, casting="unsafe")
        np.matmul(*blocks[0], out=part)
        np.copyto(result, part, casting="unsafe")
        for pair in blocks[1:]:
            np.matmul(*pair, out=part)
            assert term is not None
            np.copyto(term, part, casting="unsafe")
            np.add(result, term, result)

    return run
