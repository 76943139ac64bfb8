"""A loaded static model as a flat list of bound steps over planned memory (runtime.md 11.1).

Everything that does not change from run to run is done here once: addresses, views, packed weights, scratch. A run
is `for step in steps: step()`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gecli.engine.kernel_table import is_agnostic
from gecli.errors import RuntimeFault
from gecli.ir.op_desc import OpDesc, Port
from gecli.layout.transforms import convert
from gecli.ops.operator import OperatorType
from gecli.ops.registry import find, operator_of
from gecli.runtime.known_values import SILENT_TYPES, hold_known_values, renames
from gecli.runtime.node_fault import KERNEL_ERRORS, node_fault
from gecli.runtime.operands import Operand, Step, is_blocked, logical_input, logical_output, to_logical

Array = NDArray[Any]
ValueOf = Callable[[Port], Array | None]  # the value of a port in its origin format; None when it has none now
Watch = Callable[[OpDesc, ValueOf], None]


class Instruction(NamedTuple):
    """One bound step and the node it belongs to."""

    step: Step
    node: OpDesc


class Program:
    """The steps of one model, in order."""

    __slots__ = ("_nodes", "_steps", "is_dynamic", "operands")

    def __init__(self, operands: dict[Port, Operand], *, is_dynamic: bool = False) -> None:
        self.operands = operands
        self.is_dynamic = is_dynamic
        self._steps: list[Step] = []
        self._nodes: list[OpDesc] = []  # of each step

    @property
    def instructions(self) -> list[Instruction]:
        return [Instruction(*each) for each in zip(self._steps, self._nodes)]

    def add(self, node: OpDesc, steps: list[Step]) -> None:
        """Append the steps of a node."""
        self._steps += steps
        self._nodes += [node] * len(steps)

    def run(self) -> None:
        """One execution over the bound arrays."""
        step: Step | None = None
        try:
            for step in self._steps:
                step()
        except KERNEL_ERRORS as error:
            node = next(node for each, node in zip(self._steps, self._nodes) if each is step)
            raise self._fault(node, error) from error

    def run_watched(self, watch: Watch) -> None:
        """As `run`, telling `watch` after every node that has a step."""
        for step, node, following in zip(self._steps, self._nodes, [*self._nodes[1:], None]):
            try:
                step()
            except KERNEL_ERRORS as error:
                raise self._fault(node, error) from error
            if following is not node:
                watch(node, self._logical_value)

    def _fault(self, node: OpDesc, error: Exception) -> RuntimeFault:
        values = [None if port is None else self._logical_value(port) for port in node.inputs]
        return node_fault(node, error, values, is_dynamic=self.is_dynamic)

    def _logical_value(self, port: Port) -> Array | None:
        operand = self.operands.get(port)
        if operand is None or operand.is_logical:
            return None if operand is None else operand.array
        return to_logical(operand.array, operand.desc)


class Scratch:
    """Memory that one step after another may use; its contents last no longer than a step."""

    def __init__(self) -> None:
        self._buffer: Array = np.empty(0, np.uint8)

    def __call__(self, size_bytes: int) -> Array:
        """At least `size_bytes` bytes, the same ones for every step that they suffice for."""
        if self._buffer.size < size_bytes:
            # More than asked for: what no step touches takes no memory, what earlier steps were lent stays with them.
            self._buffer = np.empty(max(size_bytes, 4 * self._buffer.size), np.uint8)
        return self._buffer[:size_bytes]


def bind_program(nodes: list[OpDesc], operands: dict[Port, Operand]) -> Program:
    """Bind every node, in id order, to the arrays of its operands."""
    program = Program(operands)
    scratch = Scratch()
    known = hold_known_values(nodes, operands)
    for node in nodes:
        if node.type in SILENT_TYPES or node.ref_variable is not None or node in known:
            continue
        try:
            program.add(node, bind_node(node, operands, scratch))
        except KERNEL_ERRORS as error:
            arrays = [None if port is None else operands[port].array for port in node.inputs if port in operands]
            raise node_fault(node, error, arrays, is_dynamic=False) from error
    return program


def bind_node(node: OpDesc, operands: dict[Port, Operand], scratch: Scratch) -> list[Step]:
    """The steps of one node; none when its result is already where it belongs."""
    kind = find(node.type)
    assert kind is not None, f"{node.type} was checked at load"
    inputs = [None if port is None else operands[port] for port in node.inputs]
    outputs = [operands[Port(node, index)] for index in range(len(node.output_descs))]
    if node.type in ("TransData", "ReFormat"):
        return _bind_conversion(_present(inputs[0], node), outputs[0], moves=not renames(node))
    if getattr(kind.cls, "view", False) and not is_blocked(outputs[0].desc):
        step = _bind_view(_present(inputs[0], node), outputs[0])
        if step is not None:
            return step
    return _bind_kernel(node, kind, inputs, outputs, scratch)


def _present(operand: Operand | None, node: OpDesc) -> Operand:
    assert operand is not None, f"{node.name} has no input 0"
    return operand


def _bind_view(source: Operand, target: Operand) -> list[Step] | None:
    """Nothing when both are the same memory, else a copy of the bytes; None when the forms do not allow it."""
    if is_blocked(source.desc) and not source.is_logical:
        return None
    if source.array.dtype != target.array.dtype or source.array.size != target.array.size:
        return None
    if _same_memory(source.array, target.array):
        return []
    flat, out = source.array.reshape(target.array.shape), target.array
    return [lambda: np.copyto(out, flat)]


def _same_memory(a: Array, b: Array) -> bool:
    return a.ctypes.data == b.ctypes.data and a.nbytes == b.nbytes


def _bind_conversion(source: Operand, target: Operand, *, moves: bool) -> list[Step]:
    """A TransData between the forms in which its two sides are kept; nothing `moves` where only the name changes."""
    have = source.desc.logical() if source.is_logical else source.desc
    want = target.desc.logical() if target.is_logical else target.desc
    array, out = source.array, target.array
    if source.is_constant and not target.in_variable:
        known = convert(array, have, target.desc.logical()) if moves else array.reshape(target.array.shape)
        _hold_logical(target, known)
        return []
    if not moves or have.format.primary == want.format.primary or (have.shape == want.shape and _plain(have, want)):
        if _same_memory(array, out):
            return []
        flat = array.reshape(out.shape)
        return [lambda: np.copyto(out, flat)]
    return [lambda: np.copyto(out, convert(array, have, want))]


def _hold_logical(target: Operand, value: Array) -> None:
    """Make an operand the constant `value` in logical form, wherever it was planned to lie."""
    target.array, target.is_logical, target.is_constant = value, True, True


def _plain(have: Any, want: Any) -> bool:
    """ND and an origin format of equal dims hold the same array."""
    nd = 2
    return have.format.is_origin and want.format.is_origin and nd in (int(have.format), int(want.format))


def _bind_kernel(
    node: OpDesc, kind: OperatorType, inputs: list[Operand | None], outputs: list[Operand], scratch: Scratch
) -> list[Step]:
    op = operator_of(node)
    assert op is not None
    before: list[Step] = []
    after: list[Step] = []
    if _runs_on_stored_form(node.type, inputs, outputs):
        arrays = [None if operand is None else operand.array for operand in inputs]
        results = [operand.array for operand in outputs]
    else:
        arrays = [None if operand is None else logical_input(operand, before) for operand in inputs]
        results = [logical_output(operand, after) for operand in outputs]
    while arrays and arrays[-1] is None:
        arrays.pop()
    constant = tuple(slot for slot, operand in enumerate(inputs) if operand is not None and operand.is_constant)
    op.constant_inputs = _slots(constant)
    op.lend_scratch = scratch
    bound = op.bind(arrays, results) if hasattr(op, "bind") else None
    return [*before, bound if bound is not None else kernel_step(op.kernel, arrays, results, node), *after]


@lru_cache(64)
def _slots(numbers: tuple[int, ...]) -> frozenset[int]:
    """One set for all nodes with the same constant inputs: a model has as many of them as nodes."""
    return frozenset(numbers)


def _runs_on_stored_form(type: str, inputs: list[Operand | None], outputs: list[Operand]) -> bool:
    """An elementwise operator may work on blocked bytes when all its blocked operands are stored alike."""
    blocked = [operand for operand in (*inputs, *outputs) if operand is not None and is_blocked(operand.desc)]
    if not blocked or any(operand.is_logical for operand in blocked) or not is_agnostic(type):
        return False
    first = blocked[0].desc
    if any(operand.desc.format != first.format or operand.desc.shape != first.shape for operand in blocked):
        return False
    others = [operand for operand in inputs if operand is not None and not is_blocked(operand.desc)]
    return all(operand.array.size == 1 for operand in others)


def kernel_step(kernel: Callable[..., Any], arrays: list[Array | None], results: list[Array], node: OpDesc) -> Step:
    """A step that calls the plain kernel and copies its results into place."""

    def step() -> None:
        values = kernel(*arrays)
        for result, value in zip(results, values if isinstance(values, tuple) else (values,)):
            if result.shape != value.shape:
                raise RuntimeFault(
                    "G4001",
                    f"{node.type} node {node.name!r} gave another shape than the model says",
                    why=f"expected {list(result.shape)}, got {list(value.shape)}",
                    node=node.name,
                    kind="RT_SHAPE_RANGE",
                    expected=list(result.shape),
                    actual=list(value.shape),
                )
            np.copyto(result, value, casting="unsafe")

    return step
