"""Gradients of the normalisations, and the two-step batch normalisation of training graphs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gecli.ir.dtype import DataType
from gecli.ir.tensor_desc import UNKNOWN_RANK, TensorDesc
from gecli.ops.bound import Bound
from gecli.ops.inference import plain, same_as_input
from gecli.ops.norm_kernels import (
    along,
    channel_axis,
    format_axis,
    other_axes,
    size_of,
    statistics_dtype,
    unbiased,
    widened,
)
from gecli.ops.normalisation import affine
from gecli.ops.numeric import Array, in_float32
from gecli.ops.operator import operator
from gecli.ops.response_norm import lrn_scale, window_sum


def vector_of(x: TensorDesc, axis: int) -> TensorDesc:
    """The descriptor of per-channel statistics of x."""
    channels = -1 if x.logical_shape == UNKNOWN_RANK else x.logical_shape[axis]
    return TensorDesc(statistics_dtype(x), (channels,))


def root(variance: Array, epsilon: float) -> Array:
    """1 / sqrt(variance + epsilon)."""
    return np.asarray(1 / np.sqrt(variance + variance.dtype.type(epsilon)))


def two_means(g: Array, normal: Array, axes: Sequence[int]) -> Array:
    """g without its mean and without its projection on the normalised input: the heart of every gradient here."""
    over = tuple(axes)
    projection = (g * normal).mean(axis=over, keepdims=True)
    return np.asarray(g - g.mean(axis=over, keepdims=True) - normal * projection)


class ByChannel(Bound):
    """Operators whose channel axis follows the origin format of input 0."""

    def axis(self, x: Array | TensorDesc) -> int:
        rank = len(x.logical_shape) if isinstance(x, TensorDesc) else x.ndim
        return format_axis(x if isinstance(x, TensorDesc) else (self.in_descs[0] if self.in_descs else None), rank)


@operator()
class BatchNormGrad(Bound):
    """The gradient of BatchNorm from its saved mean (reserve_space_1) and biased variance (reserve_space_2)."""

    epsilon: float = 1e-4
    data_format: str = "NHWC"
    is_training: bool = True
    output_mask: tuple[bool, ...] = (True, False, False)
    outputs = ("x_backprop", "scale_backprop", "offset_backprop", "reserve_space_4", "reserve_space_5")

    def infer(
        self,
        y_backprop: TensorDesc,
        x: TensorDesc,
        scale: TensorDesc,
        reserve_space_1: TensorDesc,
        reserve_space_2: TensorDesc,
        reserve_space_3: TensorDesc | None = None,
    ) -> tuple[TensorDesc, ...]:
        vector = TensorDesc(scale.dtype, scale.logical_shape)
        return plain(y_backprop), vector, vector, vector, vector

    def kernel(
        self,
        y_backprop: Array,
        x: Array,
        scale: Array,
        reserve_space_1: Array,
        reserve_space_2: Array,
        reserve_space_3: Array | None = None,
    ) -> tuple[Array, ...]:
        dy, wide = widened(y_backprop), widened(x)
        axis = channel_axis(self.data_format, x.ndim)
        axes = other_axes(x.ndim, axis)
        kind = wide.dtype
        factor = along(root(reserve_space_2.astype(kind), self.epsilon), axis, x.ndim)
        normal = (wide - along(reserve_space_1.astype(kind), axis, x.ndim)) * factor
        offset_backprop = dy.sum(axis=axes)
        scale_backprop = (dy * normal).sum(axis=axes)
        gain = along(scale.astype(kind), axis, x.ndim) * factor
        dx = gain * (two_means(dy, normal, axes) if self.is_training else dy)
        zeros = np.zeros_like(scale)
        vectors = (v.astype(scale.dtype, copy=False) for v in (scale_backprop, offset_backprop))
        return (dx.astype(y_backprop.dtype, copy=False), *vectors, zeros, zeros.copy())


@operator()
class BNTrainingReduce(ByChannel):
    """Sum and sum of squares of each channel, in FLOAT."""

    zero_preserving = True
    outputs = ("sum", "square_sum")

    def infer(self, x: TensorDesc) -> tuple[TensorDesc, ...]:
        vector = vector_of(x, self.axis(x) if x.rank is not None else 0)
        return vector, vector

    def kernel(self, x: Array) -> tuple[Array, ...]:
        wide = widened(x)
        axes = other_axes(x.ndim, self.axis(x))
        return wide.sum(axis=axes), np.square(wide).sum(axis=axes)


class FromSums(ByChannel):
    """Batch normalisation from the sums of BNTrainingReduce."""

    epsilon: float

    def normalised(self, x: Array, sum: Array, square_sum: Array, scale: Array, offset: Array) -> tuple[Array, ...]:
        """y, mean, biased variance and the number of elements of a channel."""
        wide, axis = widened(x), self.axis(x)
        n = size_of(x.shape, other_axes(x.ndim, axis))
        mean = sum / sum.dtype.type(n)
        # sum/square_sum cancels: without the clamp a tiny variance can come out negative (training.md 18.3).
        variance = np.maximum(square_sum / sum.dtype.type(n) - np.square(mean), sum.dtype.type(0))
        y = affine(wide, axis, mean, variance, scale, offset, self.epsilon)
        return y.astype(x.dtype, copy=False), mean, variance, np.asarray(n)


@operator()
class BNTrainingUpdate(FromSums):
    """y, and the running mean and variance, which are references to variables."""

    factor: float
    writes = ("mean", "variance")
    stateless = False
    outputs = ("y", "mean", "variance", "batch_mean", "batch_variance")

    def infer(
        self,
        x: TensorDesc,
        sum: TensorDesc,
        square_sum: TensorDesc,
        scale: TensorDesc,
        offset: TensorDesc,
        mean: TensorDesc,
        variance: TensorDesc,
    ) -> tuple[TensorDesc, ...]:
        return plain(x), plain(mean), plain(variance), plain(sum), plain(sum)

    def kernel(
        self, x: Array, sum: Array, square_sum: Array, scale: Array, offset: Array, mean: Array, variance: Array
    ) -> tuple[Array, ...]:
        y, m, v, n = self.normalised(x, sum, square_sum, scale, offset)
        keep, add = mean.dtype.type(1 - self.factor), mean.dtype.type(self.factor)
        new_mean = keep * mean + add * m.astype(mean.dtype)
        new_variance = keep * variance + add * unbiased(v, int(n)).astype(variance.dtype)
        return y, new_mean, new_variance, m, v


@operator()
class BNTrainingUpdateV2(FromSums):
    """y with the batch's mean and biased variance."""

    outputs = ("y", "batch_mean", "batch_variance")

    def infer(
        self, x: TensorDesc, sum: TensorDesc, square_sum: TensorDesc, scale: TensorDesc, offset: TensorDesc
    ) -> tuple[TensorDesc, ...]:
        return plain(x), plain(sum), plain(sum)

    def kernel(self, x: Array, sum: Array, square_sum: Array, scale: Array, offset: Array) -> tuple[Array, ...]:
        return self.normalised(x, sum, square_sum, scale, offset)[:3]


@operator()
class BNTrainingUpdateV3(FromSums):
    """y with the batch's mean and unbiased variance; the reserves are mean and biased variance."""

    outputs = ("y", "batch_mean", "batch_variance", "reserve_1", "reserve_2")

    def infer(
        self, x: TensorDesc, sum: TensorDesc, square_sum: TensorDesc, scale: TensorDesc, offset: TensorDesc
    ) -> tuple[TensorDesc, ...]:
        vector = plain(sum)
        return plain(x), vector, vector, vector, vector

    def kernel(self, x: Array, sum: Array, square_sum: Array, scale: Array, offset: Array) -> tuple[Array, ...]:
        y, mean, variance, n = self.normalised(x, sum, square_sum, scale, offset)
        return y, mean, unbiased(variance, int(n)), mean.copy(), variance


@operator()
class BNTrainingUpdateGrad(ByChannel):
    """The gradients of scale and offset."""

    epsilon: float = 1e-4
    outputs = ("diff_scale", "diff_offset")

    def infer(
        self, grads: TensorDesc, x: TensorDesc, batch_mean: TensorDesc, batch_variance: TensorDesc
    ) -> tuple[TensorDesc, ...]:
        return plain(batch_mean), plain(batch_mean)

    def kernel(self, grads: Array, x: Array, batch_mean: Array, batch_variance: Array) -> tuple[Array, ...]:
        g, wide, axis = widened(grads), widened(x), self.axis(x)
        axes = other_axes(x.ndim, axis)
        normal = (wide - along(batch_mean, axis, x.ndim)) * along(root(batch_variance, self.epsilon), axis, x.ndim)
        return (g * normal).sum(axis=axes), g.sum(axis=axes)


@operator()
class BNTrainingReduceGrad(ByChannel):
    """The gradient of the input, from those of scale and offset."""

    epsilon: float = 1e-4

    def infer(
        self,
        grads: TensorDesc,
        x: TensorDesc,
        diff_scale: TensorDesc,
        diff_offset: TensorDesc,
        scale: TensorDesc,
        batch_mean: TensorDesc,
        batch_variance: TensorDesc,
    ) -> TensorDesc:
        return plain(grads)

    def kernel(
        self,
        grads: Array,
        x: Array,
        diff_scale: Array,
        diff_offset: Array,
        scale: Array,
        batch_mean: Array,
        batch_variance: Array,
    ) -> Array:
        g, wide, axis = widened(grads), widened(x), self.axis(x)
        n = wide.dtype.type(size_of(x.shape, other_axes(x.ndim, axis)))
        factor = along(root(batch_variance, self.epsilon), axis, x.ndim)
        normal = (wide - along(batch_mean, axis, x.ndim)) * factor
        means = along(diff_offset, axis, x.ndim) / n + normal * along(diff_scale, axis, x.ndim) / n
        return np.asarray(along(scale, axis, x.ndim) * factor * (g - means)).astype(grads.dtype, copy=False)


@operator()
class BNInferGrad(ByChannel):
    """g * scale / sqrt(variance + epsilon)."""

    epsilon: float = 1e-4
    zero_preserving = True
    outputs = ("x_backprop",)

    def infer(self, grads: TensorDesc, scale: TensorDesc, batch_variance: TensorDesc) -> TensorDesc:
        return plain(grads)

    def kernel(self, grads: Array, scale: Array, batch_variance: Array) -> Array:
        g = widened(grads)
        factor = along(scale * root(batch_variance, self.epsilon), self.axis(grads), g.ndim)
        return np.asarray(g * factor.astype(g.dtype)).astype(grads.dtype, copy=False)


def layer_epsilon(x: Array) -> float:
    """GE fixes it in the kernel, whatever the forward operator used."""
    return 1e-5 if x.dtype.itemsize == 2 else 1e-12


def layer_gradients(dy: Array, x: Array, rstd: Array, mean: Array, gamma: Array) -> tuple[Array, Array, Array, Array]:
    """pd_x, pd_gamma, pd_beta and the normalised x, over the axes of gamma."""
    g, wide = widened(dy), widened(x)
    kind = wide.dtype
    normal = (wide - mean.astype(kind)) * rstd.astype(kind)
    lead = x.ndim - gamma.ndim
    dx = rstd.astype(kind) * two_means(g * gamma.astype(kind), normal, range(lead, x.ndim))
    batch = tuple(range(lead))
    return dx, (g * normal).sum(axis=batch), g.sum(axis=batch), normal


class LayerGradient(Bound):
    def infer(
        self, dy: TensorDesc, x: TensorDesc, variance: TensorDesc, mean: TensorDesc, gamma: TensorDesc
    ) -> tuple[TensorDesc, ...]:
        return plain(x), plain(gamma), plain(gamma)


@operator()
class LayerNormGrad(LayerGradient):
    """The gradient of LayerNorm; its epsilon is fixed by the dtype."""

    outputs = ("pd_x", "pd_gamma", "pd_beta")

    def kernel(self, dy: Array, x: Array, variance: Array, mean: Array, gamma: Array) -> tuple[Array, ...]:
        rstd = root(widened(variance), layer_epsilon(x))
        dx, dgamma, dbeta, _ = layer_gradients(dy, x, rstd, widened(mean), gamma)
        return dx.astype(x.dtype, copy=False), dgamma.astype(gamma.dtype), dbeta.astype(gamma.dtype)


@operator()
class LayerNormGradV3(LayerGradient):
    """The gradient of LayerNormV3, from 1/sqrt(variance + epsilon) itself."""

    output_mask: tuple[bool, ...] = (True, True, True)
    outputs = ("pd_x", "pd_gamma", "pd_beta")
    inputs = ("dy", "x", "rstd", "mean", "gamma")

    def kernel(self, dy: Array, x: Array, rstd: Array, mean: Array, gamma: Array) -> tuple[Array, ...]:
        dx, dgamma, dbeta, _ = layer_gradients(dy, x, widened(rstd), widened(mean), gamma)
        return dx.astype(x.dtype, copy=False), dgamma.astype(gamma.dtype), dbeta.astype(gamma.dtype)


@operator()
class LayerNormXBackprop(Bound):
    """The half of LayerNormGrad that gives pd_x."""

    outputs = ("pd_x",)

    def infer(
        self, dy: TensorDesc, x: TensorDesc, variance: TensorDesc, mean: TensorDesc, gamma: TensorDesc
    ) -> TensorDesc:
        return plain(x)

    def kernel(self, dy: Array, x: Array, variance: Array, mean: Array, gamma: Array) -> Array:
        rstd = root(widened(variance), layer_epsilon(x))
        return layer_gradients(dy, x, rstd, widened(mean), gamma)[0].astype(x.dtype, copy=False)


@operator()
class LayerNormXBackpropV2(Bound):
    """LayerNormXBackprop that also keeps the normalised x for the other half."""

    outputs = ("pd_x", "res_for_gamma")

    def infer(
        self, dy: TensorDesc, x: TensorDesc, variance: TensorDesc, mean: TensorDesc, gamma: TensorDesc
    ) -> tuple[TensorDesc, ...]:
        return plain(x), plain(x).with_dtype(statistics_dtype(x))

    def kernel(self, dy: Array, x: Array, variance: Array, mean: Array, gamma: Array) -> tuple[Array, ...]:
        rstd = root(widened(variance), layer_epsilon(x))
        dx, _, _, normal = layer_gradients(dy, x, rstd, widened(mean), gamma)
        return dx.astype(x.dtype, copy=False), normal


class GammaBeta(Bound):
    shape_gamma: tuple[int, ...]

    def parameter(self, dy: TensorDesc) -> TensorDesc:
        return TensorDesc(statistics_dtype(dy), self.shape_gamma)

    def sums(self, g: Array, normal: Array) -> tuple[Array, Array]:
        batch = tuple(range(g.ndim - len(self.shape_gamma)))
        return (g * normal).sum(axis=batch), g.sum(axis=batch)


@operator()
class LayerNormBetaGammaBackprop(GammaBeta):
    """The half of LayerNormGrad that gives pd_gamma and pd_beta."""

    outputs = ("pd_gamma", "pd_beta")

    def infer(self, dy: TensorDesc, x: TensorDesc, variance: TensorDesc, mean: TensorDesc) -> tuple[TensorDesc, ...]:
        return self.parameter(dy), self.parameter(dy)

    def kernel(self, dy: Array, x: Array, variance: Array, mean: Array) -> tuple[Array, ...]:
        normal = (widened(x) - widened(mean)) * root(widened(variance), layer_epsilon(x))
        return self.sums(widened(dy), normal)


@operator()
class LayerNormBetaGammaBackpropV2(GammaBeta):
    """LayerNormBetaGammaBackprop from the kept normalised x."""

    outputs = ("pd_gamma", "pd_beta")

    def infer(self, dy: TensorDesc, res_for_gamma: TensorDesc) -> tuple[TensorDesc, ...]:
        return self.parameter(dy), self.parameter(dy)

    def kernel(self, dy: Array, res_for_gamma: Array) -> tuple[Array, ...]:
        return self.sums(widened(dy), res_for_gamma)


@operator()
class InstanceNormGrad(ByChannel):
    """The gradient of InstanceNorm; epsilon 1e-6 (unconfirmed)."""

    outputs = ("pd_x", "pd_gamma", "pd_beta")

    def infer(
        self, dy: TensorDesc, x: TensorDesc, variance: TensorDesc, mean: TensorDesc, gamma: TensorDesc
    ) -> tuple[TensorDesc, ...]:
        return plain(x), plain(gamma), plain(gamma)

    def kernel(self, dy: Array, x: Array, variance: Array, mean: Array, gamma: Array) -> tuple[Array, ...]:
        g, wide, channel = widened(dy), widened(x), self.axis(x)
        plane = tuple(axis for axis in range(1, x.ndim) if axis != channel)
        rstd = root(widened(variance), 1e-6)
        normal = (wide - widened(mean)) * rstd
        weight = along(widened(gamma.reshape(-1)), channel, x.ndim).astype(wide.dtype)
        dx = rstd * two_means(g * weight, normal, plane)
        axes = other_axes(x.ndim, channel)
        sums = ((g * normal).sum(axis=axes), g.sum(axis=axes))
        return (dx.astype(x.dtype, copy=False), *(s.reshape(gamma.shape).astype(gamma.dtype) for s in sums))


@operator()
class GroupNormGrad(Bound):
    """The gradient of GroupNorm from its mean and 1/sqrt(variance + eps)."""

    num_groups: int
    data_format: str = "NCHW"
    dx_is_require: bool = True
    dgamma_is_require: bool = True
    dbeta_is_require: bool = True
    outputs = ("dx", "dgamma", "dbeta")

    def infer(
        self, dy: TensorDesc, mean: TensorDesc, rstd: TensorDesc, x: TensorDesc, gamma: TensorDesc
    ) -> tuple[TensorDesc, ...]:
        return plain(x), plain(gamma), plain(gamma)

    def kernel(self, dy: Array, mean: Array, rstd: Array, x: Array, gamma: Array) -> tuple[Array, ...]:
        axis = channel_axis(self.data_format, x.ndim)
        g, first = (np.moveaxis(widened(a), axis, 1) for a in (dy, x))
        grouped = (x.shape[0], self.num_groups, -1)
        kind = first.dtype
        r = widened(rstd).reshape(*grouped[:2], 1).astype(kind)
        normal = (first.reshape(grouped) - widened(mean).reshape(*grouped[:2], 1).astype(kind)) * r
        weighted = (g * along(widened(gamma), 1, x.ndim).astype(kind)).reshape(grouped)
        dx = np.moveaxis((r * two_means(weighted, normal, (2,))).reshape(first.shape), 1, axis)
        axes = other_axes(x.ndim, 1)
        sums = ((g * normal.reshape(first.shape)).sum(axis=axes), g.sum(axis=axes))
        return (np.ascontiguousarray(dx.astype(x.dtype)), *(s.astype(gamma.dtype) for s in sums))


@operator()
class RmsNormGrad(Bound):
    """The gradient of RmsNorm; dgamma is FLOAT."""

    outputs = ("dx", "dgamma")

    def infer(self, dy: TensorDesc, x: TensorDesc, rstd: TensorDesc, gamma: TensorDesc) -> tuple[TensorDesc, ...]:
        double = gamma.dtype == DataType.DOUBLE
        return plain(x), plain(gamma).with_dtype(DataType.DOUBLE if double else DataType.FLOAT)

    def kernel(self, dy: Array, x: Array, rstd: Array, gamma: Array) -> tuple[Array, ...]:
        g, wide = widened(dy), widened(x)
        kind = wide.dtype
        r = widened(rstd).astype(kind)
        normal = wide * r
        lead = x.ndim - gamma.ndim
        weighted = g * widened(gamma).astype(kind)
        mean = (weighted * normal).mean(axis=tuple(range(lead, x.ndim)), keepdims=True)
        dgamma = (g * normal).sum(axis=tuple(range(lead)))
        return (r * (weighted - normal * mean)).astype(x.dtype, copy=False), dgamma


@operator()
class L2NormalizeGrad:
    """(dy - y * sum(y * dy)) / max(norm of x, eps) over `dim`."""

    dim: tuple[int, ...] = ()
    eps: float = 1e-4
    outputs = ("dx",)
    infer = same_as_input

    @in_float32
    def kernel(self, x: Array, y: Array, dy: Array) -> Array:
        axes = self.dim or tuple(range(x.ndim))
        norm = np.sqrt(np.square(x).sum(axis=axes, keepdims=True))
        projected = (y * dy).sum(axis=axes, keepdims=True)
        return np.asarray((dy - y * projected) / np.maximum(norm, x.dtype.type(self.eps)))


@operator()
class LRNGrad(Bound):
    """The adjoint of LRN: each element also acts through the windows of its neighbours."""

    depth_radius: int = 5
    bias: float = 1.0
    alpha: float = 1.0
    beta: float = 0.5
    outputs = ("z",)
    infer = same_as_input

    @in_float32
    def kernel(self, grads: Array, x: Array, y: Array) -> Array:
        axis = format_axis(self.in_descs[1] if len(self.in_descs) > 1 else None, x.ndim)
        radius = self.depth_radius
        scale = lrn_scale(x, axis, radius, radius, self.alpha, self.bias)
        reach = window_sum(grads * y / scale, axis, radius, radius)
        kind = x.dtype.type
        return np.asarray(grads * scale ** kind(-self.beta) - kind(2 * self.alpha * self.beta) * x * reach)
