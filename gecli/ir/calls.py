"""Nodes that call graphs: their types, and what of a called graph stands for their inputs and outputs."""

from __future__ import annotations

from gecli.ir.attributes import DATA_INDEX, PARENT_NODE_INDEX
from gecli.ir.op_desc import OpDesc

IF_TYPES = frozenset(("If", "StatelessIf", "_If"))
CASE_TYPES = frozenset(("Case", "StatelessCase"))
LOOP_TYPES = frozenset(("While", "StatelessWhile", "_While"))
CALL_TYPES = frozenset(("PartitionedCall", "StatefulPartitionedCall"))
CONTROL_TYPES = IF_TYPES | CASE_TYPES | LOOP_TYPES | CALL_TYPES
CHOICE_TYPES = IF_TYPES | CASE_TYPES  # input 0 decides and is not passed in
# No graph that they call may write a variable (training.md 12).
STATELESS_TYPES = frozenset(("StatelessIf", "StatelessCase", "StatelessWhile"))


def argument_slot(data: OpDesc, caller: OpDesc) -> int:
    """Which input of the calling node a Data node of its subgraph stands for.

    `_parent_node_index` is the number of that input, so it counts what decides; `index` counts what is passed in.
    """
    found = data.attrs.get(PARENT_NODE_INDEX)
    if found is None:
        found = data.attrs.get(DATA_INDEX, 0) + (caller.type in CHOICE_TYPES)
    return int(found)


def returned_slot(output: OpDesc, index: int) -> int | None:
    """Which input of a called graph's NetOutput becomes output `index` of the calling node."""
    marks = [None if desc is None else desc.attrs.get(PARENT_NODE_INDEX) for desc in output.input_descs]
    if any(mark is not None for mark in marks):
        return marks.index(index) if index in marks else None
    return index if index < len(output.inputs) else None
