"""`data_format` of an operator that does not say it: the layout of its data tensor, as in GE."""

from __future__ import annotations

from gecli.ir.op_desc import OpDesc
from gecli.ir.tensor_desc import UNKNOWN_RANK, TensorDesc
from gecli.ops.operator import OperatorType

DATA_FORMAT = "data_format"
LAYOUTS = ("NCHW", "NHWC", "NCDHW", "NDHWC")
# The tensor whose axes data_format names; filters, biases and statistics have layouts of their own.
_DATA_PORTS = frozenset(("x", "x1", "input", "orig_input", "dy", "y_backprop", "out_backprop", "input_grad", "grad"))


def data_slot(kind: OperatorType) -> int | None:
    """Which input `data_format` speaks of; None for an operator without that attribute."""
    if DATA_FORMAT not in kind.attributes:
        return None
    return next((slot for slot, port in enumerate(kind.inputs) if port.name in _DATA_PORTS), None)


def data_output(kind: OperatorType) -> int | None:
    """Which output has the layout of `data_format` too; None where the first one is a filter."""
    return None if data_slot(kind) is None or "BackpropFilter" in kind.name else 0


def layout_of(desc: TensorDesc | None) -> str:
    """NCHW, NHWC, NCDHW or NDHWC when that is the tensor's origin format, with as many dims at most; else empty."""
    if desc is None:
        return ""
    name = desc.logical_format.primary.name
    if name not in LAYOUTS or (desc.logical_shape != UNKNOWN_RANK and len(desc.logical_shape) > len(name)):
        return ""
    return name


def complete_data_format(kind: OperatorType, node: OpDesc, desc: TensorDesc | None) -> None:
    """Give a node without `data_format` the layout of its data tensor, where GE's default is another one."""
    layout = layout_of(desc)
    if layout and DATA_FORMAT not in node.attrs and kind.attributes[DATA_FORMAT][1] != layout:
        node.attrs[DATA_FORMAT] = layout


def contradiction(kind: OperatorType, node: OpDesc, desc: TensorDesc | None) -> str:
    """Why a tensor of the node cannot be described like that; empty when its layout is that of the node.

    Only a tensor with a dim for each letter is judged: with fewer the two layouts may mean the same axis.
    """
    layout, found = layout_of(desc), node.attrs.get(DATA_FORMAT, kind.attributes[DATA_FORMAT][1])
    found = found.decode("utf-8", "replace") if isinstance(found, bytes) else found
    if desc is None or not layout or found not in LAYOUTS or len(found) != len(layout) or found == layout:
        return ""
    if desc.logical_shape == UNKNOWN_RANK or len(desc.logical_shape) != len(layout):
        return ""
    default = "" if DATA_FORMAT in node.attrs else " by default"
    return f"data_format is {found}{default}, the descriptor says {layout}"
