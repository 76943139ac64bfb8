"""Remove Casts that change nothing, alone or together with others (GE: CastRemovePass)."""

from __future__ import annotations

from collections import Counter

from gecli.engine.trans_ops import TRANS_OPS, loses_values
from gecli.ir.dtype import DataType
from gecli.ir.graph import Graph
from gecli.ir.op_desc import OpDesc
from gecli.ir.surgery import isolate
from gecli.passes.base import Pass, PassContext, Stage
from gecli.records import dataclass


@dataclass(frozen=True)
class CastRemove(Pass):
    """Take out a Cast to the type it reads, and all Casts of a chain of conversions that ends in its first type.

    The conversions between take the first type; they keep their names (GE renames them). A chain counts only if every
    type on the way holds all values of the first.
    """

    name = "CastRemovePass"
    stage = Stage.OPTIMIZE_1
    level = "O1"
    lossy: bool = False

    def run(self, graph: Graph, ctx: PassContext) -> Counter[str]:
        counts = Counter[str]()
        for each in graph.all_graphs():
            for cast in each.nodes_of("Cast"):
                if each.get(cast.name) is not cast:
                    continue
                if _is_idle(cast):
                    isolate(each, cast)
                    counts["casts_removed"] += 1
                    continue
                chain = _chain_behind(cast)
                if chain and _returns_unharmed(chain, like_ge=self.lossy):
                    counts["casts_removed"] += self._remove_chain(each, chain, ctx)
        return counts

    def _remove_chain(self, graph: Graph, chain: list[OpDesc], ctx: PassContext) -> int:
        source = chain[0].input_descs[0]
        assert source is not None
        for node in chain:
            ctx.record(self.name, "cast_removed" if node.type == "Cast" else "retyped", node=node.name)
        return retype_chain(graph, chain, source.dtype)


def retype_chain(graph: Graph, chain: list[OpDesc], dtype: DataType) -> int:
    """Remove the Casts of a chain and give its other nodes `dtype`; returns the Casts removed."""
    removed = 0
    for node in chain:
        if node.type == "Cast":
            isolate(graph, node)
            removed += 1
            continue
        desc = node.input_descs[0]
        assert desc is not None
        node.input_descs[0] = desc.with_dtype(dtype)
        node.output_descs[0] = node.output_descs[0].with_dtype(dtype)
    return removed


def _is_idle(cast: OpDesc) -> bool:
    desc = cast.input_descs[0]
    if desc is None or desc.dtype != cast.output_descs[0].dtype or not any(cast.users):
        return False
    source = cast.inputs[0]
    return not (source is not None and source.node.is_variable) and not _joins_input_and_output(cast, cast)


def _chain_behind(cast: OpDesc) -> list[OpDesc]:
    """The conversions from `cast` up to where its input type returns, each read by the next one only."""
    source = cast.inputs[0]
    if source is None or cast.input_descs[0] is None:
        return []
    start = cast.input_descs[0].dtype
    chain, node = [cast], cast
    while True:
        readers = list(node.users[0])
        if len(readers) != 1 or readers[0].node.type not in TRANS_OPS or readers[0].slot != 0:
            return []
        node = readers[0].node
        chain.append(node)
        if node.type == "Cast" and node.output_descs[0].dtype == start:
            return [] if _joins_input_and_output(cast, node) and all(n.type == "Cast" for n in chain) else chain


def _returns_unharmed(chain: list[OpDesc], *, like_ge: bool) -> bool:
    source = chain[0].input_descs[0]
    assert source is not None
    dtypes = [node.output_descs[0].dtype for node in chain if node.type == "Cast"]
    if like_ge:
        pairs = zip([source.dtype, *dtypes], dtypes)
        return not any(loses_values(before, after, like_ge=True) for before, after in pairs)
    return not any(loses_values(source.dtype, dtype) for dtype in dtypes)


def _joins_input_and_output(first: OpDesc, last: OpDesc) -> bool:
    """An input that is also an output keeps a node between."""
    source = first.inputs[0]
    to_output = any(use.node.type == "NetOutput" for use in last.users[0])
    return source is not None and source.node.type in ("Data", "RefData") and to_output
