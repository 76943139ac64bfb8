"""Merge equal conversions of one tensor (GE: TransOpBreadthFusionPass)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable

from gecli.engine.trans_ops import TRANS_OPS
from gecli.ir.attributes import CONST_TYPES, STREAM_LABEL, VALUE
from gecli.ir.graph import Graph
from gecli.ir.op_desc import OpDesc, Port
from gecli.passes.base import Pass, PassContext, Stage

_SIGNIFICANT_ATTRS = ("perm", "axis", "groups", "src_subformat", "dst_subformat", "dst_type")


class TransOpBreadthFusion(Pass):
    """Of the conversions with the same signature behind one output, the first serves all consumers.

    GE compares data types, formats, dims and perm; here further attributes and the origin form count too, so that only
    conversions that compute the same become one.
    """

    name = "TransOpBreadthFusionPass"
    stage = Stage.OPTIMIZE_1
    level = "O1"

    def run(self, graph: Graph, ctx: PassContext) -> Counter[str]:
        counts = Counter[str]()
        for each in graph.all_graphs():
            if not any(each.count_of(name) for name in TRANS_OPS):
                continue
            for node in each.nodes():
                if each.get(node.name) is not node:
                    continue
                for index in range(len(node.output_descs)):
                    counts["nodes_merged"] += merge_siblings(each, Port(node, index))
        return counts


def merge_siblings(graph: Graph, port: Port) -> int:
    """Merge the equal conversions that read `port`; returns how many nodes went."""
    if len(port.node.users[port.index]) < 2:
        return 0
    first_of: dict[Hashable, OpDesc] = {}
    merged = 0
    for use in graph.consumers(port):
        node = use.node
        if node.type not in TRANS_OPS or use.slot != 0:
            continue
        key = signature(node)
        if key is None:
            continue
        first = first_of.setdefault(key, node)
        if first is not node:
            _absorb(graph, first, node)
            merged += 1
    return merged


def signature(node: OpDesc) -> Hashable | None:
    """What two conversions of one tensor must have in common to be the same; None for one that never merges."""
    others = tuple(_constant_key(port) for port in node.inputs[1:])
    if None in others:
        return None
    attrs = tuple((name, node.attrs[name]) for name in _SIGNIFICANT_ATTRS if name in node.attrs)
    control = tuple(sorted(before.name for before in node.control_in))
    return (node.type, node.attrs.get(STREAM_LABEL), control, attrs, others, node.input_descs[0], node.output_descs[0])


def _constant_key(port: Port | None) -> Hashable | None:
    """The bytes of a constant further input; None when it is not a constant."""
    if port is None:
        return ("absent",)
    if port.node.type not in CONST_TYPES or VALUE not in port.node.attrs:
        return None
    weight = port.node.attrs[VALUE]
    return (weight.desc.dtype, weight.desc.shape, weight.sha256())


def _absorb(graph: Graph, first: OpDesc, other: OpDesc) -> None:
    graph.move_users(other.out(), first.out())
    for after in list(other.control_out):
        graph.add_control(first, after)
    parameters = [port.node for port in other.inputs[1:] if port is not None]
    graph.remove(other)
    for parameter in parameters:
        if not any(parameter.users) and not parameter.control_out:
            graph.remove(parameter)
