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
Action = tuple[Callable[..., Any], tuple[Any, ...]]  # a call and its operands
Program = Sequence[Action]


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


def perform(program: Program) -> None:
    """All actions, in order."""
    for function, arguments in program:
        function(*arguments)


def sequence(actions: Program) -> Step:
    """One step that performs all actions."""
    if len(actions) == 1:
        function, arguments = actions[0]
        return partial(function, *arguments)
    return partial(perform, tuple(actions))
