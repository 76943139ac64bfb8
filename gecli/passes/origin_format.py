"""Infer origin formats (GE: InferFormatPass); runs before and after shape inference."""

from __future__ import annotations

from collections import Counter

from gecli.engine.origin_format import infer_origin_formats
from gecli.ir.graph import Graph
from gecli.passes.base import Pass, PassContext, Stage


class InferFormat(Pass):
    """Give tensors the layout that convolutions and pools around them demand, instead of ND."""

    name = "InferFormatPass"
    stage = Stage.PREPARE
    correctness = True

    def run(self, graph: Graph, ctx: PassContext) -> Counter[str]:
        return Counter(formats_set=infer_origin_formats(graph))
