"""A model as an OM holds it: graphs of linked nodes with their placements, without networkx."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field
from typing import TYPE_CHECKING, Any

from gecli.errors import Diagnostic, InputError
from gecli.ir.op_desc import OpDesc
from gecli.ir.placement import Placement
from gecli.records import dataclass
from gecli.wire.om_faults import in_order
from gecli.wire.packed_placements import PackedPlacements
from gecli.wire.record_node import Readers

if TYPE_CHECKING:
    from gecli.ir.graph import Graph

MODEL_VERSION = 2
CUSTOM_VERSION = "1.11.z.0"


@dataclass(slots=True)
class GraphRecord:
    """One graph: nodes in id order, linked through `inputs`, `users` and the control lists of `OpDesc`.

    `output_sources` are the producers by which NetOutput names the outputs of the model (node and index), where these
    are not its inputs: mobile files keep the names from before the last conversions.
    """

    name: str
    nodes: list[OpDesc]
    attrs: dict[str, Any] = field(default_factory=dict)
    placements: Mapping[OpDesc, Placement] = field(default_factory=dict)
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    output_sources: tuple[tuple[str, int], ...] = ()
    _readers: Readers | None = field(default=None, compare=False, repr=False)

    @property
    def readers(self) -> Readers:
        """Who reads the outputs of nodes that a file was read into."""
        if self._readers is None:
            self._readers = Readers(self.nodes)
        return self._readers

    @staticmethod
    def of(graph: Graph, placements: Mapping[OpDesc, Placement], name: str | None = None) -> GraphRecord:
        """The record of a graph: nodes by placement id (graph order if there is none), inputs as CANN 8 names them."""
        nodes = graph.nodes()
        if placements:
            nodes.sort(key=lambda node: placements[node].id)
        inputs = tuple(f"{node.name}:0" for node in graph.inputs)
        return GraphRecord(name or graph.name, nodes, dict(graph.attrs), placements, inputs)

    def ids_and_streams(self) -> Iterator[tuple[int, int]]:
        """Id and stream of each placed node."""
        if isinstance(self.placements, PackedPlacements):
            return self.placements.ids_and_streams()
        return ((place.id, place.stream_id) for place in self.placements.values())

    def node(self, name: str) -> OpDesc | None:
        return next((node for node in self.nodes if node.name == name), None)

    def nodes_of(self, *types: str) -> list[OpDesc]:
        return [node for node in self.nodes if node.type in types]


@dataclass(slots=True)
class ModelRecord:
    """MODEL_DEF: `graphs[0]` is the root, the others are subgraphs that nodes name.

    `problems` holds what was wrong while reading: errors that make the model unusable for running but not for
    looking at, and warnings.
    """

    name: str
    graphs: list[GraphRecord]
    attrs: dict[str, Any] = field(default_factory=dict)
    version: int = MODEL_VERSION
    custom_version: str = CUSTOM_VERSION
    problems: list[Diagnostic] = field(default_factory=list)
    compressed_names: int = 0
    unreadable_names: int = 0
    nested_graphs: int = 0  # attributes that hold graphs, which are not looked into

    @property
    def root(self) -> GraphRecord:
        return self.graphs[0]

    def graph(self, name: str) -> GraphRecord | None:
        return next((graph for graph in self.graphs if graph.name == name), None)

    def require_sound(self) -> None:
        """Raises InputError with every error found while reading."""
        errors = in_order(problem for problem in self.problems if problem.severity == "error")
        if errors:
            raise InputError.of(errors)
