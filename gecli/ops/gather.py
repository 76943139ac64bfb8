"""Operators that pick elements by index: Gather, GatherElements, GatherNd, Embedding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gecli.ir.tensor_desc import UNKNOWN_DIM, UNKNOWN_RANK, TensorDesc
from gecli.ops.bound import constant
from gecli.ops.inference import InferenceError, normalise_axis
from gecli.ops.numeric import Array, Step
from gecli.ops.onnx_import import Builder, OnnxNode, importer
from gecli.ops.operator import From, operator
from gecli.ops.shape import Dims, ints_of, shaped, unknown


def checked(indices: Array, size: int, negative: bool = True) -> Array:
    """The indices, counted from the start. Raises IndexError that names the first one out of range."""
    if indices.dtype.kind == "u":
        indices = indices.astype(np.int64)
    low = -size if negative else 0
    wrong = (indices < low) | (indices >= size)
    if wrong.any():
        position = [int(p) for p in np.argwhere(wrong)[0]]
        raise IndexError(f"index {indices[tuple(position)]} at {position} is outside {low}..{size - 1}")
    return np.where(indices < 0, indices + size, indices) if negative else indices


def gathered(x: TensorDesc, indices: TensorDesc, axis: int | None, batch_dims: int) -> TensorDesc:
    """The description of x picked along `axis` by indices. Raises InferenceError."""
    if x.shape == UNKNOWN_RANK or indices.shape == UNKNOWN_RANK:
        return unknown(x, None)
    batch = batch_dims + len(indices.shape) if batch_dims < 0 else batch_dims
    if axis is None:
        return unknown(x, len(x.shape) + len(indices.shape) - 1 - batch)
    place = normalise_axis(axis, len(x.shape))
    if batch > min(place, len(indices.shape)):
        raise InferenceError(f"batch_dims {batch_dims} stands behind axis {axis} of {list(x.shape)}")
    return shaped(x, (*x.shape[:place], *indices.shape[batch:], *x.shape[place + 1 :]))


def gather(x: Array, indices: Array, axis: int, batch_dims: int = 0, negative: bool = True) -> Array:
    """x picked along `axis` by indices, batch by batch."""
    place = normalise_axis(axis, x.ndim)
    batch = batch_dims + indices.ndim if batch_dims < 0 else batch_dims
    picks = checked(indices, x.shape[place], negative)
    if not batch:
        return np.take(x, picks, place)
    lead = x.shape[:batch]
    parts = [
        np.take(x[where], picks[where], place - batch) for where in np.ndindex(*lead)
    ]  # one numpy call a batch entry: batches are few
    tail = (*x.shape[batch:place], *indices.shape[batch:], *x.shape[place + 1 :])
    return np.stack(parts).reshape((*lead, *tail)) if parts else np.empty((*lead, *tail), x.dtype)


def bind_gather(x: Array, indices: Array, y: Array, axis: int, fixed: bool, negative: bool) -> Step:
    """np.take into y; the range of moving indices is checked at each call, as `clip` would hide mistakes."""
    place = normalise_axis(axis, x.ndim)
    size = x.shape[place]
    take = x.take
    if fixed:
        picks = np.ascontiguousarray(checked(indices, size, negative), np.intp).reshape(indices.shape)
        if picks.ndim == 0:
            where: tuple[Any, ...] = (*[slice(None)] * place, int(picks), ...)  # a view also of a vector's element
            copyto, source = np.copyto, x[where]
            return lambda: copyto(y, source)
        return lambda: take(picks, place, y, "clip")
    if not indices.size:
        return lambda: None
    least, most = indices.min, indices.max

    def run() -> None:
        if least() >= 0 and most() < size:
            take(indices, place, y, "clip")
        else:
            take(checked(indices, size, negative), place, y, "clip")

    return run


@operator()
class GatherV2:
    """x picked along an axis by indices."""

    batch_dims: int = 0
    negative_index_support: bool = False
    is_preprocessed: bool = False
    shape_inputs = (2,)

    def infer(self, x: TensorDesc, indices: TensorDesc, axis: TensorDesc) -> TensorDesc:
        place = ints_of(axis)
        return gathered(x, indices, None if place is None else place[0], self.batch_dims)

    def kernel(self, x: Array, indices: Array, axis: Array) -> Array:
        return gather(x, indices, int(axis.reshape(-1)[0]), self.batch_dims, self.negative_index_support)

    def bind(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> Step | None:
        if self.batch_dims or not constant(self, 2):
            return None
        x, indices, axis = inputs
        fixed = constant(self, 1)
        return bind_gather(x, indices, outputs[0], int(axis.reshape(-1)[0]), fixed, self.negative_index_support)


@operator()
class GatherV2D:
    """x picked along the attribute `axis` by indices."""

    axis: int
    batch_dims: int = 0
    negative_index_support: bool = False

    def infer(self, x: TensorDesc, indices: TensorDesc) -> TensorDesc:
        return gathered(x, indices, self.axis, self.batch_dims)

    def kernel(self, x: Array, indices: Array) -> Array:
        return gather(x, indices, self.axis, self.batch_dims, self.negative_index_support)


@operator()
class Gather:
    """Rows of x picked by indices."""

    validate_indices: bool = True
    batch_dims: int = 0
    negative_index_support: bool = False

    def infer(self, x: TensorDesc, indices: TensorDesc) -> TensorDesc:
        return gathered(x, indices, self.batch_dims, self.batch_dims)

    def kernel(self, x: Array, indices: Array) -> Array:
        return gather(x, indices, self.batch_dims, self.batch_dims, self.negative_index_support)


@operator(aliases=("EmbeddingLookup",))
class Embedding:
    """Rows of a table; negative indices are out of range."""

    def infer(self, x: TensorDesc, indices: TensorDesc) -> TensorDesc:
        return gathered(x, indices, 0, 0)

    def kernel(self, x: Array, indices: Array) -> Array:
        return gather(x, indices, 0, 0, negative=False)


@importer("Gather")
def gather_v2(node: OnnxNode, build: Builder) -> None:
    axis = build.const(np.array(node.attr("axis", 0), np.int32), "axis")
    build.output(0, build.op("GatherV2", node.input(0), node.input(1), axis, batch_dims=0, negative_index_support=True))


@operator(onnx=From("GatherElements", attrs={"axis": "dim"}))
class GatherElements:
    """y[i, j] = x[index[i, j], j] along `dim`."""

    dim: int = 0

    def infer(self, x: TensorDesc, index: TensorDesc) -> TensorDesc:
        if UNKNOWN_RANK not in (x.shape, index.shape) and len(x.shape) != len(index.shape):
            raise InferenceError(f"index {list(index.shape)} has another rank than {list(x.shape)}")
        return shaped(x, index.shape)

    def kernel(self, x: Array, index: Array) -> Array:
        axis = normalise_axis(self.dim, x.ndim)
        picks = checked(index, x.shape[axis])
        part = x[tuple(slice(None) if a == axis else slice(index.shape[a]) for a in range(x.ndim))]
        return np.take_along_axis(part, picks, axis)


def nd_index(indices: Array, shape: Dims, batch_dims: int = 0, negative: bool = True) -> tuple[Array, ...]:
    """The numpy index that the last axis of `indices` addresses, batch axes included. Raises IndexError."""
    depth = indices.shape[-1]
    if batch_dims + depth > len(shape):
        raise IndexError(f"indices address {depth} axes of {list(shape)}")
    lead = [
        np.arange(shape[axis]).reshape((-1,) + (1,) * (indices.ndim - 2 - axis)) for axis in range(batch_dims)
    ]  # batch axes index themselves
    picked = [checked(indices[..., k], shape[batch_dims + k], negative) for k in range(depth)]
    return (*lead, *picked)


@operator(onnx=From("GatherND", defaults={"negative_index_support": True}))
class GatherNd:
    """Slices of x at the coordinates in the last axis of indices."""

    negative_index_support: bool = False
    batch_dims: int = 0  # gecli's extension; GE knows no batches here

    def infer(self, x: TensorDesc, indices: TensorDesc) -> TensorDesc:
        if UNKNOWN_RANK in (x.shape, indices.shape) or indices.shape[-1] == UNKNOWN_DIM:
            return unknown(x, None)
        used = self.batch_dims + indices.shape[-1]
        if used > len(x.shape):
            raise InferenceError(f"indices {list(indices.shape)} address more axes than {list(x.shape)} has")
        return shaped(x, (*indices.shape[:-1], *x.shape[used:]))

    def kernel(self, x: Array, indices: Array) -> Array:
        if indices.shape[-1] == 0 and not self.batch_dims:
            return np.broadcast_to(x, (*indices.shape[:-1], *x.shape)).copy()
        result: Array = x[nd_index(indices, x.shape, self.batch_dims, self.negative_index_support)]
        return result
