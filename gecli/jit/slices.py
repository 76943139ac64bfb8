"""Taking a graph apart at a cut: the slice and what remains, and how they are joined (cache.md 9.6, Building)."""

from __future__ import annotations

from collections.abc import Collection

from gecli.ir.attributes import DATA_INDEX, DATA_TYPES
from gecli.ir.graph import Graph
from gecli.ir.op_desc import OpDesc, Port
from gecli.jit.branches import forget_unused_subgraphs
from gecli.jit.cut import GIVEN_TYPES
from gecli.records import dataclass

SLICED, REMAINING = "Sliced_Graph", "Remaining_Graph"


@dataclass(frozen=True, slots=True)
class Parts:
    """`outputs` are the ports of the slice that the remainder reads, by name; `io_map` pairs them with its inputs."""

    sliced: Graph
    remaining: Graph
    outputs: tuple[tuple[str, int], ...]
    io_map: tuple[tuple[int, int], ...]


def taken_apart(graph: Graph, inside: Collection[str]) -> Parts:
    """The slice with the nodes `inside`, and the rest; `graph` is left as it was.

    Each tensor that crosses the border is one output of the slice and one input of the rest, with the same number.
    Constants are copied instead.
    """
    crossing: dict[tuple[str, int], None] = {}
    for node in graph.nodes():
        if node.name in inside:
            continue
        for port in node.data_inputs:
            if port.node.name in inside and port.node.type not in GIVEN_TYPES:
                crossing[port.node.name, port.index] = None
    outputs = tuple(crossing)
    io_map = tuple((number, number) for number in range(len(outputs)))
    return Parts(_slice(graph, inside, outputs), _rest(graph, inside, outputs), outputs, io_map)


def whole(graph: Graph) -> Graph:
    """The graph as the only slice."""
    copy = graph.copy()
    copy.name = SLICED
    return copy


def remove_dead_ends(graph: Graph) -> None:
    """Drop what no output needs, lest it be a reason to cut. One with variables stays: a run may be to write them."""
    net = graph.net_output
    if net is None or any(node.is_variable for node in graph.all_nodes()):
        return
    needed: set[OpDesc] = set()
    waiting = [net]
    while waiting:
        node = waiting.pop()
        if node not in needed:
            needed.add(node)
            waiting += [*(port.node for port in node.data_inputs), *node.control_in]
    _remove(graph, [node for node in graph.nodes() if node not in needed and node.type not in DATA_TYPES])
    forget_unused_subgraphs(graph)


def _slice(graph: Graph, inside: Collection[str], outputs: tuple[tuple[str, int], ...]) -> Graph:
    sliced = graph.copy()
    sliced.name = SLICED
    _remove(sliced, [node for node in sliced.nodes() if node.name not in inside])
    _remove(sliced, [node for node in sliced.nodes_of(*sorted(GIVEN_TYPES)) if not _is_used(node)])
    forget_unused_subgraphs(sliced)
    sliced.set_outputs([Port(sliced.node(name), index) for name, index in outputs])
    return sliced


def _rest(graph: Graph, inside: Collection[str], outputs: tuple[tuple[str, int], ...]) -> Graph:
    rest = graph.copy()
    rest.name = REMAINING
    for number, (name, index) in enumerate(outputs):
        port = Port(rest.node(name), index)
        data = rest.create(
            "Data", f"{name}_output_{index}", near=port.node, attrs={DATA_INDEX: number}, output_descs=[port.desc]
        )
        for use in rest.consumers(port):
            if use.node.name not in inside:
                rest.replace_input(use.node, use.slot, data.out())
    _remove(rest, [node for node in rest.nodes() if node.name in inside and node.type not in GIVEN_TYPES])
    _remove(rest, [node for node in rest.nodes_of(*sorted(GIVEN_TYPES)) if not _is_used(node)])
    forget_unused_subgraphs(rest)
    return rest


def _remove(graph: Graph, nodes: list[OpDesc]) -> None:
    for node in reversed(nodes):
        graph.remove(node)


def _is_used(node: OpDesc) -> bool:
    return any(node.users) or any(after.type not in DATA_TYPES for after in node.control_out)
