"""The structural verifier: what must be true of every graph after every pass."""

from __future__ import annotations

from gecli.ir.graph import CONTROL_KEY, Graph, GraphError
from gecli.ir.op_desc import OpDesc, Use


def verify(graph: Graph) -> list[str]:
    """All violations in a graph and its subgraphs, one sentence each; an empty list means the graph is sound."""
    problems: list[str] = []
    for each in graph.all_graphs():
        problems += _verify_one(each)
    return problems


def _verify_one(graph: Graph) -> list[str]:
    problems: list[str] = []
    try:
        nodes = graph.nodes()
    except GraphError as err:
        return [str(err)]
    edges = 0
    for node in nodes:
        problems += _verify_node(graph, node)
        edges += len(node.data_inputs) + len(node.control_in)
    if graph.networkx.number_of_nodes() != len(nodes) or graph.networkx.number_of_edges() != edges:
        problems.append(f"graph {graph.name!r}: the networkx store and the adjacency on the nodes differ")
    if graph.count_of("NetOutput") > 1:
        problems.append(f"graph {graph.name!r} has {graph.count_of('NetOutput')} NetOutput nodes")
    indices = [node.attrs.get("index") for node in graph.inputs if node.attrs.get("index") is not None]
    if len(set(indices)) != len(indices):
        problems.append(f"graph {graph.name!r}: two Data nodes have the same index")
    return problems


def _verify_node(graph: Graph, node: OpDesc) -> list[str]:
    problems: list[str] = []
    where = f"node {node.name!r} ({node.type})"
    if node.graph is not graph:
        problems.append(f"{where} does not belong to graph {graph.name!r}")
    if len(node.inputs) != len(node.input_descs):
        problems.append(f"{where} has {len(node.inputs)} inputs but {len(node.input_descs)} input descs")
    if len(node.users) != len(node.output_descs):
        problems.append(f"{where} has {len(node.users)} outputs but {len(node.output_descs)} output descs")
    for slot, port in enumerate(node.inputs):
        if port is None:
            continue
        if port.node.graph is not graph:
            problems.append(f"{where}: input {slot} comes from {port.node.name!r}, which is not in the graph")
        elif port.index >= len(port.node.output_descs):
            problems.append(f"{where}: input {slot} reads output {port.index} that {port.node.name!r} does not have")
        elif Use(node, slot) not in port.node.users[port.index]:
            problems.append(f"{where}: input {slot} is not among the users of {port}")
        elif not graph.networkx.has_edge(port.node.name, node.name, ("d", port.index, slot)):
            problems.append(f"{where}: input {slot} is missing in the networkx store")
        if slot < len(node.input_descs) and node.input_descs[slot] is None:
            problems.append(f"{where}: connected input {slot} has no desc")
    for before in node.control_in:
        if before.graph is not graph:
            problems.append(f"{where} is ordered behind {before.name!r}, which is not in the graph")
        elif not graph.networkx.has_edge(before.name, node.name, CONTROL_KEY):
            problems.append(f"{where}: the control edge from {before.name!r} is missing in the networkx store")
    for name in node.subgraphs:
        if name not in graph.subgraphs:
            problems.append(f"{where} names the subgraph {name!r}, which does not exist")
    return problems
