"""Sampling at computed places: GridSampler2D, GridSampler3D, AffineGrid."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np

from gecli.ir.tensor_desc import UNKNOWN_RANK, TensorDesc
from gecli.ops.bound import Bound
from gecli.ops.inference import InferenceError
from gecli.ops.numeric import Array, in_float32
from gecli.ops.onnx_import import Builder, OnnxNode, importer
from gecli.ops.operator import From, operator, value_of

CUBIC_A = -0.75


class GridSampler(Bound):
    """x [N, C, spatial...] read at the places of grid [N, out..., axes], -1..1 from edge to edge, x first."""

    interpolation_mode: str = "bilinear"
    padding_mode: str = "zeros"
    align_corners: bool = False

    def infer(self, x: TensorDesc, grid: TensorDesc) -> TensorDesc:
        if UNKNOWN_RANK in (x.logical_shape, grid.logical_shape):
            return TensorDesc(x.dtype, UNKNOWN_RANK, x.logical_format)
        shape, places = x.logical_shape, grid.logical_shape
        if len(shape) != len(places) or places[-1] not in (-1, len(shape) - 2):
            raise InferenceError(f"grid {list(places)} does not fit x {list(shape)}")
        return TensorDesc(x.dtype, (*shape[:2], *places[1:-1]), x.logical_format)

    @in_float32
    def kernel(self, x: Array, grid: Array) -> Array:
        size = x.shape[2:]
        # The grid names the innermost axis first.
        places = [self.unnormalised(grid[..., -1 - axis], dim) for axis, dim in enumerate(size)]
        taps: list[list[tuple[Array, Array | None]]]
        if self.interpolation_mode == "nearest":
            taps = [[(np.rint(self.folded(p, dim)), None)] for p, dim in zip(places, size)]
        elif self.interpolation_mode == "bicubic":
            taps = [_cubic_taps(p) for p in places]
        else:
            taps = [_linear_taps(self.folded(p, dim)) for p, dim in zip(places, size)]
        total = np.zeros((*x.shape[:2], *grid.shape[1:-1]), x.dtype)
        for chosen in product(*taps):
            value = self.read(x, [place for place, _ in chosen])
            weight = np.ones(grid.shape[:-1], x.dtype)
            for _, factor in chosen:
                if factor is not None:
                    weight = weight * factor.astype(x.dtype)
            total += value * weight[:, None]
        return total

    def unnormalised(self, place: Array, dim: int) -> Array:
        if self.align_corners:
            return (place + 1) / 2 * (dim - 1)
        return ((place + 1) * dim - 1) / 2

    def folded(self, place: Array, dim: int) -> Array:
        """Places moved into the image as padding_mode says; zeros are left to `read`."""
        if self.padding_mode == "border":
            return np.clip(place, 0, dim - 1)
        if self.padding_mode != "reflection":
            return place
        low, high = (0.0, dim - 1.0) if self.align_corners else (-0.5, dim - 0.5)
        span = high - low
        if span <= 0:
            return np.zeros_like(place)
        distance = np.abs(place - low)
        turns = np.floor(distance / span)
        rest = distance - turns * span
        return np.where(turns % 2 == 0, low + rest, high - rest).astype(place.dtype)

    def read(self, x: Array, places: Sequence[Array]) -> Array:
        """The elements at whole places; outside they are 0, the edge, or the reflection."""
        inside = np.ones(places[0].shape, bool)
        index = []
        for place, dim in zip(places, x.shape[2:]):
            whole = np.nan_to_num(self.folded(place, dim), nan=-1.0, posinf=-1.0, neginf=-1.0).astype(np.int64)
            inside &= (whole >= 0) & (whole < dim)
            index.append(np.clip(whole, 0, max(dim - 1, 0)))
        batch = np.arange(x.shape[0]).reshape(-1, *[1] * (places[0].ndim - 1))
        where: Any = (batch, slice(None), *index)
        value = np.moveaxis(x[where], -1, 1)
        if self.padding_mode == "zeros":
            value = np.where(inside[:, None], value, x.dtype.type(0))
        return value


def _linear_taps(place: Array) -> list[tuple[Array, Array | None]]:
    low = np.floor(place)
    return [(low, low + 1 - place), (low + 1, place - low)]


def _cubic_taps(place: Array) -> list[tuple[Array, Array | None]]:
    low = np.floor(place)
    found: list[tuple[Array, Array | None]] = []
    for shift in (-1, 0, 1, 2):
        d = np.abs(place - (low + shift))
        near = ((CUBIC_A + 2) * d - (CUBIC_A + 3)) * d * d + 1
        far = ((CUBIC_A * d - 5 * CUBIC_A) * d + 8 * CUBIC_A) * d - 4 * CUBIC_A
        found.append((low + shift, np.where(d <= 1, near, far)))
    return found


@operator()
class GridSampler2D(GridSampler):
    """Images sampled at the places of a grid."""

    zero_preserving = True
    inputs = ("x", "grid")


@operator()
class GridSampler3D(GridSampler):
    """Volumes sampled at the places of a grid."""

    zero_preserving = True
    inputs = ("x", "grid")


@operator(onnx=From("AffineGrid", attrs={"size": "output_size"}))
class AffineGrid(Bound):
    """The grid of places that an affine map theta [N, d, d+1] sends an output of output_size to."""

    align_corners: bool = False
    shape_inputs = (1,)
    inputs = ("theta", "output_size")

    def infer(self, theta: TensorDesc, output_size: TensorDesc) -> TensorDesc:
        size = value_of(output_size)
        if size is None:
            if theta.rank is None or theta.logical_shape[1] < 0:
                return TensorDesc(theta.dtype, UNKNOWN_RANK)
            axes = theta.logical_shape[1]
            return TensorDesc(theta.dtype, (theta.logical_shape[0], *[-1] * axes, axes))
        wanted = tuple(int(v) for v in size)
        return TensorDesc(theta.dtype, (wanted[0], *wanted[2:], len(wanted) - 2))

    @in_float32
    def kernel(self, theta: Array, output_size: Array) -> Array:
        size = [int(v) for v in output_size[2:]]
        lines = []
        for dim in size:
            steps = np.arange(dim, dtype=np.float64)
            if self.align_corners:
                lines.append(steps * 2 / (dim - 1) - 1 if dim > 1 else np.zeros(1))
            else:
                lines.append((2 * steps + 1) / dim - 1)
        places = np.meshgrid(*lines, indexing="ij")[::-1]
        points = np.stack([*places, np.ones(size)], axis=-1).reshape(-1, len(size) + 1)
        grid = np.matmul(points, theta.astype(np.float64).swapaxes(1, 2))
        return grid.reshape(theta.shape[0], *size, len(size)).astype(theta.dtype)


@importer("GridSample", since=16)
def grid_sample(node: OnnxNode, build: Builder) -> None:
    """GridSampler2D or GridSampler3D by the rank of x (formats.md row 158)."""
    x, grid = node.input(0), node.input(1)
    mode = str(node.attr("mode", "bilinear"))
    attrs = {
        "interpolation_mode": {"linear": "bilinear", "cubic": "bicubic"}.get(mode, mode),
        "padding_mode": str(node.attr("padding_mode", "zeros")),
        "align_corners": bool(node.attr("align_corners", 0)),
    }
    kind = "GridSampler3D" if 5 in (build.rank(x), build.rank(grid)) else "GridSampler2D"
    build.output(0, build.op(kind, x, grid, **attrs))
