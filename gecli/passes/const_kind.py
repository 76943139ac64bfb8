"""Where constants live: in the model, or in variable memory (GE: end of PrepareOptimize)."""

from __future__ import annotations

from collections import Counter

from gecli.ir.graph import Graph
from gecli.passes.base import Pass, PassContext, Stage


class ConstKind(Pass):
    """Make every Const a Constant with `--train` or ge.constLifecycle=session, else every Constant a Const.

    A training graph whose constants were asked to live in the graph keeps them in the model.
    """

    name = "ConstKindPass"
    stage = Stage.PREPARE
    correctness = True

    def run(self, graph: Graph, ctx: PassContext) -> Counter[str]:
        settings = ctx.settings
        in_session = settings.constants_in_session or (settings.train and not settings.constants_in_graph)
        old, new = ("Const", "Constant") if in_session else ("Constant", "Const")
        counts = Counter[str]()
        for each in graph.all_graphs():
            for node in each.nodes_of(old):
                each.retype(node, new)
                counts["constants_changed"] += 1
        return counts
