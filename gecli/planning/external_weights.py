"""Constants become FileConstants, whose bytes lie in files beside the OM (GE: FileConstantUtils; cache.md 8.3)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from gecli.ir.attributes import CONST_TYPES, SHA256_ATTR, VALUE
from gecli.ir.dtype import DataType
from gecli.ir.graph import Graph
from gecli.ir.op_desc import OpDesc
from gecli.ir.weight import Weight
from gecli.planning.weight_names import SPLIT, combined_name, combined_offsets, spelled, split_name
from gecli.records import dataclass

LOCATION, OFFSET, LENGTH = "location", "offset", "length"
_TEXTS = (DataType.STRING, DataType.STRING_REF)  # their size does not follow from the shape
Digests = Callable[[Sequence[Weight]], Sequence[str]]


@dataclass(frozen=True, slots=True)
class ExternalWeight:
    """The bytes of a FileConstant `node`. Its attributes say where they go."""

    node: OpDesc
    weight: Weight
    sha256: str

    @property
    def file(self) -> str:
        """The name of the file."""
        name: str = self.node.attrs[LOCATION]
        return name

    @property
    def offset_bytes(self) -> int:
        """Where the bytes begin in the file."""
        offset: int = self.node.attrs[OFFSET]
        return offset

    @property
    def length_bytes(self) -> int:
        return self.weight.nbytes

    def move_to(self, file: str, offset: int) -> None:
        """Let the node name another place."""
        self.node.attrs.update({LOCATION: file, OFFSET: offset})


def externalise(graph: Graph, mode: int, stem: str, digests: Digests) -> tuple[ExternalWeight, ...]:
    """Make every constant with elements, in subgraphs too, a FileConstant; the weights in the order of their files.

    Their order is by name, then by the graph that holds them: it fixes where they lie in a combined file.
    """
    found = [
        (node.name, part.name, node) for part in graph.all_graphs() for node in part.nodes_of(*sorted(CONST_TYPES))
    ]
    nodes = [node for _, _, node in sorted(found, key=lambda row: row[:2]) if _has_bytes(node)]
    weights: list[Weight] = [node.attrs[VALUE] for node in nodes]
    hashes = digests(weights)
    for node, weight, sha256 in zip(nodes, weights, hashes):
        _become_file_constant(node, weight, sha256)
    found_weights = tuple(map(ExternalWeight, nodes, weights, hashes))
    if mode != SPLIT:
        place_in_combined(found_weights, stem)
    return found_weights


def place_in_combined(weights: Sequence[ExternalWeight], stem: str) -> None:
    """Let the nodes name their places in a new combined file, in this order."""
    offsets = combined_offsets((each.sha256, each.length_bytes) for each in weights)
    for each in weights:
        each.move_to(combined_name(stem), offsets[each.sha256])


def _has_bytes(node: OpDesc) -> bool:
    """Whether there are bytes for a file. Texts, and a constant of another size than its output, stay in the OM."""
    value = node.attrs.get(VALUE)
    if not isinstance(value, Weight) or not node.output_descs or not value.nbytes:
        return False
    desc = node.output_descs[0]
    return desc.is_static and desc.dtype not in _TEXTS and desc.nbytes == value.nbytes


def _become_file_constant(node: OpDesc, weight: Weight, sha256: str) -> None:
    graph: Graph = node.graph
    desc = node.output_descs[0]
    graph.retype(node, "FileConstant")
    graph.rename(node, graph.unique_name(f"{node.name}_{spelled(sha256)}"))
    node.attrs = {name: value for name, value in node.attrs.items() if name != VALUE}
    node.attrs.update(
        {
            LOCATION: split_name(sha256),
            OFFSET: 0,
            LENGTH: weight.nbytes,
            "dtype": desc.dtype,
            "shape": desc.shape,
            "original_shape": desc.logical_shape,
            SHA256_ATTR: sha256,
        }
    )
