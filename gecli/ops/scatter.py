"""Operators that write elements at indices: Scatter* on references, on copies and into zeros, segment sums."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np

from gecli.ir.tensor_desc import UNKNOWN_DIM, UNKNOWN_RANK, TensorDesc
from gecli.ops.gather import checked, nd_index
from gecli.ops.inference import InferenceError, normalise_axis, plain
from gecli.ops.numeric import Array, Step, in_float32, is_half
from gecli.ops.onnx_import import Builder, OnnxNode, importer
from gecli.ops.operator import From, operator
from gecli.ops.shape import ints_of, length_of, shaped, unknown

Combine = Callable[[Array, Any, Array], None]


def put(target: Array, index: Any, updates: Array) -> None:
    """Assign; with duplicates the last update wins."""
    target[index] = updates


def divide_at(target: Array, index: Any, updates: Array) -> None:
    """Divide in order; integers truncate, by zero gives 0 (runtime.md 10.2)."""
    if target.dtype.kind == "f":
        np.divide.at(target, index, updates)
        return
    np.floor_divide.at(target, index, updates) if target.dtype.kind == "u" else _truncate_at(target, index, updates)


def _truncate_at(target: Array, index: Any, updates: Array) -> None:
    # Truncation has no ufunc of its own, so the rows are divided one by one, in order.
    picks = np.broadcast_arrays(*index) if isinstance(index, tuple) else [index]
    for position in np.ndindex(*picks[0].shape):
        where = tuple(pick[position] for pick in picks)
        old, by = target[where], updates[position]
        quotient = np.where(by == 0, 0, np.abs(old) // np.where(by == 0, 1, np.abs(by)))
        target[where] = quotient * np.sign(old) * np.sign(by)


COMBINE: dict[str, Combine] = {
    "none": put,
    "update": put,
    "add": np.add.at,
    "sub": np.subtract.at,
    "mul": np.multiply.at,
    "div": divide_at,
    "max": np.maximum.at,
    "min": np.minimum.at,
}
REDUCE: dict[str, np.ufunc] = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}


def combine(name: str) -> Combine:
    if name not in COMBINE:
        raise ValueError(f"reduction {name!r} is not one of {', '.join(sorted(COMBINE))}")
    return COMBINE[name]


@operator(
    onnx=(From("ScatterElements", defaults={"reduction": "none"}), From("Scatter", since=9, defaults={"axis": 0}))
)
class ScatterElements:
    """A copy of data with data[indices[i, j], j] (along `axis`) combined with updates[i, j]."""

    axis: int = 0
    reduction: str = "none"

    def infer(self, data: TensorDesc, indices: TensorDesc, updates: TensorDesc) -> TensorDesc:
        if UNKNOWN_RANK not in (data.shape, indices.shape) and len(data.shape) != len(indices.shape):
            raise InferenceError(f"indices {list(indices.shape)} have another rank than {list(data.shape)}")
        return plain(data)

    @in_float32
    def kernel(self, data: Array, indices: Array, updates: Array) -> Array:
        result = np.array(data, order="C")
        scatter_elements(result, indices, updates, normalise_axis(self.axis, data.ndim), self.reduction)
        return result

    def bind(self, inputs: Sequence[Array | None], outputs: Sequence[Array]) -> Step | None:
        data, indices, updates = inputs
        out = outputs[0]
        if data is None or indices is None or updates is None or is_half(data.dtype) or data.dtype != updates.dtype:
            return None
        given, picks, values, axis = data, indices, updates, normalise_axis(self.axis, data.ndim)

        def run() -> None:
            np.copyto(out, given)
            scatter_elements(out, picks, values, axis, self.reduction)

        return run


def scatter_elements(target: Array, indices: Array, updates: Array, axis: int, how: str) -> None:
    """Combine target[..., indices[i, j], ...] (along `axis`) with updates[i, j]; target is C-contiguous."""
    reduce = REDUCE.get(how)
    if reduce is not None and indices.ndim > 1 and indices.size:
        rows = np.moveaxis(indices, axis, 0)
        first = rows[(slice(None), *[slice(1)] * (rows.ndim - 1))]
        if (rows == first).all():
            _reduce_rows(target, checked(first.reshape(-1), target.shape[axis]), updates, axis, reduce)
            return
    # One flat index: numpy has a fast way for index arrays of one axis only.
    flat = checked(indices, target.shape[axis]).astype(np.intp, copy=False) * prod(target.shape[axis + 1 :])
    for other, dim in enumerate(indices.shape):
        if other != axis:
            steps = np.arange(dim) * prod(target.shape[other + 1 :])
            flat = flat + steps.reshape(-1, *[1] * (indices.ndim - 1 - other))
    combine(how)(target.reshape(-1), flat.reshape(-1), updates.reshape(-1))


def _reduce_rows(target: Array, picks: Array, updates: Array, axis: int, reduce: np.ufunc) -> None:
    """Combine whole rows: those of one target are reduced first, in their order."""
    order = np.argsort(picks, kind="stable")
    ordered = picks[order]
    starts = np.flatnonzero(np.concatenate(([True], ordered[1:] != ordered[:-1])))
    reduced = reduce.reduceat(np.moveaxis(updates, axis, 0)[order], starts, 0)
    rows = np.moveaxis(target, axis, 0)[(slice(None), *[slice(dim) for dim in reduced.shape[1:]])]
    rows[ordered[starts]] = reduce(rows[ordered[starts]], reduced)


def scatter_rows(var: Array, indices: Array, updates: Array, how: str) -> Array:
    """A copy of var with rows `indices` combined with updates; indices beyond the rows are an error."""
    result = var.copy()
    rows = checked(indices, var.shape[0], negative=False)
    combine(how)(result, rows, updates.reshape((*indices.shape, *var.shape[1:])))
    return result


def scatter_nd(var: Array, indices: Array, updates: Array, how: str, negative: bool = True) -> Array:
    """A copy of var combined with updates at the coordinates in the last axis of indices."""
    result = var.copy()
    depth = indices.shape[-1]
    if depth == 0:
        flat = updates.reshape((-1, *var.shape))
        for part in flat:
            combine(how)(result, (), part)
        return result
    index = nd_index(indices, var.shape, 0, negative)
    combine(how)(result, index, updates.reshape((*indices.shape[:-1], *var.shape[depth:])))
    return result


class _RowScatter:
    """var[indices[i], ...] is combined with updates[i, ...]; var is a reference."""

    use_locking: bool = False
    how = "update"
    outputs = ("var",)
    writes = ("var",)
    foldable = False

    def infer(self, var: TensorDesc, indices: TensorDesc, updates: TensorDesc) -> TensorDesc:
        _check_updates(var, indices, updates, 0)
        return plain(var)

    @in_float32
    def kernel(self, var: Array, indices: Array, updates: Array) -> Array:
        return scatter_rows(var, indices, updates, self.how)


def _check_updates(var: TensorDesc, indices: TensorDesc, updates: TensorDesc, depth: int) -> None:
    """The updates have the shape of the addressed part. Raises InferenceError."""
    if UNKNOWN_RANK in (var.shape, indices.shape, updates.shape):
        return
    lead = indices.shape[:-1] if depth else indices.shape
    axes = indices.shape[-1] if depth else 1
    if axes == UNKNOWN_DIM:
        return
    wanted = (*lead, *var.shape[axes:])
    fits = len(wanted) == len(updates.shape) and all(
        a == b or UNKNOWN_DIM in (a, b) for a, b in zip(wanted, updates.shape, strict=True)
    )
    if not fits:
        raise InferenceError(
            f"updates {list(updates.shape)} must have shape {list(wanted)}"
            f" for indices {list(indices.shape)} into {list(var.shape)}"
        )


@operator()
class ScatterUpdate(_RowScatter):
    """Rows of a variable replaced; of duplicates the last wins."""


@operator()
class ScatterAdd(_RowScatter):
    """Rows of a variable increased."""

    how = "add"


@operator()
class ScatterSub(_RowScatter):
    """Rows of a variable decreased."""

    how = "sub"


@operator()
class ScatterMul(_RowScatter):
    """Rows of a variable multiplied."""

    how = "mul"


@operator()
class ScatterDiv(_RowScatter):
    """Rows of a variable divided."""

    how = "div"


@operator()
class ScatterMax(_RowScatter):
    """The larger of a variable's rows and the updates."""

    how = "max"


@operator()
class ScatterMin(_RowScatter):
    """The smaller of a variable's rows and the updates."""

    how = "min"


class _NdScatter:
    """The last axis of indices addresses the leading axes of var, a reference."""

    use_locking: bool = False
    how = "update"
    outputs = ("var",)
    writes = ("var",)
    foldable = False

    def infer(self, var: TensorDesc, indices: TensorDesc, updates: TensorDesc) -> TensorDesc:
        _check_updates(var, indices, updates, 1)
        return plain(var)

    @in_float32
    def kernel(self, var: Array, indices: Array, updates: Array) -> Array:
        return scatter_nd(var, indices, updates, self.how)


@operator()
class ScatterNdUpdate(_NdScatter):
    """Slices of a variable replaced."""


@operator()
class ScatterNdAdd(_NdScatter):
    """Slices of a variable increased."""

    how = "add"


@operator()
class ScatterNdSub(_NdScatter):
    """Slices of a variable decreased."""

    how = "sub"


@operator()
class ScatterNdMul(_NdScatter):
    """Slices of a variable multiplied; gecli's extension, for ONNX."""

    how = "mul"


@operator()
class ScatterNdMax(_NdScatter):
    """The larger of slices of a variable and the updates."""

    how = "max"


@operator()
class ScatterNdMin(_NdScatter):
    """The smaller of slices of a variable and the updates."""

    how = "min"


@importer("ScatterND")
def scatter_nd_on_a_copy(node: OnnxNode, build: Builder) -> None:
    types = {"none": "ScatterNdUpdate", "add": "ScatterNdAdd", "mul": "ScatterNdMul"}
    types.update(max="ScatterNdMax", min="ScatterNdMin")
    reduction = node.attr("reduction", "none")
    if reduction not in types:
        raise node.fault(f"reduction {reduction!r} is not one of {', '.join(types)}")
    # The GE types write their first input, so they get a copy.
    copy = build.op("TensorMove", node.input(0))
    build.output(0, build.op(types[reduction], copy, node.input(1), node.input(2)))


class _TensorScatter:
    """A copy of x with slices combined with updates."""

    how = "update"

    def infer(self, x: TensorDesc, indices: TensorDesc, updates: TensorDesc) -> TensorDesc:
        _check_updates(x, indices, updates, 1)
        return plain(x)

    @in_float32
    def kernel(self, x: Array, indices: Array, updates: Array) -> Array:
        return scatter_nd(x, indices, updates, self.how)


@operator()
class TensorScatterUpdate(_TensorScatter):
    """A copy of x with slices replaced."""


@operator()
class ScatterNonAliasingAdd(_TensorScatter):
    """A copy of x with slices increased."""

    how = "add"


class _Inplace:
    """A copy of x with rows combined with v: the names differ, so no reference (training.md 10)."""

    how = "update"

    def infer(self, x: TensorDesc, indices: TensorDesc, v: TensorDesc) -> TensorDesc:
        return plain(x)

    @in_float32
    def kernel(self, x: Array, indices: Array, v: Array) -> Array:
        return scatter_rows(x, indices, v, self.how)


@operator()
class InplaceUpdate(_Inplace):
    """x[i] = v on a copy."""


@operator()
class InplaceAdd(_Inplace):
    """x[i] += v on a copy."""

    how = "add"


@operator()
class InplaceSub(_Inplace):
    """x[i] -= v on a copy."""

    how = "sub"


@operator()
class ScatterNd:
    """A tensor of zeros with x added at indices."""

    shape_inputs = (2,)

    def infer(self, indices: TensorDesc, x: TensorDesc, shape: TensorDesc) -> TensorDesc:
        dims = ints_of(shape)
        return unknown(x, length_of(shape)) if dims is None else shaped(x, dims)

    @in_float32
    def kernel(self, indices: Array, x: Array, shape: Array) -> Array:
        zeros = np.zeros(tuple(int(dim) for dim in shape.reshape(-1)), x.dtype)
        return scatter_nd(zeros, indices, x, "add", negative=False)


@operator()
class Scatter:
    """KV-cache update: var[b, ..., indices[b] + j, ...] = updates[b, ..., j, ...] along `axis`."""

    reduce: str
    axis: int = 0
    outputs = ("var",)
    writes = ("var",)
    foldable = False

    def infer(self, var: TensorDesc, indices: TensorDesc, updates: TensorDesc) -> TensorDesc:
        return plain(var)

    def kernel(self, var: Array, indices: Array, updates: Array) -> Array:
        if self.reduce != "update":
            raise ValueError(f"Scatter reduce {self.reduce!r} is not supported, only update")
        axis = normalise_axis(self.axis, var.ndim)
        if axis == 0:
            raise ValueError("Scatter needs an axis behind the batch axis")
        result = var.copy()
        count = updates.shape[axis]
        starts = checked(indices.reshape(-1), var.shape[axis] - count + 1, negative=False)
        for batch, start in enumerate(starts):
            place = [slice(None)] * (axis - 1) + [slice(int(start), int(start) + count)]
            result[(batch, *place)] = updates[batch]
        return result


class _SegmentSum:
    """Rows of x summed by segment: negative ids are dropped, ids beyond too unless `check_ids`."""

    is_preprocessed: bool = False
    check_ids: bool = False

    def segments(self, x: TensorDesc, ids: TensorDesc, count: int | None) -> TensorDesc:
        if UNKNOWN_RANK in (x.shape, ids.shape):
            return unknown(x, None)
        depth = len(ids.shape)
        if any(a != b and UNKNOWN_DIM not in (a, b) for a, b in zip(ids.shape, x.shape)) or depth > len(x.shape):
            raise InferenceError(f"segment_ids {list(ids.shape)} are no prefix of {list(x.shape)}")
        return shaped(x, (UNKNOWN_DIM if count is None else count, *x.shape[depth:]))

    def summed(self, x: Array, ids: Array, count: int) -> Array:
        flat = ids.reshape(-1)
        rows = x.reshape(flat.size, *x.shape[ids.ndim :])
        if self.check_ids and (flat >= count).any():
            raise IndexError(f"segment id {flat.max()} is not below num_segments {count}")
        keep = (flat >= 0) & (flat < count)
        result = np.zeros((count, *rows.shape[1:]), x.dtype)
        np.add.at(result, flat[keep], rows[keep])
        return result


@operator()
class UnsortedSegmentSum(_SegmentSum):
    """Sums of rows by segment; their number is an input."""

    shape_inputs = (2,)

    def infer(self, x: TensorDesc, segment_ids: TensorDesc, num_segments: TensorDesc) -> TensorDesc:
        count = ints_of(num_segments)
        return self.segments(x, segment_ids, None if count is None else count[0])

    @in_float32
    def kernel(self, x: Array, segment_ids: Array, num_segments: Array) -> Array:
        return self.summed(x, segment_ids, int(num_segments.reshape(-1)[0]))


@operator()
class UnsortedSegmentSumD(_SegmentSum):
    """Sums of rows by segment."""

    num_segments: int

    def infer(self, x: TensorDesc, segment_ids: TensorDesc) -> TensorDesc:
        return self.segments(x, segment_ids, self.num_segments)

    @in_float32
    def kernel(self, x: Array, segment_ids: Array) -> Array:
        return self.summed(x, segment_ids, self.num_segments)
