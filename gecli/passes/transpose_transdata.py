"""Let one TransData do the work of a Transpose and a TransData (GE: TransposeTransDataPass)."""

from __future__ import annotations

from collections import Counter

from gecli.engine.trans_insert import trans_data_attrs
from gecli.engine.trans_ops import drop_unused
from gecli.ir.format import Format
from gecli.ir.graph import Graph
from gecli.ir.op_desc import OpDesc
from gecli.ir.surgery import copy_in_control
from gecli.layout.axes import AXES, permutation
from gecli.layout.transfer import can_transfer
from gecli.passes.base import Pass, PassContext, Stage


class TransposeTransData(Pass):
    """`TransposeD(NHWC to HWCN) -> TransData(HWCN to FRACTAL_Z)` becomes `TransData(NHWC to FRACTAL_Z)`.

    Only where the new pair is a registered transfer and the perm is that of the two formats.
    """

    name = "TransposeTransDataPass"
    stage = Stage.OPTIMIZE_1
    level = "O1"

    def run(self, graph: Graph, ctx: PassContext) -> Counter[str]:
        counts = Counter[str]()
        for each in graph.all_graphs():
            for node in each.nodes_of("TransData"):
                while (transpose := _foldable_transpose(node)) is not None:
                    _fold(each, transpose, node)
                    counts["pairs_folded"] += 1
        return counts


def _foldable_transpose(node: OpDesc) -> OpDesc | None:
    port = node.inputs[0] if node.inputs else None
    if port is None or port.node.type != "TransposeD" or node.input_descs[0] is None:
        return None
    transpose = port.node
    source, between = transpose.input_descs[0], transpose.output_descs[0]
    if source is None or transpose.inputs[0] is None or source.format in (Format.ND, between.format):
        return None
    if not source.is_static or source.format.primary not in AXES or between.format.primary not in AXES:
        return None
    if not between.same_storage(node.input_descs[0]):
        return None
    if sorted(AXES[source.format.primary]) != sorted(AXES[between.format.primary]):
        return None
    if tuple(transpose.attrs.get("perm", ())) != permutation(source.format, between.format):
        return None
    return transpose if can_transfer(source, node.output_descs[0], road=False)[0] else None


def _fold(graph: Graph, transpose: OpDesc, node: OpDesc) -> None:
    source = transpose.inputs[0]
    assert source is not None
    copy_in_control(graph, transpose, node)
    graph.replace_input(node, 0, source)
    node.input_descs[0] = transpose.input_descs[0]
    assert node.input_descs[0] is not None
    node.attrs.update(trans_data_attrs(node.input_descs[0].format, node.output_descs[0].format))
    drop_unused(graph, (transpose,))
