"""Which nodes of a graph come before and which behind each write to a variable."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from gecli.engine.trans_ops import TRANS_OPS
from gecli.ir.attributes import VARIABLE_TYPES
from gecli.ir.graph import Graph
from gecli.ir.op_desc import OpDesc, Port, Use
from gecli.passes.written_inputs import writes_at


class Reference(NamedTuple):
    """A port in the memory of a variable, and the nodes that have written there when it is made."""

    port: Port
    writers: frozenset[OpDesc]


class WriteOrder:
    """The writes of a graph in which every write ends in a variable ref.

    What writes a variable are its refs, the operators that write in place what they store, and nodes that call a graph
    which does.
    One walk over the graph answers for all of them: `before` and `behind` cost nothing more.
    """

    def __init__(self, graph: Graph) -> None:
        self._writers: dict[str, dict[OpDesc, int]] = {}
        self._after: dict[OpDesc, int] = {}  # the writers that run before a node, a bit for each
        self._until: dict[OpDesc, int] = {}  # the writers that run behind it
        self._bits: dict[OpDesc, int] = {}
        self._find(graph)
        if self._bits:
            self._walk(graph.nodes())

    def writers(self, variable: str) -> tuple[OpDesc, ...]:
        return tuple(self._writers.get(variable, ()))

    def behind(self, node: OpDesc, writers: Iterable[OpDesc]) -> list[OpDesc]:
        """Those of `writers` to which `node` comes later; the NetOutput comes after all."""
        if node.type == "NetOutput":
            return list(writers)
        bits = self._after.get(node, 0)
        return [writer for writer in writers if bits & self._bits[writer]]

    def is_before(self, node: OpDesc, writer: OpDesc) -> bool:
        return bool(self._until.get(node, 0) & self._bits[writer])

    def _find(self, graph: Graph) -> None:
        for ref in graph.nodes_of("Variable", "VariableV2"):
            if ref.ref_variable is not None:
                self._add(ref.ref_variable, ref)
                writer = _writer_before(ref)
                if writer is not None:
                    self._add(ref.ref_variable, writer)
        for variable in graph.nodes_of("Variable", "VariableV2"):
            if variable.ref_variable is None:
                for reference in references(graph, variable):
                    for writer in reference.writers:
                        self._add(variable.name, writer)
        if graph.root.subgraphs:
            written = _written_in(graph.root)
            for node in graph.nodes():
                for name in sorted({name for called in node.subgraphs for name in written.get(called, ())}):
                    self._add(name, node)

    def _add(self, variable: str, node: OpDesc) -> None:
        bit = self._bits.setdefault(node, 1 << len(self._bits))
        self._writers.setdefault(variable, {})[node] = bit

    def _walk(self, nodes: list[OpDesc]) -> None:
        bits, after, until = self._bits, self._after, self._until
        for node in nodes:
            found = 0
            for port in node.inputs:
                if port is not None:
                    found |= after[port.node] | bits.get(port.node, 0)
            for before in node.control_in:
                found |= after[before] | bits.get(before, 0)
            after[node] = found
        for node in reversed(nodes):
            found = 0
            for users in node.users:
                for use in users:
                    found |= until[use.node] | bits.get(use.node, 0)
            for behind in node.control_out:
                found |= until[behind] | bits.get(behind, 0)
            until[node] = found


def references(graph: Graph, variable: OpDesc) -> Iterator[Reference]:
    """The ports of a graph that lie in a variable's memory, the variable itself first."""
    waiting = [Reference(variable.out(), frozenset())]
    seen: set[Port] = set()
    while waiting:
        reference = waiting.pop()
        if reference.port in seen:
            continue
        seen.add(reference.port)
        yield reference
        for use in graph.consumers(reference.port):
            if use.node.type == "RefIdentity":
                waiting.append(Reference(use.node.out(), reference.writers))
            waiting += _written(use, reference)


def keeps_a_value(node: OpDesc) -> bool:
    """Whether a node that copies its input has what the memory of a variable held, while something else writes there.

    Without it, whoever comes behind would read later, or write the variable in place of the copy. Needs no refs, and
    knows no order.
    """
    port = node.inputs[0] if node.inputs else None
    made: set[OpDesc] = set()
    while port is not None and not port.node.is_variable:
        source = _source(port)
        if source is None or port.node in made:
            return False
        made.add(port.node)
        port = source
    if port is None:
        return False
    variable = port.node
    graph: Graph = variable.graph
    if any(writes_at(use) for use in node.users[0]):
        return True
    if any(reference.writers - made for reference in references(graph, variable)):
        return True
    if any(use.node.subgraphs for use in graph.consumers(variable.out())):
        return True
    others = (node for each in graph.root.all_graphs() for node in each.nodes_of(*sorted(VARIABLE_TYPES)))
    return any(node is not variable and variable.name in (node.name, node.ref_variable) for node in others)


def _source(port: Port) -> Port | None:
    """The port in whose memory `port` lies: what an operator writes in place is shown by an output."""
    node = port.node
    if node.type == "RefIdentity":
        return node.inputs[0]
    for slot in range(len(node.inputs)):
        if any(output == port.index for _, output in writes_at(Use(node, slot))):
            return node.inputs[slot]
    return None


def _written(use: Use, reference: Reference) -> Iterator[Reference]:
    writers = reference.writers | {use.node}
    for _, output in writes_at(use):
        if output is not None:
            yield Reference(use.node.out(output), writers)


def _writer_before(ref: OpDesc) -> OpDesc | None:
    """The operator that writes in place what a ref stores, maybe behind conversions that a pass may take out."""
    port = ref.inputs[0] if ref.inputs else None
    while port is not None and port.node.type in TRANS_OPS:
        port = port.node.inputs[0]
    if port is None:
        return None
    return port.node if _source(port) is not None and port.node.type != "RefIdentity" else None


def _written_in(root: Graph) -> dict[str, set[str]]:
    """The variables that each graph writes, itself or in the graphs that it calls."""
    graphs = list(root.all_graphs())
    found = {
        each.name: {node.ref_variable for node in each.nodes_of(*sorted(VARIABLE_TYPES)) if node.ref_variable}
        for each in graphs
    }
    changed = True
    while changed:
        changed = False
        for each in graphs:
            mine = found[each.name]
            below = {name for node in each.nodes() for called in node.subgraphs for name in found.get(called, ())}
            changed = changed or not below <= mine
            mine |= below
    return found
