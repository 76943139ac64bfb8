"""Operators that add a border to a tensor: Pad, PadV2, PadV3, MirrorPad."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gecli.ir.op_desc import Port
from gecli.ir.tensor_desc import UNKNOWN_DIM, UNKNOWN_RANK, TensorDesc
from gecli.ops.bound import constant
from gecli.ops.inference import InferenceError
from gecli.ops.numeric import Array, Step
from gecli.ops.onnx_import import Builder, OnnxNode, importer
from gecli.ops.operator import operator
from gecli.ops.shape import Dims, ints_of, unknown

Pairs = list[tuple[int, int]]
NUMPY_MODE = {"reflect": "reflect", "symmetric": "symmetric", "edge": "edge", "wrap": "wrap", "circular": "wrap"}


def pairs_of(values: Sequence[int], contiguous: bool) -> Pairs:
    """(before, after) for each axis; not contiguous is ONNX's order, all befores and then all afters."""
    if contiguous:
        return [(values[i], values[i + 1]) for i in range(0, len(values), 2)]
    half = len(values) // 2
    return [(values[i], values[half + i]) for i in range(half)]


def padded(shape: Dims, pairs: Pairs) -> Dims:
    """The dims with borders; negative borders crop. Raises InferenceError."""
    if shape == UNKNOWN_RANK:
        return (UNKNOWN_DIM,) * len(pairs)
    if len(shape) != len(pairs):
        raise InferenceError(f"{len(pairs)} pairs of paddings do not fit {list(shape)}")
    dims = [UNKNOWN_DIM if dim < 0 else dim + before + after for dim, (before, after) in zip(shape, pairs, strict=True)]
    if any(dim < 0 for dim, old in zip(dims, shape, strict=True) if old >= 0):
        raise InferenceError(f"paddings {pairs} remove more than {list(shape)} has")
    return tuple(dims)


def pad(x: Array, pairs: Pairs, mode: str, value: Array | None = None) -> Array:
    """x with its borders."""
    padded(x.shape, pairs)
    x = x[_kept(x.shape, pairs)]
    grow = [(max(before, 0), max(after, 0)) for before, after in pairs]
    if mode == "constant":
        fill = 0 if value is None else value.reshape(-1)[0]
        return np.pad(x, grow, constant_values=fill)
    if mode not in NUMPY_MODE:
        raise ValueError(f"pad mode {mode!r} is not supported")
    return np.pad(x, grow, mode=NUMPY_MODE[mode])  # type: ignore[call-overload]  # the stubs want a literal


def _kept(shape: Dims, pairs: Pairs) -> tuple[slice, ...]:
    return tuple(
        slice(max(-before, 0), dim - max(-after, 0)) for dim, (before, after) in zip(shape, pairs, strict=True)
    )


def bind_pad(x: Array, y: Array, pairs: Pairs, value: Array | None) -> Step:
    """Fill the border of y and copy x to its middle."""
    source = x[_kept(x.shape, pairs)]
    middle = y[
        tuple(slice(max(before, 0), dim - max(after, 0)) for dim, (before, after) in zip(y.shape, pairs, strict=True))
    ]
    fill = np.zeros((), x.dtype) if value is None else value.reshape(())
    borders: list[Array] = []
    for axis, (before, after) in enumerate(pairs):
        lead = (slice(None),) * axis
        if before > 0:
            borders.append(y[(*lead, slice(0, before))])
        if after > 0:
            borders.append(y[(*lead, slice(y.shape[axis] - after, None))])
    copyto = np.copyto

    def run() -> None:
        for border in borders:
            copyto(border, fill)
        copyto(middle, source)

    return run


def _described(x: TensorDesc, pairs: Pairs) -> TensorDesc:
    return TensorDesc(x.dtype, padded(x.shape, pairs), x.format)


def _ints(array: Array) -> list[int]:
    return [int(v) for v in array.reshape(-1)]


@operator()
class PadV3:
    """A border around x: constant, edge, reflect, symmetric or wrap. Negative paddings crop.

    `paddings_contiguous` false means ONNX's order of paddings: all befores, then all afters.
    """

    mode: str = "constant"
    paddings_contiguous: bool = True
    shape_inputs = (1,)

    def infer(self, x: TensorDesc, paddings: TensorDesc, constant_values: TensorDesc | None = None) -> TensorDesc:
        known = ints_of(paddings)
        return unknown(x, x.rank) if known is None else _described(x, pairs_of(known, self.paddings_contiguous))

    def kernel(self, x: Array, paddings: Array, constant_values: Array | None = None) -> Array:
        return pad(x, pairs_of(_ints(paddings), self.paddings_contiguous), self.mode, constant_values)

    def bind(self, inputs: Sequence[Array | None], outputs: Sequence[Array]) -> Step | None:
        x, paddings, *rest = inputs
        if self.mode != "constant" or not constant(self, 1) or x is None or paddings is None:
            return None
        return bind_pad(x, outputs[0], pairs_of(_ints(paddings), self.paddings_contiguous), rest[0] if rest else None)


@operator()
class Pad:
    """A border of zeros; paddings [rank, 2]."""

    shape_inputs = (1,)
    zero_preserving = True

    def infer(self, x: TensorDesc, paddings: TensorDesc) -> TensorDesc:
        known = ints_of(paddings)
        return unknown(x, x.rank) if known is None else _described(x, pairs_of(known, True))

    def kernel(self, x: Array, paddings: Array) -> Array:
        return pad(x, pairs_of(_ints(paddings), True), "constant")


@operator()
class PadD:
    """A border of zeros; paddings are an attribute."""

    paddings: tuple[tuple[int, ...], ...]
    zero_preserving = True

    def infer(self, x: TensorDesc) -> TensorDesc:
        return _described(x, self._pairs)

    def kernel(self, x: Array) -> Array:
        return pad(x, self._pairs, "constant")

    def bind(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> Step | None:
        return bind_pad(inputs[0], outputs[0], self._pairs, None)

    @property
    def _pairs(self) -> Pairs:
        return [(pair[0], pair[1]) for pair in self.paddings]


@operator()
class PadV2:
    """A border of `constant_values`; paddings [rank, 2]."""

    shape_inputs = (1,)

    def infer(self, x: TensorDesc, paddings: TensorDesc, constant_values: TensorDesc) -> TensorDesc:
        known = ints_of(paddings)
        return unknown(x, x.rank) if known is None else _described(x, pairs_of(known, True))

    def kernel(self, x: Array, paddings: Array, constant_values: Array) -> Array:
        return pad(x, pairs_of(_ints(paddings), True), "constant", constant_values)


@operator()
class MirrorPad:
    """A border that mirrors x: REFLECT without the edge, SYMMETRIC with it; paddings [rank, 2]."""

    mode: str
    shape_inputs = (1,)
    zero_preserving = True

    def infer(self, x: TensorDesc, paddings: TensorDesc) -> TensorDesc:
        known = ints_of(paddings)
        return unknown(x, x.rank) if known is None else _described(x, pairs_of(known, True))

    def kernel(self, x: Array, paddings: Array) -> Array:
        return pad(x, pairs_of(_ints(paddings), True), self.mode.lower())


@importer("Pad", until=10)
def pad_with_attributes(node: OnnxNode, build: Builder) -> None:
    x, pads, mode = node.input(0), list(node.attr("pads", node.attr("paddings", ()))), node.attr("mode", "constant")
    if mode == "reflect":
        pairs = build.const(np.array(pairs_of(pads, False), np.int64).reshape(-1, 2), "paddings")
        build.output(0, build.op("MirrorPad", x, pairs, mode="REFLECT"))
        return
    desc = build.desc(x)
    dtype = np.dtype(np.float32) if desc is None else desc.dtype.numpy
    value = build.const(np.array(node.attr("value", 0.0)).astype(dtype), "constant_values")
    paddings = build.const(np.array(pads, np.int64), "paddings")
    build.output(0, build.op("PadV3", x, paddings, value, mode=mode, paddings_contiguous=False))


@importer("Pad", since=11)
def pad_with_inputs(node: OnnxNode, build: Builder) -> None:
    x, pads = node.input(0), node.input(1)
    axes = node.optional(3)
    if axes is not None:
        pads = _full_rank(node, build)
    mode = node.attr("mode", "constant")
    value = node.optional(2) if mode == "constant" else None
    build.output(0, build.op("PadV3", x, pads, value, mode=mode, paddings_contiguous=False))


def _full_rank(node: OnnxNode, build: Builder) -> Port:
    """The paddings of `axes` as paddings of all axes."""
    x, pads, axes = node.input(0), node.input(1), build.constant(node.optional(3))
    rank = build.rank(x)
    if axes is None or rank is None:
        raise node.fault("axes must be constant and the rank of the input known", "give pads for all axes")
    places = [int(axis) % rank for axis in axes.reshape(-1)]
    known = build.constant(pads)
    order = np.array([*places, *(rank + place for place in places)], np.int64).reshape(-1, 1)
    if known is None:
        zeros = build.const(np.zeros(2 * rank, np.int64), "zeros")
        return build.op("TensorScatterUpdate", zeros, build.const(order, "indices"), pads)
    full = np.zeros(2 * rank, np.int64)
    full[order[:, 0]] = known.reshape(-1)
    return build.const(full, "paddings")
