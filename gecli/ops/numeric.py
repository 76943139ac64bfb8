"""How kernels compute: half precision in float32 with one rounding, results into planned buffers.

A kernel is a pure function of numpy arrays. `bind`, optional, prepares a call over fixed arrays once:
`bind(self, inputs, outputs)` returns a callable without arguments that fills `outputs` and allocates nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial, wraps
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Kernel = Callable[..., Any]
Step = Callable[[], Any]


def is_half(dtype: Any) -> bool:
    """True for the 16-bit and 8-bit floats, which kernels compute in float32."""
    return dtype == np.float16 or dtype.name.startswith(("bfloat16", "float8"))


def in_float32(kernel: Kernel) -> Kernel:
    """Run a kernel in float32 when an input is half precision, and round each float output once to that type."""

    @wraps(kernel)
    def run(self: Any, *inputs: Array | None) -> Any:
        half = next((x.dtype for x in inputs if x is not None and is_half(x.dtype)), None)
        if half is None:
            return kernel(self, *inputs)
        wide = [x.astype(np.float32) if x is not None and is_half(x.dtype) else x for x in inputs]
        result = kernel(self, *wide)
        if isinstance(result, tuple):
            return tuple(y.astype(half) if y.dtype == np.float32 else y for y in result)
        return result.astype(half) if result.dtype == np.float32 else result

    return run


def bind_ufunc(ufunc: np.ufunc) -> Callable[[Any, Sequence[Array | None], Sequence[Array]], Step | None]:
    """A `bind` for operators that are one numpy ufunc; None (use the kernel) for half precision."""

    def bind(self: Any, inputs: Sequence[Array | None], outputs: Sequence[Array]) -> Step | None:
        operands = [x for x in inputs if x is not None]
        out = outputs[0]
        if any(is_half(x.dtype) for x in operands):
            return None
        if len(operands) == 1:
            return partial(ufunc, operands[0], out=out)
        first, second = operands
        return partial(ufunc, first, second, out=out)

    return bind
