"""Graphs of a dynamic model in which every shape is fixed, run as bound steps; branches and loop bodies often are.

Values are in logical form, as in the executor. A branch that a constant chooses becomes part of the graph around it,
what follows from constants alone is computed once, views are views, and a buffer serves again after its last reader.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gecli.errors import GecliError
from gecli.ir.attributes import DATA_TYPES
from gecli.ir.calls import CALL_TYPES, CONTROL_TYPES, IF_TYPES, argument_slot
from gecli.ir.format import Format
from gecli.ir.op_desc import OpDesc, Port
from gecli.ops.registry import find
from gecli.runtime.known_values import BORDERS, SILENT_TYPES, known_outputs
from gecli.runtime.node_fault import KERNEL_ERRORS
from gecli.runtime.operands import Operand, Step
from gecli.runtime.program import Program, Scratch, bind_node
from gecli.wire.model_record import GraphRecord

Array = NDArray[Any]
# Runs a node with subgraphs: its outputs for these inputs.
Control = Callable[[OpDesc, list[Array | None]], list[Array]]


class NotFixed(Exception):
    """The graph has something that cannot be bound: a free dimension, a variable, an operator with a state."""


class BoundGraph:
    """The steps of one graph and the arrays that they work on."""

    def __init__(self, inputs: dict[str, Array], program: Program, outputs: list[Array]) -> None:
        self._inputs = inputs
        self._program = program
        self._outputs = outputs

    def run(self, feeds: Mapping[str, Array]) -> list[Array] | None:
        """The outputs, free to keep; None when an input has another shape or type than the graph says.

        Raises RuntimeFault like the program of a static model. The graph has no state: it may be run again.
        """
        for name, array in self._inputs.items():
            value = feeds[name]
            if value.shape != array.shape or value.dtype != array.dtype:
                return None
            np.copyto(array, value)
        self._program.run()
        return [array.copy() for array in self._outputs]


def bind_graph(
    graph: GraphRecord, graphs: Mapping[str, GraphRecord], constants: Mapping[Port, Array], control: Control
) -> BoundGraph | None:
    """The graph bound to arrays of its own; None when that is not possible."""
    try:
        _require_stateless(graph, graphs)
        flat = _Flat(graphs, constants)
        outputs = flat.add(graph)
        return _bind(flat, graph, outputs, control)
    except (NotFixed, GecliError, *KERNEL_ERRORS):
        return None  # node by node the run says what is wrong, if anything is


def _require_stateless(graph: GraphRecord, graphs: Mapping[str, GraphRecord]) -> None:
    """Raises NotFixed when running the graph, or one that it calls, leaves traces."""
    for node in graph.nodes:
        if node.subgraphs:
            for name in node.subgraphs:
                _require_stateless(graphs[name], graphs)
            continue
        kind = find(node.type)
        known = node.type in SILENT_TYPES or (kind is not None and kind.stateless and not kind.writes)
        if not known or node.is_variable or node.ref_variable is not None:
            raise NotFixed


class _Flat:
    """A graph with its chosen branches put in their place.

    `nodes` are what is left to compute, `place` says which port holds the value of a port that is only another name
    for it, `known` are the constants and what follows from them.
    """

    def __init__(self, graphs: Mapping[str, GraphRecord], constants: Mapping[Port, Array]) -> None:
        self.graphs = graphs
        self.known: dict[Port, Array] = dict(constants)
        self.nodes: list[OpDesc] = []
        self.place: dict[Port, Port] = {}
        self._inside: set[str] = set()

    def at(self, port: Port) -> Port:
        return self.place.get(port, port)

    def add(self, graph: GraphRecord, caller: OpDesc | None = None) -> list[Port]:
        """Add the nodes of a graph, called by a node of one that is being added; the ports of its results."""
        self._inside.add(graph.name)
        results: list[Port] = []
        for node in graph.nodes:
            if node.type == "NetOutput":
                results = [self.at(port) for port in node.data_inputs]
            elif node.type in DATA_TYPES:
                _require_fixed(node)
                if caller is not None:
                    self._name(Port(node, 0), caller.inputs[argument_slot(node, caller)])
            elif node.type not in SILENT_TYPES and Port(node, 0) not in self.known:
                _require_fixed(node)
                self._add_node(node)
        return results

    def _name(self, port: Port, source: Port | None) -> None:
        """Make `port` another name for a value. Raises NotFixed when their descriptions differ."""
        if source is None:
            raise NotFixed
        source = self.at(source)
        have, want = source.desc, port.desc
        if have.logical_shape != want.logical_shape or have.dtype != want.dtype:
            raise NotFixed
        self.place[port] = source
        if source in self.known:
            self.known[port] = self.known[source]

    def _add_node(self, node: OpDesc) -> None:
        graph = self._chosen(node)
        if graph is not None:
            for index, result in enumerate(self.add(graph, node)):
                self._name(Port(node, index), result)
            return
        if not self._fold(node):
            self.nodes.append(node)

    def _chosen(self, node: OpDesc) -> GraphRecord | None:
        """The subgraph that stands for a node, whatever its inputs."""
        name = ""
        if node.type in CALL_TYPES:
            name = node.subgraphs[0]
        elif node.type in IF_TYPES and node.inputs[0] is not None:
            condition = self.known.get(self.at(node.inputs[0]))
            if condition is not None:
                name = node.subgraphs[0 if is_true(condition) else 1]
        # The nodes of a graph that is called twice would stand for two values each.
        return None if not name or name in self._inside else self.graphs[name]

    def _fold(self, node: OpDesc) -> bool:
        """Compute a node whose inputs are known; False when they are not."""
        inputs = [None if port is None else self.known.get(self.at(port)) for port in node.inputs]
        if any(value is None and port is not None for value, port in zip(inputs, node.inputs)):
            return False
        values = known_outputs(node, inputs)
        if values is None:
            return False
        for index, value in enumerate(values):
            self.known[Port(node, index)] = value
        return True


def is_true(value: Array) -> bool:
    """GE's truth of a condition: a scalar by value (floats against their epsilon), a tensor by having elements."""
    if value.ndim:
        return value.size > 0
    if value.dtype.kind == "f":
        return bool(abs(value) > np.finfo(value.dtype).eps)
    return bool(value)


def _require_fixed(node: OpDesc) -> None:
    for desc in node.output_descs:
        if not desc.is_static or (desc.dtype.bits or 8) % 8 or desc.dtype.numpy.hasobject:
            raise NotFixed


def _bind(flat: _Flat, graph: GraphRecord, outputs: list[Port], control: Control) -> BoundGraph:
    buffers = _Buffers(flat, outputs)
    data = [node for node in graph.nodes if node.type in DATA_TYPES]
    inputs = {node.name: buffers.new(Port(node, 0)) for node in data}
    program = Program(buffers.operands, is_dynamic=True)
    scratch = Scratch()
    for step, node in enumerate(flat.nodes):
        for port in filter(None, node.inputs):
            buffers.find(port)
        for index in range(len(node.output_descs)):
            buffers.new(Port(node, index), buffers.shared(node))
        if node.type in CONTROL_TYPES:
            program.add(node, [_control_step(node, buffers.operands, control)])
        else:
            program.add(node, bind_node(node, buffers.operands, scratch))
        buffers.release(step)
    return BoundGraph(inputs, program, [buffers.find(port) for port in outputs])


def _control_step(node: OpDesc, operands: Mapping[Port, Operand], control: Control) -> Step:
    inputs = [None if port is None else operands[port].array for port in node.inputs]
    targets = [operands[Port(node, index)].array for index in range(len(node.output_descs))]

    def run() -> None:
        for target, value in zip(targets, control(node, list(inputs)), strict=True):
            if target.shape != value.shape:
                raise ValueError(f"a branch gives {list(value.shape)}, not {list(target.shape)}")
            np.copyto(target, value)

    return run


class _Buffers:
    """The arrays of a flat graph's ports, made in order; memory that no later node reads is used again."""

    def __init__(self, flat: _Flat, outputs: list[Port]) -> None:
        self.operands: dict[Port, Operand] = {}
        self._flat = flat
        self._owner: dict[Port, Port] = {}  # of the memory that a port lies in, where it is another's
        self._memory: dict[Port, Array] = {}
        self._free: list[Array] = []
        self._ends = self._last_uses(outputs)

    def _last_uses(self, outputs: list[Port]) -> dict[int, list[Port]]:
        last: dict[Port, int] = {}
        for step, node in enumerate(self._flat.nodes):
            source = self.shared(node)
            for index in range(len(node.output_descs)):
                port = Port(node, index)
                if source is not None:
                    self._owner[port] = self._owner.get(source, source)
                last.setdefault(self._owner.get(port, port), step)
            for read in filter(None, node.inputs):
                read = self._flat.at(read)
                last[self._owner.get(read, read)] = step
        for port in outputs:
            last.pop(self._owner.get(port, port), None)
        ends: dict[int, list[Port]] = {}
        for port, step in last.items():
            ends.setdefault(step, []).append(port)
        return ends

    def shared(self, node: OpDesc) -> Port | None:
        """The port in whose memory the output of a node lies: views, and moves between formats of one order of axes."""
        kind, source = find(node.type), node.inputs[0] if node.inputs else None
        if source is None or kind is None:
            return None
        have, want = source.desc.logical(), node.output_descs[0].logical()
        if node.type in BORDERS:
            plain = Format.ND in (have.format.primary, want.format.primary)
            same = have.shape == want.shape and (plain or have.format.primary == want.format.primary)
        else:
            same = getattr(kind.cls, "view", False) and have.dtype == want.dtype
        return self._flat.at(source) if same and self._flat.at(source) not in self._flat.known else None

    def find(self, port: Port) -> Array:
        """The array of a port that has one, or of a constant."""
        if port not in self.operands:
            at = self._flat.at(port)
            if at in self._flat.known:
                self.operands[at] = Operand(port.desc, self._flat.known[at], True, is_constant=True)
            self.operands[port] = self.operands[at]
        return self.operands[port].array

    def new(self, port: Port, source: Port | None = None) -> Array:
        """A new array for a port, in the memory of `source` if it is given."""
        desc = port.desc.logical()
        if source is not None:
            array = self.operands[source].array.reshape(desc.shape)
        else:
            size = int(np.prod(desc.shape, dtype=np.int64)) * desc.dtype.numpy.itemsize
            memory = self._memory[port] = self._take(size)
            array = memory[:size].view(desc.dtype.numpy).reshape(desc.shape)
        self.operands[port] = Operand(port.desc, array, True)
        return array

    def _take(self, size: int) -> Array:
        fitting = [memory for memory in self._free if memory.size >= size]
        if not fitting:
            return np.zeros(size, np.uint8)
        best = min(fitting, key=lambda memory: memory.size)
        self._free = [memory for memory in self._free if memory is not best]
        return best

    def release(self, step: int) -> None:
        for port in self._ends.get(step, ()):
            memory = self._memory.pop(port, None)
            if memory is not None:
                self._free.append(memory)
