"""Remove a conversion and the one that undoes it (GE: TransOpSymmetryEliminationPass)."""

from __future__ import annotations

from collections import Counter
from math import prod

from gecli.engine.trans_ops import drop_unused, is_inverse_perm, loses_values, reads_later
from gecli.ir.attributes import DATA_TYPES
from gecli.ir.format import Format
from gecli.ir.graph import Graph
from gecli.ir.op_desc import OpDesc
from gecli.ir.surgery import copy_in_control
from gecli.ir.tensor_desc import UNKNOWN_RANK, TensorDesc
from gecli.layout.axes import AXES
from gecli.passes.base import Pass, PassContext, Stage
from gecli.records import dataclass

_SYMMETRIC = ("TransposeD", "Reshape", "ReFormat", "Cast", "TransData", "SqueezeV2", "UnsqueezeV2")
_AXIS_TYPES = frozenset(("SqueezeV2", "UnsqueezeV2"))


@dataclass(frozen=True)
class TransOpSymmetryElimination(Pass):
    """`A -> T1 -> T2 -> B` becomes `A -> B` where T2 undoes T1 and T1 loses nothing.

    With `lossy` a narrowing Cast counts as lossless where GE counts it so (FLOAT to FLOAT16 and back).
    """

    name = "TransOpSymmetryEliminationPass"
    stage = Stage.OPTIMIZE_1
    level = "O1"
    lossy: bool = False

    def run(self, graph: Graph, ctx: PassContext) -> Counter[str]:
        counts = Counter[str]()
        for each in graph.all_graphs():
            found = True
            while found:
                found = False
                for second in each.nodes_of(*_SYMMETRIC):
                    if each.get(second.name) is second and _cancels(second, like_ge=self.lossy):
                        counts["nodes_removed"] += _eliminate(each, second)
                        found = True
        return counts


def _cancels(second: OpDesc, *, like_ge: bool) -> bool:
    port = second.inputs[0] if second.inputs else None
    if port is None or not any(second.users):
        return False
    first = port.node
    same_kind = first.type == second.type or {first.type, second.type} == _AXIS_TYPES
    if not same_kind or not first.inputs or first.inputs[0] is None:
        return False
    start, middle_in = first.input_descs[0], second.input_descs[0]
    if start is None or middle_in is None or not _types_allow(first, second, start):
        return False
    middle, end = first.output_descs[0], second.output_descs[0]
    if loses_values(start.dtype, middle.dtype, like_ge=like_ge):
        return False
    if any(reads_later(first.inputs[0], first, use) for use in second.users[0]):
        return False
    # An input that is also an output keeps a node between.
    if first.inputs[0].node.type in DATA_TYPES and any(use.node.type == "NetOutput" for use in second.users[0]):
        return False
    if first.type == "Cast":
        nd = Format.ND in (start.format, end.format)
        return start.dtype == end.dtype and (start.format == end.format or nd) and start.shape == end.shape
    if _symmetric(start, middle, middle_in, end):
        return True
    return first.type == "TransData" and _same_plane(start, middle, middle_in, end)


def _types_allow(first: OpDesc, second: OpDesc, start: TensorDesc) -> bool:
    if first.type == "Reshape":
        return start.shape != UNKNOWN_RANK and sum(dim < 0 for dim in start.shape) <= 1
    if first.type == "TransData":
        return start.shape != UNKNOWN_RANK
    if first.type == "TransposeD":
        return is_inverse_perm(first.attrs.get("perm", ()), second.attrs.get("perm", ()))
    if first.type in _AXIS_TYPES:
        same_axes = tuple(first.attrs.get("axis", ())) == tuple(second.attrs.get("axis", ()))
        return same_axes and first.type != second.type
    return True


def _symmetric(start: TensorDesc, middle: TensorDesc, middle_in: TensorDesc, end: TensorDesc) -> bool:
    """GE lets origins differ in format, where a reader of the blocked form would take its axes for others."""
    if not start.same_reading(end) or middle.format != middle_in.format:
        return False
    return start.logical_format != end.logical_format or start.logical_shape == end.logical_shape


def _same_plane(start: TensorDesc, middle: TensorDesc, middle_in: TensorDesc, end: TensorDesc) -> bool:
    """Two TransData between NCHW and NC1HWC0 whose dims differ only in how H*W is split (a Reshape between is gone)."""
    if (start.format, start.dtype) != (end.format, end.dtype) or start.shape == end.shape:
        return False
    if (middle.format, middle.dtype) != (middle_in.format, middle_in.dtype):
        return False
    if not (start.is_static and end.is_static and middle.is_static and middle_in.is_static):
        return False
    if prod(start.shape) != prod(end.shape) or prod(middle.shape) != prod(middle_in.shape):
        return False
    if (start.format.primary, middle.format.primary) not in (
        (Format.NCHW, Format.NC1HWC0),
        (Format.NC1HWC0, Format.NCHW),
    ):
        return False
    return _planes(start) == _planes(end)


def _planes(desc: TensorDesc) -> tuple[int, int, int]:
    """N, C and H*W of a tensor in its origin form; GE compares C only where it is padded."""
    letters = AXES.get(desc.logical_format.primary, "")
    sizes = dict(zip(letters, desc.logical_shape))
    return (sizes.get("N", 0), sizes.get("C", 0), sizes.get("H", 1) * sizes.get("W", 1))


def _eliminate(graph: Graph, second: OpDesc) -> int:
    port = second.inputs[0]
    assert port is not None
    first = port.node
    source = first.inputs[0]
    assert source is not None
    consumers = graph.consumers(second.out())
    side_inputs = [other.node for other in (*first.inputs[1:], *second.inputs[1:]) if other is not None]
    for use in consumers:
        copy_in_control(graph, first, use.node)
        copy_in_control(graph, second, use.node)
        for node in side_inputs:
            if node.type not in ("Const", "Constant"):
                graph.add_control(node, use.node)
        graph.replace_input(use.node, use.slot, source)
    for after in list(second.control_out):
        graph.add_control(source.node, after)
    removed = drop_unused(graph, (second, first))
    for node in side_inputs:
        if node.type in ("Const", "Constant") and not any(node.users) and not node.control_out:
            graph.remove(node)
    return removed
