"""The nodes of a model that was read: many, never changed, and much alike."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from gecli.ir.op_desc import OpDesc, Use
from gecli.ir.tensor_desc import NO_ATTRS, TensorDesc

if TYPE_CHECKING:
    from gecli.wire.model_record import GraphRecord

NO_NODES: Mapping[OpDesc, None] = MappingProxyType({})


class RecordNode(OpDesc):
    """A node as a file has it, to be looked at.

    Descriptors, inputs and subgraphs are tuples, which nodes share where they are equal. `users` is made when asked
    for, from the inputs of the others; nodes without control edges share one empty mapping. `seq` is the place of
    the node in its graph.
    """

    __slots__ = ()

    def __init__(
        self,
        graph: GraphRecord,
        name: str,
        type: str,
        attrs: dict[str, Any],
        input_descs: Sequence[TensorDesc | None],
        output_descs: Sequence[TensorDesc],
        input_names: tuple[str, ...] | None,
        output_names: tuple[str, ...] | None,
        subgraphs: Sequence[str],
    ) -> None:
        self.graph = graph
        self.seq = len(graph.nodes)
        self.rank = 0
        self.name = name
        self.type = type
        self.input_names = input_names
        self.output_names = output_names
        self.attrs = attrs or NO_ATTRS  # type: ignore[assignment]  # what is shared must refuse to be changed
        # The lists of a node that passes work on are tuples here, for the same reason.
        self.input_descs = input_descs  # type: ignore[assignment]  # a tuple, see above
        self.output_descs = output_descs  # type: ignore[assignment]  # a tuple, see above
        self.subgraphs = subgraphs  # type: ignore[assignment]  # a tuple, see above
        self.inputs = ()  # type: ignore[assignment]  # a tuple, see above; set when the node is linked

    def __getattr__(self, name: str) -> Any:
        """Slots that are not set, because most nodes do without them."""
        if name == "users":
            return self.graph.readers.users(self)
        if name in ("control_in", "control_out"):
            return NO_NODES
        raise AttributeError(f"a node has no {name!r}")

    def order_behind(self, before: OpDesc) -> None:
        """Add a control edge from `before`."""
        if self.control_in is NO_NODES:
            self.control_in = {}
        if before.control_out is NO_NODES:
            before.control_out = {}
        self.control_in[before] = None
        before.control_out[self] = None


class Readers:
    """Which inputs read the outputs of each node of a graph, in a few bytes for an edge."""

    def __init__(self, nodes: Sequence[OpDesc]) -> None:
        self._nodes = nodes
        # Counting sort: first the number of readers of each node, then where its readers begin.
        begins = array("Q", bytes(8 * (len(nodes) + 2)))
        for node in nodes:
            for port in node.inputs:
                if port is not None:
                    begins[port.node.seq + 2] += 1
        for place in range(1, len(begins)):
            begins[place] += begins[place - 1]
        self._readers = array("I", bytes(4 * begins[-1]))
        self._slots = array("I", bytes(4 * begins[-1]))
        for position, node in enumerate(nodes):
            for slot, port in enumerate(node.inputs):
                if port is not None:
                    seq = port.node.seq + 1
                    edge = begins[seq]
                    self._readers[edge] = position
                    self._slots[edge] = slot
                    begins[seq] = edge + 1
        self._begins = begins

    def users(self, node: OpDesc) -> list[dict[Use, None]]:
        """As `OpDesc.users`: for each output its consumers in node order."""
        found: list[dict[Use, None]] = [{} for _ in node.output_descs]
        for edge in range(self._begins[node.seq], self._begins[node.seq + 1]):
            reader, slot = self._nodes[self._readers[edge]], self._slots[edge]
            port = reader.inputs[slot]
            assert port is not None  # it was one when the edges were counted
            found[port.index][Use(reader, slot)] = None
        return found
