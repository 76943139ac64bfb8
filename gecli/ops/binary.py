"""Arithmetic of two or more tensors with numpy broadcasting."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import ClassVar

import numpy as np

from gecli.ir.op_desc import Port
from gecli.ir.tensor_desc import TensorDesc
from gecli.ops.blocked import by_pieces
from gecli.ops.inference import broadcast, broadcast_descs, plain
from gecli.ops.intra_op import elementwise_step
from gecli.ops.numeric import Array, Step, in_float32, is_half
from gecli.ops.onnx_import import Builder, OnnxNode, importer
from gecli.ops.operator import From, operator


class BinaryUfunc:
    """Base of operators that are one numpy ufunc of two operands; the result has the type of x1."""

    ufunc: ClassVar[np.ufunc]
    infer = broadcast

    @in_float32
    def kernel(self, x1: Array, x2: Array) -> Array:
        return self.ufunc(x1, x2).astype(x1.dtype, copy=False)

    def bind(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> Step | None:
        (x1, x2), (y,) = inputs, outputs
        return None if is_half(x1.dtype) or x1.dtype != x2.dtype else elementwise_step(self.ufunc, (x1, x2), y)


@operator(onnx=From("Add", since=7), aliases=("AddV2",))
class Add(BinaryUfunc):
    """x1 + x2."""

    ufunc = np.add


@operator(onnx=From("Sub", since=7))
class Sub(BinaryUfunc):
    """x1 - x2."""

    ufunc = np.subtract


@operator(onnx=From("Mul", since=7))
class Mul(BinaryUfunc):
    """x1 * x2."""

    ufunc = np.multiply
    zero_preserving = True


class Extremum(BinaryUfunc):
    """Base of Maximum and Minimum: NaN wins; a constant number becomes a vector, which numpy computes 4x faster."""

    def bind(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> Step | None:
        (x1, x2), (y,) = inputs, outputs
        if is_half(x1.dtype) or x1.dtype != x2.dtype:
            return None
        ufunc = self.ufunc
        constant: frozenset[int] = getattr(self, "constant_inputs", frozenset())
        for slot, number, other in ((1, x2, x1), (0, x1, x2)):
            if slot in constant and number.size == 1 and other.shape == y.shape:
                value = (number.reshape(()).item(),)
                return by_pieces(lambda x, y, limit: ufunc(x, limit, out=y), other, y, filled=value)
        return elementwise_step(ufunc, (x1, x2), y)


@operator()
class Maximum(Extremum):
    """The larger of x1 and x2."""

    ufunc = np.maximum


@operator()
class Minimum(Extremum):
    """The smaller of x1 and x2."""

    ufunc = np.minimum


@operator()
class Atan2(BinaryUfunc):
    """The angle of the point (x2, x1)."""

    ufunc = np.arctan2


@operator(onnx=From("BitwiseAnd", since=18))
class BitwiseAnd(BinaryUfunc):
    """Bits set in both."""

    ufunc = np.bitwise_and
    zero_preserving = True


@operator(onnx=From("BitwiseOr", since=18))
class BitwiseOr(BinaryUfunc):
    """Bits set in either."""

    ufunc = np.bitwise_or


@operator(onnx=From("BitwiseXor", since=18))
class BitwiseXor(BinaryUfunc):
    """Bits set in one of the two."""

    ufunc = np.bitwise_xor


@operator()
class LeftShift(BinaryUfunc):
    """x shifted left by y bits; shifts by the width or more give 0."""

    ufunc = np.left_shift
    zero_preserving = True
    inputs = ("x", "y")
    outputs = ("z",)


@operator()
class RightShift(BinaryUfunc):
    """x shifted right by y bits."""

    ufunc = np.right_shift
    zero_preserving = True
    inputs = ("x", "y")
    outputs = ("z",)


@importer("BitShift", since=11)
def bit_shift(node: OnnxNode, build: Builder) -> None:
    direction = node.attr("direction")
    if direction not in ("LEFT", "RIGHT"):
        raise node.fault(f"direction is {direction!r}, not LEFT or RIGHT")
    build.output(0, build.op("LeftShift" if direction == "LEFT" else "RightShift", node.input(0), node.input(1)))


def truncated_division(x1: Array, x2: Array) -> Array:
    """Integer division toward zero; by zero gives 0. Floats divide."""
    if x1.dtype.kind not in "iu":
        return np.true_divide(x1, x2)
    if x1.dtype.kind == "u":
        return np.floor_divide(x1, x2)  # numpy gives 0 for division by zero
    quotient = np.floor_divide(x1, x2)
    inexact = (quotient * x2 != x1) & (x2 != 0)
    return quotient + (inexact & ((x1 < 0) != (x2 < 0))).astype(x1.dtype)


class Division(BinaryUfunc):
    """Base of divisions that truncate integers and are exact on floats."""

    ufunc = np.true_divide

    @in_float32
    def kernel(self, x1: Array, x2: Array) -> Array:
        return truncated_division(x1, x2).astype(x1.dtype, copy=False)

    def bind(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> Step | None:
        return super().bind(inputs, outputs) if inputs[0].dtype.kind == "f" else None


@operator(onnx=From("Div", since=7))
class RealDiv(Division):
    """x1 / x2; integers truncate toward zero."""


@operator()
class Div(Division):
    """x1 / x2; integers truncate toward zero."""


@operator()
class TruncateDiv(Division):
    """x1 / x2 rounded toward zero."""

    @in_float32
    def kernel(self, x1: Array, x2: Array) -> Array:
        quotient = truncated_division(x1, x2)
        return (np.trunc(quotient) if quotient.dtype.kind == "f" else quotient).astype(x1.dtype, copy=False)

    def bind(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> Step | None:
        return None


@operator()
class FloorDiv(BinaryUfunc):
    """x1 / x2 rounded toward minus infinity."""

    ufunc = np.floor_divide


@operator()
class DivNoNan(BinaryUfunc):
    """x1 / x2, 0 where x2 is 0."""

    ufunc = np.true_divide

    @in_float32
    def kernel(self, x1: Array, x2: Array) -> Array:
        return np.where(x2 == 0, x1.dtype.type(0), truncated_division(x1, x2)).astype(x1.dtype, copy=False)

    def bind(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> Step | None:
        return None


@operator()
class Mod(BinaryUfunc):
    """The remainder with the sign of x1, as C's fmod."""

    ufunc = np.fmod


@operator()
class FloorMod(BinaryUfunc):
    """The remainder with the sign of x2."""

    ufunc = np.mod


@importer("Mod", since=10)
def mod(node: OnnxNode, build: Builder) -> None:
    """fmod = 0 takes the sign of the divisor (GE's plug-in ignores it)."""
    build.output(0, build.op("Mod" if node.attr("fmod", 0) else "FloorMod", node.input(0), node.input(1)))


@operator()
class Pow(BinaryUfunc):
    """x1 to the power of x2; integers to negative powers truncate."""

    ufunc = np.power

    @in_float32
    def kernel(self, x1: Array, x2: Array) -> Array:
        if x1.dtype.kind in "iu" and (x2.dtype.kind == "f" or np.any(x2 < 0)):
            return np.power(x1.astype(np.float64), x2).astype(x1.dtype)
        return np.power(x1, x2).astype(x1.dtype, copy=False)

    def bind(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> Step | None:
        (x1, x2), (y,) = inputs, outputs
        if x1.dtype not in (np.float32, np.float64) or x1.dtype != x2.dtype:
            return None
        constant: frozenset[int] = getattr(self, "constant_inputs", frozenset())
        if x2.size == 1 and 1 in constant and x1.shape == y.shape:
            exponent = float(x2.reshape(()))
            quick = {2.0: np.square, 0.5: np.sqrt, 1.0: np.positive}.get(exponent)
            if quick is not None:
                return lambda: quick(x1, y)
            if exponent == -1.0:
                one = x1.dtype.type(1)
                return lambda: np.divide(one, x1, y)
            if exponent == 3.0:
                part = np.empty(x1.shape, x1.dtype)

                def cube() -> None:
                    np.square(x1, part)
                    np.multiply(x1, part, y)

                return cube
        return lambda: np.power(x1, x2, y)


@importer("Pow", since=7)
def pow_of_base_type(node: OnnxNode, build: Builder) -> None:
    """The result has the type of the base: an exponent of another type is cast first."""
    base, exponent = node.input(0), node.input(1)
    base_desc, exponent_desc = build.desc(base), build.desc(exponent)
    if base_desc is not None and exponent_desc is not None and base_desc.dtype != exponent_desc.dtype:
        if exponent_desc.dtype.is_float and base_desc.dtype.is_integer:
            wide = build.op("Pow", build.op("Cast", base, dst_type=exponent_desc.dtype), exponent)
            build.output(0, build.op("Cast", wide, dst_type=base_desc.dtype))
            return
        exponent = build.op("Cast", exponent, dst_type=base_desc.dtype)
    build.output(0, build.op("Pow", base, exponent))


@operator()
class SquaredDifference(BinaryUfunc):
    """(x1 - x2) squared."""

    ufunc = np.subtract

    @in_float32
    def kernel(self, x1: Array, x2: Array) -> Array:
        return np.square(np.subtract(x1, x2))

    def bind(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> Step | None:
        (x1, x2), (y,) = inputs, outputs
        if is_half(x1.dtype) or x1.dtype != x2.dtype:
            return None

        def step() -> None:
            np.subtract(x1, x2, y)
            np.square(y, y)

        return step


@operator()
class Xdivy(BinaryUfunc):
    """x1 / x2, 0 where x1 is 0."""

    ufunc = np.true_divide

    @in_float32
    def kernel(self, x1: Array, x2: Array) -> Array:
        return np.where((x1 == 0) & ~np.isnan(x2), x1.dtype.type(0), np.true_divide(x1, x2))

    def bind(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> Step | None:
        return None


@operator()
class Xlogy(BinaryUfunc):
    """x1 * log(x2), 0 where x1 is 0 unless x2 is NaN."""

    ufunc = np.multiply

    @in_float32
    def kernel(self, x1: Array, x2: Array) -> Array:
        return np.where((x1 == 0) & ~np.isnan(x2), x1.dtype.type(0), x1 * np.log(x2))

    def bind(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> Step | None:
        return None


@operator(aliases=("AxpyV2",))
class Axpy:
    """x1 + alpha * x2."""

    alpha: float
    infer = broadcast

    @in_float32
    def kernel(self, x1: Array, x2: Array) -> Array:
        return (x1 + np.array(self.alpha).astype(x1.dtype) * x2).astype(x1.dtype, copy=False)


@operator()
class Lerp:
    """start + weight * (end - start)."""

    def infer(self, start: TensorDesc, end: TensorDesc, weight: TensorDesc) -> TensorDesc:
        return broadcast_descs([start, end, weight])

    @in_float32
    def kernel(self, start: Array, end: Array, weight: Array) -> Array:
        return start + weight * (end - start)


@operator()
class BiasAdd:
    """x plus a bias along the channel axis of `data_format`."""

    data_format: str = "NHWC"

    def infer(self, x: TensorDesc, bias: TensorDesc) -> TensorDesc:
        return plain(x)

    @in_float32
    def kernel(self, x: Array, bias: Array) -> Array:
        return x + self._shaped(bias, x.ndim)

    def bind(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> Step | None:
        (x, bias), (y,) = inputs, outputs
        if is_half(x.dtype):
            return None
        shaped = self._shaped(bias, x.ndim)
        return lambda: np.add(x, shaped, y)

    def _shaped(self, bias: Array, rank: int) -> Array:
        if self.data_format.endswith("C") or rank < 3:
            return bias
        return bias.reshape((-1,) + (1,) * (rank - 2))


class Total:
    """Base of sums of any number of tensors."""

    N: int = 1

    def infer(self, *x: TensorDesc) -> TensorDesc:
        return broadcast_descs(x)

    @in_float32
    def kernel(self, *x: Array) -> Array:
        return reduce(np.add, x[1:], x[0]) if len(x) > 1 else x[0].copy()

    def bind(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> Step | None:
        y = outputs[0]
        if is_half(y.dtype) or len(inputs) < 2:
            return None
        first, second, *others = inputs

        def step() -> None:
            np.add(first, second, y)
            for other in others:
                np.add(y, other, y)

        return step


@operator()
class AddN(Total):
    """The sum of N tensors."""

    zero_preserving = True


@operator()
class AccumulateNV2(Total):
    """The sum of N tensors of one shape."""

    zero_preserving = True


def _folded(node: OnnxNode, build: Builder, type: str) -> Port:
    """The operands of a variadic node combined from the left by a binary operator; one operand is passed on."""
    operands = [node.input(index) for index in range(len(node.inputs))]
    if len(operands) == 1:
        return build.op("Identity", operands[0])
    return reduce(lambda left, right: build.op(type, left, right), operands)


def _total(node: OnnxNode, build: Builder) -> Port:
    """AccumulateNV2 for equal shapes, which GE requires; else a chain of Add."""
    operands = [node.input(index) for index in range(len(node.inputs))]
    descs = [build.desc(port) for port in operands]
    same = all(desc is not None and desc.is_static and desc.shape == descs[0].shape for desc in descs if descs[0])
    if len(operands) > 1 and descs[0] is not None and same:
        return build.op("AccumulateNV2", *operands, N=len(operands))
    return _folded(node, build, "Add")


@importer("Max", since=8)
def maximum_of(node: OnnxNode, build: Builder) -> None:
    build.output(0, _folded(node, build, "Maximum"))


@importer("Min", since=8)
def minimum_of(node: OnnxNode, build: Builder) -> None:
    build.output(0, _folded(node, build, "Minimum"))


@importer("Sum", since=6)
def sum_of(node: OnnxNode, build: Builder) -> None:
    build.output(0, _total(node, build))


@importer("Mean", since=6)
def mean_of(node: OnnxNode, build: Builder) -> None:
    build.output(0, build.op("Muls", _total(node, build), value=1 / len(node.inputs)))


# Opsets 6 and 7 of Max and Min take equal shapes, which the same chain computes.
importer("Max", since=6, until=7)(maximum_of)
importer("Min", since=6, until=7)(minimum_of)
