"""Choose the data type of every operator (GE: RefineRunningPrecision)."""

from __future__ import annotations

from collections import Counter
from dataclasses import field

from gecli.engine.precision import MODES, MixLists, select_precision
from gecli.ir.dtype import DataType
from gecli.ir.graph import Graph
from gecli.ir.tensor_desc import TensorDesc
from gecli.passes.base import Pass, PassContext, Stage
from gecli.records import dataclass


@dataclass(frozen=True)
class PrecisionSelection(Pass):
    """Set the data types that the precision mode asks for; the Casts are inserted with the formats.

    Without a mode every operator keeps its types.
    """

    name = "RefineRunningPrecision"
    stage = Stage.PRECISION
    correctness = True
    lists: MixLists = field(default_factory=MixLists)

    def run(self, graph: Graph, ctx: PassContext) -> Counter[str]:
        before = _descs(graph)
        settings = ctx.settings
        notes = select_precision(
            graph,
            ctx.platform,
            settings.precision,
            keep=settings.keep_dtype_nodes,
            lists=settings.mix_lists or self.lists,
        )
        for note in notes:
            ctx.record(self.name, "note", text=note)
        mode = MODES[settings.precision]
        if DataType.FLOAT16 in (mode.cube, mode.others):
            from gecli.engine.half_range import half_range_warning, unfit_for_half

            warning = half_range_warning(unfit_for_half(graph))
            ctx.warnings += [warning] if warning is not None else []
        changed = [(a, b) for a, b in zip(before, _descs(graph)) if a is not b]
        return Counter(operands_changed=sum(a is None or b is None or a.dtype != b.dtype for a, b in changed))


def _descs(graph: Graph) -> list[TensorDesc | None]:
    found: list[TensorDesc | None] = []
    for node in graph.all_nodes():
        found += node.input_descs
        found += node.output_descs
    return found
