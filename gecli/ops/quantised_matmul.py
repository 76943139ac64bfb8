"""Products and convolutions of quantised tensors, exact in their integer part."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gecli.ir.dtype import DataType
from gecli.ir.format import Format
from gecli.ir.tensor_desc import UNKNOWN_RANK, TensorDesc
from gecli.ops.bound import Bound
from gecli.ops.conv_kernels import convolve
from gecli.ops.conv_steps import scratch_of
from gecli.ops.convolution import ConvAttributes
from gecli.ops.inference import InferenceError
from gecli.ops.integer_matmul import bind_integer_matmul, exact_product, magnitude
from gecli.ops.matrix import matmul_shape, swap_last, transposed
from gecli.ops.numeric import Array, Step
from gecli.ops.onnx_import import Builder, OnnxNode, importer
from gecli.ops.operator import From, operator
from gecli.ops.window_import import Window, read_window
from gecli.ops.windows import split_shape


def rows_of(zero: Array) -> Array:
    """A zero point or scale of the left operand: one number, or one for each row."""
    return zero[..., None] if zero.ndim == 1 and zero.size > 1 else zero


def integer_product(a: Array, b: Array, a_zero: Array | None, b_zero: Array | None) -> Array:
    """(a - a_zero) @ (b - b_zero) as exact int32."""
    left, right = a.astype(np.int32), b.astype(np.int32)
    if a_zero is not None:
        left = left - rows_of(a_zero).astype(np.int32)
    if b_zero is not None:
        right = right - b_zero.astype(np.int32)
    if not left.size or not right.size:
        return np.matmul(left, right)
    return exact_product(left, right, max(magnitude(left) * magnitude(right), 1)).astype(np.int32)


def requantised(x: Array, scale: Array | np.floating[Any], zero: Array, dtype: np.dtype[Any]) -> Array:
    """saturate(round half to even(x * scale) + zero)."""
    limits = np.iinfo(dtype)
    rounded = np.rint(x.astype(np.float32) * scale) + zero.astype(np.float32)
    return np.clip(rounded, limits.min, limits.max).astype(dtype)


@operator(onnx=From("MatMulInteger"))
class MatMulInteger(Bound):
    """(A - a_zero_point) @ (B - b_zero_point) in INT32."""

    foldable = False
    inputs = ("A", "B", "a_zero_point?", "b_zero_point?")

    def infer(
        self,
        a: TensorDesc,
        b: TensorDesc,
        a_zero_point: TensorDesc | None = None,
        b_zero_point: TensorDesc | None = None,
    ) -> TensorDesc:
        return TensorDesc(DataType.INT32, matmul_shape(a.logical_shape, b.logical_shape))

    def kernel(self, a: Array, b: Array, a_zero_point: Array | None = None, b_zero_point: Array | None = None) -> Array:
        return integer_product(a, b, a_zero_point, b_zero_point)

    def bind(self, inputs: Sequence[Array | None], outputs: Sequence[Array]) -> Step | None:
        a, b, a_zero, b_zero, *_ = (*inputs, None, None)
        assert a is not None and b is not None
        fixed = 1 in self.constant_inputs and (b_zero is None or 3 in self.constant_inputs)
        return bind_integer_matmul(a, b, a_zero, b_zero, outputs[0], scratch_of(self), b_fixed=fixed)


@operator(onnx=From("QLinearMatMul"))
class QLinearMatMul(Bound):
    """The product of two quantised tensors, quantised again."""

    foldable = False
    inputs = ("a", "a_scale", "a_zero_point", "b", "b_scale", "b_zero_point", "y_scale", "y_zero_point")

    def infer(
        self,
        a: TensorDesc,
        a_scale: TensorDesc,
        a_zero_point: TensorDesc,
        b: TensorDesc,
        b_scale: TensorDesc,
        b_zero_point: TensorDesc,
        y_scale: TensorDesc,
        y_zero_point: TensorDesc,
    ) -> TensorDesc:
        return TensorDesc(y_zero_point.dtype, matmul_shape(a.logical_shape, b.logical_shape))

    def kernel(
        self,
        a: Array,
        a_scale: Array,
        a_zero_point: Array,
        b: Array,
        b_scale: Array,
        b_zero_point: Array,
        y_scale: Array,
        y_zero_point: Array,
    ) -> Array:
        total = integer_product(a, b, a_zero_point, b_zero_point)
        scale = rows_of(a_scale).astype(np.float32) * b_scale.astype(np.float32) / y_scale.astype(np.float32)
        return requantised(total, scale, y_zero_point, y_zero_point.dtype)


class IntegerConv(ConvAttributes):
    """Convolution of 8-bit x and w with zero points; lists as Conv2D's, data NC..."""

    data_format: str = "NCHW"

    def infer_sum(self, x: TensorDesc, w: TensorDesc, dtype: DataType) -> TensorDesc:
        rank = len(self.data_format)
        fmt = Format.parse(self.data_format)
        if w.rank is None:
            return TensorDesc(dtype, (-1,) * rank, fmt)
        shape = (-1,) * rank if x.logical_shape == UNKNOWN_RANK else x.logical_shape
        batch, channels, size = split_shape(shape, self.data_format)
        out_channels, depth, *kernel = w.logical_shape
        if min(channels, depth) >= 0 and channels != depth * self.groups:
            raise InferenceError(f"input {list(shape)} and filter {list(w.logical_shape)} do not fit")
        return TensorDesc(dtype, (batch, out_channels, *self.geometry(kernel, size).output(size)), fmt)

    def total(self, x: Array, w: Array, x_zero: Array | None, w_zero: Array | None) -> Array:
        """The exact int32 sums."""
        left, right = x.astype(np.int32), w.astype(np.int32)
        if x_zero is not None:
            left = left - x_zero.astype(np.int32).reshape(())
        if w_zero is not None:
            right = right - w_zero.astype(np.int32).reshape(-1, *[1] * (w.ndim - 1))
        return convolve(left, right, self.geometry(w.shape[2:], x.shape[2:]), self.groups)


@operator()
class ConvInteger(IntegerConv):
    """A convolution of quantised tensors in INT32."""

    foldable = False
    inputs = ("x", "w", "x_zero_point?", "w_zero_point?")

    def infer(
        self,
        x: TensorDesc,
        w: TensorDesc,
        x_zero_point: TensorDesc | None = None,
        w_zero_point: TensorDesc | None = None,
    ) -> TensorDesc:
        return self.infer_sum(x, w, DataType.INT32)

    def kernel(self, x: Array, w: Array, x_zero_point: Array | None = None, w_zero_point: Array | None = None) -> Array:
        return self.total(x, w, x_zero_point, w_zero_point)


@operator()
class QLinearConv(IntegerConv):
    """A convolution of quantised tensors, quantised again; the bias is INT32."""

    foldable = False
    inputs = (
        "x", "x_scale", "x_zero_point", "w", "w_scale", "w_zero_point", "y_scale", "y_zero_point", "bias?"
    )  # fmt: skip

    def infer(
        self,
        x: TensorDesc,
        x_scale: TensorDesc,
        x_zero_point: TensorDesc,
        w: TensorDesc,
        w_scale: TensorDesc,
        w_zero_point: TensorDesc,
        y_scale: TensorDesc,
        y_zero_point: TensorDesc,
        bias: TensorDesc | None = None,
    ) -> TensorDesc:
        return self.infer_sum(x, w, y_zero_point.dtype)

    def kernel(
        self,
        x: Array,
        x_scale: Array,
        x_zero_point: Array,
        w: Array,
        w_scale: Array,
        w_zero_point: Array,
        y_scale: Array,
        y_zero_point: Array,
        bias: Array | None = None,
    ) -> Array:
        total = self.total(x, w, x_zero_point, w_zero_point)
        along_channels = (-1, *[1] * (x.ndim - 2))
        if bias is not None:
            total = total + bias.reshape(along_channels)
        factor = x_scale.reshape(()).astype(np.float32) * w_scale.astype(np.float32) / y_scale.reshape(())
        factor = factor.astype(np.float32)
        scale = factor.reshape(along_channels) if factor.size > 1 else factor.reshape(())
        return requantised(total, scale, y_zero_point.reshape(()), y_zero_point.dtype)


@operator(aliases=("QuantBatchMatmul",))
class QuantBatchMatmulV3(Bound):
    """round((x1 @ x2 + bias) * scale (* pertoken_scale) + offset) in dtype; a UINT64 scale holds FLOAT bits."""

    dtype: DataType
    transpose_x1: bool = False
    transpose_x2: bool = False
    group_size: int = 0
    foldable = False
    inputs = ("x1", "x2", "scale", "offset?", "bias?", "pertoken_scale?")

    def infer(
        self,
        x1: TensorDesc,
        x2: TensorDesc,
        scale: TensorDesc,
        offset: TensorDesc | None = None,
        bias: TensorDesc | None = None,
        pertoken_scale: TensorDesc | None = None,
    ) -> TensorDesc:
        first = swap_last(x1.logical_shape, self.transpose_x1)
        return TensorDesc(self.dtype, matmul_shape(first, swap_last(x2.logical_shape, self.transpose_x2)))

    def kernel(
        self,
        x1: Array,
        x2: Array,
        scale: Array,
        offset: Array | None = None,
        bias: Array | None = None,
        pertoken_scale: Array | None = None,
    ) -> Array:
        y = integer_product(transposed(x1, self.transpose_x1), transposed(x2, self.transpose_x2), None, None)
        if bias is not None and bias.dtype == np.int32:
            y = y + bias
        factor = (scale & 0xFFFFFFFF).astype(np.uint32).view(np.float32) if scale.dtype == np.uint64 else scale
        value = y.astype(np.float32) * factor.astype(np.float32)
        if pertoken_scale is not None:
            value = value * pertoken_scale.astype(np.float32)[..., :, None]
        if bias is not None and bias.dtype != np.int32:
            value = value + bias.astype(np.float32)
        if offset is not None:
            value = value + offset.astype(np.float32)
        wanted = np.dtype(self.dtype.numpy)
        if wanted.kind not in "iu":
            return value.astype(wanted)
        limits = np.iinfo(wanted)
        return np.clip(np.rint(value), limits.min, limits.max).astype(wanted)


@importer("ConvInteger")
def conv_integer(node: OnnxNode, build: Builder) -> None:
    window = read_window(node, build, node.input(1))
    inputs = (node.input(0), node.input(1), node.optional(2), node.optional(3))
    build.output(0, build.op("ConvInteger", *inputs, **_attributes(node, window)))


@importer("QLinearConv")
def qlinear_conv(node: OnnxNode, build: Builder) -> None:
    window = read_window(node, build, node.input(3))
    inputs = (*(node.input(slot) for slot in range(8)), node.optional(8))
    build.output(0, build.op("QLinearConv", *inputs, **_attributes(node, window)))


def _attributes(node: OnnxNode, window: Window) -> dict[str, Any]:
    rank = len(window.kernel)
    if rank not in (2, 3):
        raise node.fault(f"an integer convolution over {rank} axes is not supported", "use 2 or 3 spatial axes")
    return {**window.attributes("NCHW" if rank == 2 else "NCDHW"), "groups": node.attr("group", 1)}
