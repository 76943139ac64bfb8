"""Pending conversions of weights: format transfer, cast, reshape and transpose, and the chain between two descs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gecli.ir.dtype import DataType
from gecli.ir.format import Format
from gecli.ir.tensor_desc import Shape, TensorDesc
from gecli.ir.weight import Fill, Transform, Weight
from gecli.layout.axes import AXES, expand_dims, permutation
from gecli.layout.transfer_error import FORMAT_PAIR, SHAPE, TransferError
from gecli.records import dataclass

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class FormatTransform:
    """Move the elements from the storage of `src` to that of `dst`."""

    src: TensorDesc
    dst: TensorDesc

    @property
    def token(self) -> str:
        ends = (f"{int(desc.format)}:{_dims(desc.shape)}" for desc in (self.src, self.dst))
        return f"format({int(self.src.dtype)},{','.join(ends)})"

    def apply(self, array: NDArray[Any]) -> NDArray[Any]:
        from gecli.layout.transfer import transfer

        return transfer(array, self.src, self.dst)


@dataclass(frozen=True, slots=True)
class CastTransform:
    """Convert the elements from one data type to another."""

    src: DataType
    dst: DataType

    @property
    def token(self) -> str:
        return f"cast({int(self.src)},{int(self.dst)})"

    def apply(self, array: NDArray[Any]) -> NDArray[Any]:
        from gecli.layout.cast import cast

        return cast(array, self.src, self.dst)


@dataclass(frozen=True, slots=True)
class ReshapeTransform:
    """Give the same elements other dims."""

    shape: Shape

    @property
    def token(self) -> str:
        return f"reshape({_dims(self.shape)})"

    def apply(self, array: NDArray[Any]) -> NDArray[Any]:
        return array.reshape(self.shape)


@dataclass(frozen=True, slots=True)
class TransposeTransform:
    """Reorder the dims."""

    perm: tuple[int, ...]

    @property
    def token(self) -> str:
        return f"transpose({_dims(self.perm)})"

    def apply(self, array: NDArray[Any]) -> NDArray[Any]:
        import numpy as np

        return np.ascontiguousarray(array.transpose(self.perm)) if self.perm else array


def convert_weight(weight: Weight, dst: TensorDesc) -> Weight:
    """`weight` converted to dtype, format and shape of `dst`, with the conversions pending.

    Casts happen in the origin format, so that padding is always zero bytes of the final type. Raises TransferError
    when no chain of conversions leads there.
    """
    src = weight.desc
    if src.format == dst.format and src.shape == dst.shape:
        return _cast(weight, dst.dtype).described_as(dst)
    if not src.format.is_origin:
        weight = _from_device(weight, dst)
    weight = _cast(weight, dst.dtype)
    weight = _between_origins(weight, dst) if dst.format.is_origin else _to_device(weight, dst)
    return weight.described_as(dst)


def conversion(src: TensorDesc, dst: TensorDesc) -> tuple[Transform, ...]:
    """The steps from one storage to another, through origin formats where no single transfer leads; none if equal.

    For kernels, which hold arrays: a road may contain single host transfers only. Raises TransferError.
    """
    return convert_weight(Weight(src, Fill(b"", 0)), dst).transforms


def convert(array: NDArray[Any], src: TensorDesc, dst: TensorDesc) -> NDArray[Any]:
    """`array`, stored as `src` says, in dtype, format and shape of `dst`. Raises TransferError."""
    for step in conversion(src, dst):
        array = step.apply(array)
    return array


def _cast(weight: Weight, dtype: DataType) -> Weight:
    from gecli.layout.cast import can_cast
    from gecli.layout.transfer_error import CAST_PAIR

    if weight.dtype == dtype:
        return weight
    if not can_cast(weight.dtype, dtype):
        raise TransferError.because(CAST_PAIR, f"{weight.dtype.serial} cannot be cast to {dtype.serial}")
    return weight.then(CastTransform(weight.dtype, dtype), weight.desc.with_dtype(dtype))


def _from_device(weight: Weight, dst: TensorDesc) -> Weight:
    """The weight in an origin format, as near to that of `dst` as one transfer leads."""
    src = weight.desc
    shape, fmt = src.logical_shape, src.logical_format
    if not fmt.is_origin and dst.format.is_origin:
        shape, fmt = dst.shape, dst.format
    for candidate, dims in _origin_forms(fmt, shape, src.format):
        end = TensorDesc(src.dtype, dims, candidate)
        if _moves(src, end):
            return _restored(weight.then(FormatTransform(src, end), end), fmt, shape)
    raise _no_way(src, dst)


def _to_device(weight: Weight, dst: TensorDesc) -> Weight:
    src = weight.desc
    for candidate, dims in _origin_forms(src.format, src.shape, dst.format):
        start = TensorDesc(dst.dtype, dims, candidate)
        if _moves(start, dst):
            return _between_origins(weight, start).then(FormatTransform(start, dst), dst)
    raise _no_way(src, dst)


def _moves(src: TensorDesc, dst: TensorDesc) -> bool:
    from gecli.layout.transfer import can_transfer

    return can_transfer(src, dst, road=False)[0]


def _restored(weight: Weight, fmt: Format, shape: Shape) -> Weight:
    return _between_origins(weight, TensorDesc(weight.dtype, shape, fmt))


def _origin_forms(fmt: Format, shape: Shape, device: Format) -> list[tuple[Format, Shape]]:
    """The tensor itself, at full rank, transposed to the other formats of its rank, and without axis names."""
    from gecli.layout.transfer import MATRIX_FORMATS

    forms = [(fmt, shape)]
    # Matrix formats block the dims as they are; a transposed square tensor would pass for the same shape.
    if fmt.primary in AXES and device.primary not in MATRIX_FORMATS:
        try:
            full = expand_dims(fmt, shape)
        except TransferError:
            full = shape
        forms.append((fmt, full))
        if len(full) == len(AXES[fmt.primary]):
            others = (other for other in AXES if len(AXES[other]) == len(full) and other != fmt.primary)
            forms += [(other, tuple(full[axis] for axis in permutation(fmt, other))) for other in others]
    if device.primary == Format.FRACTAL_Z and fmt.primary not in AXES and len(shape) == 2:
        forms.append((Format.HWCN, (1, 1, *shape)))  # what a two-dimensional filter counts as, also on the way back
    return [*forms, (Format.ND, shape)]


def _between_origins(weight: Weight, dst: TensorDesc) -> Weight:
    """Transpose where both formats name their axes differently, then reshape; a mere renaming moves nothing."""
    src = weight.desc
    if {src.format.primary, dst.format.primary} <= AXES.keys() and src.format.primary != dst.format.primary:
        full = expand_dims(src.format, src.shape)
        weight = _reshaped(weight, src.format, full)
        perm = permutation(src.format, dst.format)
        moved = TensorDesc(src.dtype, tuple(full[axis] for axis in perm), dst.format)
        weight = weight.then(TransposeTransform(perm), moved)
    return _reshaped(weight, dst.format, dst.shape)


def _reshaped(weight: Weight, fmt: Format, shape: Shape) -> Weight:
    desc = TensorDesc(weight.dtype, shape, fmt)
    if weight.shape == shape:
        return weight.described_as(desc)
    if weight.desc.elements != desc.elements:
        raise TransferError.because(SHAPE, f"{list(weight.shape)} has other elements than {list(shape)}")
    return weight.then(ReshapeTransform(shape), desc)


def _no_way(src: TensorDesc, dst: TensorDesc) -> TransferError:
    return TransferError.because(FORMAT_PAIR, "no transfer leads from this weight to the wanted form",
                                 where=f"weight {src} -> {dst}")  # fmt: skip


def _dims(values: tuple[int, ...]) -> str:
    return "x".join(map(str, values))
