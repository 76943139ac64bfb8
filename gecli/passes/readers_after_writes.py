"""Who reads a variable only after it was written in the same graph, and what each of these readers waits for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from gecli.ir.graph import Graph
from gecli.ir.op_desc import OpDesc, Use


class WrittenVariables:
    """The variable refs of all graphs of a model, and the nodes that call graphs: looked for once, before a pass works.

    The pass may insert nodes and move edges as long as it leaves these.
    """

    def __init__(self, root: Graph) -> None:
        self._refs: dict[str, dict[str, list[OpDesc]]] = {}
        self._callers: dict[str, list[OpDesc]] = {}
        for graph in root.all_graphs():
            for node in graph.nodes():
                if node.ref_variable is not None and node.type == "Variable":
                    self._refs.setdefault(node.ref_variable, {}).setdefault(graph.name, []).append(node)
                if node.subgraphs:
                    self._callers.setdefault(graph.name, []).append(node)

    def readers_after_writes(self, graph: Graph, variable: OpDesc) -> list[tuple[tuple[OpDesc, ...], list[Use]]]:
        """The uses of `variable` behind a write to it, together where they wait for the same nodes: these, the uses.

        A NetOutput reads what a variable holds when the graph ends: it waits for every write. Needs the variable refs
        that VariablePrepare adds, since the value is in the variable when its ref has run.
        """
        writers = self._writers(graph, variable.name)
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

    def _writers(self, graph: Graph, variable: str) -> list[OpDesc]:
        """The refs of a variable in a graph, and its nodes that call a graph with one."""
        written = self._refs.get(variable)
        if written is None:
            return []
        own = written.get(graph.name, [])
        if own and len(written) == 1:
            return own
        return own + [node for node in self._callers.get(graph.name, ()) if self._calls(graph, node, written)]

    def _calls(self, graph: Graph, caller: OpDesc, written: Mapping[str, list[OpDesc]]) -> bool:
        for name in caller.subgraphs:
            called = graph.root.subgraphs.get(name)
            if called is None:
                continue
            if name in written or any(self._calls(called, node, written) for node in self._callers.get(name, ())):
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
