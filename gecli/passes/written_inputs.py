"""Inputs that an operator writes in place (training.md 9.1), and the outputs that show the write."""

from __future__ import annotations

from typing import NamedTuple

from gecli.ir.attributes import REF_PORT_INDEX
from gecli.ir.op_desc import OpDesc, Use
from gecli.ops.operator import AllInputs, OperatorType
from gecli.ops.registry import find


class Write(NamedTuple):
    """Input `slot` is written; output `output` is the same memory afterwards, None when no output shows it."""

    slot: int
    output: int | None


def writes_of(node: OpDesc) -> list[Write]:
    """The written inputs of a node in input order, for this node's own ports.

    GE keeps a table by operator type that it fills from the first node of each type. A variable ref is never a writer.
    """
    return [write for slot in range(len(node.inputs)) for write in writes_at(Use(node, slot))]


def writes_at(use: Use) -> list[Write]:
    """The writes through one input of a node; a NetOutput may have thousands of others."""
    node, slot = use
    if node.ref_variable is not None or node.is_variable or node.inputs[slot] is None:
        return []
    kind = find(node.type)
    output = None if kind is None else _output_of(node, kind, slot)
    if output is not None:
        return [Write(slot, output)]
    return [Write(slot, None)] if _is_marked(node, slot) else []


def output_names(node: OpDesc, kind: OperatorType) -> list[str]:
    """The names of a node's output ports: its own, or those that its type declares.

    Of a type that works on all inputs in place they are the names of the inputs.
    """
    if isinstance(kind.writes, AllInputs):
        return [input_name(node, kind, index) for index in range(len(node.output_descs))]
    if node.output_names is not None:
        return list(node.output_names)
    return [kind.output_name(index) for index in range(len(node.output_descs))]


def input_name(node: OpDesc, kind: OperatorType, slot: int) -> str:
    if node.input_names is not None and slot < len(node.input_names):
        return str(node.input_names[slot])
    return kind.input_name(slot)


def _output_of(node: OpDesc, kind: OperatorType, slot: int) -> int | None:
    name = input_name(node, kind, slot)
    if name not in kind.writes:
        return None
    names = output_names(node, kind)
    return names.index(name) if name in names else None


def _is_marked(node: OpDesc, slot: int) -> bool:
    desc = node.input_descs[slot]
    return desc is not None and bool(desc.attrs.get(REF_PORT_INDEX))
