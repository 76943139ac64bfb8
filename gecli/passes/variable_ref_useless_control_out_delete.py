"""Drop the order behind a ref where its writer gives it already (GE: VariableRefUselessControlOutDeletePass)."""

from __future__ import annotations

from collections import Counter

from gecli.ir.graph import Graph
from gecli.passes.base import Pass, PassContext, Stage
from gecli.passes.facts import Fact
from gecli.passes.variable_prepare import VAR_LIKE_TYPES

SHOWN_NAMES = 4


class VariableRefUselessControlOutDelete(Pass):
    """Remove a control edge from a ref to a node that comes behind the ref's producer anyway.

    The ref has no work of its own and is folded into its producer later, so the weaker order is enough.
    """

    name = "VariableRefUselessControlOutDeletePass"
    stage = Stage.OPTIMIZE_1
    ensures = (Fact.ACYCLIC,)
    level = "O3"

    def run(self, graph: Graph, ctx: PassContext) -> Counter[str]:
        counts = Counter[str]()
        for each in graph.all_graphs():
            for ref in each.nodes_of(*sorted(VAR_LIKE_TYPES)):
                if ref.ref_variable is None or not ref.data_inputs:
                    continue
                producer = ref.data_inputs[0].node
                behind = set(each.successors(producer))
                useless = [node for node in ref.control_out if node in behind]
                for after in useless:
                    each.remove_control(ref, after)
                    counts["control_edges_removed"] += 1
                if useless:
                    names = [node.name for node in useless]
                    ctx.record(
                        self.name, "order_dropped", variable=ref.ref_variable, node=ref.name, before=_shown(names)
                    )
        return counts


def _shown(names: list[str]) -> list[str]:
    more = len(names) - SHOWN_NAMES
    return names if more <= 0 else [*names[:SHOWN_NAMES], f"and {more} more"]
