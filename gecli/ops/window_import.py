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
    kernel = node.attr("kernel_shape")
    if kernel is None:
        desc = None if filter is None else build.desc(filter)
        if desc is None or desc.logical_shape == UNKNOWN_RANK:
            raise node.fault("kernel_shape is missing and the shape of the filter is unknown")
        kernel = desc.logical_shape[2:]
    kernel = tuple(kernel)
    ones = (1,) * len(kernel)
    strides = tuple(node.attr("strides", ones))
    dilations = tuple(node.attr("dilations", ones))
    pads = interleaved(node.attr("pads", (0, 0) * len(kernel)))
    auto_pad = node.attr("auto_pad", "NOTSET")
    auto_pad = auto_pad.decode() if isinstance(auto_pad, bytes) else auto_pad
    if auto_pad in ("SAME_UPPER", "SAME_LOWER"):
        size = input_size(build, node.input(0), len(kernel))
        if size is not None and min(kernel) >= 0:
            pads, auto_pad = flat(same_pads(size, kernel, strides, dilations, auto_pad == "SAME_LOWER")), "NOTSET"
    elif auto_pad == "VALID":
        pads, auto_pad = (0, 0) * len(kernel), "NOTSET"
    return Window(kernel, strides, dilations, pads, auto_pad)


def input_size(build: Builder, x: Port, axes: int) -> tuple[int, ...] | None:
    """The spatial size of [N, C, spatial...]; None unless all of it is known."""
    desc = build.desc(x)
    if desc is None or len(desc.logical_shape) != axes + 2 or min(desc.logical_shape[2:], default=0) < 0:
        return None
    return desc.logical_shape[2:]
