"""Whether an operator keeps zero padding lanes zero (design.md decision 35), and whether storage has such lanes.

A cube operator sums over the padded channels, so a blocked tensor must have zeros there.
"""

from __future__ import annotations

from math import isfinite, prod
from typing import Any

from gecli.ir.attributes import CONST_TYPES, VALUE
from gecli.ir.op_desc import OpDesc
from gecli.ir.tensor_desc import TensorDesc
from gecli.ops.registry import find

# f(0, 0) = 0 when both operands are blocked; a scalar operand is judged by its value.
_ZERO_OF_ZEROS = frozenset(
    ("Add", "AddV2", "Sub", "Mul", "Maximum", "Minimum", "SquaredDifference", "AddN", "AccumulateNV2", "BitwiseAnd",
     "BitwiseOr", "BitwiseXor", "Axpy", "AxpyV2", "Assign", "DivNoNan", "Xdivy", "Xlogy")
)  # fmt: skip
_ADDITIVE = frozenset(("Add", "AddV2", "Sub", "SquaredDifference", "BitwiseOr", "BitwiseXor"))
_EPSILON_TYPES = ("ApplyAdam", "ApplyAdaMax", "ApplyRMSProp", "ApplyCenteredRMSProp", "ApplyAdagradV2", "ApplyAdadelta")
_SMALL_ELEMENTS = 16


def has_padding(stored: TensorDesc) -> bool:
    """True when the storage shape holds more elements than the tensor has."""
    return prod(stored.shape) != prod(stored.logical_shape)


def preserves_zeros(node: OpDesc, blocked: frozenset[int]) -> bool:
    """True when zeros in the `blocked` input slots give zeros in every output; the other inputs keep their values."""
    if node.type in ("Assign", "AssignAdd", "AssignSub"):
        return True
    if node.type.startswith("ApplyFtrl"):
        return _at_most(node, "lr_power", 0) and _at_least(node, "l1", 0)
    if node.type.startswith(_EPSILON_TYPES):
        epsilon = operand_value(node, "epsilon")
        return epsilon is not None and epsilon > 0
    if node.type in ("ClipByValue", "Clip"):
        return _clip_holds_zero(node)
    if node.type in _ZERO_OF_ZEROS:
        return all(_neutral(node, slot) for slot in range(len(node.inputs)) if slot not in blocked)
    if node.type in ("RealDiv", "Div"):
        divisor = _input_value(node, 1)
        return 0 in blocked and 1 not in blocked and divisor is not None and divisor != 0
    kind = find(node.type)
    return kind is not None and kind.zero_preserving


def operand_value(node: OpDesc, name: str) -> float | None:
    """A hyperparameter given as attribute or as a constant input of one element; None when it is not known."""
    if name in node.attrs:
        return float(node.attrs[name])
    kind = find(node.type)
    slot = None if kind is None else kind.input_slot(name)
    if slot is not None:
        return _input_value(node, slot)
    default = None if kind is None else kind.attributes.get(name, ("", None))[1]
    return float(default) if isinstance(default, (int, float)) else None


def _input_value(node: OpDesc, slot: int) -> float | None:
    port = node.inputs[slot] if slot < len(node.inputs) else None
    if port is None or port.node.type not in CONST_TYPES or VALUE not in port.node.attrs:
        return None
    weight: Any = port.node.attrs[VALUE]
    if prod(weight.desc.shape) > _SMALL_ELEMENTS:
        return None
    values = weight.numpy().reshape(-1)
    return float(values[0]) if values.size == 1 else None


def _neutral(node: OpDesc, slot: int) -> bool:
    """Whether a scalar operand leaves a zero on the other side zero."""
    if node.inputs[slot] is None:
        return True
    value = _input_value(node, slot)
    if value is None or not isfinite(value):
        return False
    if node.type in _ADDITIVE:
        return value == 0
    if node.type in ("Maximum", "Minimum"):
        return value <= 0 if node.type == "Maximum" else value >= 0
    return node.type == "Mul"


def _clip_holds_zero(node: OpDesc) -> bool:
    low = _bound(node, 1, ("min_value", "min", "clip_value_min"))
    high = _bound(node, 2, ("max_value", "max", "clip_value_max"))
    return low is not None and high is not None and low <= 0 <= high


def _bound(node: OpDesc, slot: int, names: tuple[str, ...]) -> float | None:
    if slot < len(node.inputs) and node.inputs[slot] is not None:
        return _input_value(node, slot)
    return next((float(node.attrs[name]) for name in names if name in node.attrs), None)


def _at_most(node: OpDesc, name: str, limit: float) -> bool:
    value = operand_value(node, name)
    return value is not None and value <= limit


def _at_least(node: OpDesc, name: str, limit: float) -> bool:
    value = operand_value(node, name)
    return value is not None and value >= limit
