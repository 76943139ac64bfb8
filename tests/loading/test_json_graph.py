"""The JSON graph: what is accepted, how values are typed, that writing loses nothing, and where faults are."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import jsonschema
import networkx as nx
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import gecli
from gecli.errors import InputError, InvalidOption
from gecli.ir.attributes import NamedAttrs, RawAttr
from gecli.ir.dtype import DataType
from gecli.ir.format import Format
from gecli.ir.graph import Graph, feed
from gecli.ir.op_desc import OpDesc
from gecli.ir.tensor_desc import UNKNOWN_RANK, TensorDesc
from gecli.ir.text import text
from gecli.ir.verify import verify
from gecli.ir.weight import FileSlice, Fill, Weight
from gecli.loading import LoadedModel, LoadOptions, load_graph, save_graph
from gecli.loading.input_shapes import parse_input_shapes
from gecli.loading.json_schema import schema_text
from gecli.ops.evaluate import evaluate_graph

REPOSITORY = Path(__file__).resolve().parents[2]
SAMPLES = sorted((REPOSITORY / "samples" / "train").glob("*.json"))
SCHEMA = jsonschema.Draft202012Validator(json.loads(schema_text()))
Json = Any


def tiny() -> dict[str, Json]:
    """The example of the specification, with its value inline."""
    desc = {"dtype": "DT_FLOAT", "shape": [4, 2], "format": "ND"}
    return {
        "gecli_graph": 1,
        "directed": True,
        "multigraph": True,
        "graph": {"name": "tiny", "inputs": ["x"], "outputs": ["y:0"], "opset": None, "attrs": {}},
        "nodes": [
            {"id": "x", "type": "Data", "outputs": [{"dtype": "DT_FLOAT", "shape": ["N", 4], "format": "ND"}]},
            {
                "id": "w",
                "type": "Variable",
                "outputs": [desc],
                "attrs": {"_init_value": {"tensor": {"data": [[1, 2], [3, 4], [5, 6], [7, 8]]}}},
            },
            {"id": "b", "type": "Const", "value": {"dtype": "DT_FLOAT", "shape": [2], "data": [10, 20]}},
            {"id": "mm", "type": "MatMulV2", "attrs": {"transpose_x1": False}},
            {"id": "y", "type": "Add"},
        ],
        "links": [
            {"source": "x", "target": "mm", "key": 0, "src_out": 0, "dst_in": 0},
            {"source": "w", "target": "mm", "key": 0, "src_out": 0, "dst_in": 1},
            {"source": "mm", "target": "y", "key": 0, "src_out": 0, "dst_in": 0},
            {"source": "b", "target": "y", "key": 0, "src_out": 0, "dst_in": 1},
            {"source": "w", "target": "y", "key": 1, "control": True},
        ],
    }


def load(directory: Path, document: Json, **more: Any) -> LoadedModel:
    path = directory / "g.json"
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    model = load_graph(path, **more)
    assert verify(model.graph) == []
    return model


def fault(directory: Path, document: Json, **more: Any) -> InputError:
    with pytest.raises(InputError) as caught:
        load(directory, document, **more)
    assert caught.value.exit_status == 3
    return caught.value


def with_node(node: dict[str, Json]) -> dict[str, Json]:
    document = tiny()
    document["nodes"].append(node)
    return document


def tensor(directory: Path, literal: Json) -> Weight:
    model = load(directory, with_node({"id": "t", "type": "Const", "value": literal}))
    weight = model.graph.node("t").attrs["value"]
    assert isinstance(weight, Weight)
    return weight


# ---------------------------------------------------------------- reading


def test_the_example_loads_and_computes(tmp_path: Path) -> None:
    graph = load(tmp_path, tiny(), input_shapes=parse_input_shapes([], ["N=1"])).graph
    (y,), _ = evaluate_graph(graph, {"x": np.ones((1, 4), np.float32)})
    np.testing.assert_array_equal(y, [[26, 40]])
    assert graph.node("y").output_descs[0].shape == (1, 2)
    assert graph.output_names == ["y:0"]
    assert list(graph.node("y").control_in) == [graph.node("w")]


def test_nodes_without_outputs_are_inferred_with_unknown_dims_kept(tmp_path: Path) -> None:
    model = load(tmp_path, tiny())
    assert [d.shape for n in ("mm", "y") for d in model.graph.node(n).output_descs] == [(-1, 2), (-1, 2)]
    assert model.inputs[0].model_shape == "[N,4]"


def test_the_initial_value_of_a_variable_moves_to_its_output(tmp_path: Path) -> None:
    variable = load(tmp_path, tiny()).graph.node("w")
    assert "_init_value" not in variable.attrs
    assert variable.init_value is not None
    assert (variable.init_value.dtype, variable.init_value.shape) == (DataType.FLOAT, (4, 2))


def test_edges_is_another_name_of_links(tmp_path: Path) -> None:
    document = tiny()
    document["edges"] = document.pop("links")
    assert text(load(tmp_path, document).graph) == text(load(tmp_path, tiny()).graph)


def test_links_without_an_index_take_the_next_free_input(tmp_path: Path) -> None:
    document = tiny()
    for link in document["links"]:
        link.pop("src_out", None)
        if link.get("dst_in") == 1:
            del link["dst_in"]
    assert text(load(tmp_path, document).graph) == text(load(tmp_path, tiny()).graph)


def test_numbers_as_ids_become_strings(tmp_path: Path) -> None:
    document: Json = {
        "nodes": [
            {"id": 1, "type": "Data", "outputs": [{"dtype": "float32", "shape": [2]}]},
            {"id": 2, "type": "Relu"},
        ],
        "links": [{"source": 1, "target": 2}],
    }
    assert [node.name for node in load(tmp_path, document).graph.nodes()] == ["1", "2", "Node_Output"]


def test_without_outputs_all_leaves_are_returned(tmp_path: Path) -> None:
    document = tiny()
    del document["graph"]["outputs"]
    document["nodes"].append({"id": "z", "type": "Relu"})
    document["links"].append({"source": "mm", "target": "z"})
    assert load(tmp_path, document).graph.output_names == ["y:0", "z:0"]


def test_graph_inputs_fix_the_order_of_the_data_nodes(tmp_path: Path) -> None:
    document = with_node({"id": "v", "type": "Data", "outputs": [{"dtype": "DT_INT32", "shape": []}]})
    document["graph"]["inputs"] = ["v", "x"]
    assert [node.name for node in load(tmp_path, document).graph.inputs] == ["v", "x"]


def test_what_networkx_writes_is_read(tmp_path: Path) -> None:
    graph = nx.MultiDiGraph(name="n", outputs=["y"])
    graph.add_node("x", type="Data", outputs=[{"dtype": "DT_FLOAT", "shape": [2]}])
    graph.add_node("y", type="Relu")
    graph.add_edge("x", "y", src_out=0, dst_in=0)
    document = nx.node_link_data(graph, edges="links")
    assert [str(port) for port in load(tmp_path, document).graph.outputs] == ["y:0"]


def test_a_changed_input_shape_changes_the_declared_shapes_behind_it() -> None:
    path = REPOSITORY / "samples" / "train" / "mlp_train.json"
    graph = load_graph(path, input_shapes=parse_input_shapes(["x:8,4;labels:8,3"])).graph
    assert verify(graph) == []
    assert [graph.node(name).output_descs[0].shape for name in ("mm1", "h", "logits", "loss")] == [
        (8, 5),
        (8, 5),
        (8, 3),
        (),
    ]


def test_shapes_for_a_node_that_is_no_input_are_e10017(tmp_path: Path) -> None:
    with pytest.raises(InvalidOption) as caught:
        load(tmp_path, tiny(), input_shapes=parse_input_shapes(["mm:1,2"]))
    assert caught.value.code == "E10017"


def test_unknown_members_are_warnings_with_a_pointer(tmp_path: Path) -> None:
    model = load(
        tmp_path, with_node({"id": "r", "type": "Const", "valu": 1, "value": {"dtype": "f32", "fill": 0, "shape": []}})
    )
    assert [(w.pointer, w.severity, w.do) for w in model.warnings] == [
        ("/nodes/5/valu", "warning", "did you mean 'value'?")
    ]


def test_the_python_api_returns_the_graph_with_networkx_inside(tmp_path: Path) -> None:
    path = tmp_path / "g.json"
    path.write_text(json.dumps(tiny()))
    graph = gecli.load_graph(path)
    assert isinstance(graph, Graph)
    assert sorted(key for _, _, key in graph.networkx.in_edges("y", keys=True)) == [("c",), ("d", 0, 0), ("d", 0, 1)]


# ---------------------------------------------------------------- attributes and tensors


@pytest.mark.parametrize(
    ("literal", "value"),
    [
        (True, True),
        (3, 3),
        (1.0, 1.0),
        ("NCHW", "NCHW"),
        ([1, 2], (1, 2)),
        ([1, 2.5], (1.0, 2.5)),
        ([[1], [2, 3]], ((1,), (2, 3))),
        ([], ()),
        ({"dtype": "float16"}, DataType.FLOAT16),
        ({"format": "NHWC"}, Format.NHWC),
        ({"bytes": "AAE="}, b"\0\1"),
        ({"f": 1}, 1.0),
        ({"f": [1, "inf"]}, (1.0, float("inf"))),
        ({"i": 1}, 1),
        ({"desc": {"dtype": "DT_INT8", "shape": None}}, TensorDesc(DataType.INT8, UNKNOWN_RANK)),
        ({"func": {"name": "f", "attrs": {"a": 1}}}, NamedAttrs("f", {"a": 1})),
        ({"raw": {"kind": "g", "data": "AA=="}}, RawAttr("g", b"\0")),
    ],
)
def test_an_attribute_is_typed_by_its_form(tmp_path: Path, literal: Json, value: Any) -> None:
    node = {"id": "t", "type": "Const", "attrs": {"a": literal}, "value": {"dtype": "DT_FLOAT", "shape": [], "data": 0}}
    found = load(tmp_path, with_node(node)).graph.node("t").attrs["a"]
    assert found == value
    assert type(found) is type(value)


def test_an_integer_for_a_declared_float_attribute_is_a_float(tmp_path: Path) -> None:
    document = with_node({"id": "m", "type": "Muls", "attrs": {"value": 2}})
    document["links"].append({"source": "y", "target": "m"})
    value = load(tmp_path, document).graph.node("m").attrs["value"]
    assert type(value) is float


@pytest.mark.parametrize(
    ("literal", "array"),
    [
        ({"dtype": "DT_FLOAT", "shape": [2, 2], "data": [1, 2, 3, 4]}, np.array([[1, 2], [3, 4]], np.float32)),
        ({"dtype": "DT_FLOAT", "data": [[1.5]]}, np.array([[1.5]], np.float32)),
        ({"dtype": "DT_FLOAT", "data": [1, "nan", "-inf"]}, np.array([1, np.nan, -np.inf], np.float32)),
        ({"dtype": "DT_FLOAT16", "shape": [], "data": 0.5}, np.float16(0.5)),
        ({"dtype": "DT_INT64", "data": [-(2**62)]}, np.array([-(2**62)])),
        ({"dtype": "DT_UINT64", "data": [2**64 - 1]}, np.array([2**64 - 1], np.uint64)),
        ({"dtype": "DT_BOOL", "data": [True, False]}, np.array([True, False])),
        ({"dtype": "DT_FLOAT", "shape": [0], "data": []}, np.zeros(0, np.float32)),
        (
            {"dtype": "DT_INT16", "shape": [2], "base64": base64.b64encode(b"\1\0\2\0").decode()},
            np.array([1, 2], np.int16),
        ),
        ({"dtype": "DT_INT32", "shape": [2, 3], "fill": 7}, np.full((2, 3), 7, np.int32)),
        ({"tensor": {"dtype": "DT_INT32", "shape": [1], "fill": 7}}, np.array([7], np.int32)),
    ],
)
def test_a_tensor_is_read_from_each_source(tmp_path: Path, literal: Json, array: Any) -> None:
    found = tensor(tmp_path, literal).numpy()
    np.testing.assert_array_equal(found, array)
    assert found.dtype == np.asarray(array).dtype


def test_large_fills_and_files_stay_references(tmp_path: Path) -> None:
    np.save(tmp_path / "b.npy", np.arange(6, dtype=np.float32).reshape(2, 3))
    (tmp_path / "raw.bin").write_bytes(b"xx" + np.arange(4, dtype=np.int32).tobytes())
    assert isinstance(tensor(tmp_path, {"dtype": "f32", "shape": [1 << 20], "fill": 0.5}).source, Fill)
    array = tensor(tmp_path, {"file": "b.npy"})
    assert isinstance(array.source, FileSlice)
    np.testing.assert_array_equal(array.numpy(), [[0, 1, 2], [3, 4, 5]])
    raw = tensor(tmp_path, {"dtype": "DT_INT32", "shape": [3], "file": "raw.bin", "offset": 6, "length": 12})
    np.testing.assert_array_equal(raw.numpy(), [1, 2, 3])


def test_files_are_listed_as_read_and_fortran_order_is_turned(tmp_path: Path) -> None:
    np.save(tmp_path / "b.npy", np.asfortranarray(np.arange(6, dtype=np.float32).reshape(2, 3)))
    model = load(tmp_path, with_node({"id": "t", "type": "Const", "value": {"file": "b.npy"}}))
    assert [Path(each).name for each in model.files] == ["g.json", "b.npy"]
    np.testing.assert_array_equal(model.graph.node("t").attrs["value"].numpy(), [[0, 1, 2], [3, 4, 5]])


def test_random_values_depend_on_the_seed_only_and_stay_in_their_range(tmp_path: Path) -> None:
    literal = {"dtype": "DT_FLOAT", "shape": [100], "random": {"seed": 3, "range": [-2, -1]}}
    first, second = tensor(tmp_path, literal).numpy(), tensor(tmp_path, literal).numpy()
    np.testing.assert_array_equal(first, second)
    assert (first >= -2).all()
    assert (first <= -1).all()


# ---------------------------------------------------------------- faults


def patched(pointer: str, value: Json) -> dict[str, Json]:
    """The example with one value replaced (added when it is not there)."""
    document = tiny()
    place: Any = document
    *path, last = [int(key) if key.isdecimal() else key for key in pointer.strip("/").split("/")]
    for key in path:
        place = place[key]
    if isinstance(last, int) and last == len(place):
        place.append(value)
    else:
        place[last] = value
    return document


@pytest.mark.parametrize(
    ("at", "value", "pointer", "code"),
    [
        ("/gecli_graph", 2, "/gecli_graph", "E13005"),
        ("/directed", False, "/directed", "E13005"),
        ("/nodes", 1, "/nodes", "E13005"),
        ("/nodes/5", [], "/nodes/5", "E13005"),
        ("/nodes/5", {"type": "Relu"}, "/nodes/5", "E13005"),
        ("/nodes/5", {"id": "q"}, "/nodes/5", "E13005"),
        ("/nodes/5", {"id": "", "type": "Relu"}, "/nodes/5/id", "E13005"),
        ("/nodes/5", {"id": "x", "type": "Relu"}, "/nodes/5/id", "E13009"),
        ("/nodes/0/outputs/0/dtype", "DT_FLOT", "/nodes/0/outputs/0/dtype", "E13005"),
        ("/nodes/0/outputs/0/shape", 4, "/nodes/0/outputs/0/shape", "E13005"),
        ("/nodes/0/outputs/0/shape", [-2], "/nodes/0/outputs/0/shape/0", "E13005"),
        ("/nodes/0/outputs/0/format", "NCWH", "/nodes/0/outputs/0/format", "E13005"),
        ("/nodes/0/outputs", [], "/nodes/0", "E13005"),
        ("/nodes/2/value/data", [1, 2, 3], "/nodes/2/value/data", "G1004"),
        ("/nodes/2/value/data", [[1], [2, 3]], "/nodes/2/value/data", "E13005"),
        ("/nodes/2/value/data", ["a", "b"], "/nodes/2/value/data", "E13005"),
        ("/nodes/2/value/fill", 1, "/nodes/2/value", "E13005"),
        ("/nodes/2/value", {"dtype": "DT_INT8", "data": [300]}, "/nodes/2/value/data", "E13005"),
        ("/nodes/2/value", {"dtype": "DT_INT8", "data": [1.5]}, "/nodes/2/value/data", "E13005"),
        ("/nodes/2/value", {"dtype": "DT_INT8", "shape": [2], "base64": "AA=="}, "/nodes/2/value", "G1004"),
        ("/nodes/2/value", {"dtype": "DT_INT8", "shape": [2], "base64": "?"}, "/nodes/2/value/base64", "E13005"),
        ("/nodes/2/value", {"shape": [2], "data": [1, 2]}, "/nodes/2/value", "E13005"),
        ("/nodes/2/value", {"file": "none.npy"}, "/nodes/2/value/file", "G1003"),
        ("/nodes/2/value", {"file": "../none.npy"}, "/nodes/2/value/file", "G1003"),
        ("/nodes/2/value", {"file": ""}, "/nodes/2/value/file", "E13000"),
        ("/nodes/2", {"id": "b", "type": "Const"}, "/nodes/2", "E13005"),
        ("/nodes/3/value", {"fill": 1}, "/nodes/3/value", "E13005"),
        ("/nodes/1/attrs/_init_value", 1, "/nodes/1/attrs/_init_value", "E13005"),
        ("/nodes/1/attrs/_init_value/tensor/data", [1, 2], "/nodes/1/attrs/_init_value/tensor/data", "G1004"),
        ("/nodes/3/attrs/a", None, "/nodes/3/attrs/a", "E13005"),
        ("/nodes/3/attrs/a", {"x": 1, "y": 2}, "/nodes/3/attrs/a", "E13005"),
        ("/nodes/3/attrs/a", {"x": 1}, "/nodes/3/attrs/a/x", "E13005"),
        ("/nodes/3/attrs/a", [1, "b"], "/nodes/3/attrs/a", "E13005"),
        ("/nodes/3/attrs", {"a/b~c": None}, "/nodes/3/attrs/a~1b~0c", "E13005"),
        ("/nodes/3/subgraphs", ["s"], "/nodes/3/subgraphs/0", "E13005"),
        ("/links/5", {"source": "x"}, "/links/5", "E13005"),
        ("/links/5", {"source": "x", "target": "q"}, "/links/5/target", "E13005"),
        ("/links/0/src_out", 1, "/links/0/src_out", "E13005"),
        ("/links/1/dst_in", 0, "/links/1/dst_in", "E13005"),
        ("/links/0/dst_in", -1, "/links/0/dst_in", "E13005"),
        ("/links/4/dst_in", 0, "/links/4", "E13005"),
        ("/links/5", {"source": "y", "target": "mm"}, "/links", "E13005"),
        ("/graph/outputs", ["q:0"], "/graph/outputs/0", "E13005"),
        ("/graph/inputs", ["y"], "/graph/inputs/0", "E13005"),
        ("/graph/inputs", [], "/graph/inputs", "E13005"),
    ],
)  # fmt: skip
def test_each_fault_has_the_pointer_of_its_place(tmp_path: Path, at: str, value: Json, pointer: str, code: str) -> None:
    error = fault(tmp_path, patched(at, value))
    assert (error.first.pointer, error.code) == (pointer, code)


def test_an_attribute_of_the_wrong_kind_is_e13014(tmp_path: Path) -> None:
    error = fault(tmp_path, with_node({"id": "m", "type": "Muls", "attrs": {"value": "two"}}))
    assert (error.code, error.first.pointer) == ("E13014", "/nodes/5/attrs/value")


def test_broken_json_has_line_and_column(tmp_path: Path) -> None:
    error = fault(tmp_path, '{"nodes": [\n  {"id": "x",}\n], "links": []}')
    assert error.first.where.endswith("g.json:2:14")


def test_a_plain_networkx_graph_is_refused_with_an_example(tmp_path: Path) -> None:
    document = nx.node_link_data(nx.MultiDiGraph([("a", "b")]), edges="links")
    error = fault(tmp_path, document)
    assert error.first.pointer == "/nodes/0"
    assert error.first.do == '{"id": "y", "type": "Relu"}'


def test_unknown_types_are_reported_at_once_with_the_nearest_type(tmp_path: Path) -> None:
    document = tiny()
    document["nodes"] += [{"id": "p", "type": "Reluu"}, {"id": "q", "type": "Zzzz"}, {"id": "r", "type": "Zzzz"}]
    error = fault(tmp_path, document)
    assert [each.code for each in error.diagnostics] == ["G1005", "E10501", "E10501"]
    assert error.first.why == "Reluu (1), Zzzz (2)"
    assert error.diagnostics[1].do == "the nearest type is 'Relu'"
    assert load(tmp_path, document, options=LoadOptions(allow_unsupported=True)).graph.node("p").type == "Reluu"


def test_a_file_outside_is_read_only_when_allowed(tmp_path: Path) -> None:
    np.save(tmp_path / "out.npy", np.ones(2, np.float32))
    inside = tmp_path / "in"
    inside.mkdir()
    document = with_node({"id": "t", "type": "Const", "value": {"file": "../out.npy"}})
    assert fault(inside, document).first.do == "--allow-external-outside"
    assert load(inside, document, options=LoadOptions(allow_outside=True)).graph.node("t").output_descs[0].shape == (2,)


# ---------------------------------------------------------------- writing


def shown(value: object) -> str:
    """A value as text that is equal only for equal values, NaN included; the order of keys does not count."""
    if isinstance(value, NamedAttrs):
        return f"{value.name}{shown(value.attrs)}"
    if isinstance(value, dict):
        return repr([(key, shown(each)) for key, each in sorted(value.items())])
    return repr(value)


def same(first: Graph, second: Graph) -> None:
    assert text(first) == text(second)
    assert first.output_names == second.output_names
    assert shown(first.attrs) == shown(second.attrs)
    for one, other in zip(first.all_nodes(), second.all_nodes(), strict=True):
        assert one.input_descs == other.input_descs, one.name
        assert one.output_descs == other.output_descs, one.name
        assert [(d.name, d.size_bytes) for d in one.output_descs] == [
            (d.name, d.size_bytes) for d in other.output_descs
        ]
        assert one.attrs.keys() == other.attrs.keys()
        for key, value in one.attrs.items():
            if isinstance(value, Weight):
                assert value.sha256() == other.attrs[key].sha256()
                assert value.desc == other.attrs[key].desc
            else:
                assert shown(value) == shown(other.attrs[key])


def round_trip(graph: Graph, directory: Path) -> Graph:
    save_graph(graph, directory / "out.json")
    document = json.loads((directory / "out.json").read_text())
    SCHEMA.validate(document)
    nx.node_link_graph(document, edges="links")
    return load_graph(directory / "out.json", options=LoadOptions(allow_unsupported=True)).graph


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.stem)
def test_the_samples_validate_and_survive_a_round_trip(path: Path, tmp_path: Path) -> None:
    SCHEMA.validate(json.loads(path.read_text()))
    model = load_graph(path)
    assert verify(model.graph) == []
    assert not model.warnings
    same(model.graph, round_trip(model.graph, tmp_path))


def test_an_onnx_model_survives_with_its_output_names(tmp_path: Path) -> None:
    graph = load_graph(REPOSITORY / "samples" / "digits" / "digits.onnx").graph
    again = round_trip(graph, tmp_path)
    same(graph, again)
    assert again.output_names == ["probabilities"]


def test_subgraphs_survive(tmp_path: Path) -> None:
    graph = Graph("g")
    desc = TensorDesc(DataType.FLOAT, (2,))
    condition = graph.add(OpDesc("c", "Data", attrs={"index": 0}, output_descs=[TensorDesc(DataType.BOOL, ())]))
    data = graph.add(OpDesc("x", "Data", attrs={"index": 1}, output_descs=[desc]))
    for name, type in (("then", "Relu"), ("else", "Neg")):
        sub = Graph(name, graph)
        inner = sub.add(OpDesc("x", "Data", attrs={"index": 0}, output_descs=[desc]))
        sub.set_outputs([feed(sub, sub.create(type, "y", output_descs=[desc]), inner.out()).out()], ["y:0"])
        graph.add_subgraph(sub)
    branch = graph.create("If", "if", output_descs=[desc], subgraphs=["then", "else"])
    graph.set_outputs([feed(graph, branch, condition.out(), data.out()).out()], ["if:0"])
    same(graph, round_trip(graph, tmp_path))


def test_a_large_weight_below_the_directory_is_referred_to(tmp_path: Path) -> None:
    np.save(tmp_path / "b.npy", np.arange(2000, dtype=np.float32))
    model = load(tmp_path, with_node({"id": "t", "type": "Const", "value": {"file": "b.npy"}}))
    again = round_trip(model.graph, tmp_path)
    assert again.node("t").attrs["value"].source == model.graph.node("t").attrs["value"].source


def test_schema_and_loader_agree_on_the_example_and_on_a_wrong_one() -> None:
    SCHEMA.validate(tiny())
    assert not SCHEMA.is_valid(patched("/nodes/5", {"id": "q"}))
    assert not SCHEMA.is_valid(patched("/nodes/2/value/fill", 1))
    assert not SCHEMA.is_valid(patched("/links/4/dst_in", 0))


FLOATS = st.floats(width=32)
ATTRS = st.recursive(
    st.one_of(
        st.booleans(),
        st.integers(-(2**63), 2**63 - 1),
        st.floats(),
        st.text(max_size=8),
        st.binary(max_size=8),
        st.sampled_from([DataType.FLOAT, DataType.INT4, Format.NC1HWC0, Format.FRACTAL_Z]),
        st.lists(st.integers(0, 9), max_size=3).map(tuple),
        st.lists(st.floats(), min_size=1, max_size=3).map(tuple),
        st.lists(st.lists(st.integers(0, 9), max_size=2).map(tuple), min_size=1, max_size=3).map(tuple),
    ),
    lambda inner: st.dictionaries(st.text(max_size=5), inner, max_size=2).map(lambda d: NamedAttrs("f", d)),
    max_leaves=3,
)
DESCS = st.builds(
    TensorDesc,
    dtype=st.sampled_from([DataType.FLOAT, DataType.FLOAT16, DataType.INT8, DataType.BF16, DataType.INT4]),
    shape=st.one_of(st.just(UNKNOWN_RANK), st.lists(st.integers(-1, 5), max_size=4).map(tuple)),
    format=st.sampled_from([Format.ND, Format.NHWC, Format.NC1HWC0.with_c0(16), Format.FRACTAL_Z.with_groups(2)]),
    origin_shape=st.one_of(st.none(), st.lists(st.integers(0, 5), max_size=4).map(tuple)),
    origin_format=st.one_of(st.none(), st.just(Format.HWCN)),
    shape_range=st.one_of(st.none(), st.lists(st.tuples(st.integers(0, 3), st.integers(-1, 9)), max_size=3).map(tuple)),
    name=st.text(max_size=4),
    size_bytes=st.integers(0, 1 << 40),
)
WEIGHTS = st.one_of(
    st.lists(FLOATS, min_size=0, max_size=80).map(lambda v: Weight.of(np.array(v, np.float32))),
    st.lists(st.integers(-8, 7), min_size=1, max_size=9).map(
        lambda v: Weight.of(np.array(v, np.int8), TensorDesc(DataType.INT4, (len(v),)))
    ),
    FLOATS.map(lambda v: Weight(TensorDesc(DataType.FLOAT, (3, 2)), Fill(np.float32(v).tobytes(), 6))),
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_writing_and_reading_gives_the_same_graph(tmp_path: Path, data: st.DataObject) -> None:
    graph = Graph(data.draw(st.text(max_size=4)), None)
    attrs = st.dictionaries(st.text(max_size=5).map(lambda key: f"k{key}"), ATTRS, max_size=3)
    x = graph.add(OpDesc("x", "Data", attrs={"index": 0}, output_descs=[data.draw(DESCS)]))
    ports = [x.out()]
    for index in range(data.draw(st.integers(0, 5))):
        name = f"{data.draw(st.text(max_size=3))}{index}"
        if data.draw(st.booleans()):
            weight = data.draw(WEIGHTS)
            node = graph.add(OpDesc(name, "Const", attrs={"value": weight}, output_descs=[weight.desc]))
        else:
            node = graph.add(
                OpDesc(
                    name,
                    "Opaque",
                    attrs=data.draw(attrs),
                    output_descs=data.draw(st.lists(DESCS, min_size=1, max_size=2)),
                )
            )
            feed(graph, node, *data.draw(st.lists(st.one_of(st.none(), st.sampled_from(ports)), max_size=3)))
            if data.draw(st.booleans()):
                graph.add_control(x, node)
        ports += [node.out(k) for k in range(len(node.output_descs))]
    graph.attrs.update(data.draw(attrs))
    graph.set_outputs(
        ports[-2:], data.draw(st.sampled_from([["a", "b"][: len(ports[-2:])], [str(p) for p in ports[-2:]]]))
    )
    same(graph, round_trip(graph, tmp_path))


def test_a_fill_of_a_nan_with_a_sign_keeps_its_bytes(tmp_path: Path) -> None:
    graph = Graph("g", None)
    element = np.uint32(0xFFC00000).tobytes()
    weight = Weight(TensorDesc(DataType.FLOAT, (2,)), Fill(element, 2))
    node = graph.add(OpDesc("c", "Const", attrs={"value": weight}, output_descs=[weight.desc]))
    graph.set_outputs([node.out()], ["c:0"])
    same(graph, round_trip(graph, tmp_path))
