"""Constants by content, so that equal constants of a session share one block (GE: GetReuseAddr)."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING

from gecli.ir.attributes import VALUE
from gecli.ir.dtype import DataType
from gecli.ir.op_desc import OpDesc
from gecli.records import dataclass
from gecli.variables import var_faults

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

    __slots__ = ("_held", "_last", "_names")

    def __init__(self) -> None:
        self._held: dict[tuple[int, int], list[_Held]] = {}
        self._last: tuple[Weight, str] | None = None  # an add usually follows the search for the same weight
        self._names: dict[str, Weight | str | None] = {}  # the data that a name means; None: those of a variable

    def name_of(self, name: str, data: Weight | str | None) -> str:
        """The session's name for a constant with these data (or the place of its file), or for a variable (None).

        That is `name`, or `name_1`, `name_2`... when it means other data to the session. GE goes by the name alone:
        what two graphs call the same shares memory, and one of them computes with wrong data. Raises CompileError
        (VAR_KEY_CONFLICT) for a variable, which keeps its name, when that is a constant's.
        """
        if data is None:
            if self._names.setdefault(name, None) is not None:
                raise var_faults.key_conflict(name, "a constant of an earlier graph has this name")
            return name
        free, k = name, 0
        while free in self._names and not _same_data(self._names[free], data):
            k += 1
            free = f"{name}_{k}"
        self._names[free] = data
        return free

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
        other._names = dict(self._names)
        return other


def _same_data(one: Weight | str | None, other: Weight | str) -> bool:
    if one is None or isinstance(one, str) or isinstance(other, str):
        return one == other
    return one is other or (one.desc.same_storage(other.desc) and one.sha256() == other.sha256())


def _content(node: OpDesc) -> tuple[tuple[int, int], Weight | None]:
    """Width in bits and byte count with the data; no data for a node that never shares."""
    dtype = node.output_descs[0].dtype
    weight: Weight | None = node.attrs.get(VALUE)
    if node.type != CONSTANT or weight is None or dtype.bits is None or dtype in _NOT_SHARED or not weight.nbytes:
        return (0, 0), None
    return (dtype.bits, weight.nbytes), weight
