"""Operators that cut parts out of a tensor or extend it: Slice, StridedSlice, Pad, Reverse."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from gecli.ir.tensor_desc import UNKNOWN_DIM, UNKNOWN_RANK, TensorDesc
from gecli.ops.bound import constant
from gecli.ops.inference import InferenceError, normalise_axis, same_as_input
from gecli.ops.numeric import Array, Step
from gecli.ops.onnx_import import Builder, OnnxNode, importer
from gecli.ops.operator import From, operator
from gecli.ops.shape import Dims, ints_of, length_of, shaped, unknown

INT64_MAX = 2**63 - 1
Index = tuple[Any, ...]


class Masks(NamedTuple):
    """TensorFlow's bit masks over the entries of begin, end and strides."""

    begin: int = 0
    end: int = 0
    ellipsis: int = 0
    new_axis: int = 0
    shrink_axis: int = 0


def strided_index(
    rank: int,
    begin: Sequence[int],
    end: Sequence[int],
    strides: Sequence[int],
    axes: Sequence[int] | None,
    masks: Masks,
) -> Index:
    """The numpy index of a strided slice: one slice or integer for each axis, None for a new one.

    Bounds beyond the dims clamp, INT64 extremes included, because Python's slices do. Raises InferenceError.
    """
    if 0 in strides:
        raise InferenceError(f"strides {list(strides)} hold a 0")
    if axes is not None:
        places = [normalise_axis(axis, rank) for axis in axes]
        if len(set(places)) != len(places):
            raise InferenceError(f"axes {list(axes)} name an axis twice")
        index: list[Any] = [slice(None)] * rank
        for entry, place in enumerate(places):
            index[place] = _entry(entry, begin, end, strides, masks)
        return tuple(index)
    result: list[Any] = []
    used = sum(1 for entry in range(len(begin)) if not (masks.new_axis | masks.ellipsis) >> entry & 1)
    for entry in range(len(begin)):
        if masks.ellipsis >> entry & 1:
            result += [slice(None)] * (rank - used)
        elif masks.new_axis >> entry & 1:
            result.append(None)
        else:
            result.append(_entry(entry, begin, end, strides, masks))
    consumed = sum(1 for each in result if each is not None)
    if consumed > rank:
        raise InferenceError(f"{consumed} axes are sliced but the rank is {rank}")
    return (*result, *[slice(None)] * (rank - consumed))


def _entry(entry: int, begin: Sequence[int], end: Sequence[int], strides: Sequence[int], masks: Masks) -> Any:
    if masks.shrink_axis >> entry & 1:
        return begin[entry]
    start = None if masks.begin >> entry & 1 else begin[entry]
    stop = None if masks.end >> entry & 1 else end[entry]
    return slice(start, stop, strides[entry])


def sliced(shape: Dims, index: Index) -> Dims:
    """The dims of `x[index]`; an unknown dim stays unknown unless the slice says otherwise."""
    result: list[int] = []
    position = 0
    for each in index:
        if each is None:
            result.append(1)
            continue
        dim = shape[position]
        if isinstance(each, slice):
            result.append(_length(dim, each))
        elif dim >= 0 and not -dim <= each < dim:
            raise InferenceError(f"index {each} is out of range for dim {position} of {list(shape)}")
        position += 1
    return tuple(result)


def _length(dim: int, cut: slice) -> int:
    if dim >= 0:
        return len(range(*cut.indices(dim)))
    return UNKNOWN_DIM


def _read(*arrays: Array | None) -> list[list[int] | None]:
    return [None if array is None else [int(v) for v in array.reshape(-1)] for array in arrays]


class _Strided:
    """What the strided slices share."""

    begin_mask: int = 0
    end_mask: int = 0
    ellipsis_mask: int = 0
    new_axis_mask: int = 0
    shrink_axis_mask: int = 0
    zero_preserving = True

    @property
    def masks(self) -> Masks:
        return Masks(self.begin_mask, self.end_mask, self.ellipsis_mask, self.new_axis_mask, self.shrink_axis_mask)

    def described(self, x: TensorDesc, *bounds: Sequence[int] | None) -> TensorDesc:
        """The output for known begin, end, strides and perhaps axes."""
        if x.shape == UNKNOWN_RANK:
            return unknown(x, None)
        begin, end, strides, axes = bounds
        assert begin is not None and end is not None
        index = strided_index(len(x.shape), begin, end, strides or [1] * len(begin), axes, self.masks)
        dims = sliced(x.shape, index)
        return TensorDesc(x.dtype, dims, x.format) if len(dims) == len(x.shape) else shaped(x, dims)

    def cut(self, x: Array, *bounds: Sequence[int] | None) -> Array:
        """A view of the part, also of a single element."""
        begin, end, strides, axes = bounds
        assert begin is not None and end is not None
        index = strided_index(x.ndim, begin, end, strides or [1] * len(begin), axes, self.masks)
        part: Array = x[(*index, ...)]
        return part


@operator(onnx=From("Slice", since=10))
class StridedSliceV2(_Strided):
    """A part of x: from begin to end in steps of strides, on `axes` or on the first axes."""

    shape_inputs = (1, 2, 3, 4)

    def infer(
        self,
        x: TensorDesc,
        begin: TensorDesc,
        end: TensorDesc,
        axes: TensorDesc | None = None,
        strides: TensorDesc | None = None,
    ) -> TensorDesc:
        known = [ints_of(desc) for desc in (begin, end, strides, axes)]
        given = (begin, end, strides, axes)
        if all(value is not None or desc is None for value, desc in zip(known, given, strict=True)):
            return self.described(x, *known)
        if x.shape == UNKNOWN_RANK or self.masks != Masks() or (axes is not None and known[3] is None):
            return unknown(x, x.rank if self.masks == Masks() else None)
        count = length_of(begin)
        rank = len(x.shape)
        touched = known[3] if axes is not None else range(rank if count is None else count)
        dims = list(x.shape)
        for axis in touched or ():
            dims[normalise_axis(axis, rank)] = UNKNOWN_DIM
        return TensorDesc(x.dtype, tuple(dims), x.format)

    def kernel(
        self, x: Array, begin: Array, end: Array, axes: Array | None = None, strides: Array | None = None
    ) -> Array:
        return self.cut(x, *_read(begin, end, strides, axes))

    def bind(self, inputs: Sequence[Array | None], outputs: Sequence[Array]) -> Step | None:
        return _bind_cut(self, inputs, outputs[0])


def _bind_cut(op: Any, inputs: Sequence[Array | None], y: Array) -> Step | None:
    """A copy from a fixed view, when all bounds are constant."""
    moving = [slot for slot in range(1, len(inputs)) if inputs[slot] is not None]
    if not constant(op, *moving):
        return None
    source = op.kernel(*inputs)
    copyto = np.copyto
    return lambda: copyto(y, source)


@operator()
class StridedSlice(_Strided):
    """A part of x by TensorFlow's rules."""

    shape_inputs = (1, 2, 3)

    def infer(self, x: TensorDesc, begin: TensorDesc, end: TensorDesc, strides: TensorDesc | None = None) -> TensorDesc:
        known = [ints_of(desc) for desc in (begin, end, strides)]
        if any(value is None and desc is not None for value, desc in zip(known, (begin, end, strides), strict=True)):
            return unknown(x, x.rank if self.masks == Masks() else None)
        return self.described(x, *known, None)

    def kernel(self, x: Array, begin: Array, end: Array, strides: Array | None = None) -> Array:
        return self.cut(x, *_read(begin, end, strides), None)

    def bind(self, inputs: Sequence[Array | None], outputs: Sequence[Array]) -> Step | None:
        return _bind_cut(self, inputs, outputs[0])


@operator()
class StridedSliceD(_Strided):
    """StridedSlice with the bounds as attributes."""

    begin: tuple[int, ...]
    end: tuple[int, ...]
    strides: tuple[int, ...] = ()

    def infer(self, x: TensorDesc) -> TensorDesc:
        return self.described(x, self.begin, self.end, self.strides, None)

    def kernel(self, x: Array) -> Array:
        return self.cut(x, self.begin, self.end, self.strides, None)

    def bind(self, inputs: Sequence[Array | None], outputs: Sequence[Array]) -> Step | None:
        return _bind_cut(self, inputs, outputs[0])


@importer("Slice", until=9)
def slice_with_attributes(node: OnnxNode, build: Builder) -> None:
    starts, ends = node.attr("starts"), node.attr("ends")
    axes = node.attr("axes", tuple(range(len(starts))))
    consts = [
        build.const(np.array(values, np.int64), role)
        for values, role in ((starts, "begin"), (ends, "end"), (axes, "axes"), ([1] * len(starts), "strides"))
    ]
    build.output(0, build.op("StridedSliceV2", node.input(0), *consts))


def box(shape: Dims, offsets: Sequence[int], size: Sequence[int]) -> tuple[slice, ...]:
    """The index of Slice: `size` elements from `offsets`, -1 meaning the rest. Raises InferenceError."""
    if not len(offsets) == len(size) == len(shape):
        raise InferenceError(f"offsets {list(offsets)} and size {list(size)} do not fit {list(shape)}")
    index = []
    for axis, (start, count) in enumerate(zip(offsets, size, strict=True)):
        stop = shape[axis] if count == -1 else start + count
        if start < 0 or (shape[axis] >= 0 and not start <= stop <= shape[axis]):
            raise InferenceError(f"offsets {list(offsets)}, size {list(size)} leave {list(shape)} on axis {axis}")
        index.append(slice(start, stop))
    return tuple(index)


def _boxed(x: TensorDesc, offsets: Sequence[int], size: Sequence[int]) -> TensorDesc:
    if x.shape == UNKNOWN_RANK:
        return shaped(x, [UNKNOWN_DIM if count == -1 else count for count in size])
    cuts = box(x.shape, offsets, size)
    dims = [
        count if count != -1 else UNKNOWN_DIM if dim < 0 else dim - cut.start
        for count, dim, cut in zip(size, x.shape, cuts, strict=True)
    ]
    return TensorDesc(x.dtype, tuple(dims), x.format)


@operator()
class Slice:
    """`size` elements from `offsets` on."""

    shape_inputs = (1, 2)
    zero_preserving = True

    def infer(self, x: TensorDesc, offsets: TensorDesc, size: TensorDesc) -> TensorDesc:
        start, count = ints_of(offsets), ints_of(size)
        if count is None:
            return unknown(x, x.rank)
        if start is None:
            return shaped(x, [UNKNOWN_DIM if each == -1 else each for each in count])
        return _boxed(x, start, count)

    def kernel(self, x: Array, offsets: Array, size: Array) -> Array:
        start, count = _read(offsets, size)
        return x[box(x.shape, start or (), count or ())]

    def bind(self, inputs: Sequence[Array | None], outputs: Sequence[Array]) -> Step | None:
        return _bind_cut(self, inputs, outputs[0])


@operator()
class SliceD:
    """Slice with attributes."""

    offsets: tuple[int, ...]
    size: tuple[int, ...]
    zero_preserving = True

    def infer(self, x: TensorDesc) -> TensorDesc:
        return _boxed(x, self.offsets, self.size)

    def kernel(self, x: Array) -> Array:
        return x[box(x.shape, self.offsets, self.size)]

    def bind(self, inputs: Sequence[Array | None], outputs: Sequence[Array]) -> Step | None:
        return _bind_cut(self, inputs, outputs[0])


@operator()
class ReverseV2:
    """x backwards along the axes that an input gives."""

    zero_preserving = True

    infer = same_as_input

    def kernel(self, x: Array, axis: Array) -> Array:
        return np.flip(x, tuple(int(each) for each in axis.reshape(-1)))


@operator()
class ReverseV2D:
    """x backwards along `axis`."""

    axis: tuple[int, ...]
    zero_preserving = True
    infer = same_as_input

    def kernel(self, x: Array) -> Array:
        return np.flip(x, self.axis)


@operator(
    onnx=From(
        "ReverseSequence",
        attrs={"time_axis": "seq_dim", "batch_axis": "batch_dim"},
        defaults={"seq_dim": 0, "batch_dim": 1},
    )
)
class ReverseSequence:
    """The first `seq_lengths[b]` entries of each sequence backwards, the rest as it is."""

    seq_dim: int
    batch_dim: int = 0
    zero_preserving = True

    def infer(self, x: TensorDesc, seq_lengths: TensorDesc) -> TensorDesc:
        return same_as_input(self, x)

    def kernel(self, x: Array, seq_lengths: Array) -> Array:
        seq, batch = normalise_axis(self.seq_dim, x.ndim), normalise_axis(self.batch_dim, x.ndim)
        time = np.arange(x.shape[seq])
        lengths = seq_lengths.reshape(-1, 1).astype(np.int64)
        order = np.where(time < lengths, lengths - 1 - time, time)  # [batch, time]
        moved = np.moveaxis(x, (batch, seq), (0, 1))
        reversed_ = moved[np.arange(x.shape[batch])[:, None], order]
        return np.moveaxis(reversed_, (0, 1), (batch, seq))
