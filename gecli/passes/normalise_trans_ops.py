"""Bring Transpose, Squeeze and Unsqueeze with constant parameters into the forms that trans roads know.

The variable pass folds TransposeD, SqueezeV2 and UnsqueezeV2 only, whose parameters are attributes (formats.md 9.4).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from gecli.ir.attributes import CONST_TYPES, VALUE
from gecli.ir.graph import Graph
from gecli.ir.op_desc import OpDesc
from gecli.passes.base import Pass, PassContext, Stage

Axes = tuple[int, ...]


class NormaliseTransOps(Pass):
    """Transpose and Permute become TransposeD, the Squeeze and Unsqueeze families SqueezeV2 and UnsqueezeV2."""

    name = "NormaliseTransOpsPass"
    stage = Stage.PREPARE
    level = "O1"

    def run(self, graph: Graph, ctx: PassContext) -> Counter[str]:
        counts = Counter[str]()
        for each in graph.all_graphs():
            for node in each.nodes_of(*_RULES):
                type, attribute, read = _RULES[node.type]
                values = read(node)
                if values is not None:
                    _rewrite(each, node, type, attribute, values)
                    counts["nodes_normalised"] += 1
        return counts


def _rewrite(graph: Graph, node: OpDesc, type: str, attribute: str, values: Axes) -> None:
    parameter = graph.disconnect(node, 1) if len(node.inputs) > 1 else None
    del node.inputs[1:], node.input_descs[1:]
    for name in ("order", "axes", "axis", "perm"):
        node.attrs.pop(name, None)
    node.attrs[attribute] = values
    node.input_names = None
    graph.retype(node, type)
    if parameter is not None and not any(parameter.node.users) and not parameter.node.control_out:
        graph.remove(parameter.node)


def _transpose(node: OpDesc) -> Axes | None:
    return _permutation(node, _constant(node))


def _permute(node: OpDesc) -> Axes | None:
    rank = node.output_descs[0].rank
    given = tuple(int(axis) for axis in node.attrs.get("order", (0,)))
    # Axes that the order leaves out follow behind.
    return _permutation(node, (*given, *(axis for axis in range(rank or 0) if axis not in given)))


def _permutation(node: OpDesc, values: Axes | None) -> Axes | None:
    rank = node.output_descs[0].rank
    if values is None or rank is None:
        return None
    perm = tuple(int(value) + rank if value < 0 else int(value) for value in values)
    return perm if sorted(perm) == list(range(rank)) else None


def _squeeze(node: OpDesc) -> Axes | None:
    """Axes of size 1 counted from the front; with none given, all of them."""
    desc = node.input_descs[0]
    if desc is None or desc.rank is None:
        return None
    given = _constant(node) if len(node.inputs) > 1 and node.inputs[1] is not None else node.attrs.get("axis", ())
    if given is None:
        return None
    if not given:
        return tuple(axis for axis, dim in enumerate(desc.shape) if dim == 1) if desc.is_static else None
    return _from_front(given, desc.rank)


def _unsqueeze(node: OpDesc) -> Axes | None:
    rank = node.output_descs[0].rank
    given = _constant(node) if len(node.inputs) > 1 else node.attrs.get("axes", node.attrs.get("axis"))
    return None if given is None or rank is None else _from_front(given, rank)


def _from_front(axes: Axes, rank: int) -> Axes | None:
    found = tuple(sorted(axis + rank if axis < 0 else axis for axis in axes))
    return found if all(0 <= axis < rank for axis in found) and len(set(found)) == len(found) else None


def _constant(node: OpDesc) -> Axes | None:
    """The integers of a constant second input."""
    port = node.inputs[1] if len(node.inputs) > 1 else None
    if port is None or port.node.type not in CONST_TYPES or VALUE not in port.node.attrs:
        return None
    return tuple(int(value) for value in port.node.attrs[VALUE].numpy().reshape(-1))


_RULES: dict[str, tuple[str, str, Callable[[OpDesc], Axes | None]]] = {
    "Transpose": ("TransposeD", "perm", _transpose),
    "Permute": ("TransposeD", "perm", _permute),
    "Squeeze": ("SqueezeV2", "axis", _squeeze),
    "SqueezeV3": ("SqueezeV2", "axis", _squeeze),
    "Unsqueeze": ("UnsqueezeV2", "axis", _unsqueeze),
    "UnsqueezeV3": ("UnsqueezeV2", "axis", _unsqueeze),
    "ExpandDims": ("UnsqueezeV2", "axis", _unsqueeze),
}
