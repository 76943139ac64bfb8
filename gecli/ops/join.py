"""Operators that join tensors or take them apart: Concat, Pack, Split, Unpack."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gecli.ir.tensor_desc import UNKNOWN_DIM, UNKNOWN_RANK, TensorDesc
from gecli.ops.bound import constant
from gecli.ops.inference import InferenceError, normalise_axis
from gecli.ops.numeric import Array, Step
from gecli.ops.onnx_import import Builder, OnnxNode, importer
from gecli.ops.operator import operator
from gecli.ops.shape import Dims, ints_of, shaped, unknown


def joined(descs: Sequence[TensorDesc], axis: int) -> TensorDesc:
    """The description of a concatenation. Raises InferenceError."""
    known = [desc.shape for desc in descs if desc.shape != UNKNOWN_RANK]
    first = descs[0]
    if not known:
        return unknown(first, None)
    place = normalise_axis(axis, len(known[0]))
    result = list(known[0])
    for shape in known[1:]:
        if len(shape) != len(result):
            raise InferenceError(f"{_shapes(descs)} cannot be joined: they have different ranks")
        for position, dim in enumerate(shape):
            if position == place:
                continue
            if UNKNOWN_DIM not in (dim, result[position]) and dim != result[position]:
                raise InferenceError(f"{_shapes(descs)} cannot be joined on axis {axis}: dim {position} differs")
            result[position] = max(dim, result[position])
    parts = [shape[place] for shape in known]
    result[place] = UNKNOWN_DIM if len(known) < len(descs) or UNKNOWN_DIM in parts else sum(parts)
    shaped_like = next(desc for desc in descs if desc.shape != UNKNOWN_RANK)
    return TensorDesc(first.dtype, tuple(result), shaped_like.format)


def _shapes(descs: Sequence[TensorDesc]) -> str:
    return "shapes " + ", ".join(str(list(desc.shape)) for desc in descs)


def bind_concat(parts: Sequence[Array], y: Array, axis: int) -> Step | None:
    """Copy each part to its place in y."""
    place = normalise_axis(axis, y.ndim)
    copies: list[tuple[Array, Array]] = []
    start = 0
    for part in parts:
        stop = start + part.shape[place]
        if part.size:
            copies.append((y[(slice(None),) * place + (slice(start, stop),)], part))
        start = stop
    copyto = np.copyto
    if len(copies) == 2:
        (y0, x0), (y1, x1) = copies

        def both() -> None:
            copyto(y0, x0)
            copyto(y1, x1)

        return both

    def run() -> None:
        for target, source in copies:
            copyto(target, source)

    return run


@operator(aliases=("ConcatV2D",))
class ConcatD:
    """Tensors one behind the other along `concat_dim`."""

    concat_dim: int
    N: int = 1
    zero_preserving = True

    def infer(self, *x: TensorDesc) -> TensorDesc:
        return joined(x, self.concat_dim)

    def kernel(self, *x: Array) -> Array:
        return np.concatenate(x, self.concat_dim)

    def bind(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> Step | None:
        return bind_concat(inputs, outputs[0], self.concat_dim)


@operator()
class Concat:
    """Tensors one behind the other; the axis is the first input."""

    N: int = 1
    inputs = ("concat_dim", "x*")
    shape_inputs = (0,)
    zero_preserving = True

    def infer(self, concat_dim: TensorDesc, *x: TensorDesc) -> TensorDesc:
        axis = ints_of(concat_dim)
        return unknown(x[0], x[0].rank) if axis is None else joined(x, axis[0])

    def kernel(self, concat_dim: Array, *x: Array) -> Array:
        return np.concatenate(x, int(concat_dim.reshape(-1)[0]))


@operator()
class ConcatV2:
    """Tensors one behind the other; the axis is the last input."""

    N: int = 1
    inputs = ("x*", "concat_dim")
    zero_preserving = True

    def infer(self, *inputs: TensorDesc) -> TensorDesc:
        axis = ints_of(inputs[-1])
        return unknown(inputs[0], inputs[0].rank) if axis is None else joined(inputs[:-1], axis[0])

    def kernel(self, *inputs: Array) -> Array:
        return np.concatenate(inputs[:-1], int(inputs[-1].reshape(-1)[0]))


@importer("Concat", since=4)
def concat(node: OnnxNode, build: Builder) -> None:
    parts = [port for port in node.inputs if port is not None]
    if len(parts) == 1:
        build.output(0, build.op("Identity", parts[0]))
        return
    build.output(0, build.op("ConcatD", *parts, concat_dim=int(node.attr("axis", 1)), N=len(parts)))


@operator()
class Pack:
    """Tensors of one shape stacked along a new axis."""

    axis: int = 0
    N: int = 1
    zero_preserving = True

    def infer(self, *x: TensorDesc) -> TensorDesc:
        known = next((desc for desc in x if desc.shape != UNKNOWN_RANK), None)
        if known is None:
            return unknown(x[0], None)
        dims = list(known.shape)
        for desc in x:
            if desc.shape == UNKNOWN_RANK:
                continue
            if len(desc.shape) != len(dims) or any(
                a != b and UNKNOWN_DIM not in (a, b) for a, b in zip(dims, desc.shape, strict=True)
            ):
                raise InferenceError(f"{_shapes(x)} cannot be packed: they differ")
            dims = [max(a, b) for a, b in zip(dims, desc.shape, strict=True)]
        place = normalise_axis(self.axis, len(dims) + 1)
        return shaped(x[0], (*dims[:place], len(x), *dims[place:]))

    def kernel(self, *x: Array) -> Array:
        return np.stack(x, self.axis)

    def bind(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> Step | None:
        place = normalise_axis(self.axis, outputs[0].ndim)
        return bind_concat([np.expand_dims(x, place) for x in inputs], outputs[0], place)


@operator()
class Unpack:
    """The slices of x along an axis, without that axis."""

    num: int
    axis: int = 0
    outputs = ("y*",)
    zero_preserving = True

    def infer(self, x: TensorDesc) -> tuple[TensorDesc, ...]:
        if x.shape == UNKNOWN_RANK:
            return (unknown(x, None),) * self.num
        place = normalise_axis(self.axis, len(x.shape))
        if x.shape[place] not in (self.num, UNKNOWN_DIM):
            raise InferenceError(f"{list(x.shape)} cannot be unpacked to {self.num} parts on axis {self.axis}")
        return (shaped(x, (*x.shape[:place], *x.shape[place + 1 :])),) * self.num

    def kernel(self, x: Array) -> tuple[Array, ...]:
        return tuple(np.moveaxis(x, self.axis, 0))

    def bind(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> Step | None:
        return bind_copies(outputs, list(np.moveaxis(inputs[0], self.axis, 0)))


def bind_copies(targets: Sequence[Array], sources: Sequence[Array]) -> Step:
    """Copy each source to its target."""
    pairs = list(zip(targets, sources, strict=True))
    copyto = np.copyto

    def run() -> None:
        for target, source in pairs:
            copyto(target, source)

    return run


def parts_of(x: TensorDesc, axis: int | None, sizes: Sequence[int] | None, count: int) -> tuple[TensorDesc, ...]:
    """The descriptions of the parts of a split; `sizes` None means `count` equal parts. Raises InferenceError."""
    if axis is None or x.shape == UNKNOWN_RANK:
        return (unknown(x, x.rank),) * count
    place = normalise_axis(axis, len(x.shape))
    whole = x.shape[place]
    if sizes is None:
        if whole >= 0 and whole % count:
            raise InferenceError(f"dim {place} of {list(x.shape)} does not divide by {count}")
        sizes = [UNKNOWN_DIM if whole < 0 else whole // count] * count
    elif -1 in sizes and whole >= 0:
        rest = whole - sum(size for size in sizes if size >= 0)
        sizes = [rest if size == -1 else size for size in sizes]
    if whole >= 0 and sum(sizes) != whole:
        raise InferenceError(f"sizes {list(sizes)} do not add up to dim {place} of {list(x.shape)}")
    return tuple(TensorDesc(x.dtype, _replaced(x.shape, place, size), x.format) for size in sizes)


def _replaced(shape: Dims, place: int, dim: int) -> Dims:
    return (*shape[:place], dim, *shape[place + 1 :])


def split_at(x: Array, axis: int, sizes: Sequence[int] | None, count: int) -> tuple[Array, ...]:
    """Views of the parts of a split. Raises ValueError when they do not add up.

    Without sizes the last part may be smaller, as ONNX has it: inference refuses that where GE would.
    """
    whole = x.shape[axis]
    if sizes is None:
        each = -(-whole // count)
        sizes = [each] * (count - 1) + [whole - each * (count - 1)]
        if sizes[-1] < 0:
            raise ValueError(f"dim {axis} of {list(x.shape)} is too small for {count} parts")
    elif -1 in sizes:
        rest = whole - sum(size for size in sizes if size >= 0)
        sizes = [rest if size == -1 else size for size in sizes]
    if sum(sizes) != whole:
        raise ValueError(f"sizes {list(sizes)} do not add up to dim {axis} of {list(x.shape)}")
    ends = np.cumsum(sizes)[:-1]
    return tuple(np.split(x, ends, axis))


def _int(value: Any) -> int:
    return int(np.asarray(value).reshape(-1)[0])


def _ints(value: Any) -> list[int]:
    return [int(v) for v in np.asarray(value).reshape(-1)]


@operator()
class Split:
    """x cut into `num_split` equal parts; the axis is an input."""

    num_split: int
    outputs = ("y*",)
    shape_inputs = (0,)
    zero_preserving = True

    def infer(self, split_dim: TensorDesc, x: TensorDesc) -> tuple[TensorDesc, ...]:
        axis = ints_of(split_dim)
        return parts_of(x, None if axis is None else axis[0], None, self.num_split)

    def kernel(self, split_dim: Array, x: Array) -> tuple[Array, ...]:
        return split_at(x, _int(split_dim), None, self.num_split)

    def bind(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> Step | None:
        if not constant(self, 0):
            return None
        return bind_copies(outputs, split_at(inputs[1], _int(inputs[0]), None, self.num_split))


@operator()
class SplitD:
    """x cut into `num_split` equal parts along `split_dim`."""

    split_dim: int
    num_split: int
    outputs = ("y*",)
    zero_preserving = True

    def infer(self, x: TensorDesc) -> tuple[TensorDesc, ...]:
        return parts_of(x, self.split_dim, None, self.num_split)

    def kernel(self, x: Array) -> tuple[Array, ...]:
        return split_at(x, self.split_dim, None, self.num_split)

    def bind(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> Step | None:
        return bind_copies(outputs, split_at(inputs[0], self.split_dim, None, self.num_split))


@operator()
class SplitV:
    """x cut into parts of the sizes that an input gives."""

    num_split: int
    outputs = ("y*",)
    shape_inputs = (1, 2)
    zero_preserving = True

    def infer(self, x: TensorDesc, size_splits: TensorDesc, split_dim: TensorDesc) -> tuple[TensorDesc, ...]:
        axis, sizes = ints_of(split_dim), ints_of(size_splits)
        if axis is not None and sizes is None and x.rank is not None:
            part = TensorDesc(x.dtype, _replaced(x.shape, normalise_axis(axis[0], x.rank), UNKNOWN_DIM), x.format)
            return (part,) * self.num_split
        return parts_of(x, None if axis is None else axis[0], sizes, self.num_split)

    def kernel(self, x: Array, size_splits: Array, split_dim: Array) -> tuple[Array, ...]:
        return split_at(x, _int(split_dim), _ints(size_splits), self.num_split)

    def bind(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> Step | None:
        if not constant(self, 1, 2):
            return None
        x, sizes, axis = inputs
        return bind_copies(outputs, split_at(x, _int(axis), _ints(sizes), self.num_split))


@operator()
class SplitVD:
    """x cut into parts of the sizes `size_splits` along `split_dim`."""

    size_splits: tuple[int, ...]
    split_dim: int
    num_split: int
    outputs = ("y*",)
    zero_preserving = True

    def infer(self, x: TensorDesc) -> tuple[TensorDesc, ...]:
        return parts_of(x, self.split_dim, self.size_splits, self.num_split)

    def kernel(self, x: Array) -> tuple[Array, ...]:
        return split_at(x, self.split_dim, self.size_splits, self.num_split)

    def bind(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> Step | None:
        return bind_copies(outputs, split_at(inputs[0], self.split_dim, self.size_splits, self.num_split))


@importer("Split")
def split(node: OnnxNode, build: Builder) -> None:
    x, axis = node.input(0), int(node.attr("axis", 0))
    sizes = node.attr("split") if node.opset < 13 else None
    asked = node.optional(1) if node.opset >= 13 else None
    count = len(node.outputs)
    split_dim = build.const(np.array(axis, np.int32), "split_dim")
    if asked is not None or sizes is not None:
        splits = asked if asked is not None else build.const(np.array(sizes, np.int64), "size_splits")
        ports = build.ops("SplitV", count, x, splits, split_dim, num_split=count)
    else:
        ports = _equal_parts(node, build, axis, count)
    for index, port in enumerate(ports):
        build.output(index, port)


def _equal_parts(node: OnnxNode, build: Builder, axis: int, count: int) -> tuple[Any, ...]:
    x = node.input(0)
    split_dim = build.const(np.array(axis, np.int32), "split_dim")
    desc = build.desc(x)
    whole = UNKNOWN_DIM if desc is None or desc.rank is None else desc.shape[normalise_axis(axis, desc.rank)]
    if whole < 0 or whole % count == 0:
        return build.ops("Split", count, split_dim, x, num_split=count)
    # Opset 18: the last part is smaller.
    each = -(-whole // count)
    sizes = np.array([each] * (count - 1) + [whole - each * (count - 1)], np.int64)
    return build.ops("SplitV", count, x, build.const(sizes, "size_splits"), split_dim, num_split=count)
