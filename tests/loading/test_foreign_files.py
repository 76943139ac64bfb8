"""Files that are no input of a compile are named, each with what to do about it."""

from __future__ import annotations

import gzip
import json
import pickle
import zipfile
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

from gecli.errors import InputError
from gecli.loading import load_graph
from gecli.loading.sniff import FileKind, sniff


def varint(value: int) -> bytes:
    out = b""
    while value >= 0x80:
        out += bytes((value & 0x7F | 0x80,))
        value >>= 7
    return out + bytes((value,))


def field(number: int, body: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(body)) + body


TF_NODE = field(1, b"x") + field(2, b"Placeholder")
CASES: list[tuple[str, bytes, FileKind, str]] = [
    ("empty", b"", FileKind.EMPTY, "G1002"),
    ("lfs", b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 3\n", FileKind.GIT_LFS, "G1001"),
    ("html", b"<!DOCTYPE html>\n<html><body>404</body></html>", FileKind.HTML, "G1001"),
    ("tflite", b"\x1c\0\0\0TFL3" + bytes(64), FileKind.TFLITE, "G1001"),
    ("hdf5", b"\x89HDF\r\n\x1a\n" + bytes(64), FileKind.HDF5, "G1001"),
    ("elf", b"\x7fELF" + bytes(64), FileKind.ELF, "G1001"),
    ("gzip", gzip.compress(b"model"), FileKind.GZIP, "G1001"),
    ("pickle", pickle.dumps({"a": 1}), FileKind.PICKLE, "G1001"),
    ("om", b"IMOD" + bytes(300), FileKind.OM, "G1001"),
    ("npy", b"\x93NUMPY\x01\0" + bytes(64), FileKind.NUMPY, "G1001"),
    ("svp", b"PICO" + bytes(64), FileKind.SVP, "G3008"),
    ("graphdef", field(1, TF_NODE) * 3 + field(4, b"\x08\x01"), FileKind.TF_GRAPH, "G1001"),
    ("savedmodel", b"\x08\x01" + field(2, field(1, b"\x0a\x00")), FileKind.TF_SAVED_MODEL, "G1001"),
    ("caffemodel", field(1, b"net") + field(100, field(1, b"conv")), FileKind.CAFFE, "G1001"),
    ("prototxt", b'name: "n"\nlayer {\n  type: "Input"\n  top: "x"\n}\n', FileKind.CAFFE, "G1001"),
    ("air", field(1, b"model") + b"\x10\x01" + field(7, field(1, b"g")), FileKind.AIR, "G1001"),
    ("getext", b'name: "m"\ngraph {\n  name: "g"\n  op {\n    name: "x"\n  }\n}\n', FileKind.GE_TEXT, "G1001"),
    ("pbtxt", b'ir_version: 8\ngraph {\n  node {\n    op_type: "Relu"\n  }\n}\n', FileKind.ONNX_TEXT, "G1001"),
    ("tftext", b'node {\n  name: "x"\n  op: "Placeholder"\n}\n', FileKind.TF_TEXT, "G1001"),
    ("mode1", b'{"graph": [{"name": "g", "op": []}]}', FileKind.MODE1_JSON, "G1001"),
    ("json", b'{"a": 1}', FileKind.OTHER_JSON, "E13005"),
    ("document", b'{"schema": "gecli.inspect/1", "models": [{"graphs": []}]}', FileKind.OM_DOCUMENT, "E13005"),
    ("view", b'{"schema": "gecli.inspect.nodes/1", "nodes": []}', FileKind.GECLI_DOCUMENT, "G1001"),
    ("noise", bytes(range(255, 200, -1)) * 3, FileKind.UNKNOWN, "E10041"),
]


@pytest.mark.parametrize(("name", "data", "kind", "code"), CASES, ids=[case[0] for case in CASES])
def test_a_foreign_file_is_named(tmp_path: Path, name: str, data: bytes, kind: FileKind, code: str) -> None:
    path = tmp_path / name
    path.write_bytes(data)
    assert sniff(str(path)) is kind
    with pytest.raises(InputError) as caught:
        load_graph(path)
    assert (caught.value.code, caught.value.exit_status) == (code, 3)
    assert caught.value.first.do


@pytest.mark.parametrize(
    ("member", "kind"),
    [("archive/data.pkl", FileKind.PYTORCH_ZIP), ("manifest.json", FileKind.OM2), ("a.txt", FileKind.ZIP)],
)
def test_a_zip_is_told_by_its_members(tmp_path: Path, member: str, kind: FileKind) -> None:
    path = tmp_path / "x.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(member, b"data")
    assert sniff(str(path)) is kind


def test_a_directory_is_refused_and_a_saved_model_is_named(tmp_path: Path) -> None:
    assert sniff(str(tmp_path)) is FileKind.DIRECTORY
    (tmp_path / "saved_model.pb").write_bytes(b"")
    assert sniff(str(tmp_path)) is FileKind.TF_SAVED_MODEL


def test_a_missing_file_is_e13001(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        load_graph(tmp_path / "none.onnx")
    assert caught.value.code == "E13001"


def test_a_front_end_that_contradicts_the_file_is_e10041_and_names_both(tmp_path: Path) -> None:
    path = tmp_path / "g.json"
    path.write_text(json.dumps({"nodes": [], "links": []}))
    with pytest.raises(InputError) as caught:
        load_graph(path, front_end="onnx")
    first = caught.value.first
    assert (first.code, first.expected, first.actual) == ("E10041", "onnx", "json")


def test_an_onnx_file_cut_short_is_reported_as_truncated(tmp_path: Path) -> None:
    path = tmp_path / "cut.onnx"
    weights = helper.make_tensor("w", TensorProto.FLOAT, [4096], bytes(16384), raw=True)
    node = helper.make_node("Add", ["x", "w"], ["y"])
    value = [helper.make_tensor_value_info(name, 1, [4096]) for name in "xy"]
    onnx.save(helper.make_model(helper.make_graph([node], "g", value[:1], value[1:], [weights])), path)
    path.write_bytes(path.read_bytes()[:9000])
    with pytest.raises(InputError) as caught:
        load_graph(path)
    assert caught.value.code == "G1002"
