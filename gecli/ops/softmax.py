"""Softmax, its logarithm, and Hardmax, with ONNX's older flattening semantics."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

import numpy as np

from gecli.ir.op_desc import Port
from gecli.ir.tensor_desc import TensorDesc
from gecli.ops.inference import normalise_axis, plain
from gecli.ops.intra_op import FORMULA_ELEMENTS_PER_US, divided, even, parts_for, side_by_side
from gecli.ops.numeric import Action, Array, Step, in_float32, sequence
from gecli.ops.onnx_import import Builder, OnnxNode, importer
from gecli.ops.operator import operator

BLOCK_BYTES = 512 << 10  # a block of rows and its exponentials stay in a second level cache
# The maximum of a whole block is good enough for each of its rows while their own maxima are not far below it: the
# sum of a row then stays above exp(-16), and x - maximum rounds by less than a millionth.
SAFE_SUM = 1e-7
SHORT_ROW = 1024  # numpy's row maximum costs more than the exponential below this length


def softmax_rows(x: Array, y: Array) -> Step:
    """A call that writes the softmax of each row of the matrix x to y, which may be x."""
    height, width = x.shape
    threads = parts_for(x.size / FORMULA_ELEMENTS_PER_US, height)
    blocks = divided(height, even(-(-x.nbytes // BLOCK_BYTES), threads))
    rows, ones = blocks[0].stop, np.ones(width, x.dtype)
    short = width <= SHORT_ROW and rows > 1

    def block(source: Array, target: Array, part: Array, sums: Array, column: Array) -> None:
        if short:
            np.subtract(source, source.max(), part)
            np.exp(part, part)
            np.matmul(part, ones, out=sums)
            if sums.min() > SAFE_SUM:
                np.divide(part, column, target)
                return
        np.maximum.reduce(source, axis=1, out=sums)
        np.subtract(source, column, part)
        np.exp(part, part)
        np.add.reduce(part, axis=1, out=sums)
        np.divide(part, column, target)

    programs: list[list[Action]] = []
    for run in divided(len(blocks), threads):
        part, sums = np.empty((rows, width), x.dtype), np.empty(rows, x.dtype)
        cut = [(x[each], y[each], part[: len(x[each])], sums[: len(x[each])]) for each in blocks[run]]
        programs.append([(block, (*each, each[3][:, None])) for each in cut])
    return sequence(side_by_side(programs))


@operator()
class SoftmaxV2:
    """exp(x) over its sum along `axes`."""

    axes: tuple[int, ...] = (-1,)
    half_to_float: bool = False

    def infer(self, x: TensorDesc) -> TensorDesc:
        return plain(x)

    @in_float32
    def kernel(self, x: Array) -> Array:
        if not x.size:
            return x.copy()
        axes = _normalised(self.axes, x.ndim)
        weights = np.exp(x - np.maximum.reduce(x, axis=axes, keepdims=True))
        return np.divide(weights, np.add.reduce(weights, axis=axes, keepdims=True))

    def bind(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> Step | None:
        (x,), (y,) = inputs, outputs
        if x.dtype not in (np.float32, np.float64) or not x.size:
            return None
        axes = _normalised(self.axes, x.ndim)
        if _are_last(axes, x.ndim):
            width = prod(x.shape[axes[0] :]) if axes else 1
            return softmax_rows(x.reshape(-1, width), y.reshape(-1, width))
        part = np.empty(tuple(1 if axis in axes else dim for axis, dim in enumerate(x.shape)), x.dtype)

        def step() -> None:
            np.maximum.reduce(x, axis=axes, keepdims=True, out=part)
            np.subtract(x, part, y)
            np.exp(y, y)
            np.add.reduce(y, axis=axes, keepdims=True, out=part)
            np.divide(y, part, y)

        return step


@operator()
class LogSoftmaxV2:
    """The logarithm of the softmax of the logits along `axes`."""

    axes: tuple[int, ...] = (-1,)
    outputs = ("logsoftmax",)

    def infer(self, logits: TensorDesc) -> TensorDesc:
        return plain(logits)

    @in_float32
    def kernel(self, logits: Array) -> Array:
        if not logits.size:
            return logits.copy()
        axes = _normalised(self.axes, logits.ndim)
        shifted = logits - np.maximum.reduce(logits, axis=axes, keepdims=True)
        return shifted - np.log(np.add.reduce(np.exp(shifted), axis=axes, keepdims=True))

    def bind(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> Step | None:
        (x,), (y,) = inputs, outputs
        if x.dtype not in (np.float32, np.float64) or not x.size:
            return None
        axes = _normalised(self.axes, x.ndim)
        weights = np.empty(x.shape, x.dtype)
        part = np.empty(tuple(1 if axis in axes else dim for axis, dim in enumerate(x.shape)), x.dtype)

        def step() -> None:
            np.maximum.reduce(x, axis=axes, keepdims=True, out=part)
            np.subtract(x, part, y)
            np.exp(y, weights)
            np.add.reduce(weights, axis=axes, keepdims=True, out=part)
            np.log(part, part)
            np.subtract(y, part, y)

        return step


@operator()
class HardMax:
    """1 at the first maximum along `axis`, else 0."""

    axis: int = -1

    def infer(self, x: TensorDesc) -> TensorDesc:
        return plain(x)

    @in_float32
    def kernel(self, x: Array) -> Array:
        y = np.zeros(x.shape, x.dtype)
        if x.size:
            np.put_along_axis(y, np.expand_dims(np.argmax(x, axis=self.axis), self.axis), 1, self.axis)
        return y


def _normalised(axes: tuple[int, ...], rank: int) -> tuple[int, ...]:
    """Sorted non-negative axes; a scalar has none to normalise."""
    return tuple(sorted({normalise_axis(axis, rank) for axis in axes})) if rank else ()


def _are_last(axes: tuple[int, ...], rank: int) -> bool:
    return axes == tuple(range(rank - len(axes), rank))


def _import_along_axis(op: str, make: Callable[[Builder, Port, tuple[int, ...]], Port]) -> None:
    """Opset 13 and newer: one axis. Older: all axes from `axis` (default 1) on count as one."""

    @importer(op, since=13)
    def along_axis(node: OnnxNode, build: Builder) -> None:
        build.output(0, make(build, node.input(0), (int(node.attr("axis", -1)),)))

    @importer(op, until=12)
    def coerced(node: OnnxNode, build: Builder) -> None:
        x, axis = node.input(0), int(node.attr("axis", 1))
        rank, desc = build.rank(x), build.desc(x)
        if rank is None:
            if axis == -1:
                return build.output(0, make(build, x, (-1,)))
            raise node.fault("the rank of input 0 is not known")
        axis = axis + rank if axis < 0 else axis
        if axis == rank - 1:
            return build.output(0, make(build, x, (-1,)))
        if desc is None or not desc.is_static:
            if op == "Hardmax":
                raise node.fault("the shape of input 0 must be known for this axis")
            # The same numbers without a shape: one softmax over all of the last axes.
            return build.output(0, make(build, x, tuple(range(axis, rank))))
        matrix = np.array([prod(desc.shape[:axis]), prod(desc.shape[axis:])], np.int32)
        flat = build.op("Reshape", x, build.const(matrix, "shape"))
        result = make(build, flat, (-1,))
        return build.output(0, build.op("Reshape", result, build.const(np.array(desc.shape, np.int32), "back")))


def _softmax(build: Builder, x: Port, axes: tuple[int, ...]) -> Port:
    return build.op("SoftmaxV2", x, axes=axes)


def _log_softmax(build: Builder, x: Port, axes: tuple[int, ...]) -> Port:
    return build.op("LogSoftmaxV2", x, axes=axes)


def _hardmax(build: Builder, x: Port, axes: tuple[int, ...]) -> Port:
    return build.op("HardMax", x, axis=axes[0])


_import_along_axis("Softmax", _softmax)
_import_along_axis("LogSoftmax", _log_softmax)
_import_along_axis("Hardmax", _hardmax)
