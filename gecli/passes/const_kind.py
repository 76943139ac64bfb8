"""Where constants live: in the model, or in variable memory (GE: end of PrepareOptimize)."""

from __future__ import annotations

from collections import Counter

from gecli.ir.graph import Graph
from gecli.passes.base import Pass, PassContext, Stage


class ConstKind(Pass):
    """Make every Const a Constant with `--train` or ge.constLifecycle=session, else every Constant a Const."""

    name = "ConstKindPass"
    stage = Stage.PREPARE
    correctness = True

    def run(self, graph: Graph, ctx: PassContext) -> Counter[str]:
        in_session = ctx.settings.train or ctx.settings.constants_in_session
        old, new = ("Const", "Constant") if in_session else ("Constant", "Const")
        counts = Counter[str]()
        for each in graph.all_graphs():
            for node in each.nodes_of(old):
                each.retype(node, new)
                counts["constants_changed"] += 1
        return counts
