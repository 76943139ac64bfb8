"""The file that is written follows the writer profile, byte for byte the same every time."""

from __future__ import annotations

import hashlib
import io
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gecli.artifacts.header import HEADER_BYTES, OmHeader, parse_header
from gecli.artifacts.inout_info import InOutInfo, parse_inout_info
from gecli.artifacts.om_file import read_om
from gecli.artifacts.om_writer import om_image, write_om
from gecli.artifacts.partition_table import PartitionType
from gecli.errors import InputError
from gecli.ir.dtype import DataType
from gecli.ir.op_desc import OpDesc
from gecli.ir.tensor_desc import TensorDesc
from gecli.ir.weight import FileSlice, Weight
from gecli.planning.weight_layout import lay_out_weights
from gecli.wire.model_record import GraphRecord, ModelRecord
from gecli.wire.task import Task, TaskList, TaskType


def test_the_header_is_the_one_of_the_profile(small_om: Path) -> None:
    data = small_om.read_bytes()
    assert data[:16] == b"IMOD" + struct.pack("<III", 256, 0x20000000, struct.unpack_from("<I", data, 12)[0])
    header = parse_header(data)
    assert header.model_length == len(data) - HEADER_BYTES and header.length == 0
    assert (header.name, header.platform_version, header.om_ir_version, header.model_num) == ("m", "1.11.z.0", 2, 1)
    assert header.payload_sha256 == hashlib.sha256(data[HEADER_BYTES:]).digest()
    assert data[12 + 32 : 12 + 58] == bytes(26) and data[12 + 58 : 12 + 64] == b"gecli1"


def test_partitions_stand_in_ges_order(small_om: Path) -> None:
    om = read_om(small_om)
    assert om.wide and [item.type for item in om.root.partitions] == [8, 0, 1, 2]


@pytest.mark.parametrize("pad", range(0, 80, 7))
def test_weights_begin_at_a_multiple_of_64(make_model: Callable[..., Any], tmp_path: Path, pad: int) -> None:
    path = tmp_path / "m.om"
    write_om(path, make_model(extra={"atc_cmdline": "x" * pad}).image)
    om = read_om(path)
    weights = om.root.partition(PartitionType.WEIGHTS_DATA)
    assert weights is not None and weights.offset_bytes % 64 == 0
    for node in om.model().root.nodes_of("Const"):
        assert node.attrs["value"].source.offset_bytes % 64 == 0


def test_equal_constants_share_their_bytes(built: Any, small_om: Path) -> None:
    om = read_om(small_om)
    nodes = {node.name: node.attrs["value"] for node in om.model().root.nodes_of("Const")}
    assert nodes["w2"].source == nodes["w3"].source != nodes["w1"].source
    for name, data in built.weights.items():
        assert b"".join(nodes[name].chunks()) == data
    weights = om.root.partition(PartitionType.WEIGHTS_DATA)
    assert weights is not None and weights.size_bytes == 2048
    assert om.read(weights)[:512] == bytes(512)


def test_the_model_attributes_state_the_true_sizes(small_om: Path) -> None:
    om = read_om(small_om)
    attrs = om.model().attrs
    sizes = {item.type: item.size_bytes for item in om.root.partitions}
    assert attrs["weight_size"] == sizes[1]
    assert attrs["om_info_list"] == (sizes[1], 0, 0, sizes[2], 0)
    assert attrs["memory_size"] == 4096
    assert set(attrs["_gecli_pad"]) <= {0} and len(attrs["_gecli_pad"]) < 64


def test_inputs_and_outputs_are_described(small_om: Path) -> None:
    om = read_om(small_om)
    part = om.inout_partition()
    assert part is not None
    info = parse_inout_info(om.read(part))
    assert [(item.name, item.size_bytes, item.dims) for item in info.inputs] == [("x", 24, (2, 3))]
    assert [(item.name, item.dtype) for item in info.outputs] == [("more:0:y", 0)]


def test_the_same_model_gives_the_same_bytes(make_model: Callable[..., Any], tmp_path: Path) -> None:
    first, second = io.BytesIO(), io.BytesIO()
    make_model().image.write(first)
    make_model().image.write_unseekable(second)
    assert first.getvalue() == second.getvalue()


def test_writing_what_was_read_gives_the_same_bytes(small_om: Path, tmp_path: Path) -> None:
    om = read_om(small_om)
    model, tasks = om.model(), om.tasks()
    assert tasks is not None
    nodes = model.root.nodes_of("Const")
    layout = lay_out_weights([node.attrs["value"] for node in nodes])
    again = tmp_path / "again.om"
    write_om(again, om_image(model, tasks, layout, dict(zip(nodes, layout.offsets))))
    assert again.read_bytes() == small_om.read_bytes()


def test_a_changed_byte_fails_the_checksum(small_om: Path) -> None:
    assert read_om(small_om).verify_checksum() is None
    data = bytearray(small_om.read_bytes())
    data[-1] ^= 1
    small_om.write_bytes(data)
    problem = read_om(small_om).verify_checksum()
    assert problem is not None and (problem.code, problem.kind) == ("G3006", "bad-checksum")


def test_a_model_without_constants_has_1024_zero_bytes_of_weights(tmp_path: Path) -> None:
    path = tmp_path / "m.om"
    model = ModelRecord("m", [GraphRecord("g", [OpDesc("n", "Any")])])
    write_om(path, om_image(model, TaskList((Task(TaskType.END_GRAPH),)), lay_out_weights([]), {}))
    om = read_om(path)
    assert [item.type for item in om.root.partitions] == [0, 1, 2]
    assert om.read(om.root.partitions[1]) == bytes(1024)


def test_weights_pass_from_file_to_file(tmp_path: Path) -> None:
    values = np.random.default_rng(0).standard_normal(1 << 20).astype(np.float32)
    source = tmp_path / "source.bin"
    source.write_bytes(b"xyz" + values.tobytes())
    desc = TensorDesc(DataType.FLOAT, values.shape)
    weight = Weight(desc, FileSlice(str(source), 3, values.nbytes))
    node = OpDesc("w", "Const", attrs={"value": weight}, output_descs=[desc])
    layout = lay_out_weights([weight])
    path = tmp_path / "m.om"
    write_om(path, om_image(ModelRecord("m", [GraphRecord("g", [node])]), TaskList(()), layout, {node: 512}))
    found = read_om(path).model().root.nodes[0].attrs["value"]
    np.testing.assert_array_equal(found.numpy(), values)


@pytest.mark.parametrize("left", [None, 100])
def test_weights_that_vanish_while_writing_are_an_input_error(tmp_path: Path, left: int | None) -> None:
    source = tmp_path / "source.bin"
    source.write_bytes(bytes(4096))
    desc = TensorDesc(DataType.INT8, (4096,))
    weight = Weight(desc, FileSlice(str(source), 0, 4096))
    node = OpDesc("w", "Const", attrs={"value": weight}, output_descs=[desc])
    image = om_image(ModelRecord("m", [GraphRecord("g", [node])]), TaskList(()), lay_out_weights([weight]), {node: 512})
    if left is None:
        source.unlink()
    else:
        source.write_bytes(bytes(left))
    path = tmp_path / "m.om"
    with pytest.raises(InputError) as caught:
        write_om(path, image)
    assert caught.value.code == "E13001" and "source.bin" in caught.value.first.why
    assert not path.exists() and not list(tmp_path.glob(".*"))


def test_a_dynamic_model_says_so(tmp_path: Path) -> None:
    model = ModelRecord("m", [GraphRecord("g", [OpDesc("n", "Any")])])
    image = om_image(model, TaskList(()), lay_out_weights([]), {}, inout=InOutInfo(), is_dynamic=True)
    assert image.header.is_unknow_model == 1


@pytest.mark.parametrize(
    ("name", "kept"),
    [("short", "short"), ("n" * 40, "n" * 31), ("a" + "\u2603" * 20, "a" + "\u2603" * 10)],
)
def test_a_long_name_is_cut_between_characters(name: str, kept: str) -> None:
    data = OmHeader(name=name).pack()
    assert len(data) == HEADER_BYTES and parse_header(data).name == kept


def test_a_header_of_version_1_is_read_with_its_own_layout() -> None:
    data = bytearray(OmHeader(version=0x10000000).pack())
    data[156:177] = b"3.51.z.0".ljust(20, b"\0") + b"\1"
    header = parse_header(bytes(data))
    assert (header.platform_version, header.platform_type, header.model_num) == ("3.51.z.0", 1, 1)
