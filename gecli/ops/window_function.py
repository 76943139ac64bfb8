"""ONNX's window functions, which become constants: GE has no operators for them."""

from __future__ import annotations

import numpy as np

from gecli.ir.dtype import DataType
from gecli.ops.onnx_import import Builder, OnnxNode, importer

# The window is the sum of coefficient * cos(2 pi k n / N) over k. Values as in the ONNX definitions.
_COSINES = {
    "HannWindow": (0.5, -0.5),
    "HammingWindow": (25 / 46, -21 / 46),
    "BlackmanWindow": (0.42, -0.5, 0.08),
}


def window(node: OnnxNode, build: Builder) -> None:
    """A periodic (default) or symmetric window of a constant size."""
    size = build.constant(node.input(0))
    if size is None:
        raise node.fault("the size of a window must be constant")
    number = int(node.attr("output_datatype", 1))
    dtype = DataType.from_onnx(number)
    if dtype is None:
        raise node.fault(f"output_datatype {number} is not a type of GE")
    count = int(size.reshape(()))
    period = count if node.attr("periodic", 1) else count - 1
    angle = 2 * np.pi * np.arange(count) / max(period, 1)
    values = sum(weight * np.cos(k * angle) for k, weight in enumerate(_COSINES[node.op]))
    build.output(0, build.const(np.asarray(values).astype(dtype.numpy), "window"))


for _op in _COSINES:
    importer(_op, since=17)(window)
