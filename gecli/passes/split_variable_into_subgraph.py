"""Let subgraphs see the variables that are passed into them (GE: SplitVariableIntoSubgraphPass)."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from gecli.errors import CompileError
from gecli.ir.calls import CONTROL_TYPES, LOOP_TYPES, argument_slot
from gecli.ir.graph import Graph
from gecli.ir.op_desc import OpDesc, Port, Use
from gecli.ir.surgery import insert_on_edge
from gecli.ir.tensor_desc import NO_ATTRS
from gecli.passes.base import Pass, PassContext, Stage
from gecli.passes.facts import Fact
from gecli.passes.loop_arguments import passes_on, writer_of_argument
from gecli.passes.variable_prepare import VAR_LIKE_TYPES

_CALLER_TYPES = CONTROL_TYPES | {"For"}
_UNKNOWN_SHAPE = "_graph_unknown_flag"
_MULTI_BATCH = "mbatch-inserted-node"


class SplitVariableIntoSubgraph(Pass):
    """A variable that is an argument of a function node stands in each of its subgraphs itself, under its own name.

    The subgraph then reads and writes the variable and not a copy of it. What a loop returns for the argument is the
    variable again, if its body hands it on; a loop whose body gives another value begins with a copy of the variable.
    All nodes of one name share one entry of the variable manager.
    """

    name = "SplitVariableIntoSubgraphPass"
    stage = Stage.NORMALIZE
    ensures = (Fact.ACYCLIC,)
    correctness = True

    def run(self, graph: Graph, ctx: PassContext) -> Counter[str]:
        counts = Counter[str]()
        _require_subgraphs(graph)
        if not graph.subgraphs:
            return counts
        # A graph is visited before its subgraphs, so a variable reaches the innermost one.
        for each in graph.all_graphs():
            waiting = each.nodes_of(*sorted(VAR_LIKE_TYPES))
            while waiting:
                variable = waiting.pop(0)
                counts["values_copied"] += _copy_for_loops(each, variable, ctx)
                copied, loop_outputs = _split(each, variable, ctx)
                counts["variables_copied"] += copied
                if loop_outputs:
                    waiting.append(variable)  # it has new consumers
        return counts


def _require_subgraphs(graph: Graph) -> None:
    """Raises CompileError for a node that calls a graph which is not there."""
    for node in (node for each in graph.all_graphs() for node in each.nodes_of(*sorted(_CALLER_TYPES))):
        for name in node.subgraphs:
            if name not in graph.subgraphs:
                raise CompileError(
                    "G2018",
                    f"node {node.name!r} calls a subgraph {name!r} that does not exist",
                    kind="PASS_FAILED",
                    where=f"node {node.name} ({node.type})",
                    node=node.name,
                )


def _split(graph: Graph, variable: OpDesc, ctx: PassContext) -> tuple[int, int]:
    """Copy a variable into the subgraphs of its consumers; returns counts of copies and of rewired loop outputs."""
    copied = rewired = 0
    for use in graph.consumers(variable.out()):
        into = _copy_into_subgraphs(graph, variable, use)
        copied += into
        if into:
            ctx.record(
                SplitVariableIntoSubgraph.name,
                "copied",
                variable=variable.name,
                node=use.node.name,
                subgraphs=list(use.node.subgraphs),
            )
        if into and use.node.type in LOOP_TYPES:
            rewired += _rewire_loop(graph, variable, use)
    return copied, rewired


def _copy_for_loops(graph: Graph, variable: OpDesc, ctx: PassContext) -> int:
    """Let the loops that carry a value begin with a copy of the variable, made when the loop would read it.

    Raises CompileError for a body that also writes the argument: only a variable can be written.
    """
    uses = [use for use in graph.consumers(variable.out()) if use.node.type in LOOP_TYPES and not passes_on(*use)]
    for use in uses:
        loop = use.node
        writer = writer_of_argument(loop, use.slot)
        if writer is not None:
            raise _both(variable, loop, use.slot, writer)
        desc = replace(variable.output_descs[0], attrs=NO_ATTRS)
        name = graph.unique_name(f"TensorMove_{variable.name}_TO_{loop.name}_{use.slot}")
        copy = insert_on_edge(graph, use, OpDesc(name, "TensorMove", input_descs=[desc], output_descs=[desc]))
        for before in dict.fromkeys((*loop.control_in, *(port.node for port in loop.data_inputs))):
            if before.data_inputs or before.control_in:
                graph.add_control(before, copy)
        ctx.record(SplitVariableIntoSubgraph.name, "value copied", variable=variable.name, node=loop.name)
    return len(uses)


def _both(variable: OpDesc, loop: OpDesc, slot: int, writer: OpDesc) -> CompileError:
    return CompileError(
        "G2018",
        f"{loop.type} {loop.name!r} writes variable {variable.name!r} and goes on with another value in its place",
        kind="PASS_FAILED",
        where=f"node {writer.name} ({writer.type})",
        why=f"its body writes argument {slot} in place, and returns something else as output {slot}",
        do=f"return what {writer.name!r} gives, or pass the variable in once to be written and once as a value",
        node=loop.name,
    )


def _copy_into_subgraphs(graph: Graph, variable: OpDesc, use: Use) -> int:
    """GE lets the last subgraph alone decide whether the node counts as changed; here any of them does."""
    copied = 0
    for name in use.node.subgraphs:
        sub = graph.subgraphs[name]
        if use.node.type == "PartitionedCall" and sub.attrs.get(_UNKNOWN_SHAPE):
            break  # it is unfolded into this graph later
        copied += _copy_into(sub, variable, use)
    return copied


def _copy_into(sub: Graph, variable: OpDesc, use: Use) -> bool:
    data = next((node for node in sub.inputs if argument_slot(node, use.node) == use.slot), None)
    if data is None or not data.users[0]:
        return False
    twin = _twin(sub, variable, data)
    if variable.type == "RefData" and use.node.type == "Case" and use.node.attrs.get(_MULTI_BATCH):
        _take_dims(twin, data)
    for each in sub.consumers(data.out()):
        sub.replace_input(each.node, each.slot, Port(twin, 0))
    sub.add_control(data, twin)
    return True


def _twin(sub: Graph, variable: OpDesc, data: OpDesc) -> OpDesc:
    """The node of the variable in a subgraph: the one it has, or a copy of `variable`."""
    existing = sub.get(variable.name)
    if existing is not None and existing.type in VAR_LIKE_TYPES:
        return existing
    if existing is not None:
        # The name is the variable's identity, the other node only happens to have it.
        sub.rename(existing, sub.unique_name(variable.name))
    twin = OpDesc(
        variable.name,
        variable.type,
        attrs=dict(variable.attrs),
        output_descs=list(variable.output_descs),
        input_descs=list(variable.input_descs),
        input_names=variable.input_names,
        output_names=variable.output_names,
    )
    return sub.add(twin, near=data)


def _rewire_loop(graph: Graph, variable: OpDesc, use: Use) -> int:
    """Who takes the loop's output for this argument reads the variable, after the loop."""
    if use.slot >= len(use.node.output_descs):
        return 0
    uses = graph.consumers(use.node.out(use.slot))
    for each in uses:
        graph.replace_input(each.node, each.slot, variable.out())
        graph.add_control(use.node, each.node)
    return len(uses)


def _take_dims(twin: OpDesc, data: OpDesc) -> None:
    """Give a writable input of one batch size the dims of that branch."""
    shape = data.output_descs[0].shape
    for descs in (twin.output_descs, twin.input_descs):
        for index, desc in enumerate(descs[:1]):
            if desc is not None:
                descs[index] = replace(desc, shape=shape, origin_shape=shape)
