"""Nodes that hold the graph together: inputs, constants, variables, outputs, identities, format conversions."""

from __future__ import annotations

from typing import Any

from gecli.ir.dtype import DataType
from gecli.ir.format import Format
from gecli.ir.tensor_desc import UNKNOWN_RANK, TensorDesc
from gecli.ir.weight import Weight
from gecli.ops.bound import Bound
from gecli.ops.inference import InferenceError, plain, same_as_input
from gecli.ops.numeric import Array
from gecli.ops.onnx_import import Builder, OnnxNode, importer
from gecli.ops.operator import From, operator

_DECLARE_OUTPUTS = "declare the outputs of the node"


def declared(self: Any, *inputs: TensorDesc | None) -> TensorDesc | tuple[TensorDesc, ...]:
    """Outputs are what the node declares: nothing can be inferred."""
    return self.out_descs[0] if len(self.out_descs) == 1 else tuple(self.out_descs)


@operator(aliases=("AippData", "AnnData"))
class Data:
    """A model input; `index` is its position."""

    index: int = 0
    inputs = ("x?",)
    foldable = False
    stateless = False
    infer = declared


@operator()
class RefData:
    """A model input whose buffer also receives the new value."""

    index: int = 0
    inputs = ("x?",)
    foldable = False
    stateless = False
    infer = declared


@operator(aliases=("Constant",))
class Const:
    """A tensor that is part of the model; a `Constant` lives in variable memory (GE: CONSTANTOP)."""

    value: Weight
    inputs = ()

    def infer(self) -> TensorDesc:
        return plain(self.value.desc)

    def kernel(self) -> Array:
        return self.value.numpy()


@operator()
class FileConstant:
    """A tensor in a file beside the model."""

    file_path: str = ""
    file_id: str = ""
    location: str = ""
    offset: int = 0
    length: int = 0
    dtype: DataType = DataType.UNDEFINED
    shape: tuple[int, ...] = ()
    original_shape: tuple[int, ...] = ()
    inputs = ()
    foldable = False
    stateless = False
    infer = declared


@operator()
class ConstPlaceHolder:
    """A constant at an address that the caller owns."""

    origin_shape: tuple[int, ...]
    origin_format: int
    storage_shape: tuple[int, ...]
    storage_format: int
    expand_dim_rules: str
    dtype: int
    addr: int
    size: int
    placement: int = 1
    inputs = ()
    foldable = False
    stateless = False

    def infer(self) -> TensorDesc:
        stored = Format(self.storage_format)
        desc = TensorDesc(DataType(self.dtype), self.storage_shape, stored)
        return desc.with_origin(self.origin_shape, Format(self.origin_format))


@operator(aliases=("VariableV2",))
class Variable:
    """A tensor that keeps its value from one run to the next."""

    index: int = 0
    container: str = ""
    shared_name: str = ""
    inputs = ("x?",)
    foldable = False
    stateless = False
    infer = declared


@operator()
class TemporaryVariable:
    """A buffer of one step: zero at its start, written by operators with references."""

    shape: tuple[int, ...]
    dtype: DataType
    var_name: str = ""
    inputs = ()
    foldable = False
    stateless = False

    def infer(self) -> TensorDesc:
        return TensorDesc(self.dtype, self.shape)

    def kernel(self) -> Array:
        import numpy as np

        return np.zeros(self.shape, self.dtype.numpy)


@operator()
class DestroyTemporaryVariable:
    """The final value of a TemporaryVariable."""

    var_name: str
    foldable = False
    stateless = False
    infer = same_as_input

    def kernel(self, x: Array) -> Array:
        return x


@operator()
class NetOutput:
    """Collects the outputs of a graph."""

    inputs = ("x*",)
    outputs = ()
    foldable = False
    stateless = False

    def infer(self, *x: TensorDesc | None) -> tuple[TensorDesc, ...]:
        return ()


@operator(aliases=("ControlTrigger", "StreamActive", "LabelSet", "LabelGoto", "LabelGotoEx"))
class NoOp:
    """A point in the order of execution."""

    inputs = ()
    outputs = ()
    foldable = False
    stateless = False

    def infer(self) -> tuple[TensorDesc, ...]:
        return ()

    def kernel(self) -> tuple[Array, ...]:
        return ()


@operator(name="Send", aliases=("Recv", "SendNotify", "RecvNotify"))
class StreamEvent:
    """Order between streams; without effect where nodes run one after the other."""

    event_id: int = 0
    inputs = ()
    outputs = ()
    foldable = False
    stateless = False

    def infer(self) -> tuple[TensorDesc, ...]:
        return ()

    def kernel(self) -> tuple[Array, ...]:
        return ()


@operator(onnx=From("Identity"), aliases=("StopGradient", "PreventGradient", "Snapshot"))
class Identity:
    """y = x."""

    zero_preserving = True
    view = True
    infer = same_as_input

    def kernel(self, x: Array) -> Array:
        return x


@operator()
class TensorMove:
    """A copy of x with a buffer of its own.

    Two copies of one tensor must not be merged, and a copy of a constant must not become one: operators with
    references write into them.
    """

    zero_preserving = True
    stateless = False
    foldable = False
    infer = same_as_input

    def kernel(self, x: Array) -> Array:
        return x.copy()


@operator()
class RefIdentity:
    """x itself, as a reference that may be written (runtime.md 5.6)."""

    zero_preserving = True
    stateless = False
    foldable = False
    view = True
    infer = same_as_input

    def kernel(self, x: Array) -> Array:
        return x


@operator()
class ReadVariableOp:
    """The value of a variable at this place in the order."""

    dtype: DataType = DataType.FLOAT
    stateless = False
    foldable = False
    infer = same_as_input

    def kernel(self, x: Array) -> Array:
        return x.copy()


@operator(name="PlaceHolder", aliases=("End",))
class PartitionBorder:
    """The border of an engine's partition: y = x."""

    peerIndex: int = 0
    parentId: str = ""
    parentOpType: str = ""
    anchorIndex: int = 0
    zero_preserving = True
    view = True
    infer = same_as_input

    def kernel(self, x: Array) -> Array:
        return x


@operator()
class IdentityN:
    """y[i] = x[i]."""

    outputs = ("y*",)
    zero_preserving = True

    def infer(self, *x: TensorDesc) -> tuple[TensorDesc, ...]:
        return tuple(plain(desc) for desc in x)

    def kernel(self, *x: Array) -> tuple[Array, ...]:
        return x


@operator(aliases=("TransDataD",))
class TransData(Bound):
    """Move a tensor between storage formats without changing its meaning."""

    src_format: Format
    dst_format: Format
    src_subformat: int = 0
    dst_subformat: int = 0
    groups: int = 1
    outputs = ("dst",)
    zero_preserving = True

    def infer(self, src: TensorDesc) -> TensorDesc:
        """What is declared; else the input's origin form in `dst_format`, of unknown dims in a blocked one.

        Those depend on the chip (C0); the pass that infers shapes knows it.
        """
        if self.out_descs and self.out_descs[0].shape != UNKNOWN_RANK:
            return self.out_descs[0]
        source = src.logical()
        if not source.format.is_origin:
            raise InferenceError(f"the output does not follow from {src} without its origin form", _DECLARE_OUTPUTS)
        target = self.dst_format
        if not target.is_origin:
            groups = max(self.groups, self.dst_subformat)
            target = target.with_groups(groups) if groups > 1 else target
            return TensorDesc(src.dtype, UNKNOWN_RANK, target, source.shape, source.format)
        shape = source.shape
        if Format.ND not in (source.format.primary, target.primary) and shape != UNKNOWN_RANK:
            from gecli.layout.axes import permutation

            axes = permutation(source.format, target)
            if len(axes) != len(shape):
                raise InferenceError(f"{source} has not the axes of {target.name}", _DECLARE_OUTPUTS)
            shape = tuple(shape[axis] for axis in axes)
        return TensorDesc(src.dtype, shape, target)

    def kernel(self, src: Array) -> Array:
        from gecli.layout.transfer import transfer

        source = self.in_descs[0]
        assert source is not None
        return transfer(src, source, self.out_descs[0])


@operator()
class ReFormat(Bound):
    """The same bytes under another format name."""

    zero_preserving = True
    view = True

    def infer(self, x: TensorDesc) -> TensorDesc:
        if self.out_descs and self.out_descs[0].shape == UNKNOWN_RANK != x.shape:
            raise InferenceError("the output of a ReFormat does not follow from its input", _DECLARE_OUTPUTS)
        return self.out_descs[0] if self.out_descs else plain(x)

    def kernel(self, x: Array) -> Array:
        return x


@importer("Constant")
def constant(node: OnnxNode, build: Builder) -> None:
    """`value` and its short forms become a Const."""
    import numpy as np

    attrs = node.attrs
    if "value" in attrs:
        build.output(0, build.const(attrs["value"].numpy(), "value"))
    elif "value_float" in attrs or "value_floats" in attrs:
        value = attrs.get("value_float", attrs.get("value_floats"))
        build.output(0, build.const(np.asarray(value, np.float32), "value"))
    elif "value_int" in attrs or "value_ints" in attrs:
        value = attrs.get("value_int", attrs.get("value_ints"))
        build.output(0, build.const(np.asarray(value, np.int64), "value"))
    else:
        kind = next((name for name in attrs if name.startswith(("sparse", "value_string"))), "no value")
        raise node.fault(f"a Constant with {kind} is not supported", "give the tensor in `value`")
