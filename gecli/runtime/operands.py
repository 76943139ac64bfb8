"""Where the operands of a program lie, and in which form kernels see them.

Kernels compute on logical arrays (the origin format). Feature-map tensors that the OM describes as NC1HWC0 or
NDC1HWC0 are kept in their logical form at the same offset, which always fits because padding only grows a tensor:
the conversions at their borders become plain copies and no padding lane exists. Other blocked tensors (filters in
variable memory, gradients in FRACTAL_Z) keep their stored form; an operator that needs the logical one gets it
through a bound conversion, done once for constants.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gecli.ir.format import Format
from gecli.ir.tensor_desc import TensorDesc
from gecli.layout.transforms import convert
from gecli.records import dataclass

Array = NDArray[Any]
Step = Callable[[], Any]

# Blocked feature-map formats whose tensors are kept in logical form while a program runs.
UNBLOCKED = frozenset((Format.NC1HWC0, Format.NC1HWC0_C04, Format.NDC1HWC0))


@dataclass(slots=True)
class Operand:
    """One tensor of a program: its array, and whether the array is in logical or in stored form."""

    desc: TensorDesc
    array: Array
    is_logical: bool
    is_constant: bool = False
    in_variable: str = ""  # the variable whose memory this is
    logical_copy: Array | None = None  # of a constant, made when first asked for

    @property
    def logical_desc(self) -> TensorDesc:
        return self.desc.logical()


def is_blocked(desc: TensorDesc) -> bool:
    """True when the stored bytes are not the logical array."""
    return not desc.format.is_origin


def unblocked(desc: TensorDesc) -> bool:
    """True for a tensor that a program keeps in logical form although the OM describes it as blocked."""
    return desc.format.primary in UNBLOCKED


def to_logical(array: Array, desc: TensorDesc) -> Array:
    """A stored array of `desc` in its logical form."""
    return convert(array, desc, desc.logical()) if is_blocked(desc) else array


def logical_input(operand: Operand, steps: list[Step]) -> Array:
    """The logical array of an operand; conversions that every run needs are appended to `steps`."""
    if operand.is_logical or not is_blocked(operand.desc):
        return operand.array
    if operand.is_constant:
        if operand.logical_copy is None:
            operand.logical_copy = np.ascontiguousarray(to_logical(operand.array, operand.desc))
        return operand.logical_copy
    scratch = np.empty(operand.logical_desc.shape, operand.array.dtype)
    stored, desc = operand.array, operand.desc
    steps.append(lambda: np.copyto(scratch, to_logical(stored, desc)))
    return scratch


def logical_output(operand: Operand, after: list[Step]) -> Array:
    """The array an operator writes its logical result to; a conversion back is appended to `after`."""
    if operand.is_logical or not is_blocked(operand.desc):
        return operand.array
    scratch = np.zeros(operand.logical_desc.shape, operand.array.dtype)
    stored, desc, logical = operand.array, operand.desc, operand.logical_desc
    after.append(lambda: np.copyto(stored, convert(scratch, logical, desc)))
    return scratch
