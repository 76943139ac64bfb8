"""Losses and their gradients (training.md 1)."""

from __future__ import annotations

from typing import Any

import numpy as np

from gecli.ir.dtype import DataType
from gecli.ir.tensor_desc import UNKNOWN_RANK, TensorDesc
from gecli.ops.inference import InferenceError, broadcast_descs, plain
from gecli.ops.numeric import Array, in_float32
from gecli.ops.onnx_import import Builder, OnnxNode, importer
from gecli.ops.operator import From, operator
from gecli.ops.rnn_cells import sigmoid
from gecli.ops.shape import shaped, unknown

TINY = 1e-12  # BinaryCrossEntropy's floor
NO_CLASS = -100  # a label that no model uses: nothing is ignored


def reduced(loss: Array, reduction: str) -> Array:
    """none, sum or mean over all elements. Raises ValueError."""
    if reduction == "none":
        return loss
    if reduction not in ("sum", "mean"):
        raise ValueError(f"reduction {reduction!r} is not one of none, sum, mean")
    total = loss.sum(dtype=loss.dtype)
    return np.asarray(total if reduction == "sum" else total / loss.dtype.type(max(loss.size, 1)))


def mean_divisor(x: Array, reduction: str) -> Any:
    """What a gradient is divided by."""
    return x.dtype.type(x.size if reduction == "mean" else 1)


def reduced_desc(desc: TensorDesc, reduction: str) -> TensorDesc:
    return plain(desc) if reduction == "none" else shaped(desc, ())


def class_axis(rank: int) -> int:
    """Where the classes are: the last axis of [B, C], axis 1 of NCHW."""
    return 1 if rank == 4 else rank - 1


def cross_entropy(features: Array, labels: Array, axis: int) -> tuple[Array, Array]:
    """The loss of each sample and the gradient of the features; a label of 0 adds nothing, also against inf."""
    features, labels = np.broadcast_arrays(features, labels)
    z = features - features.max(axis, keepdims=True)
    powers = np.exp(z)
    total = powers.sum(axis, keepdims=True)
    with np.errstate(invalid="ignore"):
        terms = labels * (np.log(total) - z)
    loss = np.where(labels == 0, features.dtype.type(0), terms).sum(axis)
    return loss, powers / total - labels


@operator()
class SoftmaxCrossEntropyWithLogits:
    """Cross entropy of softmax(features) and labels, and its gradient."""

    outputs = ("loss", "backprop")

    def infer(self, features: TensorDesc, labels: TensorDesc) -> tuple[TensorDesc, ...]:
        both = broadcast_descs([features, labels])
        if both.shape == UNKNOWN_RANK:
            return unknown(features, None), unknown(features, None)
        if len(both.shape) not in (2, 4):
            raise InferenceError(f"features {list(features.shape)} must have rank 2 or 4")
        axis = class_axis(len(both.shape))
        return shaped(features, (*both.shape[:axis], *both.shape[axis + 1 :])), both

    @in_float32
    def kernel(self, features: Array, labels: Array) -> tuple[Array, ...]:
        return cross_entropy(features, labels, class_axis(max(features.ndim, labels.ndim)))


@operator()
class SparseSoftmaxCrossEntropyWithLogits:
    """Cross entropy of softmax(features) with class numbers as labels, and its gradient."""

    outputs = ("loss", "backprop")

    def infer(self, features: TensorDesc, labels: TensorDesc) -> tuple[TensorDesc, ...]:
        if features.shape == UNKNOWN_RANK:
            return unknown(features, 1), unknown(features, 2)
        if len(features.shape) != 2:
            raise InferenceError(f"features {list(features.shape)} must have rank 2")
        return shaped(features, features.shape[:1]), plain(features)

    @in_float32
    def kernel(self, features: Array, labels: Array) -> tuple[Array, ...]:
        classes = features.shape[1]
        wrong = (labels < 0) | (labels >= classes)
        if wrong.any():
            position = int(np.flatnonzero(wrong)[0])
            raise IndexError(f"label {labels.reshape(-1)[position]} at {position} is outside 0..{classes - 1}")
        rows = np.arange(features.shape[0])
        z = features - features.max(1, keepdims=True)
        powers = np.exp(z)
        total = powers.sum(1, keepdims=True)
        backprop = powers / total
        backprop[rows, labels] -= 1
        return np.log(total[:, 0]) - z[rows, labels], backprop


def logistic_loss(p: Array, t: Array) -> Array:
    """max(p, 0) - p t + log1p(exp(-|p|))."""
    return np.maximum(p, 0) - p * t + np.log1p(np.exp(-np.abs(p)))


@operator()
class SigmoidCrossEntropyWithLogits:
    """Cross entropy of sigmoid(predict) and target, element by element."""

    outputs = ("loss",)

    def infer(self, predict: TensorDesc, target: TensorDesc) -> TensorDesc:
        return broadcast_descs([predict, target])

    @in_float32
    def kernel(self, predict: Array, target: Array) -> Array:
        return logistic_loss(predict, target)


@operator()
class SigmoidCrossEntropyWithLogitsGrad:
    """(sigmoid(predict) - target) * dout."""

    outputs = ("gradient",)
    zero_preserving = True

    def infer(self, predict: TensorDesc, target: TensorDesc, dout: TensorDesc) -> TensorDesc:
        return broadcast_descs([predict, target, dout])

    @in_float32
    def kernel(self, predict: Array, target: Array, dout: Array) -> Array:
        return (sigmoid(predict) - target) * dout


def _or_one(x: Array, values: Array | None) -> Array:
    return np.ones((), x.dtype) if values is None else values


@operator()
class SigmoidCrossEntropyWithLogitsV2:
    """SigmoidCrossEntropyWithLogits with a weight, a weight of the positive class and a reduction."""

    reduction: str = "mean"
    outputs = ("loss",)

    def infer(
        self,
        predict: TensorDesc,
        target: TensorDesc,
        weight: TensorDesc | None = None,
        pos_weight: TensorDesc | None = None,
    ) -> TensorDesc:
        return reduced_desc(broadcast_descs([predict, target]), self.reduction)

    @in_float32
    def kernel(
        self, predict: Array, target: Array, weight: Array | None = None, pos_weight: Array | None = None
    ) -> Array:
        positive = _or_one(predict, pos_weight)
        falling = np.log1p(np.exp(-np.abs(predict))) + np.maximum(-predict, 0)
        loss = (1 - target) * predict + (1 + (positive - 1) * target) * falling
        return reduced(loss * _or_one(predict, weight), self.reduction)


@operator()
class SigmoidCrossEntropyWithLogitsGradV2:
    """The gradient of SigmoidCrossEntropyWithLogitsV2."""

    reduction: str = "mean"
    outputs = ("gradient",)

    def infer(
        self,
        predict: TensorDesc,
        target: TensorDesc,
        dout: TensorDesc,
        weight: TensorDesc | None = None,
        pos_weight: TensorDesc | None = None,
    ) -> TensorDesc:
        return plain(predict)

    @in_float32
    def kernel(
        self,
        predict: Array,
        target: Array,
        dout: Array,
        weight: Array | None = None,
        pos_weight: Array | None = None,
    ) -> Array:
        positive = _or_one(predict, pos_weight) * target
        slope = (positive + 1 - target) * sigmoid(predict) - positive
        return slope * dout * _or_one(predict, weight) / mean_divisor(predict, self.reduction)


class _Pointwise:
    """A loss of predict and label, element by element, then reduced."""

    reduction: str = "mean"

    def infer(self, predict: TensorDesc, label: TensorDesc) -> TensorDesc:
        return reduced_desc(broadcast_descs([predict, label]), self.reduction)


@operator()
class MseLoss(_Pointwise):
    """(predict - label)^2."""

    @in_float32
    def kernel(self, predict: Array, label: Array) -> Array:
        return reduced(np.square(predict - label), self.reduction)


@operator()
class MseLossGrad:
    """2 (predict - label) dout, divided by the element count for mean."""

    reduction: str = "mean"

    def infer(self, predict: TensorDesc, label: TensorDesc, dout: TensorDesc) -> TensorDesc:
        return broadcast_descs([predict, label])

    @in_float32
    def kernel(self, predict: Array, label: Array, dout: Array) -> Array:
        return 2 * (predict - label) * dout / mean_divisor(predict - label, self.reduction)


@operator()
class LpLoss(_Pointwise):
    """|predict - label|; p must be 1."""

    p: int

    @in_float32
    def kernel(self, predict: Array, label: Array) -> Array:
        if self.p != 1:
            raise ValueError(f"LpLoss has p = 1 only, not {self.p}")
        return reduced(np.abs(predict - label), self.reduction)


@operator()
class L2Loss:
    """Half the sum of squares."""

    def infer(self, x: TensorDesc) -> TensorDesc:
        return shaped(x, ())

    @in_float32
    def kernel(self, x: Array) -> Array:
        return np.asarray(np.square(x).sum(dtype=x.dtype) / 2, x.dtype)


@operator()
class SmoothL1Loss:
    """Quadratic below sigma, linear above."""

    sigma: float = 1.0
    outputs = ("loss",)

    def infer(self, predict: TensorDesc, label: TensorDesc) -> TensorDesc:
        return plain(predict)

    @in_float32
    def kernel(self, predict: Array, label: Array) -> Array:
        sigma = predict.dtype.type(self.sigma)
        distance = np.abs(predict - label)
        return np.where(distance < sigma, distance * distance / (2 * sigma), distance - sigma / 2)


@operator()
class SmoothL1LossGrad:
    """clip((predict - label) / sigma, -1, 1) dout."""

    sigma: float = 1.0
    outputs = ("gradient",)

    def infer(self, predict: TensorDesc, label: TensorDesc, dout: TensorDesc) -> TensorDesc:
        return plain(predict)

    @in_float32
    def kernel(self, predict: Array, label: Array, dout: Array) -> Array:
        return np.clip((predict - label) / predict.dtype.type(self.sigma), -1, 1) * dout


@operator()
class BinaryCrossEntropy:
    """-w (y log x + (1 - y) log(1 - x)), the logarithms floored."""

    reduction: str = "mean"
    outputs = ("output",)

    def infer(self, x: TensorDesc, y: TensorDesc, weight: TensorDesc | None = None) -> TensorDesc:
        return reduced_desc(plain(x), self.reduction)

    @in_float32
    def kernel(self, x: Array, y: Array, weight: Array | None = None) -> Array:
        tiny = x.dtype.type(TINY)
        loss = -(y * np.log(np.maximum(x, tiny)) + (1 - y) * np.log(np.maximum(1 - x, tiny)))
        return reduced(loss * _or_one(x, weight), self.reduction)


@operator()
class BinaryCrossEntropyGrad:
    """w g (x - y) / max(x (1 - x), 1e-12)."""

    reduction: str = "mean"
    outputs = ("output",)

    def infer(
        self, x: TensorDesc, y: TensorDesc, grad_output: TensorDesc, weight: TensorDesc | None = None
    ) -> TensorDesc:
        return plain(x)

    @in_float32
    def kernel(self, x: Array, y: Array, grad_output: Array, weight: Array | None = None) -> Array:
        slope = (x - y) / np.maximum(x * (1 - x), x.dtype.type(TINY))
        return slope * grad_output * _or_one(x, weight) / mean_divisor(x, self.reduction)


def _used(x: Array, target: Array, weight: Array | None, ignore: int) -> tuple[Array, Array, Array]:
    """Rows, their classes (0 where ignored) and their weights (0 where ignored)."""
    keep = target != ignore
    classes = np.where(keep, target, 0)
    wrong = (classes < 0) | (classes >= x.shape[1])
    if wrong.any():
        position = int(np.flatnonzero(wrong)[0])
        raise IndexError(f"label {target[position]} at {position} is outside 0..{x.shape[1] - 1}")
    weights = np.ones(x.shape[1], x.dtype) if weight is None else weight
    return np.arange(len(x)), classes, np.where(keep, weights[classes], 0).astype(x.dtype)


@operator()
class NLLLoss:
    """-w[t] x[b, t] of log-probabilities; mean divides by the weights used."""

    reduction: str = "mean"
    ignore_index: int = NO_CLASS
    outputs = ("y", "total_weight")

    def infer(self, x: TensorDesc, target: TensorDesc, weight: TensorDesc | None = None) -> tuple[TensorDesc, ...]:
        y = shaped(x, ()) if self.reduction != "none" else shaped(x, target.shape)
        return y, shaped(x, ())

    @in_float32
    def kernel(self, x: Array, target: Array, weight: Array | None = None) -> tuple[Array, ...]:
        rows, classes, weights = _used(x, target, weight, self.ignore_index)
        loss = -weights * x[rows, classes]
        total = np.asarray(weights.sum(dtype=x.dtype))
        if self.reduction == "mean":
            return np.asarray(loss.sum(dtype=x.dtype) / total), total
        return reduced(loss, self.reduction), total


@operator()
class NLLLossGrad:
    """The gradient of NLLLoss."""

    reduction: str = "mean"
    ignore_index: int = NO_CLASS
    outputs = ("x_grad",)

    def infer(
        self, x: TensorDesc, y_grad: TensorDesc, target: TensorDesc, weight: TensorDesc, total_weight: TensorDesc
    ) -> TensorDesc:
        return plain(x)

    @in_float32
    def kernel(self, x: Array, y_grad: Array, target: Array, weight: Array, total_weight: Array) -> Array:
        rows, classes, weights = _used(x, target, weight, self.ignore_index)
        result = np.zeros_like(x)
        result[rows, classes] = -weights * y_grad
        return result / total_weight.reshape(()) if self.reduction == "mean" else result


@operator(onnx=From("SoftmaxCrossEntropyLoss", defaults={"ignore_index": NO_CLASS}))
class SoftmaxCrossEntropyLoss:
    """-w[t] log softmax(scores)[t] over axis 1, and the log-probabilities."""

    ignore_index: int = NO_CLASS
    reduction: str = "mean"
    outputs = ("loss", "log_prop")

    def infer(
        self, scores: TensorDesc, labels: TensorDesc, weights: TensorDesc | None = None
    ) -> tuple[TensorDesc, ...]:
        loss = shaped(scores, labels.shape if self.reduction == "none" else ())
        return loss, plain(scores)

    @in_float32
    def kernel(self, scores: Array, labels: Array, weights: Array | None = None) -> tuple[Array, ...]:
        z = scores - scores.max(1, keepdims=True)
        log_prop = z - np.log(np.exp(z).sum(1, keepdims=True, dtype=z.dtype))
        rows = np.moveaxis(log_prop, 1, -1).reshape(-1, scores.shape[1])
        index, classes, used = _used(rows, labels.reshape(-1), weights, self.ignore_index)
        loss = (-used * rows[index, classes]).reshape(labels.shape)
        if self.reduction == "mean":
            return np.asarray(loss.sum(dtype=loss.dtype) / used.sum(dtype=loss.dtype)), log_prop
        return reduced(loss, self.reduction), log_prop


@importer("NegativeLogLikelihoodLoss")
def negative_log_likelihood(node: OnnxNode, build: Builder) -> None:
    """NLLLoss of the rows: classes moved to the last axis, all other axes merged."""
    x, target, weight = node.input(0), node.input(1), node.optional(2)
    reduction, rank = node.attr("reduction", "mean"), build.rank(x)
    if rank is None:
        raise node.fault("the rank of the input must be known")
    attrs = {"reduction": reduction, "ignore_index": node.attr("ignore_index", NO_CLASS)}
    if rank == 2:
        build.output(0, build.ops("NLLLoss", 2, x, target, weight, **attrs)[0])
        return
    moved = build.op("TransposeD", x, perm=(0, *range(2, rank), 1))
    rows = build.op("Flatten", moved, axis=rank - 1)
    flat = build.op("Reshape", target, build.const(np.array([-1], np.int64), "flat"))
    loss = build.ops("NLLLoss", 2, rows, flat, weight, **attrs)[0]
    if reduction == "none":
        loss = build.op("Reshape", loss, build.op("Shape", target, dtype=int(DataType.INT64)))
    build.output(0, loss)
