"""What a graph computes, as a device does it: node by node in graph order, with variables as memory.

Unlike `ops.evaluate`, which has no memory, a reader of a variable sees what is in it when the reader runs, a write in
place reaches the variable through whatever refers to it, and subgraphs, stored formats and the marks that the
variable passes leave behind are understood. It judges passes, so it knows a graph at every stage of a compile.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gecli.engine.trans_ops import TRANS_OPS
from gecli.errors import GecliError
from gecli.ir.attributes import (
    ASSIGN_VAR_NAME,
    CONST_TYPES,
    DATA_TYPES,
    REF_VAR_SRC_VAR_NAME,
    VALUE,
)
from gecli.ir.calls import CALL_TYPES, CASE_TYPES, IF_TYPES, LOOP_TYPES, argument_slot
from gecli.ir.graph import Graph
from gecli.ir.op_desc import OpDesc, Port
from gecli.ir.tensor_desc import TensorDesc
from gecli.layout.transforms import convert
from gecli.ops.evaluate import evaluate_node
from gecli.ops.registry import find
from gecli.passes.loop_arguments import passes_on
from gecli.passes.prune import ACTING_TYPES
from gecli.passes.written_inputs import input_name, output_names
from gecli.runtime.bound_graph import is_true
from gecli.runtime.known_values import BORDERS, reordered

Array = NDArray[Any]
MAX_LOOP = 1000
QUESTION_TYPES = frozenset(("IsVariableInitialized", "VarIsInitializedOp"))
MARKS = (REF_VAR_SRC_VAR_NAME, ASSIGN_VAR_NAME)


class NotEvaluable(Exception):
    """The graph, or a value in it, is beyond what is evaluated; the text says why."""


class TooLarge(NotEvaluable):
    """More would have to be computed than is allowed."""


class _Known(NamedTuple):
    """What a node computed before, and from what."""

    type: str
    attrs: dict[str, Any]
    descs: list[Any]
    inputs: tuple[Array | None, ...]
    outputs: list[Array]


class _Frame(NamedTuple):
    """One call of a graph: what its ports hold, and which Data nodes stand for a variable."""

    graph: Graph
    values: dict[Port, Array]
    aliases: dict[OpDesc, str]


class GraphEvaluator:
    """Evaluates one graph again and again while passes change it; a node with unchanged inputs is not run again.

    `wide`: floats are held in float64 and casts between float types do nothing, so that what is left of a difference
    is no rounding.
    """

    def __init__(self, *, wide: bool = False, max_elements: int = 1 << 62) -> None:
        self.answers: Mapping[str, bool] = {}  # whether a variable is initialised, by the node that asks
        self._wide = wide
        self._max_elements = max_elements  # that a run may compute; a loop may run for ever
        self._left = max_elements
        self._known: dict[OpDesc, _Known] = {}
        self._constants: dict[OpDesc, tuple[Any, Array]] = {}
        self._state: dict[str, Array] = {}
        self.written: set[str] = set()  # the variables that the last run wrote

    def run(
        self, graph: Graph, feeds: Mapping[int, Array], variables: Mapping[str, Array]
    ) -> tuple[list[Array], dict[str, Array]]:
        """The outputs for `feeds` (by the position of the input), and what the variables hold afterwards.

        `variables` gives contents by name; a variable that is not in it begins with its initial value. Raises
        NotEvaluable.
        """
        self._state = {name: self._held(value) for name, value in variables.items()}
        self.written = set()
        self._left = self._max_elements
        arguments = [self._held(feeds[position]) for position in range(len(graph.inputs))]
        frame = _Frame(graph, {}, {})
        for node, value in zip(graph.inputs, arguments):
            frame.values[Port(node, 0)] = value
        return self._run(frame), self._state

    def _run(self, frame: _Frame) -> list[Array]:
        returned: list[Array] = []
        for node in frame.graph.nodes():
            if node.type in DATA_TYPES:
                continue
            if node.type == "NetOutput":
                returned = [self._read(port, frame) for port in node.data_inputs]
                continue
            self._step(node, frame)
        return returned

    def _step(self, node: OpDesc, frame: _Frame) -> None:
        if node.type in CONST_TYPES:
            frame.values[Port(node, 0)] = self._constant(node)
            return
        if node.is_variable:
            self._variable(node, frame)
            return
        if node.subgraphs:
            outputs = self._control(node, frame)
        else:
            outputs = self._computed(node, [None if p is None else self._read(p, frame) for p in node.inputs])
        for index, value in enumerate(outputs):
            frame.values[Port(node, index)] = value
            self._left -= value.size
        if self._left < 0:
            raise TooLarge(f"its tensors have more than {self._max_elements} elements")
        self._write(node, outputs, frame)

    def _variable(self, node: OpDesc, frame: _Frame) -> None:
        port = node.inputs[0] if node.inputs else None
        if node.ref_variable is not None:
            if port is not None:
                self._store(node.ref_variable, self._read(port, frame))
            return
        if port is not None:  # its Assign was removed: the value is computed into it
            self._store(node.name, self._read(port, frame))
        elif node.name not in self._state:
            initial = node.init_value
            if initial is None:
                raise NotEvaluable(f"variable {node.name!r} has no value")
            known = self._constants.get(node)
            if known is None or known[0] is not initial:
                known = self._constants[node] = (initial, self._held(initial.numpy()))
            self._state[node.name] = known[1]

    def _constant(self, node: OpDesc) -> Array:
        weight = node.attrs[VALUE]
        known = self._constants.get(node)
        if known is None or known[0] is not weight:
            known = self._constants[node] = (weight, self._held(weight.numpy()))
        return known[1]

    def _read(self, port: Port, frame: _Frame) -> Array:
        name = _held_in(port, frame)
        if name is not None:
            if name not in self._state:
                raise NotEvaluable(f"variable {name!r} has no value")
            return self._state[name]
        if port not in frame.values:
            raise NotEvaluable(f"{port} has no value")
        return frame.values[port]

    # ------------------------------------------------------------------ writing

    def _write(self, node: OpDesc, outputs: list[Array], frame: _Frame) -> None:
        for slot, index in _places_of_writes(node):
            source = node.inputs[slot]
            if source is not None and index < len(outputs):
                self._write_through(source, outputs[index], frame)
        for index, desc in enumerate(node.output_descs):
            for mark in MARKS if desc.attrs else ():
                if mark in desc.attrs and index < len(outputs):
                    self._store(desc.attrs[mark], outputs[index])

    def _store(self, variable: str, value: Array) -> None:
        self._state[variable] = value
        self.written.add(variable)

    def _write_through(self, port: Port, value: Array, frame: _Frame) -> None:
        """New content for the memory that `port` refers to."""
        node = port.node
        if node.is_variable:
            self._store(node.ref_variable or node.name, value)
            return
        if node in frame.aliases:
            self._store(frame.aliases[node], value)
            return
        if node.type in CONST_TYPES or node.type in DATA_TYPES:
            return
        frame.values[port] = value
        if node.type == "RefIdentity" and node.inputs[0] is not None:
            self._write_through(node.inputs[0], value, frame)
        for slot, index in _places_of_writes(node):
            source = node.inputs[slot]
            if index == port.index and source is not None:
                self._write_through(source, value, frame)

    # ------------------------------------------------------------------ nodes

    def _computed(self, node: OpDesc, inputs: list[Array | None]) -> list[Array]:
        known = self._known.get(node)
        if (
            known is not None
            and len(known.inputs) == len(inputs)
            and all(a is b for a, b in zip(known.inputs, inputs))
            and known.type == node.type
            and known.descs == node.output_descs
            and known.attrs == node.attrs
        ):
            return known.outputs
        outputs = self._evaluated(node, inputs)
        if known is not None and len(known.outputs) == len(outputs):
            # The old arrays where nothing has changed, so that what comes behind need not be run.
            outputs = [old if same_bits(old, new) else new for old, new in zip(known.outputs, outputs)]
        self._known[node] = _Known(node.type, dict(node.attrs), list(node.output_descs), tuple(inputs), outputs)
        return outputs

    def _evaluated(self, node: OpDesc, inputs: list[Array | None]) -> list[Array]:
        if node.type in QUESTION_TYPES:
            if node.name not in self.answers:
                raise NotEvaluable(f"nobody knows yet what {node.name!r} answers")
            return [np.array(self.answers[node.name])]
        if node.type in ACTING_TYPES:
            raise NotEvaluable(f"{node.type} node {node.name!r} needs another device")
        if self._wide and node.type == "Cast" and _between_floats(node):
            value = inputs[0]
            assert value is not None
            return [value]
        if node.type in BORDERS and not all(each is None or each.desc.is_static for each in (*node.inputs, node.out())):
            return [reordered(node, inputs[0])]  # tensors of unknown size are held in logical form
        plain = node.type in TRANS_OPS or node.type == "RefIdentity"
        if not plain:
            inputs = [_logical(value, port) for value, port in zip(inputs, node.inputs)]
        try:
            outputs = evaluate_node(node, inputs)
        except GecliError as error:
            why = f": {error.first.why}" if error.first.why else ""
            raise NotEvaluable(f"{error.first.message}{why}") from error
        except Exception as error:  # given what its operator does not take, a kernel fails in any way
            raise NotEvaluable(f"{node.type} node {node.name!r} cannot be evaluated: {error}") from error
        if not plain:
            declared = len(node.output_descs)
            stored = [_stored(value, desc) for value, desc in zip(outputs, node.output_descs)]
            outputs = [*stored, *outputs[declared:]]
        return [self._held(each) for each in outputs]

    def _held(self, value: Array) -> Array:
        if self._wide and (value.dtype.kind == "f" or value.dtype.name.startswith(("bfloat16", "float8"))):
            return value.astype(np.float64)
        return value

    # ------------------------------------------------------------------ subgraphs

    def _control(self, node: OpDesc, frame: _Frame) -> list[Array]:
        values = [None if port is None else self._read(port, frame) for port in node.inputs]
        if node.type in IF_TYPES and values[0] is not None:
            return self._call(node, 0 if is_true(values[0]) else 1, values, frame)
        if node.type in CASE_TYPES and values[0] is not None:
            branch, count = int(np.reshape(values[0], -1)[0]), len(node.subgraphs)
            return self._call(node, branch if 0 <= branch < count else count - 1, values, frame)
        if node.type in CALL_TYPES:
            return self._call(node, 0, values, frame)
        if node.type in LOOP_TYPES:
            for _ in range(MAX_LOOP):
                if not is_true(self._call(node, 0, values, frame)[0]):
                    return [self._argument(slot, value, node, frame) for slot, value in enumerate(values)]
                values = list(self._call(node, 1, values, frame))
            raise NotEvaluable(f"loop {node.name!r} did not end in {MAX_LOOP} iterations")
        raise NotEvaluable(f"a {node.type} node is not evaluated")

    def _argument(self, slot: int, value: Array | None, node: OpDesc, frame: _Frame) -> Array:
        """What a loop returns in the place of an argument: the variable again, if it hands one on."""
        port = node.inputs[slot] if slot < len(node.inputs) else None
        if port is not None and self._reference(node, slot, frame) is not None:
            return self._read(port, frame)
        assert value is not None
        return value

    def _call(self, node: OpDesc, branch: int, values: Sequence[Array | None], frame: _Frame) -> list[Array]:
        graph = frame.graph.subgraphs[node.subgraphs[branch]]
        inner = _Frame(graph, {}, {})
        for data in graph.nodes_of(*DATA_TYPES):
            slot = argument_slot(data, node)
            if slot >= len(values) or (value := values[slot]) is None:
                continue
            variable = self._reference(node, slot, frame)
            if variable is None:
                inner.values[Port(data, 0)] = value
            else:  # it is passed by reference
                inner.aliases[data] = variable
        return self._run(inner)

    def _reference(self, node: OpDesc, slot: int, frame: _Frame) -> str | None:
        """The variable that a node passes by reference as an argument."""
        port = node.inputs[slot] if slot < len(node.inputs) else None
        variable = None if port is None else self._variable_at(port, frame)
        if variable is None or (node.type in LOOP_TYPES and not passes_on(node, slot)):
            return None
        return variable

    def _variable_at(self, port: Port, frame: _Frame) -> str | None:
        if port.node.is_variable and port.node.ref_variable is None:
            return port.node.name
        return frame.aliases.get(port.node)


def _held_in(port: Port, frame: _Frame) -> str | None:
    """The variable in whose memory a port lies: what a node has written there is read as it is when it is read."""
    seen: set[Port] = set()
    while port not in seen:
        seen.add(port)
        node = port.node
        if node.is_variable:
            return node.ref_variable or node.name
        if node in frame.aliases:
            return frame.aliases[node]
        attrs = node.output_descs[port.index].attrs if port.index < len(node.output_descs) else {}
        for mark in MARKS if attrs else ():
            if mark in attrs:
                return str(attrs[mark])
        slot = 0 if node.type == "RefIdentity" else _slot_written(port)
        source = None if slot is None else node.inputs[slot]
        if source is None:
            return None
        port = source
    return None


def _slot_written(port: Port) -> int | None:
    return next((slot for slot, index in _places_of_writes(port.node) if index == port.index), None)


def _places_of_writes(node: OpDesc) -> Iterator[tuple[int, int]]:
    """The inputs that a node writes in place, and which result of its kernel is the new content.

    A kernel gives the content of every written input, also of those that no output of the node shows.
    """
    kind = find(node.type)
    if kind is None or not kind.writes:
        return
    names = output_names(node, kind)
    for slot in range(len(node.inputs)):
        name = input_name(node, kind, slot)
        if name not in kind.writes:
            continue
        index = names.index(name) if name in names else kind.output_index(name)
        if index is not None:
            yield slot, index


def same_bits(a: Array, b: Array) -> bool:
    """Equal type, dims and values; NaN equals NaN."""
    if a is b:
        return True
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    if a.dtype.hasobject:
        return bool(np.array_equal(a, b))
    return a.tobytes() == b.tobytes() or _equal_values(a, b)


def _equal_values(a: Array, b: Array) -> bool:
    with np.errstate(all="ignore"):
        return bool(np.all((a == b) | ((a != a) & (b != b))))


def elements_of(graph: Graph) -> Iterator[int]:
    """The number of elements of each tensor that the graph computes; -1 for one of unknown size."""
    for node in graph.all_nodes():
        for desc in node.output_descs:
            yield desc.elements if desc.is_static else -1


def _between_floats(node: OpDesc) -> bool:
    source, target = node.input_descs[0], node.output_descs[0]
    return source is not None and source.dtype.is_float and target.dtype.is_float


def _is_blocked(desc: TensorDesc) -> bool:
    return desc.is_static and not desc.format.is_origin


def _logical(value: Array | None, port: Port | None) -> Array | None:
    """What a kernel is given: it knows logical tensors only."""
    if value is None or port is None or not _is_blocked(port.desc):
        return value
    return convert(value, port.desc, port.desc.logical())


def _stored(value: Array, desc: TensorDesc) -> Array:
    return convert(value, desc.logical(), desc) if _is_blocked(desc) else value
