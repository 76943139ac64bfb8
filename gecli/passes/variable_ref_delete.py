"""Fold variable refs into their producers' output descriptors (GE: VariableRefDeleteOpPass)."""

from __future__ import annotations

from collections import Counter

from gecli.errors import CompileError
from gecli.ir.attributes import PARENT_NODE_INDEX, REF_VAR_SRC_VAR_NAME
from gecli.ir.graph import Graph
from gecli.ir.op_desc import OpDesc, Port
from gecli.ir.surgery import isolate
from gecli.passes.base import Pass, PassContext, Stage
from gecli.passes.facts import Fact
from gecli.passes.variable_prepare import VAR_LIKE_TYPES


class VariableRefDelete(Pass):
    """Remove every ref; the output that fed it carries the variable's name and will lie at its address.

    An output that comes out of subgraphs is marked where each of them produces it (GE marks the last one only). No
    later pass may remove the marked nodes.
    """

    name = "VariableRefDeleteOpPass"
    stage = Stage.OPTIMIZE_2
    ensures = (Fact.NO_VARIABLE_REFS, Fact.ACYCLIC)
    level = "O3"
    correctness = True

    def run(self, graph: Graph, ctx: PassContext) -> Counter[str]:
        counts = Counter[str]()
        names = {node.name for each in graph.root.all_graphs() for node in each.nodes_of(*sorted(VAR_LIKE_TYPES))}
        refs = [
            (each, node)
            for each in graph.all_graphs()
            for node in each.nodes_of(*sorted(VAR_LIKE_TYPES))
            if node.ref_variable is not None
        ]
        targets = [_outputs_to_mark(each, ref, names) for each, ref in refs]
        for (each, ref), ports in zip(refs, targets, strict=True):
            for port in ports:
                port.node.output_descs[port.index] = port.desc.with_attr(REF_VAR_SRC_VAR_NAME, ref.ref_variable)
            ctx.record(
                self.name, "stored_by", variable=ref.ref_variable, node=ref.name, outputs=[str(port) for port in ports]
            )
            isolate(each, ref)
            counts["refs_removed"] += 1
        return counts


def _outputs_to_mark(graph: Graph, ref: OpDesc, names: set[str]) -> list[Port]:
    """The ports whose data become the variable's. Raises CompileError for a ref to nothing or from nothing."""
    variable = ref.ref_variable
    if variable not in names:
        raise _broken(ref, f"there is no variable {variable!r} in the graph")
    port = ref.inputs[0] if ref.inputs else None
    if port is None:
        raise _broken(ref, "its input is not connected")
    ports = _inner_outputs(graph, port, ref) if port.node.subgraphs else [port]
    return [each for each in ports if each.node.name != variable]


def _inner_outputs(graph: Graph, port: Port, ref: OpDesc) -> list[Port]:
    """What produces output `port` of a node with subgraphs, in each of them that has such an output."""
    found: list[Port] = []
    for name in port.node.subgraphs:
        output = graph.subgraphs[name].net_output
        slot = None if output is None else _slot_of(output, port.index)
        if output is None or slot is None:
            continue
        inner = output.inputs[slot]
        if inner is None:
            raise _broken(ref, f"output {port.index} of subgraph {name!r} is not connected")
        found += _inner_outputs(graph, inner, ref) if inner.node.subgraphs else [inner]
    return found


def _slot_of(output: OpDesc, index: int) -> int | None:
    """Which input of a subgraph's NetOutput becomes output `index` of the calling node."""
    marks = [None if desc is None else desc.attrs.get(PARENT_NODE_INDEX) for desc in output.input_descs]
    if any(mark is not None for mark in marks):
        return marks.index(index) if index in marks else None
    return index if index < len(output.inputs) else None


def _broken(ref: OpDesc, why: str) -> CompileError:
    return CompileError(
        "G2018",
        f"variable ref {ref.name!r} cannot be folded into the node that writes it",
        kind="PASS_FAILED",
        where=f"node {ref.name} ({ref.type})",
        why=why,
        node=ref.name,
    )
