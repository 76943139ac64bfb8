"""Shape, join, slice and pad operators against onnxruntime, and their inference."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from gecli.ir.dtype import DataType
from gecli.ir.tensor_desc import UNKNOWN_RANK, TensorDesc
from gecli.ops.inference import InferenceError
from gecli.ops.operator import KnownDesc
from gecli.ops.registry import find
from tests.ops.onnx_judge import judge


def values(*shape: int, dtype: Any = np.float32) -> NDArray[Any]:
    return (np.arange(int(np.prod(shape))).reshape(shape) * 0.5 - 3).astype(dtype)


def ints(*numbers: int) -> NDArray[np.int64]:
    return np.array(numbers, np.int64)


X = values(2, 3, 4)
CASES: dict[str, tuple[str, list[Any], dict[str, Any], int, tuple[int, ...]]] = {
    "reshape -1": ("Reshape", [X, ints(4, -1)], {}, 13, ()),
    "reshape 0 copies": ("Reshape", [X, ints(0, -1)], {}, 7, ()),
    "reshape 0 then -1 then": ("Reshape", [X, ints(0, -1, 2)], {}, 14, ()),
    "reshape allowzero": ("Reshape", [values(0, 3), ints(3, 0)], {"allowzero": 1}, 14, ()),
    "reshape to scalar": ("Reshape", [values(1, 1), np.zeros(0, np.int64)], {}, 13, ()),
    "reshape empty": ("Reshape", [values(0, 4), ints(0, 2, 2)], {}, 13, ()),
    "reshape int": ("Reshape", [values(6, dtype=np.int32), ints(2, 3)], {}, 13, ()),
    "flatten": ("Flatten", [X], {}, 13, ()),
    "flatten 0": ("Flatten", [X], {"axis": 0}, 13, ()),
    "flatten 3": ("Flatten", [X], {"axis": 3}, 13, ()),
    "flatten -1": ("Flatten", [X], {"axis": -1}, 13, ()),
    "flatten empty": ("Flatten", [values(0, 3, 4)], {"axis": 2}, 13, ()),
    "transpose default": ("Transpose", [X], {}, 13, ()),
    "transpose perm": ("Transpose", [X], {"perm": [1, 0, 2]}, 7, ()),
    "transpose half": ("Transpose", [values(2, 3, dtype=np.float16)], {"perm": [1, 0]}, 13, ()),
    "squeeze attribute": ("Squeeze", [values(1, 3, 1)], {"axes": [0, 2]}, 11, ()),
    "squeeze all": ("Squeeze", [values(1, 3, 1)], {}, 13, ()),
    "squeeze input": ("Squeeze", [values(1, 3, 1), ints(-1)], {}, 13, ()),
    "unsqueeze attribute": ("Unsqueeze", [values(3, 2)], {"axes": [0, 3]}, 11, ()),
    "unsqueeze input": ("Unsqueeze", [values(3, 2), ints(-1, 1)], {}, 13, ()),
    "shape": ("Shape", [X], {}, 13, ()),
    "shape of empty": ("Shape", [values(0, 2)], {}, 13, ()),
    "shape start": ("Shape", [X], {"start": 1}, 15, ()),
    "shape start end": ("Shape", [X], {"start": -2, "end": -1}, 15, ()),
    "shape end beyond": ("Shape", [X], {"end": 9}, 15, ()),
    "size": ("Size", [X], {}, 13, ()),
    "identity": ("Identity", [X], {}, 13, ()),
    "expand": ("Expand", [values(3, 1), ints(2, 1, 6)], {}, 13, ()),
    "expand keeps dims": ("Expand", [values(3, 4), ints(1, 1)], {}, 8, ()),
    "expand to empty": ("Expand", [values(3, 1), ints(3, 0)], {}, 13, ()),
    "tile": ("Tile", [values(2, 3), ints(2, 2)], {}, 13, ()),
    "tile zero": ("Tile", [values(2, 3), ints(0, 2)], {}, 13, ()),
    "constant of shape": ("ConstantOfShape", [ints(2, 3)], {}, 9, ()),
    "range int": ("Range", [np.array(1), np.array(10), np.array(4)], {}, 11, ()),
    "range down": ("Range", [np.array(10), np.array(1), np.array(-3)], {}, 11, ()),
    "range none": ("Range", [np.array(5), np.array(1), np.array(3)], {}, 11, ()),
    "range float": ("Range", [np.float32(0), np.float32(1), np.float32(0.3)], {}, 11, ()),
    "eye like": ("EyeLike", [values(3, 4)], {}, 9, ()),
    "eye like k": ("EyeLike", [values(3, 4)], {"k": 1, "dtype": 7}, 9, ()),
    "eye like -k": ("EyeLike", [values(4, 3)], {"k": -2}, 9, ()),
    "triu": ("Trilu", [X], {}, 14, ()),
    "triu k": ("Trilu", [X, np.array(1)], {"upper": 1}, 14, ()),
    "tril k": ("Trilu", [X, np.array(-1)], {"upper": 0}, 14, ()),
    "concat": ("Concat", [values(2, 3), values(2, 1), values(2, 4)], {"axis": 1}, 13, ()),
    "concat two": ("Concat", [values(2, 3), values(1, 3)], {"axis": -2}, 11, ()),
    "concat one": ("Concat", [X], {"axis": 0}, 13, ()),
    "concat empty": ("Concat", [values(2, 0), values(2, 2)], {"axis": 1}, 13, ()),
    "concat bool": ("Concat", [np.array([True]), np.array([False, True])], {"axis": 0}, 13, ()),
    "slice attributes": ("Slice", [X], {"starts": [0, 1], "ends": [2, -1], "axes": [0, 2]}, 9, ()),
    "slice no axes": ("Slice", [X], {"starts": [1], "ends": [9]}, 7, ()),
    "slice": ("Slice", [X, ints(1, 0), ints(3, 2), ints(1, 2), ints(1, 1)], {}, 13, ()),
    "slice negative step": ("Slice", [X, ints(-1), ints(-(2**63)), ints(2), ints(-1)], {}, 13, ()),
    "slice negative axis": ("Slice", [X, ints(0), ints(2**63 - 1), ints(-1), ints(2)], {}, 13, ()),
    "slice beyond": ("Slice", [X, ints(2**62), ints(2**63 - 1), ints(0)], {}, 13, ()),
    "slice start beyond backwards": ("Slice", [X, ints(20), ints(0), ints(2), ints(-2)], {}, 13, ()),
    "slice without axes": ("Slice", [X, ints(0, 1), ints(1, 3)], {}, 11, ()),
    "slice strides without axes": ("Slice", [X, ints(0, 0), ints(2, 3), None, ints(1, 2)], {}, 13, ()),
    "slice int32 bounds": ("Slice", [X, np.int32([1]), np.int32([2])], {}, 13, ()),
    "pad": ("Pad", [X, ints(0, 1, 2, 1, 0, 0), np.float32(1.5)], {}, 13, ()),
    "pad no value": ("Pad", [values(2, 3, dtype=np.int64), ints(1, 0, 0, 2)], {}, 13, ()),
    "pad reflect": ("Pad", [X, ints(0, 1, 2, 0, 2, 3)], {"mode": "reflect"}, 13, ()),
    "pad edge": ("Pad", [X, ints(1, 1, 2, 0, 2, 3)], {"mode": "edge"}, 13, ()),
    "pad negative": ("Pad", [X, ints(0, -1, 2, 0, 1, -3)], {}, 13, ()),
    "pad attributes": ("Pad", [X], {"pads": [0, 1, 0, 1, 0, 2], "value": 2.0}, 10, ()),
    "pad attributes reflect": ("Pad", [X], {"pads": [0, 1, 0, 1, 0, 2], "mode": "reflect"}, 7, ()),
    "pad axes": ("Pad", [X, ints(1, 0, 2, 0), None, ints(-1, 1)], {}, 18, (3,)),
    "pad wrap": ("Pad", [X, ints(0, 1, 2, 0, 2, 3)], {"mode": "wrap"}, 19, ()),
    "reverse sequence": ("ReverseSequence", [values(4, 3, 2), ints(1, 4, 2)], {}, 10, ()),
    "reverse sequence batch first": (
        "ReverseSequence",
        [values(2, 4), ints(3, 1)],
        {"time_axis": 1, "batch_axis": 0},
        10,
        (),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_shape_operators_give_what_onnxruntime_gives(case: str) -> None:
    op, inputs, attrs, opset, constant = CASES[case]
    judge(op, inputs, attrs=attrs, opset=opset, constant=constant)


@pytest.mark.parametrize(
    "sizes, attrs, opset",
    [
        (None, {"axis": 1}, 13),
        ((1, 5), {"axis": -1}, 13),
        ((2, 0, 4), {"axis": 1}, 13),
        (None, {"num_outputs": 4, "axis": 1}, 18),
    ],
)
def test_split_gives_what_onnxruntime_gives(sizes: tuple[int, ...] | None, attrs: dict[str, Any], opset: int) -> None:
    count = len(sizes) if sizes else attrs.get("num_outputs", 3)
    inputs = [values(2, 6)] if sizes is None else [values(2, 6), ints(*sizes)]
    dynamic = opset < 18  # an uneven split needs the dim
    judge("Split", inputs, attrs=attrs, opset=opset, outputs=count, dynamic=dynamic)


def test_split_with_sizes_as_attribute_gives_what_onnxruntime_gives() -> None:
    judge("Split", [values(2, 6)], attrs={"axis": 1, "split": [2, 4]}, opset=11, outputs=2)


def test_split_into_equal_parts_with_num_outputs_works_with_unknown_dims() -> None:
    judge("Split", [values(2, 6)], attrs={"axis": 1, "num_outputs": 3}, opset=18, outputs=3)


def known(*numbers: int) -> KnownDesc:
    value = ints(*numbers)
    return KnownDesc.of(TensorDesc(DataType.INT64, value.shape), value)


def desc(*dims: int, dtype: DataType = DataType.FLOAT) -> TensorDesc:
    return TensorDesc(dtype, dims)


def infer(type: str, *descs: TensorDesc, **attrs: Any) -> Any:
    kind = find(type)
    assert kind is not None
    return kind.cls(**attrs).infer(*descs)


@pytest.mark.parametrize(
    "dims, target, found",
    [
        ((-1, 4), (0, 2, -1), (-1, 2, 2)),
        ((-1, 4), (-1, 4), (-1, 4)),
        ((2, -1, 8), (2, -1), (2, -1)),
        (UNKNOWN_RANK, (0, 3), (-1, 3)),
    ],
)
def test_reshape_infers_what_unknown_dims_allow(
    dims: tuple[int, ...], target: tuple[int, ...], found: tuple[int, ...]
) -> None:
    assert infer("Reshape", desc(*dims), known(*target)).shape == found


@pytest.mark.parametrize(
    "type, descs, attrs",
    [
        ("Reshape", (desc(2, 3), known(4, 2)), {}),
        ("Reshape", (desc(2, 3), known(-1, -1)), {}),
        ("TransposeD", (desc(2, 3),), {"perm": (0, 0)}),
        ("SqueezeV2", (desc(2, 3),), {"axis": (0,)}),
        ("ConcatD", (desc(2, 3), desc(3, 2)), {"concat_dim": 0}),
        ("ConcatD", (desc(2, 3), desc(2, 3, 1)), {"concat_dim": 0}),
        ("Split", (known(1), desc(2, 5)), {"num_split": 2}),
        ("PadV3", (desc(2, 3), known(0, 0)), {}),
        ("BroadcastTo", (desc(2, 3), known(4, 3)), {}),
        ("Expand", (desc(2, 3), known(4, 3)), {}),
        ("SliceD", (desc(2, 3),), {"offsets": (0, 1), "size": (2, 3)}),
    ],
)
def test_inputs_that_do_not_fit_are_refused(type: str, descs: tuple[TensorDesc, ...], attrs: dict[str, Any]) -> None:
    with pytest.raises(InferenceError):
        infer(type, *descs, **attrs)


@pytest.mark.parametrize(
    "type, attrs, inputs, expected",
    [
        ("FlattenV2", {"axis": 1, "end_axis": 2}, [np.zeros((2, 3, 4, 5))], np.zeros((2, 12, 5))),
        ("Permute", {"order": (1, 0)}, [values(2, 3)], values(2, 3).T),
        ("ExpandDims", {}, [values(2), np.array(-1)], values(2)[:, None]),
        ("SqueezeV3", {}, [values(1, 2)], values(2)),
        ("Rank", {}, [X], np.int32(3)),
        ("BroadcastTo", {}, [values(3, 1), ints(2, 3, 2)], np.broadcast_to(values(3, 1), (2, 3, 2))),
        ("BroadcastToD", {"shape": (2, 3)}, [values(3)], np.broadcast_to(values(3), (2, 3))),
        ("TileD", {"multiples": (2, 1)}, [values(2, 2)], np.tile(values(2, 2), (2, 1))),
        ("Eye", {"num_rows": 2, "num_columns": 3}, [], np.eye(2, 3, dtype=np.float32)),
        ("Triu", {"diagonal": 1}, [values(3, 3)], np.triu(values(3, 3), 1)),
        ("Tril", {"diagonal": -1}, [values(3, 3)], np.tril(values(3, 3), -1)),
        ("Concat", {"N": 2}, [np.array(0), values(1), values(2)], np.concatenate([values(1), values(2)])),
        ("ConcatV2", {"N": 2}, [values(1), values(2), np.array(0)], np.concatenate([values(1), values(2)])),
        ("Pack", {"axis": 1, "N": 2}, [values(3), values(3)], np.stack([values(3)] * 2, 1)),
        ("SliceD", {"offsets": (0, 1), "size": (1, -1)}, [values(2, 3)], values(2, 3)[:1, 1:]),
        ("Slice", {}, [values(2, 3), ints(1, 0), ints(-1, 2)], values(2, 3)[1:, :2]),
        ("StridedSlice", {"shrink_axis_mask": 1}, [X, ints(1, 0), ints(2, 2), ints(1, 1)], X[1, 0:2]),
        ("StridedSlice", {"new_axis_mask": 1}, [X, ints(0, 1), ints(0, 2), ints(1, 1)], X[None, 1:2]),
        ("StridedSlice", {"ellipsis_mask": 1}, [X, ints(0, 1), ints(0, 3), ints(1, 1)], X[..., 1:3]),
        ("StridedSlice", {"begin_mask": 1, "end_mask": 1}, [X, ints(1), ints(1), ints(1)], X),
        ("StridedSliceD", {"begin": (1,), "end": (2,), "strides": (1,)}, [X], X[1:2]),
        ("ReverseV2", {}, [X, ints(0, 2)], X[::-1, :, ::-1]),
        ("ReverseV2D", {"axis": (1,)}, [X], X[:, ::-1]),
        ("PadD", {"paddings": ((1, 0), (0, 2))}, [values(2, 2)], np.pad(values(2, 2), ((1, 0), (0, 2)))),
        ("Pad", {}, [values(2), ints(1, 2).reshape(1, 2)], np.pad(values(2), (1, 2))),
        ("PadV2", {}, [values(2), ints(1, 2), np.float32(9)], np.pad(values(2), (1, 2), constant_values=9)),
        ("MirrorPad", {"mode": "SYMMETRIC"}, [values(3), ints(2, 1)], np.pad(values(3), (2, 1), mode="symmetric")),
    ],
)
def test_types_without_an_onnx_operator_compute_their_definition(
    type: str, attrs: dict[str, Any], inputs: list[Any], expected: Any
) -> None:
    kind = find(type)
    assert kind is not None
    op = kind.cls(**attrs)
    result = op.kernel(*inputs)
    np.testing.assert_array_equal(result, expected)
    fixed = [KnownDesc.of(TensorDesc(DataType.from_numpy(x.dtype), np.shape(x)), x) for x in map(np.asarray, inputs)]
    assert op.infer(*fixed).shape == np.shape(expected)
    if hasattr(op, "bind"):
        op.constant_inputs = frozenset(range(len(inputs)))
        y = np.full(result.shape, 77, result.dtype)
        step = op.bind(inputs, [y])
        assert step is not None
        step()
        np.testing.assert_array_equal(y, expected)


def test_parts_are_taken_out_again() -> None:
    for type, attrs, inputs in (
        ("SplitD", {"split_dim": 1, "num_split": 2}, [values(2, 4)]),
        ("SplitVD", {"size_splits": (1, -1), "split_dim": 1, "num_split": 2}, [values(2, 4)]),
        ("SplitV", {"num_split": 2}, [values(2, 4), ints(3, -1), np.array(1)]),
    ):
        kind = find(type)
        assert kind is not None
        op = kind.cls(**attrs)
        np.testing.assert_array_equal(np.concatenate(op.kernel(*inputs), 1), values(2, 4))
    unpack = find("Unpack")
    assert unpack is not None
    first, second = unpack.cls(num=2, axis=1).kernel(values(3, 2))
    np.testing.assert_array_equal(np.stack([first, second], 1), values(3, 2))


def test_shape_size_and_rank_fold_from_the_description_alone() -> None:
    for type, expected in (("Shape", [2, 3]), ("Size", 6), ("Rank", 2)):
        kind = find(type)
        assert kind is not None
        np.testing.assert_array_equal(kind.cls().fold_shape(desc(2, 3)), expected)
    shape = find("Shape")
    assert shape is not None and shape.cls().fold_shape(desc(2, -1)) is None
