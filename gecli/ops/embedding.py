"""Tables of rows: the gradient of a look-up, and look-ups summed by bags (training.md 8)."""

from __future__ import annotations

import numpy as np

from gecli.ir.tensor_desc import UNKNOWN_DIM, UNKNOWN_RANK, TensorDesc
from gecli.ops.gather import checked
from gecli.ops.numeric import Array, in_float32
from gecli.ops.operator import operator
from gecli.ops.shape import shaped, unknown


@operator()
class EmbeddingBag:
    """Rows of a table, summed, averaged or their maximum over each bag; padding rows are skipped."""

    mode: str = "mean"
    scale_grad_by_freq: bool = False
    sparse: bool = False
    include_last_offset: bool = False
    padding_idx: int = -1
    outputs = ("y", "offset2bag", "bag_size", "max_indices")

    def infer(
        self,
        weight: TensorDesc,
        indices: TensorDesc,
        offsets: TensorDesc | None = None,
        per_sample_weights: TensorDesc | None = None,
    ) -> tuple[TensorDesc, ...]:
        bags = self._bags(indices, offsets)
        width = weight.shape[-1] if weight.shape != UNKNOWN_RANK else UNKNOWN_DIM
        count = indices.elements if indices.is_static else UNKNOWN_DIM
        return (
            shaped(weight, (bags, width)),
            shaped(indices, (count,)),
            shaped(indices, (bags,)),
            shaped(indices, (bags, width) if self.mode == "max" else (bags,)),
        )

    def _bags(self, indices: TensorDesc, offsets: TensorDesc | None) -> int:
        given = indices if offsets is None else offsets
        if given.shape == UNKNOWN_RANK or given.shape[0] < 0:
            return UNKNOWN_DIM
        return given.shape[0] - (1 if offsets is not None and self.include_last_offset else 0)

    @in_float32
    def kernel(
        self,
        weight: Array,
        indices: Array,
        offsets: Array | None = None,
        per_sample_weights: Array | None = None,
    ) -> tuple[Array, ...]:
        flat = checked(indices.reshape(-1), len(weight), negative=False)
        starts = np.arange(0, flat.size, indices.shape[1]) if offsets is None else offsets.astype(np.int64)
        if offsets is not None and self.include_last_offset:
            starts = starts[:-1]
        ends = np.append(starts[1:], flat.size)
        factors = None if per_sample_weights is None else per_sample_weights.reshape(-1)
        bags, width = len(starts), weight.shape[1]
        y = np.zeros((bags, width), weight.dtype)
        sizes = np.zeros(bags, indices.dtype)
        largest = np.full((bags, width) if self.mode == "max" else bags, 0, indices.dtype)
        for bag, (start, end) in enumerate(zip(starts, ends, strict=True)):
            places = np.arange(start, end)
            places = places[flat[places] != self.padding_idx]
            sizes[bag] = places.size
            if not places.size:
                continue
            rows = weight[flat[places]]
            if factors is not None:
                rows = rows * factors[places, None]
            if self.mode == "max":
                best = rows.argmax(0)
                y[bag], largest[bag] = rows[best, np.arange(width)], flat[places][best]
            else:
                total = rows.sum(0, dtype=weight.dtype)
                y[bag] = total / weight.dtype.type(places.size) if self.mode == "mean" else total
        owners = np.repeat(np.arange(bags), ends - starts).astype(indices.dtype)
        return y, owners, sizes, largest if self.mode == "max" else sizes.copy()


@operator()
class EmbeddingDenseGrad:
    """The gradient of a table's rows: sums of the gradients of their uses."""

    num_weights: int
    padding_idx: int = -1
    scale_grad_by_freq: bool = False

    def infer(self, grad: TensorDesc, indices: TensorDesc) -> TensorDesc:
        if grad.shape == UNKNOWN_RANK:
            return unknown(grad, 2)
        return shaped(grad, (self.num_weights, grad.shape[-1]))

    def kernel(self, grad: Array, indices: Array) -> Array:
        rows = grad.reshape(-1, grad.shape[-1])
        picks = checked(indices.reshape(-1), self.num_weights, negative=False)
        wide = np.zeros((self.num_weights, rows.shape[1]), np.promote_types(grad.dtype, np.float32))
        np.add.at(wide, picks, rows)
        if self.scale_grad_by_freq:
            counts = np.bincount(picks, minlength=self.num_weights)
            wide /= np.maximum(counts, 1).astype(wide.dtype)[:, None]
        if 0 <= self.padding_idx < self.num_weights:
            wide[self.padding_idx] = 0
        return wide.astype(grad.dtype)
