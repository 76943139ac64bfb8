"""Let a graph use variables that an earlier graph of the session stores in another form (GE: UpdateVariableFormats)."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import NamedTuple

from gecli.errors import CompileError
from gecli.ir.attributes import INIT_VALUE
from gecli.ir.graph import Graph, feed
from gecli.ir.op_desc import OpDesc, Use
from gecli.ir.surgery import insert_after, insert_on_edge, move_in_control
from gecli.ir.tensor_desc import NO_ATTRS, TensorDesc
from gecli.passes.base import Pass, PassContext, Stage
from gecli.passes.facts import Fact
from gecli.passes.readers_after_writes import WrittenVariables
from gecli.passes.trans_ops import add_shape_input, node_of
from gecli.variables.trans_road import TransRoad, TransStep


class RecoverTransRoads(Pass):
    """Give each variable that has a trans road its stored form, with conversions to and from the declared one.

    Readers get the road backwards behind the variable, each ref gets the road forwards before it. Pairs of
    conversions that undo each other then are removed by CancelInverseTrans.

    GE lets all readers share one conversion, which runs before the variable is written: who reads it after a write
    would get the old value. Here those readers have conversions of their own, which run when the reader would, and
    outputs of the graph are converted behind every write.
    """

    name = "UpdateVariableFormats"
    stage = Stage.RUNNING_FORMAT
    requires = (Fact.VARIABLES_PREPARED,)
    ensures = (Fact.ACYCLIC,)
    correctness = True

    def run(self, graph: Graph, ctx: PassContext) -> Counter[str]:
        counts = Counter[str]()
        planned = [
            _plan(node, road)
            for each in graph.all_graphs()
            for node in each.nodes_of("Variable")
            if (road := _road_to_recover(node, ctx))
        ]
        if not planned:
            return counts
        written = WrittenVariables(graph)
        for plan in planned:
            node = plan.node
            counts["variables_recovered"] += node.ref_variable is None
            steps = len(plan.conversions)
            ctx.record(self.name, "recovered", variable=node.ref_variable or node.name, node=node.name, steps=steps)
            counts["conversions_inserted"] += _recover(plan, written)
        return counts


class _Plan(NamedTuple):
    """A variable or ref, the nodes that are inserted at it (the nearest one first), and its stored descriptors."""

    node: OpDesc
    conversions: list[OpDesc]
    input_desc: TensorDesc
    output_desc: TensorDesc


def _plan(node: OpDesc, road: TransRoad) -> _Plan:
    steps = road.reversed() if node.ref_variable is None else tuple(reversed(road))
    conversions = [node_of(step, "", node) for step in steps]
    stored = _plain(road.target)
    if node.ref_variable is not None:
        return _Plan(node, conversions, stored, stored)
    declared, initial = node.output_descs[0], node.init_value
    desc = replace(road.target, name=declared.name, attrs=declared.attrs)
    if initial is not None:
        desc = desc.with_attr(INIT_VALUE, road.convert_weight(initial))
    return _Plan(node, conversions, stored, desc)


def _road_to_recover(node: OpDesc, ctx: PassContext) -> TransRoad | None:
    """The steps from the form that `node` declares to the stored one; None when it has the stored form already.

    Raises CompileError when the road does not begin at the declared form.
    """
    road = ctx.variables.trans_road(node.ref_variable or node.name)
    declared = node.output_descs[0]
    if not road or declared.same_storage(road.target):
        return None
    if declared.dtype is not road.source.dtype or declared.shape != road.source.shape:
        raise CompileError(
            "G2016",
            f"variable {node.ref_variable or node.name!r} is declared in another form than in an earlier graph",
            kind="VAR_ROAD_CONFLICT",
            where=f"graph {node.graph.root.name!r}, node {node.name} ({node.type})",
            why=f"declared {declared}, the session's variable was declared {road.source}",
            do="declare the variable as the first graph does, or rename it",
            node=node.name,
        )
    if declared.format == road.source.format:
        return road
    first = TransStep("ReFormat", _plain(declared), _plain(road.source))
    return TransRoad((first, *road))


def _plain(desc: TensorDesc) -> TensorDesc:
    return replace(desc, attrs=NO_ATTRS)


def _recover(plan: _Plan, written: WrittenVariables) -> int:
    """Returns how many conversions were put in."""
    node = plan.node
    graph: Graph = node.graph
    count = len(plan.conversions)
    if node.ref_variable is None:
        later = written.readers_after_writes(graph, node)
        copies = [[_copy(each) for each in plan.conversions] for _ in later]
        _insert_behind(graph, node, plan.conversions)
        for conversions, (before, uses) in zip(copies, later):
            _insert_later(graph, node, conversions, before, uses)
            count += len(conversions)
    else:
        _insert_before(graph, node, plan.conversions)
    node.output_descs[0] = plan.output_desc
    if node.input_descs:
        node.input_descs[0] = plan.input_desc
    return count


def _copy(node: OpDesc) -> OpDesc:
    return OpDesc(
        "", node.type, attrs=dict(node.attrs), input_descs=list(node.input_descs), output_descs=list(node.output_descs)
    )


def _insert_behind(graph: Graph, variable: OpDesc, conversions: list[OpDesc]) -> None:
    port = variable.out()
    for number, inserted in enumerate(conversions):
        inserted.name = graph.unique_name(f"{variable.name}_trans_{number}")
        port = insert_after(graph, port, inserted).out()
        add_shape_input(graph, inserted)


def _insert_later(
    graph: Graph, variable: OpDesc, conversions: list[OpDesc], before: tuple[OpDesc, ...], uses: list[Use]
) -> None:
    """Conversions for `uses` alone, which run when `before` have run."""
    port = variable.out()
    near = max(before, key=lambda node: (node.rank, node.seq))
    for number, inserted in enumerate(conversions):
        inserted.name = graph.unique_name(f"{variable.name}_trans_{number}")
        wanted = inserted.input_descs[0]
        near = graph.add(inserted, near=near)
        feed(graph, inserted, port)
        inserted.input_descs[0] = wanted
        port = inserted.out()
        add_shape_input(graph, inserted)
    for node in before:
        graph.add_control(node, conversions[0])
    for use in uses:
        graph.replace_input(use.node, use.slot, port)


def _insert_before(graph: Graph, ref: OpDesc, conversions: list[OpDesc]) -> None:
    """The step next to the ref is inserted, and numbered, first."""
    target = ref
    for number, inserted in enumerate(conversions):
        inserted.name = graph.unique_name(f"{ref.name}_trans_{number}")
        target = insert_on_edge(graph, Use(target, 0), inserted)
        add_shape_input(graph, inserted)
    move_in_control(graph, ref, target)
