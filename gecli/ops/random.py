"""Random generators: philox streams that depend only on seeds, node and step, and Dropout at inference.

The executor may set `node_name` and `step` on the operator object; without them all nodes of equal seeds and shapes
draw the same numbers.
"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np

from gecli.ir.dtype import DataType
from gecli.ir.op_desc import Port
from gecli.ir.tensor_desc import UNKNOWN_DIM, UNKNOWN_RANK, TensorDesc
from gecli.ops.inference import plain
from gecli.ops.numeric import Array
from gecli.ops.onnx_import import Builder, OnnxNode, importer
from gecli.ops.operator import operator, value_of


def stream(*parts: object) -> np.random.Generator:
    """The random stream that belongs to these seeds, names and counters."""
    digest = hashlib.sha256(repr(parts).encode()).digest()
    return np.random.Generator(np.random.Philox(key=int.from_bytes(digest[:16], "little")))


def described_by_shape(shape: TensorDesc, dtype: DataType) -> TensorDesc:
    """A tensor whose dims are the value of the input `shape`."""
    known = value_of(shape)
    if known is not None:
        return TensorDesc(dtype, tuple(int(dim) for dim in np.reshape(known, -1)))
    if len(shape.shape) == 1 and shape.shape[0] >= 0:
        return TensorDesc(dtype, (UNKNOWN_DIM,) * shape.shape[0])
    return TensorDesc(dtype, UNKNOWN_RANK)


class Generator:
    """Base of generators: never folded, merged or removed."""

    seed: int = 0
    seed2: int = 0
    foldable = False
    stateless = False
    shape_inputs = (0,)

    def stream(self) -> np.random.Generator:
        own: Any = self
        return stream(self.seed, self.seed2, getattr(own, "node_name", ""), getattr(own, "step", 0))


@operator()
class RandomUniform(Generator):
    """Uniform numbers in [0, 1)."""

    dtype: DataType

    def infer(self, shape: TensorDesc) -> TensorDesc:
        return described_by_shape(shape, self.dtype)

    def kernel(self, shape: Array) -> Array:
        wide = np.float64 if self.dtype is DataType.DOUBLE else np.float32
        return self.stream().random(tuple(shape), wide).astype(self.dtype.numpy, copy=False)


@operator()
class RandomStandardNormal(Generator):
    """Normal numbers of mean 0 and deviation 1."""

    dtype: DataType

    def infer(self, shape: TensorDesc) -> TensorDesc:
        return described_by_shape(shape, self.dtype)

    def kernel(self, shape: Array) -> Array:
        wide = np.float64 if self.dtype is DataType.DOUBLE else np.float32
        return self.stream().standard_normal(tuple(shape), wide).astype(self.dtype.numpy, copy=False)


@operator()
class TruncatedNormal(Generator):
    """Normal numbers, drawn again where they are more than two deviations from 0."""

    dtype: DataType

    def infer(self, shape: TensorDesc) -> TensorDesc:
        return described_by_shape(shape, self.dtype)

    def kernel(self, shape: Array) -> Array:
        source = self.stream()
        y = source.standard_normal(tuple(shape))
        while (far := np.abs(y) > 2).any():
            y[far] = source.standard_normal(int(far.sum()))
        return y.astype(self.dtype.numpy)


@operator()
class RandomUniformInt(Generator):
    """Uniform integers in [min, max)."""

    inputs = ("shape", "min", "max")

    def infer(self, shape: TensorDesc, low: TensorDesc, high: TensorDesc) -> TensorDesc:
        return described_by_shape(shape, low.dtype)

    def kernel(self, shape: Array, low: Array, high: Array) -> Array:
        drawn = self.stream().integers(int(low.reshape(())), int(high.reshape(())), tuple(shape))
        return drawn.astype(low.dtype)


@operator()
class Multinomial(Generator):
    """`num_samples` class numbers for each row of unnormalised log probabilities."""

    dtype: DataType = DataType.INT64
    shape_inputs = (1,)

    def infer(self, logits: TensorDesc, num_samples: TensorDesc) -> TensorDesc:
        known = value_of(num_samples)
        rows = UNKNOWN_DIM if logits.shape == UNKNOWN_RANK else logits.shape[0]
        return TensorDesc(self.dtype, (rows, UNKNOWN_DIM if known is None else int(np.reshape(known, ()))))

    def kernel(self, logits: Array, num_samples: Array) -> Array:
        wide = logits.astype(np.float64)
        weights = np.cumsum(np.exp(wide - wide.max(axis=-1, keepdims=True)), axis=-1)
        drawn = self.stream().random((wide.shape[0], int(num_samples.reshape(()))))
        found = (drawn[:, :, None] * weights[:, None, -1:] >= weights[:, None, :]).sum(axis=-1)
        return np.minimum(found, wide.shape[-1] - 1).astype(self.dtype.numpy)


@operator()
class StatelessBernoulliV2:
    """1 with the probability that x gives for each element, else 0; equal seeds give equal numbers."""

    dtype: DataType = DataType.UNDEFINED
    foldable = False

    def infer(self, x: TensorDesc, seed: TensorDesc, offset: TensorDesc) -> TensorDesc:
        return plain(x) if self.dtype is DataType.UNDEFINED else plain(x).with_dtype(self.dtype)

    def kernel(self, x: Array, seed: Array, offset: Array) -> Array:
        drawn = stream(int(seed.reshape(-1)[0]), [int(each) for each in offset.reshape(-1)]).random(x.shape)
        dtype = x.dtype if self.dtype is DataType.UNDEFINED else self.dtype.numpy
        return (drawn < x.astype(np.float64)).astype(dtype)


@operator()
class StatelessBernoulli:
    """1 with probability `prob` in the given shape; equal seeds give equal numbers."""

    dtype: DataType = DataType.FLOAT
    foldable = False
    shape_inputs = (0,)

    def infer(self, shape: TensorDesc, prob: TensorDesc, seed: TensorDesc, offset: TensorDesc) -> TensorDesc:
        return described_by_shape(shape, self.dtype)

    def kernel(self, shape: Array, prob: Array, seed: Array, offset: Array) -> Array:
        key = (int(seed.reshape(-1)[0]), [int(each) for each in offset.reshape(-1)])
        return (stream(*key).random(tuple(shape)) < float(prob.reshape(()))).astype(self.dtype.numpy)


# ---------------------------------------------------------------------- ONNX


def _seed(node: OnnxNode) -> int:
    """ONNX's float seed as an integer that tells different seeds apart."""
    given = node.attr("seed")
    return 0 if given is None else int(np.float32(given).view(np.int32))


def _dtype(node: OnnxNode, build: Builder, like: Port | None) -> DataType:
    number = node.attr("dtype")
    if number is None and like is not None:
        desc = build.desc(like)
        return DataType.FLOAT if desc is None else desc.dtype
    dtype = DataType.from_onnx(1 if number is None else int(number))
    if dtype is None:
        raise node.fault(f"dtype {number} is not a type that can be drawn")
    return dtype


def _shape(node: OnnxNode, build: Builder) -> tuple[Port, Port | None]:
    """The shape to draw, and the input that it comes from in the Like forms."""
    if node.op.endswith("Like"):
        return build.op("Shape", node.input(0), dtype=DataType.INT64), node.input(0)
    dims = node.attr("shape")
    if dims is None:
        raise node.fault("the attribute shape is missing")
    return build.const(np.array(dims, np.int64), "shape"), None


def random_normal(node: OnnxNode, build: Builder) -> None:
    """RandomStandardNormal, times scale, plus mean."""
    shape, like = _shape(node, build)
    drawn = build.op("RandomStandardNormal", shape, dtype=_dtype(node, build, like), seed=_seed(node), seed2=0)
    scaled = build.op("Muls", drawn, value=float(node.attr("scale", 1.0)))
    build.output(0, build.op("Adds", scaled, value=float(node.attr("mean", 0.0))))


def random_uniform(node: OnnxNode, build: Builder) -> None:
    """RandomUniform stretched from low to high; RandomUniformInt for integers."""
    shape, like = _shape(node, build)
    dtype = _dtype(node, build, like)
    low, high = float(node.attr("low", 0.0)), float(node.attr("high", 1.0))
    if dtype.is_integer:
        bounds = (build.const(np.array(value, dtype.numpy), role) for value, role in ((low, "min"), (high, "max")))
        build.output(0, build.op("RandomUniformInt", shape, *bounds, seed=_seed(node), seed2=0))
        return
    drawn = build.op("RandomUniform", shape, dtype=dtype, seed=_seed(node), seed2=0)
    build.output(0, build.op("Adds", build.op("Muls", drawn, value=high - low), value=low))


importer("RandomNormal")(random_normal)
importer("RandomNormalLike")(random_normal)
importer("RandomUniform")(random_uniform)
importer("RandomUniformLike")(random_uniform)


@importer("Multinomial", since=7)
def multinomial(node: OnnxNode, build: Builder) -> None:
    """ONNX's default result type is INT32."""
    dtype = DataType.from_onnx(int(node.attr("dtype", 6))) or DataType.INT32
    samples = build.const(np.array(node.attr("sample_size", 1), np.int32), "num_samples")
    build.output(0, build.op("Multinomial", node.input(0), samples, dtype=dtype, seed=_seed(node), seed2=0))


@importer("Bernoulli", since=15)
def bernoulli(node: OnnxNode, build: Builder) -> None:
    x = node.input(0)
    seed = build.const(np.array([_seed(node)], np.int64), "seed")
    offset = build.const(np.array([0], np.int64), "offset")
    build.output(0, build.op("StatelessBernoulliV2", x, seed, offset, dtype=_dtype(node, build, x)))


@importer("Dropout")
def dropout(node: OnnxNode, build: Builder) -> None:
    """At inference x itself, and a mask of true if it is wanted; before opset 10 the mask has x's type."""
    x = node.input(0)
    training, ratio = build.constant(node.optional(2)), build.constant(node.optional(1))
    trains = node.optional(2) is not None and (training is None or bool(training))
    if trains and (ratio is None or float(ratio) != 0):
        raise node.fault("training_mode is or may be true", do="export the model for inference")
    build.output(0, x)
    if node.wants(1):
        ones = build.op("OnesLike", x)
        build.output(1, ones if node.opset < 10 else build.op("Cast", ones, dst_type=DataType.BOOL))
