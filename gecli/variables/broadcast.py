"""Variables that collective operators broadcast (GE: VarBroadCastInfo)."""

from __future__ import annotations

from typing import NamedTuple


class BroadcastInfo(NamedTuple):
    """One variable broadcast in place by input and output `idx` of an operator."""

    var_name: str
    broadcast_name: str
    idx: int
    input_offset: int
    input_size: int
    output_offset: int
    output_size: int
