"""MODEL_INOUT_INFO is written and read byte for byte, and lies inside it are refused."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gecli.artifacts.inout_info import InOutInfo, ModelTensor, inout_of, is_inout_info, parse_inout_info
from gecli.artifacts.om_file import read_om
from gecli.errors import InputError
from gecli.ir.dtype import DataType
from gecli.ir.format import Format
from gecli.ir.op_desc import OpDesc, Port, Use
from gecli.ir.tensor_desc import TensorDesc
from gecli.runtime.session import Session
from gecli.wire.model_record import GraphRecord, ModelRecord

from . import spec_om as spec

EXAMPLE = bytes.fromhex(
    "000000003A000000" "01000000" "0000000000000000" "02000000" "03000000"
    "06000000080000000800000000000000" "5F6172675F30" "1000000000000000" "1000000000000000"
)  # fmt: skip


def test_the_worked_example_of_the_format() -> None:
    info = InOutInfo((ModelTensor("_arg_0", 0, 2, 3, (16,), (16,)),))
    assert info.pack() == EXAMPLE
    assert parse_inout_info(EXAMPLE) == info and is_inout_info(EXAMPLE)


words = st.lists(st.integers(0, 1 << 40), max_size=4).map(tuple)
tensors = st.builds(
    ModelTensor,
    st.text(max_size=8),
    st.integers(0, (1 << 64) - 1),
    st.integers(0, 1 << 30),
    st.integers(0, 42),
    words,
    words,
    st.lists(st.tuples(st.integers(0, 9), st.integers(-1, 9)), max_size=3).map(tuple),
)
infos = st.builds(
    InOutInfo,
    st.lists(tensors, max_size=3).map(tuple),
    st.lists(tensors, max_size=3).map(tuple),
    words,
    st.lists(words, max_size=3).map(tuple),
    st.lists(words, max_size=3).map(tuple),
    st.lists(st.text(max_size=3), max_size=4).map(tuple),
    st.lists(st.text(max_size=3), max_size=4).map(tuple),
)


@given(infos)
def test_every_content_survives(info: InOutInfo) -> None:
    assert parse_inout_info(info.pack()) == info


@given(infos, st.integers(0, 200), st.binary(max_size=8))
def test_any_change_gives_content_or_an_input_error(info: InOutInfo, place: int, noise: bytes) -> None:
    data = bytearray(info.pack())
    data[place : place + len(noise)] = noise
    try:
        parse_inout_info(bytes(data))
    except InputError as error:
        assert (error.code, error.kind) == ("G3015", "bad-inout")


@pytest.mark.parametrize(
    ("place", "value", "reason"),
    [
        (4, 59, "needs 59 bytes"),
        (4, 57, "needs"),
        (8, 2, "a tensor needs"),
        (8, 1 << 31, "do not fit"),
        (28, 1 << 31, "needs"),
        (32, 7, "not whole 64-bit"),
        (40, 8, "not whole pairs"),
    ],
)
def test_lengths_that_lie_are_refused_before_they_are_used(place: int, value: int, reason: str) -> None:
    data = bytearray(EXAMPLE)
    data[place : place + 4] = struct.pack("<I", value)
    with pytest.raises(InputError) as caught:
        parse_inout_info(bytes(data), path="m.om", offset=1000)
    assert caught.value.kind == "bad-inout" and (caught.value.first.offset or 0) >= 1000


def test_unknown_blocks_are_skipped_and_named() -> None:
    info = parse_inout_info(struct.pack("<II", 9, 3) + b"abc" + EXAMPLE)
    assert info.unknown_blocks == (9,) and len(info.inputs) == 1


def model_of(*nodes: OpDesc, **attrs: object) -> ModelRecord:
    return ModelRecord("m", [GraphRecord("g", list(nodes))], dict(attrs))


def net_output(*producers: OpDesc) -> OpDesc:
    node = OpDesc("Node_Output", "NetOutput", input_descs=[each.output_descs[0] for each in producers])
    for slot, producer in enumerate(producers):
        node.inputs[slot] = Port(producer, 0)
        producer.users[0][Use(node, slot)] = None
    return node


F16 = TensorDesc(DataType.FLOAT16, (1, 3, 8, 8), Format.NCHW, size_bytes=4096)


def test_inputs_are_ordered_by_index_and_have_their_plain_size() -> None:
    b = OpDesc("b", "Data", attrs={"index": 1}, output_descs=[F16])
    a = OpDesc("a", "Data", attrs={"index": 0}, output_descs=[TensorDesc(DataType.FLOAT, (-1, 3))])
    info = inout_of(model_of(b, a))
    assert [(item.name, item.size_bytes) for item in info.inputs] == [("a", 0), ("b", 384)]


def test_special_dims_of_an_input_win_over_its_shape() -> None:
    attrs = {"index": 0, "_mbatch_origin_input_dims": (-1, 3, 8, 8), "input_dims": (1, 8, 8, 3)}
    info = inout_of(model_of(OpDesc("a", "Data", attrs=attrs, output_descs=[F16])))
    assert (info.inputs[0].dims, info.inputs[0].dims_v2) == ((-1, 3, 8, 8), (1, 8, 8, 3))


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ((), ["output_0_a_0", "output_1_b_0"]),
        (("x",), ["output_0_a_0", "output_1_b_0"]),
        (("x", "b:0:y"), ["x:0", "b:0:y"]),
    ],
)
def test_outputs_are_named_by_ges_rule(names: tuple[str, ...], expected: list[str]) -> None:
    a, b = (OpDesc(name, "Relu", output_descs=[F16]) for name in "ab")
    info = inout_of(model_of(a, b, net_output(a, b), attr_model_out_nodes_name=names))
    assert [item.name for item in info.outputs] == expected


@pytest.mark.parametrize(
    ("names", "expected"), [((), ["output_0_first_2", "output_1_b_0"]), (("x", "b:0:y"), ["x:2", "b:0:y"])]
)
def test_outputs_are_named_by_the_producers_that_net_output_names(names: tuple[str, ...], expected: list[str]) -> None:
    a, b = (OpDesc(name, "Relu", output_descs=[F16]) for name in "ab")
    model = model_of(a, b, net_output(a, b), attr_model_out_nodes_name=names)
    model.root.output_sources = (("first", 2),)
    assert [item.name for item in inout_of(model).outputs] == expected


def test_a_run_and_a_query_name_outputs_alike(tmp_path: Path) -> None:
    desc = spec.descriptor(1, [2])
    nodes = [
        spec.operator("x", "Data", 0, [""], {"index": spec.attr_i(0)}, [desc], [desc], output_i=[0]),
        spec.operator("y", "Relu", 1, ["x:0"], {}, [desc], [desc], input_i=[0], output_i=[512]),
        spec.operator("out", "NetOutput", 2, ["y:0", "x:0"], {}, [desc, desc], input_i=[512, 0],
                      sources=[("before/y", 1)]),
    ]  # fmt: skip
    model = spec.model("m", [spec.graph("m_0", nodes)], {"memory_size": spec.attr_i(1024)})
    (tmp_path / "m.om").write_bytes(spec.om_wide([(0, model), (1, bytes(512))]))
    names = [item.name for item in inout_of(read_om(tmp_path / "m.om").model()).outputs]
    assert names == ["output_0_before/y_1", "output_1_x_0"]
    assert [output.name for output in Session().load(tmp_path / "m.om").outputs] == names


def test_a_fractal_z_output_is_reported_in_hwck_order() -> None:
    a = OpDesc("a", "Any", output_descs=[TensorDesc(DataType.FLOAT16, (9, 2, 16, 15), Format.FRACTAL_Z)])
    assert inout_of(model_of(a, net_output(a))).outputs[0].dims == (16, 15, 2, 9)


@pytest.mark.parametrize(("kind", "field"), [(1, "dynamic_batch"), (2, "dynamic_hw"), (3, "dynamic_dims")])
def test_gears_are_taken_from_the_case_node(kind: int, field: str) -> None:
    attrs = {"mbatch_dynamic_type": kind, "_batch_num": 2, "_pred_value_0": (1, 2), "_pred_value_1": (4, 8)}
    info = inout_of(model_of(OpDesc("case", "Case", attrs=attrs)))
    assert getattr(info, field) == ((1, 4) if kind == 1 else ((1, 2), (4, 8)))
