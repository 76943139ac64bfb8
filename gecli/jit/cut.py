"""Where a graph is cut: behind the nodes whose results have shapes that only running them gives (cache.md 9.6)."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from enum import Enum

from gecli.ir.attributes import CONST_TYPES, DATA_TYPES, ORIGINAL_OP_NAMES
from gecli.ir.calls import CHOICE_TYPES
from gecli.ir.graph import Graph
from gecli.ir.op_desc import OpDesc, Port
from gecli.jit.specialise import chooses
from gecli.ops.registry import find
from gecli.records import dataclass

# These are not computed: they stand in every slice that reads them.
GIVEN_TYPES = CONST_TYPES | frozenset(("Variable", "VariableV2", "FileConstant", "ConstPlaceHolder"))


class Place(Enum):
    """What becomes of a node."""

    INFERRED = "its shapes follow from the inputs"
    BREAK = "its shapes exist only after it has run"
    NEXT = "the shapes of its inputs exist only after this slice has run"


@dataclass(frozen=True, slots=True)
class Cut:
    """`inside` are the names of the nodes of the slice; empty when the whole graph is one. `breaks` say why."""

    inside: frozenset[str]
    breaks: tuple[tuple[str, str], ...]

    @property
    def is_whole(self) -> bool:
        return not self.inside


def cut(graph: Graph, known: Collection[tuple[str, int]]) -> Cut:
    """Decide for each node of `graph` whether it belongs to its first slice; `known` are outputs of known shapes."""
    nodes = [node for node in graph.nodes() if node.type != "NetOutput"]
    if _writes_variables(graph):
        return Cut(frozenset(), ())
    places: dict[OpDesc, Place] = {node: _place(graph, node, known) for node in nodes}
    _pull_in(nodes, places)
    inside = {node for node in nodes if places[node] is not Place.NEXT}
    for node in nodes:  # in order, so that what hangs on a dropped node goes too
        if node in inside and any(before not in inside for before in _before(node)):
            inside.discard(node)
    breaks = tuple(dict.fromkeys(_reasons(nodes, places, inside, known)))
    computed = any(node.type not in DATA_TYPES and node.type not in GIVEN_TYPES for node in inside)
    if len(inside) == len(nodes) or not computed:
        return Cut(frozenset(), breaks)
    return Cut(frozenset(node.name for node in inside), breaks)


def _place(graph: Graph, node: OpDesc, known: Collection[tuple[str, int]]) -> Place:
    outputs = range(len(node.output_descs))
    if node.type in DATA_TYPES or not outputs or any((node.name, index) in known for index in outputs):
        return Place.INFERRED
    if any((port.node.name, port.index) not in known and port.node.type not in DATA_TYPES for port in node.data_inputs):
        return Place.NEXT
    if node.type in CHOICE_TYPES and not _given_condition(graph, node):
        return Place.NEXT
    return Place.BREAK


def _reasons(
    nodes: list[OpDesc], places: dict[OpDesc, Place], inside: set[OpDesc], known: Collection[tuple[str, int]]
) -> Iterator[tuple[str, str]]:
    """The nodes that end the slice: those that nothing gives a shape, and the branches that its results choose.

    They have the names that they have in the user's model.
    """
    for node in nodes:
        if node in inside:
            if places[node] is Place.BREAK or _gives_unknown(node, known):
                yield user_name(node), f"{node.type}: {Place.BREAK.value}"
        elif node.type in CHOICE_TYPES and all(before in inside for before in _before(node)):
            yield user_name(node), f"{node.type}: its condition exists only after this slice has run"


def user_name(node: OpDesc) -> str:
    """The name of the node that this one was made from, where one became several."""
    names = node.attrs.get(ORIGINAL_OP_NAMES)
    return str(names[0]) if isinstance(names, tuple) and names and names[0] else node.name


def _gives_unknown(node: OpDesc, known: Collection[tuple[str, int]]) -> bool:
    """Whether some of its outputs have unknown shapes, and somebody reads them."""
    return node.type not in DATA_TYPES and any((node.name, port.index) not in known for port in _read_ports(node))


def _read_ports(node: OpDesc) -> Iterator[Port]:
    for index in range(len(node.output_descs)):
        port = node.out(index)
        if node.graph is not None and any(True for _ in node.graph.consumers(port)):
            yield port


def _given_condition(graph: Graph, node: OpDesc) -> bool:
    """Whether an input of the graph decides which branch is taken."""
    port = node.inputs[0]
    if port is None:
        return False
    while port.node.type not in DATA_TYPES:
        before = port.node.data_inputs
        if len(before) != 1 or not chooses(graph, before[0].node):
            return False
        port = before[0]
    return True


def _pull_in(nodes: list[OpDesc], places: dict[OpDesc, Place]) -> None:
    """Nodes for which nothing would be won by waiting: those that no rule gives a shape."""
    changed = True
    while changed:
        changed = False
        for node in nodes:
            if places[node] is not Place.NEXT or node.subgraphs or _has_rule(node):
                continue
            if all(places.get(before) is not Place.NEXT for before in _before(node)):
                places[node] = Place.BREAK
                changed = True


def _has_rule(node: OpDesc) -> bool:
    kind = find(node.type)
    return kind is not None and hasattr(kind.cls, "infer")


def _before(node: OpDesc) -> list[OpDesc]:
    return [*(port.node for port in node.data_inputs), *node.control_in]


def _writes_variables(graph: Graph) -> bool:
    """Whether the order of reads and writes would be lost by a cut."""
    if not any(node.is_variable for node in graph.all_nodes()):
        return False
    for node in graph.all_nodes():
        kind = find(node.type)
        if node.ref_variable is not None or (kind is not None and kind.writes):
            return True
    return False
