"""Which variables a loop passes from iteration to iteration, and which it only starts from.

A loop whose body returns the argument itself, or what wrote it, at the argument's place goes on with the same variable.
Any other body gives a new value: the loop carries values, and the variable is what the first iteration starts from.
GE takes every argument for the first kind, so that no iteration sees what the one before it gave.
"""

from __future__ import annotations

from gecli.ir.attributes import DATA_TYPES
from gecli.ir.calls import CONTROL_TYPES, LOOP_TYPES, argument_slot, returned_slot
from gecli.ir.graph import Graph
from gecli.ir.op_desc import OpDesc, Port
from gecli.passes.written_inputs import writes_at, writes_of

_SAME_MEMORY = frozenset(("Identity", "RefIdentity"))


def passes_on(loop: OpDesc, slot: int) -> bool:
    """Whether each iteration of `loop` gets what the first one got for argument `slot`, written or not."""
    return _returned_slot(loop.subgraphs[-1], loop, slot) == slot


def writer_of_argument(caller: OpDesc, slot: int) -> OpDesc | None:
    """A node of the graphs that `caller` calls which writes argument `slot` in place."""
    for name in caller.subgraphs:
        graph: Graph = caller.graph.subgraphs[name]
        waiting = [data.out() for data in _arguments(graph, caller, slot)]
        while waiting:
            for use in graph.consumers(waiting.pop()):
                if writes_at(use):
                    return use.node
                if use.node.type in _SAME_MEMORY:
                    waiting.append(use.node.out())
                elif use.node.subgraphs:
                    found = writer_of_argument(use.node, use.slot)
                    if found is not None:
                        return found
    return None


def _arguments(graph: Graph, caller: OpDesc, slot: int) -> list[OpDesc]:
    return [data for data in graph.nodes_of(*sorted(DATA_TYPES)) if argument_slot(data, caller) == slot]


def _returned_slot(name: str, caller: OpDesc, index: int) -> int | None:
    """The argument of `caller` that output `index` of a graph refers to; None when it is something else."""
    returned = caller.graph.subgraphs[name].net_output
    place = None if returned is None else returned_slot(returned, index)
    port = None if returned is None or place is None else returned.inputs[place]
    while port is not None:
        node = port.node
        if node.type in DATA_TYPES:
            return argument_slot(node, caller)
        if node.is_variable:  # the argument, once it stands in the graph itself
            return _slot_of_variable(caller, node.ref_variable or node.name, index)
        port = _behind(port)
    return None


def _slot_of_variable(caller: OpDesc, name: str, wanted: int) -> int | None:
    slots = [
        slot
        for slot, port in enumerate(caller.inputs)
        if port is not None and port.node.is_variable and port.node.name == name
    ]
    return wanted if wanted in slots else next(iter(slots), None)


def _behind(port: Port) -> Port | None:
    """The input that is the same memory as an output."""
    node = port.node
    if node.type in _SAME_MEMORY:
        return node.inputs[0]
    if node.type in CONTROL_TYPES and node.subgraphs:
        called = node.subgraphs[-1:] if node.type in LOOP_TYPES else node.subgraphs
        slots = {_returned_slot(name, node, port.index) for name in called}
        slot = slots.pop() if len(slots) == 1 else None
        if slot is None or (node.type in LOOP_TYPES and slot != port.index):
            return None
        return node.inputs[slot] if slot < len(node.inputs) else None
    return next((node.inputs[write.slot] for write in writes_of(node) if write.output == port.index), None)
