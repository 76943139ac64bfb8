"""Quantisation: Ascend's operators, GE's Quantize and Dequantize, ONNX's linear quantisation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gecli.ir.dtype import DataType
from gecli.ir.op_desc import Port
from gecli.ir.tensor_desc import UNKNOWN_RANK, TensorDesc
from gecli.ops.bound import constant
from gecli.ops.conv_steps import floats, scratch_of
from gecli.ops.inference import normalise_axis, plain
from gecli.ops.numeric import Array, Step, in_float32, is_half
from gecli.ops.onnx_import import Builder, OnnxNode, importer
from gecli.ops.operator import From, operator

# Torch's names, which GE's Quantize takes; every other GE name is accepted too.
TORCH = {"torch.qint8": DataType.INT8, "torch.quint8": DataType.UINT8, "torch.qint32": DataType.INT32}
ROUND: dict[str, Callable[[Array], Array]] = {
    "round": np.rint,
    "floor": np.floor,
    "ceil": np.ceil,
    "trunc": np.trunc,
}
NARROW = {DataType.INT4: (-8, 7), DataType.UINT2: (0, 3), DataType.INT2: (-2, 1), DataType.UINT1: (0, 1)}


def saturated(x: Array, dtype: DataType) -> Array:
    """Rounded numbers in an integer type, clamped to its range; narrow floats are clamped, then rounded."""
    if not dtype.is_integer:
        import ml_dtypes

        describe: Any = ml_dtypes.finfo  # has no annotations
        largest = float(describe(dtype.numpy).max)
        return np.clip(x, -largest, largest).astype(dtype.numpy)
    if dtype in NARROW:
        low, high = NARROW[dtype]
    else:
        info = np.iinfo(dtype.numpy)
        low, high = int(info.min), int(info.max)
    if high > 1 << 24:  # beyond what a float32 holds exactly
        x = x.astype(np.float64)
    return np.clip(x, low, high).astype(dtype.numpy)


def rounding(mode: str) -> Callable[[Array], Array]:
    """The function of a round_mode. Raises ValueError."""
    if mode.lower() not in ROUND:
        raise ValueError(f"round_mode {mode!r} is not one of {', '.join(ROUND)}")
    return ROUND[mode.lower()]


def along(values: Array, rank: int, axis: int) -> Array:
    """A vector of per-channel numbers, shaped to broadcast along `axis`."""
    if values.size == 1:
        return values.reshape(())
    shape = [1] * rank
    shape[normalise_axis(axis, rank)] = -1
    return values.reshape(shape)


def _wide(x: Array) -> Array:
    return x.astype(np.float32) if is_half(x.dtype) else x


@operator()
class AscendQuant:
    """round(x * scale + offset), saturated."""

    scale: float
    offset: float
    sqrt_mode: bool = False
    round_mode: str = "Round"
    dst_type: int = 2

    def infer(self, x: TensorDesc) -> TensorDesc:
        return plain(x).with_dtype(DataType(self.dst_type))

    def kernel(self, x: Array) -> Array:
        wide = _wide(x)
        scale = self.scale * self.scale if self.sqrt_mode else self.scale
        scaled = wide * wide.dtype.type(scale) + wide.dtype.type(self.offset)
        return saturated(rounding(self.round_mode)(scaled), DataType(self.dst_type))


@operator()
class AscendQuantV2:
    """round(x * scale + offset) along an axis, saturated."""

    sqrt_mode: bool = False
    round_mode: str = "round"
    dst_type: int = 2
    axis: int = -1

    def infer(self, x: TensorDesc, scale: TensorDesc, offset: TensorDesc | None = None) -> TensorDesc:
        return plain(x).with_dtype(DataType(self.dst_type))

    def kernel(self, x: Array, scale: Array, offset: Array | None = None) -> Array:
        wide = _wide(x)
        factor = along(_wide(scale), x.ndim, self.axis)
        scaled = wide * (factor * factor if self.sqrt_mode else factor)
        if offset is not None:
            scaled = scaled + along(_wide(offset), x.ndim, self.axis)
        return saturated(rounding(self.round_mode)(scaled), DataType(self.dst_type))


def device_scale(scale: Array) -> Array:
    """A float scale; a UINT64 one holds a float in its low 32 bits."""
    if scale.dtype == np.uint64:
        return (scale & np.uint64(0xFFFFFFFF)).astype(np.uint32).view(np.float32)
    return _wide(scale)


@operator()
class AscendDequant:
    """x * deq_scale, per tensor or per channel (axis 1, the last for rank 2)."""

    sqrt_mode: bool = False
    relu_flag: bool = False
    dtype: int = 0

    def infer(self, x: TensorDesc, deq_scale: TensorDesc) -> TensorDesc:
        return plain(x).with_dtype(DataType(self.dtype))

    def kernel(self, x: Array, deq_scale: Array) -> Array:
        scale = along(device_scale(deq_scale), x.ndim, 1 if x.ndim > 2 else -1)
        y = x.astype(np.float32) * (scale * scale if self.sqrt_mode else scale)
        return (np.maximum(y, 0) if self.relu_flag else y).astype(DataType(self.dtype).numpy)


@operator()
class AscendAntiQuant:
    """(x + offset) * scale."""

    scale: float
    offset: float
    dtype: int = 0
    sqrt_mode: bool = False

    def infer(self, x: TensorDesc) -> TensorDesc:
        return plain(x).with_dtype(DataType(self.dtype))

    def kernel(self, x: Array) -> Array:
        scale = np.float32(self.scale * self.scale if self.sqrt_mode else self.scale)
        return ((x.astype(np.float32) + np.float32(self.offset)) * scale).astype(DataType(self.dtype).numpy)


@operator()
class AscendRequant:
    """round(x * req_scale) as INT8, per tensor or per channel."""

    relu_flag: bool = False

    def infer(self, x: TensorDesc, req_scale: TensorDesc) -> TensorDesc:
        return plain(x).with_dtype(DataType.INT8)

    def kernel(self, x: Array, req_scale: Array) -> Array:
        y = x.astype(np.float32) * along(device_scale(req_scale), x.ndim, 1 if x.ndim > 2 else -1)
        return saturated(np.rint(np.maximum(y, 0) if self.relu_flag else y), DataType.INT8)


def blocks(values: Array, axis: int, block: int, dim: int) -> Array:
    """Per-block numbers repeated to `dim` entries along `axis`."""
    cut = [slice(None)] * values.ndim
    cut[axis] = slice(dim)
    return np.repeat(values, block, axis)[tuple(cut)]


@operator()
class Quantize:
    """saturate(round half to even(x / scales) + zero_points), per tensor or along `axis`."""

    dtype: str
    axis: int = 1
    block_size: int = 0  # gecli's extension: ONNX's blocked quantisation

    @property
    def target(self) -> DataType:
        return TORCH.get(self.dtype) or DataType.parse(self.dtype)

    def infer(self, x: TensorDesc, scales: TensorDesc, zero_points: TensorDesc | None = None) -> TensorDesc:
        return plain(x).with_dtype(self.target)

    def kernel(self, x: Array, scales: Array, zero_points: Array | None = None) -> Array:
        wide = x.astype(np.float32) if x.dtype.kind != "f" or is_half(x.dtype) else x
        scaled = wide / self._spread(_wide(scales), x)
        if not self.target.is_integer:
            return saturated(scaled, self.target)
        rounded = np.rint(scaled)
        if zero_points is not None:
            rounded = rounded + self._spread(zero_points, x).astype(wide.dtype)
        return saturated(rounded, self.target)

    def _spread(self, values: Array, x: Array) -> Array:
        if self.block_size and values.ndim == x.ndim:
            axis = normalise_axis(self.axis, x.ndim)
            return blocks(values, axis, self.block_size, x.shape[axis])
        return along(values, x.ndim, self.axis)

    def bind(self, inputs: Sequence[Array | None], outputs: Sequence[Array]) -> Step | None:
        x, scales, *rest = inputs
        zeros = rest[0] if rest else None
        target = self.target
        if x is None or scales is None or x.dtype != np.float32 or scales.dtype != np.float32 or self.block_size:
            return None
        if target not in (DataType.INT8, DataType.UINT8) or not constant(self, *range(1, len(inputs))):
            return None
        scale, y = self._spread(scales, x), outputs[0]
        offset = None if zeros is None else self._spread(zeros, x).astype(np.float32)
        low, high = np.float32(np.iinfo(y.dtype).min), np.float32(np.iinfo(y.dtype).max)
        scratch = np.empty(x.shape, np.float32)

        def run() -> None:
            np.divide(x, scale, scratch)
            np.rint(scratch, scratch)
            if offset is not None:
                np.add(scratch, offset, scratch)
            np.clip(scratch, low, high, scratch)
            np.copyto(y, scratch, "unsafe")

        return run


@operator()
class Dequantize:
    """x between min_range and max_range, by TensorFlow's modes."""

    mode: str = "MIN_COMBINED"

    def infer(self, x: TensorDesc, min_range: TensorDesc, max_range: TensorDesc) -> TensorDesc:
        return plain(x).with_dtype(DataType.FLOAT)

    def kernel(self, x: Array, min_range: Array, max_range: Array) -> Array:
        low, high = (each.reshape(-1)[0].astype(np.float32) for each in (min_range, max_range))
        info = np.iinfo(x.dtype)
        levels = np.float32(int(info.max) - int(info.min))
        q = x.astype(np.float32)
        if self.mode == "SCALED":
            widest = max(-float(low) / -int(info.min) if info.min else 0.0, float(high) / int(info.max))
            return q * np.float32(widest)
        if self.mode not in ("MIN_COMBINED", "MIN_FIRST"):
            raise ValueError(f"mode {self.mode!r} is not one of MIN_COMBINED, MIN_FIRST, SCALED")
        if info.min:
            q = q + (levels + 1) / 2 if self.mode == "MIN_COMBINED" else q - np.float32(info.min)
        return q * ((high - low) / levels) + low


@operator(onnx=From("DynamicQuantizeLinear"))
class DynamicQuantizeLinear:
    """x as UINT8 over its own range, which always holds 0; gecli's extension."""

    outputs = ("y", "y_scale", "y_zero_point")

    def infer(self, x: TensorDesc) -> tuple[TensorDesc, ...]:
        return (
            plain(x).with_dtype(DataType.UINT8),
            TensorDesc(DataType.FLOAT, ()),
            TensorDesc(DataType.UINT8, ()),
        )

    @in_float32
    def kernel(self, x: Array) -> tuple[Array, ...]:
        scale, zero = _range(x)
        y = np.rint(x / scale)
        return np.clip(y + zero, 0, 255).astype(np.uint8), np.array(scale, np.float32), np.array(zero, np.uint8)

    def bind(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> Step | None:
        (x,), (y, y_scale, y_zero_point) = inputs, outputs
        if x.dtype != np.float32:
            return None
        scratch = floats(scratch_of(self), x.size)[0].reshape(x.shape)
        low, high = np.float32(0), np.float32(255)

        def run() -> None:
            scale, zero = _range(x)
            np.divide(x, scale, scratch)
            np.rint(scratch, scratch)
            np.add(scratch, zero, scratch)
            np.clip(scratch, low, high, scratch)
            np.copyto(y, scratch, "unsafe")
            y_scale[...] = scale
            y_zero_point[...] = zero

        return run


def _range(x: Array) -> tuple[Any, Any]:
    """Scale and zero point of x's range, in float32; a range of nothing has scale 1."""
    zero = np.float32(0)
    low = min(zero, x.min().astype(np.float32)) if x.size else zero
    high = max(zero, x.max().astype(np.float32)) if x.size else zero
    scale = np.float32((high - low) / np.float32(255)) if high != low else np.float32(1)
    return scale, np.float32(np.clip(np.rint(-low / scale), 0, 255))


@importer("QuantizeLinear")
def quantize_linear(node: OnnxNode, build: Builder) -> None:
    x, scale, zero = node.input(0), node.input(1), node.optional(2)
    desc = None if zero is None else build.desc(zero)
    kind = DataType.from_onnx(node.attr("output_dtype", 0)) or (desc.dtype if desc is not None else DataType.UINT8)
    names = {found: name for name, found in TORCH.items()}
    attrs: dict[str, Any] = {"dtype": names.get(kind, kind.serial), "axis": node.attr("axis", 1)}
    if node.attr("block_size", 0):
        attrs["block_size"] = node.attr("block_size")
    build.output(0, build.op("Quantize", x, scale, zero, **attrs))


@importer("DequantizeLinear")
def dequantize_linear(node: OnnxNode, build: Builder) -> None:
    """(x - zero point) * scale: Cast, Sub, Mul in float, with scale and zero point shaped for the axis."""
    x, scale, zero = node.input(0), node.input(1), node.optional(2)
    scale_desc = build.desc(scale)
    result = DataType.FLOAT if scale_desc is None else scale_desc.dtype
    value = build.op("Cast", x, dst_type=int(DataType.FLOAT))
    if zero is not None and not _all_zero(build.constant(zero)):
        offset = build.op("Cast", _for_axis(node, build, zero, "zero_point"), dst_type=int(DataType.FLOAT))
        value = build.op("Sub", value, offset)
    factor = _for_axis(node, build, scale, "scale")
    if result is not DataType.FLOAT:
        factor = build.op("Cast", factor, dst_type=int(DataType.FLOAT))
    value = build.op("Mul", value, factor)
    asked = DataType.from_onnx(node.attr("output_dtype", 0)) or result
    if asked is not DataType.FLOAT:
        value = build.op("Cast", value, dst_type=int(asked))
    build.output(0, value)


def _all_zero(value: Array | None) -> bool:
    return value is not None and not value.astype(np.float32).any()


def _for_axis(node: OnnxNode, build: Builder, port: Port, role: str) -> Port:
    """A scale or zero point that broadcasts against the input."""
    desc, rank = build.desc(port), build.rank(node.input(0))
    if desc is None or desc.shape == UNKNOWN_RANK or desc.rank == 0:
        return port
    block = int(node.attr("block_size", 0))
    if block:
        x, value = build.desc(node.input(0)), build.constant(port)
        if x is None or rank is None or value is None:
            raise node.fault(f"blocked {role} must be constant and the shape of the input known")
        axis = normalise_axis(int(node.attr("axis", 1)), rank)
        if x.shape[axis] < 0:
            raise node.fault(f"dim {axis} of the input must be known for a blocked {role}")
        return build.const(blocks(value, axis, block, x.shape[axis]), role)
    if rank is None:
        raise node.fault(f"the rank of the input must be known for a {role} per axis")
    if desc.rank != 1 or rank == 0:
        return port
    axis = int(node.attr("axis", 1))
    if desc.shape == (1,) and not -rank <= axis < rank:
        axis = 0
    behind = rank - 1 - normalise_axis(axis, rank)
    if not behind:
        return port
    return build.op("UnsqueezeV2", port, axis=tuple(range(1, behind + 1)))
