"""Statistics and affine steps that the normalisations and their gradients share."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gecli.ir.dtype import DataType
from gecli.ir.format import Format
from gecli.ir.tensor_desc import UNKNOWN_RANK, Shape, TensorDesc
from gecli.ops.numeric import Array, is_half

HALF_TYPES = frozenset([DataType.FLOAT16, DataType.BF16])


def widened(x: Array) -> Array:
    """Half precision as float32; anything else as it is."""
    return x.astype(np.float32) if is_half(x.dtype) else x


def statistics_dtype(desc: TensorDesc) -> DataType:
    """The dtype of means and variances of a tensor: FLOAT for half precision."""
    return DataType.FLOAT if desc.dtype in HALF_TYPES else desc.dtype


def channel_axis(data_format: str, rank: int) -> int:
    """Where the channels of a tensor of this rank are: last for N...C formats, else axis 1."""
    return rank - 1 if data_format.endswith("C") else min(1, rank - 1)


def format_axis(desc: TensorDesc | None, rank: int) -> int:
    """The channel axis by the origin format of a descriptor."""
    last = desc is not None and Format(desc.logical_format).primary in (Format.NHWC, Format.NDHWC)
    return channel_axis("NHWC" if last else "NCHW", rank)


def other_axes(rank: int, axis: int) -> tuple[int, ...]:
    return tuple(position for position in range(rank) if position != axis)


def along(vector: Array, axis: int, rank: int) -> Array:
    """A vector shaped to broadcast along one axis."""
    shape = [1] * rank
    shape[axis] = -1
    return vector.reshape(shape)


def moments(x: Array, axes: Sequence[int], keepdims: bool = False) -> tuple[Array, Array]:
    """Mean and biased variance, in two passes."""
    mean = x.mean(axis=tuple(axes), keepdims=True, dtype=x.dtype)
    variance = np.square(x - mean).mean(axis=tuple(axes), keepdims=True, dtype=x.dtype)
    if keepdims:
        return mean, variance
    return mean.squeeze(tuple(axes)), variance.squeeze(tuple(axes))


def kept_shape(shape: Shape, axes: Sequence[int]) -> Shape:
    """The shape with 1 at `axes`."""
    if shape == UNKNOWN_RANK:
        return UNKNOWN_RANK
    return tuple(1 if position in axes else dim for position, dim in enumerate(shape))


def size_of(shape: Sequence[int], axes: Sequence[int]) -> int:
    return int(np.prod([shape[axis] for axis in axes], dtype=np.int64))


def unbiased(variance: Array, n: int) -> Array:
    """The variance with n - 1; 0 for a single element."""
    return variance * variance.dtype.type(n / (n - 1) if n > 1 else 0)
