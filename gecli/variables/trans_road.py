"""Trans roads (GE: TransNodeInfo, VarTransRoad): how a variable went from the user's form to the stored one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from gecli.errors import InputError
from gecli.ir.dtype import DataType
from gecli.ir.tensor_desc import TensorDesc
from gecli.records import dataclass

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gecli.ir.weight import Transform, Weight

NO_ATTRS: Mapping[str, Any] = MappingProxyType({})

# The seed's spellings, accepted on input.
TYPE_ALIASES = {"TransDataD": "TransData", "UnSqueezeV2": "UnsqueezeV2"}
# Steps that only change the description: the bytes stay (GE skips them when it moves data).
DATA_UNCHANGED_TYPES = frozenset(("Reshape", "ReFormat", "SqueezeV2", "UnsqueezeV2"))
FORMAT_TYPES = frozenset(("TransData", "TransposeD"))
ROAD_TYPES = DATA_UNCHANGED_TYPES | FORMAT_TYPES | {"Cast"}
_INVERSE_TYPES = {"SqueezeV2": "UnsqueezeV2", "UnsqueezeV2": "SqueezeV2"}

_D = DataType
# Host casts that keep every value exactly; all others make a road lossy.
LOSS_FREE_CASTS = frozenset(
    {
        (_D.INT8, _D.INT32),
        (_D.INT8, _D.FLOAT),
        (_D.UINT8, _D.INT32),
        (_D.UINT8, _D.FLOAT),
        (_D.INT32, _D.INT64),
        (_D.INT32, _D.DOUBLE),
        (_D.FLOAT16, _D.FLOAT),
        (_D.HIFLOAT8, _D.FLOAT),
        (_D.HIFLOAT8, _D.FLOAT16),
    }
)


@dataclass(frozen=True, slots=True)
class TransStep:
    """One conversion of a road. `attrs` (perm, axis, groups) are known in memory only; files hold type and descs."""

    type: str
    src: TensorDesc
    dst: TensorDesc
    attrs: Mapping[str, Any] = field(default_factory=lambda: NO_ATTRS, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "type", TYPE_ALIASES.get(self.type, self.type))

    @property
    def is_data_unchanged(self) -> bool:
        return self.type in DATA_UNCHANGED_TYPES

    @property
    def is_lossy(self) -> bool:
        pair = (self.src.dtype, self.dst.dtype)
        return self.type == "Cast" and pair[0] is not pair[1] and pair not in LOSS_FREE_CASTS

    def swapped(self) -> TransStep:
        """The step that undoes this one, whether or not the host can execute it."""
        attrs = dict(self.attrs)
        perm = attrs.get("perm")
        if perm is not None:
            attrs["perm"] = tuple(perm.index(axis) for axis in range(len(perm)))
        if "shape" in attrs:
            attrs["shape"] = self.src.shape
        return TransStep(_INVERSE_TYPES.get(self.type, self.type), self.dst, self.src, attrs)

    def why_not_executable(self) -> str:
        """Why the host cannot execute this step; empty when it can."""
        if self.is_data_unchanged:
            return ""
        if self.type in FORMAT_TYPES:
            from gecli.layout.transfer import can_transfer

            ok, reason = can_transfer(self.src, self.dst)
            return "" if ok else f"no host transfer {self.src.format} -> {self.dst.format} ({reason})"
        if self.type == "Cast":
            from gecli.layout.cast import HOST_PAIRS

            pair = (self.src.dtype, self.dst.dtype)
            return "" if pair in HOST_PAIRS else f"no host cast {pair[0].serial} -> {pair[1].serial}"
        return f"{self.type} is not a conversion of a road"

    def apply(self, array: NDArray[Any]) -> NDArray[Any]:
        """The data after this step. Raises InputError (RT_TRANS_UNSUPPORTED) for a step that is no conversion."""
        if self.is_data_unchanged:
            return array.reshape(self.dst.shape)
        if self.type in FORMAT_TYPES:
            from gecli.layout.transfer import transfer

            return transfer(array, self.src, self.dst)
        if self.type == "Cast":
            from gecli.layout.cast import cast

            return cast(array, self.src.dtype, self.dst.dtype).reshape(self.dst.shape)
        raise unsupported(self)

    def transform(self) -> Transform:
        """This step as a pending conversion of a weight."""
        from gecli.layout.transforms import CastTransform, FormatTransform, ReshapeTransform

        if self.is_data_unchanged:
            return ReshapeTransform(self.dst.shape)
        if self.type in FORMAT_TYPES:
            return FormatTransform(_plain(self.src), _plain(self.dst))
        if self.type == "Cast":
            return CastTransform(self.src.dtype, self.dst.dtype)
        raise unsupported(self)


class TransRoad(tuple[TransStep, ...]):
    """Conversions in order, from the form the user declared (`source`) to the stored form (`target`)."""

    __slots__ = ()

    @property
    def source(self) -> TensorDesc:
        """The form the user declared. Raises IndexError for an empty road."""
        return self[0].src

    @property
    def target(self) -> TensorDesc:
        """The stored form. Raises IndexError for an empty road."""
        return self[-1].dst

    @property
    def is_data_unchanged(self) -> bool:
        """True for a road that moves no data. The empty road counts, as when GE moves data."""
        return all(step.is_data_unchanged for step in self)

    @property
    def lossy(self) -> bool:
        """True when some cast of the road loses precision."""
        return any(step.is_lossy for step in self)

    def broken_at(self) -> int | None:
        """Index of the first step whose input is not the output before it (dtype and dims); None when all chain.

        A differing format alone is read as a missing ReFormat.
        """
        for index in range(1, len(self)):
            before, after = self[index - 1].dst, self[index].src
            if before.dtype is not after.dtype or before.shape != after.shape:
                return index
        return None

    def same_as(self, other: Iterable[TransStep]) -> bool:
        """Equal types, and equal storage of every input and output."""
        steps = tuple(other)
        return len(self) == len(steps) and all(
            a.type == b.type and a.src.same_storage(b.src) and a.dst.same_storage(b.dst) for a, b in zip(self, steps)
        )

    def inverse(self) -> TransRoad | None:
        """The way back, or None when some step has no executable reverse."""
        return None if self.why_one_way() else self.reversed()

    def reversed(self) -> TransRoad:
        """The steps reversed with input and output swapped, whether or not the host can execute them."""
        return TransRoad(step.swapped() for step in reversed(self))

    def why_one_way(self) -> str:
        """Why the road has no inverse; empty when it has one."""
        return next((why for step in reversed(self) if (why := step.swapped().why_not_executable())), "")

    def replay(self, array: NDArray[Any]) -> NDArray[Any]:
        """`array`, in the form of `source`, converted to `target`."""
        for step in self:
            array = step.apply(array)
        return array

    def convert_weight(self, weight: Weight) -> Weight:
        """`weight`, in the form of `source`, with the road's conversions pending on it."""
        for step in self:
            weight = _converted(weight, step)
        return weight


def _converted(weight: Weight, step: TransStep) -> Weight:
    desc = _plain(step.dst)
    same_bytes = not weight.transforms or weight.shape == desc.shape
    if step.is_data_unchanged and same_bytes:
        return weight.described_as(desc)
    return weight.then(step.transform(), desc)


def _plain(desc: TensorDesc) -> TensorDesc:
    """`desc` without attributes: a variable's descriptor holds the initial value itself."""
    return replace(desc, attrs=NO_ATTRS)


def unsupported(step: TransStep) -> InputError:
    return InputError(
        "G4011",
        f"a trans road cannot contain a step of type {step.type}",
        kind="RT_TRANS_UNSUPPORTED",
        why=f"expected one of {', '.join(sorted(ROAD_TYPES))}; actual {step.type} ({step.src} -> {step.dst})",
        expected=sorted(ROAD_TYPES),
        actual=step.type,
    )
