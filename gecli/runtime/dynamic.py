"""Executing a model whose shapes are known only at run time: node by node, freeing each tensor after its last use.

All values are in logical form, whatever storage format the OM names: conversions between formats only reorder axes.
Variables keep their stored form and are converted where a node reads or writes them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gecli.errors import CompileError, RuntimeFault
from gecli.ir.attributes import CONST_TYPES, DATA_TYPES
from gecli.ir.calls import argument_slot
from gecli.ir.op_desc import OpDesc, Port
from gecli.ops.evaluate import evaluate_node
from gecli.runtime.bound_graph import BoundGraph, bind_graph, is_true
from gecli.runtime.known_values import reordered
from gecli.runtime.node_fault import node_fault
from gecli.runtime.operands import to_logical
from gecli.runtime.program import Watch
from gecli.runtime.variable_use import LiveVariables
from gecli.wire.model_record import GraphRecord

Array = NDArray[Any]
Values = dict[Port, Array]
MAX_LOOP = 10_000_000
SHAPE_FAULTS = ("G4001", "G4009")


class DynamicExecutor:
    """Runs the graphs of one dynamic model."""

    def __init__(
        self,
        graphs: Mapping[str, GraphRecord],
        constants: Mapping[Port, Array],
        max_loop: int = MAX_LOOP,
        variables: LiveVariables | None = None,
    ) -> None:
        self.watch: Watch | None = None
        self._max_loop = max_loop
        self._graphs = graphs
        self._constants = constants
        self._variables = variables
        self._views: Mapping[Port, Array] = variables.views if variables else {}
        self._last_use = {name: _last_uses(graph.nodes) for name, graph in graphs.items()}
        self._bound: dict[str, BoundGraph | None] = {}  # None: to be run node by node

    def run(self, graph: GraphRecord, feeds: Mapping[str, Array]) -> list[Array]:
        """The outputs of `graph`, which may also write variables."""
        found = self._run_bound(graph, feeds) if self.watch is None else None
        return self._run_nodes(graph, feeds) if found is None else found

    def _run_bound(self, graph: GraphRecord, feeds: Mapping[str, Array]) -> list[Array] | None:
        """The outputs of a graph whose shapes are all fixed; None for others."""
        if graph.name not in self._bound:
            # Graphs with variables are never bound, and neither are graphs that call one with variables.
            self._bound[graph.name] = bind_graph(graph, self._graphs, self._constants, self._execute)
        bound = self._bound[graph.name]
        try:
            return None if bound is None else bound.run(feeds)
        except RuntimeFault as error:
            if error.code not in SHAPE_FAULTS:
                raise
            self._bound[graph.name] = None  # a branch with another shape than the node says: all is computed again
            return None

    def _run_nodes(self, graph: GraphRecord, feeds: Mapping[str, Array]) -> list[Array]:
        values: Values = {}
        last_use = self._last_use[graph.name]
        returned: list[Array] = []
        for step, node in enumerate(graph.nodes):
            if node.type == "NetOutput":
                returned = self._returned(node, values)
                continue
            self._step(node, values, feeds)
            for port in last_use.get(step, ()):
                values.pop(port, None)
        return returned

    def _returned(self, node: OpDesc, values: Values) -> list[Array]:
        """What a NetOutput collects; of a variable what it holds now."""
        if self._variables is None:
            return [self._value(port, values) for port in node.data_inputs]
        self._variables.require(node)
        return [self._variables.own(node, self._value(port, values)) for port in node.data_inputs]

    def _step(self, node: OpDesc, values: Values, feeds: Mapping[str, Array]) -> None:
        if node.type in DATA_TYPES:
            values[Port(node, 0)] = feeds[node.name]
            return
        if node.type in CONST_TYPES or Port(node, 0) in self._constants or (node.is_variable and not node.inputs):
            return
        variables = self._variables
        if variables is not None:
            variables.require(node)
        inputs = [None if port is None else self._value(port, values) for port in node.inputs]
        for index, value in enumerate(self._execute(node, inputs)):
            port = Port(node, index)
            if variables is None:
                values[port] = np.asarray(value)
            elif port in self._views:
                variables.write(port, value)
            else:
                values[port] = variables.own(node, np.asarray(value))
        if self.watch is not None:
            self.watch(node, lambda port: self._value_or_none(port, values))

    def _execute(self, node: OpDesc, inputs: list[Array | None]) -> list[Array]:
        match node.type:
            case "If" | "StatelessIf" | "_If":
                condition = inputs[0]
                assert condition is not None
                return self._call(node, 0 if is_true(condition) else 1, inputs)
            case "Case" | "StatelessCase":
                index = int(np.asarray(inputs[0]))
                count = len(node.subgraphs)
                return self._call(node, index if 0 <= index < count else count - 1, inputs)
            case "PartitionedCall" | "StatefulPartitionedCall":
                return self._call(node, 0, inputs)
            case "While" | "StatelessWhile" | "_While":
                return self._loop(node, inputs)
        if node.type in ("TransData", "ReFormat"):
            return [reordered(node, inputs[0])]
        if node.is_variable:  # what is computed for it is stored
            value = inputs[0]
            assert value is not None
            return [value]
        try:
            return evaluate_node(node, inputs)
        except CompileError as error:
            cause = error.__cause__
            if cause is None:
                raise
            raise node_fault(node, cause, inputs, is_dynamic=True) from cause

    def _loop(self, node: OpDesc, inputs: list[Array | None]) -> list[Array]:
        for _ in range(self._max_loop):
            if not is_true(self._call(node, 0, inputs)[0]):
                return [value for value in inputs if value is not None]
            inputs = list(self._call(node, 1, inputs))
        raise RuntimeFault(
            "G4014",
            f"loop {node.name!r} did not end in {self._max_loop} iterations",
            do="raise --max-loop, or look at the condition",
            node=node.name,
            kind="RT_LOOP_LIMIT",
        )

    def _call(self, node: OpDesc, number: int, inputs: list[Array | None]) -> list[Array]:
        """The results of one of a node's subgraphs for the inputs of the node."""
        graph = self._graphs[node.subgraphs[number]]
        feeds: dict[str, Array] = {}
        for data in graph.nodes:
            if data.type in DATA_TYPES:
                value = inputs[argument_slot(data, node)]
                assert value is not None
                feeds[data.name] = value
        return self.run(graph, feeds)

    def _value_or_none(self, port: Port, values: Values) -> Array | None:
        known = port in values or port in self._views or port in self._constants
        return self._value(port, values) if known else None

    def _value(self, port: Port, values: Values) -> Array:
        found = values.get(port)
        if found is None and port in self._views:
            found = to_logical(self._views[port], port.desc)
        return self._constants[port] if found is None else found


def _last_uses(nodes: list[OpDesc]) -> dict[int, list[Port]]:
    last: dict[Port, int] = {}
    for step, node in enumerate(nodes):
        for port in node.data_inputs:
            last[port] = step
        if node.type != "NetOutput":
            for index in range(len(node.output_descs)):
                last.setdefault(Port(node, index), step)
    found: dict[int, list[Port]] = {}
    for port, step in last.items():
        found.setdefault(step, []).append(port)
    return found
