"""Choosing boxes: non-maximum suppression."""

from __future__ import annotations

import numpy as np

from gecli.ir.dtype import DataType
from gecli.ir.tensor_desc import UNKNOWN_DIM, TensorDesc
from gecli.ops.numeric import Array
from gecli.ops.onnx_import import Builder, OnnxNode, importer
from gecli.ops.operator import operator


@operator()
class NonMaxSuppressionV6:
    """Rows (batch, class, box) of the boxes kept for each class, best first.

    A box is dropped when its score is not above `score_threshold` or when it overlaps a better one of its class by
    more than `iou_threshold`.
    """

    center_point_box: int = 0
    max_boxes_size: int = 0
    outputs = ("selected_indices",)

    def infer(
        self,
        boxes: TensorDesc,
        scores: TensorDesc,
        max_output_size: TensorDesc | None = None,
        iou_threshold: TensorDesc | None = None,
        score_threshold: TensorDesc | None = None,
        index_id: TensorDesc | None = None,
    ) -> TensorDesc:
        return TensorDesc(DataType.INT32, (UNKNOWN_DIM, 3))

    def kernel(
        self,
        boxes: Array,
        scores: Array,
        max_output_size: Array | None = None,
        iou_threshold: Array | None = None,
        score_threshold: Array | None = None,
        index_id: Array | None = None,
    ) -> Array:
        most = 0 if max_output_size is None else int(max_output_size.reshape(()))
        limit = 0.0 if iou_threshold is None else float(iou_threshold.reshape(()))
        lowest = None if score_threshold is None else float(score_threshold.reshape(()))
        rows: list[tuple[int, int, int]] = []
        for batch in range(scores.shape[0] if most > 0 else 0):
            corners = _corners(boxes[batch].astype(np.float32), bool(self.center_point_box))
            for kind in range(scores.shape[1]):
                kept = suppress(corners, scores[batch, kind].astype(np.float32), most, limit, lowest)
                rows += [(batch, kind, box) for box in kept]
        return np.array(rows, np.int32).reshape(-1, 3)


def suppress(corners: Array, scores: Array, most: int, limit: float, lowest: float | None) -> list[int]:
    """Boxes `[n, 4]` (low and high corners) that survive greedy suppression, best first, at most `most`."""
    order = np.argsort(-scores, kind="stable")
    if lowest is not None:
        order = order[scores[order] > lowest]
    areas = (corners[:, 2] - corners[:, 0]) * (corners[:, 3] - corners[:, 1])
    kept: list[int] = []
    while order.size and len(kept) < most:
        best = int(order[0])
        kept.append(best)
        order = order[1:]
        low = np.maximum(corners[order, :2], corners[best, :2])
        high = np.minimum(corners[order, 2:], corners[best, 2:])
        common = np.prod(np.maximum(high - low, 0), axis=1)
        union = areas[order] + areas[best] - common
        overlap = np.divide(common, union, out=np.zeros_like(common), where=(union > 0) & (common > 0))
        order = order[overlap <= limit]
    return kept


def _corners(boxes: Array, centered: bool) -> Array:
    """Boxes as low and high corner, whichever diagonal was given."""
    first, second = boxes[:, :2], boxes[:, 2:]
    if centered:
        return np.concatenate([first - second / 2, first + second / 2], axis=1)
    return np.concatenate([np.minimum(first, second), np.maximum(first, second)], axis=1)


@importer("NonMaxSuppression", since=10)
def non_max_suppression(node: OnnxNode, build: Builder) -> None:
    """GE's indices are INT32, ONNX's INT64."""
    optional = [node.optional(slot) for slot in (2, 3, 4)]
    while optional and optional[-1] is None:
        optional.pop()
    kept = build.op(
        "NonMaxSuppressionV6",
        node.input(0),
        node.input(1),
        *optional,
        center_point_box=int(node.attr("center_point_box", 0)),
    )
    build.output(0, build.op("Cast", kept, dst_type=DataType.INT64))
