"""`gecli compile --singleop`: a file of operators, as for atc; an OM for each."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gecli.artifacts.om_file import read_om
from gecli.cli.app import run
from gecli.errors import GecliError
from gecli.loading.single_op import read_single_ops
from gecli.runtime.session import Session


def tensor(*shape: int, type: str = "float", format: str = "ND", **more: Any) -> dict[str, Any]:
    return {"format": format, "shape": list(shape), "type": type, **more}


ADD = {"op": "Add", "input_desc": [tensor(3, 4), tensor(4)], "output_desc": [tensor(3, 4)]}
SOFTMAX = {
    "op": "SoftmaxV2",
    "input_desc": [tensor(-1, 4, shape_range=[[1, 8]])],
    "output_desc": [tensor(-1, 4)],
    "attr": [{"name": "axes", "type": "list_int", "value": [-1]}],
}
RESHAPE = {
    "op": "Reshape",
    "input_desc": [tensor(3, 4, name="given"), tensor(2, type="int64", is_const=True, const_value=[2, 6])],
    "output_desc": [tensor(2, 6)],
}
TRANS = {
    "op": "TransData",
    "input_desc": [tensor(1, 3, 4, 4, format="NCHW", type="float16")],
    "output_desc": [tensor(1, 1, 4, 4, 16, format="NC1HWC0", type="float16")],
    "attr": [
        {"name": "src_format", "type": "string", "value": "NCHW"},
        {"name": "dst_format", "type": "string", "value": "NC1HWC0"},
    ],
}
NAMES = [
    "0_Add_0_2_3_4_0_2_4_0_2_3_4", "1_SoftmaxV2_0_2_-1_4_0_2_-1_4", "2_Reshape_0_2_3_4_9_2_2_0_2_2_6",
    "3_TransData_1_0_1_3_4_4_1_3_1_1_4_4_16",
]  # fmt: skip


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "ops.json").write_text(json.dumps([ADD, SOFTMAX, RESHAPE, TRANS]))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_each_operator_gets_an_om_named_after_its_tensors(place: Path) -> None:
    assert run(["compile", "--singleop", "ops.json", "-o", "out"]) == 0
    assert sorted(os.listdir("out")) == [f"{name}.om" for name in NAMES]


def test_the_oms_run(place: Path) -> None:
    assert run(["compile", "--singleop=ops.json", "--output=out", "--soc_version=Ascend310P3"]) == 0
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    add = Session().load(f"out/{NAMES[0]}.om")
    (found,) = add.run(dict(zip((each.name for each in add.inputs), (x, x[0]))))[0].values()
    np.testing.assert_array_equal(found, x + x[0])
    reshape = Session().load(f"out/{NAMES[2]}.om")
    assert [each.name for each in reshape.inputs] == ["given"]
    (found,) = reshape.run({"given": x})[0].values()
    np.testing.assert_array_equal(found, x.reshape(2, 6))
    softmax = Session().load(f"out/{NAMES[1]}.om")
    (found,) = softmax.run({softmax.inputs[0].name: x[:2]})[0].values()
    assert found.shape == (2, 4)


def test_an_om_says_which_operator_it_is(place: Path) -> None:
    assert run(["compile", "--singleop", "ops.json", "-o", "out"]) == 0
    attrs = read_om(f"out/{NAMES[0]}.om").model().attrs
    assert attrs["ATTR_MODEL_OP_TYPE"] == "Add"
    assert [each.shape for each in attrs["ATTR_MODEL_TENSOR_INPUTS"]] == [(3, 4), (4,)]
    assert [each.shape for each in attrs["ATTR_MODEL_TENSOR_OUTPUTS"]] == [(3, 4)]


def test_operators_are_kept_in_the_cache(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    states = []
    for folder in ("a", "b"):
        assert (
            run(["compile", "--singleop", "ops.json", "-o", folder, "--cache-dir", "c", "--cache-create", "--json"])
            == 0
        )
        states += [model["cache"]["state"] for model in json.loads(capsys.readouterr().out)["models"]]
    assert states == ["miss"] * 4 + ["hit"] * 4
    for name in NAMES:
        assert Path(f"a/{name}.om").read_bytes() == Path(f"b/{name}.om").read_bytes()


def test_why_answers_for_each_operator(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cache = ("--cache-dir", "c", "-o", "x/")
    os.mkdir("c")
    asked = ["cache", "why", "--singleop", "ops.json", *cache]
    assert run([*asked, "--json", "--quiet"]) == 1
    document = json.loads(capsys.readouterr().out)
    assert [each["reason"] for each in document["models"]] == ["no_entry"] * 4
    assert not document["would_hit"]
    assert run(["compile", "--singleop", "ops.json", *cache]) == 0
    capsys.readouterr()
    assert run(asked) == 0
    assert len([line for line in capsys.readouterr().out.splitlines() if "would hit" in line]) == 4
    wider = {"op": "Add", "input_desc": [tensor(5, 4), tensor(4)], "output_desc": [tensor(5, 4)]}
    (place / "ops.json").write_text(json.dumps([ADD, wider]))
    assert run(asked) == 1
    hit, miss = capsys.readouterr().out.splitlines()
    assert "would hit" in hit and "would miss, no_entry" in miss


def test_a_long_name_ends_in_a_digest(tmp_path: Path) -> None:
    inputs = [tensor(1, 2, 3, 4, 5, 6, 7, 8) for _ in range(9)]
    entry = {"op": "ConcatD", "input_desc": inputs, "output_desc": [tensor(9, 2, 3, 4, 5, 6, 7, 8)]}
    entry["attr"] = [{"name": "concat_dim", "type": "int", "value": 0}]
    path = tmp_path / "o.json"
    path.write_text(json.dumps([entry]))
    (found,) = read_single_ops(str(path))
    assert len(found.name) == 180
    assert found.name.startswith("0_ConcatD_0_2_1_2_3_4_5_6_7_8_0_2_")


def test_an_input_that_is_left_out_is_undefined(tmp_path: Path) -> None:
    entry = {
        "op": "ClipByValue",
        "input_desc": [tensor(3), tensor(), tensor()],
        "output_desc": [tensor(3)],
    }
    path = tmp_path / "o.json"
    path.write_text(json.dumps([entry, {**ADD, "input_desc": [*ADD["input_desc"], {"type": "UNDEFINED"}]}]))
    assert [len(each.graph.inputs) for each in read_single_ops(str(path))] == [3, 2]


def broken(**changes: Any) -> dict[str, Any]:
    return {**ADD, **changes}


def attr(**members: Any) -> dict[str, Any]:
    return {**SOFTMAX, "attr": [members]}


@pytest.mark.parametrize(
    ("content", "code", "pointer"),
    [
        ("{", "E10025", ""),
        ("[]", "E10026", ""),
        ("7", "E10026", ""),
        ([7], "E10026", "/0/op"),
        ([{}], "E10026", "/0/op"),
        ([broken(op="Nonsense")], "E10026", "/0/op"),
        ([ADD, broken(input_desc={})], "E10027", "/1/input_desc"),
        ([broken(input_desc=[7])], "E10027", "/0/input_desc/0"),
        ([broken(input_desc=[{"format": "ND", "shape": [3]}])], "E10027", "/0/input_desc/0/type"),
        ([broken(input_desc=[tensor(3, type="floot")])], "E10027", "/0/input_desc/0/type"),
        ([broken(input_desc=[tensor(3, format="XY")])], "E10027", "/0/input_desc/0/format"),
        ([broken(input_desc=[{"format": "ND", "type": "float"}])], "E10027", "/0/input_desc/0"),
        ([broken(input_desc=[tensor(-3)])], "E10027", "/0/input_desc/0/shape"),
        ([broken(input_desc=[tensor(3)])], "E10027", "/0/input_desc"),
        ([broken(input_desc=[tensor(3), tensor(2)])], "E10027", "/0/input_desc"),
        ([broken(output_desc=[])], "E10027", "/0/output_desc"),
        ([broken(output_desc=[tensor(3, 4), tensor(3, 4)])], "E10027", "/0/output_desc"),
        ([broken(output_desc=[tensor(3, 5)])], "E10027", "/0/output_desc/0"),
        ([broken(output_desc=[tensor(3, 4, type="int32")])], "E10027", "/0/output_desc/0"),
        ([broken(input_desc=[tensor(3, 4, name=7), tensor(4)])], "E10028", "/0/input_desc/0/name"),
        (
            [broken(input_desc=[tensor(-1, 4, shape_range=[[2, 1]]), tensor(4)])],
            "E10028",
            "/0/input_desc/0/shape_range",
        ),
        ([broken(input_desc=[tensor(-1, 4, shape_range=7), tensor(4)])], "E10028", "/0/input_desc/0/shape_range"),
        ([broken(input_desc=[tensor(3, 4, is_const=True), tensor(4)])], "E10028", "/0/input_desc/0"),
        ([broken(input_desc=[tensor(2, const_value=[1]), tensor(4)])], "E10028", "/0/input_desc/0/const_value"),
        ([broken(input_desc=[tensor(-1, const_value=[1]), tensor(4)])], "E10028", "/0/input_desc/0/const_value"),
        ([broken(name=7)], "E10028", "/0/name"),
        ([{**SOFTMAX, "attr": {}}], "E10029", "/0/attr"),
        ([attr(type="int", value=1)], "E10029", "/0/attr/0"),
        ([attr(name="axis", type="int", value=1)], "E10029", "/0/attr/0/name"),
        ([attr(name="axes", type="ints", value=[1])], "E10030", "/0/attr/0/type"),
        ([attr(name="axes", type="list_int", value=1)], "E10030", "/0/attr/0/value"),
        ([attr(name="axes", type="list_int", value=[1.5])], "E10030", "/0/attr/0/value"),
        ([{**TRANS, "attr": TRANS["attr"][:1]}], "E10029", "/0/attr"),
        ([{**TRANS, "attr": [TRANS["attr"][0], {**TRANS["attr"][1], "value": "XY"}]}], "E10030", "/0/attr"),
    ],
)
def test_what_is_wrong_in_the_file_has_a_code_and_a_place(
    content: Any, code: str, pointer: str, tmp_path: Path
) -> None:
    path = tmp_path / "o.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    with pytest.raises(GecliError) as caught:
        read_single_ops(str(path))
    assert (caught.value.code, caught.value.first.pointer or "") == (code, pointer)
    assert caught.value.exit_status == 2
    assert caught.value.first.why


@pytest.mark.parametrize(
    ("words", "status"),
    [
        ("--singleop missing.json -o d", 3),
        ("--singleop ops.json", 2),
        ("--singleop ops.json -o d --framework 5", 2),
        ("--singleop ops.json -o d --mode 3", 2),
        ("--singleop ops.json -o d --check", 2),
        ("--singleop ops.json -o d --stop-after Prepare", 2),
        ("--singleop ops.json -o d --input-shape x:1", 2),
        ("--singleop ops.json -o d --jit", 2),
        ("--singleop ops.json -o d model.onnx", 2),
        ("--singleop= -o d", 2),
    ],
)
def test_what_does_not_go_with_singleop_is_told(words: str, status: int, place: Path) -> None:
    assert run(["compile", *words.split()]) == status
    assert not (place / "d").exists()
