"""Constants by content, so that equal constants of a session share one block (GE: GetReuseAddr)."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING

from gecli.ir.attributes import VALUE
from gecli.ir.dtype import DataType
from gecli.ir.op_desc import OpDesc
from gecli.records import dataclass

if TYPE_CHECKING:
    from gecli.ir.weight import Weight

CONSTANT = "Constant"
_NOT_SHARED = frozenset((DataType.STRING, DataType.STRING_REF))


@dataclass(slots=True)
class _Held:
    weight: Weight
    address: int
    capacity_bytes: int
    digest: str = field(default="")

    def sha256(self) -> str:
        self.digest = self.digest or self.weight.sha256()
        return self.digest


class ConstantIndex:
    """`Constant` nodes by element width, byte count and, only where these meet, a digest of the bytes."""

    __slots__ = ("_held", "_last")

    def __init__(self) -> None:
        self._held: dict[tuple[int, int], list[_Held]] = {}
        self._last: tuple[Weight, str] | None = None  # an add usually follows the search for the same weight

    def find(self, node: OpDesc, need_bytes: int) -> int | None:
        """The lowest address with the bytes of `node` in a block of at least `need_bytes`; None when there is none."""
        key, weight = _content(node)
        held = self._held.get(key, ()) if weight is not None else ()
        fitting = [other for other in held if other.capacity_bytes >= need_bytes]
        if weight is None or not fitting:
            return None
        digest = weight.sha256()
        self._last = (weight, digest)
        return min((other.address for other in fitting if other.sha256() == digest), default=None)

    def add(self, node: OpDesc, address: int, capacity_bytes: int) -> None:
        """Offer the block of `node` to later constants; nodes that cannot be shared are ignored."""
        key, weight = _content(node)
        if weight is not None:
            digest = self._last[1] if self._last is not None and self._last[0] is weight else ""
            self._held.setdefault(key, []).append(_Held(weight, address, capacity_bytes, digest))

    def copy(self) -> ConstantIndex:
        other = ConstantIndex()
        other._held = {key: list(held) for key, held in self._held.items()}
        return other


def _content(node: OpDesc) -> tuple[tuple[int, int], Weight | None]:
    """Width in bits and byte count with the data; no data for a node that never shares."""
    dtype = node.output_descs[0].dtype
    weight: Weight | None = node.attrs.get(VALUE)
    if node.type != CONSTANT or weight is None or dtype.bits is None or dtype in _NOT_SHARED or not weight.nbytes:
        return (0, 0), None
    return (dtype.bits, weight.nbytes), weight
