"""Convolutions over free places: DeformableConv2D with ONNX's DeformConv, and Col2im."""

from __future__ import annotations

from itertools import product

import numpy as np

from gecli.ir.format import Format
from gecli.ir.tensor_desc import UNKNOWN_RANK, TensorDesc
from gecli.ops.bound import Bound
from gecli.ops.inference import InferenceError
from gecli.ops.numeric import Array, in_float32
from gecli.ops.onnx_import import Builder, OnnxNode, importer
from gecli.ops.operator import operator, value_of
from gecli.ops.window_import import read_window
from gecli.ops.windows import Geometry, covered, inner, interleaved, pairs, split_shape, tap_slices


@operator()
class DeformableConv2D(Bound):
    """A convolution whose taps are moved by offsets and, where given, weighted by a mask (NCHW).

    Offsets have ONNX's order [N, groups * taps * 2, OH, OW], y before x of each tap; GE's planes hold all x, all y
    and the mask (unconfirmed), which no public model file uses.
    """

    strides: tuple[int, ...]
    pads: tuple[int, ...]
    dilations: tuple[int, ...] = (1, 1, 1, 1)
    groups: int = 1
    deformable_groups: int = 1
    data_format: str = "NCHW"
    foldable = False
    inputs = ("x", "filter", "offsets", "bias?", "mask?")

    def geometry(self, kernel: tuple[int, ...]) -> Geometry:
        return Geometry(kernel, self.strides[-2:], self.dilations[-2:], pairs(self.pads))

    def infer(
        self,
        x: TensorDesc,
        filter: TensorDesc,
        offsets: TensorDesc,
        bias: TensorDesc | None = None,
        mask: TensorDesc | None = None,
    ) -> TensorDesc:
        if filter.rank is None:
            return TensorDesc(x.dtype, (-1,) * 4, Format.NCHW)
        shape = (-1,) * 4 if x.logical_shape == UNKNOWN_RANK else x.logical_shape
        batch, _, size = split_shape(shape, "NCHW")
        out = self.geometry(filter.logical_shape[2:]).output(size)
        return TensorDesc(x.dtype, (batch, filter.logical_shape[0], *out), Format.NCHW)

    @in_float32
    def kernel(
        self, x: Array, filter: Array, offsets: Array, bias: Array | None = None, mask: Array | None = None
    ) -> Array:
        geometry = self.geometry(filter.shape[2:])
        kh, kw = geometry.kernel
        out = geometry.output(x.shape[2:])
        batch, channels = x.shape[:2]
        parts = self.deformable_groups
        moves = offsets.reshape(batch, parts, kh * kw, 2, *out)
        weights = None if mask is None else mask.reshape(batch, parts, kh * kw, *out)
        columns = np.empty((batch, channels, kh * kw, *out), x.dtype)
        share = channels // parts
        for tap, (i, j) in enumerate(product(range(kh), range(kw))):
            rows = (np.arange(out[0]) * geometry.strides[0] - geometry.pads[0][0] + i * geometry.dilations[0])[:, None]
            lines = np.arange(out[1]) * geometry.strides[1] - geometry.pads[1][0] + j * geometry.dilations[1]
            for n, part in product(range(batch), range(parts)):
                dy, dx = moves[n, part, tap]
                owned = slice(part * share, (part + 1) * share)
                value = bilinear(x[n, owned], rows + dy, lines + dx)
                columns[n, owned, tap] = value if weights is None else value * weights[n, part, tap]
        matrix = filter.reshape(self.groups, filter.shape[0] // self.groups, -1)
        y = np.matmul(matrix, columns.reshape(batch, self.groups, matrix.shape[2], -1))
        y = y.reshape(batch, filter.shape[0], *out)
        return y if bias is None else y + bias.reshape(-1, 1, 1).astype(y.dtype)


def bilinear(image: Array, y: Array, x: Array) -> Array:
    """[C, ...] of an image [C, H, W] at real places; everything outside the image is 0."""
    height, width = image.shape[1:]
    top, left = np.floor(y), np.floor(x)
    total = np.zeros((image.shape[0], *y.shape), image.dtype)
    for row, row_weight in ((top, top + 1 - y), (top + 1, y - top)):
        for column, column_weight in ((left, left + 1 - x), (left + 1, x - left)):
            inside = (row >= 0) & (row < height) & (column >= 0) & (column < width)
            places = (np.clip(row, 0, height - 1).astype(np.int64), np.clip(column, 0, width - 1).astype(np.int64))
            total += image[:, places[0], places[1]] * (row_weight * column_weight * inside).astype(image.dtype)
    return total


@operator()
class Col2im(Bound):
    """Columns [N, C * block, positions] added back into images: the adjoint of taking windows."""

    dilations: tuple[int, ...]
    pads: tuple[int, ...]
    strides: tuple[int, ...]
    shape_inputs = (1, 2)
    inputs = ("x", "image_shape", "block_shape")

    def infer(self, x: TensorDesc, image_shape: TensorDesc, block_shape: TensorDesc) -> TensorDesc:
        image, block = value_of(image_shape), value_of(block_shape)
        if image is None or block is None or x.logical_shape == UNKNOWN_RANK:
            return TensorDesc(x.dtype, UNKNOWN_RANK)
        batch, features, _ = x.logical_shape
        taps = int(np.prod(block))
        if features >= 0 and features % taps:
            raise InferenceError(f"{features} rows of {list(x.logical_shape)} do not hold blocks of {taps}")
        channels = features // taps if features >= 0 else -1
        return TensorDesc(x.dtype, (batch, channels, *(int(v) for v in image)))

    @in_float32
    def kernel(self, x: Array, image_shape: Array, block_shape: Array) -> Array:
        size, block = tuple(int(v) for v in image_shape), tuple(int(v) for v in block_shape)
        ones = (1,) * len(size)
        geometry = Geometry(
            block, self.strides or ones, self.dilations or ones, pairs(self.pads) or ((0, 0),) * len(size)
        )
        out = geometry.output(size)
        taps = list(product(*map(range, block)))
        columns = x.reshape(x.shape[0], -1, len(taps), *out)
        total = np.zeros((*columns.shape[:2], *covered(size, geometry, out)), x.dtype)
        for number, tap in enumerate(taps):
            total[tap_slices(geometry, out, tap)] += columns[:, :, number]
        return np.ascontiguousarray(total[inner(size, geometry.pads)])


@importer("DeformConv", since=19)
def deform_conv(node: OnnxNode, build: Builder) -> None:
    window = read_window(node, build, node.input(1))
    if len(window.kernel) != 2:
        raise node.fault("only deformable convolutions over two axes are supported")
    attributes = window.attributes("NCHW")
    attributes.update(groups=node.attr("group", 1), deformable_groups=node.attr("offset_group", 1))
    inputs = (node.input(0), node.input(1), node.input(2), node.optional(3), node.optional(4))
    build.output(0, build.op("DeformableConv2D", *inputs, **attributes))


@importer("Col2Im", since=18)
def col2im(node: OnnxNode, build: Builder) -> None:
    attributes = {
        "dilations": tuple(node.attr("dilations", ())),
        "pads": interleaved(node.attr("pads", ())),
        "strides": tuple(node.attr("strides", ())),
    }
    build.output(0, build.op("Col2im", node.input(0), node.input(1), node.input(2), **attributes))
