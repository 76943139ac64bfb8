"""Writing variables: Assign, AssignAdd, AssignSub, slices, counters (training.md 10, 11)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gecli.ir.dtype import DataType
from gecli.ir.tensor_desc import UNKNOWN_DIM, UNKNOWN_RANK, TensorDesc
from gecli.ops.inference import InferenceError, plain
from gecli.ops.numeric import Array, Step, in_float32, is_half
from gecli.ops.operator import operator
from gecli.ops.slice import Masks, strided_index


def _same_shape(ref: TensorDesc, value: TensorDesc, what: str) -> None:
    if UNKNOWN_RANK in (ref.shape, value.shape):
        return
    fits = len(ref.shape) == len(value.shape) and all(
        a == b or UNKNOWN_DIM in (a, b) for a, b in zip(ref.shape, value.shape, strict=True)
    )
    if not fits:
        raise InferenceError(f"{what} {list(value.shape)} does not have the variable's shape {list(ref.shape)}")


@operator()
class Assign:
    """ref = value."""

    validate_shape: bool = True
    use_locking: bool = False
    outputs = ("ref",)
    writes = ("ref",)
    foldable = False
    stateless = False

    def infer(self, ref: TensorDesc, value: TensorDesc) -> TensorDesc:
        if self.validate_shape:
            _same_shape(ref, value, "value")
        return plain(ref)

    def kernel(self, ref: Array, value: Array) -> Array:
        return value.astype(ref.dtype).reshape(ref.shape)

    def bind(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> Step | None:
        (ref, value), y = inputs, outputs[0]
        if value.shape != ref.shape or value.dtype != ref.dtype or not np.shares_memory(ref, y):
            return None
        return lambda: np.copyto(y, value)


def _bind_ufunc(ufunc: np.ufunc, inputs: Sequence[Array], outputs: Sequence[Array]) -> Step | None:
    (ref, value), y = inputs, outputs[0]
    if is_half(ref.dtype) or value.dtype != ref.dtype or not np.shares_memory(ref, y):
        return None
    return lambda: ufunc(ref, value, y)


@operator()
class AssignAdd:
    """ref += value."""

    use_locking: bool = False
    outputs = ("ref",)
    writes = ("ref",)
    zero_preserving = True
    foldable = False
    stateless = False

    def infer(self, ref: TensorDesc, value: TensorDesc) -> TensorDesc:
        _same_shape(ref, value, "value")
        return plain(ref)

    @in_float32
    def kernel(self, ref: Array, value: Array) -> Array:
        return ref + value

    def bind(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> Step | None:
        return _bind_ufunc(np.add, inputs, outputs)


@operator()
class AssignSub:
    """var -= value."""

    use_locking: bool = False
    outputs = ("var",)
    writes = ("var",)
    zero_preserving = True
    foldable = False
    stateless = False

    def infer(self, var: TensorDesc, value: TensorDesc) -> TensorDesc:
        _same_shape(var, value, "value")
        return plain(var)

    @in_float32
    def kernel(self, var: Array, value: Array) -> Array:
        return var - value

    def bind(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> Step | None:
        return _bind_ufunc(np.subtract, inputs, outputs)


class _SliceAssign:
    """var[slice] = input_value; no broadcast."""

    begin_mask: int = 0
    end_mask: int = 0
    ellipsis_mask: int = 0
    new_axis_mask: int = 0
    shrink_axis_mask: int = 0
    outputs = ("var",)
    writes = ("var",)
    foldable = False
    stateless = False

    def assigned(self, var: Array, begin: Any, end: Any, strides: Any, value: Array) -> Array:
        masks = Masks(self.begin_mask, self.end_mask, self.ellipsis_mask, self.new_axis_mask, self.shrink_axis_mask)
        start, stop, step = ([int(v) for v in each] for each in (begin, end, strides))
        index = strided_index(var.ndim, start, stop, step, None, masks)
        if var[index].shape != value.shape:
            raise ValueError(f"input_value {list(value.shape)} does not fit the slice {list(var[index].shape)}")
        result = var.copy()
        result[index] = value
        return result


@operator()
class StridedSliceAssign(_SliceAssign):
    """A strided slice of a variable replaced."""

    def infer(
        self, var: TensorDesc, begin: TensorDesc, end: TensorDesc, strides: TensorDesc, input_value: TensorDesc
    ) -> TensorDesc:
        return plain(var)

    def kernel(self, var: Array, begin: Array, end: Array, strides: Array, input_value: Array) -> Array:
        return self.assigned(var, begin.reshape(-1), end.reshape(-1), strides.reshape(-1), input_value)


@operator()
class StridedSliceAssignD(_SliceAssign):
    """A strided slice of a variable replaced; the bounds are attributes."""

    begin: tuple[int, ...]
    end: tuple[int, ...]
    strides: tuple[int, ...]

    def infer(self, var: TensorDesc, input_value: TensorDesc) -> TensorDesc:
        return plain(var)

    def kernel(self, var: Array, input_value: Array) -> Array:
        return self.assigned(var, self.begin, self.end, self.strides, input_value)


@operator()
class CountUpTo:
    """The old value of a counter, which goes up by one; an error when it would reach `limit`."""

    limit: int = 0
    writes = ("ref",)
    foldable = False
    stateless = False

    def infer(self, ref: TensorDesc) -> TensorDesc:
        return plain(ref)

    def kernel(self, ref: Array) -> tuple[Array, ...]:
        """The old value, then the new one (the reference of `ref_port_index`)."""
        if int(ref.reshape(-1)[0]) + 1 > self.limit:
            raise ValueError(f"out of range: the counter {int(ref.reshape(-1)[0])} has reached its limit {self.limit}")
        return ref.copy(), ref + ref.dtype.type(1)


@operator(aliases=("IsVariableInitialized",))
class VarIsInitializedOp:
    """True once the variable has a value; a constant after compilation (variables.md 8.2)."""

    foldable = False
    stateless = False

    def infer(self, x: TensorDesc) -> TensorDesc:
        return TensorDesc(DataType.BOOL, ())

    def kernel(self, x: Array) -> Array:
        return np.array(True)
