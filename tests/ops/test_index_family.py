"""Gather and scatter operators against onnxruntime, worked numbers of the specification, and their errors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from gecli.ir.dtype import DataType
from gecli.ir.tensor_desc import TensorDesc
from gecli.ops.inference import InferenceError
from gecli.ops.operator import KnownDesc
from gecli.ops.registry import find
from tests.ops.onnx_judge import judge


def values(*shape: int, dtype: Any = np.float32) -> NDArray[Any]:
    return (np.arange(int(np.prod(shape))).reshape(shape) * 0.5 - 3).astype(dtype)


def ints(numbers: Any) -> NDArray[np.int64]:
    return np.array(numbers, np.int64)


def op(type: str, **attrs: Any) -> Any:
    kind = find(type)
    assert kind is not None
    return kind.cls(**attrs)


X = values(3, 4, 2)
CASES: dict[str, tuple[str, list[Any], dict[str, Any], int]] = {
    "gather": ("Gather", [X, ints([0, 2])], {}, 13),
    "gather negative": ("Gather", [X, ints([[-1, 0], [1, -3]])], {"axis": 1}, 13),
    "gather scalar": ("Gather", [X, ints(1)], {"axis": -1}, 11),
    "gather none": ("Gather", [X, np.zeros(0, np.int64)], {}, 13),
    "gather int32": ("Gather", [values(5, 3, dtype=np.int32), np.int32([1, 1, 4])], {}, 7),
    "gather half": ("Gather", [values(5, 3, dtype=np.float16), ints([3, 0])], {}, 13),
    "gather elements": ("GatherElements", [values(3, 3), ints([[1, 2, 0], [2, 0, -1]])], {}, 13),
    "gather elements axis": ("GatherElements", [values(2, 3), ints([[0], [2]])], {"axis": 1}, 11),
    "gather nd": ("GatherND", [X, ints([[0, 1], [2, -1]])], {}, 13),
    "gather nd slices": ("GatherND", [X, ints([[[1]], [[0]]])], {}, 11),
    "gather nd batch": ("GatherND", [values(2, 3, 4), ints([[1], [0]])], {"batch_dims": 1}, 12),
    "scatter elements": ("ScatterElements", [values(3, 3), ints([[1, 0, 2]]), values(1, 3)], {}, 11),
    "scatter elements axis": ("ScatterElements", [values(2, 5), ints([[1, -1]]), values(1, 2)], {"axis": 1}, 13),
    "scatter elements add": (
        "ScatterElements",
        [values(1, 5), ints([[1, 1]]), values(1, 2)],
        {"axis": 1, "reduction": "add"},
        16,
    ),
    "scatter elements max": ("ScatterElements", [values(4), ints([0, 0]), values(2)], {"reduction": "max"}, 18),
    "scatter": ("Scatter", [values(3, 3), ints([[1, 0, 2]]), values(1, 3)], {"axis": 0}, 9),
    "scatter nd": ("ScatterND", [values(4, 2), ints([[0], [3]]), values(2, 2)], {}, 13),
    "scatter nd element": ("ScatterND", [values(4, 2), ints([[0, 1], [3, 0]]), values(2)], {}, 11),
    "scatter nd add": ("ScatterND", [values(4), ints([[1], [1]]), values(2)], {"reduction": "add"}, 16),
    "scatter nd mul": ("ScatterND", [values(4), ints([[1], [1]]), values(2)], {"reduction": "mul"}, 16),
    "scatter nd scalar": ("ScatterND", [values(3, 4), ints([2, -1]), values()], {}, 13),
    "scatter nd scalar of one axis": ("ScatterND", [values(3), ints([1]), values()], {}, 11),
    **{
        f"scatter nd scalar {how}": ("ScatterND", [values(3, 4), ints([2, 1]), np.float32(7)], {"reduction": how}, 18)
        for how in ("none", "add", "mul", "max", "min")
    },
    "scatter nd row": ("ScatterND", [values(3, 4), ints([1]), values(4)], {"reduction": "add"}, 16),
    "gather nd scalar": ("GatherND", [values(3, 4), ints([2, 1])], {}, 13),
    "scatter nd min": ("ScatterND", [values(4), ints([[3], [1]]), values(2)], {"reduction": "min"}, 18),
}


@pytest.mark.parametrize("case", CASES)
def test_index_operators_give_what_onnxruntime_gives(case: str) -> None:
    name, inputs, attrs, opset = CASES[case]
    judge(name, inputs, attrs=attrs, opset=opset)


@pytest.mark.parametrize(
    "type, attrs, inputs, expected",
    [
        ("ScatterAdd", {}, [np.float32([1, 2, 3]), ints([0, 2, 0]), np.float32([10, 20, 30])], [41, 2, 23]),
        ("ScatterUpdate", {}, [np.float32([1, 2, 3]), ints([0, 2, 0]), np.float32([10, 20, 30])], [30, 2, 20]),
        ("ScatterAdd", {}, [np.float32([1, 2]), ints(1), np.float32(10)], [1, 12]),
        ("ScatterDiv", {}, [np.int32([1, -7]), ints(1), np.int32(2)], [1, -3]),
        ("ScatterNdSub", {}, [np.float32([[1, 2]]), ints([0, 1]), np.float32(3)], [[1, -1]]),
        ("TensorScatterUpdate", {}, [np.float32([1, 2]), ints([1]), np.float32(9)], [1, 9]),
        ("ScatterNd", {}, [ints([1]), np.float32(3), ints([3])], [0, 3, 0]),
        ("GatherV2", {"batch_dims": 1}, [np.float32([[1, 2], [3, 4]]), ints([0, 1]), np.int32(1)], [1, 4]),
        ("ScatterSub", {}, [np.int32([1, 2]), ints([1]), np.int32([5])], [1, -3]),
        ("ScatterMul", {}, [np.float32([1, 2]), ints([1, 1]), np.float32([5, 2])], [1, 20]),
        ("ScatterDiv", {}, [np.int32([-7, 7, 5]), ints([0, 1, 2]), np.int32([2, -2, 0])], [-3, -3, 0]),
        ("ScatterDiv", {}, [np.float32([8]), ints([0, 0]), np.float32([2, 2])], [2]),
        ("ScatterMax", {}, [np.float32([1, 2]), ints([0, 1]), np.float32([5, 1])], [5, 2]),
        ("ScatterMin", {}, [np.float32([1, 2]), ints([0, 1]), np.float32([5, 1])], [1, 1]),
        ("ScatterNdAdd", {}, [np.float32([[1, 2]]), ints([[0, 1]]), np.float32([3])], [[1, 5]]),
        ("ScatterNdSub", {}, [np.float32([[1, 2]]), ints([[0, 1]]), np.float32([3])], [[1, -1]]),
        ("ScatterNdUpdate", {}, [np.float32([[1, 2]]), ints([[0]]), np.float32([[3, 4]])], [[3, 4]]),
        ("ScatterNd", {}, [ints([[1], [1]]), np.float32([3, 4]), ints([3])], [0, 7, 0]),
        ("TensorScatterUpdate", {}, [np.float32([1, 2]), ints([[1]]), np.float32([9])], [1, 9]),
        ("ScatterNonAliasingAdd", {}, [np.float32([1, 2]), ints([[1]]), np.float32([9])], [1, 11]),
        ("InplaceAdd", {}, [np.float32([1, 2]), ints([1]), np.float32([9])], [1, 11]),
        ("InplaceSub", {}, [np.float32([1, 2]), ints([1]), np.float32([9])], [1, -7]),
        ("InplaceUpdate", {}, [np.float32([1, 2]), ints([1]), np.float32([9])], [1, 9]),
        (
            "Scatter",
            {"reduce": "update", "axis": 1},
            [np.zeros((2, 3), np.float32), ints([1, 0]), np.float32([[1, 2], [3, 4]])],
            [[0, 1, 2], [3, 4, 0]],
        ),
        (
            "UnsortedSegmentSum",
            {},
            [np.arange(9, dtype=np.float32).reshape(3, 3), ints([0, 0, 4]), ints(5)],
            [[3, 5, 7], [0, 0, 0], [0, 0, 0], [0, 0, 0], [6, 7, 8]],
        ),
        ("UnsortedSegmentSumD", {"num_segments": 2}, [np.float32([1, 2, 4]), ints([1, -1, 7])], [0, 1]),
        ("Embedding", {}, [np.float32([[1], [2]]), ints([1, 0, 1])], [[2], [1], [2]]),
        ("Gather", {}, [np.float32([1, 2]), ints([1])], [2]),
        ("GatherV2D", {"axis": 1}, [np.float32([[1, 2]]), ints([1])], [[2]]),
        (
            "EmbeddingDenseGrad",
            {"num_weights": 3, "padding_idx": 2, "scale_grad_by_freq": True},
            [np.float32([[2], [4], [5]]), ints([0, 0, 2])],
            [[3], [0], [0]],
        ),
    ],
)
def test_worked_numbers(type: str, attrs: dict[str, Any], inputs: list[Any], expected: Any) -> None:
    made = op(type, **attrs)
    kept = [x.copy() for x in inputs]
    result = made.kernel(*inputs)
    np.testing.assert_allclose(result, expected)
    for now, was in zip(inputs, kept, strict=True):
        np.testing.assert_array_equal(now, was)
    descs = [KnownDesc.of(TensorDesc(DataType.from_numpy(x.dtype), x.shape), x) for x in inputs]
    desc = made.infer(*descs)
    assert (desc.shape, desc.dtype.numpy) == (result.shape, result.dtype)


@pytest.mark.parametrize(
    "type, attrs, inputs",
    [
        ("GatherV2", {}, [values(3), ints([3]), np.int32(0)]),
        ("GatherV2", {}, [values(3), ints([-1]), np.int32(0)]),
        ("GatherV2", {"negative_index_support": True}, [values(3), ints([-4]), np.int32(0)]),
        ("Embedding", {}, [values(3, 2), ints([-1])]),
        ("ScatterUpdate", {}, [values(3), ints([3]), values(1)]),
        ("ScatterNdUpdate", {}, [values(3), ints([[3]]), values(1)]),
        ("UnsortedSegmentSum", {"check_ids": True}, [values(1), ints([3]), ints(2)]),
    ],
)
def test_an_index_out_of_range_is_an_error_that_names_it(type: str, attrs: dict[str, Any], inputs: list[Any]) -> None:
    with pytest.raises(IndexError, match=r"3|-1|-4"):
        op(type, **attrs).kernel(*inputs)


def test_a_bound_gather_refuses_an_index_out_of_range() -> None:
    x, indices, y = values(3, 2), ints([0, 1]), np.empty((2, 2), np.float32)
    gather = op("GatherV2", negative_index_support=True)
    gather.constant_inputs = frozenset([2])
    step = gather.bind([x, indices, np.int32(0).reshape(())], [y])
    step()
    np.testing.assert_array_equal(y, x[:2])
    indices[0] = 3
    with pytest.raises(IndexError, match=r"index 3 at \[0\]"):
        step()


def test_updates_of_another_shape_are_refused() -> None:
    descs = [TensorDesc(DataType.FLOAT, (4, 2)), TensorDesc(DataType.INT64, (3,)), TensorDesc(DataType.FLOAT, (3, 3))]
    with pytest.raises(InferenceError, match=r"updates \[3, 3\] must have shape \[3, 2\]"):
        op("ScatterAdd").infer(*descs)


@pytest.mark.parametrize(
    "mode, rows", [("sum", [[4, 6], [3, 4]]), ("mean", [[2, 3], [3, 4]]), ("max", [[3, 4], [3, 4]])]
)
def test_a_bag_of_rows_is_reduced_without_its_padding(mode: str, rows: Any) -> None:
    weight, indices, offsets = np.float32([[1, 2], [3, 4], [9, 9]]), ints([0, 1, 2, 1]), ints([0, 2])
    made = op("EmbeddingBag", mode=mode, padding_idx=2)
    found = made.kernel(weight, indices, offsets)
    np.testing.assert_array_equal(found[0], rows)
    np.testing.assert_array_equal(found[1], [0, 0, 1, 1])
    np.testing.assert_array_equal(found[2], [2, 1])
    descs = [TensorDesc(DataType.from_numpy(x.dtype), x.shape) for x in (weight, indices, offsets)]
    for desc, value in zip(made.infer(*descs), found, strict=True):
        assert (desc.shape, desc.dtype.numpy) == (value.shape, value.dtype)


@pytest.mark.parametrize("reduction", ["none", "add", "mul", "max", "min"])
@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("like_rows", [True, False])
def test_scatter_elements_combines_one_element_after_another(reduction: str, axis: int, like_rows: bool) -> None:
    data, updates = values(4, 5, 3), values(3, 4, 2)
    rng = np.random.default_rng(axis)
    indices = rng.integers(-data.shape[axis], data.shape[axis], updates.shape)
    if like_rows:
        first = [slice(None) if other == axis else slice(1) for other in range(3)]
        indices = np.broadcast_to(indices[tuple(first)], updates.shape).copy()
    expected = data.copy()
    rule = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}.get(reduction, lambda a, b: b)
    for place in np.ndindex(*updates.shape):
        target = (*place[:axis], indices[place], *place[axis + 1 :])
        expected[target] = rule(expected[target], updates[place])
    made = op("ScatterElements", axis=axis, reduction=reduction)
    np.testing.assert_allclose(made.kernel(data, indices, updates), expected, rtol=1e-6)
    out = np.empty_like(data)
    made.bind([data, indices, updates], [out])()
    np.testing.assert_allclose(out, expected, rtol=1e-6)
