"""Activations made of straight pieces: Relu and its relatives, clipping, hard sigmoids, thresholds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from gecli.ir.tensor_desc import TensorDesc
from gecli.ops.blocked import Blocked
from gecli.ops.inference import plain, same_as_input
from gecli.ops.numeric import Array, Step, in_float32, is_half
from gecli.ops.onnx_import import Builder, OnnxNode, importer
from gecli.ops.operator import From, operator

FLOAT_LOWEST = -3.402823e38  # ONNX's bounds of Clip-6, as GE's plug-in writes them
FLOAT_HIGHEST = 3.402823e38


@operator(onnx=From("Relu"))
class Relu(Blocked):
    """max(x, 0), element by element; NaN stays NaN."""

    filled: ClassVar[tuple[float, ...]] = (0.0,)
    zero_preserving = True

    def body(self, x: Array, y: Array, *more: Array) -> object:
        return np.maximum(x, more[0], out=y)


@operator()
class Relu6(Blocked):
    """min(max(x, 0), 6)."""

    zero_preserving = True

    def body(self, x: Array, y: Array, *more: Array) -> object:
        return np.clip(x, 0, 6, out=y)


@operator()
class Relu6D(Blocked):
    """min(max(x, 0), 6) * scale."""

    scale: float = 1.0
    zero_preserving = True

    def body(self, x: Array, y: Array, *more: Array) -> object:
        np.clip(x, 0, 6, out=y)
        return np.multiply(y, self.scale, out=y)


@operator(onnx=From("LeakyRelu", attrs={"alpha": "negative_slope"}, defaults={"negative_slope": 0.01}))
class LeakyRelu(Blocked):
    """x where x > 0, else negative_slope * x."""

    negative_slope: float = 0.0
    scratch: ClassVar[int] = 1
    filled: ClassVar[tuple[float, ...]] = (0.0,)
    zero_preserving = True

    def body(self, x: Array, y: Array, *more: Array) -> object:
        part, zero = more
        if self.negative_slope == 0:
            return np.maximum(x, zero, out=y)
        if 0 < self.negative_slope <= 1:
            np.multiply(x, self.negative_slope, part)
            return np.maximum(x, part, out=y)
        np.minimum(x, zero, out=part)
        np.multiply(part, self.negative_slope, part)
        np.maximum(x, zero, out=y)
        return np.add(y, part, y)


@operator()
class PRelu:
    """x where x > 0, else weight * x; a weight of rank 1 belongs to axis 1, as GE has it."""

    zero_preserving = True

    def infer(self, x: TensorDesc, weight: TensorDesc) -> TensorDesc:
        return plain(x)

    @in_float32
    def kernel(self, x: Array, weight: Array) -> Array:
        return np.maximum(x, 0) + self._shaped(weight, x.ndim) * np.minimum(x, 0)

    def bind(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> Step | None:
        (x, weight), y = inputs, outputs[0]
        if is_half(x.dtype):
            return None
        shaped = self._shaped(weight, x.ndim)
        rows, result = x, y
        if weight.ndim == 1 and x.ndim > 2 and x.size:
            # One slope a row, so that the rows are as long as can be.
            rows, result = (each.reshape(*x.shape[:2], -1) for each in (x, y))
            shaped = weight.reshape(-1, 1)
        part, zero = np.empty(rows.shape, x.dtype), np.zeros(rows.shape[-1:], x.dtype)

        def step() -> None:
            np.minimum(rows, zero, out=part)
            np.multiply(part, shaped, part)
            np.maximum(rows, zero, out=result)
            np.add(result, part, result)

        return step

    @staticmethod
    def _shaped(weight: Array, rank: int) -> Array:
        if weight.ndim == 1 and rank > 2 and weight.size > 1:
            return weight.reshape((-1,) + (1,) * (rank - 2))
        return weight


@importer("PRelu")
def prelu(node: OnnxNode, build: Builder) -> None:
    """ONNX broadcasts the slope from the right; GE wants `[C]`, `[1]` or the full rank."""
    x, slope = node.input(0), node.input(1)
    rank, slope_rank, value = build.rank(x), build.rank(slope), build.constant(slope)
    if value is not None and (value.size == 1 or _per_channel(value.shape, rank)):
        slope = build.const(np.ascontiguousarray(value.reshape(-1)), "weight")
    elif rank is None and slope_rank in (None, 1):
        raise node.fault("the rank of input 0 is not known, so its slope of rank 1 cannot be placed")
    elif slope_rank == 1 and rank is not None and rank > 2:
        slope = build.op("UnsqueezeV2", slope, axis=tuple(range(rank - 1)))
    build.output(0, build.op("PRelu", x, slope))


def _per_channel(shape: tuple[int, ...], rank: int | None) -> bool:
    """True for `[C, 1, 1...]` of an input whose axis 1 is the channel, with or without leading ones."""
    if rank is None or rank < 2:
        return False
    full = (1,) * (rank - len(shape)) + tuple(shape)
    return len(full) == rank and all(dim == 1 for axis, dim in enumerate(full) if axis != 1)


@operator()
class ClipByValue:
    """min(max(x, clip_value_min), clip_value_max); the result is the maximum when the bounds are crossed."""

    def infer(self, x: TensorDesc, clip_value_min: TensorDesc, clip_value_max: TensorDesc) -> TensorDesc:
        return plain(x)

    @in_float32
    def kernel(self, x: Array, clip_value_min: Array, clip_value_max: Array) -> Array:
        low, high = clip_value_min.astype(x.dtype, copy=False), clip_value_max.astype(x.dtype, copy=False)
        return np.minimum(np.maximum(x, low), high)

    def bind(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> Step | None:
        (x, low, high), y = inputs, outputs[0]
        if is_half(x.dtype) or low.dtype != x.dtype or high.dtype != x.dtype:
            return None
        if low.size == 1 and high.size == 1:
            low, high = low.reshape(()), high.reshape(())
        return lambda: np.clip(x, low, high, out=y)


@operator()
class Clip(ClipByValue):
    """Another name of ClipByValue that older graphs use."""

    def infer(self, x: TensorDesc, clip_value_min: TensorDesc, clip_value_max: TensorDesc) -> TensorDesc:
        return plain(x)


@importer("Clip", since=1, until=10)
def clip_with_attributes(node: OnnxNode, build: Builder) -> None:
    """Bounds that are attributes become constants of x's type."""
    x = node.input(0)
    desc = build.desc(x)
    dtype = np.dtype(np.float32) if desc is None else desc.dtype.numpy
    bounds = np.array([node.attr("min", FLOAT_LOWEST), node.attr("max", FLOAT_HIGHEST)], np.float64)
    if dtype == np.float16:
        bounds = np.clip(bounds, -65504, 65504)
    low = build.const(bounds[0].astype(dtype), "clip_value_min")
    high = build.const(bounds[1].astype(dtype), "clip_value_max")
    build.output(0, build.op("ClipByValue", x, low, high))


@importer("Clip", since=11)
def clip(node: OnnxNode, build: Builder) -> None:
    """Two bounds: ClipByValue; one: Maximum or Minimum; none: Identity."""
    x, low, high = node.input(0), node.optional(1), node.optional(2)
    if low is not None and high is not None:
        result = build.op("ClipByValue", x, low, high)
    elif low is not None:
        result = build.op("Maximum", x, low)
    elif high is not None:
        result = build.op("Minimum", x, high)
    else:
        result = build.op("Identity", x)
    build.output(0, result)


@operator()
class HardTanh(Blocked):
    """min(max(x, min_val), max_val)."""

    min_val: float = -1.0
    max_val: float = 1.0

    def body(self, x: Array, y: Array, *more: Array) -> object:
        return np.clip(x, self.min_val, self.max_val, out=y)


@operator(onnx=From("HardSigmoid", defaults={"alpha": 0.2, "beta": 0.5}))
class HardSigmoid(Blocked):
    """min(max(alpha * x + beta, 0), 1)."""

    alpha: float = 0.16666666
    beta: float = 0.5
    inputs = ("input_x",)
    outputs = ("output_y",)

    def body(self, x: Array, y: Array, *more: Array) -> object:
        np.multiply(x, self.alpha, y)
        np.add(y, self.beta, y)
        return np.clip(y, 0, 1, out=y)


@operator(onnx=From("HardSwish", since=14))
class HardSwish(Blocked):
    """x * min(max(x / 6 + 0.5, 0), 1)."""

    scratch: ClassVar[int] = 1
    zero_preserving = True

    def body(self, x: Array, y: Array, *more: Array) -> object:
        gate = more[0]
        np.multiply(x, 1 / 6, gate)
        np.add(gate, 0.5, gate)
        np.clip(gate, 0, 1, out=gate)
        return np.multiply(x, gate, y)


@operator(onnx=From("Shrink", since=9))
class Shrink:
    """x + bias below -lambd, x - bias above lambd, 0 between."""

    lambd: float = 0.5
    bias: float = 0.0
    outputs = ("output_y",)

    def infer(self, input_x: TensorDesc) -> TensorDesc:
        return plain(input_x)

    @in_float32
    def kernel(self, input_x: Array) -> Array:
        x = input_x
        bias = x.dtype.type(self.bias)
        shrunk = np.where(x > self.lambd, x - bias, np.where(x < -self.lambd, x + bias, x.dtype.type(0)))
        return np.where(np.isnan(x), x, shrunk) if x.dtype.kind == "f" else shrunk


@operator()
class Threshold:
    """1 where x > threshold, else 0."""

    threshold: float = 0.0
    infer = same_as_input

    @in_float32
    def kernel(self, x: Array) -> Array:
        return (x > self.threshold).astype(x.dtype)


@operator()
class ThresholdedRelu:
    """x where x > alpha, else 0."""

    alpha: float = 1.0
    zero_preserving = True
    infer = same_as_input

    @in_float32
    def kernel(self, x: Array) -> Array:
        return np.where(x > self.alpha, x, x.dtype.type(0))


@importer("ThresholdedRelu", since=10)
def thresholded_relu(node: OnnxNode, build: Builder) -> None:
    x = node.input(0)
    passed = build.op("Threshold", x, threshold=float(node.attr("alpha", 1.0)))
    build.output(0, build.op("Mul", passed, x))
