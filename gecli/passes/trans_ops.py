"""Conversion operators (GE: trans ops): a node as a step of a road, which step undoes which, nodes made from steps."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations
from typing import Any

import numpy as np

from gecli.engine.trans_insert import trans_data_attrs
from gecli.engine.trans_ops import is_inverse_perm
from gecli.ir.attributes import INSERTED_BY_GE, STREAM_LABEL, VALUE
from gecli.ir.graph import Graph
from gecli.ir.op_desc import OpDesc, Port
from gecli.ir.tensor_desc import Shape, TensorDesc
from gecli.ir.weight import Weight
from gecli.variables.trans_road import TransStep

STEP_ATTRS = ("perm", "axis", "groups")  # what a step does beyond its two descriptors


def step_of(node: OpDesc) -> TransStep:
    """What a trans op does. Its input 0 and output 0 have descriptors."""
    source = node.input_descs[0]
    assert source is not None
    return TransStep(node.type, source, node.output_descs[0], _step_attrs(node.attrs))


def _step_attrs(attrs: Mapping[str, Any]) -> dict[str, Any]:
    found = {}
    for name in STEP_ATTRS:
        value = attrs.get(name)
        if name == "groups" and value in (0, 1):
            continue  # both mean ungrouped, and so does a missing attribute
        if value is not None:
            found[name] = tuple(value) if isinstance(value, (tuple, list)) else value
    return found


def undoes(second: TransStep, first: TransStep) -> bool:
    """Whether `second` behind `first` gives the storage and the order of elements that `first` was given.

    A blocked form must also have the same origin: whoever reads it takes its axes from there.
    """
    if first.type != second.type and not (first.is_data_unchanged and second.is_data_unchanged):
        return False
    if not (second.src.same_reading(first.dst) and second.dst.same_reading(first.src)):
        return False
    # A missing perm is no permutation: GE takes two of them for a pair.
    perms = (step.attrs.get("perm", ()) for step in (first, second))
    return first.type != "TransposeD" or is_inverse_perm(*perms)


def unplug_constants(graph: Graph, node: OpDesc) -> None:
    """Disconnect the constant parameters of a trans op that is taken out.

    Isolating it would otherwise order each of them before the node's consumers, where they could never be removed.
    """
    for slot in range(1, len(node.inputs)):
        port = node.inputs[slot]
        if port is not None and port.node.type in ("Const", "Constant"):
            graph.disconnect(node, slot)


def node_of(step: TransStep, name: str, beside: OpDesc) -> OpDesc:
    """A node that performs `step`, not yet in a graph; it takes the stream of `beside`."""
    attrs: dict[str, Any] = {INSERTED_BY_GE: True, **_attrs_of(step)}
    if STREAM_LABEL in beside.attrs:
        attrs[STREAM_LABEL] = beside.attrs[STREAM_LABEL]
    return OpDesc(name, step.type, attrs=attrs, input_descs=[step.src], output_descs=[step.dst])


def add_shape_input(graph: Graph, node: OpDesc) -> None:
    """Give an inserted Reshape the constant that says its dims."""
    if node.type != "Reshape":
        return
    dims = Weight.of(np.array(node.output_descs[0].shape, np.int64))
    shape = graph.create("Const", f"{node.name}_shape", near=node, attrs={VALUE: dims}, output_descs=[dims.desc])
    graph.connect(Port(shape, 0), node, 1)
    node.input_descs[1] = dims.desc


def _attrs_of(step: TransStep) -> dict[str, Any]:
    """A road that was read from a file has no attributes: the descriptors say what they must be."""
    src, dst = step.src, step.dst
    match step.type:
        case "TransData":
            return trans_data_attrs(src.format, dst.format)
        case "TransposeD":
            return {"perm": step.attrs.get("perm") or _perm(src, dst)}
        case "Cast":
            return {"dst_type": int(dst.dtype)}
        case "SqueezeV2":
            return {"axis": inserted_axes(src.shape, dst.shape)}
        case "UnsqueezeV2":
            return {"axis": inserted_axes(dst.shape, src.shape)}
    return {}


def _perm(src: TensorDesc, dst: TensorDesc) -> tuple[int, ...]:
    from gecli.layout.axes import permutation

    return permutation(src.format.primary, dst.format.primary)


def inserted_axes(longer: Shape, shorter: Shape) -> tuple[int, ...]:
    """The leftmost positions of dims 1 in `longer` without which it is `shorter`; empty when there are none."""
    ones = [axis for axis, dim in enumerate(longer) if dim == 1]
    for axes in combinations(ones, max(len(longer) - len(shorter), 0)):
        if tuple(dim for axis, dim in enumerate(longer) if axis not in axes) == tuple(shorter):
            return axes
    return ()
