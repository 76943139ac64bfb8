"""Activations: Relu and its relatives, sigmoids, gelu forms."""

from __future__ import annotations

import numpy as np

from gecli.ops.inference import same_as_input
from gecli.ops.numeric import Array, Step, in_float32, is_half
from gecli.ops.operator import From, operator


@operator(onnx=From("Relu"))
class Relu:
    """max(x, 0), element by element; NaN stays NaN."""

    zero_preserving = True
    infer = same_as_input

    def kernel(self, x: Array) -> Array:
        return np.maximum(x, x.dtype.type(0))

    def bind(self, inputs: list[Array], outputs: list[Array]) -> Step | None:
        (x,), (y,) = inputs, outputs
        if is_half(x.dtype):
            return None
        zero = x.dtype.type(0)
        return lambda: np.maximum(x, zero, y)


@operator(onnx=From("LeakyRelu", attrs={"alpha": "negative_slope"}, defaults={"negative_slope": 0.01}))
class LeakyRelu:
    """x where x > 0, else negative_slope * x."""

    negative_slope: float = 0.0
    zero_preserving = True
    infer = same_as_input

    @in_float32
    def kernel(self, x: Array) -> Array:
        return np.where(x > 0, x, x * x.dtype.type(self.negative_slope))


@operator(onnx=From("Sigmoid"))
class Sigmoid:
    """1 / (1 + exp(-x)), computed without overflow."""

    infer = same_as_input

    @in_float32
    def kernel(self, x: Array) -> Array:
        one = x.dtype.type(1)
        small = np.exp(-np.abs(x))
        return np.where(x >= 0, one / (one + small), small / (one + small)).astype(x.dtype, copy=False)
