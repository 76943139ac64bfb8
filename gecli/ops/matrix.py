"""Matrix products: MatMul and BatchMatMul in their generations, FullyConnection, Einsum and ONNX's Gemm."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gecli.ir.dtype import DataType
from gecli.ir.op_desc import Port
from gecli.ir.tensor_desc import UNKNOWN_RANK, Shape, TensorDesc
from gecli.ops.bound import Bound
from gecli.ops.inference import InferenceError, broadcast_shapes
from gecli.ops.integer_matmul import integer_matmul
from gecli.ops.intra_op import matmul, matmul_actions
from gecli.ops.numeric import Array, Step, in_float32, sequence
from gecli.ops.onnx_import import Builder, OnnxNode, importer
from gecli.ops.operator import From, operator

INT8_TYPES = frozenset([DataType.INT8, DataType.UINT8, DataType.INT4])


def matmul_shape(a: Shape, b: Shape) -> Shape:
    """numpy's shape rule for a @ b with unknown dims. Raises InferenceError."""
    if UNKNOWN_RANK in (a, b):
        return UNKNOWN_RANK
    if not a or not b:
        raise InferenceError(f"a matrix product of {list(a)} and {list(b)} needs at least one dim each")
    left = a if len(a) > 1 else (1, *a)
    right = b if len(b) > 1 else (*b, 1)
    if left[-1] >= 0 and right[-2] >= 0 and left[-1] != right[-2]:
        raise InferenceError(f"cannot multiply {list(a)} by {list(b)}: {left[-1]} columns, {right[-2]} rows")
    batch = broadcast_shapes([left[:-2], right[:-2]])
    if batch == UNKNOWN_RANK:
        return UNKNOWN_RANK
    return (*batch, *([left[-2]] if len(a) > 1 else []), *([right[-1]] if len(b) > 1 else []))


def swap_last(shape: Shape, swap: bool) -> Shape:
    if not swap or shape == UNKNOWN_RANK or len(shape) < 2:
        return shape
    return (*shape[:-2], shape[-1], shape[-2])


def transposed(x: Array, swap: bool) -> Array:
    """A view with the last two axes exchanged."""
    return x.swapaxes(-1, -2) if swap and x.ndim > 1 else x


def product(a: Array, b: Array) -> Array:
    """a @ b; integers without rounding: 8-bit ones into int32, others in their own type."""
    if a.dtype.kind in "iub" or b.dtype.kind in "iub":
        return integer_matmul(a, b)
    return matmul(a, b)


class Product(Bound):
    """What all products share: x1 and x2, each perhaps transposed, and an optional bias."""

    def flags(self) -> tuple[bool, bool]:
        raise NotImplementedError

    def infer(
        self, x1: TensorDesc, x2: TensorDesc, bias: TensorDesc | None = None, offset_w: TensorDesc | None = None
    ) -> TensorDesc:
        first, second = self.flags()
        shape = matmul_shape(swap_last(x1.logical_shape, first), swap_last(x2.logical_shape, second))
        return TensorDesc(DataType.INT32 if x1.dtype in INT8_TYPES else x1.dtype, shape)

    @in_float32
    def kernel(self, x1: Array, x2: Array, bias: Array | None = None, offset_w: Array | None = None) -> Array:
        first, second = self.flags()
        y = product(transposed(x1, first), transposed(x2, second))
        return y if bias is None else y + bias.astype(y.dtype, copy=False)

    def bind(self, inputs: Sequence[Array | None], outputs: Sequence[Array]) -> Step | None:
        x1, x2, bias, *_ = (*inputs, None, None)
        (y,) = outputs
        if x1 is None or x2 is None or any(a.dtype not in (np.float32, np.float64) for a in (x1, x2, y)):
            return None
        if bias is not None and bias.dtype != y.dtype:
            return None
        first, second = self.flags()
        return bind_product(transposed(x1, first), transposed(x2, second), bias, y)


def bind_product(a: Array, b: Array, bias: Array | None, y: Array) -> Step | None:
    """A prepared `a @ b + bias` into `y`."""
    if not y.size or a.dtype != b.dtype or a.dtype != y.dtype:
        return None
    if a.ndim > 2 and b.ndim == 2 and a.flags.c_contiguous:
        # One large product instead of one for each matrix of the batch.
        a, target = a.reshape(-1, a.shape[-1]), y.reshape(-1, b.shape[-1])
    else:
        target = y
    actions = matmul_actions(a, b, target)
    if bias is not None:
        actions.append((np.add, (y, bias, y)))
    return sequence(actions)


@operator(aliases=("MatMul", "MatMulV3"))
class MatMulV2(Product):
    """x1 @ x2 of two matrices, plus bias."""

    transpose_x1: bool = False
    transpose_x2: bool = False
    offset_x: int = 0
    foldable = False
    inputs = ("x1", "x2", "bias?", "offset_w?")

    def flags(self) -> tuple[bool, bool]:
        return self.transpose_x1, self.transpose_x2


@operator(aliases=("BatchMatMul", "BatchMatMulV3"))
class BatchMatMulV2(Product):
    """x1 @ x2 of matrices with broadcast batch axes, plus bias."""

    adj_x1: bool = False
    adj_x2: bool = False
    offset_x: int = 0
    foldable = False
    inputs = ("x1", "x2", "bias?", "offset_w?")

    def flags(self) -> tuple[bool, bool]:
        return self.adj_x1, self.adj_x2


@operator()
class FullyConnection(Bound):
    """x, flattened from `axis` on, times the weights of `num_output` neurons."""

    num_output: int
    transpose: bool = False
    axis: int = 1
    offset_x: int = 0
    foldable = False
    inputs = ("x", "w", "b?", "offset_w?")

    def infer(
        self, x: TensorDesc, w: TensorDesc, b: TensorDesc | None = None, offset_w: TensorDesc | None = None
    ) -> TensorDesc:
        dtype = DataType.INT32 if x.dtype in INT8_TYPES else x.dtype
        if x.logical_shape == UNKNOWN_RANK:
            return TensorDesc(dtype, UNKNOWN_RANK)
        lead = x.logical_shape[: self.axis]
        tail = (1, 1) if len(x.logical_shape) == 4 and self.axis == 1 else ()
        return TensorDesc(dtype, (*lead, self.num_output, *tail), x.logical_format)

    @in_float32
    def kernel(self, x: Array, w: Array, b: Array | None = None, offset_w: Array | None = None) -> Array:
        lead = x.shape[: self.axis]
        flat = x.reshape(int(np.prod(lead)), -1)
        if w.ndim > 2:
            matrix = w.reshape(self.num_output, -1).T
        else:
            matrix = w if self.transpose else w.T
        y = product(flat, matrix)
        if b is not None:
            y = y + b.reshape(-1).astype(y.dtype, copy=False)
        tail = (1, 1) if x.ndim == 4 and self.axis == 1 else ()
        return y.reshape((*lead, self.num_output, *tail))


@operator(onnx=From("Einsum"))
class Einsum(Bound):
    """Einstein summation over any number of operands."""

    equation: str
    N: int = 0
    foldable = False
    inputs = ("x*",)

    def infer(self, *x: TensorDesc) -> TensorDesc:
        return TensorDesc(x[0].dtype, einsum_shape(self.equation, [desc.logical_shape for desc in x]))

    @in_float32
    def kernel(self, *x: Array) -> Array:
        equation = self.equation.replace(" ", "")
        y = np.einsum(equation, *x, optimize=len(x) > 2 or x[0].dtype.kind == "f")
        return np.asarray(y, dtype=x[0].dtype)


def einsum_shape(equation: str, shapes: Sequence[Shape]) -> Shape:
    """The output shape; letters of unknown size are -1. Raises InferenceError."""
    left, arrow, right = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    if len(terms) != len(shapes):
        raise InferenceError(f"equation {equation!r} has {len(terms)} operands, the node has {len(shapes)} inputs")
    if UNKNOWN_RANK in shapes:
        if arrow and "..." not in right:
            return (-1,) * len(right)
        return UNKNOWN_RANK
    sizes: dict[str, int] = {}
    ellipses: list[Shape] = []
    for term, shape in zip(terms, shapes):
        before, dots, after = term.partition("...")
        if len(before) + len(after) > len(shape) or (not dots and len(term) != len(shape)):
            raise InferenceError(f"term {term!r} of equation {equation!r} does not fit shape {list(shape)}")
        middle = shape[len(before) : len(shape) - len(after)]
        ellipses.append(middle if dots else ())
        ends = zip(before + after, (*shape[: len(before)], *shape[len(shape) - len(after) :]))
        for letter, size in ends:
            known = sizes.get(letter, -1)
            if known > 1 and size > 1 and known != size:
                raise InferenceError(
                    f"index {letter!r} of {equation!r} is {known} in one operand and {size} in another"
                )
            sizes[letter] = size if known in (-1, 1) else known
    broadcast = broadcast_shapes(ellipses)
    if not arrow:
        letters = left.replace(",", "").replace("...", "")
        once = "".join(sorted(letter for letter in set(letters) if letters.count(letter) == 1))
        right = ("..." if "..." in left else "") + once
    before, dots, after = right.partition("...")
    return (*(sizes[c] for c in before), *(broadcast if dots else ()), *(sizes[c] for c in after))


@operator(onnx=From("Det"))
class MatrixDeterminant(Bound):
    """The determinant of each matrix."""

    foldable = False

    def infer(self, x: TensorDesc) -> TensorDesc:
        if x.logical_shape == UNKNOWN_RANK:
            return TensorDesc(x.dtype, UNKNOWN_RANK)
        if len(x.logical_shape) < 2:
            raise InferenceError(f"a determinant needs matrices, got shape {list(x.logical_shape)}")
        return TensorDesc(x.dtype, x.logical_shape[:-2])

    @in_float32
    def kernel(self, x: Array) -> Array:
        return np.asarray(np.linalg.det(x.astype(np.float64)).astype(x.dtype))


@importer("MatMul")
def import_matmul(node: OnnxNode, build: Builder) -> None:
    """BatchMatMulV2; 1-D operands become matrices, as the operator wants two dims (formats.md row 97)."""
    x1, x2 = node.input(0), node.input(1)
    row, column = build.rank(x1) == 1, build.rank(x2) == 1
    if row:
        x1 = build.op("Unsqueeze", x1, axes=(0,))
    if column:
        x2 = build.op("Unsqueeze", x2, axes=(1,))
    y = build.op("BatchMatMulV2", x1, x2, adj_x1=False, adj_x2=False)
    if column:
        y = build.op("Squeeze", y, axis=(-1,))
    if row:
        y = build.op("Squeeze", y, axis=(-1 if column else -2,))
    build.output(0, y)


@importer("Gemm")
def gemm(node: OnnxNode, build: Builder) -> None:
    """alpha * A @ B + beta * C: MatMulV2, Muls where a factor is not 1, Add (formats.md row 98)."""
    alpha, beta = float(node.attr("alpha", 1.0)), float(node.attr("beta", 1.0))
    x1, x2, c = node.input(0), node.input(1), node.optional(2)
    flags = {"transpose_x1": bool(node.attr("transA", 0)), "transpose_x2": bool(node.attr("transB", 0))}
    if c is not None and alpha == beta == 1.0 and _is_bias(build, x2, c, flags["transpose_x2"]):
        build.output(0, build.op("MatMulV2", x1, x2, c, **flags))
        return
    y = build.op("MatMulV2", x1, x2, **flags)
    if alpha != 1.0:
        y = build.op("Muls", y, value=alpha)
    if c is not None and beta != 0.0:
        y = build.op("Add", y, c if beta == 1.0 else build.op("Muls", c, value=beta))
    build.output(0, y)


def _is_bias(build: Builder, x2: Port, c: Port, transposed: bool) -> bool:
    """C is a vector with one element for each output column, which MatMulV2 takes itself."""
    desc, weights = build.desc(c), build.desc(x2)
    if desc is None or weights is None or len(desc.logical_shape) != 1 or len(weights.logical_shape) != 2:
        return False
    columns = weights.logical_shape[0 if transposed else 1]
    return columns >= 0 and desc.logical_shape == (columns,)
