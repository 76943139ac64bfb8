"""Data types whose elements a run holds as bare bits: they are moved and cast, never computed with.

A HIFLOAT8 is a byte to numpy, a resource a 64-bit word. A kernel would take these codes for integers.
"""

from __future__ import annotations

from collections.abc import Iterable

from gecli.ir.attributes import CONST_TYPES, DATA_TYPES, VARIABLE_TYPES
from gecli.ir.dtype import DataType
from gecli.ir.op_desc import OpDesc

RAW_TYPES = frozenset((DataType.HIFLOAT8, DataType.RESOURCE, DataType.VARIANT))

# Types that go with elements without being one of them: sizes, indices, conditions.
_BESIDE = frozenset((DataType.INT32, DataType.INT64, DataType.BOOL, DataType.UNDEFINED))
# Operators whose tensors have nothing to do with each other, or are made by nodes of their own.
_UNRELATED = frozenset(
    ("NetOutput", "Identity", "IdentityN", "ReadVariableOp", "If", "StatelessIf", "_If", "Case", "StatelessCase")
    + ("While", "StatelessWhile", "_While", "For", "PartitionedCall", "StatefulPartitionedCall", "NoOp")
    + ("Send", "Recv", "SendNotify", "RecvNotify", "StreamActive", "ControlTrigger", "LabelSet", "LabelGoto")
    + ("LabelGotoEx", "AnnData", "PlaceHolder", "End", "IsVariableInitialized", "VarIsInitializedOp", "Shape", "ShapeN")
    + ("Size", "Rank", "HcomAllGather", "HcomBroadcast", "HcomSend", "HcomReceive", "HcomAllToAll", "HcomAllToAllV")
    + ("HcomAllToAllVC", "HorovodAllgather", "HorovodBroadcast", "HvdCallbackBroadcast", "hvdCallbackBroadcast")
    + ("DestroyTemporaryVariable", "TemporaryVariable")
)
# Here an integer can be no index.
_ELEMENTS_ONLY = frozenset(("Assign", "ConcatD", "Pack"))
_SOURCES = CONST_TYPES | DATA_TYPES | VARIABLE_TYPES | {"FileConstant", "ConstPlaceHolder"}
_MOVES = frozenset(
    ("Assign", "RefIdentity", "Snapshot", "StopGradient", "PreventGradient", "TensorMove", "Reshape", "Flatten")
    + ("FlattenV2", "Squeeze", "SqueezeV2", "SqueezeV3", "Unsqueeze", "UnsqueezeV2", "UnsqueezeV3", "ExpandDims")
    + ("Transpose", "TransposeD", "Permute", "TransData", "TransDataD", "ReFormat", "DepthToSpace", "SpaceToDepth")
    + ("Concat", "ConcatD", "ConcatV2", "ConcatV2D", "Pack", "Unpack", "Split", "SplitD", "SplitV", "SplitVD")
    + ("Slice", "SliceD", "StridedSlice", "StridedSliceD", "StridedSliceV2", "Gather", "GatherElements", "GatherNd")
    + ("GatherV2", "GatherV2D", "Embedding", "EmbeddingLookup", "Tile", "TileD", "BroadcastTo", "BroadcastToD")
    + ("Expand", "ReverseV2", "ReverseV2D", "ReverseSequence", "Select", "SelectV2", "Pad", "PadD", "PadV2")
    + ("MirrorPad", "Fill", "ZerosLike", "StridedSliceAssign", "StridedSliceAssignD", "InplaceUpdate")
    + ("ScatterUpdate", "ScatterNdUpdate", "TensorScatterUpdate")
)


def raw_fault(node: OpDesc) -> str:
    """Why a node cannot have the types that it has; empty for all others."""
    kinds = _types(node)
    raw = kinds & RAW_TYPES
    if not raw or node.type in _UNRELATED or node.type in _SOURCES:
        return ""
    names = ", ".join(_serial(raw))
    if node.type == "Cast":
        others = raw - {DataType.HIFLOAT8}
        return f"{', '.join(_serial(others))} cannot be cast" if others and len(kinds) > 1 else ""
    if node.type not in _MOVES:
        return f"{names} elements are moved and cast, not computed with: neither numpy nor ml_dtypes has the type"
    mixed = kinds - ({DataType.UNDEFINED} if node.type in _ELEMENTS_ONLY else _BESIDE)
    return f"it would mix elements of {', '.join(_serial(mixed))}" if len(mixed) > 1 else ""


def _types(node: OpDesc) -> set[DataType]:
    return {desc.dtype for desc in (*node.input_descs, *node.output_descs) if desc is not None}


def _serial(types: Iterable[DataType]) -> list[str]:
    return [dtype.serial for dtype in sorted(types)]
