"""Running sums and products along an axis, counting, and one-hot encoding."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from gecli.ir.dtype import DataType
from gecli.ir.op_desc import Port
from gecli.ir.tensor_desc import UNKNOWN_DIM, UNKNOWN_RANK, TensorDesc
from gecli.ops.inference import normalise_axis, plain
from gecli.ops.numeric import Array, in_float32
from gecli.ops.onnx_import import Builder, OnnxNode, importer
from gecli.ops.operator import From, operator, value_of


class Scan:
    """Base of running folds: `exclusive` leaves the own element out, `reverse` runs from the end."""

    exclusive: bool = False
    reverse: bool = False
    ufunc: ClassVar[np.ufunc]

    def scanned(self, x: Array, axis: int) -> Array:
        if not x.ndim:
            return x.copy()
        source = np.flip(x, axis) if self.reverse else x
        y = self.ufunc.accumulate(source, axis=axis, dtype=x.dtype)
        if self.exclusive:
            shifted = np.full_like(y, self.ufunc.identity)
            to: list[Any] = [slice(None)] * x.ndim
            of: list[Any] = [slice(None)] * x.ndim
            to[axis], of[axis] = slice(1, None), slice(None, -1)
            shifted[tuple(to)] = y[tuple(of)]
            y = shifted
        return np.ascontiguousarray(np.flip(y, axis)) if self.reverse else y


class ScanOfInput(Scan):
    """Base of running folds whose axis is an input."""

    inputs = ("x", "axis")

    def infer(self, x: TensorDesc, axis: TensorDesc) -> TensorDesc:
        return plain(x)

    @in_float32
    def kernel(self, x: Array, axis: Array) -> Array:
        return self.scanned(x, int(axis.reshape(())))


class ScanD(Scan):
    """Base of running folds whose axis is an attribute."""

    axis: int
    inputs = ("x",)

    def infer(self, x: TensorDesc) -> TensorDesc:
        return plain(x)

    @in_float32
    def kernel(self, x: Array) -> Array:
        return self.scanned(x, self.axis)


@operator(onnx=From("CumSum", since=11), aliases=("CumSum",))
class Cumsum(ScanOfInput):
    """The running sum along `axis`."""

    ufunc = np.add


@operator(aliases=("CumSumD",))
class CumsumD(ScanD):
    """Cumsum with its axis as attribute."""

    ufunc = np.add


@operator(onnx=From("CumProd", since=26), aliases=("CumProd",))
class Cumprod(ScanOfInput):
    """The running product along `axis`."""

    ufunc = np.multiply


@operator(aliases=("CumProdD",))
class CumprodD(ScanD):
    """Cumprod with its axis as attribute."""

    ufunc = np.multiply


@operator()
class Bincount:
    """How often each of 0..size-1 occurs in `array`, or the sum of its weights; larger values are dropped."""

    shape_inputs = (1,)

    def infer(self, array: TensorDesc, size: TensorDesc, weights: TensorDesc) -> TensorDesc:
        known = value_of(size)
        return TensorDesc(weights.dtype, (UNKNOWN_DIM if known is None else int(np.reshape(known, ())),))

    def kernel(self, array: Array, size: Array, weights: Array) -> Array:
        count = int(size.reshape(()))
        values, amounts = array.reshape(-1), weights.reshape(-1)
        counted = (values >= 0) & (values < count)
        found = np.bincount(values[counted], amounts[counted] if amounts.size else None, minlength=count)
        return found.astype(weights.dtype)


class OneHotBase:
    """Base of one-hot rows: `on_value` at the position that x names, `off_value` elsewhere and for other indices."""

    axis: int = -1

    def described(self, x: TensorDesc, dtype: DataType, depth: int) -> TensorDesc:
        if x.shape == UNKNOWN_RANK:
            return TensorDesc(dtype, UNKNOWN_RANK)
        shape = list(x.shape)
        shape.insert(normalise_axis(self.axis, len(shape) + 1), depth)
        return TensorDesc(dtype, tuple(shape))

    def rows(self, x: Array, depth: int, on_value: Array, off_value: Array) -> Array:
        axis = normalise_axis(self.axis, x.ndim + 1)
        positions = np.arange(depth).reshape((-1,) + (1,) * (x.ndim - axis))
        hit = np.expand_dims(x, axis) == positions
        return np.where(hit, on_value.reshape(()), off_value.reshape(())).astype(on_value.dtype, copy=False)


@operator()
class OneHot(OneHotBase):
    """A new axis of length `depth` with on_value where it equals x."""

    shape_inputs = (1,)

    def infer(self, x: TensorDesc, depth: TensorDesc, on_value: TensorDesc, off_value: TensorDesc) -> TensorDesc:
        known = value_of(depth)
        return self.described(x, on_value.dtype, UNKNOWN_DIM if known is None else int(np.reshape(known, ())))

    def kernel(self, x: Array, depth: Array, on_value: Array, off_value: Array) -> Array:
        return self.rows(x, int(depth.reshape(())), on_value, off_value)


@operator()
class OneHotD(OneHotBase):
    """OneHot with its depth as attribute."""

    depth: int

    def infer(self, x: TensorDesc, on_value: TensorDesc, off_value: TensorDesc) -> TensorDesc:
        return self.described(x, on_value.dtype, self.depth)

    def kernel(self, x: Array, on_value: Array, off_value: Array) -> Array:
        return self.rows(x, self.depth, on_value, off_value)


@importer("OneHot", since=9)
def one_hot(node: OnnxNode, build: Builder) -> None:
    """ONNX has both values in one input, and indices in -depth..depth-1 of any number type."""
    depth = _int32(build, node.input(1), "depth")
    indices = _wrapped(build, node.input(0), depth)
    values = build.constant(node.input(2))
    if values is None:
        axis = build.const(np.array(0, np.int32), "axis")
        off, on = (
            build.op("GatherV2", node.input(2), build.const(np.array(position, np.int32), role), axis)
            for position, role in ((0, "off_position"), (1, "on_position"))
        )
    else:
        off, on = build.const(values[0], "off_value"), build.const(values[1], "on_value")
    build.output(0, build.op("OneHot", indices, depth, on, off, axis=int(node.attr("axis", -1))))


def _int32(build: Builder, port: Port, role: str) -> Port:
    known = build.constant(port)
    if known is not None:
        return build.const(known.astype(np.int32).reshape(()), role)
    desc = build.desc(port)
    return (
        port if desc is not None and desc.dtype is DataType.INT32 else build.op("Cast", port, dst_type=DataType.INT32)
    )


def _wrapped(build: Builder, indices: Port, depth: Port) -> Port:
    """Indices as INT32 or INT64, negative ones counted from the end; others that are out of range stay so."""
    desc = build.desc(indices)
    if desc is None or desc.dtype not in (DataType.INT32, DataType.INT64):
        indices = build.op("Cast", indices, dst_type=DataType.INT64)
    desc = build.desc(indices)
    dtype = DataType.INT64 if desc is None else desc.dtype
    known = build.constant(indices)
    if known is not None and bool((known >= 0).all()):
        return indices
    length = depth if dtype is DataType.INT32 else build.op("Cast", depth, dst_type=dtype)
    zero = build.const(np.zeros((), dtype.numpy), "zero")
    return build.op("SelectV2", build.op("Less", indices, zero), build.op("Add", indices, length), indices)
