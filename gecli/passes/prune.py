"""Remove what reaches no output and writes no variable (GE: PrunePass)."""

from __future__ import annotations

from collections import Counter

from gecli.ir.attributes import ASSIGN_VAR_NAME, DATA_TYPES, REF_VAR_SRC_VAR_NAME
from gecli.ir.graph import Graph
from gecli.ir.op_desc import OpDesc
from gecli.ops.registry import operator_of
from gecli.passes.base import Pass, PassContext, Stage

# What they do is seen by another device, which may wait for it.
ACTING_TYPES = ("HcomSend", "HcomReceive")
_OF_WRITERS = ("Variable", "RefData", *ACTING_TYPES)  # without them no node has an effect beside its outputs
_MARKS = (REF_VAR_SRC_VAR_NAME, ASSIGN_VAR_NAME)  # of an output that becomes a variable's content


class Prune(Pass):
    """Dead code elimination.

    Live is what reaches NetOutput, every node that writes a variable and every send and receive: GE drops writers
    without a path to the output, and with them the update. Such a node is ordered before NetOutput by a control edge.
    Inputs stay, and so does a variable that is only written.
    """

    name = "PrunePass"
    stage = Stage.PREPARE

    def run(self, graph: Graph, ctx: PassContext) -> Counter[str]:
        counts = Counter[str]()
        has_writers = any(each.count_of(name) for each in graph.all_graphs() for name in _OF_WRITERS)
        for each in graph.all_graphs():
            counts["writers_kept"] += keep_writers(each) if has_writers else 0
            if ctx.settings.dead_code_elimination and each.net_output is not None:
                counts["nodes_removed"] += _prune(each)
        return counts


def keep_writers(graph: Graph) -> int:
    """Order every writer of a variable, and every node that acts, before NetOutput when it does not reach it.

    A reader that reaches nothing itself does not keep what it reads. Returns how many edges that took.
    """
    output = graph.net_output
    if output is None or _all_have_readers(graph, output):
        return 0
    live = {output}
    _reach(graph, output, live)
    added = 0
    for node in reversed(graph.nodes()):  # the last of a chain keeps those before it
        if node not in live and _acts(node):
            graph.add_control(node, output)
            live.add(node)
            _reach(graph, node, live)
            added += 1
    return added


def _acts(node: OpDesc) -> bool:
    """Whether a node, or one in the graphs that it calls, changes a variable or is seen by another device."""
    if node.subgraphs:
        return any(_acts(inner) for each in _called(node) for inner in each.nodes() if not inner.subgraphs)
    if node.type in ACTING_TYPES:
        return True
    if node.is_variable:
        return node.ref_variable is not None
    if any(mark in desc.attrs for desc in node.output_descs if desc.attrs for mark in _MARKS):
        return True
    op = operator_of(node)
    return op is not None and bool(op.type.writes)


def _called(node: OpDesc) -> list[Graph]:
    """The graphs that a node calls, and those that their nodes call."""
    graphs = node.graph.root.subgraphs
    names = {name: None for name in node.subgraphs if name in graphs}
    waiting = list(names)
    while waiting:
        for inner in graphs[waiting.pop()].nodes():
            more = [name for name in inner.subgraphs if name in graphs and name not in names]
            names.update(dict.fromkeys(more))
            waiting += more
    return [graphs[name] for name in names]


def _prune(graph: Graph) -> int:
    output = graph.net_output
    assert output is not None
    if _all_have_readers(graph, output):
        return 0
    live = {output}
    _reach(graph, output, live)
    dead = [node for node in graph.nodes() if node not in live and node.type not in DATA_TYPES]
    for node in reversed(dead):
        graph.remove(node)
    return len(dead)


def _reach(graph: Graph, last: OpDesc, live: set[OpDesc]) -> None:
    """Add to `live` everything that `last` needs."""
    stack = [last]
    while stack:
        node = stack.pop()
        for port in node.inputs:
            if port is not None and port[0] not in live:
                live.add(port[0])
                stack.append(port[0])
        for before in (*node.control_in, *_stored_into(graph, node)):
            if before not in live:
                live.add(before)
                stack.append(before)


def _stored_into(graph: Graph, node: OpDesc) -> list[OpDesc]:
    """The variables that a node gives their content: they are needed although nothing here may read them."""
    names = [desc.attrs[mark] for desc in node.output_descs if desc.attrs for mark in _MARKS if mark in desc.attrs]
    if node.ref_variable is not None:
        names.append(node.ref_variable)
    found = (graph.get(name) for name in names)
    return [each for each in found if each is not None and each.is_variable]


def _all_have_readers(graph: Graph, output: OpDesc) -> bool:
    """Whether every node but NetOutput and the inputs is read: without cycles all of them reach NetOutput then."""
    for node in graph.nodes():
        if not node.control_out and not any(node.users) and node is not output and node.type not in DATA_TYPES:
            return False
    return True
