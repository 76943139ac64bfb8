"""Which nodes of a loaded model read which variables, and through which ports variables are reached."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gecli.ir.attributes import BROADCAST_TYPES, DATA_TYPES
from gecli.ir.calls import CONTROL_TYPES, LOOP_TYPES, argument_slot
from gecli.ir.op_desc import OpDesc, Port, Use
from gecli.layout.transforms import convert
from gecli.ops.registry import operator_of
from gecli.runtime.operands import is_blocked
from gecli.runtime.variable_store import VariableStore
from gecli.variables.trans_road import ROAD_TYPES
from gecli.wire.model_record import GraphRecord

Array = NDArray[Any]
VariableOf = Callable[[Port], str]  # the variable in whose memory a port lies; empty for every other port
Reads = dict[OpDesc, tuple[str, ...]]
_OVERWRITING = BROADCAST_TYPES | {"Assign"}
Accesses = dict[OpDesc, set[str]]


def reads_of(graphs: Mapping[str, GraphRecord], variable_of: VariableOf) -> Reads:
    """The variables that each node reads, for those that read any.

    A node that calls a graph reads only what is passed in and used there: where the graph has the variable itself,
    its nodes read it. What the body of a loop returns for a variable is not read, for the variable stands for it.
    """
    bodies = {
        name for each in graphs.values() for node in each.nodes if node.type in LOOP_TYPES for name in node.subgraphs
    }
    found: Reads = {}
    for graph in graphs.values():
        unread = _unread_conversions(graph.nodes, variable_of)
        for node in graph.nodes:
            if node in unread or (node.type == "NetOutput" and graph.name in bodies):
                continue
            names = [
                name
                for slot, port in enumerate(node.inputs)
                if port is not None and (name := variable_of(port)) and _is_read(node, slot, graphs)
            ]
            if names:
                found[node] = tuple(dict.fromkeys(names))
    return found


def accesses_of(graphs: Mapping[str, GraphRecord], variable_of: VariableOf) -> tuple[Accesses, Accesses]:
    """What each node reads and what it writes while the model runs; a node that calls graphs does what they do.

    Outputs of the model are copied when all has run. Nothing is read where nothing is written: it needs no order.
    """
    writes: Accesses = {}
    for graph in graphs.values():
        for node in graph.nodes:
            if _runs(node) and (names := _written_by(node, variable_of)):
                writes[node] = names
    if not writes:
        return {}, {}
    reads = {node: set(names) for node, names in reads_of(graphs, variable_of).items() if _runs(node)}
    done: set[str] = set()
    for name in graphs:
        _add_calls(graphs, name, (reads, writes), done)
    return reads, writes


def _add_calls(graphs: Mapping[str, GraphRecord], name: str, both: tuple[Accesses, Accesses], done: set[str]) -> None:
    """Let the nodes of a graph that call others do what is done there."""
    if name in done:
        return
    done.add(name)
    for node in graphs[name].nodes:
        for called in node.subgraphs:
            _add_calls(graphs, called, both, done)
            for accesses in both:
                inside = [accesses[each] for each in graphs[called].nodes if each in accesses]
                if inside:
                    accesses[node] = accesses.get(node, set()).union(*inside)


def _runs(node: OpDesc) -> bool:
    return node.type != "NetOutput" and not node.is_variable


def _written_by(node: OpDesc, variable_of: VariableOf) -> set[str]:
    names = {name for index in range(len(node.output_descs)) if (name := variable_of(Port(node, index)))}
    for slot, port in enumerate(node.inputs):
        name = "" if port is None else variable_of(port)
        if name and name not in names and _writes_at(Use(node, slot)):
            names.add(name)
    return names


def _writes_at(use: Use) -> bool:
    from gecli.passes.written_inputs import writes_at  # a run without written variables needs nothing of the passes

    return bool(writes_at(use))


def _is_read(node: OpDesc, slot: int, graphs: Mapping[str, GraphRecord]) -> bool:
    if node.type not in CONTROL_TYPES or not node.subgraphs:
        return not overwrites(node, slot)
    data = [each for name in node.subgraphs for each in graphs[name].nodes if each.type in DATA_TYPES]
    inside = [each for each in data if argument_slot(each, node) == slot]
    return not inside or any(each.users[0] for each in inside)


def overwrites(node: OpDesc, slot: int) -> bool:
    """True for an input that is replaced without being read: of an Assign, of a broadcast from another device."""
    if node.type not in _OVERWRITING:
        return False
    if node.type == "Assign":
        return slot == 0 and operator_of(node) is not None
    from gecli.ops.communication import current  # of models with collectives only

    broadcast = operator_of(node)
    return broadcast is not None and broadcast.root_rank != current().rank


def _unread_conversions(nodes: Iterable[OpDesc], variable_of: VariableOf) -> set[OpDesc]:
    """Conversions whose result nothing reads: behind them is an Assign, which replaces what they would give it.

    They stand between a variable and its Assign when another graph of the session changed how it is stored.
    """
    read: set[OpDesc] = set()
    unread: set[OpDesc] = set()
    for node in reversed(list(nodes)):
        if node.type in ROAD_TYPES and node not in read and not variable_of(Port(node, 0)):
            unread.add(node)
            continue
        read.update(
            port.node for slot, port in enumerate(node.inputs) if port is not None and not overwrites(node, slot)
        )
    return unread


class LiveVariables:
    """The variables of a model that runs node by node: where its ports find them, and who reads and writes them."""

    def __init__(
        self, store: VariableStore, init: str, names: Mapping[Port, str], views: Mapping[Port, Array], reads: Reads
    ):
        self.views = views
        self._store = store
        self._init = init
        self._names = names
        self._reads = reads

    def require(self, node: OpDesc) -> None:
        """Called before a node runs. Raises RuntimeFault when it reads a variable that has no value."""
        for name in self._reads.get(node, ()):
            self._store.require_value(name, self._init, node.name)

    def write(self, port: Port, value: Array) -> None:
        """Store the logical value of a port that lies in a variable."""
        desc = port.desc
        np.copyto(self.views[port], convert(value, desc.logical(), desc) if is_blocked(desc) else value)
        self._store.mark_written(self._names[port], f"node {port.node.name}")

    def own(self, node: OpDesc, value: Array) -> Array:
        """A result of a node that has read variables, free of their memory: a later write must not change it."""
        for port in node.inputs:
            view = None if port is None else self.views.get(port)
            if view is not None and np.may_share_memory(value, view):
                return value.copy()
        return value
