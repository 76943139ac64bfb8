"""A model that is written and read back is the same model, in protobuf's own deterministic bytes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gecli.errors import InputError
from gecli.ir.attributes import NamedAttrs, RawAttr
from gecli.ir.dtype import DataType
from gecli.ir.format import Format
from gecli.ir.op_desc import OpDesc, Port, Use
from gecli.ir.placement import Placement
from gecli.ir.tensor_desc import TensorDesc
from gecli.ir.weight import Weight
from gecli.pb import ge_ir_pb2 as ge_ir
from gecli.wire.attributes import encode_attr
from gecli.wire.byte_source import FileSource
from gecli.wire.model_decoder import decode_model
from gecli.wire.model_encoder import STREAM_BYTES, encode_desc, encode_model
from gecli.wire.model_record import GraphRecord, ModelRecord
from gecli.wire.writer import bytes_field

F16 = TensorDesc(DataType.FLOAT16, (1, 4, 8, 8, 16), Format.NC1HWC0.with_c0(16), (1, 64, 8, 8), Format.NCHW)
F32 = TensorDesc(DataType.FLOAT, (2, 3))


def connect(node: OpDesc, slot: int, producer: OpDesc, index: int = 0) -> None:
    node.inputs[slot] = Port(producer, index)
    producer.users[index][Use(node, slot)] = None


def small_model() -> ModelRecord:
    data = OpDesc("x", "Data", attrs={"index": 0}, output_descs=[F32])
    weight = Weight.of(np.arange(6, dtype=np.float32).reshape(2, 3))
    const = OpDesc("w", "Const", attrs={"value": weight}, output_descs=[F32])
    add = OpDesc(
        "block/add:1",
        "Add",
        attrs={"alpha": 0.5, "pads": (1, 2, 3)},
        input_descs=[F32, F32, None],
        output_descs=[F32],
        input_names=("x1", "x2", "x3"),
        output_names=("y",),
    )
    connect(add, 0, data)
    connect(add, 1, const)
    out = OpDesc("Node_Output", "NetOutput", input_descs=[F32])
    connect(out, 0, add)
    out.control_in[data] = None
    data.control_out[out] = None
    placements = {
        data: Placement(0, 0, (), (0,)),
        const: Placement(1, 0, (), (512,)),
        add: Placement(2, 1, (0, 512), (1024,), (2048,), (64,)),
        out: Placement(3, 0, (1024,)),
    }
    graph = GraphRecord("m_0", [data, const, add, out], {"_dynamic_shape_partitioned": False}, placements, ("x:0",))
    return ModelRecord("m", [graph], {"memory_size": 4096, "huge_stream_list": ()})


def shown(model: ModelRecord) -> list[Any]:
    """Everything of a model that a reader can see."""
    rows: list[Any] = [model.name, model.version, model.custom_version, model.attrs]
    for graph in model.graphs:
        rows.append((graph.name, graph.attrs, graph.inputs, graph.outputs))
        for node in graph.nodes:
            attrs = {key: value.sha256() if isinstance(value, Weight) else value for key, value in node.attrs.items()}
            rows.append((node.name, node.type, attrs, node.input_names, node.output_names, list(node.subgraphs)))
            rows.append([port and str(port) for port in node.inputs])
            rows.append(([str(before) for before in node.control_in], [str(after) for after in node.control_out]))
            rows.append(([*node.input_descs], [*node.output_descs], graph.placements.get(node)))
            rows.append([[str(use.node) + str(use.slot) for use in users] for users in node.users])
    return rows


def test_a_small_model_reads_back_as_it_was() -> None:
    model = small_model()
    again = decode_model(encode_model(model).data())
    assert not again.problems
    assert shown(again) == shown(model)


def test_the_bytes_are_those_that_protobuf_writes() -> None:
    data = encode_model(small_model(), port_names=lambda node: ((), ("y",) * len(node.output_descs))).data()
    message = ge_ir.ModelDef.FromString(data)
    assert message.SerializeToString(deterministic=True) == data
    for graph in message.graph:
        parsed = ge_ir.GraphDef.FromString(graph)
        assert parsed.SerializeToString(deterministic=True) == graph
        for op in parsed.op:
            for value in [each.SerializeToString() for each in op.attr.values()]:
                assert ge_ir.AttrDef.FromString(value).SerializeToString(deterministic=True) == value


def test_writing_what_was_read_gives_the_same_bytes() -> None:
    data = encode_model(small_model()).data()
    assert encode_model(decode_model(data)).data() == data


def test_a_constant_in_the_weights_is_written_by_its_place() -> None:
    model = small_model()
    const = model.root.nodes_of("Const")[0]
    data = encode_model(model, {const: 512}).data()
    graph = ge_ir.GraphDef.FromString(ge_ir.ModelDef.FromString(data).graph[0])
    value = ge_ir.AttrDef.FromString(graph.op[1].attr["value"].SerializeToString()).t
    assert (value.desc.data_offset, value.desc.weight_size, value.data) == (512, 24, b"")
    add = graph.op[2]
    assert list(add.is_input_const) == [False, True, False]
    assert ge_ir.TensorDescriptor.FromString(add.input_desc[1]).data_offset == 512


def test_net_output_names_the_producers_of_the_outputs() -> None:
    data = encode_model(small_model()).data()
    graph = ge_ir.GraphDef.FromString(ge_ir.ModelDef.FromString(data).graph[0])
    assert list(graph.op[3].src_name) == ["block/add:1"] and list(graph.op[3].src_index) == [0]
    assert list(graph.op[3].input) == ["block/add:1:0", "x:-1"]
    assert list(graph.op[0].input) == [""] and len(graph.op[0].input_desc) == 1


def test_a_large_initial_value_is_streamed_and_stays_in_the_file(tmp_path: Path) -> None:
    values = np.arange(STREAM_BYTES, dtype=np.float32)
    desc = TensorDesc(DataType.FLOAT, (STREAM_BYTES,)).with_attr("_init_value", Weight.of(values))
    small = TensorDesc(DataType.FLOAT, (2,)).with_attr("_init_value", Weight.of(np.ones(2, np.float32)))
    nodes = [
        OpDesc("v", "Variable", output_descs=[desc]),
        OpDesc("s", "Variable", output_descs=[small]),
        OpDesc("c", "Const", attrs={"value": Weight.of(values), "z": 1}, output_descs=[F32]),
    ]
    model = ModelRecord("m", [GraphRecord("g", nodes)])
    encoded = encode_model(model)
    assert sum(isinstance(chunk, Weight) for chunk in encoded.chunks) == 2
    data = encoded.data()
    assert len(data) == encoded.size_bytes
    path = tmp_path / "m.pb"
    path.write_bytes(data)
    with FileSource(str(path)) as source:
        again = decode_model(source, path=str(path), file_size=len(data))
    assert not again.problems
    variable, tiny, const = again.root.nodes
    assert variable.init_value is not None and tiny.init_value is not None
    assert variable.init_value.source.path == str(path)
    np.testing.assert_array_equal(variable.init_value.numpy(), values)
    np.testing.assert_array_equal(const.attrs["value"].numpy(), values)
    np.testing.assert_array_equal(tiny.init_value.numpy(), np.ones(2))
    assert const.attrs["z"] == 1
    assert encode_model(again).data() == data


RAW_GRAPH = RawAttr("g", ge_ir.AttrDef(g=b"\x0a\x01g").SerializeToString())


@pytest.mark.parametrize(
    "value",
    [
        True,
        False,
        0,
        -1,
        (1 << 63) - 1,
        -(1 << 63),
        0.0,
        0.5,
        "",
        "text",
        "snow \u2603",
        "not utf-8 \udcff",
        b"",
        b"\x00\xff",
        DataType.BF16,
        DataType.FLOAT,
        (),
        (1, 2, 3),
        (0, 0),
        (True, False),
        (0.0, 1.5),
        ("a", ""),
        (b"a", b""),
        (DataType.FLOAT, DataType.BOOL),
        ((1, 2), (), (3,)),
        ((1.5, 2.0), (3.0,)),
        NamedAttrs("f", {"a": 1, "b": (1.5, 2.5), "c": NamedAttrs("g", {})}),
        (NamedAttrs("f", {}), NamedAttrs("g", {"x": "y"})),
        F16,
        (F32, F16),
        RAW_GRAPH,
        RawAttr("none", b""),
    ],
    ids=repr,
)
def test_every_kind_of_attribute_survives(value: Any) -> None:
    node = OpDesc("n", "Any", attrs={"a": value, "b": value}, output_descs=[F32.with_attr("d", value)])
    again = decode_model(encode_model(ModelRecord("m", [GraphRecord("g", [node])])).data())
    found = again.root.nodes[0]
    for seen in (found.attrs["a"], found.attrs["b"], found.output_descs[0].attrs["d"]):
        assert seen == value and type(seen) is type(value)
        if isinstance(value, tuple):
            assert [type(item) for item in seen] == [type(item) for item in value]


def test_negative_zero_keeps_its_sign() -> None:
    node = OpDesc("n", "Any", attrs={"a": 0.0, "b": -0.0, "c": (0.0,), "d": (-0.0,)})
    again = decode_model(encode_model(ModelRecord("m", [GraphRecord("g", [node])])).data()).root.nodes[0].attrs
    assert [str(again[key]) for key in "abcd"] == ["0.0", "-0.0", "(0.0,)", "(-0.0,)"]


def test_values_that_compare_equal_are_not_mixed_up() -> None:
    nodes = [
        OpDesc(f"n{k}", "Any", attrs={"a": value})
        for k, value in enumerate([1, True, 1.0, (1,), (True,), (1.0,), DataType.FLOAT16])
    ]
    again = decode_model(encode_model(ModelRecord("m", [GraphRecord("g", nodes)])).data())
    assert [repr(node.attrs["a"]) for node in again.root.nodes] == [repr(node.attrs["a"]) for node in nodes]


@pytest.mark.parametrize(
    "desc",
    [
        F32,
        F16,
        TensorDesc(DataType.FLOAT, ()),
        TensorDesc(DataType.FLOAT, (-1, 3), shape_range=((1, -1), (3, 3))),
        TensorDesc(DataType.FLOAT, (-2,)),
        TensorDesc(DataType.BF16, (36, 4, 16, 16), Format.FRACTAL_Z.with_groups(96).with_c0(16), (64, 64, 3, 3)),
        TensorDesc(DataType.HIFLOAT4, (3,), Format(52), (3,), Format.ND, DataType.FLOAT, name="t", size_bytes=64),
        TensorDesc(DataType.FLOAT, (1, 1), Format.FRACTAL_NZ, ()),
        F32.with_attr("_inner_offset", 8).with_attr("real_dim_cnt", 4).with_attr("reuse_input", True),
    ],
    ids=str,
)
def test_every_descriptor_survives(desc: TensorDesc) -> None:
    node = OpDesc("n", "Any", output_descs=[desc])
    found = decode_model(encode_model(ModelRecord("m", [GraphRecord("g", [node])])).data()).root.nodes[0]
    again = found.output_descs[0]
    assert again.logical_shape == desc.logical_shape and again.logical_format == desc.logical_format
    assert (again.dtype, again.shape, again.format) == (desc.dtype, desc.shape, desc.format)
    assert (again.origin_dtype, again.shape_range, again.name) == (desc.origin_dtype, desc.shape_range, desc.name)
    assert again.size_bytes == desc.size_bytes and dict(again.attrs) == dict(desc.attrs)


def test_the_proto_number_of_a_data_type_is_not_the_one_of_an_attribute() -> None:
    message = ge_ir.TensorDescriptor.FromString(encode_desc(TensorDesc(DataType.FLOAT, ())))
    attr = ge_ir.AttrDef.FromString(encode_attr(DataType.FLOAT))
    assert (message.dtype, attr.dt) == (1, 0)


def test_format_for_int_wins_over_the_layout_string() -> None:
    message = ge_ir.TensorDescriptor(layout="NCHW")
    message.attr["format_for_int"].i = 0x05006004
    op = ge_ir.OpDef(name="n", type="T", output_desc=[message.SerializeToString()])
    graph = ge_ir.GraphDef(name="g", op=[op]).SerializeToString()
    model = decode_model(ge_ir.ModelDef(graph=[graph]).SerializeToString())
    fmt = model.root.nodes[0].output_descs[0].format
    assert (fmt.name, fmt.c0) == ("FRACTAL_Z:96", 16)


@pytest.mark.parametrize(
    ("inputs", "severity", "reason"),
    [
        (["none:0"], "error", "no node of that name"),
        (["a:1"], "error", "has 1 outputs"),
        (["a:-2"], "error", "has 1 outputs"),
        (["a:99999999999999999999"], "error", "has 1 outputs"),
        (["none:-1"], "error", "does not exist"),
        (["a:xyz"], "warning", "read as 0"),
        (["a:"], "warning", "read as 0"),
    ],
)
def test_bad_edges_are_reported_and_do_not_hinder_reading(inputs: list[str], severity: str, reason: str) -> None:
    desc = encode_desc(F32)
    ops = [
        ge_ir.OpDef(name="a", type="Data", output_desc=[desc]),
        ge_ir.OpDef(name="b", type="Relu", input=inputs, input_desc=[desc], output_desc=[desc]),
    ]
    data = ge_ir.ModelDef(graph=[ge_ir.GraphDef(name="g", op=ops).SerializeToString()]).SerializeToString()
    model = decode_model(data)
    assert [(problem.severity, problem.kind) for problem in model.problems] == [(severity, "bad-graph")]
    assert reason in model.problems[0].message
    assert len(model.root.nodes) == 2


def test_node_names_may_hold_colons() -> None:
    desc = encode_desc(F32)
    ops = [
        ge_ir.OpDef(name="a:b/0", type="Data", output_desc=[desc]),
        ge_ir.OpDef(name="c", type="Relu", input=["a:b/0:0"], input_desc=[desc]),
    ]
    data = ge_ir.ModelDef(graph=[ge_ir.GraphDef(name="g", op=ops).SerializeToString()]).SerializeToString()
    model = decode_model(data)
    assert str(model.root.nodes[1].inputs[0]) == "a:b/0:0"


@pytest.mark.parametrize(
    ("graphs", "reason"),
    [
        ({"root": ["gone"]}, "missing subgraph 'gone'"),
        ({"root": ["root"]}, "root -> root"),
        ({"root": ["a"], "a": ["b"], "b": ["a"]}, "a -> b -> a"),
    ],
)
def test_subgraphs_that_are_missing_or_contain_each_other_are_reported(
    graphs: dict[str, list[str]], reason: str
) -> None:
    records = [
        GraphRecord(name, [OpDesc("if", "If", subgraphs=below)] if below else []) for name, below in graphs.items()
    ]
    model = decode_model(encode_model(ModelRecord("m", records)).data())
    assert any(reason in problem.message for problem in model.problems)


def test_a_diamond_of_subgraphs_is_no_cycle() -> None:
    below = {"root": ["a", "b"], "a": ["c"], "b": ["c"], "c": []}
    records = [GraphRecord(name, [OpDesc("n", "If", subgraphs=names)]) for name, names in below.items()]
    assert decode_model(encode_model(ModelRecord("m", records)).data()).problems == []


@pytest.mark.parametrize("levels", [40, 5000])
def test_nesting_without_end_is_refused(levels: int) -> None:
    value = ge_ir.AttrDef(i=1).SerializeToString()
    for _ in range(levels):
        value = bytes_field(10, bytes_field(2, bytes_field(1, b"k") + bytes_field(2, value)))
    data = bytes_field(11, bytes_field(1, b"a") + bytes_field(2, value))
    with pytest.raises(InputError, match="MODEL_DEF") as caught:
        decode_model(data)
    assert caught.value.kind == "bad-proto"
    assert "nested deeper than" in str(caught.value) and "MaxDepth" not in str(caught.value)


def test_two_graphs_or_two_nodes_of_one_name_are_not_written() -> None:
    def graph(name: str, *nodes: str) -> GraphRecord:
        made = [OpDesc(each, "Data", output_descs=[TensorDesc(DataType.FLOAT, (2,))]) for each in nodes]
        return GraphRecord(name, made, placements={node: Placement(k) for k, node in enumerate(made)})

    for model, words in (
        (ModelRecord("m", [graph("g", "a", "b", "a")]), "two nodes of graph 'g' are named 'a'"),
        (ModelRecord("m", [graph("g", "a"), graph("h"), graph("g")]), "two of 3 graphs are named 'g'"),
    ):
        with pytest.raises(InputError, match=words) as caught:
            encode_model(model)
        assert caught.value.kind == "bad-graph"
