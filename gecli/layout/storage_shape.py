"""Storage shapes: the dims that a tensor of an origin format has in a device format (GE: transfer_shape_utils.cc)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import gcd, lcm
from typing import NamedTuple

from gecli.ir.dtype import DataType
from gecli.ir.format import Format
from gecli.ir.tensor_desc import UNKNOWN_RANK, Range, Shape, TensorDesc
from gecli.layout.axes import AXES, axis_sizes, expand_dims
from gecli.layout.platform import CUBE, Platform, resolve_c0
from gecli.layout.transfer_error import DTYPE, FORMAT_PAIR, GROUPS, SHAPE, TransferError

UNKNOWN = -1
NYUV_A = Format(46)


class RnnSizes(NamedTuple):
    """Attributes of the recurrent operator that reads a FRACTAL_ZN_RNN or ND_RNN_BIAS tensor."""

    input_size: int
    hidden_size: int
    state_size: int = UNKNOWN


class GroupBlocks(NamedTuple):
    """How the filters of a grouped convolution share FRACTAL_Z blocks."""

    per_block: int  # E: groups packed into one block
    blocks: int  # G
    c1: int
    n_in_block: int  # N2


def group_blocks(channels: int, filters: int, groups: int, c0: int) -> GroupBlocks:
    """Packing of `groups` groups of `channels` (per group) by `filters` (in all). Raises TransferError (GROUPS)."""
    if filters < groups or filters % groups:
        raise TransferError.because(GROUPS, f"{filters} filters cannot be split into {groups} groups")
    own = filters // groups
    per_block = min(lcm(c0 // gcd(channels, c0), CUBE // gcd(own, CUBE)), groups)
    return GroupBlocks(per_block, _cd(groups, per_block), _cd(channels * per_block, c0), own * per_block)


def storage_shape(
    origin_format: Format,
    origin_shape: Shape,
    target: Format,
    dtype: DataType,
    platform: Platform | int,
    *,
    reshape_type: str = "",
    rnn: RnnSizes | None = None,
) -> Shape:
    """Dims in `target` of a tensor that is `origin_shape` in `origin_format`.

    Groups come from `target`; C0 from `target`, else from `platform`, which may also be a C0. Unknown dims (-1) give
    unknown dims. Raises TransferError where the formula has no answer; device formats are never a source, because
    their padding hides the origin dims.
    """
    shape = tuple(origin_shape)
    if dtype is DataType.UNDEFINED:
        raise TransferError.because(DTYPE, "a tensor of undefined data type has no storage shape")
    if not origin_format.is_origin:
        raise TransferError.because(FORMAT_PAIR, f"{origin_format.name} does not determine the shape in {target.name}")
    if not shape or shape == UNKNOWN_RANK:
        return shape
    if any(dim < UNKNOWN for dim in shape):
        raise TransferError.because(SHAPE, f"{list(shape)} is not a shape")
    if target.is_origin:
        return _origin_to_origin(origin_format, shape, target, reshape_type)
    if target.primary == Format.ND_RNN_BIAS or target.primary == Format.FRACTAL_ZN_RNN:
        return _rnn_shape(shape, target, _c0(target, dtype, platform), rnn)
    if target.primary == NYUV_A:
        return _nyuv_shape(shape)
    rule = _MATRIX_RULES.get(target.primary)
    if rule is not None:
        return rule(shape, _c0(target, dtype, platform))
    return _axis_shape(origin_format, shape, target, _c0(target, dtype, platform), reshape_type)


def to_storage(
    desc: TensorDesc, target: Format, platform: Platform, *, reshape_type: str = "", rnn: RnnSizes | None = None
) -> TensorDesc:
    """`desc` stored in `target`: storage shape from its origin form, C0 code set in device formats, origin kept.

    A scalar has no axes to block and comes back unchanged. Raises TransferError.
    """
    logical = desc.logical_shape
    if not logical:
        return desc
    fmt = with_c0_code(target, desc.dtype, platform)
    shape = storage_shape(
        desc.logical_format, logical, fmt, desc.dtype, platform, reshape_type=reshape_type, rnn=rnn
    )  # fmt: skip
    stored = desc.with_format(fmt, shape)
    if desc.shape_range is None or shape == desc.shape:
        return stored
    return replace(stored, shape_range=_range_in(desc, fmt, platform, reshape_type))


def with_c0_code(fmt: Format, dtype: DataType, platform: Platform) -> Format:
    """`fmt` with its C0 code when it is a device format. Raises TransferError on a contradicting code."""
    return fmt if fmt.is_origin else fmt.with_c0(resolve_c0(fmt, dtype, platform))


def _c0(target: Format, dtype: DataType, platform: Platform | int) -> int:
    if isinstance(platform, Platform):
        return resolve_c0(target, dtype, platform)
    # A number stands for the last dim of a storage shape that is already known.
    return resolve_c0(target, dtype, None, (platform,))


def _cd(value: int, block: int) -> int:
    return UNKNOWN if value < 0 else -(-value // block)


def _product(*dims: int) -> int:
    if UNKNOWN in dims:
        return UNKNOWN
    result = 1
    for dim in dims:
        result *= dim
    return result


def _origin_to_origin(origin: Format, shape: Shape, target: Format, reshape_type: str) -> Shape:
    have, want = AXES.get(origin.primary), AXES.get(target.primary)
    if have is None or want is None or have == want:
        return shape
    sizes = axis_sizes(origin, shape, reshape_type)
    _refuse_depth(sizes, target, has_depth="D" in want)
    return tuple(sizes[letter] for letter in want)


def _axis_shape(origin: Format, shape: Shape, target: Format, c0: int, reshape_type: str) -> Shape:
    if origin.primary not in AXES:
        if target.primary == Format.FRACTAL_Z and len(shape) == 2:
            origin, shape = Format.HWCN, (1, 1, *shape)
        else:
            raise TransferError.because(FORMAT_PAIR, f"{origin.name} {list(shape)} has no axes for {target.name}")
    rule = _AXIS_RULES.get(target.primary)
    if rule is None:
        raise TransferError.because(FORMAT_PAIR, f"no rule gives the storage shape of {target.name}")
    sizes = axis_sizes(origin, expand_dims(origin, shape, reshape_type))
    _refuse_depth(sizes, target, has_depth=target.primary in _WITH_DEPTH)
    if target.groups > 1 and target.primary not in _GROUPED:
        raise TransferError.because(GROUPS, f"{target.name}: this format cannot be grouped")
    return rule(sizes, c0, target.groups)


def _refuse_depth(sizes: dict[str, int], target: Format, *, has_depth: bool) -> None:
    if not has_depth and sizes["D"] != 1:
        raise TransferError.because(SHAPE, f"{target.name} has no place for depth {sizes['D']}")


def _fractal_z(s: dict[str, int], c0: int, groups: int) -> Shape:
    if groups > 1:
        return _grouped_fractal_z(s, c0, groups)
    return (_product(s["D"], _cd(s["C"], c0), s["H"], s["W"]), _cd(s["N"], CUBE), CUBE, c0)


def _grouped_fractal_z(s: dict[str, int], c0: int, groups: int) -> Shape:
    if UNKNOWN in (s["C"], s["N"]):
        # The packing factor depends on both, so neither dim can be known.
        return (UNKNOWN, UNKNOWN, CUBE, c0)
    packing = group_blocks(s["C"], s["N"], groups, c0)
    first = _product(packing.blocks, s["D"], packing.c1, s["H"], s["W"])
    return (first, _cd(packing.n_in_block, CUBE), CUBE, c0)


def _fractal_z_c04(s: dict[str, int], c0: int, groups: int) -> Shape:
    if s["C"] > 4:
        raise TransferError.because(SHAPE, f"FRACTAL_Z_C04 holds at most 4 channels, not {s['C']}")
    return (_cd(_product(4, s["H"], s["W"]), c0), _cd(s["N"], CUBE), CUBE, c0)


def _zn_lstm(s: dict[str, int], c0: int, groups: int) -> Shape:
    if s["H"] != 1 or s["W"] != 1 or UNKNOWN in (s["C"], s["N"]):
        raise TransferError.because(SHAPE, "FRACTAL_ZN_LSTM needs known dims [1,1,C,N]")
    hidden = s["N"] // 4
    rows = _cd(s["C"] - hidden, CUBE) + _cd(hidden, CUBE)
    return (rows, 4 * _cd(hidden, CUBE), CUBE, CUBE)


_AXIS_RULES: dict[Format, Callable[[dict[str, int], int, int], Shape]] = {
    Format.NC1HWC0: lambda s, c0, g: (s["N"], _cd(s["C"], c0), s["H"], s["W"], c0),
    Format.NC1HWC0_C04: lambda s, c0, g: (s["N"], _cd(s["C"], c0), s["H"], s["W"], c0),
    Format.C1HWC0: lambda s, c0, g: (_cd(s["N"], c0), s["H"], s["W"], c0),
    Format.NDC1HWC0: lambda s, c0, g: (s["N"], s["D"], _cd(s["C"], c0), s["H"], s["W"], c0),
    Format.FRACTAL_Z: _fractal_z,
    Format.FRACTAL_Z_3D: _fractal_z,
    Format.FRACTAL_Z_C04: _fractal_z_c04,
    # GE's shape library says D*H*W*cd(N,16), cd(C,C0); data can only be moved into the form of the host transfer.
    Format.FRACTAL_Z_3D_TRANSPOSE: lambda s, c0, g: (
        _product(s["D"], _cd(s["N"], c0), s["H"], s["W"]), _cd(s["C"], CUBE), CUBE, c0,
    ),
    # The shape library divides N by 16 here; the host transfer, which defines the data, does not.
    Format.C1HWNCoC0: lambda s, c0, g: (_cd(s["C"], c0), s["H"], s["W"], s["N"], c0, c0),
    Format.FRACTAL_Z_WINO: lambda s, c0, g: (
        _cd(s["C"], c0), _cd(s["N"], CUBE), 2, _product(s["H"], s["W"]), 8, c0,
    ),
    Format.FRACTAL_ZN_LSTM: _zn_lstm,
}  # fmt: skip
_WITH_DEPTH = (Format.NDC1HWC0, Format.FRACTAL_Z_3D, Format.FRACTAL_Z_3D_TRANSPOSE)
_GROUPED = (Format.FRACTAL_Z, Format.FRACTAL_Z_3D)


def _fractal_nz(shape: Shape, c0: int) -> Shape:
    # A vector is one row (host transfer); GE's shape library makes it one column.
    *lead, rows, columns = shape if len(shape) > 1 else (1, *shape)
    return (*lead, _cd(columns, c0), _cd(rows, CUBE), CUBE, c0)


def _fractal_zz(shape: Shape, c0: int) -> Shape:
    *lead, rows, columns = shape if len(shape) > 1 else (1, *shape)
    return (*lead, _cd(rows, c0), _cd(columns, c0), c0, c0)


_MATRIX_RULES: dict[Format, Callable[[Shape, int], Shape]] = {
    **dict.fromkeys((Format.FRACTAL_NZ, *(Format(number) for number in range(50, 55))), _fractal_nz),
    Format.FRACTAL_ZZ: _fractal_zz,
}


def _rnn_shape(shape: Shape, target: Format, c0: int, rnn: RnnSizes | None) -> Shape:
    if rnn is None:
        raise TransferError.because(SHAPE, f"{target.name} needs the input and hidden size of the recurrent operator")
    columns = UNKNOWN if shape[-1] < 0 else shape[-1] // rnn.hidden_size * _cd(rnn.hidden_size, c0)
    if target.primary == Format.ND_RNN_BIAS:
        return (*shape[:-1], _product(columns, c0))
    if len(shape) < 2:
        raise TransferError.because(SHAPE, f"{target.name} needs at least two dims, not {list(shape)}")
    state = rnn.hidden_size if rnn.state_size == UNKNOWN else rnn.state_size
    rows = shape[-2]
    if rows == state + rnn.input_size:
        rows = _cd(rnn.input_size, CUBE) + _cd(state, CUBE)
    elif rows in (state, rnn.input_size):
        rows = _cd(rows, CUBE)
    return (*shape[:-2], rows, columns, CUBE, c0)


def _nyuv_shape(shape: Shape) -> Shape:
    if len(shape) not in (3, 4):
        raise TransferError.because(SHAPE, f"NYUV_A needs three or four dims, not {list(shape)}")
    height, width = _product(_cd(shape[-3], 16), 16), _product(_cd(shape[-2], 64), 64)
    return (*shape[:-3], height, width, shape[-1])


def _range_in(desc: TensorDesc, fmt: Format, platform: Platform, reshape_type: str) -> tuple[Range, ...] | None:
    """The range of each stored dim, when the formulas grow with the origin dims (grouping does not)."""
    bounds = desc.shape_range
    if bounds is None or fmt.groups > 1 or len(bounds) != len(desc.logical_shape) or desc.shape != desc.logical_shape:
        return None
    low, high = (
        storage_shape(
            desc.logical_format, tuple(bound[end] for bound in bounds), fmt, desc.dtype, platform,
            reshape_type=reshape_type,
        )
        for end in (0, 1)
    )  # fmt: skip
    return tuple(zip(low, high))
