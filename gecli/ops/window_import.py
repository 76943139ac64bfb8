"""The window attributes of ONNX's Conv, ConvTranspose and pooling nodes, in GE's form."""

from __future__ import annotations

from typing import Any, NamedTuple

from gecli.ir.op_desc import Port
from gecli.ir.tensor_desc import UNKNOWN_RANK
from gecli.ops.onnx_import import Builder, OnnxNode
from gecli.ops.windows import flat, interleaved, same_pads


class Window(NamedTuple):
    """One entry for each spatial axis; `pads` in GE's order; `auto_pad` is NOTSET when `pads` hold."""

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads: tuple[int, ...]
    auto_pad: str

    def with_leading_axis(self) -> Window:
        """A 1-D window as a 2-D one over an axis of size 1."""
        return Window((1, *self.kernel), (1, *self.strides), (1, *self.dilations), (0, 0, *self.pads), self.auto_pad)

    def attributes(self, data_format: str) -> dict[str, Any]:
        """GE's convolution attributes: lists in data_format order."""
        attributes: dict[str, Any] = {
            "strides": (1, 1, *self.strides),
            "pads": self.pads,
            "dilations": (1, 1, *self.dilations),
            "data_format": data_format,
        }
        if self.auto_pad != "NOTSET":
            attributes["auto_pad"] = self.auto_pad
        return attributes


def read_window(node: OnnxNode, build: Builder, filter: Port | None = None) -> Window:
    """The window of a node; the kernel of a convolution may be known from its filter only.

    `auto_pad` becomes explicit pads where the input size is known.
    """
    desc = None if filter is None else build.desc(filter)
    filter_size = None if desc is None or desc.logical_shape == UNKNOWN_RANK else desc.logical_shape[2:]
    if node.attr("kernel_shape") is not None:
        kernel = _numbers(node, "kernel_shape", None)
        if filter_size is not None and len(kernel) != len(filter_size):
            raise node.fault(f"kernel_shape is {list(kernel)}, but the filter has the size {list(filter_size)}")
    elif filter_size is not None:
        kernel = filter_size
    else:
        raise node.fault("kernel_shape is missing and the shape of the filter is unknown")
    if not kernel:
        raise node.fault("the window has no axes", "give the filter at least 3 dims")
    axes = len(kernel)
    strides = _numbers(node, "strides", axes)
    dilations = _numbers(node, "dilations", axes)
    pads = interleaved(_numbers(node, "pads", 2 * axes, default=0, low=None))
    auto_pad = node.attr("auto_pad", "NOTSET")
    auto_pad = auto_pad.decode() if isinstance(auto_pad, bytes) else auto_pad
    if auto_pad in ("SAME_UPPER", "SAME_LOWER"):
        size = input_size(build, node.input(0), axes)
        if size is not None and min(kernel) >= 0:
            pads, auto_pad = flat(same_pads(size, kernel, strides, dilations, auto_pad == "SAME_LOWER")), "NOTSET"
    elif auto_pad == "VALID":
        pads, auto_pad = (0, 0) * len(kernel), "NOTSET"
    return Window(kernel, strides, dilations, pads, auto_pad)


def _numbers(node: OnnxNode, name: str, count: int | None, default: int = 1, low: int | None = 1) -> tuple[int, ...]:
    """A list attribute of `count` integers, none below `low`. Raises InputError."""
    values = node.attr(name, ()) or (default,) * (count or 0)
    if not isinstance(values, tuple) or not all(type(value) is int for value in values):
        raise node.fault(f"{name} must be a list of integers")
    if count is not None and len(values) != count:
        raise node.fault(f"{name} has {len(values)} values, {count} are needed: {list(values)}")
    if low is not None and min(values, default=low) < low:
        raise node.fault(f"{name} must be {low} or more: {list(values)}")
    return values


def input_size(build: Builder, x: Port, axes: int) -> tuple[int, ...] | None:
    """The spatial size of [N, C, spatial...]; None unless all of it is known."""
    desc = build.desc(x)
    if desc is None or len(desc.logical_shape) != axes + 2 or min(desc.logical_shape[2:], default=0) < 0:
        return None
    return desc.logical_shape[2:]
