"""Graphs of dynamic models whose shapes are fixed run as bound steps, and give what node by node gives."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from gecli.compiler import compile_model
from gecli.ir.dtype import DataType
from gecli.ir.graph import Graph, feed
from gecli.ir.op_desc import Port
from gecli.ir.tensor_desc import TensorDesc
from gecli.ir.weight import Weight
from gecli.runtime.dynamic import DynamicExecutor
from gecli.runtime.model import LoadedModel
from gecli.runtime.session import Session
from gecli.wire.model_record import GraphRecord

Array = NDArray[Any]
ROWS = 3
WEIGHT = np.random.default_rng(1).standard_normal((4, 4)).astype(np.float32)
X = np.random.default_rng(2).standard_normal((ROWS, 4)).astype(np.float32)


def value(name: str, shape: list[int], kind: int = TensorProto.FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)


def branch(name: str, *nodes: onnx.NodeProto, dims: list[int] | None = None) -> onnx.GraphProto:
    return helper.make_graph(list(nodes), name, [], [value(nodes[-1].output[0], dims or [ROWS, 4])])


def load(folder: Path, nodes: list[onnx.NodeProto], inputs: list[onnx.ValueInfoProto], output: str) -> LoadedModel:
    weights = [numpy_helper.from_array(WEIGHT, "w"), numpy_helper.from_array(np.array(True), "yes")]
    graph = helper.make_graph(nodes, "m", inputs, [value(output, [ROWS, 4])], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, folder / "m.onnx")
    compile_model(folder / "m.onnx", folder / "m.om")
    return Session().load(folder / "m.om")


def ignore(*_: object) -> None:
    """A watch: with one, every node runs by itself."""


def types_bound(model: LoadedModel) -> list[str]:
    assert model.executor is not None
    bound = [each for each in model.executor._bound.values() if each is not None]
    return sorted(each.node.type for graph in bound for each in graph._program.instructions)


@pytest.fixture
def chooser(tmp_path: Path) -> LoadedModel:
    """`positive` chooses between two products of x; inside the first a constant chooses."""
    inner = helper.make_node(
        "If", ["yes"], ["k"], name="inner",
        then_branch=branch("always", helper.make_node("Relu", ["m"], ["r"])),
        else_branch=branch("never", helper.make_node("Neg", ["m"], ["n"])),
    )  # fmt: skip
    nodes = [
        helper.make_node(
            "If", ["positive"], ["y"], name="outer",
            then_branch=branch(
                "then", helper.make_node("MatMul", ["x", "w"], ["m"]), inner,
                helper.make_node("Transpose", ["w"], ["t"], perm=[1, 0]), helper.make_node("MatMul", ["k", "t"], ["p"]),
            ),
            else_branch=branch("else", helper.make_node("Sub", ["x", "x"], ["d"])),
        )
    ]  # fmt: skip
    return load(tmp_path, nodes, [value("positive", [], TensorProto.BOOL), value("x", [ROWS, 4])], "y")


def test_each_branch_gives_what_it_gives_node_by_node(chooser: LoadedModel) -> None:
    for positive, x in ((True, X), (False, X), (True, X + 1), (True, X)):
        feeds = {"positive": np.array(positive), "x": x}
        expected = np.maximum(x @ WEIGHT, 0) @ WEIGHT.T if positive else x - x
        for watch in (None, ignore):
            (got,) = chooser.run(feeds, watch)[0].values()
            np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)


def test_a_constant_condition_and_what_follows_from_constants_cost_nothing(chooser: LoadedModel) -> None:
    chooser.run({"positive": np.array(True), "x": X})
    types = types_bound(chooser)
    assert not {"Transpose", "TransposeD", "Neg"} & set(types)
    assert types.count("If") == 1  # the outer one
    assert len([name for name in types if "MatMul" in name]) == 2
    assert "Relu" in types


def test_outputs_of_one_run_outlive_the_next(chooser: LoadedModel) -> None:
    (first,) = chooser.run({"positive": np.array(True), "x": X})[0].values()
    kept = first.copy()
    chooser.run({"positive": np.array(True), "x": X + 1})
    np.testing.assert_array_equal(first, kept)


def test_inputs_of_other_shapes_run_node_by_node(chooser: LoadedModel) -> None:
    assert chooser.executor is not None
    x = np.ones((5, 4), np.float32)
    (got,) = chooser.executor.run(chooser.graph, {"positive": np.array(True), "x": x})
    np.testing.assert_allclose(got, np.maximum(x @ WEIGHT, 0) @ WEIGHT.T, rtol=1e-5, atol=1e-6)


def looping(shape: tuple[int, ...]) -> tuple[DynamicExecutor, GraphRecord]:
    """While n is positive: n - 1, and the last two values become the last one and their sum."""
    row, scalar = TensorDesc(DataType.FLOAT, shape), TensorDesc(DataType.INT32, ())
    graphs: dict[str, GraphRecord] = {}

    def graph(name: str, build: Callable[[Graph, list[Port]], list[Port]]) -> Graph:
        made = Graph(name)
        data = [
            made.create("Data", f"{name}_{index}", attrs={"index": index}, output_descs=[desc])
            for index, desc in enumerate((scalar, row, row))
        ]
        made.set_outputs(build(made, [node.out() for node in data]))
        graphs[name] = GraphRecord.of(made, {})
        return made

    def node(made: Graph, type: str, desc: TensorDesc, *inputs: Port) -> Port:
        created = feed(made, made.create(type, f"{made.name}_{type}"), *inputs)
        created.add_output(desc)
        return created.out()

    def constant(made: Graph, number: int) -> Port:
        weight = Weight.of(np.array(number, np.int32))
        return made.create("Const", f"{made.name}_c", attrs={"value": weight}, output_descs=[weight.desc]).out()

    graph("cond", lambda g, x: [node(g, "Greater", TensorDesc(DataType.BOOL, ()), x[0], constant(g, 0))])
    graph("body", lambda g, x: [node(g, "Sub", scalar, x[0], constant(g, 1)), x[2], node(g, "Add", row, x[1], x[2])])

    def loop(made: Graph, x: list[Port]) -> list[Port]:
        found = feed(made, made.create("While", "loop", subgraphs=["cond", "body"]), *x)
        for desc in (scalar, row, row):
            found.add_output(desc)
        return [found.out(2)]

    graph("root", loop)
    constants = {
        port: node.attrs["value"].numpy()
        for each in graphs.values()
        for node in each.nodes
        if node.type == "Const"
        for port in [node.out()]
    }
    return DynamicExecutor(graphs, constants), graphs["root"]


@pytest.mark.parametrize("dims", [(ROWS, 4), (-1, 4)])
def test_a_loop_body_sees_the_values_of_the_iteration_before(dims: tuple[int, ...]) -> None:
    executor, root = looping(dims)
    for count, factor in ((0, 1), (1, 2), (2, 3), (6, 21)):  # Fibonacci
        feeds = {"root_0": np.array(count, np.int32), "root_1": X, "root_2": X}
        (got,) = executor.run(root, feeds)
        np.testing.assert_allclose(got, factor * X, rtol=1e-5)
    assert (executor._bound["body"] is None) == (dims[0] == -1)


def test_a_weight_that_stays_in_another_format_is_converted_when_the_model_is_loaded(tmp_path: Path) -> None:
    weight = np.random.default_rng(3).standard_normal((56, 56, 1, 5)).astype(np.float32)
    x = np.random.default_rng(4).standard_normal((1, 56, 1, 32)).astype(np.float32)
    node = helper.make_node("Conv", ["x", "filter"], ["y"])
    shapes = [[value("x", list(x.shape))], [value("y", [1, 56, 1, 28])]]
    graph = helper.make_graph([node], "m", *shapes, [numpy_helper.from_array(weight, "filter")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, tmp_path / "m.onnx")
    compile_model(tmp_path / "m.onnx", tmp_path / "m.om")
    loaded = Session().load(tmp_path / "m.om")
    program = loaded.program
    assert program is not None
    moved = [port for port in program.operands if port.node.type == "TransData" and program.operands[port].is_constant]
    assert len(moved) == 1
    assert all(instruction.node is not moved[0].node for instruction in program.instructions)
    (got,) = loaded.run({"x": x})[0].values()
    expected = sum(np.einsum("oc,ncw->now", weight[:, :, 0, k], x[:, :, 0, k : k + 28]) for k in range(5))
    np.testing.assert_allclose(got[:, :, 0], expected, rtol=1e-4, atol=1e-4)
