"""Descriptors and small constant values while a graph is built, so that importers can ask for them.

Nothing here is fatal: a node whose inputs do not fit gets outputs of unknown rank, and InferShapePass reports it.
Weights are read only when somebody asks for the value of that very tensor.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gecli.errors import GecliError
from gecli.ir.attributes import CONST_TYPES, VALUE
from gecli.ir.dtype import DataType
from gecli.ir.op_desc import OpDesc, Port
from gecli.ir.tensor_desc import UNKNOWN_RANK, TensorDesc
from gecli.ops.inference import RULE_FAULTS, check_inputs
from gecli.ops.inference_memo import InferenceMemo, memo_key
from gecli.ops.operator import OperatorType, instance
from gecli.ops.registry import find
from gecli.ops.stored_outputs import BORDERS, knows_origin, logical_inputs, stored

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Array = NDArray[Any]

# Elements; what the compiler folds too, so that shapes computed from shapes are known.
FOLD_LIMIT = 4096
# What such a computation may read: a Gather out of a table must not pull a large weight into memory.
READ_LIMIT = 1 << 18
_SHAPE_READERS = frozenset(("Shape", "Size", "Rank", "ShapeN"))


class KnownTensor(TensorDesc):
    """The descriptor of a constant tensor; `value` is read or computed when it is asked for."""

    __slots__ = ("owner", "port")
    owner: Inference
    port: Port

    @staticmethod
    def of(desc: TensorDesc, owner: Inference, port: Port) -> KnownTensor:
        known = KnownTensor(desc.dtype, desc.shape, desc.format, desc.origin_shape, desc.origin_format)
        object.__setattr__(known, "owner", owner)
        object.__setattr__(known, "port", port)
        return known

    @property
    def value(self) -> Array | None:
        return self.owner.value(self.port)


class Inference:
    """Output descriptors of new nodes, and the values of their outputs where all inputs are constant."""

    def __init__(self) -> None:
        self._known: dict[Port, KnownTensor] = {}
        self._values: dict[Port, Array | None] = {}
        self._memo = InferenceMemo()
        self.failed: dict[OpDesc, str] = {}

    def add_constant(self, node: OpDesc) -> None:
        """Make the value of a Const available."""
        port = Port(node, 0)
        self._known[port] = KnownTensor.of(node.output_descs[0], self, port)

    def infer(self, node: OpDesc, outputs: int = 0) -> None:
        """Give a node with connected inputs its output descriptors: as many as its type has, `outputs` at least."""
        kind = find(node.type)
        found = None if kind is None else self._inferred(kind, node)
        if found is None:
            count = outputs if kind is None else max(outputs, sum(not port.variadic for port in kind.outputs))
            found = (self._unknown(node),) * count
        elif len(found) < outputs:
            found = (*found, *(self._unknown(node),) * (outputs - len(found)))
        if kind is not None and len(found) > len(kind.outputs) and not any(port.variadic for port in kind.outputs):
            # Optimizers describe every written input; ports beyond the declared ones come with ApplyAddOutput.
            found = found[: max(outputs, len(kind.outputs), len(node.output_descs))]
        have = len(node.output_descs)
        for index, desc in enumerate(found):
            if index < have:
                node.output_descs[index] = desc
            else:
                node.add_output(desc)
        if kind is not None and node not in self.failed:
            self._note_values(kind, node)

    def value(self, port: Port | None) -> Array | None:
        """The constant behind a port; None when it is not known."""
        if port is None or port not in self._known:
            return None
        values = self._values
        waiting = [port]
        while waiting:
            current = waiting[-1]
            if current in values:
                waiting.pop()
                continue
            missing = self._missing_inputs(current)
            if missing:
                waiting += missing
                continue
            waiting.pop()
            self._evaluate(current)
        return values[port]

    def _inferred(self, kind: OperatorType, node: OpDesc) -> tuple[TensorDesc, ...] | None:
        known = self._known
        descs: list[TensorDesc | None] = []
        for port in node.inputs:
            descs.append(None if port is None else known.get(port) or port.node.output_descs[port.index])
        while descs and descs[-1] is None:
            descs.pop()
        key = memo_key(kind, node, descs)
        known_result = self._memo.get(key)
        if known_result is not None:
            return known_result
        try:
            check_inputs(kind.inputs, descs)
            found = instance(kind, node).infer(*logical_inputs(node, descs))
        except (GecliError, *RULE_FAULTS) as err:
            self.failed[node] = str(err)
            return None
        if type(found) is TensorDesc:
            results: tuple[TensorDesc, ...] = (found,)
        else:
            results = tuple(map(_bare, found if isinstance(found, tuple) else (found,)))
        if node.type not in BORDERS and any(map(knows_origin, descs)):
            results = tuple(stored(TensorDesc(each.dtype, UNKNOWN_RANK), each, descs) for each in results)
        return self._memo.keep(key, node, descs, results)

    @staticmethod
    def _unknown(node: OpDesc) -> TensorDesc:
        first = next((port.desc.dtype for port in node.inputs if port is not None), DataType.UNDEFINED)
        return TensorDesc(first, UNKNOWN_RANK)

    def _note_values(self, kind: OperatorType, node: OpDesc) -> None:
        """Remember outputs that can be computed now; nothing is computed yet."""
        if node.type in _SHAPE_READERS:
            if not all(port is not None and port.desc.is_static for port in node.inputs):
                return
        elif not kind.foldable or not kind.stateless or not node.inputs:
            return
        else:
            for port in node.inputs:
                if port is not None and port not in self._known:
                    return
        if node.subgraphs or any(not desc.is_static or desc.elements > FOLD_LIMIT for desc in node.output_descs):
            return
        for index, desc in enumerate(node.output_descs):
            port = Port(node, index)
            self._known[port] = KnownTensor.of(desc, self, port)

    def _missing_inputs(self, port: Port) -> list[Port]:
        node = port.node
        if node.type in CONST_TYPES or node.type in _SHAPE_READERS:
            return []
        return [each for each in node.inputs if each is not None and each not in self._values]

    def _evaluate(self, port: Port) -> None:
        import numpy as np

        from gecli.ops.evaluate import evaluate_node

        node = port.node
        if node.type in CONST_TYPES:
            self._values[port] = node.attrs[VALUE].numpy()
            return
        if node.type in _SHAPE_READERS:
            descs = [each.desc for each in node.data_inputs]
            # Only the shape counts; one zero under every index costs no memory.
            inputs = [np.broadcast_to(np.zeros((), desc.dtype.numpy), desc.shape) for desc in descs]
        else:
            inputs = [None if each is None else self._values[each] for each in node.inputs]  # type: ignore[misc]  # absent optional inputs
            too_large = any(x is not None and x.size > READ_LIMIT for x in inputs)
            if too_large or any(x is None and each is not None for x, each in zip(inputs, node.inputs)):
                self._forget(node)
                return
        try:
            outputs = evaluate_node(node, list(inputs))
        except GecliError:
            self._forget(node)  # the folding pass meets the same node and reports it
            return
        for index, value in enumerate(outputs):
            self._values[Port(node, index)] = np.asarray(value)

    def _forget(self, node: OpDesc) -> None:
        for index in range(len(node.output_descs)):
            self._values[Port(node, index)] = None


def _bare(desc: TensorDesc) -> TensorDesc:
    """A plain TensorDesc; descriptors that carry a value compare unequal to those without."""
    if type(desc) is TensorDesc:
        return desc
    return TensorDesc(
        desc.dtype, desc.shape, desc.format, desc.origin_shape, desc.origin_format, None, desc.shape_range
    )
