"""Axis letters of origin formats, expansion of low-rank shapes, and the reshape-type masks of TransData attributes."""

from __future__ import annotations

from itertools import pairwise

from gecli.ir.format import Format
from gecli.ir.tensor_desc import UNKNOWN_RANK, Shape
from gecli.layout.transfer_error import FORMAT_PAIR, SHAPE, TransferError

AXES: dict[Format, str] = {
    Format.NCHW: "NCHW",
    Format.NHWC: "NHWC",
    Format.HWCN: "HWCN",
    Format.CHWN: "CHWN",
    Format.NDHWC: "NDHWC",
    Format.NCDHW: "NCDHW",
    Format.DHWCN: "DHWCN",
    Format.DHWNC: "DHWNC",
}
FORBIDDEN = "FORBIDDEN"  # reshape type of tensors whose rank must stay
_FULL_RANK_BIT = 56

# Which axes the dims of a low-rank shape stand for, by rank, when no reshape type says it (GE: expand_dimension.cc).
_DEFAULT: dict[Format, tuple[str, ...]] = {
    Format.NCHW: ("C", "CH", "CHW"),
    Format.NHWC: ("C", "HW", "HWC"),
    Format.HWCN: ("C", "CN", "WCN"),
    Format.CHWN: ("C", "WN", "HWN"),
    Format.NDHWC: ("C", "WC", "HWC", "DHWC"),
    Format.NCDHW: ("C", "HW", "DHW", "CDHW"),
    Format.DHWCN: ("C", "CN", "WCN", "HWCN"),
    Format.DHWNC: ("C", "NC", "WNC", "HWNC"),
}


def letters_of(fmt: Format) -> str:
    """Axis letters of an origin format. Raises TransferError for ND and for device formats."""
    try:
        return AXES[fmt.primary]
    except KeyError:
        raise TransferError.because(FORMAT_PAIR, f"{fmt.name} does not name its axes") from None


def reshape_type_of(fmt: Format, rank: int, reshape_type: str = "") -> str:
    """The letters that a shape of `rank` dims stands for: the given ones if they fit, else the default.

    Raises TransferError when the rank fits no expansion of the format.
    """
    letters = letters_of(fmt)
    if rank == len(letters):
        return letters
    if reshape_type and len(reshape_type) == rank and _in_axis_order(reshape_type, letters):
        return reshape_type
    defaults = _DEFAULT[fmt.primary]
    if not 1 <= rank <= len(defaults):
        raise TransferError.because(SHAPE, f"a shape of rank {rank} cannot be expanded to {fmt.name}")
    return defaults[rank - 1]


def expand_dims(fmt: Format, shape: Shape, reshape_type: str = "") -> Shape:
    """`shape` at the full rank of `fmt`, with 1 on the axes it lacks. Raises TransferError if it cannot be placed."""
    if shape == UNKNOWN_RANK or reshape_type == FORBIDDEN:
        return shape
    present = dict(zip(reshape_type_of(fmt, len(shape), reshape_type), shape))
    return tuple(present.get(letter, 1) for letter in letters_of(fmt))


def axis_sizes(fmt: Format, shape: Shape, reshape_type: str = "") -> dict[str, int]:
    """Size of each of N, C, H, W and D after expansion; a format without D has D = 1."""
    return {"D": 1, **dict(zip(letters_of(fmt), expand_dims(fmt, shape, reshape_type)))}


def permutation(src: Format, dst: Format) -> tuple[int, ...]:
    """For each axis of `dst` its position in `src` (the perm of a TransposeD). Raises TransferError."""
    have, want = letters_of(src), letters_of(dst)
    if sorted(have) != sorted(want):
        raise TransferError.because(FORMAT_PAIR, f"{src.name} and {dst.name} do not have the same axes")
    return tuple(have.index(letter) for letter in want)


def reshape_mask(fmt: Format, reshape_type: str) -> int:
    """The integer form of a reshape type: bit i says that axis i is inserted, bits 56.. hold the full rank."""
    letters = letters_of(fmt)
    inserted = sum(1 << axis for axis, letter in enumerate(letters) if letter not in reshape_type)
    return inserted | len(letters) << _FULL_RANK_BIT


def reshape_type_from_mask(fmt: Format, mask: int) -> str:
    """The letters that are not inserted. Raises ValueError when the mask belongs to another rank."""
    letters = letters_of(fmt)
    if mask >> _FULL_RANK_BIT != len(letters):
        raise ValueError(f"reshape mask {mask:#x} is not one of {fmt.name}")
    return "".join(letter for axis, letter in enumerate(letters) if not mask >> axis & 1)


def _in_axis_order(reshape_type: str, letters: str) -> bool:
    positions = [letters.find(letter) for letter in reshape_type]
    return -1 not in positions and all(a < b for a, b in pairwise(positions))
