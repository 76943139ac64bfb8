"""Order and position: ArgMax, TopK, Sort, Unique, NonZero, running sums, OneHot."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from gecli.ir.dtype import DataType
from gecli.ir.op_desc import Port
from gecli.ir.tensor_desc import UNKNOWN_DIM, UNKNOWN_RANK, TensorDesc
from gecli.ops.inference import normalise_axis, plain
from gecli.ops.numeric import Array, Step, is_half
from gecli.ops.onnx_import import Builder, OnnxNode, importer
from gecli.ops.operator import operator, value_of
from gecli.ops.reduce import reduced_desc


def _computable(x: Array) -> Array:
    """x in a type that numpy orders fast and rightly."""
    return x.astype(np.float32) if is_half(x.dtype) else x


# ---------------------------------------------------------------------- ArgMax, ArgMin


class ArgExtremum:
    """Base of the positions of the first extremum along an axis that is an input; NaN comes first."""

    dtype: DataType = DataType.INT64
    find: ClassVar[Any]
    inputs = ("x", "dimension")

    def infer(self, x: TensorDesc, dimension: TensorDesc) -> TensorDesc:
        return _without_axis(x, value_of(dimension), self.dtype)

    def kernel(self, x: Array, dimension: Array) -> Array:
        return _position(self.find, x, int(dimension.reshape(())), self.dtype)

    def bind(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> Step | None:
        (x, dimension), (y,) = inputs, outputs
        constant: frozenset[int] = getattr(self, "constant_inputs", frozenset())
        if 1 not in constant or is_half(x.dtype) or y.dtype != np.int64 or not x.size or not x.ndim:
            return None
        find, axis = self.find, int(dimension.reshape(()))
        return lambda: find(x, axis=axis, out=y)


class ArgExtremumD:
    """Base of the positions of the first extremum along an attribute axis."""

    dimension: int
    dtype: DataType = DataType.INT32
    find: ClassVar[Any]
    inputs = ("x",)

    def infer(self, x: TensorDesc) -> TensorDesc:
        return _without_axis(x, self.dimension, DataType.INT32)

    def kernel(self, x: Array) -> Array:
        return _position(self.find, x, self.dimension, DataType.INT32)


class Largest:
    find: ClassVar[Any] = staticmethod(np.argmax)


class Smallest:
    find: ClassVar[Any] = staticmethod(np.argmin)


@operator(aliases=("ArgMax",))
class ArgMaxV2(Largest, ArgExtremum):
    """The position of the first maximum along `dimension`."""


@operator()
class ArgMaxD(Largest, ArgExtremumD):
    """ArgMaxV2 with its axis as attribute and an INT32 result."""


@operator()
class ArgMin(Smallest, ArgExtremum):
    """The position of the first minimum along `dimension`."""


@operator()
class ArgMinD(Smallest, ArgExtremumD):
    """ArgMin with its axis as attribute and an INT32 result."""


def _without_axis(x: TensorDesc, axis: Any, dtype: DataType) -> TensorDesc:
    if axis is None:
        rank = x.rank
        return TensorDesc(dtype, UNKNOWN_RANK if not rank else (UNKNOWN_DIM,) * (rank - 1))
    return reduced_desc(x, axis, keep_dims=False).with_dtype(dtype)


def _position(find: Any, x: Array, axis: int, dtype: DataType) -> Array:
    if not x.ndim:
        return np.zeros((), dtype.numpy)
    return np.asarray(find(_computable(x), axis=axis)).astype(dtype.numpy, copy=False)


def _import_position(op: str, type: str) -> None:
    @importer(op)
    def position(node: OnnxNode, build: Builder) -> None:
        """GE drops the axis: ExpandDims puts it back. The last of equal extrema is the first of the reversed x."""
        x, axis = node.input(0), int(node.attr("axis", 0))
        dimension = build.const(np.array(axis, np.int32), "dimension")
        if node.attr("select_last_index", 0):
            desc = build.desc(x)
            rank = None if desc is None else desc.rank
            size = UNKNOWN_DIM if desc is None or rank is None else desc.shape[normalise_axis(axis, rank)]
            if size == UNKNOWN_DIM:
                raise node.fault("select_last_index = 1 needs a known dim", do="give --input-shape")
            backwards = build.op("ReverseV2", x, build.const(np.array([axis], np.int32), "axis"))
            found = build.op(type, backwards, dimension, dtype=DataType.INT64)
            found = build.op("Sub", build.const(np.array(size - 1, np.int64), "last"), found)
        else:
            found = build.op(type, x, dimension, dtype=DataType.INT64)
        if node.attr("keepdims", 1):
            found = build.op("ExpandDims", found, build.const(np.array(axis, np.int32), "axis"))
        build.output(0, found)


_import_position("ArgMax", "ArgMaxV2")
_import_position("ArgMin", "ArgMin")


# ---------------------------------------------------------------------- TopK, Sort


def sorted_order(x: Array, axis: int, descending: bool) -> Array:
    """Indices that sort x along the axis, equal elements in their order, NaN as the greatest."""
    x = _computable(x)
    if not descending:
        return np.argsort(x, axis=axis, kind="stable")
    backwards = np.flip(np.argsort(np.flip(x, axis), axis=axis, kind="stable"), axis)
    return x.shape[axis] - 1 - backwards


class TopKBase:
    """Base of the k largest (or smallest) elements along `dim`, best first."""

    sorted: bool = True
    dim: int = -1
    largest: bool = True
    indices_dtype: DataType = DataType.INT32
    outputs = ("values", "indices")

    def described(self, x: TensorDesc, k: int) -> tuple[TensorDesc, TensorDesc]:
        if x.shape == UNKNOWN_RANK:
            return plain(x), TensorDesc(self.indices_dtype, UNKNOWN_RANK)
        shape = list(x.shape)
        shape[normalise_axis(self.dim, len(shape))] = k
        return plain(x).with_shape(tuple(shape)), TensorDesc(self.indices_dtype, tuple(shape), x.format)

    def best(self, x: Array, k: int) -> tuple[Array, Array]:
        if not 0 <= k <= x.shape[self.dim]:
            raise ValueError(f"k is {k} but the axis has {x.shape[self.dim]} elements")
        order = np.take(sorted_order(x, self.dim, self.largest), range(k), axis=self.dim)
        return np.take_along_axis(x, order, self.dim), order.astype(self.indices_dtype.numpy)


@operator(aliases=("TopKV2",))
class TopK(TopKBase):
    """The k best elements along `dim` and where they are."""

    shape_inputs = (1,)

    def infer(self, x: TensorDesc, k: TensorDesc) -> tuple[TensorDesc, TensorDesc]:
        known = value_of(k)
        return self.described(x, UNKNOWN_DIM if known is None else int(np.reshape(known, ())))

    def kernel(self, x: Array, k: Array) -> tuple[Array, Array]:
        return self.best(x, int(k.reshape(())))


@operator()
class TopKD(TopKBase):
    """TopK with k as attribute; `assist_seq` is ignored."""

    k: int = 0

    def infer(self, x: TensorDesc, assist_seq: TensorDesc | None = None) -> tuple[TensorDesc, TensorDesc]:
        return self.described(x, self.k)

    def kernel(self, x: Array, assist_seq: Array | None = None) -> tuple[Array, Array]:
        return self.best(x, self.k)


@importer("TopK")
def top_k(node: OnnxNode, build: Builder) -> None:
    """Indices become INT64; before opset 10 k is an attribute."""
    x = node.input(0)
    k: Port = build.const(np.array([node.attr("k")], np.int32), "k") if node.opset < 10 else node.input(1)
    values, indices = build.ops(
        "TopK",
        2,
        x,
        k,
        sorted=bool(node.attr("sorted", 1)),
        dim=int(node.attr("axis", -1)),
        largest=bool(node.attr("largest", 1)),
    )
    build.output(0, values)
    if node.wants(1):
        build.output(1, build.op("Cast", indices, dst_type=DataType.INT64))


@operator()
class Sort:
    """x sorted along `axis`, and where the elements came from; always stable."""

    axis: int = -1
    descending: bool = False
    stable: bool = False
    y2_dtype: DataType = DataType.INT32
    outputs = ("y1", "y2")

    def infer(self, x: TensorDesc) -> tuple[TensorDesc, TensorDesc]:
        return plain(x), plain(x).with_dtype(self.y2_dtype)

    def kernel(self, x: Array) -> tuple[Array, Array]:
        order = sorted_order(x, self.axis, self.descending)
        return np.take_along_axis(x, order, self.axis), order.astype(self.y2_dtype.numpy)


# ---------------------------------------------------------------------- Unique, NonZero


def first_occurrences(x: Array) -> tuple[Array, Array, Array]:
    """Distinct elements in the order of their first occurrence, the inverse mapping and the counts."""
    values, first, inverse, counts = np.unique(
        x.reshape(-1), return_index=True, return_inverse=True, return_counts=True
    )
    order = np.argsort(first, kind="stable")
    rank = np.empty_like(order)
    rank[order] = np.arange(order.size)
    return values[order], rank[inverse], counts[order]


@operator()
class Unique:
    """Distinct elements in order of first occurrence, and for each element of x its position among them."""

    out_idx: DataType = DataType.INT32
    outputs = ("y", "idx")

    def infer(self, x: TensorDesc) -> tuple[TensorDesc, TensorDesc]:
        return TensorDesc(x.dtype, (UNKNOWN_DIM,)), TensorDesc(self.out_idx, _flat(x))

    def kernel(self, x: Array) -> tuple[Array, Array]:
        values, inverse, _ = first_occurrences(x)
        return values, inverse.astype(self.out_idx.numpy)


@operator()
class UniqueWithCountsAndSorting:
    """Distinct elements (sorted, or by first occurrence), the inverse mapping and the counts, as INT64."""

    sorted: bool = True
    return_inverse: bool = False
    return_counts: bool = False
    outputs = ("y", "indices", "counts")

    def infer(self, x: TensorDesc) -> tuple[TensorDesc, TensorDesc, TensorDesc]:
        distinct = (UNKNOWN_DIM,)
        inverse = TensorDesc(DataType.INT64, _flat(x))
        return TensorDesc(x.dtype, distinct), inverse, TensorDesc(DataType.INT64, distinct)

    def kernel(self, x: Array) -> tuple[Array, Array, Array]:
        if self.sorted:
            values, inverse, counts = np.unique(x.reshape(-1), return_inverse=True, return_counts=True)
        else:
            values, inverse, counts = first_occurrences(x)
        return values, inverse.reshape(-1).astype(np.int64), counts.astype(np.int64)


def _flat(x: TensorDesc) -> tuple[int, ...]:
    return (x.elements,) if x.is_static else (UNKNOWN_DIM,)


@importer("Unique", since=11)
def unique(node: OnnxNode, build: Builder) -> None:
    if node.wants(1):
        raise node.fault("the indices of first occurrences (output 1) are not available")
    if node.attr("axis") is not None:
        raise node.fault("unique slices along an axis are not available")
    values, inverse, counts = build.ops(
        "UniqueWithCountsAndSorting",
        3,
        node.input(0),
        sorted=bool(node.attr("sorted", 1)),
        return_inverse=node.wants(2),
        return_counts=node.wants(3),
    )
    build.output(0, values)
    if node.wants(2):
        build.output(2, inverse)
    if node.wants(3):
        build.output(3, counts)


@operator()
class NonZero:
    """The coordinates of the elements that are not 0: `[n, rank]`, or `[rank, n]` with `transpose`."""

    transpose: bool = False
    dtype: DataType = DataType.INT64

    def infer(self, x: TensorDesc) -> TensorDesc:
        rank = UNKNOWN_DIM if x.rank is None else max(x.rank, 1)
        return TensorDesc(self.dtype, (rank, UNKNOWN_DIM) if self.transpose else (UNKNOWN_DIM, rank))

    def kernel(self, x: Array) -> Array:
        found = np.array(np.nonzero(np.atleast_1d(x)), self.dtype.numpy)
        return found if self.transpose else np.ascontiguousarray(found.T)


@importer("NonZero", since=9)
def non_zero(node: OnnxNode, build: Builder) -> None:
    build.output(0, build.op("NonZero", node.input(0), transpose=True, dtype=DataType.INT64))
