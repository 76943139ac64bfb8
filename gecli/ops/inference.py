"""Shape and dtype inference that many operators share; assigned as `infer` in their classes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from gecli.ir.dtype import DataType
from gecli.ir.tensor_desc import UNKNOWN_DIM, UNKNOWN_RANK, Shape, TensorDesc

if TYPE_CHECKING:
    from gecli.ops.operator import Port

# What a rule or an importer raises for attributes and inputs that make no sense: a stride of 0, an axis that is not
# there, a list where a number belongs.
RULE_FAULTS = (ValueError, TypeError, LookupError, ArithmeticError)
MAX_RANK = 64  # numpy's limit


class InferenceError(ValueError):
    """The inputs of a node do not fit together; the pass adds node and shapes."""

    def __init__(self, message: str, do: str = "") -> None:
        super().__init__(message)
        self.do = do


def check_rank(descs: Sequence[TensorDesc]) -> None:
    """Raises InferenceError for a tensor of more dims than arrays can have."""
    for desc in descs:
        if len(desc.shape) > MAX_RANK:
            raise InferenceError(f"a tensor of {len(desc.shape)} dims is made; the limit is {MAX_RANK}")


def check_inputs(ports: Sequence[Port], descs: Sequence[TensorDesc | None]) -> None:
    """Raises InferenceError for an input that the type needs and the node lacks."""
    for slot, port in enumerate(ports):
        if not port.optional and not port.variadic and (slot >= len(descs) or descs[slot] is None):
            raise InferenceError(f"input {slot} ({port.name}) is missing")


def same_as_input(self: Any, x: TensorDesc, *rest: TensorDesc | None) -> TensorDesc:
    """Output 0 is described like input 0."""
    return plain(x)


def plain(desc: TensorDesc) -> TensorDesc:
    """A descriptor without value, attributes and size: what an output starts from."""
    return TensorDesc(
        desc.dtype, desc.shape, desc.format, desc.origin_shape, desc.origin_format, None, desc.shape_range
    )


def broadcast(self: Any, x1: TensorDesc, x2: TensorDesc, *rest: TensorDesc | None) -> TensorDesc:
    """numpy broadcasting; the dtype of the first operand."""
    return broadcast_descs([x1, x2, *(desc for desc in rest if desc is not None)])


def comparison(self: Any, x1: TensorDesc, x2: TensorDesc) -> TensorDesc:
    """numpy broadcasting to BOOL."""
    return broadcast_descs([x1, x2]).with_dtype(DataType.BOOL)


def broadcast_descs(descs: Sequence[TensorDesc]) -> TensorDesc:
    """The broadcast of several operands: dtype of the first, format of the highest rank operand."""
    shape = broadcast_shapes([desc.shape for desc in descs])
    first = descs[0]
    shaped = next((desc for desc in descs if desc.shape == shape), first)
    return TensorDesc(first.dtype, shape, shaped.format if len(shape) == len(shaped.shape) else first.format)


def broadcast_shapes(shapes: Sequence[Shape]) -> Shape:
    """numpy's rule with unknown dims: -1 against n > 1 gives n. Raises InferenceError."""
    if any(shape == UNKNOWN_RANK for shape in shapes):
        return UNKNOWN_RANK
    rank = max((len(shape) for shape in shapes), default=0)
    result = [1] * rank
    for shape in shapes:
        for position, dim in enumerate(shape, start=rank - len(shape)):
            known = result[position]
            if dim == known or dim == 1:
                continue
            if known == 1 or (known == UNKNOWN_DIM and dim != 1):
                result[position] = dim
            elif dim != UNKNOWN_DIM:
                raise InferenceError(f"shapes {' and '.join(str(list(s)) for s in shapes)} do not broadcast")
    return tuple(result)


def normalise_axis(axis: int, rank: int) -> int:
    """A negative axis counted from the end. Raises InferenceError when out of range."""
    if not -rank <= axis < rank:
        raise InferenceError(f"axis {axis} is out of range for rank {rank}")
    return axis + rank if axis < 0 else axis
