"""What follows from constants alone: computed when a model is loaded, not in every run (runtime.md 11.1).

A compiler keeps such nodes where the result is larger than what it follows from, as with int8 weights that become
float32.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gecli.errors import GecliError
from gecli.ir.attributes import CONST_TYPES, DATA_TYPES
from gecli.ir.format import Format
from gecli.ir.op_desc import OpDesc, Port
from gecli.layout.axes import permutation
from gecli.ops.evaluate import evaluate_node
from gecli.ops.registry import find
from gecli.runtime.node_fault import KERNEL_ERRORS
from gecli.runtime.operands import Operand, is_blocked, to_logical

Array = NDArray[Any]
BORDERS = frozenset(("TransData", "TransDataD", "ReFormat"))
CONSTANT_TYPES = CONST_TYPES | {"FileConstant", "ConstPlaceHolder"}
# Types that need no step: their outputs are inputs, constants or variables.
SILENT_TYPES = CONSTANT_TYPES | DATA_TYPES | {"Variable", "VariableV2", "NetOutput", "NoOp"}
# All results that are needed at one time may be so many times as large as the constants of the model: int8 becomes
# float32 and is then scaled.
GROWTH = 8
SMALL_BYTES = 1 << 20  # allowed beside that


def known_outputs(node: OpDesc, inputs: Sequence[Array | None]) -> list[Array] | None:
    """The outputs, in logical form, of a node for known inputs (None: left out).

    None for an operator with a state, and for one that has no inputs. Raises GecliError when the kernel refuses them.
    """
    kind = find(node.type)
    if kind is None or not kind.foldable or kind.writes or not inputs:
        return None
    return [reordered(node, inputs[0])] if node.type in BORDERS else evaluate_node(node, list(inputs))


def renames(node: OpDesc) -> bool:
    """True for a ReFormat between layouts of model authors: the same elements in the same order under other letters."""
    if node.type != "ReFormat":
        return False
    descs = (node.input_descs[0], node.output_descs[0])
    return all(desc is None or desc.format == desc.logical_format for desc in descs)


def reordered(node: OpDesc, value: Array | None) -> Array:
    """The result of a TransData on logical values: the axes in the order of the target's origin format."""
    assert value is not None
    source, target = node.input_descs[0], node.output_descs[0]
    if renames(node):
        return value
    have = target.logical_format if source is None else source.logical_format
    want = target.logical_format
    if have.primary == want.primary or Format.ND in (have.primary, want.primary):
        return value
    return np.transpose(value, permutation(have, want))


def hold_known_values(nodes: Sequence[OpDesc], operands: dict[Port, Operand]) -> set[OpDesc]:
    """Compute the nodes of a static graph that follow from constants; their operands become constants.

    `nodes` in the order in which they run. The result are the nodes that need no step. What only they read is dropped,
    and what a model output or a variable takes is left to the run, which has to put it there.
    """
    candidates = _behind_constants(nodes)
    if not candidates:
        return set()
    readers = [node for node in nodes if any(port is not None and port.node in candidates for port in node.inputs)]
    found = _KnownValues(readers, operands)
    for node in nodes:
        if node in candidates:
            found.compute(node)
        found.read_by(node)
    return found.computed


def _behind_constants(nodes: Sequence[OpDesc]) -> set[OpDesc]:
    """The nodes all of whose inputs are constants or come from such nodes; most graphs have hardly any."""
    found: set[OpDesc] = set()
    for node in nodes:
        if node.type in SILENT_TYPES or not node.inputs:
            continue
        if all(port is None or port.node.type in CONSTANT_TYPES or port.node in found for port in node.inputs):
            found.add(node)
    return found


class _KnownValues:
    """`readers`: the nodes that read what may become known."""

    def __init__(self, readers: Sequence[OpDesc], operands: dict[Port, Operand]) -> None:
        self.computed: set[OpDesc] = set()
        self._operands = operands
        self._values: dict[Port, Array] = {}
        self._unread = Counter(port for node in readers for port in node.inputs if port is not None)
        self._fixed_places = {
            port for node in readers if node.type in SILENT_TYPES or node.ref_variable for port in node.inputs if port
        }
        constants = sum(operand.array.nbytes for operand in operands.values() if operand.is_constant)
        self._bytes_left = GROWTH * constants + SMALL_BYTES

    def compute(self, node: OpDesc) -> None:
        values = self._compute(node)
        if values is None:
            return
        self.computed.add(node)
        for index, value in enumerate(values):
            self._values[Port(node, index)] = value
            self._bytes_left -= value.nbytes

    def read_by(self, node: OpDesc) -> None:
        """Keep what a step reads, drop what was read for the last time on the way to other known values."""
        for port in node.inputs:
            if port is None or port.node not in self.computed:
                continue
            self._unread[port] -= 1
            held = self._values.get(port)
            if held is None:
                continue
            operand = self._operands[port]
            if node not in self.computed:
                operand.array, operand.is_logical, operand.is_constant = held, True, True
            elif not self._unread[port]:
                del self._values[port]
                self._bytes_left += 0 if operand.is_constant else held.nbytes

    def _compute(self, node: OpDesc) -> list[Array] | None:
        if node.ref_variable is not None or node.subgraphs:
            return None
        outputs = [Port(node, index) for index in range(len(node.output_descs))]
        if any(self._operands[port].in_variable or port in self._fixed_places for port in outputs):
            return None
        if sum(self._operands[port].logical_desc.nbytes for port in outputs) > self._bytes_left:
            return None
        inputs = [None if port is None else self._value(port) for port in node.inputs]
        if any(value is None and port is not None for value, port in zip(inputs, node.inputs)):
            return None
        try:
            values = known_outputs(node, inputs)
        except (GecliError, *KERNEL_ERRORS):
            return None  # the run says what is wrong
        wanted = [self._operands[port].logical_desc for port in outputs]
        if values is None or [value.shape for value in values] != [desc.shape for desc in wanted]:
            return None
        return [np.asarray(value, desc.dtype.numpy, order="C") for value, desc in zip(values, wanted)]

    def _value(self, port: Port) -> Array | None:
        """The logical value of a port that is known before any run."""
        if port in self._values:
            return self._values[port]
        operand = self._operands.get(port)
        if operand is None or not operand.is_constant:
            return None
        if operand.is_logical:
            return operand.array
        desc = operand.desc
        if not is_blocked(desc) and desc.format.primary != desc.logical_format.primary:
            return None  # stored with its axes in another order (a filter in DHWCN): its conversion is bound with it
        return to_logical(operand.array, desc)
