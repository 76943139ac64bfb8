"""Normalisation by neighbours and norms: LRN, MVNV2, L2Normalize and ONNX's LpNormalization."""

from __future__ import annotations

import numpy as np

from gecli.ops.bound import Bound
from gecli.ops.inference import same_as_input
from gecli.ops.norm_kernels import format_axis
from gecli.ops.numeric import Array, in_float32
from gecli.ops.onnx_import import Builder, OnnxNode, importer
from gecli.ops.operator import From, operator


def window_sum(x: Array, axis: int, below: int, above: int) -> Array:
    """For each channel the sum over the channels from `below` under it to `above` over it."""
    first = np.moveaxis(x, axis, 0)
    total = np.zeros_like(first)
    channels = first.shape[0]
    # A window may reach far beyond the channels, where there is nothing to add.
    for shift in range(-min(below, channels - 1), min(above, channels - 1) + 1):
        low, high = max(0, -shift), min(channels, channels - shift)
        total[low:high] += first[low + shift : high + shift]
    return np.moveaxis(total, 0, axis)


def lrn_scale(x: Array, axis: int, below: int, above: int, alpha: float, bias: float) -> Array:
    """bias + alpha * the windowed sum of squares."""
    kind = x.dtype.type
    return np.asarray(kind(bias) + kind(alpha) * window_sum(np.square(x), axis, below, above))


@operator()
class LRN(Bound):
    """x / (bias + alpha * sum of x^2 over 2*depth_radius + 1 channels)^beta."""

    depth_radius: int = 5
    bias: float = 1.0
    alpha: float = 1.0
    beta: float = 0.5
    norm_region: str = "ACROSS_CHANNELS"
    # The channels above, where ONNX's window is even: one more than below.
    radius_above: int = -1
    zero_preserving = True
    infer = same_as_input

    @in_float32
    def kernel(self, x: Array) -> Array:
        if self.norm_region != "ACROSS_CHANNELS":
            raise ValueError(f"norm_region {self.norm_region!r} is not supported")
        axis = format_axis(self.in_descs[0] if self.in_descs else None, x.ndim)
        above = self.radius_above if self.radius_above >= 0 else self.depth_radius
        scale = lrn_scale(x, axis, self.depth_radius, above, self.alpha, self.bias)
        return np.asarray(x / scale ** x.dtype.type(self.beta))


@operator(onnx=From("MeanVarianceNormalization", defaults={"axes": (0, 2, 3)}))
class MVNV2:
    """(x - mean) / (standard deviation + eps) over `axes`."""

    eps: float = 1e-9
    axes: tuple[int, ...] = (0, 2, 3)
    infer = same_as_input

    @in_float32
    def kernel(self, x: Array) -> Array:
        centred = x - x.mean(axis=self.axes, keepdims=True, dtype=x.dtype)
        deviation = np.sqrt(np.square(centred).mean(axis=self.axes, keepdims=True, dtype=x.dtype))
        return np.asarray(centred / (deviation + x.dtype.type(self.eps)))


@operator()
class L2Normalize:
    """x / max(its Euclidean norm over `axis`, eps); no axis means all."""

    axis: tuple[int, ...] = ()
    eps: float = 1e-4
    zero_preserving = True
    infer = same_as_input

    @in_float32
    def kernel(self, x: Array) -> Array:
        axes = self.axis or tuple(range(x.ndim))
        norm = np.sqrt(np.square(x).sum(axis=axes, keepdims=True, dtype=x.dtype))
        return np.asarray(x / np.maximum(norm, x.dtype.type(self.eps)))


@importer("LRN")
def lrn(node: OnnxNode, build: Builder) -> None:
    """GE's alpha counts per element, ONNX's for the whole window (formats.md row 94)."""
    size = node.attr("size")
    attrs = {
        "depth_radius": (size - 1) // 2,
        "alpha": float(node.attr("alpha", 1e-4)) / size,
        "beta": float(node.attr("beta", 0.75)),
        "bias": float(node.attr("bias", 1.0)),
        "norm_region": "ACROSS_CHANNELS",
    }
    if size % 2 == 0:
        attrs["radius_above"] = size // 2
    build.output(0, build.op("LRN", node.input(0), **attrs))


@importer("LpNormalization")
def lp_normalization(node: OnnxNode, build: Builder) -> None:
    """x divided by its p-norm along an axis; 0 where the norm is 0."""
    axis, p = node.attr("axis", -1), node.attr("p", 2)
    x = node.input(0)
    norm = build.op("LpNormV2", x, p=float(p), axes=(axis,), keepdim=True)
    build.output(0, build.op("DivNoNan", x, norm))
