"""Which node keeps a model dynamic although its inputs have sizes."""

from __future__ import annotations

from gecli.ir.graph import Graph
from gecli.ir.op_desc import OpDesc


def dynamic_cause(graph: Graph) -> dict[str, str] | None:
    """Name, type and reason of the first node that keeps a graph dynamic whatever the sizes of its inputs.

    None when unknown sizes of inputs may be all there is: with them, shapes computed from shapes are unknown too.
    """
    has_sizes = all(node.output_descs[0].is_static for node in graph.inputs)
    for node in graph.nodes():
        why = _why(node, has_sizes)
        if why:
            return {"node": node.name, "type": node.type, "why": why}
    return None


def _why(node: OpDesc, has_sizes: bool) -> str:
    if node.subgraphs:
        return "its branches and loops are chosen while it runs"
    if not has_sizes or any(port is not None and not port.desc.is_static for port in node.inputs):
        return ""
    for index, desc in enumerate(node.output_descs):
        if not desc.is_static:
            return f"the shape of its output {index} is known only when it has run"
    return ""
