"""Batch, instance, layer, group and RMS normalisation, and ONNX's nodes for them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gecli.ir.op_desc import Port
from gecli.ir.tensor_desc import UNKNOWN_RANK, TensorDesc
from gecli.ops.bound import Bound
from gecli.ops.inference import InferenceError, normalise_axis, plain
from gecli.ops.norm_kernels import (
    along,
    channel_axis,
    kept_shape,
    moments,
    other_axes,
    size_of,
    statistics_dtype,
    unbiased,
    widened,
)
from gecli.ops.norm_steps import bind_affine, bind_layer_norm
from gecli.ops.numeric import Array, Step
from gecli.ops.onnx_import import Builder, OnnxNode, importer
from gecli.ops.operator import operator


@operator()
class BatchNorm(Bound):
    """(x - mean) * scale / sqrt(variance + epsilon) + offset, with the statistics of the batch in training.

    The variance inside y is biased, batch_variance is not; reserve_space_1 and 2 keep mean and biased variance for
    BatchNormGrad.
    """

    epsilon: float = 1e-4
    data_format: str = "NHWC"
    is_training: bool = True
    exponential_avg_factor: float = 1.0
    outputs = ("y", "batch_mean", "batch_variance", "reserve_space_1", "reserve_space_2", "reserve_space_3")
    inputs = ("x", "scale", "offset", "mean?", "variance?")

    def infer(
        self,
        x: TensorDesc,
        scale: TensorDesc,
        offset: TensorDesc,
        mean: TensorDesc | None = None,
        variance: TensorDesc | None = None,
    ) -> tuple[TensorDesc, ...]:
        shape = x.logical_shape
        if shape != UNKNOWN_RANK and scale.rank == 1:
            channels = shape[channel_axis(self.data_format, len(shape))] if shape else 1
            if channels >= 0 and scale.logical_shape[0] >= 0 and channels != scale.logical_shape[0]:
                raise InferenceError(f"x {list(shape)} has {channels} channels, scale {list(scale.logical_shape)}")
        vector = TensorDesc(scale.dtype, scale.logical_shape, scale.logical_format)
        return (plain(x), vector, vector, vector, vector, TensorDesc(scale.dtype, (1,)))

    def kernel(
        self, x: Array, scale: Array, offset: Array, mean: Array | None = None, variance: Array | None = None
    ) -> tuple[Array, ...]:
        wide = widened(x)
        axis = channel_axis(self.data_format, x.ndim)
        kind = scale.dtype
        reserve = np.zeros(1, kind)
        if not self.is_training:
            if mean is None or variance is None:
                raise ValueError("BatchNorm without training needs mean and variance")
            y = affine(wide, axis, mean, variance, scale, offset, self.epsilon)
            return y.astype(x.dtype, copy=False), mean, variance, mean, variance, reserve
        axes = other_axes(x.ndim, axis)
        m, v = moments(wide, axes)
        y = affine(wide, axis, m, v, scale, offset, self.epsilon)
        batch_mean, batch_variance = m, unbiased(v, size_of(x.shape, axes))
        factor = self.exponential_avg_factor
        if mean is not None and variance is not None and factor != 1.0:
            batch_mean = (1 - factor) * mean + factor * batch_mean
            batch_variance = (1 - factor) * variance + factor * batch_variance
        statistics = (value.astype(kind, copy=False) for value in (batch_mean, batch_variance, m, v))
        return (y.astype(x.dtype, copy=False), *statistics, reserve)

    def bind(self, inputs: Sequence[Array | None], outputs: Sequence[Array]) -> Step | None:
        if self.is_training or len(inputs) < 5 or not {1, 2, 3, 4} <= self.constant_inputs:
            return None
        x, scale, offset, mean, variance = inputs[:5]
        assert x is not None and scale is not None and offset is not None and mean is not None and variance is not None
        if x.dtype != np.float32 or not x.size:
            return None
        factor = scale.astype(np.float64) / np.sqrt(variance.astype(np.float64) + self.epsilon)
        shift = offset.astype(np.float64) - mean.astype(np.float64) * factor
        axis = channel_axis(self.data_format, x.ndim)
        run = bind_affine(x, outputs[0], factor.astype(np.float32), shift.astype(np.float32), axis)
        rest = tuple(zip(outputs[1:], (mean, variance, mean, variance, np.zeros(1, scale.dtype))))
        if not rest:
            return run

        def run_all() -> None:
            run()
            for target, value in rest:
                np.copyto(target, value)

        return run_all


def affine(
    x: Array, axis: int, mean: Array, variance: Array, scale: Array | None, offset: Array | None, epsilon: float
) -> Array:
    """(x - mean) * scale / sqrt(variance + epsilon) + offset with vectors along one axis."""
    kind = x.dtype.type
    root = np.sqrt(widened(variance).astype(kind) + kind(epsilon))
    factor = along((widened(scale).astype(kind) if scale is not None else kind(1)) / root, axis, x.ndim)
    y = (x - along(widened(mean).astype(kind), axis, x.ndim)) * factor
    return y if offset is None else y + along(widened(offset).astype(kind), axis, x.ndim)


@operator()
class BNInfer(Bound):
    """Batch normalisation with given statistics."""

    epsilon: float

    def infer(
        self, x: TensorDesc, scale: TensorDesc, offset: TensorDesc, mean: TensorDesc, variance: TensorDesc
    ) -> TensorDesc:
        return plain(x)

    def kernel(self, x: Array, scale: Array, offset: Array, mean: Array, variance: Array) -> Array:
        y = affine(widened(x), self.axis(x), mean, variance, scale, offset, self.epsilon)
        return y.astype(x.dtype, copy=False)

    def axis(self, x: Array) -> int:
        return input_axis(self, x)


def input_axis(op: Bound, x: Array) -> int:
    """The channel axis of input 0 by its origin format."""
    desc = op.in_descs[0] if op.in_descs else None
    name = "NCHW" if desc is None else desc.logical_format.name
    return channel_axis(name if name in ("NHWC", "NDHWC") else "NCHW", x.ndim)


@operator()
class BNInference(Bound):
    """BNInfer with optional scale and offset; `momentum`, as in Caffe, divides the stored statistics."""

    epsilon: float = 1e-5
    use_global_stats: bool = True
    mode: int = 1

    def infer(
        self,
        x: TensorDesc,
        mean: TensorDesc,
        variance: TensorDesc,
        momentum: TensorDesc | None = None,
        scale: TensorDesc | None = None,
        offset: TensorDesc | None = None,
    ) -> TensorDesc:
        return plain(x)

    def kernel(
        self,
        x: Array,
        mean: Array,
        variance: Array,
        momentum: Array | None = None,
        scale: Array | None = None,
        offset: Array | None = None,
    ) -> Array:
        if momentum is not None and momentum.size and float(momentum.reshape(-1)[0]) not in (0.0, 1.0):
            factor = momentum.reshape(-1)[0]
            mean, variance = mean / factor, variance / factor
        y = affine(widened(x), input_axis(self, x), mean, variance, scale, offset, self.epsilon)
        return y.astype(x.dtype, copy=False)


@operator()
class BNInferenceD(Bound):
    """The device form: the mean is negated and the variance already 1/sqrt (unconfirmed)."""

    momentum: float = 0.9
    epsilon: float = 1e-5
    use_global_stats: bool = True
    mode: int = 1

    def infer(
        self,
        x: TensorDesc,
        mean: TensorDesc,
        variance: TensorDesc,
        scale: TensorDesc | None = None,
        b: TensorDesc | None = None,
    ) -> TensorDesc:
        return plain(x)

    def kernel(
        self, x: Array, mean: Array, variance: Array, scale: Array | None = None, b: Array | None = None
    ) -> Array:
        wide, axis = widened(x), input_axis(self, x)
        y = (wide + along(mean, axis, x.ndim)) * along(variance, axis, x.ndim)
        if scale is not None:
            y = y * along(scale, axis, x.ndim)
        if b is not None:
            y = y + along(b, axis, x.ndim)
        return y.astype(x.dtype, copy=False)


@operator()
class InstanceNorm(Bound):
    """Normalise each channel of each sample over its spatial axes."""

    data_format: str = "NDHWC"
    epsilon: float = 1e-6
    outputs = ("y", "mean", "variance")

    def infer(self, x: TensorDesc, gamma: TensorDesc, beta: TensorDesc) -> tuple[TensorDesc, ...]:
        shape = x.logical_shape
        kept = UNKNOWN_RANK if shape == UNKNOWN_RANK else kept_shape(shape, self.axes(len(shape)))
        statistics = TensorDesc(statistics_dtype(x), kept, x.logical_format)
        return plain(x), statistics, statistics

    def axes(self, rank: int) -> tuple[int, ...]:
        channel = channel_axis(self.data_format, rank)
        return tuple(axis for axis in range(1, rank) if axis != channel)

    def kernel(self, x: Array, gamma: Array, beta: Array) -> tuple[Array, ...]:
        wide = widened(x)
        mean, variance = moments(wide, self.axes(x.ndim), keepdims=True)
        channel = channel_axis(self.data_format, x.ndim)
        kind = wide.dtype
        factor = along(gamma.astype(kind), channel, x.ndim) / np.sqrt(variance + kind.type(self.epsilon))
        y = (wide - mean) * factor + along(beta.astype(kind), channel, x.ndim)
        return y.astype(x.dtype, copy=False), mean, variance


@operator()
class InstanceNormV2(Bound):
    """InstanceNorm of NC... data with running statistics of shape [N, C, 1, 1]."""

    is_training: bool = True
    momentum: float = 0.1
    epsilon: float = 1e-5
    outputs = ("y", "batch_mean", "batch_variance")

    def infer(
        self,
        x: TensorDesc,
        gamma: TensorDesc | None = None,
        beta: TensorDesc | None = None,
        mean: TensorDesc | None = None,
        variance: TensorDesc | None = None,
    ) -> tuple[TensorDesc, ...]:
        shape = x.logical_shape
        kept = UNKNOWN_RANK if shape == UNKNOWN_RANK else kept_shape(shape, range(2, len(shape)))
        statistics = TensorDesc(statistics_dtype(x), kept, x.logical_format)
        return plain(x), statistics, statistics

    def kernel(
        self,
        x: Array,
        gamma: Array | None = None,
        beta: Array | None = None,
        mean: Array | None = None,
        variance: Array | None = None,
    ) -> tuple[Array, ...]:
        wide = widened(x)
        axes = tuple(range(2, x.ndim))
        if self.is_training or mean is None or variance is None:
            m, v = moments(wide, axes, keepdims=True)
        else:
            m, v = mean, variance
        y = (wide - m) / np.sqrt(v + wide.dtype.type(self.epsilon))
        if gamma is not None:
            y = y * gamma.reshape(1, -1, *[1] * len(axes)).astype(y.dtype)
        if beta is not None:
            y = y + beta.reshape(1, -1, *[1] * len(axes)).astype(y.dtype)
        batch_mean, batch_variance = m, v
        if self.is_training:
            batch_variance = unbiased(v, size_of(x.shape, axes))
            if mean is not None and variance is not None:
                batch_mean = (1 - self.momentum) * mean + self.momentum * m
                batch_variance = (1 - self.momentum) * variance + self.momentum * batch_variance
        kind = wide.dtype
        return y.astype(x.dtype), batch_mean.astype(kind, copy=False), batch_variance.astype(kind, copy=False)


class LayerNormFields(Bound):
    begin_norm_axis: int = 0
    begin_params_axis: int = 0

    def infer(
        self, x: TensorDesc, gamma: TensorDesc | None = None, beta: TensorDesc | None = None
    ) -> tuple[TensorDesc, ...]:
        kept = x.logical_shape
        if kept != UNKNOWN_RANK:
            kept = kept_shape(kept, range(normalise_axis(self.begin_norm_axis, len(kept)), len(kept)))
        statistics = TensorDesc(statistics_dtype(x), kept)
        return plain(x), statistics, statistics

    def normalised(
        self, x: Array, gamma: Array | None, beta: Array | None, epsilon: float
    ) -> tuple[Array, Array, Array]:
        """y, mean and biased variance."""
        wide = widened(x)
        axes = range(normalise_axis(self.begin_norm_axis, x.ndim), x.ndim)
        mean, variance = moments(wide, tuple(axes), keepdims=True)
        y = (wide - mean) / np.sqrt(variance + wide.dtype.type(epsilon))
        if gamma is not None:
            y = y * gamma.astype(y.dtype, copy=False)
        if beta is not None:
            y = y + beta.astype(y.dtype, copy=False)
        return y.astype(x.dtype, copy=False), mean, variance


@operator()
class LayerNorm(LayerNormFields):
    """Normalise over the axes from begin_norm_axis on."""

    epsilon: float = 1e-7
    outputs = ("y", "mean", "variance")
    inputs = ("x", "gamma", "beta?")

    def kernel(self, x: Array, gamma: Array | None = None, beta: Array | None = None) -> tuple[Array, ...]:
        return self.normalised(x, gamma, beta, self.epsilon)

    def bind(self, inputs: Sequence[Array | None], outputs: Sequence[Array]) -> Step | None:
        x, gamma, beta, *_ = (*inputs, None, None)
        assert x is not None
        axis = normalise_axis(self.begin_norm_axis, x.ndim)
        return bind_layer_norm(x, gamma, beta, outputs, axis, self.epsilon)


@operator()
class LayerNormV3(LayerNormFields):
    """LayerNorm whose third output is 1/sqrt(variance + epsilon)."""

    epsilon: float = 1e-5
    outputs = ("y", "mean", "rstd")
    inputs = ("x", "gamma", "beta")

    def kernel(self, x: Array, gamma: Array, beta: Array) -> tuple[Array, ...]:
        y, mean, variance = self.normalised(x, gamma, beta, self.epsilon)
        return y, mean, 1 / np.sqrt(variance + variance.dtype.type(self.epsilon))


@operator()
class GroupNorm(Bound):
    """Normalise each group of channels over the group and the spatial axes; gamma, beta per channel or per group."""

    num_groups: int
    data_format: str = "NCHW"
    eps: float = 1e-5
    is_training: bool = True
    outputs = ("y", "mean", "rstd")

    def infer(
        self, x: TensorDesc, gamma: TensorDesc | None = None, beta: TensorDesc | None = None
    ) -> tuple[TensorDesc, ...]:
        shape = x.logical_shape
        if shape != UNKNOWN_RANK:
            channels = shape[channel_axis(self.data_format, len(shape))]
            if channels >= 0 and channels % self.num_groups:
                raise InferenceError(f"{channels} channels of {list(shape)} do not form {self.num_groups} groups")
        batch = -1 if shape == UNKNOWN_RANK else shape[0]
        statistics = TensorDesc(statistics_dtype(x), (batch, self.num_groups))
        return plain(x), statistics, statistics

    def kernel(self, x: Array, gamma: Array | None = None, beta: Array | None = None) -> tuple[Array, ...]:
        first = np.moveaxis(widened(x), channel_axis(self.data_format, x.ndim), 1)
        grouped = first.reshape(x.shape[0], self.num_groups, -1)
        mean, variance = moments(grouped, (2,))
        rstd = 1 / np.sqrt(variance + grouped.dtype.type(self.eps))
        y = ((grouped - mean[:, :, None]) * rstd[:, :, None]).reshape(first.shape)
        if gamma is not None:
            y = y * along(self.per_channel(gamma, y), 1, y.ndim)
        if beta is not None:
            y = y + along(self.per_channel(beta, y), 1, y.ndim)
        y = np.moveaxis(y, 1, channel_axis(self.data_format, x.ndim))
        return np.ascontiguousarray(y.astype(x.dtype, copy=False)), mean, rstd

    def per_channel(self, values: Array, y: Array) -> Array:
        """ONNX gave one value per group before opset 21."""
        wide = values.astype(y.dtype)
        return np.repeat(wide, y.shape[1] // self.num_groups) if values.size == self.num_groups else wide


@operator()
class RmsNorm(Bound):
    """x / sqrt(mean(x^2) + epsilon) * gamma over the axes of gamma."""

    epsilon: float = 1e-6
    zero_preserving = True
    outputs = ("y", "rstd")

    def infer(self, x: TensorDesc, gamma: TensorDesc) -> tuple[TensorDesc, ...]:
        shape = x.logical_shape
        if shape == UNKNOWN_RANK or gamma.rank is None:
            return plain(x), TensorDesc(statistics_dtype(x), UNKNOWN_RANK)
        axes = range(len(shape) - gamma.rank, len(shape))
        return plain(x), TensorDesc(statistics_dtype(x), kept_shape(shape, axes))

    def kernel(self, x: Array, gamma: Array) -> tuple[Array, ...]:
        wide = widened(x)
        axes = tuple(range(x.ndim - gamma.ndim, x.ndim))
        mean = np.square(wide).mean(axis=axes, keepdims=True, dtype=wide.dtype)
        rstd = 1 / np.sqrt(mean + wide.dtype.type(self.epsilon))
        y = wide * rstd * gamma.astype(wide.dtype, copy=False)
        return y.astype(x.dtype, copy=False), rstd


@importer("BatchNormalization", since=7)
def batch_normalization(node: OnnxNode, build: Builder) -> None:
    """BatchNorm; training (opset 14 on, or extra outputs before) also updates the running statistics."""
    epsilon, momentum = float(node.attr("epsilon", 1e-5)), float(node.attr("momentum", 0.9))
    x, scale, offset, mean, variance = (node.input(slot) for slot in range(5))
    training = bool(node.attr("training_mode", 0))
    if node.opset < 14 and any(node.wants(index) for index in range(1, 5)):
        raise node.fault("outputs for training are not supported before opset 14", "export the model for inference")
    attrs = {"epsilon": epsilon, "data_format": "NCHW", "is_training": training}
    outputs = build.ops("BatchNorm", 6, x, scale, offset, mean, variance, **attrs)
    build.output(0, outputs[0])
    # ONNX's running variance uses the biased variance of the batch, which is reserve_space_2.
    for index, old, new in ((1, mean, outputs[3]), (2, variance, outputs[4])):
        if node.wants(index):
            kept = build.op("Muls", old, value=momentum)
            build.output(index, build.op("Add", kept, build.op("Muls", new, value=1.0 - momentum)))


@importer("InstanceNormalization")
def instance_normalization(node: OnnxNode, build: Builder) -> None:
    epsilon = float(node.attr("epsilon", 1e-5))
    inputs = (node.input(0), node.input(1), node.input(2))
    build.output(0, build.ops("InstanceNorm", 3, *inputs, data_format="NCHW", epsilon=epsilon)[0])


@importer("LayerNormalization", since=17)
def layer_normalization(node: OnnxNode, build: Builder) -> None:
    """LayerNorm; the inverse deviation that ONNX may ask for comes from the variance (formats.md row 91)."""
    axis, epsilon = node.attr("axis", -1), float(node.attr("epsilon", 1e-5))
    x = node.input(0)
    gamma, beta = _spread(build, x, node.input(1), axis), node.optional(2)
    if beta is not None:
        beta = _spread(build, x, beta, axis)
    attrs = {"begin_norm_axis": axis, "begin_params_axis": axis, "epsilon": epsilon}
    y, mean, variance = build.ops("LayerNorm", 3, x, gamma, beta, **attrs)
    build.output(0, y)
    if node.wants(1):
        build.output(1, mean)
    if node.wants(2):
        build.output(2, build.op("Rsqrt", build.op("Adds", variance, value=epsilon)))


def _spread(build: Builder, x: Port, parameter: Port, axis: int) -> Port:
    """A parameter with the shape of the normalised axes, which GE asks for; as it is where shapes are unknown."""
    desc, own = build.desc(x), build.desc(parameter)
    if desc is None or own is None or UNKNOWN_RANK in (desc.logical_shape, own.logical_shape):
        return parameter
    wanted = desc.logical_shape[normalise_axis(axis, len(desc.logical_shape)) :]
    if min(wanted, default=-1) < 0 or own.logical_shape == wanted:
        return parameter
    return build.op("BroadcastTo", parameter, build.const(np.asarray(wanted, np.int64), "shape"))


@importer("GroupNormalization", since=18)
def group_normalization(node: OnnxNode, build: Builder) -> None:
    attrs = {"num_groups": node.attr("num_groups"), "eps": float(node.attr("epsilon", 1e-5)), "data_format": "NCHW"}
    build.output(0, build.ops("GroupNorm", 3, node.input(0), node.input(1), node.input(2), **attrs)[0])


@importer("RMSNormalization", since=23)
def rms_normalization(node: OnnxNode, build: Builder) -> None:
    """RmsNorm over the axes of the scale, which must be those from `axis` on."""
    x, gamma = node.input(0), node.input(1)
    rank, own, axis = build.rank(x), build.rank(gamma), node.attr("axis", -1)
    covered = own if axis == -1 and own == 1 else None if rank is None else rank - axis if axis >= 0 else -axis
    if own is None or covered != own:
        raise node.fault("the scale must cover exactly the normalised axes")
    build.output(0, build.ops("RmsNorm", 2, x, gamma, epsilon=float(node.attr("epsilon", 1e-5)))[0])
