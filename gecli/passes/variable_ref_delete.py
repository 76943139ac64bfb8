"""Fold variable refs into their producers' output descriptors (GE: VariableRefDeleteOpPass)."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from gecli.errors import CompileError
from gecli.ir.attributes import (
    ASSIGN_VAR_NAME,
    CONST_TYPES,
    DATA_TYPES,
    REF_VAR_SRC_VAR_NAME,
    VARIABLE_TYPES,
)
from gecli.ir.calls import returned_slot
from gecli.ir.graph import Graph
from gecli.ir.op_desc import OpDesc, Port, Use
from gecli.ir.surgery import copy_in_control, insert_on_edge, isolate
from gecli.ir.tensor_desc import NO_ATTRS
from gecli.ops.evaluate import source_variable
from gecli.passes.base import Pass, PassContext, Stage
from gecli.passes.facts import Fact
from gecli.passes.variable_prepare import VAR_LIKE_TYPES
from gecli.passes.written_inputs import writes_of

# Their output has a place already, which is no variable's or another one's.
_PLACED_TYPES = DATA_TYPES | CONST_TYPES | VARIABLE_TYPES | {"FileConstant", "ConstPlaceHolder"}


class VariableRefDelete(Pass):
    """Remove every ref; the output that fed it carries the variable's name and will lie at its address.

    An output that comes out of subgraphs is marked where each of them produces it (GE marks the last one only). What
    has a place of its own already (a constant, an input, another variable) is copied, and the copy is marked: GE marks
    it all the same, and the variable is never written. No later pass may remove the marked nodes.
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
        plans = [_plan(each, ref, names) for each, ref in refs]
        again = {name for name, count in Counter(ref.ref_variable for _, ref in refs).items() if count > 1}
        for (each, ref), uses in zip(refs, plans, strict=True):
            assert ref.ref_variable is not None
            ports = [_marked(use, ref, counts, is_written_again=ref.ref_variable in again) for use in uses]
            ctx.record(
                self.name, "stored_by", variable=ref.ref_variable, node=ref.name, outputs=[str(port) for port in ports]
            )
            isolate(each, ref)
            counts["refs_removed"] += 1
        return counts


def _plan(graph: Graph, ref: OpDesc, names: set[str]) -> list[Use]:
    """The uses through which the variable gets its data. Raises CompileError for a ref to nothing or from nothing."""
    variable = ref.ref_variable
    if variable not in names:
        raise _broken(ref, f"there is no variable {variable!r} in the graph")
    port = ref.inputs[0] if ref.inputs else None
    if port is None:
        raise _broken(ref, "its input is not connected")
    uses = _inner_uses(graph, port, ref) if port.node.subgraphs else [Use(ref, 0)]
    return [use for use in uses if _source(use).node.name != variable]


def _inner_uses(graph: Graph, port: Port, ref: OpDesc) -> list[Use]:
    """Where each subgraph of a node returns output `port`, for those that have such an output."""
    found: list[Use] = []
    for name in port.node.subgraphs:
        output = graph.subgraphs[name].net_output
        slot = None if output is None else returned_slot(output, port.index)
        if output is None or slot is None:
            continue
        inner = output.inputs[slot]
        if inner is None:
            raise _broken(ref, f"output {port.index} of subgraph {name!r} is not connected")
        found += _inner_uses(graph, inner, ref) if inner.node.subgraphs else [Use(output, slot)]
    return found


def _source(use: Use) -> Port:
    port = use.node.inputs[use.slot]
    assert port is not None
    return port


def _marked(use: Use, ref: OpDesc, counts: Counter[str], *, is_written_again: bool) -> Port:
    """Mark the output that becomes the variable's content; a copy of it where it lies elsewhere or is read by others.

    Those others may be behind the next write to the variable.
    """
    port, variable = _source(use), ref.ref_variable
    assert variable is not None
    is_kept = is_written_again and len(port.node.users[port.index]) > 1 and not _is_written(port)
    if _lies_elsewhere(port, variable) or is_kept or _runs_before(port.node, ref):
        graph = use.node.graph
        name = graph.unique_name(f"TensorMove_{port.node.name}_{port.index}_TO_{variable}")
        desc = replace(port.desc, attrs=NO_ATTRS)
        copy = insert_on_edge(graph, use, OpDesc(name, "TensorMove", input_descs=[desc], output_descs=[desc]))
        if use.node is ref:
            copy_in_control(graph, ref, copy)
        port = copy.out()
        counts["copies_added"] += 1
    port.node.output_descs[port.index] = port.desc.with_attr(REF_VAR_SRC_VAR_NAME, variable)
    return port


def _lies_elsewhere(port: Port, variable: str) -> bool:
    """Whether an output has a place that is not the variable's."""
    node = port.node
    if node.type in _PLACED_TYPES or node.subgraphs:
        return True
    if any(port.desc.attrs.get(mark, variable) != variable for mark in (REF_VAR_SRC_VAR_NAME, ASSIGN_VAR_NAME)):
        return True
    for write in writes_of(node):
        source = source_variable(node, write.slot)
        if write.output == port.index and source is not None and source.name != variable:
            return True
    return False


def _is_written(port: Port) -> bool:
    """Whether an operator shows in this output what it has written in place."""
    return any(write.output == port.index for write in writes_of(port.node))


def _runs_before(producer: OpDesc, ref: OpDesc) -> bool:
    """Whether something must run before the ref, but not before what produces its data."""
    return any(before is not producer and before not in producer.control_in for before in ref.control_in)


def _broken(ref: OpDesc, why: str) -> CompileError:
    return CompileError(
        "G2018",
        f"variable ref {ref.name!r} cannot be folded into the node that writes it",
        kind="PASS_FAILED",
        where=f"node {ref.name} ({ref.type})",
        why=why,
        do="connect it to what writes the variable and name a Variable of the graph, or remove the node",
        node=ref.name,
    )
