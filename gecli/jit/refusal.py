"""Graphs that are not cut: GE's list of what the JIT layer leaves alone (cache.md 9.1)."""

from __future__ import annotations

from gecli.ir.dtype import DataType
from gecli.ir.graph import Graph

REFUSED_TYPES = (
    "Switch", "RefSwitch", "StreamSwitch", "Merge", "RefMerge", "StreamMerge", "Enter", "RefEnter", "Exit", "RefExit",
    "LoopCond", "NextIteration", "RefNextIteration", "GetNext", "IteratorGetNext", "DynamicGetNext",
    "DynamicGetNextV2",
)  # fmt: skip


def refusal(graph: Graph) -> str:
    """Why a graph is compiled as a whole, for any shapes; empty for one that is cut."""
    for each in graph.all_graphs():
        found = each.nodes_of(*REFUSED_TYPES)
        if found:
            return f"it holds the {found[0].type} node {found[0].name!r}"
        for node in each.nodes():
            if any(desc.dtype is DataType.RESOURCE for desc in node.output_descs):
                return f"{node.type} node {node.name!r} gives a resource"
    return ""
