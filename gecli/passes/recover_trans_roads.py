"""Let a graph use variables that an earlier graph of the session stores in another form (GE: UpdateVariableFormats)."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from gecli.errors import CompileError
from gecli.ir.graph import Graph
from gecli.ir.op_desc import OpDesc, Use
from gecli.ir.surgery import insert_after, insert_on_edge, move_in_control
from gecli.ir.tensor_desc import NO_ATTRS, TensorDesc
from gecli.passes.base import Pass, PassContext, Stage
from gecli.passes.facts import Fact
from gecli.passes.trans_ops import add_shape_input, node_of
from gecli.variables.trans_road import TransRoad, TransStep


class RecoverTransRoads(Pass):
    """Give each variable that has a trans road its stored form, with conversions to and from the declared one.

    Readers get the road backwards behind the variable, each ref gets the road forwards before it. Pairs of
    conversions that undo each other then are removed by CancelInverseTrans.
    """

    name = "UpdateVariableFormats"
    stage = Stage.RUNNING_FORMAT
    requires = (Fact.VARIABLES_PREPARED,)
    ensures = (Fact.ACYCLIC,)
    correctness = True

    def run(self, graph: Graph, ctx: PassContext) -> Counter[str]:
        counts = Counter[str]()
        planned = [
            (each, node, road)
            for each in graph.all_graphs()
            for node in each.nodes_of("Variable")
            if (road := _road_to_recover(node, ctx))
        ]
        for each, node, road in planned:
            inserted = _recover(each, node, road)
            counts["conversions_inserted"] += inserted
            counts["variables_recovered"] += node.ref_variable is None
            ctx.record(self.name, "recovered", variable=node.ref_variable or node.name, node=node.name, steps=len(road))
        return counts


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
            where=f"node {node.name} ({node.type})",
            why=f"declared {declared}, the session's variable was declared {road.source}",
            do="declare the variable as the first graph does, or compile both with --no-variable-acc",
            node=node.name,
        )
    if declared.format == road.source.format:
        return road
    first = TransStep("ReFormat", _plain(declared), _plain(road.source))
    return TransRoad((first, *road))


def _plain(desc: TensorDesc) -> TensorDesc:
    return replace(desc, attrs=NO_ATTRS)


def _recover(graph: Graph, node: OpDesc, road: TransRoad) -> int:
    if node.ref_variable is None:
        _insert_behind(graph, node, road)
        initial = node.init_value
        node.output_descs[0] = replace(road.target, name=node.output_descs[0].name, attrs=node.output_descs[0].attrs)
        if initial is not None:
            node.set_init_value(road.convert_weight(initial))
    else:
        _insert_before(graph, node, road)
        node.output_descs[0] = _plain(road.target)
    if node.input_descs:
        node.input_descs[0] = _plain(road.target)
    return len(road)


def _insert_behind(graph: Graph, variable: OpDesc, road: TransRoad) -> None:
    port = variable.out()
    for number, step in enumerate(road.reversed()):
        inserted = node_of(step, graph.unique_name(f"{variable.name}_trans_{number}"), variable)
        port = insert_after(graph, port, inserted).out()
        add_shape_input(graph, inserted)


def _insert_before(graph: Graph, ref: OpDesc, road: TransRoad) -> None:
    """The step next to the ref is inserted, and numbered, first."""
    target = ref
    for number, step in enumerate(reversed(road)):
        inserted = node_of(step, graph.unique_name(f"{ref.name}_trans_{number}"), ref)
        target = insert_on_edge(graph, Use(target, 0), inserted)
        add_shape_input(graph, inserted)
    move_in_control(graph, ref, target)
