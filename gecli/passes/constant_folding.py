"""Compute nodes whose inputs are all constant (GE: ConstantFoldingPass).

Floats are computed in float64 and rounded once, integers exactly, so that artifacts do not depend on the CPU. Large
weights are never read: a conversion of one becomes a pending conversion of the reference. A fold never replaces its
inputs by a larger result beyond a small cap.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gecli.errors import GecliError
from gecli.ir.attributes import CONST_TYPES, VALUE
from gecli.ir.graph import Graph
from gecli.ir.op_desc import OpDesc, Port
from gecli.ir.tensor_desc import NO_ATTRS, TensorDesc
from gecli.ir.weight import Weight
from gecli.layout.transforms import convert_weight
from gecli.ops.evaluate import evaluate_node
from gecli.ops.operator import OperatorType
from gecli.ops.registry import find, operator_of
from gecli.passes.base import Pass, PassContext, Stage

Array = NDArray[Any]
SMALL_BYTES = 64 << 10  # constants up to this size are read and computed with
GROWTH_BYTES = 8 << 10  # a larger result that is also larger than its inputs is computed when the model runs
CONVERSIONS = frozenset(("TransData", "TransposeD", "Cast", "Reshape", "SqueezeV2", "UnsqueezeV2", "ReFormat"))
# Types whose result depends on the declared dtype of their input, which float64 arithmetic would hide.
_EXACT_DTYPE = frozenset(
    (
        "Cast",
        "Bitcast",
        "TransData",
        "AscendQuant",
        "AscendQuantV2",
        "AscendDequant",
        "AscendAntiQuant",
        "AscendRequant",
    )
    + ("Quantize", "Dequantize", "QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear")
)


class ConstantFolding(Pass):
    """Replace nodes whose inputs are constants by constants."""

    name = "ConstantFoldingPass"
    stage = Stage.OPTIMIZE_1

    def run(self, graph: Graph, ctx: PassContext) -> Counter[str]:
        counts = Counter[str]()
        if not ctx.settings.constant_folding:
            return counts
        for each in graph.all_graphs():
            for node in each.nodes():
                if fold(each, node):
                    counts["nodes_folded"] += 1
        return counts


def fold(graph: Graph, node: OpDesc) -> bool:
    """Replace one node by constants when its inputs are constants and the result is small enough."""
    if node.type in CONST_TYPES or not node.output_descs or node.subgraphs:
        return False
    kind = find(node.type)
    if kind is None:
        return False
    if not hasattr(kind.cls, "fold_shape"):  # most nodes read something that is computed, and end here
        for port in node.inputs:
            if port is not None and not _is_const(port):
                return False
    elif _fold_shape(graph, node):
        return True
    if not node.inputs or not kind.foldable or not all(_is_const(port) for port in node.inputs if port is not None):
        return False
    if not all(desc.is_static for desc in node.output_descs):
        return False
    weights = [None if port is None else port.node.attrs[VALUE] for port in node.inputs]
    results = _results(node, kind, weights)
    if results is None:
        return False
    replace_by_constants(graph, node, results)
    return True


def replace_by_constants(graph: Graph, node: OpDesc, results: list[Weight]) -> None:
    """Put one Const for each output in the node's place; control edges move to the first.

    It also waits for what the constants wait for that the node read: they order a write that stores the result.
    """
    consts = []
    for index, weight in enumerate(results):
        name = node.name if not index else f"{node.name}_{index}"
        consts.append((Port(node, index), weight, name))
    users = {port: graph.consumers(port) for port, _, _ in consts}
    before, after, near = _awaited(node), list(node.control_out), node
    rank_keeper = OpDesc("", "Const")
    rank_keeper.rank = near.rank
    graph.remove(node)
    for position, (port, weight, name) in enumerate(consts):
        desc = replace(weight.desc, attrs=NO_ATTRS)
        const = graph.create("Const", name, near=rank_keeper, output_descs=[desc], attrs={VALUE: weight})
        for use in users[port]:
            graph.connect(const.out(), use.node, use.slot)
        if position == 0:
            for each in before:
                graph.add_control(each, const)
            for each in after:
                graph.add_control(const, each)


def _awaited(node: OpDesc) -> list[OpDesc]:
    """What must run before a node, other than constants."""
    found: dict[OpDesc, None] = {}
    seen = {node}
    waiting = [node]
    while waiting:
        each = waiting.pop()
        read = (port.node for port in each.inputs if port is not None and _is_const(port))
        for before in (*each.control_in, *read):
            if before.type != "Const":
                found[before] = None
            elif before not in seen:
                seen.add(before)
                waiting.append(before)
    return list(found)


def _is_const(port: Port) -> bool:
    node = port[0]
    return node.type in CONST_TYPES and VALUE in node.attrs


def _fold_shape(graph: Graph, node: OpDesc) -> bool:
    """Shape, Size and Rank of a static tensor are known without its value."""
    kind = find(node.type)
    if kind is None or not hasattr(kind.cls, "fold_shape"):
        return False
    op = operator_of(node)
    assert op is not None
    value = op.fold_shape(*node.input_descs)
    if value is None:
        return False
    desc = node.output_descs[0]
    array = np.asarray(value).astype(desc.dtype.numpy)
    replace_by_constants(graph, node, [Weight.of(array, TensorDesc(desc.dtype, tuple(array.shape)))])
    return True


def _results(node: OpDesc, kind: OperatorType, weights: list[Weight | None]) -> list[Weight] | None:
    present = [weight for weight in weights if weight is not None]
    inputs = sum(weight.nbytes for weight in present)
    outputs = sum(desc.nbytes for desc in node.output_descs)
    if outputs > max(inputs, GROWTH_BYTES):
        return None
    if max(inputs, outputs) <= SMALL_BYTES:
        return _computed(node, [None if weight is None else weight.numpy() for weight in weights])
    if node.type in CONVERSIONS and weights[0] is not None and weights[0].nbytes > SMALL_BYTES // 2:
        return _pending(node, weights[0])
    return None


def _pending(node: OpDesc, weight: Weight) -> list[Weight] | None:
    """A conversion of a large weight, left pending on its reference."""
    target = replace(node.output_descs[0], attrs=NO_ATTRS, size_bytes=0)
    if node.type in ("Reshape", "SqueezeV2", "UnsqueezeV2", "ReFormat"):
        return [weight.described_as(target)] if not weight.transforms or weight.shape == target.shape else None
    if node.type == "TransposeD" and target.format.primary == weight.desc.format.primary:
        from gecli.layout.transforms import TransposeTransform

        return [weight.then(TransposeTransform(tuple(node.attrs["perm"])), target)]
    source = node.input_descs[0]
    described = weight if source is None else weight.described_as(replace(source, attrs=NO_ATTRS, size_bytes=0))
    try:
        return [convert_weight(described, target)]
    except GecliError:
        return None


def _computed(node: OpDesc, arrays: list[Array | None]) -> list[Weight] | None:
    exact = node.type in _EXACT_DTYPE or any(array is not None and array.dtype.hasobject for array in arrays)
    if not exact:
        arrays = [_widened(array) for array in arrays]
    try:
        values = evaluate_node(node, arrays)
    except GecliError:
        return None
    results = []
    for desc, value in zip(node.output_descs, values):
        if value.dtype.hasobject:
            return None
        if tuple(value.shape) != desc.shape:
            return None
        results.append(Weight.of(value.astype(desc.dtype.numpy), replace(desc, attrs=NO_ATTRS, size_bytes=0)))
    return results


def _widened(array: Array | None) -> Array | None:
    if array is None or array.dtype.kind not in "fV":
        return array
    return array.astype(np.float64)
