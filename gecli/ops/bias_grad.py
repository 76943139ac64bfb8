"""Gradients of bias addition and of broadcasting (training.md 4, 6)."""

from __future__ import annotations

import numpy as np

from gecli.ir.tensor_desc import UNKNOWN_DIM, UNKNOWN_RANK, TensorDesc
from gecli.ops.inference import InferenceError
from gecli.ops.numeric import Array, in_float32
from gecli.ops.operator import operator
from gecli.ops.shape import shaped


@operator()
class BiasAddGrad:
    """The sum of x over all axes but that of the channels (the last for NHWC, axis 1 for NCHW)."""

    data_format: str = "NHWC"

    def infer(self, x: TensorDesc) -> TensorDesc:
        if x.shape == UNKNOWN_RANK:
            return shaped(x, (UNKNOWN_DIM,))
        if len(x.shape) < 2:
            raise InferenceError(f"x {list(x.shape)} must have two dims or more")
        return shaped(x, (x.shape[self._axis(len(x.shape))],))

    @in_float32
    def kernel(self, x: Array) -> Array:
        axis = self._axis(x.ndim)
        return x.sum(tuple(a for a in range(x.ndim) if a != axis), dtype=x.dtype)

    def _axis(self, rank: int) -> int:
        return 1 if self.data_format.startswith("NC") else rank - 1


@operator()
class BroadcastGradientArgs:
    """The axes over which each operand's gradient of a broadcasting operator must be summed."""

    outputs = ("y1", "y2")

    def infer(self, x1: TensorDesc, x2: TensorDesc) -> tuple[TensorDesc, ...]:
        return TensorDesc(x1.dtype, (UNKNOWN_DIM,)), TensorDesc(x1.dtype, (UNKNOWN_DIM,))

    def kernel(self, x1: Array, x2: Array) -> tuple[Array, ...]:
        rank = max(x1.size, x2.size)
        first, second = ([1] * (rank - x.size) + [int(dim) for dim in x.reshape(-1)] for x in (x1, x2))
        for a, b in zip(first, second, strict=True):
            if a != b and 1 not in (a, b):
                raise ValueError(f"shapes {list(x1)} and {list(x2)} do not broadcast")
        y1 = [axis for axis in range(rank) if first[axis] == 1 and second[axis] != 1]
        y2 = [axis for axis in range(rank) if second[axis] == 1 and first[axis] != 1]
        return np.array(y1, x1.dtype), np.array(y2, x1.dtype)
