"""Choose storage formats and insert the conversions between them (GE: RefineRunningFormat)."""

from __future__ import annotations

from collections import Counter

from gecli.engine.heavy_format import choose_formats
from gecli.engine.trans_insert import insert_trans_nodes
from gecli.engine.trans_merge import merge_inverse_pairs
from gecli.ir.graph import Graph
from gecli.passes.base import Pass, PassContext, Stage
from gecli.passes.facts import Fact
from gecli.records import dataclass


@dataclass(frozen=True)
class FormatSelection(Pass):
    """Give operators the formats of the kernel table, spread them, and put TransData and Cast on the borders.

    With `format_policy` origin only the Casts of the precision selection are inserted.
    """

    name = "RefineRunningFormat"
    stage = Stage.FORMAT
    ensures = (Fact.FORMATS_CHOSEN, Fact.ACYCLIC)
    correctness = True
    aggressive_merge: bool = False

    def run(self, graph: Graph, ctx: PassContext) -> Counter[str]:
        counts = Counter[str]()
        for each in graph.all_graphs():
            if ctx.settings.format_policy != "origin":
                choice = choose_formats(each, ctx.platform, enable_small_channel=ctx.settings.enable_small_channel)
                for note in choice.notes:
                    ctx.record(self.name, "note", text=note)
                counts += choice.apply()
            inserted = insert_trans_nodes(each, ctx.platform)
            counts.update({f"{type}_inserted": count for type, count in sorted(inserted.items())})
            counts["pairs_merged"] += merge_inverse_pairs(each, aggressive=self.aggressive_merge)
        return counts
