"""Constants, external weights and placeholders that lie in variable memory."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from gecli.ir.attributes import CONST_TYPES, VARIABLE_MEMORY_TYPES
from gecli.ir.tensor_desc import TensorDesc
from gecli.variables.placeholder import CONST_PLACEHOLDER
from gecli.wire.model_record import GraphRecord


class Beside(NamedTuple):
    """A constant, external weight or placeholder with an address among the variables."""

    name: str
    type: str
    desc: TensorDesc
    address: int
    device_address: int = 0

    @property
    def is_constant(self) -> bool:
        return self.type in CONST_TYPES


def beside(graphs: Iterable[GraphRecord], base: int) -> Iterator[Beside]:
    """What else than variables has an address in variable memory, which begins at `base`."""
    for graph in graphs:
        for node in graph.nodes:
            if node.type not in VARIABLE_MEMORY_TYPES or node.is_variable or not node.output_descs:
                continue
            placement = graph.placements.get(node)
            address = placement.output_offsets[0] if placement and placement.output_offsets else 0
            if address >= base:
                held = int(node.attrs.get("addr", 0)) if node.type == CONST_PLACEHOLDER else 0
                yield Beside(node.name, node.type, node.output_descs[0], address, held)
