"""Operators that change a tensor's shape or read it: Reshape, Transpose, Squeeze, Unsqueeze, Shape and relatives."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from gecli.ir.dtype import DataType
from gecli.ir.format import Format
from gecli.ir.tensor_desc import UNKNOWN_DIM, UNKNOWN_RANK, TensorDesc
from gecli.ops.inference import MAX_RANK, InferenceError, normalise_axis
from gecli.ops.numeric import Array, Step
from gecli.ops.onnx_import import Builder, OnnxNode, importer
from gecli.ops.operator import From, operator, value_of

Dims = tuple[int, ...]


def ints_of(desc: TensorDesc | None) -> tuple[int, ...] | None:
    """The known value of an integer vector or scalar; None when it is not known at compile time."""
    value = value_of(desc)
    return None if value is None else tuple(int(v) for v in np.asarray(value).reshape(-1))


def length_of(desc: TensorDesc | None) -> int | None:
    """The length of a vector of dims or axes, when its shape says so."""
    if desc is None or len(desc.shape) > 1 or desc.shape == UNKNOWN_RANK:
        return None
    length = desc.shape[0] if desc.shape else 1
    return length if length >= 0 else None


def shaped(x: TensorDesc, shape: Sequence[int]) -> TensorDesc:
    """x's dtype with another shape; the layout name means nothing any more."""
    return TensorDesc(x.dtype, tuple(shape), Format.ND)


def unknown(x: TensorDesc, rank: int | None) -> TensorDesc:
    """x's dtype with unknown dims. Raises InferenceError for more of them than arrays can have."""
    if rank is not None and rank > MAX_RANK:
        raise InferenceError(f"a tensor of {rank} dims is made; the limit is {MAX_RANK}")
    return shaped(x, UNKNOWN_RANK if rank is None else (UNKNOWN_DIM,) * rank)


def reshaped(shape: Dims, target: Sequence[int], allowzero: bool) -> Dims:
    """The dims that Reshape gives: 0 copies a dim, -1 takes what is left. Raises InferenceError.

    Dims that are copied cancel out, so -1 is often known although the input is not.
    """
    if shape == UNKNOWN_RANK:
        return tuple(UNKNOWN_DIM if dim == 0 and not allowzero else dim for dim in target)
    result = list(target)
    copied: set[int] = set()
    for position, dim in enumerate(target):
        if dim == 0 and not allowzero:
            if position >= len(shape):
                raise InferenceError(f"dim {position} of {list(target)} copies a dim that {list(shape)} does not have")
            result[position] = shape[position]
            copied.add(position)
    asked = [position for position, dim in enumerate(target) if dim == -1]
    if len(asked) > 1:
        raise InferenceError(f"{list(target)} has more than one -1")
    rest_in = [dim for position, dim in enumerate(shape) if position not in copied]
    rest_out = [dim for position, dim in enumerate(target) if position not in copied and dim != -1]
    if any(dim < 0 for dim in rest_in):
        return tuple(result)
    elements = prod(rest_in)
    if any(shape[position] == 0 for position in copied) and asked:
        elements = 0
    if asked:
        known = prod(rest_out)
        if known == 0 or elements % known:
            if known or elements:
                raise InferenceError(f"shape {list(shape)} cannot be reshaped to {list(target)}")
            result[asked[0]] = 0
        else:
            result[asked[0]] = elements // known
    elif elements != prod(rest_out) and not any(shape[position] == 0 for position in copied):
        raise InferenceError(f"shape {list(shape)} cannot be reshaped to {list(target)}")
    return tuple(result)


class View:
    """Operators whose output is the input's bytes: the executor lets both share one address."""

    zero_preserving = True
    view = True


@operator(onnx=From("Reshape", since=5))
class Reshape(View):
    """The same elements under dims `shape`; with `axis` and `num_axes` only that part of the dims is replaced."""

    axis: int = 0
    num_axes: int = -1
    allowzero: int = 0
    shape_inputs = (1,)

    def infer(self, x: TensorDesc, shape: TensorDesc) -> TensorDesc:
        target = ints_of(shape)
        if target is None:
            return unknown(x, length_of(shape) if self._whole else None)
        return shaped(x, self._dims(x.shape, target))

    def kernel(self, x: Array, shape: Array) -> Array:
        return x.reshape(self._dims(x.shape, [int(dim) for dim in shape.reshape(-1)]))

    @property
    def _whole(self) -> bool:
        return self.axis == 0 and self.num_axes == -1

    def _dims(self, shape: Dims, target: Sequence[int]) -> Dims:
        if self._whole or shape == UNKNOWN_RANK:
            return reshaped(shape, target, bool(self.allowzero))
        start = self.axis if self.axis >= 0 else len(shape) + 1 + self.axis
        stop = len(shape) if self.num_axes == -1 else start + self.num_axes
        return (*shape[:start], *reshaped(shape[start:stop], target, bool(self.allowzero)), *shape[stop:])


def _product(dims: Sequence[int]) -> int:
    if 0 in dims:
        return 0
    return UNKNOWN_DIM if any(dim < 0 for dim in dims) else prod(dims)


@operator(onnx=From("Flatten"))
class Flatten(View):
    """Two dims: the product of the dims before `axis`, and of the others."""

    axis: int = 1

    def infer(self, x: TensorDesc) -> TensorDesc:
        if x.shape == UNKNOWN_RANK:
            return unknown(x, 2)
        return shaped(x, self._dims(x.shape))

    def kernel(self, x: Array) -> Array:
        return x.reshape(self._dims(x.shape))

    def _dims(self, shape: Dims) -> Dims:
        axis = self.axis + len(shape) if self.axis < 0 else self.axis
        if not 0 <= axis <= len(shape):
            raise InferenceError(f"axis {self.axis} is out of range for rank {len(shape)}")
        return (_product(shape[:axis]), _product(shape[axis:]))


@operator()
class FlattenV2(View):
    """The dims from `axis` to `end_axis` merged into one."""

    axis: int = 1
    end_axis: int = -1

    def infer(self, x: TensorDesc) -> TensorDesc:
        return unknown(x, None) if x.shape == UNKNOWN_RANK else shaped(x, self._dims(x.shape))

    def kernel(self, x: Array) -> Array:
        return x.reshape(self._dims(x.shape))

    def _dims(self, shape: Dims) -> Dims:
        first, last = normalise_axis(self.axis, len(shape)), normalise_axis(self.end_axis, len(shape))
        if first > last:
            raise InferenceError(f"axis {self.axis} stands behind end_axis {self.end_axis} in {list(shape)}")
        return (*shape[:first], _product(shape[first : last + 1]), *shape[last + 1 :])


def permuted(shape: Dims, perm: Sequence[int]) -> Dims:
    """The dims of a transposed tensor. Raises InferenceError when `perm` is no permutation of the axes."""
    if shape == UNKNOWN_RANK:
        return (UNKNOWN_DIM,) * len(perm)
    axes = [normalise_axis(axis, len(shape)) for axis in perm]
    if sorted(axes) != list(range(len(shape))):
        raise InferenceError(f"perm {list(perm)} is not a permutation of the axes of {list(shape)}")
    return tuple(shape[axis] for axis in axes)


def bind_transpose(x: Array, y: Array, perm: Sequence[int]) -> Step:
    """Copy x to y in transposed order."""
    source = x.transpose(perm)
    return lambda: np.copyto(y, source)


@operator()
class Transpose:
    """Axes in the order of `perm`."""

    shape_inputs = (1,)
    zero_preserving = True

    def infer(self, x: TensorDesc, perm: TensorDesc) -> TensorDesc:
        order = ints_of(perm)
        return unknown(x, x.rank) if order is None else shaped(x, permuted(x.shape, order))

    def kernel(self, x: Array, perm: Array) -> Array:
        return x.transpose([int(axis) for axis in perm.reshape(-1)])


@operator()
class TransposeD:
    """Axes in the order of the attribute `perm`."""

    perm: tuple[int, ...]
    zero_preserving = True

    def infer(self, x: TensorDesc) -> TensorDesc:
        return shaped(x, permuted(x.shape, self.perm))

    def kernel(self, x: Array) -> Array:
        return x.transpose(self.perm)

    def bind(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> Step | None:
        return bind_transpose(inputs[0], outputs[0], self.perm)


@operator()
class Permute:
    """TransposeD under Caffe's name."""

    order: tuple[int, ...] = (0,)
    zero_preserving = True

    def infer(self, x: TensorDesc) -> TensorDesc:
        return shaped(x, permuted(x.shape, self._perm(x.rank)))

    def kernel(self, x: Array) -> Array:
        return x.transpose(self._perm(x.ndim))

    def _perm(self, rank: int | None) -> tuple[int, ...]:
        rest = range(rank or 0)
        return (*self.order, *(axis for axis in rest if axis not in self.order))


@importer("Transpose")
def transpose(node: OnnxNode, build: Builder) -> None:
    x = node.input(0)
    perm = node.attr("perm")
    rank = build.rank(x)
    if perm is None and rank is None:
        # The default order needs the rank, which is known at run time only.
        zero, one = build.const(np.array(0, np.int32), "start"), build.const(np.array(1, np.int32), "delta")
        upwards = build.op("Range", zero, build.op("Rank", x), one)
        build.output(0, build.op("Transpose", x, build.op("ReverseV2", upwards, zero)))
        return
    order = tuple(reversed(range(rank or 0))) if perm is None else tuple(perm)
    build.output(0, build.op("TransposeD", x, perm=order))


def squeezed(shape: Dims, axes: Sequence[int] | None) -> Dims:
    """The dims without those at `axes` (None or empty: all dims of 1). Raises InferenceError."""
    if shape == UNKNOWN_RANK:
        return UNKNOWN_RANK
    if not axes:
        return UNKNOWN_RANK if any(dim < 0 for dim in shape) else tuple(dim for dim in shape if dim != 1)
    drop = {normalise_axis(axis, len(shape)) for axis in axes}
    for axis in sorted(drop):
        if shape[axis] not in (1, UNKNOWN_DIM):
            raise InferenceError(f"axis {axis} of {list(shape)} cannot be squeezed: the dim is not 1")
    return tuple(dim for axis, dim in enumerate(shape) if axis not in drop)


def unsqueezed(shape: Dims, axes: Sequence[int]) -> Dims:
    """The dims with 1 inserted so that they stand at `axes` of the result. Raises InferenceError."""
    if shape == UNKNOWN_RANK:
        return UNKNOWN_RANK
    rank = len(shape) + len(axes)
    places = {normalise_axis(axis, rank) for axis in axes}
    if len(places) != len(axes):
        raise InferenceError(f"axes {list(axes)} name an axis twice")
    left = iter(shape)
    return tuple(1 if axis in places else next(left) for axis in range(rank))


@operator(onnx=From("Squeeze", until=12, attrs={"axes": "axis"}), aliases=("SqueezeV2",))
class Squeeze(View):
    """Remove dims of 1: those at `axis`, or all."""

    axis: tuple[int, ...] = ()

    def infer(self, x: TensorDesc) -> TensorDesc:
        return shaped(x, squeezed(x.shape, self.axis))

    def kernel(self, x: Array) -> Array:
        return x.reshape(squeezed(x.shape, self.axis))


@operator()
class SqueezeV3(View):
    """Remove dims of 1: those at `axes`, or all."""

    shape_inputs = (1,)

    def infer(self, x: TensorDesc, axes: TensorDesc | None = None) -> TensorDesc:
        known = ints_of(axes)
        if axes is None or known is not None:
            return shaped(x, squeezed(x.shape, known))
        count = length_of(axes)
        return unknown(x, None if x.rank is None or not count else x.rank - count)

    def kernel(self, x: Array, axes: Array | None = None) -> Array:
        return x.reshape(squeezed(x.shape, None if axes is None else [int(axis) for axis in axes.reshape(-1)]))


@operator(onnx=From("Unsqueeze", until=12))
class Unsqueeze(View):
    """Insert dims of 1 at `axes`."""

    axes: tuple[int, ...] = ()

    def infer(self, x: TensorDesc) -> TensorDesc:
        return shaped(x, unsqueezed(x.shape, self.axes))

    def kernel(self, x: Array) -> Array:
        return x.reshape(unsqueezed(x.shape, self.axes))


@operator()
class UnsqueezeV2(View):
    """Insert dims of 1 at `axis`."""

    axis: tuple[int, ...] = ()

    def infer(self, x: TensorDesc) -> TensorDesc:
        return shaped(x, unsqueezed(x.shape, self.axis))

    def kernel(self, x: Array) -> Array:
        return x.reshape(unsqueezed(x.shape, self.axis))


@operator()
class UnsqueezeV3(View):
    """Insert dims of 1 at the axes that an input gives."""

    shape_inputs = (1,)

    def infer(self, x: TensorDesc, axes: TensorDesc) -> TensorDesc:
        known = ints_of(axes)
        if known is not None:
            return shaped(x, unsqueezed(x.shape, known))
        count = length_of(axes)
        return unknown(x, None if x.rank is None or count is None else x.rank + count)

    def kernel(self, x: Array, axes: Array) -> Array:
        return x.reshape(unsqueezed(x.shape, [int(axis) for axis in axes.reshape(-1)]))


@operator()
class ExpandDims(View):
    """Insert one dim of 1 at `axis`."""

    shape_inputs = (1,)

    def infer(self, x: TensorDesc, axis: TensorDesc) -> TensorDesc:
        known = ints_of(axis)
        if known is None:
            return unknown(x, None if x.rank is None else x.rank + 1)
        return shaped(x, unsqueezed(x.shape, known))

    def kernel(self, x: Array, axis: Array) -> Array:
        return x.reshape(unsqueezed(x.shape, [int(axis.reshape(-1)[0])]))


@importer("Squeeze", since=13)
def squeeze(node: OnnxNode, build: Builder) -> None:
    x, axes = node.input(0), node.optional(1)
    known = build.constant(axes)
    if axes is not None and known is None:
        build.output(0, build.op("SqueezeV3", x, axes))
        return
    build.output(0, build.op("SqueezeV2", x, axis=() if known is None else tuple(int(a) for a in known.reshape(-1))))


@importer("Unsqueeze", since=13)
def unsqueeze(node: OnnxNode, build: Builder) -> None:
    x, axes = node.input(0), node.input(1)
    known = build.constant(axes)
    if known is None:
        build.output(0, build.op("UnsqueezeV3", x, axes))
        return
    build.output(0, build.op("UnsqueezeV2", x, axis=tuple(int(a) for a in known.reshape(-1))))


@operator()
class Shape:
    """The dims of x as a vector."""

    dtype: int = 3

    def infer(self, x: TensorDesc) -> TensorDesc:
        return TensorDesc(DataType(self.dtype), (UNKNOWN_DIM if x.rank is None else x.rank,))

    def fold_shape(self, x: TensorDesc) -> Array | None:
        """The result when all dims of x are known."""
        return np.array(x.shape, DataType(self.dtype).numpy) if x.is_static else None

    def kernel(self, x: Array) -> Array:
        return np.array(x.shape, DataType(self.dtype).numpy)


@operator()
class ShapeN:
    """The dims of each input."""

    dtype: int = 3
    outputs = ("y*",)

    def infer(self, *x: TensorDesc) -> tuple[TensorDesc, ...]:
        return tuple(TensorDesc(DataType(self.dtype), (UNKNOWN_DIM if d.rank is None else d.rank,)) for d in x)

    def kernel(self, *x: Array) -> tuple[Array, ...]:
        return tuple(np.array(each.shape, DataType(self.dtype).numpy) for each in x)


@operator(onnx=From("Size", defaults={"dtype": 9}))
class Size:
    """The number of elements of x."""

    dtype: int = 3

    def infer(self, x: TensorDesc) -> TensorDesc:
        return TensorDesc(DataType(self.dtype), ())

    def fold_shape(self, x: TensorDesc) -> Array | None:
        """The result when all dims of x are known."""
        return np.array(x.elements, DataType(self.dtype).numpy) if x.is_static else None

    def kernel(self, x: Array) -> Array:
        return np.array(x.size, DataType(self.dtype).numpy)


@operator()
class Rank:
    """The number of dims of x."""

    def infer(self, x: TensorDesc) -> TensorDesc:
        return TensorDesc(DataType.INT32, ())

    def fold_shape(self, x: TensorDesc) -> Array | None:
        """The result when the rank of x is known."""
        return None if x.rank is None else np.array(x.rank, np.int32)

    def kernel(self, x: Array) -> Array:
        return np.array(x.ndim, np.int32)


@importer("Shape")
def shape_of(node: OnnxNode, build: Builder) -> None:
    whole = build.op("Shape", node.input(0), dtype=int(DataType.INT64))
    start, end = node.attr("start", 0), node.attr("end")
    if start == 0 and end is None:
        build.output(0, whole)
        return
    # An end beyond the rank means all the rest.
    bounds = (np.array([start], np.int64), np.array([2**31 - 1 if end is None else end], np.int64))
    begin, stop = build.const(bounds[0], "begin"), build.const(bounds[1], "end")
    build.output(0, build.op("StridedSliceV2", whole, begin, stop))
