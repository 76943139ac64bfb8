"""Hoist a common TransData in front of Casts (GE: SameTransdataBreadthFusionPass).

A variable read through `Cast -> TransData` and through a bare `TransData` has two different first readers, which stops
the variable pass; after the hoist it has one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
from dataclasses import replace
from typing import NamedTuple

from gecli.engine.trans_insert import bare
from gecli.ir.attributes import STREAM_LABEL
from gecli.ir.dtype import DataType
from gecli.ir.graph import Graph, feed
from gecli.ir.op_desc import OpDesc, Port, Use
from gecli.layout.platform import Platform
from gecli.layout.transfer import can_transfer
from gecli.passes.base import Pass, PassContext, Stage
from gecli.passes.transop_breadth_fusion import merge_siblings


class TransPath(NamedTuple):
    """`head -> Cast* -> TransData`, every Cast with one reader."""

    casts: tuple[OpDesc, ...]
    trans_data: OpDesc


class SameTransdataBreadthFusion(Pass):
    """Two or more paths `head -> Cast* -> TransData` into one format become `head -> TransData -> Cast*`.

    A variable with write-backs whose paths are all alike is only merged: hoisting there would leave the write-back
    chain without its inverse on the reading side (formats.md 6.6).
    """

    name = "SameTransdataBreadthFusionPass"
    stage = Stage.OPTIMIZE_1
    level = "O1"

    def run(self, graph: Graph, ctx: PassContext) -> Counter[str]:
        counts = Counter[str]()
        if not graph.count_of("TransData") or not graph.count_of("Cast"):
            return counts  # every pair of paths that is looked for has both
        written = {node.ref_variable for node in graph.nodes_of("Variable", "VariableV2") if node.ref_variable}
        # A hoisted TransData may stand beside another one; each round leaves at least one node less.
        while found := self._round(graph, written, ctx):
            counts += found
        return counts

    def _round(self, graph: Graph, written: set[str], ctx: PassContext) -> Counter[str]:
        counts = Counter[str]()
        for head in graph.nodes():
            if graph.get(head.name) is not head:
                continue
            for index in range(len(head.output_descs)):
                for paths in _groups(graph, head.out(index)):
                    if head.name in written and len({_casts_key(path) for path in paths}) == 1:
                        counts["paths_merged"] += _merge_alike(graph, head.out(index))
                    elif _may_hoist(head.out(index), paths, ctx.platform):
                        counts["transdata_removed"] += _hoist(graph, head.out(index), paths)
        return +counts


def _groups(graph: Graph, head: Port) -> list[list[TransPath]]:
    """The paths behind `head` that lead into one format, where there are at least two and one has a Cast."""
    if len(head.node.users[head.index]) < 2:
        return []
    found: dict[Hashable, list[TransPath]] = {}
    for use in graph.consumers(head):
        path = _path(use)
        if path is not None:
            found.setdefault(_key(path), []).append(path)
    return [paths for paths in found.values() if len(paths) > 1 and any(path.casts for path in paths)]


def _path(use: Use) -> TransPath | None:
    casts: list[OpDesc] = []
    node = use.node
    while node.type == "Cast":
        readers = list(node.users[0])
        if len(readers) != 1 or node.control_in or node.control_out:
            return None
        casts.append(node)
        node = readers[0].node
    return TransPath(tuple(casts), node) if node.type == "TransData" else None


def _key(path: TransPath) -> Hashable:
    node = path.trans_data
    source, target = node.input_descs[0], node.output_descs[0]
    assert source is not None
    control = tuple(sorted(before.name for before in node.control_in))
    return (
        source.format, target.format, source.shape, target.shape, source.logical_shape, source.logical_format,
        node.attrs.get(STREAM_LABEL), control,
    )  # fmt: skip


def _casts_key(path: TransPath) -> Hashable:
    return tuple(cast.output_descs[0].dtype for cast in path.casts)


def _merge_alike(graph: Graph, port: Port) -> int:
    merged = merge_siblings(graph, port)
    for use in graph.consumers(port):
        if use.node.type == "Cast":
            merged += _merge_alike(graph, use.node.out())
    return merged


def _may_hoist(head: Port, paths: list[TransPath], platform: Platform) -> bool:
    """GE only asks whether the nodes can be created; here the transfer and every C0 on the way must be possible."""
    target = paths[0].trans_data.output_descs[0]
    source = head.desc
    if not can_transfer(source, replace(target, dtype=source.dtype), road=False)[0]:
        return False
    dtypes = [source.dtype, *(cast.output_descs[0].dtype for path in paths for cast in path.casts)]
    return all(_fits_c0(dtype, target.format.c0, platform) for dtype in dtypes)


def _fits_c0(dtype: DataType, c0: int | None, platform: Platform) -> bool:
    if c0 is None or c0 == platform.c0_of(dtype):
        return True
    return dtype is DataType.FLOAT and c0 == 16  # FLOAT keeps 16 beside a 16-bit cube operator


def _hoist(graph: Graph, head: Port, paths: list[TransPath]) -> int:
    kept = next((path for path in paths if not path.casts), paths[0]).trans_data
    target = replace(kept.output_descs[0], dtype=head.desc.dtype)
    source = bare(head.desc)
    readers = {path.trans_data: graph.consumers(path.trans_data.out()) for path in paths}
    for path in paths:
        for use in readers[path.trans_data]:
            graph.disconnect(use.node, use.slot)
        graph.disconnect(path.trans_data, 0)
        for cast in path.casts:
            graph.disconnect(cast, 0)
    place = OpDesc("", "")
    place.rank = min(node.rank for path in paths for node in (*path.casts, path.trans_data))
    hoisted = OpDesc(kept.name, kept.type, attrs=dict(kept.attrs), output_descs=[target], input_descs=[source])
    control_in, control_out = list(kept.control_in), [after for path in paths for after in path.trans_data.control_out]
    for path in paths:
        graph.remove(path.trans_data)
    graph.add(hoisted, near=place)
    feed(graph, hoisted, head)
    hoisted.input_descs[0] = source
    for before in control_in:
        graph.add_control(before, hoisted)
    for after in control_out:
        graph.add_control(hoisted, after)
    for path in paths:
        end = hoisted.out()
        for cast in path.casts:
            cast.input_descs[0] = end.desc
            cast.output_descs[0] = replace(target, dtype=cast.output_descs[0].dtype)
            graph.connect(end, cast, 0)
            end = cast.out()
        for use in readers[path.trans_data]:
            graph.connect(end, use.node, use.slot)
    return len(paths) - 1
