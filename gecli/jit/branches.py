"""Putting the graph of a branch in the place of the node that would choose it."""

from __future__ import annotations

from gecli.ir.attributes import DATA_TYPES
from gecli.ir.calls import argument_slot
from gecli.ir.graph import Graph
from gecli.ir.op_desc import OpDesc, Port


def inline_branch(graph: Graph, choice: OpDesc, branch: int) -> list[Port]:
    """Replace an If or Case by its branch; returns the ports that give what its outputs gave."""
    inner = graph.subgraphs[choice.subgraphs[branch]]
    twins: dict[OpDesc, OpDesc] = {}
    arguments: dict[OpDesc, Port] = {}
    outputs: list[Port] = []
    for node in inner.nodes():
        if node.type in DATA_TYPES:
            port = choice.inputs[argument_slot(node, choice)]
            assert port is not None  # the branch reads it
            arguments[node] = port
            continue
        ports = [None if port is None else _outer(port, twins, arguments) for port in node.inputs]
        if node.type == "NetOutput":
            outputs = [port for port in ports if port is not None]
            continue
        twins[node] = _copied(graph, choice, node, ports)
        for before in node.control_in:
            if before in twins:
                graph.add_control(twins[before], twins[node])
    _move_control(graph, choice, list(twins.values()))
    for index, port in enumerate(outputs[: len(choice.output_descs)]):
        graph.move_users(choice.out(index), port)
    graph.remove(choice)
    forget_unused_subgraphs(graph)
    return outputs


def forget_unused_subgraphs(graph: Graph) -> None:
    """Drop the subgraphs that no node calls any more."""
    used = {each.name for each in graph.all_graphs() if each is not graph}
    for name in [name for name in graph.subgraphs if name not in used]:
        del graph.subgraphs[name]


def _outer(port: Port, twins: dict[OpDesc, OpDesc], arguments: dict[OpDesc, Port]) -> Port:
    return arguments[port.node] if port.node in arguments else Port(twins[port.node], port.index)


def _copied(graph: Graph, choice: OpDesc, node: OpDesc, ports: list[Port | None]) -> OpDesc:
    twin = graph.create(
        node.type,
        f"{choice.name}/{node.name}",
        near=choice,
        attrs=dict(node.attrs),
        output_descs=list(node.output_descs),
        input_descs=list(node.input_descs),
        input_names=node.input_names,
        output_names=node.output_names,
        subgraphs=list(node.subgraphs),
    )
    for name in node.subgraphs:
        graph.subgraphs[name].parent = graph
    for slot, port in enumerate(ports):
        if port is not None:
            graph.connect(port, twin, slot)
    return twin


def _move_control(graph: Graph, choice: OpDesc, twins: list[OpDesc]) -> None:
    """What ran before the choice runs before the branch, and what ran after it after."""
    for before in list(choice.control_in):
        for twin in twins:
            graph.add_control(before, twin)
    for after in list(choice.control_out):
        for twin in twins:
            graph.add_control(twin, after)
