"""Merge nodes that compute the same (GE: CommonSubexpressionEliminationPass, ConstantFuseSamePass)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from typing import Any

from gecli.ir.attributes import CONST_TYPES, ORIGINAL_OP_NAMES, VALUE
from gecli.ir.graph import Graph
from gecli.ir.op_desc import OpDesc, Port
from gecli.ir.weight import Weight
from gecli.ops.registry import find
from gecli.passes.base import Pass, PassContext, Stage

HASHED_BYTES = 64 << 10  # larger constants are not compared here; equal ones share their place in the weights


class CommonSubexpression(Pass):
    """Nodes of one type with the same inputs, attributes and order become the first of them.

    Random generators, variables and everything else that is not a function of its inputs stay apart.
    """

    name = "CommonSubexpressionEliminationPass"
    stage = Stage.OPTIMIZE_1
    level = "O1"

    def run(self, graph: Graph, ctx: PassContext) -> Counter[str]:
        counts = Counter[str]()
        for each in graph.all_graphs():
            counts["nodes_merged"] += merge_equal_nodes(each)
        return counts


def merge_equal_nodes(graph: Graph) -> int:
    alone: dict[Hashable, OpDesc | None] = {}  # nodes that nothing resembles so far: their keys are not made
    seen: dict[Hashable, OpDesc] = {}
    merged = 0
    for node in graph.nodes():
        outline = _outline(node)
        if outline is None:
            continue
        if outline not in alone:
            alone[outline] = node
            continue
        other, alone[outline] = alone[outline], None
        if other is not None and (key := _key(other)) is not None:
            seen[key] = other
        key = _key(node)
        first = node if key is None else seen.setdefault(key, node)
        if first is node:
            continue
        for index in range(len(node.output_descs)):
            graph.move_users(Port(node, index), Port(first, index))
        for after in list(node.control_out):
            graph.add_control(first, after)
        graph.remove(node)
        merged += 1
    return merged


def _outline(node: OpDesc) -> Hashable | None:
    """The cheap part of `_key`: nodes of different outlines have different keys. None for nodes that have no key."""
    if node.type in CONST_TYPES:
        weight = node.attrs.get(VALUE)
        return None if weight is None else (node.type, weight.nbytes)
    return (node.type, *node.inputs) if node.inputs else None


def _key(node: OpDesc) -> Hashable | None:
    if node.subgraphs or not node.output_descs or node.type == "NetOutput":
        return None
    if node.type in CONST_TYPES:
        weight = node.attrs.get(VALUE)
        if weight is None or weight.nbytes > HASHED_BYTES or node.control_in:
            return None
        return (node.type, node.output_descs[0], weight.sha256())
    kind = find(node.type)
    if kind is None or not kind.stateless or kind.writes or not node.inputs:
        return None
    attrs = _attrs_key(node.attrs)
    if attrs is None:
        return None
    inputs = tuple(None if port is None else (id(port.node), port.index) for port in node.inputs)
    control = tuple(sorted(id(before) for before in node.control_in))
    return (node.type, inputs, attrs, control, tuple(node.output_descs))


def _attrs_key(attrs: dict[str, Any]) -> Hashable | None:
    items = []
    for name in sorted(attrs):
        value = attrs[name]
        if name == ORIGINAL_OP_NAMES:
            continue
        if isinstance(value, Weight):
            if value.nbytes > HASHED_BYTES:
                return None
            value = (value.desc, value.sha256())
        try:
            hash(value)
        except TypeError:
            return None
        items.append((name, type(value).__name__, value))
    return tuple(items)
