"""The error for an operator that cannot compute with what reached it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from numpy.typing import NDArray

from gecli.errors import RuntimeFault
from gecli.ir.op_desc import OpDesc

# What kernels raise when their inputs do not fit: numpy's and Python's own errors.
KERNEL_ERRORS = (ValueError, IndexError, TypeError, ZeroDivisionError, OverflowError)


def node_fault(
    node: OpDesc, error: BaseException, inputs: Sequence[NDArray[Any] | None], *, is_dynamic: bool
) -> RuntimeFault:
    """What node, which inputs, what to do; only a dynamic model accepts inputs of other shapes."""
    ranged = "values (-i, --val-range NAME:[LO,HI])"
    shapes = "give inputs of other shapes (-i, --shape) or"
    cure = f"{shapes} {ranged}" if is_dynamic else f"give other {ranged}, or compile other shapes"
    shown = ", ".join("none" if x is None else f"{x.dtype.name} {list(x.shape)}" for x in inputs)
    return RuntimeFault(
        "G4009",
        f"{node.type} node {node.name!r} cannot compute with its inputs",
        why=f"the inputs are {shown or 'none'}; {_reason(error)}",
        do=f"{cure}; the node: gecli inspect-om OM --nodes --show io --name '{node.name}'",
        node=node.name,
        kind="RT_NODE_FAILED",
    )


def _reason(error: BaseException) -> str:
    text = str(error)
    if found := re.search(r"values to unpack \(expected (?:at least )?(\d+)", text):
        return f"the operator needs {found[1]} dimensions or values where it got another number"
    if found := re.search(r"core dimension.*(\(size \d+ is different from \d+\))", text):
        return f"the dimensions that are multiplied differ {found[1]}"
    return text.splitlines()[0] if text else f"the kernel stopped with {type(error).__name__}"
