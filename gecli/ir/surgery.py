"""Graph surgery with GE's exact rules (variables.md 7.1): what passes use to take nodes out and put nodes in."""

from __future__ import annotations

from gecli.ir.graph import Graph, feed
from gecli.ir.op_desc import OpDesc, Port, Use


def isolate(graph: Graph, node: OpDesc) -> None:
    """Take `node` out and delete it: consumers of output 0 read the producer of input 0.

    Every predecessor is then ordered before every former successor by a control edge, except where the successor was
    just attached to it by data. (GE: IsolateNode with io map {0}, then removal.)
    """
    before = graph.predecessors(node)
    after = graph.successors(node)
    source = node.inputs[0] if node.inputs else None
    attached: set[tuple[OpDesc, OpDesc]] = set()
    if node.users:
        for use in graph.consumers(node.out(0)):
            graph.disconnect(use.node, use.slot)
            if source is not None:
                graph.connect(source, use.node, use.slot)
                attached.add((source.node, use.node))
    graph.remove(node)
    for first in before:
        for second in after:
            if first is not second and (first, second) not in attached:
                graph.add_control(first, second)


def bypass(graph: Graph, use: Use) -> None:
    """Let one consumer read the producer of the node before it; that node stays for its other consumers.

    The consumer also gets the bypassed node's control predecessors.
    """
    port = use.node.inputs[use.slot]
    assert port is not None and port.node.inputs and port.node.inputs[0] is not None
    copy_in_control(graph, port.node, use.node)
    graph.replace_input(use.node, use.slot, port.node.inputs[0])


def insert_on_edge(graph: Graph, use: Use, node: OpDesc) -> OpDesc:
    """Put `node` (not yet in the graph, one input, one output) between a consumer's slot and its producer."""
    source = graph.disconnect(use.node, use.slot)
    assert source is not None
    graph.add(node, near=source.node)
    wanted = node.input_descs[0] if node.input_descs else source.desc
    feed(graph, node, source)
    node.input_descs[0] = wanted
    graph.connect(Port(node, 0), use.node, use.slot)
    return node


def insert_after(graph: Graph, port: Port, node: OpDesc) -> OpDesc:
    """Put `node` behind `port`: all data consumers and all control successors move behind it."""
    graph.add(node, near=port.node)
    for use in graph.consumers(port):
        graph.replace_input(use.node, use.slot, Port(node, 0))
    move_out_control(graph, port.node, node)
    wanted = node.input_descs[0] if node.input_descs else port.desc
    feed(graph, node, port)
    node.input_descs[0] = wanted
    return node


def move_out_control(graph: Graph, source: OpDesc, target: OpDesc) -> None:
    """The control successors of `source` follow `target` instead."""
    for after in list(source.control_out):
        graph.remove_control(source, after)
        graph.add_control(target, after)


def move_in_control(graph: Graph, source: OpDesc, target: OpDesc) -> None:
    """The control predecessors of `source` come before `target` instead."""
    for before in list(source.control_in):
        graph.remove_control(before, source)
        graph.add_control(before, target)


def copy_in_control(graph: Graph, source: OpDesc, target: OpDesc) -> None:
    """The control predecessors of `source` also come before `target`."""
    for before in list(source.control_in):
        graph.add_control(before, target)
