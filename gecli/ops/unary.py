"""Unary mathematics: one numpy function each, plus powers and scalings by attributes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from gecli.ir.dtype import DataType
from gecli.ir.tensor_desc import TensorDesc
from gecli.ops.blocked import Blocked
from gecli.ops.inference import plain, same_as_input
from gecli.ops.intra_op import elementwise_step
from gecli.ops.numeric import Array, Step, in_float32, is_half
from gecli.ops.onnx_import import Builder, OnnxNode, importer
from gecli.ops.operator import From, operator


class UnaryUfunc:
    """Base of operators that are one numpy ufunc; the result has the type of x."""

    ufunc: ClassVar[np.ufunc]
    infer = same_as_input

    @in_float32
    def kernel(self, x: Array) -> Array:
        return self.ufunc(x).astype(x.dtype, copy=False)

    def bind(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> Step | None:
        (x,), (y,) = inputs, outputs
        return None if is_half(x.dtype) else elementwise_step(self.ufunc, (x,), y)


class ElementTest:
    """Base of operators that ask each element something; the result is BOOL."""

    ufunc: ClassVar[np.ufunc]

    def infer(self, x: TensorDesc) -> TensorDesc:
        return plain(x).with_dtype(DataType.BOOL)

    def kernel(self, x: Array) -> Array:
        if x.dtype.kind in "biu":
            x = x.astype(np.float32)
        return self.ufunc(x.astype(np.float32) if is_half(x.dtype) else x)

    def bind(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> Step | None:
        (x,), (y,) = inputs, outputs
        return None if is_half(x.dtype) else elementwise_step(self.ufunc, (x,), y)


@operator(onnx=From("Abs"))
class Abs(UnaryUfunc):
    """|x|."""

    ufunc = np.absolute
    zero_preserving = True


@operator(onnx=From("Acos"))
class Acos(UnaryUfunc):
    """Inverse cosine."""

    ufunc = np.arccos


@operator(onnx=From("Acosh"))
class Acosh(UnaryUfunc):
    """Inverse hyperbolic cosine."""

    ufunc = np.arccosh


@operator(onnx=From("Asin"))
class Asin(UnaryUfunc):
    """Inverse sine."""

    ufunc = np.arcsin
    zero_preserving = True


@operator(onnx=From("Asinh"))
class Asinh(UnaryUfunc):
    """Inverse hyperbolic sine."""

    ufunc = np.arcsinh
    zero_preserving = True


@operator(onnx=From("Atan"))
class Atan(UnaryUfunc):
    """Inverse tangent."""

    ufunc = np.arctan
    zero_preserving = True


@operator(onnx=From("Atanh"))
class Atanh(UnaryUfunc):
    """Inverse hyperbolic tangent."""

    ufunc = np.arctanh
    zero_preserving = True


@operator(onnx=From("Ceil"))
class Ceil(UnaryUfunc):
    """The smallest integer not below x."""

    ufunc = np.ceil
    zero_preserving = True


@operator(onnx=From("Cos"))
class Cos(UnaryUfunc):
    """Cosine."""

    ufunc = np.cos


@operator(onnx=From("Cosh"))
class Cosh(UnaryUfunc):
    """Hyperbolic cosine."""

    ufunc = np.cosh


@operator()
class Expm1(UnaryUfunc):
    """exp(x) - 1, exact near 0."""

    ufunc = np.expm1
    zero_preserving = True


@operator(onnx=From("Floor"))
class Floor(UnaryUfunc):
    """The largest integer not above x."""

    ufunc = np.floor
    zero_preserving = True


@operator()
class Log1p(UnaryUfunc):
    """log(1 + x), exact near 0."""

    ufunc = np.log1p
    zero_preserving = True


@operator(onnx=From("Neg"))
class Neg(UnaryUfunc):
    """-x."""

    ufunc = np.negative
    zero_preserving = True


@operator()
class Rint(UnaryUfunc):
    """The nearest integer, halves to even."""

    ufunc = np.rint
    zero_preserving = True


@operator(onnx=From("Sign", since=9))
class Sign(UnaryUfunc):
    """-1, 0 or 1; NaN stays NaN."""

    ufunc = np.sign
    zero_preserving = True


@operator(onnx=From("Sin"))
class Sin(UnaryUfunc):
    """Sine."""

    ufunc = np.sin
    zero_preserving = True


@operator(onnx=From("Sinh"))
class Sinh(UnaryUfunc):
    """Hyperbolic sine."""

    ufunc = np.sinh
    zero_preserving = True


@operator(onnx=From("Sqrt"))
class Sqrt(UnaryUfunc):
    """Square root."""

    ufunc = np.sqrt
    zero_preserving = True


@operator()
class Square(UnaryUfunc):
    """x * x."""

    ufunc = np.square
    zero_preserving = True


@operator(onnx=From("Tan"))
class Tan(UnaryUfunc):
    """Tangent."""

    ufunc = np.tan
    zero_preserving = True


@operator(onnx=From("BitwiseNot", since=18))
class Invert(UnaryUfunc):
    """All bits flipped."""

    ufunc = np.invert


@operator(onnx=From("Not"))
class LogicalNot(UnaryUfunc):
    """Not x, of BOOL."""

    ufunc = np.logical_not


@operator(onnx=From("IsNaN", since=9))
class IsNan(ElementTest):
    """True where x is not a number."""

    ufunc = np.isnan
    zero_preserving = True


@operator()
class IsInf(ElementTest):
    """True where x is infinite."""

    ufunc = np.isinf
    zero_preserving = True


@operator()
class IsFinite(ElementTest):
    """True where x is neither infinite nor NaN."""

    ufunc = np.isfinite


@importer("IsInf", since=10)
def is_inf(node: OnnxNode, build: Builder) -> None:
    """A sign that is not asked for is masked out (GE refuses it)."""
    x = node.input(0)
    negative, positive = bool(node.attr("detect_negative", 1)), bool(node.attr("detect_positive", 1))
    found = build.op("IsInf", x)
    if not (negative and positive):
        desc = build.desc(x)
        zero = build.const(np.zeros((), np.float32 if desc is None else desc.dtype.numpy), "zero")
        if not negative:
            found = build.op("LogicalAnd", found, build.op("Greater", x, zero))
        if not positive:
            found = build.op("LogicalAnd", found, build.op("Less", x, zero))
    build.output(0, found)


@operator(onnx=From("Reciprocal"))
class Reciprocal(Blocked):
    """1 / x."""

    def body(self, x: Array, y: Array, *more: Array) -> object:
        return np.divide(1, x, y)


@operator()
class Rsqrt(Blocked):
    """1 / sqrt(x)."""

    def body(self, x: Array, y: Array, *more: Array) -> object:
        np.sqrt(x, y)
        return np.divide(1, y, y)


@operator(onnx=From("Exp"))
class Exp(Blocked):
    """base ** (scale * x + shift); base -1 stands for e."""

    base: float = -1.0
    scale: float = 1.0
    shift: float = 0.0

    def body(self, x: Array, y: Array, *more: Array) -> object:
        if self.scale == 1 and self.shift == 0 and self.base == -1:
            return np.exp(x, y)
        factor = 1.0 if self.base == -1 else float(np.log(self.base))
        np.multiply(x, self.scale * factor, y)
        np.add(y, self.shift * factor, y)
        return np.exp(y, y)


@operator(onnx=From("Log"))
class Log(Blocked):
    """The logarithm of scale * x + shift to `base`; base -1 stands for e."""

    base: float = -1.0
    scale: float = 1.0
    shift: float = 0.0

    def body(self, x: Array, y: Array, *more: Array) -> object:
        if self.scale != 1 or self.shift != 0:
            np.multiply(x, self.scale, y)
            np.add(y, self.shift, y)
            x = y
        np.log(x, y)
        return y if self.base == -1 else np.divide(y, float(np.log(self.base)), y)


@operator(onnx=From("Round", since=11))
class Round:
    """The nearest multiple of 10 ** -decimals, halves to even."""

    decimals: int = 0
    zero_preserving = True
    infer = same_as_input

    @in_float32
    def kernel(self, x: Array) -> Array:
        return np.rint(x).astype(x.dtype, copy=False) if self.decimals == 0 else np.round(x, self.decimals)

    def bind(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> Step | None:
        (x,), (y,) = inputs, outputs
        return None if x.dtype != np.float32 or self.decimals else lambda: np.rint(x, y)


@operator()
class Power(Blocked):
    """(scale * x + shift) ** power."""

    power: float = 1.0
    scale: float = 1.0
    shift: float = 0.0

    def body(self, x: Array, y: Array, *more: Array) -> object:
        np.multiply(x, self.scale, y)
        np.add(y, self.shift, y)
        return y if self.power == 1 else np.power(y, self.power, y)


class WithValue:
    """Base of operators of a tensor and a number that is an attribute; integers wrap in their own type."""

    value: float
    ufunc: ClassVar[np.ufunc]
    infer = same_as_input

    @in_float32
    def kernel(self, x: Array) -> Array:
        return self.ufunc(x, self._operand(x)).astype(x.dtype, copy=False)

    def bind(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> Step | None:
        (x,), (y,) = inputs, outputs
        ufunc, operand = self.ufunc, self._operand(x)
        return None if is_half(x.dtype) else elementwise_step(ufunc, (x, operand), y)

    def _operand(self, x: Array) -> Array:
        return np.array(self.value).astype(x.dtype)


@operator()
class Muls(WithValue):
    """x * value."""

    ufunc = np.multiply
    zero_preserving = True


@operator()
class Adds(WithValue):
    """x + value."""

    ufunc = np.add


class Filled:
    """Base of tensors like x that hold one number."""

    fill: ClassVar[int]
    infer = same_as_input

    def kernel(self, x: Array) -> Array:
        return np.full(x.shape, self.fill, x.dtype)

    def bind(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> Step | None:
        y, value = outputs[0], self.fill
        return lambda: y.fill(value)


@operator()
class ZerosLike(Filled):
    """Zeros in the shape and type of x."""

    fill = 0
    zero_preserving = True


@operator()
class OnesLike(Filled):
    """Ones in the shape and type of x."""

    fill = 1
