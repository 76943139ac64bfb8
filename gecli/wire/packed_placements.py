"""The placements of a graph that was read, as numbers in one array: a graph has as many of them as nodes."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gecli.ir.op_desc import OpDesc
from gecli.ir.placement import Placement

FEW_NUMBERS = 64  # so many go through one tuple
_HEAD = 6  # numbers before the offsets: id, stream, and how many offsets there are of each of the four kinds


class PackedPlacements(Mapping[OpDesc, Placement]):
    """The placement of each node of `nodes`, made when it is asked for. They are appended in node order."""

    def __init__(self, nodes: Sequence[OpDesc]) -> None:
        self._nodes = nodes
        self._numbers = array("q")
        self._begins = array("Q")

    def append(self, op: Any) -> int:
        """The numbers of an OpDef. Returns how many offsets there are."""
        numbers = self._numbers
        self._begins.append(len(numbers))
        inputs, outputs, work, work_bytes = op.input_i, op.output_i, op.workspace, op.workspace_bytes
        counts = (len(inputs), len(outputs), len(work), len(work_bytes))
        total = sum(counts)
        if total > FEW_NUMBERS:
            numbers.extend((op.id, op.stream_id, *counts))
            for offsets in (inputs, outputs, work, work_bytes):
                numbers.extend(offsets)
        else:
            numbers.extend((op.id, op.stream_id, *counts, *inputs, *outputs, *work, *work_bytes))
        return total

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
