"""Elementwise formulas of several passes, computed piece by piece so that every pass finds its data in the cache."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar
from weakref import WeakValueDictionary

import numpy as np

from gecli.ops.inference import same_as_input
from gecli.ops.intra_op import FORMULA_ELEMENTS_PER_US, divided, even, parts_for, side_by_side
from gecli.ops.numeric import Action, Array, Step, in_float32, is_half, sequence

# Elements a piece: 256 KiB of float32. Smaller pieces lose more to the microsecond of each call than the cache gives.
PIECE = 65536

Body = Callable[..., object]


def by_pieces(body: Body, x: Array, y: Array, scratch: int = 0, filled: Sequence[float] = ()) -> Step:
    """A call that runs `body(x, y, *scratch arrays, *filled arrays)` over pieces of x and y, allocating nothing.

    Scratch arrays are like y and as long as the piece; `filled` gives further ones that always hold one value (numpy's
    maximum and minimum are four times slower against a scalar). y may be x.
    """
    flat_x, flat_y = (each if each.ndim == 1 else each.reshape(-1) for each in (x, y))
    count = flat_y.size
    threads = parts_for(count / FORMULA_ELEMENTS_PER_US, count)
    pieces = divided(count, even(-(-count // PIECE), threads), 16)

    def computed(run: Sequence[slice]) -> list[Action]:
        longest = max(piece.stop - piece.start for piece in run)
        extra = [np.empty(longest, y.dtype) for _ in range(scratch)]
        extra += [_filled(longest, value, y.dtype) for value in filled]
        if len(run) == 1 and longest == count:
            return [(body, (flat_x, flat_y, *extra))]
        cut = [(piece, [each[: piece.stop - piece.start] for each in extra]) for piece in run]
        return [(body, (flat_x[piece], flat_y[piece], *more)) for piece, more in cut]

    return sequence(side_by_side([computed(pieces[run]) for run in divided(len(pieces), threads)]))


_FILLED: WeakValueDictionary[tuple[int, float, str], Array] = WeakValueDictionary()


def _filled(size: int, value: float, dtype: np.dtype[Any]) -> Array:
    """An array that always holds one value; the steps of a model share those that are equal."""
    key = size, value, dtype.str
    found = _FILLED.get(key)
    if found is None:
        found = np.full(size, value, dtype)
        found.flags.writeable = False
        _FILLED[key] = found
    return found


class Blocked:
    """Base of unary operators whose formula takes several passes: `body(x, y, *scratch, *filled)` writes y."""

    scratch: ClassVar[int] = 0
    filled: ClassVar[tuple[float, ...]] = ()
    infer = same_as_input

    def body(self, x: Array, y: Array, *more: Array) -> object:
        """Write f(x) to y, which may be x; `more` are the scratch and filled arrays."""
        raise NotImplementedError

    @in_float32
    def kernel(self, x: Array) -> Array:
        y = np.empty(x.shape, x.dtype)
        by_pieces(self.body, x, y, self.scratch, self.filled)()
        return y

    def bind(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> Step | None:
        x, y = inputs[0], outputs[0]
        if is_half(x.dtype):
            return None
        return by_pieces(self.body, x, y, self.scratch, self.filled)
