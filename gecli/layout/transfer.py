"""Format transfers: moving the elements of a tensor from one storage format to another (GE: formats.cc).

A device format is an order of axes in which some axes are split into blocks. Every mapping is a copy between the
array and a transposed view of the blocked one, done in at most four pieces (whole blocks and the rest of each split
axis), so that padding is written once and no padded copy is made. Elements are moved as opaque words.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gecli.ir.dtype import DataType
from gecli.ir.format import Format
from gecli.ir.tensor_desc import Shape, TensorDesc
from gecli.layout.axes import AXES, letters_of, permutation
from gecli.layout.platform import CUBE, resolve_c0
from gecli.layout.storage_shape import GroupBlocks, group_blocks, storage_shape
from gecli.layout.transfer_error import DATA, DTYPE, FORMAT_PAIR, GROUPS, SHAPE, TransferError
from gecli.records import dataclass

Array = NDArray[Any]
Pair = tuple[Format, Format]
MAX_ELEMENTS = 1 << 40  # GE refuses larger products

_F = Format
_NZ_C0 = tuple(Format(number) for number in range(50, 55))
MATRIX_FORMATS = frozenset((_F.FRACTAL_NZ, _F.FRACTAL_ZZ, *_NZ_C0))  # block the last two dims, whatever they mean

# GE's host transfers: what may be folded into a variable (IsTransFormatSupport).
ROAD_PAIRS: frozenset[Pair] = frozenset(
    (src, dst)
    for src, targets in {
        _F.NCHW: (_F.NHWC, _F.HWCN, _F.CHWN, _F.NC1HWC0, _F.FRACTAL_Z, _F.FRACTAL_Z_C04, _F.FRACTAL_NZ, _F.FRACTAL_ZZ),
        _F.NHWC: (_F.NCHW, _F.HWCN, _F.CHWN, _F.NC1HWC0, _F.FRACTAL_Z, _F.FRACTAL_NZ, _F.FRACTAL_ZZ),
        _F.HWCN: (_F.NCHW, _F.NHWC, _F.CHWN, _F.FRACTAL_Z, _F.FRACTAL_Z_C04, _F.C1HWNCoC0),
        _F.CHWN: (_F.NCHW, _F.NHWC, _F.HWCN),
        _F.ND: (_F.FRACTAL_Z, _F.FRACTAL_NZ, _F.FRACTAL_ZZ),
        _F.NC1HWC0: (_F.NCHW, _F.NHWC),
        _F.FRACTAL_Z: (_F.NCHW, _F.NHWC, _F.HWCN),
        _F.FRACTAL_Z_C04: (_F.HWCN,),
        _F.FRACTAL_NZ: (_F.ND, _F.NCHW, _F.NHWC),
        _F.FRACTAL_ZZ: (_F.ND, _F.NCHW, _F.NHWC),
        _F.C1HWNCoC0: (_F.HWCN,),
        _F.DHWCN: (_F.FRACTAL_Z_3D,),
        _F.DHWNC: (_F.FRACTAL_Z_3D_TRANSPOSE,),
    }.items()
    for dst in targets
)
# What only the simulator's kernels can do; GE has no host code for it, so a road must not contain it.
KERNEL_PAIRS: frozenset[Pair] = ROAD_PAIRS | frozenset(
    (
        (_F.FRACTAL_Z_3D, _F.DHWCN),
        (_F.FRACTAL_Z_3D_TRANSPOSE, _F.DHWNC),
        (_F.HWCN, _F.NC1HWC0),
        (_F.CHWN, _F.NC1HWC0),
        *((src, _F.NDC1HWC0) for src in (_F.NDHWC, _F.NCDHW)),
        *((_F.NDC1HWC0, dst) for dst in (_F.NDHWC, _F.NCDHW)),
        *((src, _F.NC1HWC0_C04) for src in (_F.NCHW, _F.NHWC)),
        *((_F.NC1HWC0_C04, dst) for dst in (_F.NCHW, _F.NHWC)),
        *((_F.ND, fmt) for fmt in _NZ_C0),
        *((fmt, _F.ND) for fmt in _NZ_C0),
    )
)


@dataclass(frozen=True, slots=True)
class _Blocking:
    """Axis order of a device format: capital = whole axis or its blocks, small letter = position in a block.

    `blocks` gives the block length of each split axis, 0 standing for C0.
    """

    order: str
    blocks: Mapping[str, int]

    def lengths(self, c0: int) -> dict[str, int]:
        return {letter: block or c0 for letter, block in self.blocks.items()}


_NZ = _Blocking("LKRrk", {"R": CUBE, "K": 0})
_FILTER = _Blocking("CHWNnc", {"C": 0, "N": CUBE})
_GROUPED_FILTER = _Blocking("GCHWNnc", {"C": 0, "N": CUBE})
_DIAGONAL = _Blocking("CHWNc", {"C": 0})  # C1HWNCoC0 without its second, diagonal C0 axis
_BLOCKING: dict[Format, _Blocking] = {
    _F.NC1HWC0: _Blocking("NCHWc", {"C": 0}),
    _F.NC1HWC0_C04: _Blocking("NCHWc", {"C": 0}),
    _F.NDC1HWC0: _Blocking("NDCHWc", {"C": 0}),
    _F.FRACTAL_Z: _FILTER,
    _F.FRACTAL_Z_3D: _Blocking("DCHWNnc", {"C": 0, "N": CUBE}),
    _F.FRACTAL_Z_3D_TRANSPOSE: _Blocking("DNHWCcn", {"N": 0, "C": CUBE}),
    **dict.fromkeys((_F.FRACTAL_NZ, *_NZ_C0), _NZ),
    _F.FRACTAL_ZZ: _Blocking("LRKrk", {"R": 0, "K": 0}),
}
_C1HWNCOC0_DTYPES = (DataType.FLOAT, DataType.FLOAT16, DataType.INT8)
_SIZELESS = (DataType.STRING, DataType.STRING_REF, DataType.UNDEFINED)
_MATRIX_LETTERS = "LRK"  # leading dims in one, rows, columns


def can_transfer(src: TensorDesc, dst: TensorDesc, *, road: bool = True, sub_byte: bool = False) -> tuple[bool, str]:
    """Whether `transfer` accepts this pair, and the reason code if not; `road` also asks that GE could do it."""
    try:
        _plan(src, dst, ROAD_PAIRS if road else KERNEL_PAIRS, sub_byte)
        if road and dst.format.groups > 1 and src.format.primary != Format.HWCN:
            # GE computes the grouped shape here and then moves the data as if ungrouped.
            return False, GROUPS
    except TransferError as error:
        return False, error.reason
    return True, ""


def transfer(array: Array, src: TensorDesc, dst: TensorDesc, *, sub_byte: bool = False) -> Array:
    """The elements of `array`, stored as `src` says, in the storage of `dst`: bit for bit, padding zero.

    `sub_byte` admits types under one byte, whose arrays hold one element a byte. Raises TransferError.
    """
    move = _plan(src, dst, KERNEL_PAIRS, sub_byte)
    if array.size != src.elements:
        raise TransferError.because(
            DATA, "the data do not fill the source shape", where=_title(src, dst), expected=src.elements,
            actual=array.size,
        )  # fmt: skip
    if array.size == 0:
        return np.zeros(dst.shape, array.dtype)
    words = array.view(_word(array.dtype)).reshape(src.shape)
    return _run(move, words).reshape(dst.shape).view(array.dtype)


@dataclass(frozen=True, slots=True)
class _Move:
    """A checked transfer: the origin side, the device side (None for a transpose), and their geometry."""

    origin: TensorDesc
    device: TensorDesc | None
    forward: bool
    perm: tuple[int, ...] = ()
    c0: int = 0
    groups: int = 1


def _plan(src: TensorDesc, dst: TensorDesc, pairs: frozenset[Pair], sub_byte: bool) -> _Move:
    """The checks of GE's transfers, in their order. Raises TransferError with the first that fails."""
    pair = (src.format.primary, dst.format.primary)
    if pair not in pairs:
        raise _refusal(FORMAT_PAIR, "there is no transfer between these formats", src, dst)
    _check_dtype(src, dst, sub_byte)
    forward = src.format.is_origin
    origin, device = (src, dst) if forward else (dst, src)
    if device.format.is_origin:
        perm = permutation(src.format, dst.format)
        _check_shape(src, src, dst)
        if len(src.shape) != len(perm) or dst.shape != tuple(src.shape[axis] for axis in perm):
            raise _refusal(SHAPE, "the destination is not the transposed source", src, dst)
        return _Move(src, None, True, perm)
    try:
        c0 = resolve_c0(device.format, device.dtype, None, device.shape)
        _check_groups(origin, device)
        _check_shape(origin, src, dst)
        expected = storage_shape(origin.format, origin.shape, device.format, device.dtype, c0)
    except TransferError as error:
        raise _refusal(error.reason, error.first.message, src, dst) from None
    if expected != device.shape:
        raise _refusal(SHAPE, f"{device.format.name} of {list(origin.shape)} is {list(expected)}", src, dst)
    return _Move(origin, device, forward, (), c0, device.format.groups)


def _check_dtype(src: TensorDesc, dst: TensorDesc, sub_byte: bool) -> None:
    if src.dtype != dst.dtype:
        raise _refusal(DTYPE, "a transfer does not change the data type", src, dst)
    bits = src.dtype.bits
    if bits is None or src.dtype in _SIZELESS:
        raise _refusal(DTYPE, "elements without a size cannot be moved", src, dst)
    if bits % 8 and not sub_byte:
        # GE takes 1004 bytes for an int4 element here and reads past its buffer.
        raise _refusal(DTYPE, "elements under one byte are not moved", src, dst)
    diagonal = Format.C1HWNCoC0 in (src.format.primary, dst.format.primary)
    if diagonal and src.dtype not in _C1HWNCOC0_DTYPES:
        raise _refusal(DTYPE, "C1HWNCoC0 holds FLOAT, FLOAT16 and INT8 only", src, dst)


def _check_groups(origin: TensorDesc, device: TensorDesc) -> None:
    groups = device.format.groups
    if origin.format.groups > 1 and origin.format.groups != groups:
        raise TransferError.because(GROUPS, f"{origin.format.name} and {device.format.name} disagree about groups")
    if groups > 1 and (device.format.primary != Format.FRACTAL_Z or origin.format.primary not in AXES):
        # The order of grouped FRACTAL_Z_3D is not known well enough to move data into it.
        raise TransferError.because(GROUPS, f"data in {device.format.name} cannot be moved")


def _check_shape(origin: TensorDesc, src: TensorDesc, dst: TensorDesc) -> None:
    for desc in (src, dst):
        if not desc.shape or any(dim < 0 for dim in desc.shape) or prod(desc.shape) > MAX_ELEMENTS:
            raise _refusal(SHAPE, f"{list(desc.shape)} cannot be moved: dims must be known and at most 2**40 elements",
                           src, dst)  # fmt: skip
    letters = AXES.get(origin.format.primary)
    matrix = not MATRIX_FORMATS.isdisjoint((src.format.primary, dst.format.primary))
    if letters is not None and not matrix and len(origin.shape) != len(letters):
        raise _refusal(SHAPE, f"{origin.format.name} needs {len(letters)} dims", src, dst)


def _refusal(reason: str, message: str, src: TensorDesc, dst: TensorDesc) -> TransferError:
    return TransferError.because(reason, message, where=_title(src, dst))


def _title(src: TensorDesc, dst: TensorDesc) -> str:
    return f"TransData {src} -> {dst}"


def _word(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """An opaque element of the same width: numbers could be altered on the way (NaN), words cannot."""
    size = dtype.itemsize
    return np.dtype(f"u{size}" if size in (1, 2, 4, 8) else f"V{size}")


def _run(move: _Move, words: Array) -> Array:
    if move.device is None:
        return np.ascontiguousarray(words.transpose(move.perm))
    target = move.device.format.primary
    if target == Format.FRACTAL_Z_C04:
        return _c04(move, words)
    if target == Format.C1HWNCoC0:
        return _diagonal(move, words)
    if move.groups > 1:
        return _grouped(move, words)
    letters, sizes = _axes(move)
    return _blocked(_BLOCKING[target], letters, sizes, move.c0, words, move.device.shape, move.forward)


def _axes(move: _Move) -> tuple[str, tuple[int, ...]]:
    """The letters and sizes under which the blocking sees the origin side."""
    assert move.device is not None
    shape = move.origin.shape
    if "R" in _BLOCKING[move.device.format.primary].order:
        rows, columns = shape[-2:] if len(shape) > 1 else (1, shape[0])
        return _MATRIX_LETTERS, (prod(shape[:-2]), rows, columns)
    if move.origin.format.primary not in AXES:  # a two-dimensional ND filter
        return "HWCN", (1, 1, *shape)
    return letters_of(move.origin.format), shape


def _blocked(
    blocking: _Blocking, letters: str, sizes: Shape, c0: int, words: Array, device_shape: Shape, forward: bool
) -> Array:
    """Move between an array with axes `letters` and its blocked form, in either direction."""
    blocks = blocking.lengths(c0)
    if forward:
        stored = np.zeros(device_shape, words.dtype)
        view = _origin_view(stored, blocking.order, letters, sizes, blocks)
        for part, inner in _pieces(words.reshape(sizes), view, letters, blocks):
            inner[...] = part
        return stored
    plain = np.empty(sizes, words.dtype)
    view = _origin_view(words, blocking.order, letters, sizes, blocks)
    for part, inner in _pieces(plain, view, letters, blocks):
        part[...] = inner
    return plain


def _origin_view(stored: Array, order: str, letters: str, sizes: Shape, blocks: Mapping[str, int]) -> Array:
    """The blocked array as a view with the axes of `letters`, each split one as (blocks, position)."""
    extent = dict(zip(letters, sizes))
    for letter, block in blocks.items():
        extent[letter.lower()] = block
        extent[letter] = -(-extent[letter] // block)
    wanted = "".join(letter + (letter.lower() if letter in blocks else "") for letter in letters)
    view = stored.reshape([extent[letter] for letter in order])
    return view.transpose([order.index(letter) for letter in wanted])


def _pieces(plain: Array, view: Array, letters: str, blocks: Mapping[str, int]) -> Iterator[tuple[Array, Array]]:
    """Views of equal shape on both sides that together cover `plain`: per split axis the whole blocks and the rest."""
    choices = [_cuts(size, blocks.get(letter, 0)) for letter, size in zip(letters, plain.shape)]
    for cuts in product(*choices):
        part = plain[tuple(cut.plain for cut in cuts)]
        dims = [dim for cut, size in zip(cuts, part.shape) for dim in (cut.dims or (size,))]
        yield part.reshape(dims), view[tuple(index for cut in cuts for index in cut.view)]


@dataclass(frozen=True, slots=True)
class _Cut:
    plain: slice
    view: tuple[slice, ...]
    dims: tuple[int, ...] = ()


_WHOLE = (_Cut(slice(None), (slice(None),)),)


def _cuts(size: int, block: int) -> tuple[_Cut, ...]:
    if not block:
        return _WHOLE
    full, rest = divmod(size, block)
    edge = full * block
    whole = _Cut(slice(0, edge), (slice(0, full), slice(None)), (full, block))
    remainder = _Cut(slice(edge, size), (slice(full, full + 1), slice(0, rest)), (1, rest))
    return tuple(cut for cut, used in ((whole, full), (remainder, rest)) if used)


def _c04(move: _Move, words: Array) -> Array:
    """FRACTAL_Z_C04: column (h*W + w)*4 + c of row n, columns in blocks of C0 and rows in blocks of 16."""
    assert move.device is not None
    extent = dict(zip(letters_of(move.origin.format), move.origin.shape))
    n, c, h, w = (extent[letter] for letter in "NCHW")
    k, n1, _, c0 = move.device.shape
    to_nhwc = permutation(move.origin.format, Format.NHWC)
    if move.forward:
        rows = np.zeros((n1 * CUBE, k * c0), words.dtype)
        rows[:n, : 4 * h * w].reshape(n, h, w, 4)[..., :c] = words.transpose(to_nhwc)
        return np.ascontiguousarray(rows.reshape(n1, CUBE, k, c0).transpose(2, 0, 1, 3))
    rows = words.transpose(1, 2, 0, 3).reshape(n1 * CUBE, k * c0)
    nhwc = rows[:n, : 4 * h * w].reshape(n, h, w, 4)[..., :c]
    return np.ascontiguousarray(nhwc.transpose(np.argsort(to_nhwc)))


def _diagonal(move: _Move, words: Array) -> Array:
    """C1HWNCoC0: the elements lie on the diagonal of the two C0 axes. Assigned, not multiplied: NaN * 0 is NaN."""
    assert move.device is not None
    letters, sizes = letters_of(move.origin.format), move.origin.shape
    shape = move.device.shape
    if not move.forward:
        diagonal = np.ascontiguousarray(_diagonal_view(words))
        return _blocked(_DIAGONAL, letters, sizes, move.c0, diagonal, shape[:-1], forward=False)
    stored = np.zeros(shape, words.dtype)
    _diagonal_view(stored)[...] = _blocked(_DIAGONAL, letters, sizes, move.c0, words, shape[:-1], forward=True)
    return stored


def _diagonal_view(stored: Array) -> Array:
    *outer, row, column = stored.strides
    return np.lib.stride_tricks.as_strided(stored, stored.shape[:-1], (*outer, row + column))


def _grouped(move: _Move, words: Array) -> Array:
    """Grouped FRACTAL_Z: E groups lie block-diagonally in one dense filter; each such filter is blocked as usual."""
    assert move.device is not None
    letters, shape = letters_of(move.origin.format), move.origin.shape
    extent = dict(zip(letters, shape))
    packing = group_blocks(extent["C"], extent["N"], move.groups, move.c0)
    to_hwcn = permutation(move.origin.format, Format.HWCN)
    dense_shape = (packing.blocks, extent["H"], extent["W"], packing.per_block * extent["C"], packing.n_in_block)
    if move.forward:
        dense = np.zeros(dense_shape, words.dtype)
        for own, inside in _group_pieces(words.transpose(to_hwcn), dense, move.groups, packing):
            inside[...] = own
        return _blocked(_GROUPED_FILTER, "GHWCN", dense_shape, move.c0, dense, move.device.shape, forward=True)
    dense = _blocked(_GROUPED_FILTER, "GHWCN", dense_shape, move.c0, words, move.device.shape, forward=False)
    plain = np.empty(shape, words.dtype)
    for own, inside in _group_pieces(plain.transpose(to_hwcn), dense, move.groups, packing):
        own[...] = inside
    return plain


def _group_pieces(hwcn: Array, dense: Array, groups: int, packing: GroupBlocks) -> Iterator[tuple[Array, Array]]:
    """For each place in a block, the groups that sit there and their diagonal squares, as equal-shaped views."""
    h, w, c, n = hwcn.shape
    own = n // groups
    by_group = hwcn.reshape(h, w, c, groups, own).transpose(3, 0, 1, 2, 4)
    for place in range(packing.per_block):
        members = by_group[place :: packing.per_block]
        yield members, dense[: len(members), :, :, place * c : (place + 1) * c, place * own : (place + 1) * own]
