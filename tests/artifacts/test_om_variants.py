"""Every variant of the container is told apart, and every lie about it has its own name."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gecli.artifacts.om_file import OmFile, read_om
from gecli.errors import InputError
from gecli.ir.op_desc import OpDesc
from gecli.pb import flow_model_pb2 as flow
from gecli.wire.attribute_names import coded_key
from gecli.wire.model_encoder import encode_model
from gecli.wire.model_record import GraphRecord, ModelRecord


@pytest.fixture
def read(tmp_path: Path) -> Callable[[bytes], OmFile]:
    def reader(data: bytes) -> OmFile:
        path = tmp_path / "case.om"
        path.write_bytes(data)
        return read_om(path)

    return reader


def test_narrow_and_wide_tables_of_both_versions_are_read(read: Any, om_bytes: Any, model_def: bytes) -> None:
    parts = [(0, model_def), (1, bytes(1536)), (2, b"")]
    for data, wide in (
        (om_bytes.wide(parts), True),
        (om_bytes.narrow(parts), False),
        (om_bytes.version_1(parts), False),
        (om_bytes.version_1(parts, modeltype=3, platform=b"3.51.z.0"), False),
    ):
        om = read(data)
        assert om.kind == "om" and om.wide is wide and not om.warnings
        assert [item.size_bytes for item in om.root.partitions] == [len(model_def), 1536, 0]
        assert len(om.model().root.nodes) == 8


def test_the_worked_example_of_the_format_has_the_stated_offsets(read: Any, om_bytes: Any) -> None:
    parts = [(0, bytes(465)), (1, bytes(1024)), (2, bytes(3))]
    wide, narrow = om_bytes.wide(parts), om_bytes.narrow(parts)
    assert (len(wide), len(narrow)) == (1828, 1788)
    assert [item.offset_bytes for item in read(wide).root.partitions] == [336, 801, 1825]
    assert [item.offset_bytes for item in read(narrow).root.partitions] == [296, 761, 1785]
    assert read(wide).header.payload_bytes == 1572 and read(narrow).header.payload_bytes == 1532


def test_a_file_with_several_models_has_a_table_for_each(read: Any, om_bytes: Any) -> None:
    names = {"om_compress_version": 1, "attr_name_enum": ("mode",), "attrs_use_string_value": (False,)}
    root = encode_model(ModelRecord("r", [GraphRecord("g", [OpDesc("n", "A")])], names)).data()
    sub = encode_model(ModelRecord("s", [GraphRecord("g", [OpDesc("n", "A", attrs={coded_key(0): 3})])])).data()
    om = read(om_bytes.wide([(8, b""), (0, root), (2, b"")], [(0, sub), (1, bytes(512))], is_unknow_model=1))
    assert [model.index for model in om.models] == [0, 1]
    assert om.models[1].table_offset_bytes == 256 + 8 + 72 + len(root)
    assert om.model(0).name == "r"
    assert om.model(1).root.nodes[0].attrs == {"mode": 3}


def test_a_flow_model_lists_its_parts(read: Any, om_bytes: Any, model_def: bytes) -> None:
    inner = om_bytes.wide([(0, model_def), (1, bytes(1536))])
    sub = flow.SubmodelDef(model_name="s", model_type="NPU", om_data=inner).SerializeToString()
    data = om_bytes.wide([(0, model_def), (6, b""), (7, sub), (7, sub)], modeltype=3)
    om = read(data)
    assert om.kind == "flow"
    place = om.root.partitions[2].offset_bytes + sub.index(inner)
    nested = read_om(om.path, base=place, size=len(inner))
    assert nested.kind == "om" and len(nested.model().root.nodes) == 8
    with pytest.raises(InputError, match="flow: not supported: flow"):
        om.require_runnable()


@pytest.mark.parametrize("order", [[6, 0], [0, 7], [0, 6, 1], [0]])
def test_a_flow_model_out_of_order_is_refused(read: Any, om_bytes: Any, order: list[int]) -> None:
    with pytest.raises(InputError) as caught:
        read(om_bytes.wide([(kind, b"x") for kind in order], modeltype=3))
    assert caught.value.kind == "bad-table"


def test_a_bundle_lists_its_models(read: Any, om_bytes: Any, model_def: bytes) -> None:
    inner = om_bytes.wide([(0, model_def), (1, bytes(1536))])
    om = read(om_bytes.bundle([inner, inner]))
    assert om.kind == "bundle" and [item.type for item in om.root.partitions] == [25, 24, 24]
    part = om.root.partitions[2]
    nested = read_om(om.path, base=part.offset_bytes, size=part.size_bytes)
    weight = nested.model().root.nodes_of("Const")[0].attrs["value"]
    assert nested.kind == "om" and weight.source.offset_bytes > part.offset_bytes


def test_a_preload_file_is_recognised_with_and_without_padding(read: Any, om_bytes: Any) -> None:
    assert read(om_bytes.wide([(20, b"abc"), (21, b"de"), (1, b"f")], modeltype=4)).kind == "preload"
    import struct

    table = struct.pack("<II", 2, 0) + struct.pack("<IIQQ", 20, 0, 0, 3) + struct.pack("<IIQQ", 21, 0, 8, 2)
    payload = table + b"abc" + bytes(5) + b"de" + bytes(6)
    header = om_bytes.wide([(0, b"")], modeltype=4)[:256]
    data = bytearray(header + payload)
    data[184:192] = struct.pack("<Q", len(payload))
    om = read(bytes(data))
    assert om.kind == "preload" and [item.offset_bytes for item in om.root.partitions] == [312, 320]
    with pytest.raises(InputError) as caught:
        om.model()
    assert caught.value.kind == "no-model-def"


def test_inout_info_under_its_old_number_is_found(read: Any, om_bytes: Any, model_def: bytes) -> None:
    block = bytes.fromhex("000000003a00000001000000000000000000000002000000030000000600000008000000080000000000")
    block += bytes.fromhex("00005f6172675f3010000000000000001000000000000000")
    om = read(om_bytes.narrow([(6, block), (0, model_def), (1, bytes(1536))]))
    found = om.inout_partition()
    assert found is not None and found.type == 6
    assert read(om_bytes.narrow([(6, b"junk!"), (0, model_def)])).inout_partition() is None


def zipped(*names: str) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        for name in names:
            archive.writestr(name, "{}")
    return stream.getvalue()


HEADER_FAULTS: dict[str, tuple[int, bytes, str, str]] = {
    "is_encrypt": (80, b"\x01", "encrypted", "G3008"),
    "is_encrypt 2": (80, b"\x02", "bad-header", "G3009"),
    "headsize": (4, b"\x80\0\0\0", "bad-header", "G3009"),
    "length larger": (184, b"\xff\xff\xff\xff\xff\xff\xff\xff", "truncated", "G3002"),
    "length smaller": (184, b"\x10\0\0\0\0\0\0\0", "trailing-bytes", "G3002"),
    "both lengths 0": (184, bytes(8), "bad-header", "G3009"),
    "model_num": (156, b"\xff\xff\xff\xff", "bad-table", "G3003"),
    "model_num 2": (156, b"\2\0\0\0", "bad-table", "G3003"),
    "num 0": (256, bytes(4), "bad-table", "G3003"),
    "num huge": (256, b"\xff\xff\xff\xff", "bad-table", "G3003"),
    "num 65": (256, b"\x41\0\0\0", "bad-table", "G3003"),
    "num 60": (256, b"\x3c\0\0\0", "bad-table", "G3003"),
    "twice": (264, b"\1\0\0\0", "bad-table", "G3003"),
    "offset": (272, b"\1", "bad-partition", "G3003"),
    "size huge": (280, b"\xff\xff\xff\xff\xff\xff\xff\xff", "bad-partition", "G3003"),
    "size too small": (304, b"\0", "bad-partition", "G3003"),
}


@pytest.mark.parametrize("fault", HEADER_FAULTS)
def test_every_lie_of_header_and_table_has_its_name(read: Any, om_bytes: Any, fault: str) -> None:
    place, value, kind, code = HEADER_FAULTS[fault]
    data = bytearray(om_bytes.wide([(0, bytes(10)), (1, bytes(5))]))
    data[place : place + len(value)] = value
    with pytest.raises(InputError) as caught:
        read(bytes(data))
    assert (caught.value.kind, caught.value.code) == (kind, code)
    first = caught.value.first
    assert "case.om" in first.message and kind in first.message and first.offset is not None
    assert len(first.message.splitlines()) == 1


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (b"", "not-om"),
        (b"IM", "not-om"),
        (b"IMOD", "truncated"),
        (b"IMOD" + bytes(251), "truncated"),
        (b"hello world" * 100, "not-om"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n", "git-lfs-pointer"),
        (b"PICO" + bytes(400), "svp"),
        (zipped("manifest.json", "data/model_0/model_meta.json"), "om2"),
        (zipped("root/manifest.json"), "om2"),
        (zipped("word/document.xml"), "not-om"),
        (b"PK\x03\x04broken", "not-om"),
        (bytes(400), "not-om"),
    ],
)
def test_what_is_no_om_file_is_named(read: Any, data: bytes, kind: str) -> None:
    with pytest.raises(InputError) as caught:
        read(data)
    assert caught.value.kind == kind


def test_a_newer_version_and_dirty_padding_are_warnings(read: Any, om_bytes: Any) -> None:
    data = bytearray(om_bytes.wide([(0, bytes(10)), (1, bytes(5))], version=0x30000000))
    data[181] = data[260] = data[268] = 1
    om = read(bytes(data))
    assert [problem.kind for problem in om.warnings] == ["newer-version", "bad-header", "bad-table", "bad-table"]
    assert {problem.severity for problem in om.warnings} == {"warning"}


def test_unknown_partitions_are_listed(read: Any, om_bytes: Any) -> None:
    om = read(om_bytes.wide([(0, bytes(3)), (99, b"abc")]))
    assert om.root.partitions[1].name == "UNKNOWN_99" and om.read(om.root.partitions[1]) == b"abc"


def test_an_unreadable_model_names_its_partition_and_offset(read: Any, om_bytes: Any) -> None:
    om = read(om_bytes.wide([(0, b"\x0a\xff\xff\xff"), (1, b"x")]))
    with pytest.raises(InputError) as caught:
        om.model()
    assert (caught.value.code, caught.value.kind) == ("G3004", "bad-proto")
    assert caught.value.first.offset is not None and caught.value.first.where == "MODEL_DEF"


def test_a_constant_outside_the_weights_is_a_problem_of_the_model(read: Any, om_bytes: Any, model_def: bytes) -> None:
    model = read(om_bytes.wide([(0, model_def), (1, bytes(600))])).model()
    assert {problem.kind for problem in model.problems} == {"bad-weights"}
    with pytest.raises(InputError, match="outside WEIGHTS_DATA"):
        model.require_sound()


@pytest.mark.parametrize("name", ["none.om", "."])
def test_a_path_that_cannot_be_read_is_an_input_error(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError) as caught:
        read_om(tmp_path / name)
    assert caught.value.code == "E13001"
