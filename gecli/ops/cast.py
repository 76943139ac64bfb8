"""Cast: converting element types, by the one implementation of `gecli.layout.cast`."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gecli.ir.dtype import DataType
from gecli.ir.tensor_desc import TensorDesc
from gecli.layout.cast import cast
from gecli.ops.inference import plain
from gecli.ops.numeric import Array, Step
from gecli.ops.onnx_import import Builder, OnnxNode, importer
from gecli.ops.operator import operator
from gecli.ops.raw_types import RAW_TYPES


@operator()
class Cast:
    """The elements of x as `dst_type`."""

    dst_type: DataType
    zero_preserving = True

    def infer(self, x: TensorDesc) -> TensorDesc:
        return plain(x).with_dtype(self.dst_type)

    def kernel(self, x: Array) -> Array:
        source = self._source(x)
        return x if source == self.dst_type else cast(x, source, self.dst_type)

    def bind(self, inputs: Sequence[Array], outputs: Sequence[Array]) -> Step | None:
        """Numpy's own conversion wherever it is the same: not for floats to integers, which saturate here."""
        (x,), (y,) = inputs, outputs
        if x.dtype.isbuiltin != 1 or y.dtype.isbuiltin != 1 or "c" in (x.dtype.kind + y.dtype.kind):
            return None
        source = self._source(x)
        if x.dtype.hasobject or y.dtype.hasobject or source.numpy != x.dtype:
            return None
        if source != self.dst_type and not RAW_TYPES.isdisjoint((source, self.dst_type)):
            return None
        if y.dtype.kind == "b":
            zero = x.dtype.type(0)
            return lambda: np.not_equal(x, zero, y)
        if x.dtype.kind == "f" and y.dtype.kind != "f":
            return None
        return lambda: np.copyto(y, x, casting="unsafe")

    def _source(self, x: Array) -> DataType:
        desc: TensorDesc | None = self.in_descs[0] if self.in_descs else None  # type: ignore[attr-defined]  # operator
        return DataType.from_numpy(x.dtype) if desc is None else desc.dtype


@importer("Cast", since=6)
def import_cast(node: OnnxNode, build: Builder) -> None:
    """`to` is the number of the ONNX type; `saturate` is an option of the run, not of the node."""
    to = int(node.attr("to", 0))
    dtype = DataType.from_onnx(to)
    if dtype is None:
        raise node.fault(f"cannot cast to ONNX type {to}")
    build.output(0, build.op("Cast", node.input(0), dst_type=dtype))


@importer("CastLike", since=15)
def import_cast_like(node: OnnxNode, build: Builder) -> None:
    """The second input only gives its type."""
    desc = build.desc(node.input(1))
    if desc is None or desc.dtype is DataType.UNDEFINED:
        raise node.fault("the type of input 1 is not known", do="run onnx shape inference on the model first")
    build.output(0, build.op("Cast", node.input(0), dst_type=desc.dtype))
