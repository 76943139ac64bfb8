"""Rearranging blocks of an image: DepthToSpace and SpaceToDepth."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gecli.ir.format import Format
from gecli.ir.tensor_desc import UNKNOWN_RANK, TensorDesc
from gecli.ops.bound import Bound
from gecli.ops.inference import InferenceError
from gecli.ops.numeric import Array, Step
from gecli.ops.operator import From, operator
from gecli.ops.windows import join_shape, split_shape


class BlockMove(Bound):
    """A reshape, a transpose and a reshape of an image batch."""

    block_size: int
    data_format: str = "NHWC"

    def moved(self, x: Array) -> tuple[Array, tuple[int, ...]]:
        """A transposed view of x and the shape it is read as."""
        raise NotImplementedError

    def kernel(self, x: Array) -> Array:
        view, shape = self.moved(x)
        return np.ascontiguousarray(view).reshape(shape)

    def bind(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> Step | None:
        view, _ = self.moved(inputs[0])
        target = outputs[0].reshape(view.shape)
        return lambda: np.copyto(target, view)

    def sizes(self, x: TensorDesc) -> tuple[int, int, tuple[int, ...]]:
        shape = (-1,) * len(self.data_format) if x.logical_shape == UNKNOWN_RANK else x.logical_shape
        return split_shape(shape, self.data_format)

    def described(self, x: TensorDesc, batch: int, channels: int, size: Sequence[int]) -> TensorDesc:
        return TensorDesc(x.dtype, join_shape(batch, channels, size, self.data_format), Format.parse(self.data_format))


@operator(onnx=From("DepthToSpace", attrs={"blocksize": "block_size"}, defaults={"data_format": "NCHW"}))
class DepthToSpace(BlockMove):
    """Channels become blocks of block_size x block_size; the block index is outermost (DCR) or innermost (CRD)."""

    mode: str = "DCR"
    zero_preserving = True
    inputs = ("x",)

    def infer(self, x: TensorDesc) -> TensorDesc:
        batch, channels, size = self.sizes(x)
        area = self.block_size**2
        if channels >= 0 and channels % area:
            raise InferenceError(f"{channels} channels are not a multiple of {area} (block_size {self.block_size})")
        grown = [dim * self.block_size if dim >= 0 else -1 for dim in size]
        return self.described(x, batch, channels // area if channels >= 0 else -1, grown)

    def moved(self, x: Array) -> tuple[Array, tuple[int, ...]]:
        b = self.block_size
        batch, channels, (height, width) = split_shape(x.shape, self.data_format)
        depth = channels // (b * b)
        block_first = self.mode == "DCR"
        if self.data_format == "NHWC":
            inner = (b, b, depth) if block_first else (depth, b, b)
            split = x.reshape(batch, height, width, *inner)
            view = split.transpose((0, 1, 3, 2, 4, 5) if block_first else (0, 1, 4, 2, 5, 3))
        else:
            inner = (b, b, depth) if block_first else (depth, b, b)
            split = x.reshape(batch, *inner, height, width)
            view = split.transpose((0, 3, 4, 1, 5, 2) if block_first else (0, 1, 4, 2, 5, 3))
        return view, join_shape(batch, depth, (height * b, width * b), self.data_format)


@operator(onnx=From("SpaceToDepth", attrs={"blocksize": "block_size"}, defaults={"data_format": "NCHW"}))
class SpaceToDepth(BlockMove):
    """Blocks of block_size x block_size become channels, the block index outermost."""

    zero_preserving = True
    inputs = ("x",)

    def infer(self, x: TensorDesc) -> TensorDesc:
        batch, channels, size = self.sizes(x)
        if any(dim >= 0 and dim % self.block_size for dim in size):
            raise InferenceError(f"size {list(size)} is not a multiple of block_size {self.block_size}")
        shrunk = [dim // self.block_size if dim >= 0 else -1 for dim in size]
        return self.described(x, batch, channels * self.block_size**2 if channels >= 0 else -1, shrunk)

    def moved(self, x: Array) -> tuple[Array, tuple[int, ...]]:
        b = self.block_size
        batch, channels, (height, width) = split_shape(x.shape, self.data_format)
        rows, columns = height // b, width // b
        if self.data_format == "NHWC":
            view = x.reshape(batch, rows, b, columns, b, channels).transpose(0, 1, 3, 2, 4, 5)
        else:
            view = x.reshape(batch, channels, rows, b, columns, b).transpose(0, 3, 5, 1, 2, 4)
        return view, join_shape(batch, channels * b * b, (rows, columns), self.data_format)
