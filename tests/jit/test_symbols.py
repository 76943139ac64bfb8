"""Sizes that change become symbols: one version for many, whose guard holds the checks that chose its branches."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

from gecli.errors import CompileError
from gecli.jit import building
from gecli.jit.loading import jit_model
from gecli.jit.model import JitModel
from gecli.jit.points import MAX_COUNTED, OFTEN
from tests.jit.dynamic_models import MODELS, Feeds, assert_equal, expected, floats

F32, I64, I32, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.INT32, TensorProto.BOOL


class Condition:
    """A model y = If(condition of the sizes of x [N, M] and of k [2]; then x + x, else -x), built node by node."""

    def __init__(self) -> None:
        self.nodes: list[Any] = []
        self.constants: dict[str, np.ndarray] = {}
        self.node("Shape", "x")

    def node(self, type: str, *inputs: str | int | list[int], **attrs: Any) -> str:
        names = [each if isinstance(each, str) else self.constant(each) for each in inputs]
        name = f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(type, names, [name], **attrs))
        return name

    def constant(self, value: Any) -> str:
        name = f"c{len(self.constants)}"
        self.constants[name] = np.array(value, np.int64)
        return name

    def size(self, axis: int, tensor: str = "") -> str:
        return self.node("Gather", self.node("Shape", tensor) if tensor else "t0", axis, axis=0)

    def first(self, vector: str) -> str:
        return self.node("Squeeze", self.node("Slice", vector, [0], [1], [0]), [0])

    def row(self, number: str) -> str:
        return self.node("Unsqueeze", number, [0])

    def value(self, elem: int) -> str:
        return self.node("Gather", "k", elem, axis=0)

    def write(self, path: Path, condition: str) -> Path:
        branches = [
            helper.make_graph(nodes, name, [], [helper.make_tensor_value_info(name, F32, ["A", "B"])])
            for name, nodes in (
                ("twice", [helper.make_node("Add", ["x", "x"], ["twice"])]),
                ("less", [helper.make_node("Neg", ["x"], ["less"])]),
            )
        ]
        choice = helper.make_node("If", [condition], ["b"], then_branch=branches[0], else_branch=branches[1])
        graph = helper.make_graph(
            [*self.nodes, choice, helper.make_node("Abs", ["b"], ["a"]), helper.make_node("Add", ["a", "b"], ["y"])],
            "g",
            [helper.make_tensor_value_info("x", F32, ["N", "M"]), helper.make_tensor_value_info("k", I64, [2])],
            [helper.make_tensor_value_info("y", F32, ["A", "B"])],
            [onnx.numpy_helper.from_array(value, name) for name, value in self.constants.items()],
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
        path.write_bytes(model.SerializeToString())
        return path


def fed(n: int, m: int, k: tuple[int, int] = (0, 0)) -> Feeds:
    return {"x": floats(n, m, seed=n), "k": np.array(k, np.int64)}


def written(folder: Path, name: str) -> Path:
    path = folder / f"{name}.onnx"
    path.write_bytes(MODELS[name][0]())
    return path


def guards(model: JitModel, position: int = 0) -> list[Any]:
    return [version.guard.as_json() for version in model.points[position].versions]


def check(model: JitModel, path: Path, *feeds: Feeds) -> None:
    for each in feeds:
        assert_equal(model.run(each)[0], expected(path, each))


def test_the_first_size_is_compiled_alone_and_the_second_with_a_symbol(tmp_path: Path) -> None:
    path = written(tmp_path, "plain")
    model = jit_model(path, cache_dir=str(tmp_path / "c"), cache_create="true")
    check(model, path, *({"x": floats(n, 4)} for n in (3, 5, 7, 100, 3)))
    assert model.counts["compiled"] == 2
    first, second = guards(model)
    assert first["inputs"][0]["dims"] == [3, 4] and first["checks"] == []
    assert second["inputs"][0]["dims"] == [None, 4]
    assert second["symbols"] == {"s0": {"source": "shape", "input": 0, "dim": 0}}
    assert second["checks"] == [["ne", "s0", 0]]
    fresh = jit_model(path, cache_dir=str(tmp_path / "c"))
    check(fresh, path, *({"x": floats(n, 4)} for n in (41, 3)))
    assert fresh.counts["compiled"] == 0
    assert fresh.counts["restored"] == 2


def test_a_size_that_did_not_change_stays_in_the_guard(tmp_path: Path) -> None:
    path = written(tmp_path, "distinct_values")
    model = jit_model(path)
    check(model, path, {"x": floats(2, 3)}, {"x": floats(4, 3)}, {"x": floats(4, 2)}, {"x": floats(9, 9)})
    assert [each["inputs"][0]["dims"] for each in guards(model)] == [[2, 3], [None, 3], [None, None]]


def test_an_empty_tensor_says_nothing_about_which_sizes_change(tmp_path: Path) -> None:
    path = written(tmp_path, "plain")
    model = jit_model(path)
    check(model, path, {"x": floats(0, 4)}, {"x": floats(3, 4)}, {"x": floats(0, 4)}, {"x": floats(5, 4)})
    assert [each["inputs"][0]["dims"][0] for each in guards(model)] == [None, 3, None]
    assert [each["checks"] for each in guards(model)] == [[["eq", "s0", 0]], [], [["ne", "s0", 0]]]


def test_sizes_that_data_decides_cost_two_versions_of_the_slice_behind(tmp_path: Path) -> None:
    path = written(tmp_path, "chosen_rows")
    model = jit_model(path)
    check(model, path, *({"x": floats(20, 4, seed=seed)} for seed in range(12)))
    assert [len(point.versions) for point in model.points] == [1, 2]


def test_a_value_that_changes_is_put_in_no_more(tmp_path: Path) -> None:
    path = written(tmp_path, "largest_of_given_count")
    model = jit_model(path)
    check(model, path, *({"x": floats(2, 5), "k": np.array([k])} for k in (2, 4, 1, 5, 3)))
    assert [each["checks"] for each in guards(model)] == [[["eq", "s0", 2]], []]


def test_a_size_that_runs_often_gets_a_version_of_its_own(tmp_path: Path) -> None:
    path = written(tmp_path, "plain")
    model = jit_model(path, cache_dir=str(tmp_path / "c"), cache_create="true")
    often = {"x": floats(5, 4)}
    check(model, path, {"x": floats(3, 4)}, *[often] * OFTEN)
    assert model.counts["compiled"] == 2
    for _ in range(3):
        check(model, path, often)
    assert model.counts["compiled"] == 3
    assert sorted(str(each["inputs"][0]["dims"]) for each in guards(model)) == ["[3, 4]", "[5, 4]", "[None, 4]"]
    fresh = jit_model(path, cache_dir=str(tmp_path / "c"))
    check(fresh, path, *[often] * (2 * OFTEN))
    assert (fresh.counts["compiled"], fresh.counts["restored"]) == (0, 1)


def test_runs_of_ever_new_sizes_are_not_counted_for_ever(tmp_path: Path) -> None:
    model = jit_model(written(tmp_path, "plain"))
    for n in (3, 5):
        model.run({"x": floats(n, 4)})
    (point,) = model.points
    version = point.versions[-1]
    assert not any(point.runs_often(version, [np.zeros((n, 4), np.float32)]) for n in range(1, 3 * MAX_COUNTED))
    assert len(version.runs) <= MAX_COUNTED


def test_a_size_gets_no_version_of_its_own_where_that_would_win_nothing(tmp_path: Path) -> None:
    path = written(tmp_path, "any_rank")
    model = jit_model(path)
    check(model, path, {"x": floats(3)}, *[{"x": floats(5)}] * (2 * OFTEN))
    assert model.counts["compiled"] == 2


def test_a_slice_that_cannot_be_compiled_with_symbols_is_compiled_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = building.specialised

    def refusing(*arguments: Any, free: Any = (), **options: Any) -> Any:
        if any(free):
            raise CompileError("G2001", "this node wants to know its sizes")
        return plain(*arguments, **options)

    monkeypatch.setattr(building, "specialised", refusing)
    path = written(tmp_path, "plain")
    model = jit_model(path)
    check(model, path, *({"x": floats(n, 4)} for n in (3, 5, 7)))
    assert [each["inputs"][0]["dims"] for each in guards(model)] == [[3, 4], [5, 4], [7, 4]]


N, M, K0 = "s0", "s1", "s2"  # the symbols of the second version: both sizes of x, then what the condition asks
CONDITIONS: list[tuple[str, Callable[[Condition], str], Any]] = [
    ("a size", lambda c: c.node("Equal", c.size(0), 1), ["ne", N, 1]),
    ("less", lambda c: c.node("Less", c.size(0), c.size(1)), ["lt", N, M]),
    ("not less", lambda c: c.node("Greater", c.size(0), c.size(1)), ["le", N, M]),
    ("a remainder", lambda c: c.node("Equal", c.node("Mod", c.size(0), 2), 0), ["eq", ["mod", N, 2], 0]),
    ("a quotient", lambda c: c.node("Less", c.node("Div", c.size(0), 3), 2), ["lt", ["floor", ["div", N, 3]], 2]),
    ("a product", lambda c: c.node("LessOrEqual", c.node("Mul", c.size(0), 64), 4096), ["le", ["mul", N, 64], 4096]),
    ("a size of a result", lambda c: c.node("Equal", c.size(1, c.node("Relu", "x")), 3), ["ne", M, 3]),
    ("elements", lambda c: c.node("GreaterOrEqual", c.node("Size", "x"), 9), ["le", 9, ["mul", N, M]]),
    ("both", lambda c: c.node("And", c.node("Equal", c.size(0), 4), c.node("Equal", c.size(1), 6)),
     ["and", ["eq", N, 4], ["eq", M, 6]]),
    ("neither", lambda c: c.node("Not", c.node("Equal", c.size(0), 4)), ["eq", N, 4]),
    ("a truth value", lambda c: c.node("Cast", c.size(0), to=BOOL), ["ne", N, 0]),
    ("a part", lambda c: c.node("Equal", c.node("Slice", "t0", [1], [2], [0]), 6), ["eq", M, 6]),
    ("joined", lambda c: c.node("Equal", c.first(c.node("Concat", c.row(c.size(1)), [7], axis=0)), 6), ["eq", M, 6]),
    ("a value", lambda c: c.node("Equal", c.value(0), 16000), ["ne", K0, 16000]),
    ("a size of joined tensors", lambda c: c.node("Equal", c.size(0, c.node("Concat", "x", "x", axis=0)), 8),
     ["eq", ["add", N, N], 8]),
    ("a size of turned tensors", lambda c: c.node("Equal", c.size(0, c.node("Transpose", "x", perm=[1, 0])), 6),
     ["eq", M, 6]),
    ("a size of a sum", lambda c: c.node("Less", c.size(1, c.node("Add", "x", c.node("Relu", "x"))), 6),
     ["le", 6, M]),
    ("a sum of values", lambda c: c.node("Less", c.node("ReduceSum", "k", [0], keepdims=0), 9), ["lt", K0, 9]),
    ("a sum of sizes",
     lambda c: c.node("Less", c.node("ReduceSum", c.node("Concat", c.row(c.size(0)), "t0", axis=0), [0]), [9]),
     ["le", 9, ["add", N, N, M]]),
    ("the larger", lambda c: c.node("Less", c.node("Max", c.size(0), c.size(1)), 9), ["lt", ["max", N, M], 9]),
]  # fmt: skip


@pytest.mark.parametrize(("make", "wanted"), [case[1:] for case in CONDITIONS], ids=[case[0] for case in CONDITIONS])
def test_a_branch_that_sizes_choose_is_a_check_of_the_guard(
    make: Callable[[Condition], str], wanted: Any, tmp_path: Path
) -> None:
    condition = Condition()
    path = condition.write(tmp_path / "m.onnx", make(condition))
    model = jit_model(path)
    check(model, path, fed(2, 3), fed(4, 6))
    _, guard = guards(model)
    assert guard["inputs"][0]["dims"] == [None, None]
    assert wanted in guard["checks"]
    for n, m, k in ((1, 1, 0), (2, 5, 16000), (6, 4, 3), (7, 3, 16000), (64, 2, -1), (65, 3, 5), (4, 7, 1)):
        check(model, path, fed(n, m, (k, 0)))
    assert len(model.points) == 1


def convolved(path: Path, kernel: tuple[int, int], **attrs: Any) -> Path:
    """A model that chooses by the height behind a convolution of x [1, 1, H, W]."""
    branches = [
        helper.make_graph(nodes, name, [], [helper.make_tensor_value_info(name, F32, [1, 1, "A", "B"])])
        for name, nodes in (
            ("twice", [helper.make_node("Add", ["c", "c"], ["twice"])]),
            ("less", [helper.make_node("Neg", ["c"], ["less"])]),
        )
    ]
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], **attrs),
        helper.make_node("Shape", ["c"], ["s"]),
        helper.make_node("Gather", ["s", "two"], ["h"], axis=0),
        helper.make_node("Less", ["h", "four"], ["small"]),
        helper.make_node("If", ["small"], ["y"], then_branch=branches[0], else_branch=branches[1]),
    ]
    constants = {"w": floats(1, 1, *kernel), "two": np.array(2, np.int64), "four": np.array(4, np.int64)}
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", F32, [1, 1, "H", "W"])],
        [helper.make_tensor_value_info("y", F32, [1, 1, "A", "B"])],
        [onnx.numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path.write_bytes(model.SerializeToString())
    return path


@pytest.mark.parametrize(
    ("kernel", "attrs"),
    [
        ((3, 3), {}),
        ((3, 2), {"strides": [2, 1]}),
        ((2, 3), {"pads": [1, 0, 2, 1], "strides": [3, 2]}),
        ((2, 2), {"dilations": [2, 3]}),
        ((3, 3), {"auto_pad": "SAME_UPPER", "strides": [2, 3]}),
        ((2, 2), {"auto_pad": "SAME_LOWER"}),
        ((3, 3), {"auto_pad": "VALID", "strides": [2, 2], "dilations": [1, 2]}),
    ],
)
def test_a_branch_that_a_size_behind_a_convolution_chooses_is_a_check(
    kernel: tuple[int, int], attrs: dict[str, Any], tmp_path: Path
) -> None:
    path = convolved(tmp_path / "m.onnx", kernel, **attrs)
    model = jit_model(path)
    for height in (6, 7, 20, *range(3, 14)):
        check(model, path, {"x": floats(1, 1, height, 8, seed=height)})
    versions = [each for each in guards(model) if each["inputs"][0]["dims"][2] is None]
    words = {check[0] for each in versions for check in each["checks"] if 4 in check}
    assert words == {"lt", "le"}
    assert len(versions) == 2


def test_a_sum_of_values_is_one_number_for_any_count_of_them(tmp_path: Path) -> None:
    branches = [
        helper.make_graph(
            [helper.make_node(kind, ["x"], [kind])], kind, [], [helper.make_tensor_value_info(kind, F32, [3])]
        )
        for kind in ("Neg", "Abs")
    ]
    nodes = [
        helper.make_node("ReduceSum", ["k"], ["total"], keepdims=0),
        helper.make_node("Less", ["total", "ten"], ["few"]),
        helper.make_node("If", ["few"], ["y"], then_branch=branches[0], else_branch=branches[1]),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", F32, [3]), helper.make_tensor_value_info("k", I64, ["K"])],
        [helper.make_tensor_value_info("y", F32, [3])],
        [onnx.numpy_helper.from_array(np.array(10, np.int64), "ten")],
    )
    path = tmp_path / "m.onnx"
    opset = [helper.make_opsetid("", 17)]
    path.write_bytes(helper.make_model(graph, opset_imports=opset, ir_version=8).SerializeToString())
    model = jit_model(path)
    many = [[1], [4, 5], [3, 3, 3], [9, 9], [11], [2] * 4, [6] * 7, [-9, 30], [1] * 199, [0] * 300, [1] * 250]
    for values in many:
        check(model, path, {"x": floats(3), "k": np.array(values, np.int64)})
    with_sums = [each for each in guards(model) if each["inputs"][1]["dims"] == [None] and len(each["checks"]) > 1]
    assert [each["symbols"]["s1"] for each in with_sums] == [{"source": "value_sum", "input": 1}] * 2
    assert {check[0] for each in with_sums for check in each["checks"] if 10 in check} == {"lt", "le"}


def test_an_input_of_unknown_rank_has_its_rank_in_the_guard(tmp_path: Path) -> None:
    path = written(tmp_path, "any_rank")
    model = jit_model(path)
    feeds = [{"x": floats(*shape)} for shape in ((4,), (2, 3), (5,), (0, 3), (2, 3, 1), (7,), (4, 4))]
    check(model, path, *feeds)
    for guard in guards(model):
        (name,) = (name for name, source in guard["symbols"].items() if source["source"] == "rank")
        assert guard["symbols"][name] == {"source": "rank", "input": 0}
        assert ["eq", name, guard["inputs"][0]["rank"]] in guard["checks"]
    assert {guard["inputs"][0]["rank"] for guard in guards(model)} == {1, 2, 3}


def test_a_choice_by_what_no_input_says_stays_in_the_version(tmp_path: Path) -> None:
    condition = Condition()
    longer = condition.node("Tile", "x", [2, 1])
    size = condition.node("Gather", condition.node("Shape", longer), 0, axis=0)
    path = condition.write(tmp_path / "m.onnx", condition.node("Equal", size, 8))
    model = jit_model(path)
    check(model, path, fed(2, 3), fed(4, 3), fed(5, 3), fed(4, 3))
    assert [each["checks"] for each in guards(model)] == [[], [["ne", "s0", 0]]]


def test_a_number_that_wraps_around_in_the_graph_is_not_one_of_the_guard(tmp_path: Path) -> None:
    condition = Condition()
    path = condition.write(
        tmp_path / "m.onnx", condition.node("Less", condition.node("Add", condition.size(0), condition.value(0)), 0)
    )
    check(jit_model(path), path, fed(1, 1), fed(1, 2), fed(1, 1, (2**63 - 1, 0)), fed(1, 5, (2**63 - 1, 0)))


def operands(condition: Condition, words: list[tuple[str, int, int]]) -> str:
    """A truth value computed from sizes and values by `words`: an operator, and which numbers it takes."""
    numbers = [condition.size(0), condition.size(1), condition.value(0), condition.value(1)]
    for word, a, b in words:
        left, right = numbers[a % len(numbers)], numbers[b % len(numbers)]
        constant = (1, 2, 3, 6, 2**40, 2**62)[b % 6]
        match word:
            case "mod" | "div":
                numbers.append(condition.node(word.capitalize(), left, constant))
            case "by":
                numbers.append(condition.node("Mul", left, constant))
            case "narrow":
                numbers.append(condition.node("Cast", condition.node("Cast", left, to=I32), to=I64))
            case "truth":
                numbers.append(condition.node("Cast", condition.node("Cast", left, to=BOOL), to=I64))
            case _:
                numbers.append(condition.node(word, left, right))
    return condition.node(("Equal", "Less", "GreaterOrEqual")[len(words) % 3], numbers[-1], numbers[words[-1][2] % 4])


WORDS = ("mod", "div", "by", "narrow", "truth", "Add", "Sub", "Mul", "Max", "Min")
K = st.integers(-3, 8) | st.sampled_from([2**31, 2**32 + 2, 2**40, 2**63 - 1, -(2**63)])


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    words=st.lists(st.tuples(st.sampled_from(WORDS), st.integers(0, 99), st.integers(0, 99)), min_size=1, max_size=5),
    inputs=st.lists(st.tuples(st.integers(1, 6), st.integers(1, 6), st.tuples(K, K)), min_size=3, max_size=6),
)
def test_every_version_whose_guard_takes_the_inputs_gives_the_results_of_onnxruntime(
    words: list[tuple[str, int, int]], inputs: list[tuple[int, int, tuple[int, int]]], tmp_path_factory: Any
) -> None:
    condition = Condition()
    path = condition.write(tmp_path_factory.mktemp("law") / "m.onnx", operands(condition, words))
    model = jit_model(path)
    feeds = [fed(*each) for each in inputs]
    for each in feeds:
        model.run(each)
    for each in feeds:
        wanted, taken = expected(path, each), 0
        for version in model.points[0].versions:
            arrays = [each["x"], each["k"]]
            if not version.guard.refusal(arrays, model.points[0].stored.formats):
                assert version.model is not None
                assert_equal({"y": next(iter(version.model.run(each)[0].values()))}, wanted)
                taken += 1
        assert taken, json.dumps(guards(model))
