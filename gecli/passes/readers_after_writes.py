"""Who reads a variable only after it was written in the same graph, and what each of these readers waits for."""

from __future__ import annotations

from collections.abc import Iterable

from gecli.ir.graph import Graph
from gecli.ir.op_desc import OpDesc, Use


def readers_after_writes(graph: Graph, variable: OpDesc) -> list[tuple[tuple[OpDesc, ...], list[Use]]]:
    """The uses of `variable` behind a write to it, together where they wait for the same nodes: these nodes, the uses.

    A NetOutput reads what a variable holds when the graph ends: it waits for every write. Needs the variable refs that
    VariablePrepare adds, since the value is in the variable when its ref has run.
    """
    writers = _writers(graph, variable.name)
    if not writers:
        return []
    behind = _behind(writers)
    groups: dict[tuple[OpDesc, ...], list[Use]] = {}
    for use in graph.consumers(variable.out()):
        before: Iterable[OpDesc] = ()
        if use.node.type == "NetOutput":
            before = writers
        elif use.node in behind:
            data = (port.node for port in use.node.data_inputs if port.node in behind)
            before = dict.fromkeys((*use.node.control_in, *data))
        key = tuple(sorted((node for node in before if node is not variable), key=lambda node: node.name))
        if key:
            groups.setdefault(key, []).append(use)
    return list(groups.items())


def _writers(graph: Graph, variable: str) -> list[OpDesc]:
    """The refs of a variable, and the nodes that call a graph with one."""
    written = {
        each.name
        for each in graph.root.all_graphs()
        for node in each.nodes_of("Variable")
        if node.ref_variable == variable
    }
    if not written:
        return []
    own = [node for node in graph.nodes_of("Variable") if node.ref_variable == variable]
    if written == {graph.name}:
        return own
    return own + [node for node in graph.nodes() if node.subgraphs and _calls(graph, node, written)]


def _calls(graph: Graph, caller: OpDesc, written: set[str]) -> bool:
    for name in caller.subgraphs:
        called = graph.root.subgraphs.get(name)
        if called is None:
            continue
        if name in written or any(_calls(called, node, written) for node in called.nodes() if node.subgraphs):
            return True
    return False


def _behind(nodes: list[OpDesc]) -> set[OpDesc]:
    """The nodes, and all that a path of data or control edges leads to."""
    found = set(nodes)
    stack = list(nodes)
    while stack:
        node = stack.pop()
        for after in (*(use.node for users in node.users for use in users), *node.control_out):
            if after not in found:
                found.add(after)
                stack.append(after)
    return found
