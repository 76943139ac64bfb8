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
        for each in graph.all_graphs():
            counts["writers_kept"] += keep_writers(each)
            if ctx.settings.dead_code_elimination and each.net_output is not None:
                counts["nodes_removed"] += _prune(each)
        return counts


def keep_writers(graph: Graph) -> int:
    """Order every writer of a variable, and every node that acts, before NetOutput when nothing reads it.

    Returns how many edges that took.
    """
    output = graph.net_output
    if output is None:
        return 0
    acting = any(graph.count_of(name) for name in ACTING_TYPES) and graph.nodes_of(*ACTING_TYPES)
    loose = [node for node in acting or () if not any(node.users) and not node.control_out]
    if graph.count_of("Variable") or graph.count_of("RefData"):
        loose += [node for node in graph.nodes() if _is_loose_writer(node)]
    added = 0
    for node in loose:
        if node not in output.control_in:
            graph.add_control(node, output)
            added += 1
    return added


def _is_loose_writer(node: OpDesc) -> bool:
    if any(node.users) or node.control_out:
        return False
    if node.is_variable:
        return node.ref_variable is not None
    if any(mark in desc.attrs for desc in node.output_descs if desc.attrs for mark in _MARKS):
        return True
    op = operator_of(node)
    return op is not None and bool(op.type.writes)


def _prune(graph: Graph) -> int:
    output = graph.net_output
    assert output is not None
    if _all_have_readers(graph, output):
        return 0
    live: set[OpDesc] = {output}
    stack = [output]
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
    dead = [node for node in graph.nodes() if node not in live and node.type not in DATA_TYPES]
    for node in reversed(dead):
        graph.remove(node)
    return len(dead)


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
