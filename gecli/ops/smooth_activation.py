"""Smooth activations: sigmoid, tanh, softplus, exponential units, gelu forms, swish, mish; and Erf under them."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np

from gecli.ops.blocked import Blocked
from gecli.ops.numeric import Array
from gecli.ops.onnx_import import Builder, OnnxNode, importer
from gecli.ops.operator import From, operator

# erf(x) = tanh(x * P(x^2)), highest power first: a weighted minimax fit of atanh(erf(x)) / x on [0, 4.5]. The error is
# below 1.5e-7 in float32, a third of the rational form of runtime.md 10.5, and it takes two thirds of the passes.
_ERF = (
    1.5895047723885454e-07,
    -5.985556254509542e-06,
    8.971192974888245e-05,
    -0.0006257181651457962,
    -0.00018438501376627785,
    0.10276548192955902,
    1.1283797054270408,
)
_exact_erf: Any = np.frompyfunc(math.erf, 1, 1)


def erf_into(x: Array, y: Array, square: Array, value: Array) -> object:
    """y = erf(x) with two scratch arrays like y, which may be x; float64 is exact and slow."""
    if x.dtype == np.float64:
        y[...] = _exact_erf(x)
        return y
    np.multiply(x, x, square)
    np.multiply(square, _ERF[0], value)
    for coefficient in _ERF[1:-1]:
        np.add(value, coefficient, value)
        np.multiply(value, square, value)
    np.add(value, _ERF[-1], value)
    np.multiply(value, x, value)
    return np.tanh(value, y)


def sigmoid_into(x: Array, y: Array) -> object:
    """y = 1 / (1 + exp(-x)); y may be x. Exact to the last bits at both ends: exp may overflow to infinity."""
    np.negative(x, y)
    np.exp(y, y)
    np.add(y, 1, y)
    return np.divide(1, y, y)


@operator(onnx=From("Sigmoid"))
class Sigmoid(Blocked):
    """1 / (1 + exp(-x))."""

    def body(self, x: Array, y: Array, *more: Array) -> object:
        return sigmoid_into(x, y)


@operator(onnx=From("Tanh"))
class Tanh(Blocked):
    """Hyperbolic tangent."""

    zero_preserving = True

    def body(self, x: Array, y: Array, *more: Array) -> object:
        return np.tanh(x, y)


@operator(onnx=From("Erf", since=9))
class Erf(Blocked):
    """Gauss error function."""

    scratch: ClassVar[int] = 2
    zero_preserving = True

    def body(self, x: Array, y: Array, *more: Array) -> object:
        return erf_into(x, y, more[0], more[1])


@operator(onnx=From("Softplus"))
class Softplus(Blocked):
    """log(1 + exp(x)), computed as log1p(exp(-|x|)) + max(x, 0)."""

    scratch: ClassVar[int] = 1
    filled: ClassVar[tuple[float, ...]] = (0.0,)

    def body(self, x: Array, y: Array, *more: Array) -> object:
        part, zero = more
        np.absolute(x, part)
        np.negative(part, part)
        np.exp(part, part)
        np.log1p(part, part)
        np.maximum(x, zero, out=y)
        return np.add(y, part, y)


@operator(onnx=From("Softsign"))
class Softsign(Blocked):
    """x / (1 + |x|)."""

    scratch: ClassVar[int] = 1
    zero_preserving = True

    def body(self, x: Array, y: Array, *more: Array) -> object:
        np.absolute(x, more[0])
        np.add(more[0], 1, more[0])
        return np.divide(x, more[0], y)


def exponential_unit_into(
    x: Array, y: Array, part: Array, zero: Array, positive: float, negative: float, input_scale: float
) -> object:
    """y = positive * max(x, 0) + negative * (exp(input_scale * min(x, 0)) - 1); y may be x."""
    np.minimum(x, zero, out=part)
    if input_scale != 1:
        np.multiply(part, input_scale, part)
    np.expm1(part, part)
    if negative != 1:
        np.multiply(part, negative, part)
    np.maximum(x, zero, out=y)
    if positive != 1:
        np.multiply(y, positive, y)
    return np.add(y, part, y)


@operator(onnx=From("Elu"))
class Elu(Blocked):
    """scale * x where x > 0, else scale * alpha * (exp(input_scale * x) - 1)."""

    alpha: float = 1.0
    scale: float = 1.0
    input_scale: float = 1.0
    scratch: ClassVar[int] = 1
    filled: ClassVar[tuple[float, ...]] = (0.0,)
    zero_preserving = True

    def body(self, x: Array, y: Array, *more: Array) -> object:
        part, zero = more
        return exponential_unit_into(x, y, part, zero, self.scale, self.scale * self.alpha, self.input_scale)


SELU_ALPHA = 1.6732632423543772
SELU_SCALE = 1.0507009873554805


@operator()
class Selu(Blocked):
    """Elu with the two constants that keep mean and variance."""

    scratch: ClassVar[int] = 1
    filled: ClassVar[tuple[float, ...]] = (0.0,)
    zero_preserving = True

    def body(self, x: Array, y: Array, *more: Array) -> object:
        part, zero = more
        return exponential_unit_into(x, y, part, zero, SELU_SCALE, SELU_SCALE * SELU_ALPHA, 1.0)


@importer("Selu")
def selu(node: OnnxNode, build: Builder) -> None:
    """GE's Selu has fixed constants; other ones are an Elu with a scale."""
    alpha, gamma = float(node.attr("alpha", SELU_ALPHA)), float(node.attr("gamma", SELU_SCALE))
    if math.isclose(alpha, SELU_ALPHA, rel_tol=1e-6) and math.isclose(gamma, SELU_SCALE, rel_tol=1e-6):
        build.output(0, build.op("Selu", node.input(0)))
    else:
        build.output(0, build.op("Elu", node.input(0), alpha=alpha, scale=gamma))


@operator()
class Celu(Blocked):
    """alpha3 * max(x, 0) + alpha1 * (exp(min(x, 0) / alpha2) - 1)."""

    alpha1: float = 1.0
    alpha2: float = 1.0
    alpha3: float = 1.0
    scratch: ClassVar[int] = 1
    filled: ClassVar[tuple[float, ...]] = (0.0,)
    zero_preserving = True

    def body(self, x: Array, y: Array, *more: Array) -> object:
        part, zero = more
        return exponential_unit_into(x, y, part, zero, self.alpha3, self.alpha1, 1 / self.alpha2)


@operator()
class CeluV2(Blocked):
    """max(x, 0) + alpha * (exp(min(x, 0) / alpha) - 1)."""

    alpha: float = 1.0
    scratch: ClassVar[int] = 1
    filled: ClassVar[tuple[float, ...]] = (0.0,)
    zero_preserving = True

    def body(self, x: Array, y: Array, *more: Array) -> object:
        part, zero = more
        return exponential_unit_into(x, y, part, zero, 1.0, self.alpha, 1 / self.alpha)


@importer("Celu", since=12)
def celu(node: OnnxNode, build: Builder) -> None:
    alpha = float(node.attr("alpha", 1.0))
    build.output(0, build.op("Celu", node.input(0), alpha1=alpha, alpha2=alpha, alpha3=1.0))


@operator(onnx=From("Mish", since=18))
class Mish(Blocked):
    """x * tanh(log(1 + exp(x))); with e = exp(x) the tanh is (e^2 + 2e) / (e^2 + 2e + 2)."""

    scratch: ClassVar[int] = 2
    # Above 20 the quotient is 1 in float64 as well, and e^2 must not overflow.
    filled: ClassVar[tuple[float, ...]] = (20.0,)
    zero_preserving = True

    def body(self, x: Array, y: Array, *more: Array) -> object:
        top, bottom, limit = more
        np.minimum(x, limit, out=bottom)
        np.exp(bottom, bottom)
        np.add(bottom, 2, top)
        np.multiply(top, bottom, top)
        np.add(top, 2, bottom)
        np.divide(top, bottom, top)
        return np.multiply(x, top, y)


def gelu_into(x: Array, y: Array, *scratch: Array) -> object:
    """y = x * (1 + erf(x / sqrt 2)) / 2 with three scratch arrays; y may be x."""
    half = scratch[2]
    np.multiply(x, math.sqrt(0.5), half)
    erf_into(half, half, scratch[0], scratch[1])
    np.add(half, 1, half)
    np.multiply(half, 0.5, half)
    return np.multiply(x, half, y)


def tanh_gelu_into(x: Array, y: Array, part: Array) -> object:
    """y = x * (1 + tanh(sqrt(2/pi) * (x + 0.044715 x^3))) / 2; y may be x."""
    scale = math.sqrt(2 / math.pi)
    np.multiply(x, x, part)
    np.multiply(part, 0.044715 * scale, part)
    np.add(part, scale, part)
    np.multiply(part, x, part)
    np.tanh(part, part)
    np.add(part, 1, part)
    np.multiply(part, 0.5, part)
    return np.multiply(x, part, y)


@operator()
class Gelu(Blocked):
    """The tanh form of x * Phi(x)."""

    scratch: ClassVar[int] = 1
    zero_preserving = True

    def body(self, x: Array, y: Array, *more: Array) -> object:
        return tanh_gelu_into(x, y, more[0])


@operator(onnx=[From("Gelu", since=20), From("Gelu", domain="com.microsoft")])
class GeluV2(Blocked):
    """x * Phi(x), exact (`none`) or in the tanh form."""

    approximate: str = "none"
    scratch: ClassVar[int] = 3
    zero_preserving = True

    def body(self, x: Array, y: Array, *more: Array) -> object:
        if self.approximate == "tanh":
            return tanh_gelu_into(x, y, more[0])
        return gelu_into(x, y, *more)


@importer("BiasGelu", domain="com.microsoft")
def bias_gelu(node: OnnxNode, build: Builder) -> None:
    build.output(0, build.op("GeluV2", build.op("Add", node.input(0), node.input(1)), approximate="none"))


@importer("FastGelu", domain="com.microsoft")
def fast_gelu(node: OnnxNode, build: Builder) -> None:
    """This domain's FastGelu is the tanh form, not GE's FastGelu."""
    x, bias = node.input(0), node.optional(1)
    if bias is not None:
        x = build.op("Add", x, bias)
    build.output(0, build.op("GeluV2", x, approximate="tanh"))


@operator()
class FastGelu(Blocked):
    """x / (1 + exp(-1.702 x))."""

    scratch: ClassVar[int] = 2
    zero_preserving = True

    def body(self, x: Array, y: Array, *more: Array) -> object:
        return swish_into(x, y, more[0], more[1], 1.702)


def swish_into(x: Array, y: Array, half: Array, part: Array, scale: float) -> object:
    """y = x * sigmoid(scale * x) as x/2 * (1 + tanh(scale * x/2)), a quarter faster than by exp; y may be x."""
    np.multiply(x, 0.5, half)
    if scale == 1:
        np.tanh(half, part)
    else:
        np.multiply(half, scale, part)
        np.tanh(part, part)
    np.multiply(part, half, part)
    return np.add(part, half, y)


@operator(
    onnx=[
        From("Swish", since=24, attrs={"alpha": "scale"}),
        From("QuickGelu", domain="com.microsoft", attrs={"alpha": "scale"}, defaults={"scale": 1.702}),
    ]
)
class Swish(Blocked):
    """x * sigmoid(scale * x)."""

    scale: float = 1.0
    scratch: ClassVar[int] = 2
    zero_preserving = True

    def body(self, x: Array, y: Array, *more: Array) -> object:
        return swish_into(x, y, more[0], more[1], self.scale)
