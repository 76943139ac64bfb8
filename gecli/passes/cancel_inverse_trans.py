"""Remove a conversion together with the one before it that it undoes."""

from __future__ import annotations

from collections import Counter

from gecli.engine.trans_ops import TRANS_OPS
from gecli.ir.graph import Graph
from gecli.ir.op_desc import OpDesc
from gecli.ir.surgery import bypass, isolate
from gecli.layout.cast import exact_embedding
from gecli.passes.base import Pass, PassContext, Stage
from gecli.passes.facts import Fact
from gecli.passes.trans_ops import step_of, undoes, unplug_constants


class CancelInverseTrans(Pass):
    """Consumers of a conversion that undoes the one before it read what came before both.

    Such pairs stand between the conversions of a recovered trans road and those that the engine inserted. Two casts
    are a pair only if the first one keeps every value.
    """

    name = "CancelInverseTransPass"
    stage = Stage.OPTIMIZE_1
    ensures = (Fact.ACYCLIC,)
    level = "O1"

    def run(self, graph: Graph, ctx: PassContext) -> Counter[str]:
        counts = Counter[str]()
        for each in graph.all_graphs():
            # A pair that encloses another one is seen later in graph order, when the inner one is gone.
            for node in each.nodes_of(*sorted(TRANS_OPS)):
                first = _cancelled_by(node)
                if first is not None:
                    counts["nodes_removed"] += _cancel(each, first, node)
        return counts


def _cancelled_by(second: OpDesc) -> OpDesc | None:
    """The conversion right before `second` that it undoes."""
    port = second.inputs[0] if second.inputs else None
    if port is None or port.node.type not in TRANS_OPS or not port.node.inputs or port.node.inputs[0] is None:
        return None
    there, back = step_of(port.node), step_of(second)
    if not there.src.is_static or not undoes(back, there):
        return None
    if there.type == "Cast" and not exact_embedding(there.src.dtype, there.dst.dtype):
        return None
    return port.node


def _cancel(graph: Graph, first: OpDesc, second: OpDesc) -> int:
    """Take out the pair, `first` only if nobody else reads it; returns how many nodes went."""
    uses = graph.consumers(second.out())
    unplug_constants(graph, second)
    isolate(graph, second)
    if len(uses) < len(first.users[0]):
        for use in uses:
            bypass(graph, use)
        return 1
    unplug_constants(graph, first)
    isolate(graph, first)
    return 2
