"""The ONNX front end: names, inputs, constants, functions, subgraphs, faults, and the numbers of loaded models."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from gecli.errors import InputError, InvalidOption
from gecli.ir.graph import Graph
from gecli.ir.tensor_desc import UNKNOWN_RANK
from gecli.ir.verify import verify
from gecli.ir.weight import FileSlice
from gecli.loading import LoadedModel, LoadOptions, load_graph
from gecli.loading.input_shapes import parse_input_shapes
from gecli.ops.evaluate import evaluate_graph

Array = NDArray[Any]
REPOSITORY = Path(__file__).resolve().parents[2]
DIGITS = REPOSITORY / "samples" / "digits"
F32 = np.float32


def value(name: str, *dims: int | str | None, dtype: int = TensorProto.FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, dtype, list(dims))


def weight(name: str, array: Any) -> onnx.TensorProto:
    return numpy_helper.from_array(np.asarray(array), name)


def save(
    path: Path,
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[onnx.ValueInfoProto],
    outputs: Sequence[str],
    weights: Sequence[onnx.TensorProto] = (),
    **model: Any,
) -> Path:
    results = [helper.make_empty_tensor_value_info(name) for name in outputs]
    graph = helper.make_graph(list(nodes), "g", list(inputs), results, list(weights))
    model.setdefault("opset_imports", [helper.make_opsetid("", 17)])
    onnx.save(helper.make_model(graph, ir_version=9, **model), path)
    return path


def loaded(path: Path, *nodes: onnx.NodeProto, weights: Sequence[onnx.TensorProto] = (), **more: Any) -> LoadedModel:
    """A model with the input x [2,3] and the last node's outputs."""
    outputs = [name for name in nodes[-1].output if name]
    model = load_graph(save(path / "m.onnx", nodes, [value("x", 2, 3)], outputs, weights), **more)
    assert verify(model.graph) == []
    return model


def names(graph: Graph) -> list[str]:
    return [node.name for node in graph.nodes()]


def fault(path: Path, *nodes: onnx.NodeProto, weights: Sequence[onnx.TensorProto] = (), **more: Any) -> InputError:
    with pytest.raises(InputError) as caught:
        loaded(path, *nodes, weights=weights, **more)
    assert caught.value.exit_status == 3
    return caught.value


node = helper.make_node


# ---------------------------------------------------------------- names


def test_initializers_are_named_by_their_rank_in_byte_order_and_created_in_it(tmp_path: Path) -> None:
    weights = [weight(name, np.ones(3, F32)) for name in ("b", "a", "B", "é")]
    chain = [node("Add", [x, w], [y]) for x, w, y in zip("x123", ("b", "a", "B", "é"), "1234")]
    graph = loaded(tmp_path, *chain, weights=weights).graph
    consts = [each.name for each in graph.nodes_of("Const")]
    assert consts == ["B_Initializer_0", "a_Initializer_1", "b_Initializer_2", "é_Initializer_3"]


def test_unnamed_nodes_take_their_type_and_a_count_that_avoids_real_names(tmp_path: Path) -> None:
    nodes = [
        node("Relu", ["x"], ["a"]),
        node("Relu", ["a"], ["b"], name="Relu_1"),
        node("Relu", ["b"], ["c"]),
        node("Neg", ["c"], ["d"]),
    ]
    graph = loaded(tmp_path, *nodes).graph
    assert [n for n in names(graph) if n not in ("x", "Node_Output")] == ["Relu_0", "Relu_1", "Relu_2", "Neg_3"]


def test_an_expansion_of_one_node_keeps_the_name_and_one_of_several_is_a_partitioned_call(tmp_path: Path) -> None:
    weights = [weight("w", np.ones((3, 2), F32)), weight("c", np.ones(2, F32))]
    nodes = [node("Gemm", ["x", "w"], ["h"], name="plain"), node("Gemm", ["x", "w", "c"], ["y"], name="fc", beta=2.0)]
    graph = loaded(tmp_path, *nodes, weights=weights).graph
    made = [each for each in graph.nodes() if each.type not in ("Data", "Const", "NetOutput")]
    assert [each.name for each in made] == [
        "plain",
        "PartitionedCall_fc_MatMulV2_0",
        "PartitionedCall_fc_Muls_1",
        "PartitionedCall_fc_Add_2",
    ]
    assert "_datadump_original_op_names" not in made[0].attrs
    assert [each.attrs["_datadump_original_op_names"] for each in made[1:]] == [("fc",)] * 3


def test_names_do_not_depend_on_what_was_loaded_before(tmp_path: Path) -> None:
    weights = [weight("w", np.ones((3, 2), F32)), weight("c", np.ones(2, F32))]
    once = names(loaded(tmp_path, node("Gemm", ["x", "w", "c"], ["y"], name="fc", beta=2.0), weights=weights).graph)
    assert once == names(
        loaded(tmp_path, node("Gemm", ["x", "w", "c"], ["y"], name="fc", beta=2.0), weights=weights).graph
    )


def test_duplicate_names_are_listed_together_and_can_be_renamed(tmp_path: Path) -> None:
    nodes = [node("Relu", [a], [b], name=n) for a, b, n in zip("xabc", "abcd", ("r", "r", "s", "s"))]
    error = fault(tmp_path, *nodes)
    assert error.code == "E13009"
    assert "'r' (2 times), 's' (2 times)" in error.first.why
    graph = loaded(tmp_path, *nodes, options=LoadOptions(rename_duplicates=True)).graph
    assert [n for n in names(graph) if n not in ("x", "Node_Output")] == ["r", "r__1", "s", "s__1"]


def test_a_node_named_like_an_input_is_a_duplicate(tmp_path: Path) -> None:
    assert fault(tmp_path, node("Relu", ["x"], ["y"], name="x")).code == "E13009"


def test_a_constant_node_keeps_its_name_and_its_data_stay_in_the_file(tmp_path: Path) -> None:
    tensor = weight("", np.ones((2048, 3), F32))
    model = loaded(tmp_path, node("Constant", [], ["k"], name="K", value=tensor), node("MatMul", ["k", "t"], ["y"]),
                   weights=[weight("t", np.ones((3, 1), F32))])  # fmt: skip
    constant = model.graph.node("K")
    assert constant.type == "Const"
    assert isinstance(constant.attrs["value"].source, FileSlice)


# ---------------------------------------------------------------- inputs and outputs


def test_inputs_that_are_initializers_are_constants_and_the_others_are_numbered(tmp_path: Path) -> None:
    nodes = [node("Add", ["x", "w"], ["a"]), node("Add", ["a", "z"], ["y"])]
    inputs = [value("x", "N", 3), value("w", 3), value("z", 1, 3)]
    graph = load_graph(save(tmp_path / "m.onnx", nodes, inputs, ["y"], [weight("w", np.ones(3, F32))])).graph
    assert [(each.name, each.attrs["index"], each.output_descs[0].shape) for each in graph.inputs] == [
        ("x", 0, (-1, 3)),
        ("z", 1, (1, 3)),
    ]
    assert graph.nodes_of("Add")[1].output_descs[0].shape == (-1, 3)


def test_outputs_keep_the_names_of_their_tensors_in_order(tmp_path: Path) -> None:
    nodes = [node("Relu", ["x"], ["a"]), node("Neg", ["x"], ["b"])]
    graph = load_graph(save(tmp_path / "m.onnx", nodes, [value("x", 2)], ["b", "x", "a"])).graph
    assert graph.output_names == ["b", "x", "a"]
    assert [str(port) for port in graph.outputs] == ["Neg_1:0", "x:0", "Relu_0:0"]


def test_a_model_without_inputs_is_accepted_unless_strict(tmp_path: Path) -> None:
    path = save(tmp_path / "m.onnx", [node("Neg", ["w"], ["y"])], [], ["y"], [weight("w", np.ones(2, F32))])
    assert load_graph(path).graph.inputs == []
    with pytest.raises(InputError) as caught:
        load_graph(path, options=LoadOptions(strict=True))
    assert caught.value.code == "E16001"


def test_input_shapes_are_applied_before_shapes_are_inferred(tmp_path: Path) -> None:
    nodes = [node("Shape", ["x"], ["s"]), node("ConstantOfShape", ["s"], ["y"])]
    path = save(tmp_path / "m.onnx", nodes, [value("x", "N", 3)], ["y"])
    model = load_graph(path, input_shapes=parse_input_shapes(["x:4,3"]))
    assert model.graph.outputs[0].desc.shape == (4, 3)
    assert [(row.model_shape, row.compiled) for row in model.inputs] == [("[N,3]", "[4,3]")]


@pytest.mark.parametrize(("name", "code"), [("w", "E10017"), ("a", "E10017"), ("q", "E10016")])
def test_shapes_for_what_is_no_input_say_what_it_is(tmp_path: Path, name: str, code: str) -> None:
    nodes = [node("Add", ["x", "w"], ["a"]), node("Neg", ["a"], ["y"])]
    path = save(tmp_path / "m.onnx", nodes, [value("x", 3)], ["y"], [weight("w", np.ones(3, F32))])
    with pytest.raises(InvalidOption) as caught:
        load_graph(path, input_shapes=parse_input_shapes([f"{name}:3"]))
    assert caught.value.code == code


def test_a_missing_optional_input_stays_unconnected(tmp_path: Path) -> None:
    graph = loaded(tmp_path, node("Clip", ["x", "", "high"], ["y"]), weights=[weight("high", F32(1))]).graph
    feeds = {"x": np.array([[-5, 0, 5]] * 2, F32)}
    np.testing.assert_array_equal(evaluate_graph(graph, feeds)[0][0], np.minimum(feeds["x"], 1))


# ---------------------------------------------------------------- order and soundness


def test_nodes_in_any_order_are_sorted(tmp_path: Path) -> None:
    nodes = [node("Neg", ["a"], ["y"], name="second"), node("Relu", ["x"], ["a"], name="first")]
    graph = load_graph(save(tmp_path / "m.onnx", nodes, [value("x", 3)], ["y"])).graph
    assert names(graph)[:3] == ["x", "first", "second"]


def test_a_cycle_names_the_nodes_on_it(tmp_path: Path) -> None:
    nodes = [node("Add", ["x", "b"], ["a"], name="p"), node("Neg", ["a"], ["b"], name="q")]
    error = fault(tmp_path, *nodes)
    assert "cycle" in error.first.message
    assert "p, q" in error.first.why


def test_tensors_that_nothing_makes_are_listed_together(tmp_path: Path) -> None:
    error = fault(tmp_path, node("Add", ["x", "u"], ["a"], name="p"), node("Add", ["a", "v"], ["y"], name="q"))
    assert error.first.why == "'u' of node 'p', 'v' of node 'q'"


def test_a_tensor_made_twice_names_both_makers(tmp_path: Path) -> None:
    error = fault(tmp_path, node("Relu", ["x"], ["a"], name="p"), node("Neg", ["x"], ["a"], name="q"))
    assert "made twice" in error.first.message
    assert "node 'p' and by node 'q'" in error.first.why


def test_inputs_that_do_not_fit_are_left_to_shape_inference(tmp_path: Path) -> None:
    model = loaded(tmp_path, node("Add", ["x", "w"], ["y"]), weights=[weight("w", np.ones(5, F32))])
    assert model.graph.outputs[0].desc.shape == UNKNOWN_RANK


# ---------------------------------------------------------------- unsupported operators


def test_all_unsupported_operators_are_reported_at_once_with_counts_and_first_nodes(tmp_path: Path) -> None:
    nodes = [
        node("Foo", ["x"], ["a"], name="foo1", domain="my"),
        node("Foo", ["a"], ["b"], name="foo2", domain="my"),
        node("Reluu", ["b"], ["c"], name="r"),
    ]
    path = save(tmp_path / "m.onnx", nodes, [value("x", 3)], ["c"],
                opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("my", 2)])  # fmt: skip
    with pytest.raises(InputError) as caught:
        load_graph(path)
    summary, reluu, foo = caught.value.diagnostics
    assert (summary.code, summary.why) == ("G1005", "Reluu (1), my.Foo (2)")
    assert (foo.code, foo.actual, foo.where) == ("E16002", "my::2::Foo", "2 nodes, the first is 'foo1'")
    assert "nearest known operator is Relu" in reluu.why


def test_allow_unsupported_keeps_such_nodes(tmp_path: Path) -> None:
    path = save(tmp_path / "m.onnx", [node("Foo", ["x"], ["y"], domain="my", alpha=2)], [value("x", 3)], ["y"],
                opset_imports=[helper.make_opsetid("my", 1)])  # fmt: skip
    graph = load_graph(path, options=LoadOptions(allow_unsupported=True)).graph
    assert graph.node("Foo_0").attrs == {"alpha": 2}
    assert verify(graph) == []


# ---------------------------------------------------------------- outline


def test_a_model_without_a_graph_is_e16004_and_without_outputs_e16001(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    onnx.save(onnx.ModelProto(ir_version=9, opset_import=[helper.make_opsetid("", 17)]), path)
    with pytest.raises(InputError) as caught:
        load_graph(path)
    assert caught.value.code == "E16004"
    with pytest.raises(InputError) as caught:
        load_graph(save(path, [node("Relu", ["x"], ["y"])], [value("x", 3)], []))
    assert caught.value.code == "E16001"


def test_external_data_are_files_that_were_read(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    nodes = [node("Add", ["x", "w"], ["y"])]
    graph = helper.make_graph(
        nodes, "g", [value("x", 4096)], [value("y", 4096)], [weight("w", np.arange(4096, dtype=F32))]
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.save_model(model, path, save_as_external_data=True, location="w.bin", size_threshold=0)
    loaded_model = load_graph(path)
    assert [Path(each).name for each in loaded_model.files] == ["m.onnx", "w.bin"]
    np.testing.assert_array_equal(
        loaded_model.graph.node("w_Initializer_0").attrs["value"].numpy(), np.arange(4096, dtype=F32)
    )
    (tmp_path / "w.bin").unlink()
    with pytest.raises(InputError) as caught:
        load_graph(path)
    assert caught.value.code == "G1003"


# ---------------------------------------------------------------- functions and subgraphs


def test_functions_are_inlined_with_their_attributes(tmp_path: Path) -> None:
    body = [
        helper.make_node("LeakyRelu", ["a"], ["t"], name="leaky"),
        helper.make_node("Add", ["t", "b"], ["y"], name="sum"),
    ]
    body[0].attribute.append(onnx.AttributeProto(name="alpha", ref_attr_name="slope", type=onnx.AttributeProto.FLOAT))
    opset = [helper.make_opsetid("", 17)]
    function = helper.make_function("my", "F", ["a", "b"], ["y"], body, opset, attributes=["slope"])
    nodes = [node("F", ["x", "x"], ["y"], name="call", domain="my", slope=0.5)]
    path = save(tmp_path / "m.onnx", nodes, [value("x", 3)], ["y"], functions=[function],
                opset_imports=[*opset, helper.make_opsetid("my", 1)])  # fmt: skip
    graph = load_graph(path).graph
    inner = graph.node("call_leaky")
    assert inner.attrs["_datadump_original_op_names"] == ("call",)
    np.testing.assert_allclose(evaluate_graph(graph, {"x": np.array([-2, 0, 2], F32)})[0][0], [-3, 0, 4])


def branches(then_value: str, else_value: str) -> dict[str, onnx.GraphProto]:
    def graph(name: str, tensor: str) -> onnx.GraphProto:
        nodes = [node("Add", [tensor, "w"], [f"{name}_y"], name="add")]
        return helper.make_graph(nodes, name, [], [helper.make_empty_tensor_value_info(f"{name}_y")])

    return {"then_branch": graph("t", then_value), "else_branch": graph("e", else_value)}


def test_branches_capture_outer_tensors_by_name_and_get_outer_constants_as_their_own(tmp_path: Path) -> None:
    nodes = [
        node("Neg", ["x"], ["n"], name="neg"),
        node("ReduceMax", ["x"], ["m"], name="max", keepdims=0),
        node("Cast", ["m"], ["c"], name="cond", to=TensorProto.BOOL),
        node("If", ["c"], ["y"], name="if", **branches("x", "n")),
    ]
    graph = loaded(tmp_path, *nodes, weights=[weight("w", np.ones(3, F32))]).graph
    (branch,) = graph.nodes_of("If")
    assert branch.subgraphs == ["g/if_0_then_branch", "g/if_1_else_branch"]
    assert [str(port) for port in branch.inputs if port is not None][1:] == ["neg:0", "x:0"]
    for name in branch.subgraphs:
        sub = graph.subgraphs[name]
        assert [(each.name, each.attrs["index"]) for each in sub.inputs] == [("n", 0), ("x", 1)]
        assert [each.name for each in sub.nodes_of("Const")] == ["w_Initializer_0"]
    assert graph.outputs[0].desc.shape == (2, 3)


def test_unnamed_ifs_inside_both_branches_have_graphs_of_their_own(tmp_path: Path) -> None:
    def nested(name: str) -> onnx.GraphProto:
        inner = node("If", ["c"], [f"{name}_y"], **branches("x", "x"))
        return helper.make_graph([inner], name, [], [helper.make_empty_tensor_value_info(f"{name}_y")])

    outer = node("If", ["c"], ["y"], then_branch=nested("a"), else_branch=nested("b"))
    path = save(tmp_path / "m.onnx", [outer], [value("x", 3), value("c", dtype=TensorProto.BOOL)], ["y"],
                [weight("w", np.ones(3, F32))])  # fmt: skip
    graph = load_graph(path).graph
    assert len(graph.subgraphs) == 6
    assert verify(graph) == []


# ---------------------------------------------------------------- a real model


def test_the_digits_model_loads_and_gives_onnxruntimes_numbers() -> None:
    model = load_graph(DIGITS / "digits.onnx", input_shapes=parse_input_shapes(["image:360,1,8,8"]))
    assert verify(model.graph) == []
    assert all(desc.is_static for each in model.graph.nodes() for desc in each.output_descs)
    with np.load(DIGITS / "test_images.npz") as images, np.load(DIGITS / "expected.npz") as expected:
        (result,), _ = evaluate_graph(model.graph, {"image": images["image"]})
        np.testing.assert_allclose(result, expected["probabilities"], atol=1e-5)


def test_loading_is_deterministic() -> None:
    first, second = (load_graph(DIGITS / "digits.onnx").graph for _ in range(2))
    assert [(n.name, n.type, n.attrs.keys(), n.output_descs) for n in first.nodes()] == [
        (n.name, n.type, n.attrs.keys(), n.output_descs) for n in second.nodes()
    ]
