"""Answer at compile time whether a variable is initialised (GE: VarIsInitializedOpPass)."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

import numpy as np

from gecli.errors import CompileError, Diagnostic
from gecli.ir.attributes import VALUE
from gecli.ir.dtype import DataType
from gecli.ir.graph import Graph
from gecli.ir.op_desc import OpDesc, Port
from gecli.ir.surgery import move_in_control, move_out_control
from gecli.ir.tensor_desc import TensorDesc
from gecli.ir.weight import Weight
from gecli.passes.base import Pass, PassContext, Stage
from gecli.passes.facts import Fact

_QUESTIONS = ("IsVariableInitialized", "VarIsInitializedOp")


class VarIsInitialized(Pass):
    """Replace the question by a constant: true when the session knows the variable, or an Assign surely ran before.

    GE means by "knows" that some compiled graph uses the variable. Where none gives it a value the user is told; with
    `--strict-var-init` only a value counts.
    """

    name = "VarIsInitializedOpPass"
    stage = Stage.PREPARE
    ensures = (Fact.ACYCLIC,)
    correctness = True

    def run(self, graph: Graph, ctx: PassContext) -> Counter[str]:
        counts = Counter[str]()
        for question in [question for each in graph.all_graphs() for question in _questions(each)]:
            node, variable, before = question
            known = ctx.variables.exists(variable.name)
            if known and not before and not ctx.variables.resource.is_assigned(variable.name):
                known = not ctx.settings.strict_var_init
                if known:
                    ctx.warnings.append(_never_assigned(node, variable))
            answer = known or before
            reason = "in the session" if known else "assigned before" if answer else "not assigned before"
            ctx.record(self.name, "answered", variable=variable.name, node=node.name, answer=answer, reason=reason)
            _replace(node.graph, node, variable, answer)
            counts["answered"] += 1
        return counts


class _Question(NamedTuple):
    """A node that asks, the variable it asks about, and whether an Assign has surely written that before."""

    node: OpDesc
    variable: OpDesc
    before: bool


def _questions(graph: Graph) -> list[_Question]:
    """Raises CompileError for a question of another shape, and for an Assign of nothing."""
    nodes = graph.nodes_of(*_QUESTIONS)
    if not nodes:
        return []
    variables = [_variable_of(node) for node in nodes]
    assigned = _assigned_before(graph)
    return [_Question(node, variable, variable in assigned[node]) for node, variable in zip(nodes, variables)]


def _variable_of(node: OpDesc) -> OpDesc:
    """The variable asked about. Raises CompileError for any other shape of the question."""
    inputs = node.data_inputs
    if len(inputs) == 1 and inputs[0].node.type == "Variable" and len(node.output_descs) == 1:
        return inputs[0].node
    actual = ", ".join(f"{port} of type {port.node.type}" for port in inputs) or "none"
    raise CompileError(
        "G2018",
        f"node {node.name!r} cannot tell whether a variable is initialised",
        kind="PASS_FAILED",
        where=f"node {node.name} ({node.type})",
        why=f"expected one input from a Variable and one output; actual inputs: {actual},"
        f" {len(node.output_descs)} outputs",
        do="connect the node to a Variable directly",
        node=node.name,
    )


def _never_assigned(node: OpDesc, variable: OpDesc) -> Diagnostic:
    return Diagnostic(
        "G2018",
        f"variable {variable.name!r} counts as initialised, but no graph of the session gives it a value",
        where=f"node {node.name} ({node.type})",
        why="GE asks only whether a compiled graph uses the variable",
        do="--strict-var-init answers false",
        node=node.name,
        severity="warning",
    )


def _assigned_before(graph: Graph) -> dict[OpDesc, frozenset[OpDesc]]:
    """For each node the nodes that an Assign has surely written before it. Only Assign counts, as in GE."""
    nothing: frozenset[OpDesc] = frozenset()
    found: dict[OpDesc, frozenset[OpDesc]] = {}
    for node in graph.nodes():
        known = nothing
        for before in graph.predecessors(node):
            known = known | found[before] if known else found[before]
        if node.type == "Assign":
            port = node.inputs[0] if node.inputs else None
            if port is None:
                raise CompileError(
                    "G2018",
                    f"Assign {node.name!r} writes nothing: its input 0 is not connected",
                    kind="PASS_FAILED",
                    where=f"node {node.name} (Assign)",
                    node=node.name,
                )
            known = known | {port.node}
        found[node] = known
    return found


def _replace(graph: Graph, node: OpDesc, variable: OpDesc, answer: bool) -> None:
    desc = node.output_descs[0]
    if desc.dtype is not DataType.BOOL or not desc.is_static or desc.elements != 1:
        desc = TensorDesc(DataType.BOOL, ())
    weight = Weight.of(np.full(desc.shape, answer, np.bool_), desc)
    constant = graph.create("Const", node.name, near=variable, attrs={VALUE: weight}, output_descs=[desc])
    graph.disconnect(node, 0)
    graph.move_users(node.out(), Port(constant, 0))
    move_in_control(graph, node, constant)
    move_out_control(graph, node, constant)
    name = node.name
    graph.remove(node)
    graph.rename(constant, name)
    graph.add_control(variable, constant)
