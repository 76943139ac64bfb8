"""The command in this process, own OM files, and the real ones."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
REAL = REPOSITORY / "tests" / "data" / "om" / "real"


@dataclass(frozen=True)
class Shown:
    status: int
    out: str
    err: str


Inspect = Callable[..., Shown]
Files = dict[str, Path]


@pytest.fixture
def inspect(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Inspect:
    """`gecli inspect-om ARGUMENTS` without a new process; relative paths count from the test's directory."""
    from gecli.cli import app

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))

    def run(*arguments: str | Path) -> Shown:
        capsys.readouterr()
        status = app.run(["inspect-om", *map(str, arguments)])
        shown = capsys.readouterr()
        return Shown(status, shown.out, shown.err)

    return run


def compiled(directory: Path, *arguments: str) -> None:
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY), "HOME": str(directory)}
    command = [sys.executable, "-m", "gecli", "compile", *arguments]
    done = subprocess.run(command, cwd=directory, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="session")
def digits_om(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The digits sample in plain formats, so that its layout does not depend on format selection."""
    directory = tmp_path_factory.mktemp("digits")
    model = REPOSITORY / "samples" / "digits" / "digits.onnx"
    compiled(directory, str(model), "-o", "digits", "--input-shape", "image:1,1,8,8", "--format-policy", "origin")
    return directory / "digits.om"


@pytest.fixture(scope="session")
def conv_train_om(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The convolution training sample with device formats."""
    directory = tmp_path_factory.mktemp("conv_train")
    compiled(directory, str(REPOSITORY / "samples" / "train" / "conv_train.json"), "-o", "conv_train",
             "--session-out", "conv_train.session")  # fmt: skip
    return directory / "conv_train.om"


GE_TEXT = r"""# a dump of level 1
name: "dump"
version: 2
graph {
  name: "dump_0"
  input: "x:0"
  op {
    name: "x"
    type: "Data"
    input: ""
    attr { key: "index" value { i: 0 } }
    input_desc { dtype: DT_FLOAT layout: "NCHW" shape { dim: 1 dim: 3 dim: -1 dim: 4 } }
    output_desc { dtype: DT_FLOAT layout: "NCHW" shape { dim: [1, 3, -1, 4] } }
  }
  op {
    name: "w"
    type: "Const"
    id: 1
    attr {
      key: "value"
      value { t { desc { dtype: DT_FLOAT layout: "ND" shape { dim: 2 } weight_size: 8 }
                  data: "\000\000\200?" "\000\000\000@" } }
    }
    output_desc < dtype: DT_FLOAT layout: "ND" shape { dim: 2 } >
  }
  op {
    name: "add"
    type: "Add"
    input: "x:0"
    input: "w:0"
    id: 2
    attr { key: "alpha" value { f: 0.5 } }
    attr { key: "names" value { list { s: "a" s: 'b\x63' val_type: VT_LIST_STRING } } }
    attr { key: "flag" value { b: true } }
    output_desc { dtype: DT_FLOAT layout: "NCHW" shape { dim: 1 dim: 3 dim: -1 dim: 4 } }
  }
  op { name: "out" type: "NetOutput" id: 3 input: "add:0" src_name: "add" src_index: 0
       input_desc { dtype: DT_FLOAT layout: "NCHW" shape { dim: 1 dim: 3 dim: -1 dim: 4 } } }
}
"""
GE_ONNX_TEXT = """ir_version: 5
producer_name: "GE"
graph {
  name: "dump_0"
  node {
    name: "x"
    op_type: "ge:Data"
    output: "x:0"
    attribute { name: "id" i: 0 type: INT }
    attribute { name: "output_desc_dtype:0" s: "DT_FLOAT16" type: STRING }
    attribute { name: "output_desc_layout:0" s: "NC1HWC0" type: STRING }
    attribute { name: "output_desc_shape:0" ints: 1 ints: 1 ints: 4 ints: 4 ints: 16 type: INTS }
    attribute { name: "output_desc_origin_shape:0" ints: 1 ints: 3 ints: 4 ints: 4 type: INTS }
    attribute { name: "output_desc_origin_layout:0" s: "NCHW" type: STRING }
  }
  node {
    input: "x:0"
    input: "x:-1"
    name: "relu"
    op_type: "ge:Relu"
    attribute { name: "id" i: 1 type: INT }
    attribute { name: "negative_slope" f: 0.25 type: FLOAT }
    attribute { name: "input_desc_dtype:0" s: "DT_FLOAT16" type: STRING }
    attribute { name: "input_desc_shape:0" ints: 1 type: INTS }
    attribute { name: "output_desc_dtype:0" s: "DT_FLOAT16" type: STRING }
    attribute { name: "output_desc_layout:0" s: "NC1HWC0" type: STRING }
    attribute { name: "output_desc_shape:0" ints: [1, 1, 4, 4, 16] type: INTS }
  }
}
"""


def bundle(*models: bytes) -> bytes:
    """A bundle as GE writes it: no magic, offsets from the end of the header, the whole file in model_length."""
    bodies = [(25, bytes(8)), *((24, model) for model in models)]
    table = struct.pack("<II", len(bodies), 0)
    offset = 8 + 24 * len(bodies)
    size = 256 + offset + sum(len(body) for _, body in bodies)
    for number, body in bodies:
        table += struct.pack("<IIQQ", number, 0, offset, len(body))
        offset += len(body)
    header = bytearray(256)
    header[82] = 5
    header[156:160] = struct.pack("<I", len(models))
    header[184:192] = struct.pack("<Q", size)
    return bytes(header) + table + b"".join(body for _, body in bodies)


@pytest.fixture(scope="session")
def files(tmp_path_factory: pytest.TempPathFactory, conv_train_om: Path) -> Files:
    """One file of each kind that is no ordinary OM."""
    directory = tmp_path_factory.mktemp("kinds")
    relu = (REAL / "hiai-relu.om").read_bytes()
    record = {"graph_key": "k", "cache_file_name": "k_1.om", "var_desc_file_name": "k_1.rdcpkt"}
    contents: dict[str, bytes] = {
        "idx": json.dumps({"cache_file_list": [record]}).encode(),
        "model-def": relu[272:],
        "ge-text": GE_TEXT.encode(),
        "ge-onnx-text": GE_ONNX_TEXT.encode(),
        "bundle": bundle(relu, bundle(relu, relu)),
    }
    found = {"rdcpkt": conv_train_om.with_suffix(".rdcpkt"), "session": conv_train_om.with_suffix(".session")}
    for kind, data in contents.items():
        found[kind] = directory / kind
        found[kind].write_bytes(data)
    return found


def wide_om(*parts: tuple[int, bytes]) -> bytes:
    """An OM of one model with these partitions (type, content)."""
    table, offset = struct.pack("<II", len(parts), 0), 0
    for number, body in parts:
        table += struct.pack("<IIQQ", number, 0, offset, len(body))
        offset += len(body)
    header = bytearray(256)
    header[:12] = struct.pack("<4sII", b"IMOD", 256, 0x20000000)
    header[152:160] = struct.pack("<II", 2, 1)
    header[184:192] = struct.pack("<Q", len(table) + offset)
    return bytes(header) + table + b"".join(body for _, body in parts)


def model_def(text: str) -> bytes:
    """A ModelDef in binary form from its text."""
    from gecli.report.inspect.text_proto import model_bytes, parse_text

    return model_bytes(parse_text(text.encode(), "text"), "text")
