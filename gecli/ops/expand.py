"""Operators that make tensors from few values: Expand, BroadcastTo, Tile, Fill, Range, Eye, triangles."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil
from typing import Any

import numpy as np

from gecli.ir.dtype import DataType
from gecli.ir.tensor_desc import UNKNOWN_DIM, UNKNOWN_RANK, TensorDesc
from gecli.ops.bound import constant
from gecli.ops.inference import InferenceError, broadcast_shapes, same_as_input
from gecli.ops.numeric import Array, Step
from gecli.ops.onnx_import import Builder, OnnxNode, importer
from gecli.ops.operator import From, operator, value_of
from gecli.ops.shape import Dims, ints_of, length_of, shaped, unknown


def bind_broadcast(x: Array, y: Array) -> Step:
    """Copy x over y."""
    source = np.broadcast_to(x, y.shape)
    return lambda: np.copyto(y, source)


@operator(onnx=From("Expand"))
class Expand:
    """x broadcast with `shape`, in both directions."""

    shape_inputs = (1,)
    zero_preserving = True

    def infer(self, x: TensorDesc, shape: TensorDesc) -> TensorDesc:
        dims = ints_of(shape)
        if dims is not None:
            return shaped(x, broadcast_shapes([x.shape, dims]))
        count = length_of(shape)
        return unknown(x, None if count is None or x.rank is None else max(count, x.rank))

    def kernel(self, x: Array, shape: Array) -> Array:
        dims = np.broadcast_shapes(x.shape, tuple(int(dim) for dim in shape.reshape(-1)))
        return np.broadcast_to(x, dims).copy()

    def bind(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> Step | None:
        return bind_broadcast(inputs[0], outputs[0])


def broadcast_to(shape: Dims, dims: Dims) -> Dims:
    """`dims`, to which `shape` must broadcast; -1 keeps the input's dim. Raises InferenceError."""
    if shape == UNKNOWN_RANK:
        return dims
    lead = len(dims) - len(shape)
    if lead < 0:
        raise InferenceError(f"shape {list(shape)} does not broadcast to {list(dims)}: it has more dims")
    result = list(dims)
    for axis, dim in enumerate(shape, start=lead):
        if result[axis] == -1:
            result[axis] = dim
        elif dim not in (1, UNKNOWN_DIM, result[axis]):
            raise InferenceError(f"shape {list(shape)} does not broadcast to {list(dims)}")
    return tuple(result)


@operator()
class BroadcastTo:
    """x broadcast to exactly `shape`."""

    shape_inputs = (1,)
    zero_preserving = True

    def infer(self, x: TensorDesc, shape: TensorDesc) -> TensorDesc:
        dims = ints_of(shape)
        return unknown(x, length_of(shape)) if dims is None else shaped(x, broadcast_to(x.shape, dims))

    def kernel(self, x: Array, shape: Array) -> Array:
        return np.broadcast_to(x, broadcast_to(x.shape, tuple(int(dim) for dim in shape.reshape(-1)))).copy()

    def bind(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> Step | None:
        return bind_broadcast(inputs[0], outputs[0])


@operator()
class BroadcastToD:
    """x broadcast to the attribute `shape`."""

    shape: tuple[int, ...]
    zero_preserving = True

    def infer(self, x: TensorDesc) -> TensorDesc:
        return shaped(x, broadcast_to(x.shape, self.shape))

    def kernel(self, x: Array) -> Array:
        return np.broadcast_to(x, broadcast_to(x.shape, self.shape)).copy()

    def bind(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> Step | None:
        return bind_broadcast(inputs[0], outputs[0])


def tiled(shape: Dims, multiples: Sequence[int]) -> Dims:
    """The dims of a repeated tensor. Raises InferenceError."""
    if shape == UNKNOWN_RANK:
        return UNKNOWN_RANK
    rank = max(len(shape), len(multiples))
    dims = (1,) * (rank - len(shape)) + shape
    counts = (1,) * (rank - len(multiples)) + tuple(multiples)
    if any(count < 0 for count in counts):
        raise InferenceError(f"multiples {list(multiples)} of {list(shape)} are negative")
    return tuple(
        0 if count == 0 else UNKNOWN_DIM if dim < 0 else dim * count for dim, count in zip(dims, counts, strict=True)
    )


def bind_tile(x: Array, y: Array, multiples: Sequence[int]) -> Step:
    """Fill y, seen as [m0, d0, m1, d1, ...], from x seen as [1, d0, 1, d1, ...]."""
    rank = y.ndim
    counts = (1,) * (rank - len(multiples)) + tuple(multiples)
    dims = (1,) * (rank - x.ndim) + x.shape
    source = x.reshape([size for dim in dims for size in (1, dim)])
    target = y.reshape([size for count, dim in zip(counts, dims, strict=True) for size in (count, dim)])
    return lambda: np.copyto(target, source)


@operator(onnx=From("Tile", since=6))
class Tile:
    """x repeated `multiples` times along each axis."""

    shape_inputs = (1,)
    zero_preserving = True

    def infer(self, x: TensorDesc, multiples: TensorDesc) -> TensorDesc:
        counts = ints_of(multiples)
        if counts is None:
            count = length_of(multiples)
            return unknown(x, None if x.rank is None else max(x.rank, count or 0))
        return shaped(x, tiled(x.shape, counts))

    def kernel(self, x: Array, multiples: Array) -> Array:
        return np.tile(x, [int(count) for count in multiples.reshape(-1)])

    def bind(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> Step | None:
        if not constant(self, 1):
            return None
        return bind_tile(inputs[0], outputs[0], [int(count) for count in inputs[1].reshape(-1)])


@operator()
class TileD:
    """x repeated along each axis; the counts are an attribute."""

    multiples: tuple[int, ...]
    zero_preserving = True

    def infer(self, x: TensorDesc) -> TensorDesc:
        return shaped(x, tiled(x.shape, self.multiples))

    def kernel(self, x: Array) -> Array:
        return np.tile(x, self.multiples)

    def bind(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> Step | None:
        return bind_tile(inputs[0], outputs[0], self.multiples)


@operator()
class Fill:
    """A tensor of the shape `dims` that holds `value` everywhere."""

    shape_inputs = (0,)

    def infer(self, dims: TensorDesc, value: TensorDesc) -> TensorDesc:
        known = ints_of(dims)
        return unknown(value, length_of(dims)) if known is None else shaped(value, known)

    def kernel(self, dims: Array, value: Array) -> Array:
        return np.full(tuple(int(dim) for dim in dims.reshape(-1)), value.reshape(-1)[0], value.dtype)

    def bind(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> Step | None:
        return bind_broadcast(inputs[1].reshape(()), outputs[0])


@importer("ConstantOfShape")
def constant_of_shape(node: OnnxNode, build: Builder) -> None:
    given = node.attr("value")
    value = np.zeros((), np.float32) if given is None else given.numpy().reshape(())
    build.output(0, build.op("Fill", node.input(0), build.const(value, "value")))


@operator(onnx=From("Range"))
class Range:
    """start, start + delta, ... up to but without limit."""

    shape_inputs = (0, 1, 2)

    def infer(self, start: TensorDesc, limit: TensorDesc, delta: TensorDesc) -> TensorDesc:
        values = [value_of(desc) for desc in (start, limit, delta)]
        if any(value is None for value in values):
            return unknown(start, 1)
        return shaped(start, (_steps(*(np.asarray(value).reshape(-1)[0] for value in values)),))

    def kernel(self, start: Array, limit: Array, delta: Array) -> Array:
        first, stop, step = (each.reshape(-1)[0] for each in (start, limit, delta))
        count = _steps(first, stop, step)
        return (first + step * np.arange(count).astype(start.dtype)).astype(start.dtype)


def _steps(start: Any, limit: Any, delta: Any) -> int:
    first, stop, step = (each.item() if isinstance(each, np.generic) else each for each in (start, limit, delta))
    if step == 0:
        raise InferenceError("Range has a delta of 0")
    count = -((first - stop) // step) if isinstance(step, int) else ceil((stop - first) / step)
    return max(int(count), 0)


@operator()
class Eye:
    """Ones on the diagonal, zeros elsewhere, in each matrix of a batch."""

    num_rows: int
    num_columns: int = 0
    batch_shape: tuple[int, ...] = ()
    dtype: int = 0
    inputs = ()

    def infer(self) -> TensorDesc:
        return TensorDesc(DataType(self.dtype), (*self.batch_shape, self.num_rows, self.num_columns or self.num_rows))

    def kernel(self) -> Array:
        one = np.eye(self.num_rows, self.num_columns or None, dtype=DataType(self.dtype).numpy)
        return np.broadcast_to(one, (*self.batch_shape, *one.shape)).copy()


MAX_CONSTANT = 1 << 24  # elements of a matrix that becomes a constant of the model


@importer("EyeLike")
def eye_like(node: OnnxNode, build: Builder) -> None:
    x = node.input(0)
    desc = build.desc(x)
    dtype = node.attr("dtype")
    kind = DataType.from_onnx(dtype) if dtype is not None else desc.dtype if desc is not None else DataType.FLOAT
    if kind is None:
        raise node.fault(f"dtype {dtype} is not a GE data type")
    k = int(node.attr("k", 0))
    if desc is not None and desc.is_static and len(desc.shape) == 2 and desc.elements <= MAX_CONSTANT:
        build.output(0, build.const(np.eye(desc.shape[0], desc.shape[1], k, dtype=kind.numpy), "value"))
        return
    # The diagonal is what two triangles have in common.
    ones = build.op("Fill", build.op("Shape", x, dtype=9), build.const(np.ones((), kind.numpy), "value"))
    offset = build.const(np.array(k, np.int64), "k")
    build.output(0, build.op("Trilu", build.op("Trilu", ones, offset, upper=1), offset, upper=0))


def triangle(x: Array, k: int, upper: bool) -> Array:
    """x with zeros outside the triangle, in each matrix of a batch."""
    rows, columns = np.arange(x.shape[-2])[:, None], np.arange(x.shape[-1])
    keep = columns >= rows + k if upper else columns <= rows + k
    return np.where(keep, x, np.zeros((), x.dtype))


@operator(onnx=From("Trilu", defaults={"upper": 1}))
class Trilu:
    """The upper or lower triangle from diagonal k on; zeros elsewhere."""

    upper: int = 0
    zero_preserving = True
    infer = same_as_input

    def kernel(self, x: Array, k: Array | None = None) -> Array:
        return triangle(x, 0 if k is None else int(k.reshape(-1)[0]), bool(self.upper))


@operator()
class Triu:
    """The upper triangle from `diagonal` on."""

    diagonal: int = 0
    zero_preserving = True
    infer = same_as_input

    def kernel(self, x: Array) -> Array:
        return triangle(x, self.diagonal, True)


@operator()
class Tril:
    """The lower triangle up to `diagonal`."""

    diagonal: int = 0
    zero_preserving = True
    infer = same_as_input

    def kernel(self, x: Array) -> Array:
        return triangle(x, self.diagonal, False)
