"""Where a node's operands lie: the numbers that memory planning assigns and the OM carries."""

from __future__ import annotations

from gecli.records import dataclass


@dataclass(frozen=True, slots=True)
class Placement:
    """Order, stream and offsets (bytes) of one node.

    Offsets of feature-map tensors count from the start of feature-map memory, those of constants from the start of
    the weights, those of variables are absolute logical addresses. `input_offsets` has one entry for each connected
    input, in slot order.
    """

    id: int
    stream_id: int = 0
    input_offsets: tuple[int, ...] = ()
    output_offsets: tuple[int, ...] = ()
    workspace_offsets: tuple[int, ...] = ()
    workspace_bytes: tuple[int, ...] = ()
