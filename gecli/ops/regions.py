"""Pooling of regions of interest: ROIAlign, ROIPooling and ONNX's RoiAlign and MaxRoiPool."""

from __future__ import annotations

from typing import Any

import numpy as np

from gecli.ir.dtype import DataType
from gecli.ir.format import Format
from gecli.ir.tensor_desc import UNKNOWN_RANK, TensorDesc
from gecli.ops.bound import Bound
from gecli.ops.numeric import Array, in_float32
from gecli.ops.onnx_import import Builder, OnnxNode, importer
from gecli.ops.operator import operator


def regions_desc(features: TensorDesc, rois: TensorDesc, height: int, width: int) -> TensorDesc:
    count = -1 if rois.logical_shape == UNKNOWN_RANK else rois.logical_shape[0]
    channels = -1 if features.logical_shape == UNKNOWN_RANK else features.logical_shape[1]
    return TensorDesc(features.dtype, (count, channels, height, width), Format.NCHW)


@operator()
class ROIAlign(Bound):
    """Regions [batch index, x1, y1, x2, y2] sampled bilinearly into pooled_height x pooled_width bins.

    roi_end_mode: 0 takes the corners as they are, 1 adds a pixel to the far ones, 2 shifts all by half a pixel.
    """

    spatial_scale: float
    pooled_height: int
    pooled_width: int
    sample_num: int = 2
    roi_end_mode: int = 1
    pool_mode: str = "avg"
    inputs = ("features", "rois", "rois_n?")

    def infer(self, features: TensorDesc, rois: TensorDesc, rois_n: TensorDesc | None = None) -> TensorDesc:
        return regions_desc(features, rois, self.pooled_height, self.pooled_width)

    @in_float32
    def kernel(self, features: Array, rois: Array, rois_n: Array | None = None) -> Array:
        y = np.zeros((len(rois), features.shape[1], self.pooled_height, self.pooled_width), features.dtype)
        for number, roi in enumerate(rois):
            image = features[int(roi[0])]
            rows = self.samples(roi[2], roi[4], self.pooled_height, image.shape[1], features.dtype)
            columns = self.samples(roi[1], roi[3], self.pooled_width, image.shape[2], features.dtype)
            y[number] = self.pooled(image, rows, columns)
        return y

    def samples(self, low: Any, high: Any, bins: int, dim: int, dtype: np.dtype[Any]) -> tuple[Array, Array, Array]:
        """For each bin and sample: lower element, upper element, weight of the upper (NaN outside the image)."""
        scale = dtype.type(self.spatial_scale)
        offset = dtype.type(0.5 if self.roi_end_mode == 2 else 0)
        start = low * scale - offset
        length = (high + (1 if self.roi_end_mode == 1 else 0)) * scale - offset - start
        if self.roi_end_mode != 2:
            length = max(length, dtype.type(1))
        size = length / bins
        count = self.sample_num if self.sample_num > 0 else int(np.ceil(length / bins))
        steps = (np.arange(count, dtype=dtype) + dtype.type(0.5)) * size / dtype.type(max(count, 1))
        place = start + np.arange(bins, dtype=dtype)[:, None] * size + steps
        outside = (place < -1) | (place > dim)
        place = np.maximum(place, 0)
        lower = np.minimum(np.floor(place).astype(np.int64), dim - 1)
        upper = np.minimum(lower + 1, dim - 1)
        weight = np.where(lower >= dim - 1, 0, place - lower).astype(dtype)
        return lower, upper, np.where(outside, np.nan, weight).astype(dtype)

    def pooled(self, image: Array, rows: tuple[Array, Array, Array], columns: tuple[Array, Array, Array]) -> Array:
        """[C, bins, bins] of one region."""
        corners = []
        for row, row_weight in ((rows[0], 1 - rows[2]), (rows[1], rows[2])):
            for column, column_weight in ((columns[0], 1 - columns[2]), (columns[1], columns[2])):
                value = image[:, row[:, :, None, None], column[None, None]]
                weight = row_weight[:, :, None, None] * column_weight[None, None]
                corners.append(np.where(np.isnan(weight), 0, value * weight))
        if self.pool_mode == "max":
            # As in ONNX's definition: the maximum of the weighted corners, not of their sums.
            best = np.maximum.reduce(corners)
            return best.max(axis=(2, 4)) if best.shape[2] and best.shape[4] else best.sum(axis=(2, 4))
        total = corners[0] + corners[1] + corners[2] + corners[3]
        count = max(total.shape[2] * total.shape[4], 1)
        return np.asarray(total.sum(axis=(2, 4)) / total.dtype.type(count))


@operator()
class ROIPooling(Bound):
    """The maximum of each bin of regions [batch index, x1, y1, x2, y2], with rounded corners."""

    pooled_h: int
    pooled_w: int
    spatial_scale_h: float
    spatial_scale_w: float
    inputs = ("x", "rois", "roi_actual_num?")

    def infer(self, x: TensorDesc, rois: TensorDesc, roi_actual_num: TensorDesc | None = None) -> TensorDesc:
        return regions_desc(x, rois, self.pooled_h, self.pooled_w)

    @in_float32
    def kernel(self, x: Array, rois: Array, roi_actual_num: Array | None = None) -> Array:
        y = np.zeros((len(rois), x.shape[1], self.pooled_h, self.pooled_w), x.dtype)
        for number, roi in enumerate(rois):
            rows = _bins(roi[2], roi[4], self.spatial_scale_h, self.pooled_h, x.shape[2])
            columns = _bins(roi[1], roi[3], self.spatial_scale_w, self.pooled_w, x.shape[3])
            for i, (top, bottom) in enumerate(rows):
                for j, (left, right) in enumerate(columns):
                    if top < bottom and left < right:
                        y[number, :, i, j] = x[int(roi[0]), :, top:bottom, left:right].max(axis=(1, 2))
        return y


def _bins(low: Any, high: Any, scale: float, count: int, dim: int) -> list[tuple[int, int]]:
    # Halves round away from zero, as C's round does.
    start, end = (int(np.floor(float(v) * scale + 0.5)) for v in (low, high))
    size = np.float32(max(end - start + 1, 1)) / np.float32(count)
    edges = []
    for number in range(count):
        first = int(np.floor(np.float32(number) * size)) + start
        last = int(np.ceil(np.float32(number + 1) * size)) + start
        edges.append((min(max(first, 0), dim), min(max(last, 0), dim)))
    return edges


@importer("RoiAlign", since=10)
def roi_align(node: OnnxNode, build: Builder) -> None:
    """ROIAlign of the regions with their batch index in front (formats.md row 88)."""
    features, rois, batch = node.input(0), node.input(1), node.input(2)
    desc = build.desc(rois)
    dtype = DataType.FLOAT if desc is None else desc.dtype
    index = build.op("Unsqueeze", build.op("Cast", batch, dst_type=dtype), axes=(1,))
    half_pixel = node.opset >= 16 and node.attr("coordinate_transformation_mode", "half_pixel") == "half_pixel"
    attrs = {
        "spatial_scale": float(node.attr("spatial_scale", 1.0)),
        "pooled_height": node.attr("output_height", 1),
        "pooled_width": node.attr("output_width", 1),
        "sample_num": node.attr("sampling_ratio", 0),
        "roi_end_mode": 2 if half_pixel else 0,
        "pool_mode": str(node.attr("mode", "avg")),
    }
    build.output(0, build.op("ROIAlign", features, build.op("ConcatD", index, rois, concat_dim=1, N=2), **attrs))


@importer("MaxRoiPool")
def max_roi_pool(node: OnnxNode, build: Builder) -> None:
    scale = float(node.attr("spatial_scale", 1.0))
    height, width = node.attr("pooled_shape")
    attrs = {"pooled_h": height, "pooled_w": width, "spatial_scale_h": scale, "spatial_scale_w": scale}
    build.output(0, build.op("ROIPooling", node.input(0), node.input(1), **attrs))
