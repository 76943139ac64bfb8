"""The placements of a graph that was read, as numbers in one array: a graph has as many of them as nodes."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gecli.ir.op_desc import OpDesc
from gecli.ir.placement import Placement

_HEAD = 6  # numbers before the offsets: id, stream, and how many offsets there are of each of the four kinds


class PackedPlacements(Mapping[OpDesc, Placement]):
    """The placement of each node of `nodes`, made when it is asked for. They are appended in node order."""

    def __init__(self, nodes: Sequence[OpDesc]) -> None:
        self._nodes = nodes
        self._numbers = array("q")
        self._begins = array("Q")

    def append(self, op: Any) -> None:
        """The numbers of an OpDef."""
        numbers = self._numbers
        self._begins.append(len(numbers))
        kinds = (op.input_i, op.output_i, op.workspace, op.workspace_bytes)
        numbers.extend((op.id, op.stream_id, *map(len, kinds)))
        for offsets in kinds:
            if offsets:
                numbers.extend(offsets)

    def ids_and_streams(self) -> Iterator[tuple[int, int]]:
        """Id and stream of each node."""
        numbers = self._numbers
        return ((numbers[at], numbers[at + 1]) for at in self._begins)

    def __getitem__(self, node: OpDesc) -> Placement:
        seq = node.seq
        if not 0 <= seq < len(self._begins) or self._nodes[seq] is not node:
            raise KeyError(node)
        numbers, at = self._numbers, self._begins[seq]
        number, stream, *counts = numbers[at : at + _HEAD]
        at += _HEAD
        parts: list[tuple[int, ...]] = []
        for count in counts:
            parts.append(tuple(numbers[at : at + count]) if count else ())
            at += count
        return Placement(number, stream, *parts)

    def __iter__(self) -> Iterator[OpDesc]:
        return iter(self._nodes)

    def __len__(self) -> int:
        return len(self._nodes)
