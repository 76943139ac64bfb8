"""Comparisons, logic, and choosing elements by a condition."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from gecli.ir.dtype import DataType
from gecli.ir.tensor_desc import UNKNOWN_RANK, TensorDesc
from gecli.ops.inference import broadcast_descs, broadcast_shapes, comparison, plain
from gecli.ops.intra_op import elementwise_step
from gecli.ops.numeric import Array, Step, is_half
from gecli.ops.onnx_import import Builder, OnnxNode, importer
from gecli.ops.operator import From, operator

# Integer types of the widths for which choosing is bit arithmetic; numpy's `where` mispredicts on mixed conditions.
_BITS_OF_SIZE = {1: np.int8, 2: np.int16, 4: np.int32, 8: np.int64}


class Comparison:
    """Base of operators that compare two tensors; the result is BOOL."""

    ufunc: ClassVar[np.ufunc]
    infer = comparison

    def kernel(self, x1: Array, x2: Array) -> Array:
        if is_half(x1.dtype):
            x1, x2 = x1.astype(np.float32), x2.astype(np.float32)
        return self.ufunc(x1, x2).astype(np.bool_, copy=False)  # strings compare as objects

    def bind(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> Step | None:
        (x1, x2), (y,) = inputs, outputs
        if x1.dtype.kind not in "biuf" or is_half(x1.dtype):
            return None
        return elementwise_step(self.ufunc, (x1, x2), y)


@operator(onnx=From("Equal", since=7))
class Equal(Comparison):
    """x1 == x2."""

    ufunc = np.equal


@operator()
class NotEqual(Comparison):
    """x1 != x2; true for NaN."""

    ufunc = np.not_equal


@operator(onnx=From("Less", since=7))
class Less(Comparison):
    """x1 < x2."""

    ufunc = np.less


@operator(onnx=From("LessOrEqual", since=12))
class LessEqual(Comparison):
    """x1 <= x2."""

    ufunc = np.less_equal


@operator(onnx=From("Greater", since=7))
class Greater(Comparison):
    """x1 > x2."""

    ufunc = np.greater


@operator(onnx=From("GreaterOrEqual", since=12))
class GreaterEqual(Comparison):
    """x1 >= x2."""

    ufunc = np.greater_equal


@operator(onnx=From("And", since=7))
class LogicalAnd(Comparison):
    """Both true."""

    ufunc = np.logical_and
    zero_preserving = True


@operator(onnx=From("Or", since=7))
class LogicalOr(Comparison):
    """At least one true."""

    ufunc = np.logical_or


@importer("Xor", since=7)
def xor(node: OnnxNode, build: Builder) -> None:
    """GE has no logical exclusive or: bitwise on int32."""
    x1 = build.op("Cast", node.input(0), dst_type=DataType.INT32)
    x2 = build.op("Cast", node.input(1), dst_type=DataType.INT32)
    build.output(0, build.op("Cast", build.op("BitwiseXor", x1, x2), dst_type=DataType.BOOL))


@operator(onnx=From("Where", since=9))
class SelectV2:
    """`then` where the condition holds, `else` elsewhere; all three broadcast."""

    inputs = ("condition", "then", "else")
    outputs = ("result",)

    def infer(self, condition: TensorDesc, then: TensorDesc, other: TensorDesc) -> TensorDesc:
        return broadcast_descs([then, other, condition])

    def kernel(self, condition: Array, then: Array, other: Array) -> Array:
        return np.where(condition, then, other).astype(then.dtype, copy=False)

    def bind(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> Step | None:
        (condition, then, other), (y,) = inputs, outputs
        bits = _BITS_OF_SIZE.get(y.dtype.itemsize)
        if bits is None or condition.dtype != np.bool_ or then.dtype != other.dtype or y.dtype.hasobject:
            return None
        a, b, result = then.view(bits), other.view(bits), y.view(bits)
        flag, mask = condition.view(np.int8), np.empty(condition.shape, bits)
        difference = np.empty(np.broadcast_shapes(a.shape, b.shape), bits)

        def step() -> None:
            # other ^ ((then ^ other) & mask), the mask being all ones where the condition holds.
            np.negative(flag, mask)
            np.bitwise_xor(a, b, difference)
            np.bitwise_and(difference, mask, result)
            np.bitwise_xor(result, b, result)

        def step_in_place() -> None:
            np.negative(flag, mask)
            np.bitwise_xor(a, b, difference)
            np.bitwise_and(difference, mask, difference)
            np.bitwise_xor(difference, b, result)

        return step_in_place if difference.shape == y.shape else step


@operator()
class Select:
    """x1 where the condition holds, x2 elsewhere; a condition of rank 1 chooses rows."""

    def infer(self, condition: TensorDesc, x1: TensorDesc, x2: TensorDesc) -> TensorDesc:
        return plain(x1)

    def kernel(self, condition: Array, x1: Array, x2: Array) -> Array:
        if condition.ndim == 1 and x1.ndim > 1:
            condition = condition.reshape((-1,) + (1,) * (x1.ndim - 1))
        return np.where(condition, x1, x2).astype(x1.dtype, copy=False)


@operator()
class MaskedFill:
    """x with `value` where the mask holds."""

    def infer(self, x: TensorDesc, mask: TensorDesc, value: TensorDesc) -> TensorDesc:
        return plain(x).with_shape(broadcast_shapes([x.shape, mask.shape]))

    def kernel(self, x: Array, mask: Array, value: Array) -> Array:
        return np.where(mask, value.astype(x.dtype), x)


@operator()
class Where:
    """The coordinates of the elements that are not 0, one row each, as INT64 `[k, rank]`."""

    def infer(self, x: TensorDesc) -> TensorDesc:
        rank = -1 if x.shape == UNKNOWN_RANK else len(x.shape)
        return TensorDesc(DataType.INT64, (-1, rank))

    def kernel(self, x: Array) -> Array:
        return np.argwhere(x).astype(np.int64, copy=False)


@importer("Compress", since=9)
def compress(node: OnnxNode, build: Builder) -> None:
    """The slices of x whose condition holds: their numbers by Where, then a gather; x is flat without an axis."""
    x, axis = node.input(0), node.attr("axis")
    if axis is None:
        x, axis = build.op("Reshape", x, build.const(np.array([-1], np.int32), "shape")), 0
    chosen = build.op("Squeeze", build.op("Where", node.input(1)), axis=(1,))
    along = build.const(np.array(axis, np.int32), "axis")
    build.output(0, build.op("GatherV2", x, chosen, along, batch_dims=0, negative_index_support=True))
