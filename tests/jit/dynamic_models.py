"""Small ONNX models whose shapes depend on data, and what onnxruntime makes of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray
from onnx import TensorProto, helper

Array = NDArray[Any]
Feeds = dict[str, Array]
F32, I64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL


def _model(
    nodes: Sequence[Any],
    inputs: dict[str, tuple[int, Sequence[Any] | None]],
    outputs: dict[str, tuple[int, Sequence[Any] | None]],
    constants: dict[str, Array] | None = None,
    *,
    is_checked: bool = True,
) -> bytes:
    graph = helper.make_graph(
        list(nodes),
        "g",
        [helper.make_tensor_value_info(name, kind, shape) for name, (kind, shape) in inputs.items()],
        [helper.make_tensor_value_info(name, kind, shape) for name, (kind, shape) in outputs.items()],
        [onnx.numpy_helper.from_array(value, name) for name, value in (constants or {}).items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    if is_checked:
        onnx.checker.check_model(model)
    data: bytes = model.SerializeToString()
    return data


def chosen_rows() -> bytes:
    """The rows of x whose first column is positive, doubled and summed."""
    return _model(
        [
            helper.make_node("Relu", ["x"], ["r"]),
            helper.make_node("ReduceSum", ["x", "one"], ["sums"], keepdims=0),
            helper.make_node("Greater", ["sums", "zero"], ["positive"]),
            helper.make_node("NonZero", ["positive"], ["places"]),
            helper.make_node("Squeeze", ["places", "first"], ["rows"]),
            helper.make_node("Gather", ["r", "rows"], ["chosen"], axis=0),
            helper.make_node("Mul", ["chosen", "two"], ["doubled"]),
            helper.make_node("ReduceSum", ["doubled", "first"], ["total"], keepdims=0),
        ],
        {"x": (F32, ["N", 4])},
        {"doubled": (F32, ["M", 4]), "total": (F32, [4])},
        {
            "one": np.array([1], np.int64),
            "first": np.array([0], np.int64),
            "zero": np.array(0, np.float32),
            "two": np.array(2, np.float32),
        },
    )


def largest_of_given_count() -> bytes:
    """TopK whose k is an input."""
    return _model(
        [helper.make_node("TopK", ["x", "k"], ["v", "i"]), helper.make_node("Neg", ["v"], ["n"])],
        {"x": (F32, ["N", "M"]), "k": (I64, [1])},
        {"n": (F32, ["N", "K"]), "i": (I64, ["N", "K"])},
    )


def largest_of_computed_count() -> bytes:
    """TopK whose k is the number of positive elements."""
    return _model(
        [
            helper.make_node("Greater", ["x", "zero"], ["p"]),
            helper.make_node("Cast", ["p"], ["c"], to=I64),
            helper.make_node("ReduceSum", ["c", "first"], ["k"], keepdims=1),
            helper.make_node("TopK", ["x", "k"], ["v", "i"]),
            helper.make_node("Exp", ["v"], ["e"]),
            helper.make_node("Add", ["e", "e"], ["twice"]),
        ],
        {"x": (F32, ["N"])},
        {"twice": (F32, ["K"]), "i": (I64, ["K"])},
        {"zero": np.array(0, np.float32), "first": np.array([0], np.int64)},
    )


def distinct_values() -> bytes:
    """Unique, then arithmetic on what it found, and an output of the part before."""
    return _model(
        [
            helper.make_node("Add", ["x", "x"], ["d"]),
            helper.make_node("Unique", ["d"], ["u", "", "", "n"]),
            helper.make_node("Sqrt", ["u"], ["s"]),
            helper.make_node("Concat", ["s", "s"], ["c"], axis=0),
        ],
        {"x": (F32, ["N", "M"])},
        {"d": (F32, ["N", "M"]), "c": (F32, ["K"]), "n": (I64, ["L"])},
    )


def boxes_that_stay() -> bytes:
    """NonMaxSuppression and the boxes that it selects."""
    return _model(
        [
            helper.make_node("NonMaxSuppression", ["boxes", "scores", "most", "iou", "score"], ["selected"]),
            helper.make_node("Gather", ["selected", "column"], ["index"], axis=1),
            helper.make_node("Squeeze", ["boxes", "first"], ["flat"]),
            helper.make_node("Gather", ["flat", "index"], ["kept"], axis=0),
        ],
        {"boxes": (F32, [1, "N", 4]), "scores": (F32, [1, 1, "N"])},
        {"selected": (I64, ["K", 3]), "kept": (F32, ["K", 4])},
        {
            "most": np.array([10], np.int64),
            "iou": np.array([0.5], np.float32),
            "score": np.array([0.1], np.float32),
            "column": np.array(2, np.int64),
            "first": np.array([0], np.int64),
        },
    )


def two_breaks() -> bytes:
    """A slice behind a slice: elements that are not zero, then their distinct values; x is read by the last one too."""
    return _model(
        [
            helper.make_node("NonZero", ["x"], ["at"]),
            helper.make_node("Transpose", ["at"], ["places"], perm=[1, 0]),
            helper.make_node("GatherND", ["x", "places"], ["found"]),
            helper.make_node("Mul", ["found", "found"], ["squares"]),
            helper.make_node("Unique", ["squares"], ["u"]),
            helper.make_node("ReduceMax", ["u"], ["top"], keepdims=0),
            helper.make_node("Sub", ["x", "top"], ["y"]),
        ],
        {"x": (F32, ["N", "M"])},
        {"u": (F32, ["K"]), "y": (F32, ["N", "M"])},
    )


def reshaped() -> bytes:
    """Reshape to a shape that is an input."""
    return _model(
        [helper.make_node("Reshape", ["x", "shape"], ["r"]), helper.make_node("Abs", ["r"], ["a"])],
        {"x": (F32, ["N"]), "shape": (I64, [2])},
        {"a": (F32, ["A", "B"])},
    )


def _branches() -> tuple[Any, Any]:
    short = helper.make_graph(
        [helper.make_node("ReduceSum", ["x"], ["t"], keepdims=1)],
        "then",
        [],
        [helper.make_tensor_value_info("t", F32, [None, None])],
    )
    long = helper.make_graph(
        [helper.make_node("Concat", ["x", "x"], ["e"], axis=0)],
        "else",
        [],
        [helper.make_tensor_value_info("e", F32, [None, None])],
    )
    return short, long


def given_branch() -> bytes:
    """A branch that an input chooses; the branches give other shapes."""
    short, long = _branches()
    return _model(
        [
            helper.make_node("If", ["flag"], ["b"], then_branch=short, else_branch=long),
            helper.make_node("Neg", ["b"], ["n"]),
        ],
        {"x": (F32, ["N", "M"]), "flag": (BOOL, [])},
        {"n": (F32, ["A", "B"])},
    )


def computed_branch() -> bytes:
    """A branch that a sum chooses; the branches give other shapes."""
    short, long = _branches()
    return _model(
        [
            helper.make_node("ReduceSum", ["x"], ["sum"], keepdims=0),
            helper.make_node("Greater", ["sum", "zero"], ["flag"]),
            helper.make_node("If", ["flag"], ["b"], then_branch=short, else_branch=long),
            helper.make_node("Neg", ["b"], ["n"]),
        ],
        {"x": (F32, ["N", "M"])},
        {"n": (F32, ["A", "B"])},
        {"zero": np.array(0, np.float32)},
    )


def counted() -> bytes:
    """Range up to an input, times x."""
    return _model(
        [
            helper.make_node("Range", ["start", "n", "step"], ["r"]),
            helper.make_node("Cast", ["r"], ["f"], to=F32),
            helper.make_node("Mul", ["f", "x"], ["y"]),
        ],
        {"n": (I64, []), "x": (F32, [1])},
        {"y": (F32, ["N"])},
        {"start": np.array(0, np.int64), "step": np.array(1, np.int64)},
    )


def plain() -> bytes:
    """Nothing depends on data: one slice."""
    return _model(
        [helper.make_node("MatMul", ["x", "w"], ["m"]), helper.make_node("Softmax", ["m"], ["y"])],
        {"x": (F32, ["N", 4])},
        {"y": (F32, ["N", 3])},
        {"w": np.arange(12, dtype=np.float32).reshape(4, 3) / 10},
    )


def any_rank() -> bytes:
    """An input of which not even the rank is known."""
    return _model(
        [helper.make_node("Relu", ["x"], ["r"]), helper.make_node("NonZero", ["r"], ["y"])],
        {"x": (F32, None)},
        {"y": (I64, None)},
        is_checked=False,  # the checker wants shapes, which exporters leave out
    )


def floats(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def whole(*shape: int, seed: int = 0) -> Array:
    """Small whole numbers as floats, so that values repeat."""
    return np.random.default_rng(seed).integers(0, 4, shape).astype(np.float32)


def boxes(count: int, seed: int = 0) -> Feeds:
    random = np.random.default_rng(seed)
    corner = random.random((1, count, 2)).astype(np.float32)
    size = random.random((1, count, 2)).astype(np.float32) / 2
    scores = random.random((1, 1, count)).astype(np.float32)
    return {"boxes": np.concatenate([corner, corner + size], axis=2), "scores": scores}


# Name -> the model and three classes of inputs.
MODELS: dict[str, tuple[Callable[[], bytes], list[Feeds]]] = {
    "chosen_rows": (chosen_rows, [{"x": floats(n, 4, seed=n)} for n in (3, 8, 20)]),
    "largest_of_given_count": (
        largest_of_given_count,
        [{"x": floats(2, n, seed=n), "k": np.array([k])} for n, k in ((5, 2), (5, 4), (9, 4))],
    ),
    "largest_of_computed_count": (largest_of_computed_count, [{"x": floats(n, seed=n)} for n in (4, 10, 33)]),
    "distinct_values": (distinct_values, [{"x": whole(n, 3, seed=n)} for n in (1, 4, 9)]),
    "boxes_that_stay": (boxes_that_stay, [boxes(n, seed=n) for n in (5, 12, 30)]),
    "two_breaks": (two_breaks, [{"x": whole(n, 3, seed=n)} for n in (2, 5, 8)]),
    "reshaped": (
        reshaped,
        [
            {"x": floats(n, seed=n), "shape": np.array(shape, np.int64)}
            for n, shape in ((6, (2, 3)), (6, (3, -1)), (8, (1, 8)))
        ],
    ),
    "given_branch": (
        given_branch,
        [{"x": floats(n, 2, seed=n), "flag": np.array(flag)} for n, flag in ((3, True), (3, False), (4, True))],
    ),
    "computed_branch": (
        computed_branch,
        [{"x": np.full((n, 2), sign, np.float32)} for n, sign in ((3, 1), (3, -1), (5, -1))],
    ),
    "counted": (counted, [{"n": np.array(n), "x": floats(1, seed=n)} for n in (1, 5, 7)]),
    "any_rank": (any_rank, [{"x": floats(*shape)} for shape in ((4,), (2, 3), (2, 1, 3))]),
    "plain": (plain, [{"x": floats(n, 4, seed=n)} for n in (1, 2, 6)]),
}


def expected(path: Path, feeds: Feeds) -> Feeds:
    """The outputs of onnxruntime."""
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(None, feeds)))


def assert_equal(found: Feeds, wanted: Feeds) -> None:
    assert list(found) == list(wanted)
    for name, value in wanted.items():
        assert found[name].shape == value.shape, name
        assert found[name].dtype == value.dtype, name
        np.testing.assert_allclose(found[name], value, rtol=1e-5, atol=1e-6, err_msg=name)
