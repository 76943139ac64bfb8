"""Take out the identities before operators that write in place (GE: RefIdentityDeleteOpPass)."""

from __future__ import annotations

from collections import Counter

from gecli.ir.graph import Graph
from gecli.ir.surgery import isolate
from gecli.passes.base import Pass, PassContext, Stage
from gecli.passes.facts import Fact


class RefIdentityDelete(Pass):
    """The writer and its variable ref read the variable directly."""

    name = "RefIdentityDeleteOpPass"
    stage = Stage.OPTIMIZE_2
    ensures = (Fact.ACYCLIC,)
    correctness = True

    def run(self, graph: Graph, ctx: PassContext) -> Counter[str]:
        counts = Counter[str]()
        for each in graph.all_graphs():
            for node in each.nodes_of("RefIdentity"):
                source = node.inputs[0] if node.inputs else None
                if source is not None and source.node.is_variable:
                    ctx.record(self.name, "removed", variable=source.node.name, node=node.name)
                isolate(each, node)
                counts["nodes_removed"] += 1
        return counts
