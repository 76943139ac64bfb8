"""Model files that no exporter writes: each is refused with one clear message, none is taken for a bug of gecli."""

from __future__ import annotations

import json
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from gecli.errors import GecliError, InputError
from gecli.loading import load_graph
from gecli.passes.infer_shape import infer_graph

node = helper.make_node


def value(name: str, *dims: int, dtype: int = TensorProto.FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, dtype, list(dims))


def graph(nodes: list[Any], outputs: list[str], inputs: list[Any] | None = None, weights: Any = ()) -> onnx.GraphProto:
    results = [helper.make_empty_tensor_value_info(name) for name in outputs]
    return helper.make_graph(nodes, "g", [value("x", 2, 3)] if inputs is None else inputs, results, list(weights))


def save(path: Path, content: onnx.GraphProto, **more: Any) -> Path:
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("f", 1)]
    path.write_bytes(helper.make_model(content, ir_version=9, opset_imports=opsets, **more).SerializeToString())
    return path


def weight(name: str, array: Any) -> onnx.TensorProto:
    return numpy_helper.from_array(np.asarray(array), name)


def refused(path: Path) -> InputError:
    with pytest.raises(InputError) as caught:
        load_graph(path)
    for diagnostic in caught.value.at(where=str(path)).diagnostics:
        text = "\n".join(diagnostic.lines())
        assert all(part in text for part in ("-->", "why:", "do:")), text
    return caught.value


# ---------------------------------------------------------------- ONNX: names


@pytest.mark.parametrize(
    ("inputs", "weights"),
    [
        (["x", "x"], []),
        (["x"], ["w", "w"]),
    ],
    ids=["two inputs", "two initializers"],
)
def test_a_tensor_that_enters_a_graph_twice_is_refused(tmp_path: Path, inputs: list[str], weights: list[str]) -> None:
    content = graph(
        [node("Relu", ["x"], ["y"])],
        ["y"],
        [value(name, 2, 3) for name in inputs],
        [weight(name, np.ones(3, np.float32)) for name in weights],
    )
    error = refused(save(tmp_path / "m.onnx", content))
    assert (error.code, error.first.message) == ("E13005", f"tensor {(weights or inputs)[0]!r} is made twice")


@pytest.mark.parametrize("name", ["Node_Output", "w_Initializer_0"])
def test_a_model_may_use_the_names_that_gecli_gives(tmp_path: Path, name: str) -> None:
    content = graph([node("Add", [name, "w"], ["y"])], ["y"], [value(name, 2, 3)], [weight("w", np.ones(3, "f4"))])
    loaded = load_graph(save(tmp_path / "m.onnx", content)).graph
    assert [each.name for each in loaded.inputs] == [name]
    assert loaded.outputs[0].desc.shape == (2, 3)


def test_a_name_that_is_made_twice_is_a_duplicate(tmp_path: Path) -> None:
    nodes = [
        node("Gemm", ["x", "w", "c"], ["a"], name="fc", beta=2.0),
        node("Neg", ["a"], ["y"], name="PartitionedCall_fc_Muls_1"),
    ]
    weights = [weight("w", np.ones((3, 2), "f4")), weight("c", np.ones(2, "f4"))]
    error = refused(save(tmp_path / "m.onnx", graph(nodes, ["y"], weights=weights)))
    assert error.code == "E13009"


@pytest.mark.parametrize("name", ["node1", "x1", "g1", "w1"])
def test_a_name_that_is_not_utf8_is_refused(tmp_path: Path, name: str) -> None:
    content = graph(
        [node("Add", ["x1", "w1"], ["y"], name="node1")], ["y"], [value("x1", 2, 3)], [weight("w1", np.ones(3, "f4"))]
    )
    content.name = "g1"
    path = save(tmp_path / "m.onnx", content)
    path.write_bytes(path.read_bytes().replace(name.encode(), name[:-1].encode() + b"\xee"))
    assert "not UTF-8" in refused(path).first.message


# ---------------------------------------------------------------- ONNX: functions


def function(name: str, *calls: str, domain: str = "f") -> onnx.FunctionProto:
    """A function that calls others one after the other; without calls it is a Relu."""
    names = ["p", *(f"t{k}" for k in range(len(calls) - 1)), "q"]
    nodes = [node(call, [a], [b], domain="f") for call, a, b in zip(calls, names, names[1:])]
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("f", 1)]
    return helper.make_function(domain, name, ["p"], ["q"], nodes or [node("Relu", ["p"], ["q"])], opsets)


def calling(path: Path, name: str, functions: list[onnx.FunctionProto]) -> Path:
    return save(path / "m.onnx", graph([node(name, ["x"], ["y"], domain="f")], ["y"]), functions=functions)


@pytest.mark.parametrize(
    ("functions", "loop"),
    [
        ([function("A", "A")], "f.A -> f.A"),
        ([function("A", "B"), function("B", "A")], "f.A -> f.B -> f.A"),
    ],
    ids=["itself", "each other"],
)
def test_functions_that_call_themselves_are_refused(tmp_path: Path, functions: list[Any], loop: str) -> None:
    error = refused(calling(tmp_path, "A", functions))
    assert (error.code, error.first.why) == ("E13005", loop)


def test_functions_that_double_thirty_times_are_counted_and_not_inlined(tmp_path: Path) -> None:
    functions = [function("A0"), *(function(f"A{k}", f"A{k - 1}", f"A{k - 1}") for k in range(1, 31))]
    error = refused(calling(tmp_path, "A30", functions))
    assert error.code == "E13015"
    assert str(2**30) in error.first.why


def test_functions_nested_too_deeply_are_refused(tmp_path: Path) -> None:
    functions = [function("A0"), *(function(f"A{k}", f"A{k - 1}") for k in range(1, 2000))]
    assert "nested too deeply" in refused(calling(tmp_path, "A1999", functions)).first.message


def test_an_unsupported_operator_inside_a_branch_inside_a_function_is_found(tmp_path: Path) -> None:
    then, other = graph([node("Fancy", ["p"], ["a"])], ["a"], []), graph([node("Relu", ["p"], ["b"])], ["b"], [])
    nodes = [
        node("Constant", [], ["c"], value=weight("", np.array(True))),
        node("If", ["c"], ["q"], then_branch=then, else_branch=other),
    ]
    body = helper.make_function("f", "A", ["p"], ["q"], nodes, [helper.make_opsetid("", 17)])
    error = refused(calling(tmp_path, "A", [body]))
    assert [each.code for each in error.diagnostics] == ["G1005", "E16002"]


# ---------------------------------------------------------------- ONNX: attributes and inputs

LISTS = ("kernel_shape", "strides", "dilations", "pads")


@pytest.mark.parametrize("attribute", LISTS)
@pytest.mark.parametrize("bad", [1, 1.5, b"two", [0.5, 0.5], [1], [0, 0, 0, 0, 0]], ids=str)
def test_a_window_attribute_of_the_wrong_form_names_the_node(tmp_path: Path, attribute: str, bad: Any) -> None:
    window = {"kernel_shape": [3, 3], attribute: bad}
    content = graph(
        [node("Conv", ["x", "w"], ["y"], name="n", **window)],
        ["y"],
        [value("x", 1, 1, 8, 8)],
        [weight("w", np.ones((1, 1, 3, 3), "f4"))],
    )
    error = refused(save(tmp_path / "m.onnx", content))
    assert (error.code, error.first.node) == ("E13014", "n")


@pytest.mark.parametrize("op", ["Conv", "MaxPool", "AveragePool", "LpPool", "ConvTranspose"])
def test_a_stride_of_zero_is_refused_before_anything_divides_by_it(tmp_path: Path, op: str) -> None:
    inputs = ["x", "w"] if op.startswith("Conv") else ["x"]
    content = graph(
        [node(op, inputs, ["y"], kernel_shape=[3, 3], strides=[0, 1], name="n")],
        ["y"],
        [value("x", 1, 1, 8, 8)],
        [weight("w", np.ones((1, 1, 3, 3), "f4"))] if len(inputs) > 1 else [],
    )
    assert refused(save(tmp_path / "m.onnx", content)).first.node == "n"


@pytest.mark.parametrize(
    ("op", "attributes"),
    [
        ("Celu", {"alpha": [1.0]}),
        ("Hardmax", {"axis": [1]}),
        ("LRN", {"size": 0}),
        ("LayerNormalization", {"axis": -(2**63)}),
        ("ArgMax", {"axis": weight("", np.ones(2))}),
        ("Mean", {}),
    ],
)
def test_what_an_importer_cannot_use_names_the_node(tmp_path: Path, op: str, attributes: dict[str, Any]) -> None:
    inputs = {"Mean": [], "LayerNormalization": ["x", "x"]}.get(op, ["x"])
    error = refused(save(tmp_path / "m.onnx", graph([node(op, inputs, ["y"], name="n", **attributes)], ["y"])))
    assert (error.code, error.first.node) == ("E13014", "n")


@pytest.mark.parametrize(("op", "inputs"), [("Add", ["x", ""]), ("Neg", [""]), ("Where", ["", "x", "x"])])
def test_a_needed_input_that_is_left_out_is_named(tmp_path: Path, op: str, inputs: list[str]) -> None:
    loaded = load_graph(save(tmp_path / "m.onnx", graph([node(op, inputs, ["y"], name="n")], ["y"]))).graph
    with pytest.raises(GecliError) as caught:
        infer_loaded(loaded)
    assert caught.value.code == "G2001"
    assert "is missing" in caught.value.first.why


def infer_loaded(loaded: Any) -> None:
    from collections import Counter

    infer_graph(loaded, Counter(), folding=True)


# ---------------------------------------------------------------- ONNX: shapes


def test_a_weight_of_more_dims_than_arrays_have_is_refused(tmp_path: Path) -> None:
    many = TensorProto(name="w", data_type=1, dims=[1] * 65, raw_data=bytes(4))
    content = graph([node("Identity", ["w"], ["y"])], ["y"], [], [many])
    assert "65 dims" in refused(save(tmp_path / "m.onnx", content)).first.why


def test_an_input_of_more_dims_than_arrays_have_is_refused(tmp_path: Path) -> None:
    content = graph([node("Relu", ["x"], ["y"])], ["y"], [value("x", *[1] * 65)])
    assert "65 dims" in refused(save(tmp_path / "m.onnx", content)).first.why


def test_a_shape_tensor_of_two_thousand_million_dims_makes_no_such_descriptor(tmp_path: Path) -> None:
    shape = value("s", 2**31, dtype=TensorProto.INT64)
    content = graph([node("ConstantOfShape", ["s"], ["y"], name="n")], ["y"], [shape])
    with pytest.raises(GecliError) as caught:
        infer_loaded(load_graph(save(tmp_path / "m.onnx", content)).graph)
    assert str(2**31) in caught.value.first.why


def test_a_diagonal_matrix_that_no_memory_holds_is_left_to_the_run(tmp_path: Path) -> None:
    content = graph([node("EyeLike", ["x"], ["y"])], ["y"], [value("x", 2**31, 2**31)])
    loaded = load_graph(save(tmp_path / "m.onnx", content)).graph
    assert [each.type for each in loaded.nodes() if each.type == "Trilu"] == ["Trilu", "Trilu"]


# ---------------------------------------------------------------- JSON

TINY: dict[str, Any] = {
    "graph": {"name": "t", "inputs": ["x"], "outputs": ["y:0"]},
    "nodes": [
        {"id": "x", "type": "Data", "outputs": [{"dtype": "DT_FLOAT", "shape": [1, 4]}]},
        {"id": "b", "type": "Const", "value": {"dtype": "DT_FLOAT", "shape": [4], "fill": 1}},
        {"id": "y", "type": "Add", "attrs": {}},
    ],
    "links": [{"source": "x", "target": "y"}, {"source": "b", "target": "y"}],
}
MARK = "@@"


def changed(*path: str | int) -> str:
    """The text of TINY with MARK (unquoted) at the place of `path`."""
    document = deepcopy(TINY)
    place: Any = document
    for part in path[:-1]:
        place = place.setdefault(part, {}) if isinstance(place, dict) else place[part]
    place[path[-1]] = MARK
    return json.dumps(document)


PLACES: dict[str, tuple[str | int, ...]] = {
    "dim": ("nodes", 0, "outputs", 0, "shape", 0),
    "shape": ("nodes", 0, "outputs", 0, "shape"),
    "index": ("nodes", 0, "attrs", "index"),
    "attr": ("nodes", 2, "attrs", "a"),
    "fill": ("nodes", 1, "value", "fill"),
    "weight dim": ("nodes", 1, "value", "shape", 0),
    "src_out": ("links", 0, "src_out"),
    "dst_in": ("links", 0, "dst_in"),
    "id": ("nodes", 0, "id"),
    "name": ("graph", "name"),
}
VALUES: dict[str, str] = {
    "many digits": "1" * 5000,
    "infinite": "1e400",
    "2**64": str(2**64),
    "2**53": str(2**53),
    "-2**63": str(-(2**63)),
    "half a pair": '"\\ud800"',
    "nul": '"\\u0000"',
    "deep": "[" * 900 + "]" * 900,
    "kinds in kinds": '{"a":' * 400 + "1" + "}" * 400,
    "null": "null",
}


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("text", VALUES)
def test_a_json_graph_with_an_odd_value_is_loaded_or_refused(tmp_path: Path, place: str, text: str) -> None:
    path = tmp_path / "m.json"
    path.write_text(changed(*PLACES[place]).replace(json.dumps(MARK), VALUES[text]))
    try:
        load_graph(path)
    except GecliError as error:
        assert error.exit_status in (3, 4)


@pytest.mark.parametrize(
    ("change", "part"),
    [
        (lambda d: d["graph"].update(outputs=["y:1000000000"]), "output 1000000000 is out of range"),
        (lambda d: d["links"][0].update(src_out=10**9), "output 1000000000 is out of range"),
        (lambda d: d["links"][0].update(dst_in=10**9), "input 1000000000 is out of range"),
        (lambda d: d["nodes"][1]["value"].update(shape=[2**53]), "too large"),
        (lambda d: d["nodes"][0]["outputs"][0].update(shape=[1] * 65), "too many dims"),
        (lambda d: d["nodes"][1].update(value={"dtype": "DT_FLOAT", "shape": [4], "file": "a\0b"}), "not valid"),
    ],
    ids=["output", "src_out", "dst_in", "fill", "rank", "file name"],
)
def test_a_number_beyond_every_graph_is_refused_at_once(
    tmp_path: Path, change: Callable[[dict[str, Any]], None], part: str
) -> None:
    document = deepcopy(TINY)
    change(document)
    path = tmp_path / "m.json"
    path.write_text(json.dumps(document))
    assert part in refused(path).first.message


def test_warnings_about_unknown_members_come_in_one_order(tmp_path: Path) -> None:
    path = tmp_path / "m.json"
    path.write_text(json.dumps({**TINY, **dict.fromkeys("qponm", 1)}))
    pointers = [warning.pointer for warning in load_graph(path).warnings]
    assert pointers == [f"/{name}" for name in "mnopq"]
