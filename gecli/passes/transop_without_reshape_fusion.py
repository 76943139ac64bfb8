"""Replace a chain of conversions by the shortest one (GE: TransOpWithoutReshapeFusionPass)."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from gecli.engine.trans_insert import bare, cast_step, trans_data_attrs
from gecli.engine.trans_ops import TRANS_OPS, drop_unused, loses_values, reads_later
from gecli.ir.attributes import DATA_TYPES
from gecli.ir.dtype import DataType
from gecli.ir.format import Format
from gecli.ir.graph import Graph, feed
from gecli.ir.op_desc import OpDesc, Port, Use
from gecli.ir.surgery import copy_in_control, move_in_control, move_out_control
from gecli.ir.tensor_desc import TensorDesc
from gecli.layout.transfer import can_transfer
from gecli.passes.base import Pass, PassContext, Stage
from gecli.records import dataclass

_CHAIN_TYPES = frozenset(("Cast", "Transpose", "TransposeD", "TransData"))
_END_FORMATS = (Format.NCHW, Format.NHWC, Format.FRACTAL_Z, Format.NC1HWC0)


@dataclass(frozen=True)
class TransOpWithoutReshapeFusion(Pass):
    """Between two other nodes, Cast, Transpose and TransData become nothing, one TransData, one Cast, or both.

    Chains with a Reshape, with a loss of values on the way, or whose conversion is no single transfer stay.
    """

    name = "TransOpWithoutReshapeFusionPass"
    stage = Stage.AFTER_PRECISION
    level = "O1"
    lossy: bool = False

    def run(self, graph: Graph, ctx: PassContext) -> Counter[str]:
        counts = Counter[str]()
        for each in graph.all_graphs():
            if not any(each.count_of(name) for name in _CHAIN_TYPES):
                continue
            numbers = Counter[str]()
            # A chain that loses its other readers may be fused in the next round.
            while found := self._round(each, numbers):
                counts += found
        return counts

    def _round(self, graph: Graph, numbers: Counter[str]) -> Counter[str]:
        counts = Counter[str]()
        for node in graph.nodes():
            if graph.get(node.name) is not node or node.type in TRANS_OPS:
                continue
            for slot in range(len(node.inputs)):
                counts += self._fuse(graph, Use(node, slot), numbers)
        return +counts

    def _fuse(self, graph: Graph, use: Use, numbers: Counter[str]) -> Counter[str]:
        chain = _chain_before(use)
        if len(chain) < 2 or not _is_fusable(chain, like_ge=self.lossy):
            return Counter()
        start, end = chain[0].input_descs[0], chain[-1].output_descs[0]
        assert start is not None
        if start.same_reading(end):
            source = chain[0].inputs[0]
            assert source is not None
            if _is_input_and_output(source, use) or reads_later(source, chain[0], use):
                return Counter()
            return _connect_directly(graph, use, chain)
        needed = int(start.format != end.format) + int(start.dtype != end.dtype)
        alone = all(len(node.users[0]) == 1 for node in chain)
        if not needed or needed >= len(chain) or not alone or _is_ordered_between(chain):
            return Counter()
        return _replace_chain(graph, use, chain, numbers)


def _chain_before(use: Use) -> list[OpDesc]:
    """The conversions that lead to an input, first one first; empty when a Reshape or its kind is among them."""
    chain: list[OpDesc] = []
    port = use.node.inputs[use.slot]
    while port is not None and port.node.type in _CHAIN_TYPES:
        chain.append(port.node)
        port = port.node.inputs[0] if port.node.inputs else None
    if port is None or port.node.type in TRANS_OPS:
        return []
    return chain[::-1]


def _is_fusable(chain: list[OpDesc], *, like_ge: bool) -> bool:
    start, end = chain[0].input_descs[0], chain[-1].output_descs[0]
    if start is None or not _is_end(start) or not _is_end(end):
        return False
    reached = start
    for node in chain:
        own, result = node.input_descs[0], node.output_descs[0]
        if own is None or not own.same_storage(reached) or not own.is_static or not result.is_static:
            return False
        if node.type in ("Transpose", "TransposeD") and own.format == result.format:
            return False
        reached = result
    return _keeps_values(start, end.dtype, chain, like_ge=like_ge)


def _is_end(desc: TensorDesc) -> bool:
    return desc.format.primary in _END_FORMATS


def _keeps_values(start: TensorDesc, last: DataType, chain: list[OpDesc], *, like_ge: bool) -> bool:
    """One Cast to the last type gives the same: every type before it holds all values of the first."""
    dtypes = [node.output_descs[0].dtype for node in chain if node.type == "Cast"]
    if like_ge:
        pairs = zip([start.dtype, *dtypes], dtypes)
        return not any(loses_values(before, after, like_ge=True) for before, after in pairs)
    while dtypes and dtypes[-1] == last:
        dtypes.pop()
    return not any(loses_values(start.dtype, dtype) for dtype in dtypes)


def _is_input_and_output(source: Port, use: Use) -> bool:
    return source.node.type in DATA_TYPES and use.node.type == "NetOutput"


def _is_ordered_between(chain: list[OpDesc]) -> bool:
    """Whether something may have to run behind one conversion of a chain and before a later one."""
    known = {*chain, *chain[0].control_in}
    return any(node.control_out for node in chain[:-1]) and any(not known >= set(node.control_in) for node in chain[1:])


def _connect_directly(graph: Graph, use: Use, chain: list[OpDesc]) -> Counter[str]:
    source = chain[0].inputs[0]
    assert source is not None
    for node in chain:
        copy_in_control(graph, node, use.node)
    graph.replace_input(use.node, use.slot, source)
    return Counter(chains_fused=1, nodes_removed=drop_unused(graph, reversed(chain)))


def _replace_chain(graph: Graph, use: Use, chain: list[OpDesc], numbers: Counter[str]) -> Counter[str]:
    source = chain[0].inputs[0]
    start, end = chain[0].input_descs[0], chain[-1].output_descs[0]
    assert source is not None and start is not None
    descs = _planned(start, end)
    if descs is None:
        return Counter()
    place = OpDesc("", "")
    place.rank = chain[-1].rank
    created: list[OpDesc] = []
    graph.disconnect(use.node, use.slot)
    for before, after in zip([bare(start), *descs], descs):
        node = _new_node(graph, before, after, numbers)
        graph.add(node, near=place)
        feed(graph, node, source)
        node.input_descs[0] = before
        created.append(node)
        source = node.out()
    graph.connect(source, use.node, use.slot)
    for old in chain:
        move_in_control(graph, old, created[0])
        move_out_control(graph, old, created[-1])
    removed = drop_unused(graph, reversed(chain))
    return Counter(chains_fused=1, nodes_removed=removed, nodes_created=len(created))


def _planned(start: TensorDesc, end: TensorDesc) -> list[TensorDesc] | None:
    """What comes out of each new node; None when the format conversion is no single transfer."""
    steps: list[TensorDesc] = []
    reached = bare(start)
    cast_first = start.dtype != end.dtype and end.dtype is DataType.FLOAT16
    if cast_first:
        reached = reached.with_dtype(end.dtype)
        steps.append(reached)
    if start.format != end.format:
        target = replace(bare(end), dtype=reached.dtype)
        if not can_transfer(reached, target, road=False)[0]:
            return None
        reached = target
        steps.append(reached)
    if reached.dtype != end.dtype:
        steps.append(bare(end))
    return steps if steps and steps[-1].same_storage(end) else None


def _new_node(graph: Graph, before: TensorDesc, after: TensorDesc, numbers: Counter[str]) -> OpDesc:
    if before.dtype != after.dtype:
        step = cast_step(before, after.dtype)
        return OpDesc(_free_name(graph, "fusion_cast_op", numbers), step.type, attrs=step.attrs, output_descs=[after])
    name = _free_name(graph, "fusion_format_transfer", numbers)
    attrs = trans_data_attrs(before.format, after.format)
    return OpDesc(name, "TransData", attrs=attrs, output_descs=[after])


def _free_name(graph: Graph, base: str, numbers: Counter[str]) -> str:
    while f"{base}_{numbers[base]}" in graph:
        numbers[base] += 1
    numbers[base] += 1
    return f"{base}_{numbers[base] - 1}"
