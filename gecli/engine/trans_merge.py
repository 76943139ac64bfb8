"""Cancelling neighbouring conversions right after insertion: B behind A goes when it undoes A (formats.md 5.5)."""

from __future__ import annotations

from gecli.engine.trans_ops import drop_unused, is_inverse_perm, reads_later, source_desc
from gecli.ir.attributes import DATA_TYPES
from gecli.ir.graph import Graph
from gecli.ir.op_desc import OpDesc
from gecli.ir.surgery import bypass
from gecli.layout.cast import exact_embedding

_MERGED_TYPES = ("TransData", "Cast", "Transpose", "TransposeD", "Reshape", "ReFormat")
_MAX_ROUNDS = 100  # GE's limit


def merge_inverse_pairs(graph: Graph, *, aggressive: bool = False) -> int:
    """Let consumers of B read what A reads, for every pair A -> B in which B undoes A; returns the pairs cancelled.

    A stays when it has other readers. Casts cancel only when the first one is exact (FLOAT16 -> FLOAT -> FLOAT16). GE
    also cancels FLOAT -> FLOAT16 -> FLOAT, which keeps digits that the model rounds away: `aggressive` does so for the
    Casts that the engine inserted.
    """
    merged = 0
    for _ in range(_MAX_ROUNDS):
        found = 0
        for node in graph.nodes_of(*_MERGED_TYPES):
            if node.name in graph and _undoes_producer(node, aggressive):
                found += _cancel(graph, node)
        if not found:
            break
        merged += found
    return merged


def _undoes_producer(node: OpDesc, aggressive: bool) -> bool:
    port = node.inputs[0] if node.inputs else None
    if port is None or port.node.type != node.type:
        return False
    first, second = port.node, node
    if first.inputs[0] is None or not any(second.users):
        return False
    start, middle, end = source_desc(first), first.output_descs[0], second.output_descs[0]
    if start is None or not start.is_static or not middle.same_storage(second.input_descs[0] or middle):
        return False
    if not start.same_reading(end):
        return False
    if node.type == "Cast":
        both_inserted = first.name.startswith("trans_Cast_") and second.name.startswith("trans_Cast_")
        both_float = start.dtype.is_float and middle.dtype.is_float
        return exact_embedding(start.dtype, middle.dtype) or (aggressive and both_inserted and both_float)
    if node.type == "TransposeD":
        return is_inverse_perm(first.attrs.get("perm", ()), second.attrs.get("perm", ()))
    if node.type == "TransData":
        return True
    return node.type in ("Reshape", "ReFormat")


def _cancel(graph: Graph, node: OpDesc) -> int:
    first = node.inputs[0]
    assert first is not None
    source = first.node.inputs[0]
    assert source is not None
    for use in graph.consumers(node.out()):
        if use.node.type == "NetOutput" and source.node.type in DATA_TYPES:
            return 0  # an input that is also an output keeps a node between
        if reads_later(source, first.node, use):
            return 0
    for use in graph.consumers(node.out()):
        bypass(graph, use)
        bypass(graph, use)
        use.node.input_descs[use.slot] = node.output_descs[0]
    drop_unused(graph, (node, first.node))
    return 1
