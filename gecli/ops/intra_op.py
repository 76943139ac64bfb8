"""Intra-operator threads: the work of one step side by side (runtime.md 11.2).

numpy releases the interpreter lock in its kernels, so plain Python threads suffice: handing work over and back costs
10 to 25 us. BLAS itself stays at one thread. Its own threads wait in a loop between calls and take the core from
whatever runs there: where another process wants that core, a product of 0.2 ms took 8 to 16 ms.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from threading import Lock, Thread
from typing import TypeVar

import numpy as np

from gecli.ops.numeric import Action, Array, Program, Step, perform, sequence
from gecli.ops.thread_count import intra_op_threads

# A part shorter than this gains nothing over the hand-over.
SMALLEST_PART_US = 60.0
# One core of a current server, rounded down: what a step would take alone. Only the order of magnitude matters.
FLOPS_PER_US = 100_000.0
MATRIX_BYTES_PER_US = 25_000.0
ELEMENTS_PER_US = 4_000.0
FORMULA_ELEMENTS_PER_US = 1_000.0  # several passes, often with an exponential

_EXTREMA = (np.maximum, np.minimum)  # they want `out` by name

T = TypeVar("T")


def parts_for(microseconds: float, most: int) -> int:
    """Into how many parts a step of this length is worth dividing, at most `most`."""
    return max(min(intra_op_threads(), most, int(microseconds / SMALLEST_PART_US)), 1)


def divided(size: int, parts: int, multiple: int = 1) -> list[slice]:
    """`range(size)` in at most `parts` slices of like length, each but the last a multiple of `multiple`."""
    step = max(-(-size // (max(parts, 1) * multiple)), 1) * multiple
    return [slice(start, min(start + step, size)) for start in range(0, size, step)]


def even(count: int, parts: int) -> int:
    """The least multiple of `parts` that is not below `count`: every thread gets as many pieces."""
    return -(-count // parts) * parts


def side_by_side(programs: Sequence[Program]) -> list[Action]:
    """The actions that perform independent programs at once: each in a thread of its own, the first in this one."""
    return [(_run_all, (tuple(programs),))] if len(programs) > 1 else [a for program in programs for a in program]


def shared(items: Sequence[T], microseconds: float, actions: Callable[[T], Iterable[Action]]) -> list[Action]:
    """The actions of independent items, which together take about `microseconds` in one thread."""
    runs = divided(len(items), parts_for(microseconds, len(items)))
    return side_by_side([[a for item in items[run] for a in actions(item)] for run in runs])


def matmul_actions(a: Array, b: Array, out: Array) -> list[Action]:
    """The actions of `np.matmul(a, b, out)`, divided by whole matrices, columns of `b` or rows of `a`."""
    if min(a.ndim, b.ndim, out.ndim) < 2 or not out.size:
        return [(np.matmul, (a, b, out))]
    flops = 2.0 * out.size * a.shape[-1]
    parts = parts_for(max(flops / FLOPS_PER_US, (a.nbytes + b.nbytes) / MATRIX_BYTES_PER_US), max(out.shape))
    axis = _axis_to_divide(out, parts)
    if parts == 1 or out.shape[axis] == 1 or np.may_share_memory(a, out) or np.may_share_memory(b, out):
        return [(np.matmul, (a, b, out))]
    programs: list[Program] = []
    for part in divided(out.shape[axis], parts, 1 if axis < out.ndim - 2 else 16):
        left = a if axis == out.ndim - 1 else _cut(a, axis - out.ndim, part)
        right = b if axis == out.ndim - 2 else _cut(b, axis - out.ndim, part)
        programs.append([(np.matmul, (left, right, _cut(out, axis - out.ndim, part)))])
    return side_by_side(programs)


def matmul(a: Array, b: Array, out: Array | None = None) -> Array:
    """`np.matmul`, divided over the threads where that is worth it."""
    if intra_op_threads() == 1 or min(a.ndim, b.ndim) < 2 or a.shape[-1] != b.shape[-2]:
        return np.asarray(np.matmul(a, b, out=out))
    if out is None:
        batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
        out = np.empty((*batch, a.shape[-2], b.shape[-1]), np.result_type(a, b))
    perform(matmul_actions(a, b, out))
    return out


def elementwise_step(function: Callable[..., object], operands: Sequence[Array], out: Array) -> Step:
    """A call of `function(*operands, out=out)`, a ufunc with one or two operands, divided where that is worth it."""
    parts = parts_for(out.size / ELEMENTS_PER_US, max(out.shape, default=1))
    if parts > 1 and not any(_overlaps(operand, out) for operand in operands):
        axis = next((axis for axis, dim in enumerate(out.shape) if dim >= parts), int(np.argmax(out.shape)))
        cuts = [[_cut(x, axis - out.ndim, part) for x in (*operands, out)] for part in divided(out.shape[axis], parts)]
        return sequence(side_by_side([[(partial(function, *cut[:-1], out=cut[-1]), ())] for cut in cuts]))
    if function not in _EXTREMA:
        return partial(function, *operands, out)  # half the memory of a lambda, and a model has one for each node
    first, second = operands
    return lambda: function(first, second, out=out)


def _overlaps(x: Array, out: Array) -> bool:
    """Whether a thread could read of `x` what another one has written; the very same array is safe."""
    same = x.shape == out.shape and x.strides == out.strides and x.ctypes.data == out.ctypes.data
    return x.ndim > out.ndim or (not same and bool(np.may_share_memory(x, out)))


def _axis_to_divide(out: Array, parts: int) -> int:
    """A batch axis that gives every thread whole matrices, else the longer side of the matrix."""
    for axis, dim in enumerate(out.shape[:-2]):
        if dim >= parts:
            return axis
    return out.ndim - 1 if out.shape[-1] >= out.shape[-2] else out.ndim - 2


def _cut(x: Array, axis: int, part: slice) -> Array:
    """The part of an operand along an axis counted from the end; all of it where it is broadcast there."""
    if -axis > x.ndim or x.shape[axis] == 1:
        return x
    return x[(*[slice(None)] * (x.ndim + axis), part)]


class _Worker:
    """One waiting thread. `start` hands it a program, `finish` waits for the end and raises what it raised."""

    def __init__(self) -> None:
        self._go, self._done = Lock(), Lock()
        self._go.acquire()
        self._done.acquire()
        self._program: Program = ()
        self._fault: BaseException | None = None
        self._busy = False
        Thread(target=self._work, daemon=True, name="gecli-intra-op").start()

    def start(self, program: Program) -> None:
        if self._busy:  # an interrupt came while the last program was waited for
            self._done.acquire()
        self._program, self._fault, self._busy = program, None, True
        self._go.release()

    def finish(self) -> BaseException | None:
        self._done.acquire()
        self._busy = False
        return self._fault

    def _work(self) -> None:
        with np.errstate(all="ignore"):
            while True:
                self._go.acquire()
                try:
                    perform(self._program)
                except BaseException as error:  # raised again by the thread that waits for it
                    self._fault = error
                self._program = ()
                self._done.release()


_workers: list[_Worker] = []
_gate = Lock()


def _run_all(programs: Sequence[Program]) -> None:
    """Perform all programs; one after another while some other thread has the workers."""
    if not _gate.acquire(blocking=False):
        for program in programs:
            perform(program)
        return
    try:
        while len(_workers) < len(programs) - 1:
            _workers.append(_Worker())
        used = _workers[: len(programs) - 1]
        for worker, program in zip(used, programs[1:]):
            worker.start(program)
        try:
            perform(programs[0])
        finally:
            faults = [worker.finish() for worker in used]
        for fault in faults:
            if fault is not None:
                raise fault
    finally:
        _gate.release()


def _forget_workers() -> None:
    """A forked child has none of its parent's threads."""
    global _gate
    _workers.clear()
    _gate = Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_workers)
