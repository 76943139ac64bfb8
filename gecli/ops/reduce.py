"""Reductions over axes: sum, mean, product, extrema, logic, norms. Axes are an input, or an attribute in D forms."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, ClassVar, cast

import numpy as np

from gecli.ir.format import Format
from gecli.ir.op_desc import Port
from gecli.ir.tensor_desc import UNKNOWN_DIM, UNKNOWN_RANK, TensorDesc
from gecli.ops.inference import normalise_axis
from gecli.ops.numeric import Array, Step, in_float32
from gecli.ops.onnx_import import Builder, OnnxNode, importer
from gecli.ops.operator import operator, value_of

# Rows up to this length are summed by BLAS (times a vector of ones), which is five times faster than numpy's sum.
ROW_BY_BLAS = 4096


def axes_tuple(rank: int, axes: Any, noop: bool) -> tuple[int, ...]:
    """Sorted non-negative axes; an empty list means all axes, or none with `noop`. Raises InferenceError."""
    listed = [int(axis) for axis in np.asarray(axes).reshape(-1)]
    if not listed:
        return () if noop else tuple(range(rank))
    return tuple(sorted({normalise_axis(axis, rank) for axis in listed}))


def reduced_desc(x: TensorDesc, axes: Any, keep_dims: bool, noop: bool = False) -> TensorDesc:
    """What a reduction of x gives; `axes` None when they are not known."""
    fmt = x.format if keep_dims else Format.ND
    if x.shape == UNKNOWN_RANK:
        scalar = axes is not None and np.size(axes) == 0 and not noop and not keep_dims
        return TensorDesc(x.dtype, () if scalar else UNKNOWN_RANK, fmt)
    if axes is None:
        return TensorDesc(x.dtype, (UNKNOWN_DIM,) * len(x.shape) if keep_dims else UNKNOWN_RANK, fmt)
    gone = axes_tuple(len(x.shape), axes, noop)
    if keep_dims:
        return TensorDesc(x.dtype, tuple(1 if axis in gone else dim for axis, dim in enumerate(x.shape)), fmt)
    return TensorDesc(x.dtype, tuple(dim for axis, dim in enumerate(x.shape) if axis not in gone), fmt)


class Reduction:
    """Base of reductions with axes as input; `reduced` computes, `fill` prepares the fast form."""

    keep_dims: bool = False
    noop_with_empty_axes: bool = True
    inputs = ("x", "axes")

    def infer(self, x: TensorDesc, axes: TensorDesc) -> TensorDesc:
        return reduced_desc(x, value_of(axes), self.keep_dims, self.noop_with_empty_axes)

    @in_float32
    def kernel(self, x: Array, axes: Array) -> Array:
        over = axes_tuple(x.ndim, axes, self.noop_with_empty_axes)
        return np.asarray(self.reduced(x, over, self.keep_dims)).astype(x.dtype, copy=False)

    def bind(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> Step | None:
        x, axes = inputs
        constant: frozenset[int] = getattr(self, "constant_inputs", frozenset())
        if 1 not in constant or x.dtype not in (np.float32, np.float64) or not x.size:
            return None
        return self.fill(x, axes_tuple(x.ndim, axes, self.noop_with_empty_axes), outputs[0])

    def reduced(self, x: Array, axes: tuple[int, ...], keep: Any) -> Any:
        raise NotImplementedError

    def fill(self, x: Array, axes: tuple[int, ...], y: Array) -> Step | None:
        return None


class ReductionD:
    """Base of reductions with axes as attribute."""

    axes: tuple[int, ...]
    keep_dims: bool = False
    inputs = ("x",)

    def infer(self, x: TensorDesc) -> TensorDesc:
        return reduced_desc(x, self.axes, self.keep_dims)

    @in_float32
    def kernel(self, x: Array) -> Array:
        result = self.reduced(x, axes_tuple(x.ndim, self.axes, False), self.keep_dims)
        return np.asarray(result).astype(x.dtype, copy=False)

    def bind(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> Step | None:
        x = inputs[0]
        if x.dtype not in (np.float32, np.float64) or not x.size:
            return None
        return self.fill(x, axes_tuple(x.ndim, self.axes, False), outputs[0])

    def reduced(self, x: Array, axes: tuple[int, ...], keep: Any) -> Any:
        raise NotImplementedError

    def fill(self, x: Array, axes: tuple[int, ...], y: Array) -> Step | None:
        return None


def fill_ufunc(ufunc: np.ufunc, x: Array, axes: tuple[int, ...], y: Array) -> Step:
    """A call that writes the ufunc's reduction of x to y, which may have the axes or not."""
    rows, result = _as_rows(x, axes), y
    if rows is not None:
        flat = y.reshape(-1)
        return lambda: ufunc.reduce(rows, axis=1, out=flat)
    keep = y.ndim == x.ndim
    return lambda: ufunc.reduce(x, axis=axes, keepdims=keep, out=result)


def fill_scaled_sum(x: Array, axes: tuple[int, ...], y: Array, scale: float) -> Step:
    """A call that writes scale * sum(x) to y."""
    rows = _as_rows(x, axes)
    if rows is not None and rows.shape[0] > 1 and rows.shape[1] <= ROW_BY_BLAS:
        weights, flat = np.full(rows.shape[1], scale, x.dtype), y.reshape(-1)
        return lambda: np.matmul(rows, weights, out=flat)
    total = fill_ufunc(np.add, x, axes, y)
    if scale == 1:
        return total

    def step() -> None:
        total()
        np.multiply(y, scale, y)

    return step


def _as_rows(x: Array, axes: tuple[int, ...]) -> Array | None:
    """x as a matrix whose rows are what is reduced, when the axes are the last ones."""
    if not axes or axes != tuple(range(x.ndim - len(axes), x.ndim)):
        return None
    return x.reshape(-1, prod(x.shape[axes[0] :]))


class Sum:
    """Integers wrap in their own type."""

    def reduced(self, x: Array, axes: tuple[int, ...], keep: Any) -> Any:
        return np.add.reduce(x, axis=axes, dtype=x.dtype, keepdims=keep)

    def fill(self, x: Array, axes: tuple[int, ...], y: Array) -> Step | None:
        return fill_scaled_sum(x, axes, y, 1.0)


class Mean:
    """Integers are summed in INT64 and divided toward zero."""

    def reduced(self, x: Array, axes: tuple[int, ...], keep: Any) -> Any:
        count = prod(x.shape[axis] for axis in axes)
        if x.dtype.kind in "iub":
            total = np.add.reduce(x, axis=axes, dtype=np.int64, keepdims=keep)
            return np.trunc(total / max(count, 1))
        return np.true_divide(np.add.reduce(x, axis=axes, keepdims=keep), x.dtype.type(count))

    def fill(self, x: Array, axes: tuple[int, ...], y: Array) -> Step | None:
        return fill_scaled_sum(x, axes, y, 1 / prod(x.shape[axis] for axis in axes))


class FoldedUfunc:
    """Base of reductions that are `ufunc.reduce`; `empty` gives the result over no elements."""

    ufunc: ClassVar[np.ufunc]

    def reduced(self, x: Array, axes: tuple[int, ...], keep: Any) -> Any:
        if x.size or self.ufunc.identity is not None:
            dtype = x.dtype if self.ufunc is np.multiply else None
            return self.ufunc.reduce(x, axis=axes, dtype=dtype, keepdims=keep)
        return self.ufunc.reduce(x, axis=axes, keepdims=keep, initial=self.empty(x.dtype))

    def fill(self, x: Array, axes: tuple[int, ...], y: Array) -> Step | None:
        return fill_ufunc(self.ufunc, x, axes, y)

    def empty(self, dtype: np.dtype[Any]) -> Any:
        raise ValueError("a reduction over no elements has no value")


class Prod(FoldedUfunc):
    ufunc = np.multiply


class Max(FoldedUfunc):
    ufunc = np.maximum

    def empty(self, dtype: np.dtype[Any]) -> Any:
        """ONNX opset 20: the smallest value of the type."""
        return -np.inf if dtype.kind == "f" else False if dtype.kind == "b" else np.iinfo(dtype).min


class Min(FoldedUfunc):
    ufunc = np.minimum

    def empty(self, dtype: np.dtype[Any]) -> Any:
        """ONNX opset 20: the largest value of the type."""
        return np.inf if dtype.kind == "f" else True if dtype.kind == "b" else np.iinfo(dtype).max


class All(FoldedUfunc):
    ufunc = np.logical_and


class Any_(FoldedUfunc):
    ufunc = np.logical_or


@operator()
class ReduceSum(Sum, Reduction):
    """The sum over axes."""

    zero_preserving = True


@operator()
class ReduceSumD(Sum, ReductionD):
    """ReduceSum with attribute axes."""

    zero_preserving = True


@operator()
class ReduceMean(Mean, Reduction):
    """The mean over axes."""

    zero_preserving = True


@operator()
class ReduceMeanD(Mean, ReductionD):
    """ReduceMean with attribute axes."""

    zero_preserving = True


@operator()
class ReduceProd(Prod, Reduction):
    """The product over axes."""

    zero_preserving = True


@operator()
class ReduceProdD(Prod, ReductionD):
    """ReduceProd with attribute axes."""

    zero_preserving = True


@operator()
class ReduceMax(Max, Reduction):
    """The largest element over axes."""

    zero_preserving = True


@operator()
class ReduceMaxD(Max, ReductionD):
    """ReduceMax with attribute axes."""

    zero_preserving = True


@operator()
class ReduceMin(Min, Reduction):
    """The smallest element over axes."""

    zero_preserving = True


@operator()
class ReduceMinD(Min, ReductionD):
    """ReduceMin with attribute axes."""

    zero_preserving = True


@operator()
class ReduceAll(All, Reduction):
    """True where all elements over the axes are true."""

    zero_preserving = True


@operator()
class ReduceAllD(All, ReductionD):
    """ReduceAll with attribute axes."""

    zero_preserving = True


@operator()
class ReduceAny(Any_, Reduction):
    """True where an element over the axes is true."""

    zero_preserving = True


@operator()
class ReduceAnyD(Any_, ReductionD):
    """ReduceAny with attribute axes."""

    zero_preserving = True


@operator()
class ReduceLogSumExp(Reduction):
    """log(sum(exp(x))), with the maximum taken out first."""

    def reduced(self, x: Array, axes: tuple[int, ...], keep: Any) -> Any:
        if not x.size:
            return np.log(np.add.reduce(np.exp(x), axis=axes, keepdims=keep))
        if not axes:
            return x
        largest = np.maximum.reduce(x, axis=axes, keepdims=True)
        largest = np.where(np.isfinite(largest), largest, x.dtype.type(0))
        total = np.add.reduce(np.exp(x - largest), axis=axes, keepdims=True)
        result = np.log(total) + largest
        return result if keep else np.squeeze(result, axes)


@operator()
class SquareSumV1:
    """The sum of squares over axes."""

    axis: tuple[int, ...]
    keep_dims: bool = False
    zero_preserving = True

    def infer(self, x: TensorDesc) -> TensorDesc:
        return reduced_desc(x, self.axis, self.keep_dims)

    @in_float32
    def kernel(self, x: Array) -> Array:
        axes, keep = axes_tuple(x.ndim, self.axis, False), cast(Any, self.keep_dims)
        return np.asarray(np.add.reduce(np.square(x), axis=axes, dtype=x.dtype, keepdims=keep))


@operator()
class LpNormV2:
    """(sum |x|^p)^(1/p) over axes, all of them when the list is empty; `epsilon` is not used."""

    p: float = 2.0
    axes: tuple[int, ...] = ()
    keepdim: bool = False
    epsilon: float = 1e-12
    zero_preserving = True

    def infer(self, x: TensorDesc) -> TensorDesc:
        return reduced_desc(x, self.axes, self.keepdim)

    @in_float32
    def kernel(self, x: Array) -> Array:
        axes, keep = axes_tuple(x.ndim, self.axes, False), cast(Any, self.keepdim)
        size = np.abs(x if x.dtype.kind == "f" else x.astype(np.float64))
        if self.p == 1:
            result = np.add.reduce(size, axis=axes, keepdims=keep)
        elif self.p == 2:
            result = np.sqrt(np.add.reduce(np.square(size), axis=axes, keepdims=keep))
        elif np.isinf(self.p):
            extremum = np.maximum if self.p > 0 else np.minimum
            result = extremum.reduce(size, axis=axes, keepdims=keep)
        else:
            result = np.add.reduce(size**self.p, axis=axes, keepdims=keep) ** (1 / self.p)
        return np.asarray(result).astype(x.dtype, copy=False)


class _Axes:
    """The axes of an ONNX reduction: constant values or a port, whatever the opset."""

    def __init__(self, node: OnnxNode, build: Builder) -> None:
        self.x = node.input(0)
        self.keep = bool(node.attr("keepdims", 1))
        self.noop = bool(node.attr("noop_with_empty_axes", 0))
        self.values: tuple[int, ...] | None = node.attr("axes")
        self.port: Port | None = None
        given = node.optional(1)
        if self.values is None and given is not None:
            known = build.constant(given)
            if known is None:
                self.port = given
            else:
                self.values = tuple(int(axis) for axis in known.reshape(-1))
        if self.values is None and self.port is None:
            self.values = ()
        rank = build.rank(self.x)
        if self.values == () and not self.noop and rank is not None:
            self.values = tuple(range(rank))

    @property
    def is_noop(self) -> bool:
        return self.values == () and self.noop

    def reduce(self, build: Builder, type: str, x: Port) -> Port:
        """A node of `type`, which takes the axes as an input."""
        axes = self.port
        if self.values is not None:
            axes = build.const(np.array(self.values, np.int32), "axes")
        return build.op(type, x, axes, keep_dims=self.keep, noop_with_empty_axes=self.noop)


def _import_plain(op: str, type: str) -> None:
    @importer(op)
    def reduction(node: OnnxNode, build: Builder) -> None:
        axes = _Axes(node, build)
        if axes.is_noop:
            build.output(0, build.op("Identity", axes.x))
        else:
            build.output(0, axes.reduce(build, type, axes.x))


for _op in ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceLogSumExp"):
    _import_plain(_op, _op)


@importer("ReduceLogSum")
def reduce_log_sum(node: OnnxNode, build: Builder) -> None:
    axes = _Axes(node, build)
    total = axes.x if axes.is_noop else axes.reduce(build, "ReduceSum", axes.x)
    build.output(0, build.op("Log", total))


@importer("ReduceSumSquare")
def reduce_sum_square(node: OnnxNode, build: Builder) -> None:
    """SquareSumV1 has its axes as an attribute: axes that are not known take Square and ReduceSum."""
    axes = _Axes(node, build)
    if axes.is_noop:
        result = build.op("Square", axes.x)
    elif axes.values:
        result = build.op("SquareSumV1", axes.x, axis=axes.values, keep_dims=axes.keep)
    else:
        result = axes.reduce(build, "ReduceSum", build.op("Square", axes.x))
    build.output(0, result)


@importer("ReduceL1")
def reduce_l1(node: OnnxNode, build: Builder) -> None:
    axes = _Axes(node, build)
    if axes.is_noop:
        result = build.op("Abs", axes.x)
    elif axes.values is not None:
        result = build.op("LpNormV2", axes.x, p=1.0, axes=axes.values, keepdim=axes.keep)
    else:
        result = axes.reduce(build, "ReduceSum", build.op("Abs", axes.x))
    build.output(0, result)


@importer("ReduceL2")
def reduce_l2(node: OnnxNode, build: Builder) -> None:
    axes = _Axes(node, build)
    if axes.is_noop:
        result = build.op("Abs", axes.x)
    elif axes.values is not None:
        result = build.op("LpNormV2", axes.x, p=2.0, axes=axes.values, keepdim=axes.keep)
    else:
        result = build.op("Sqrt", axes.reduce(build, "ReduceSum", build.op("Square", axes.x)))
    build.output(0, result)
