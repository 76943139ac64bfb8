"""What the views say about files whose content is known."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from .conftest import REAL, Files, Inspect, model_def, wide_om

Golden = Callable[[str, str], None]
VIEWS = {
    "summary": [], "info": ["--info"], "atc-json": ["--atc-json"], "nodes": ["--nodes"], "tensors": ["--tensors"],
    "tensor-stats": ["--tensors", "--stats"], "vars": ["--vars"], "io": ["--io"], "partitions": ["--partitions"],
    "tasks": ["--tasks"], "kernels": ["--kernels"], "options": ["--options"], "hex": ["--hex", "header"],
    "node-detail": ["--nodes", "--type", "Conv2D", "--show", "attrs,weights,io,edges"],
}  # fmt: skip
OWN = ("summary", "nodes", "tensors", "io", "options", "info")  # views without digests of the whole file


@pytest.mark.parametrize("view", VIEWS)
def test_the_views_of_a_real_file_are_these(view: str, inspect: Inspect, golden: Golden) -> None:
    shown = inspect(REAL / "ascend310-2020-conv_pad.om", *VIEWS[view])
    golden(f"inspect/conv_pad.{view}.txt", shown.out.replace(f"{REAL}/", ""))


@pytest.mark.parametrize("view", OWN)
def test_the_views_of_an_own_file_are_these(view: str, inspect: Inspect, golden: Golden, digits_om: Path) -> None:
    shown = inspect(digits_om, *VIEWS[view])
    golden(f"inspect/digits.{view}.txt", shown.out.replace(f"{digits_om.parent}/", ""))


def test_the_views_of_variables_are_these(inspect: Inspect, golden: Golden, conv_train_om: Path) -> None:
    golden("inspect/conv_train.vars.txt", inspect(conv_train_om, "--vars", "--map").out)


@pytest.mark.parametrize(
    ("name", "kind", "words"),
    [
        ("session.summary", "session", []),
        ("session.vars", "session", ["--vars"]),
        ("rdcpkt.vars", "rdcpkt", ["--vars"]),
        ("bundle.summary", "bundle", ["--recursive"]),
        ("ge-text.summary", "ge-text", []),
        ("ge-text.nodes", "ge-text", ["--nodes", "--show", "attrs,io"]),
        ("ge-onnx-text.nodes", "ge-onnx-text", ["--nodes"]),
        ("idx.summary", "idx", []),
        ("model-def.full", "model-def", ["--json", "--full"]),
    ],
)
def test_the_views_of_other_kinds_of_files_are_these(
    name: str, kind: str, words: list[str], inspect: Inspect, golden: Golden, files: Files
) -> None:
    shown = inspect(files[kind], *words)
    golden(f"inspect/{name}.txt", shown.out.replace(f"{files[kind].parent}/", ""))


def test_the_answer_to_a_target_and_what_is_left_of_a_cut_file_are_these(
    tmp_path: Path, inspect: Inspect, golden: Golden
) -> None:
    vae = REAL / "ascend310-2022-vae.om"
    shown = inspect(vae, "--target", "Ascend310P3", "--for-version", "5.0.3")
    golden("inspect/vae.target.txt", shown.out.replace(f"{REAL}/", ""))
    (tmp_path / "cut.om").write_bytes(vae.read_bytes()[:100_000])
    golden("inspect/cut.salvage.txt", inspect("cut.om", "--salvage").out)
    golden("inspect/cut.oneline.txt", inspect("cut.om", vae, "--oneline").out.replace(f"{REAL}/", ""))


def test_a_filter_variable_shows_its_device_format_road_address_and_writer(
    inspect: Inspect, conv_train_om: Path
) -> None:
    document = json.loads(inspect(conv_train_om, "--vars", "--json").out)
    row = next(row for row in document["variables"] if row["name"] == "w2")
    assert (row["desc"]["format"], row["desc"]["origin_format"]) == ("FRACTAL_Z", "HWCN")
    assert [(step["type"], step["from"]["format"], step["to"]["format"]) for step in row["road"]] == [
        ("TransData", "HWCN", "FRACTAL_Z")
    ]
    assert row["writers"] == ["up_w2:0"]
    assert row["address"] == document["base"] + row["offset"] == 0x2000000000 + row["offset"]
    assert row["memory_type"] == "HBM"
    assert row["offset"] % 512 == 0


def test_without_the_record_beside_the_file_roads_are_unknown(
    tmp_path: Path, inspect: Inspect, conv_train_om: Path
) -> None:
    (tmp_path / "alone.om").write_bytes(conv_train_om.read_bytes())
    shown = inspect("alone.om", "--vars")
    assert "no variable record beside the file" in shown.out
    document = json.loads(inspect("alone.om", "--vars", "--json").out)
    assert {json.dumps(row["road"]) for row in document["variables"]} == {"null"}
    assert "needs      variable record: alone.rdcpkt (not there: it runs without, but" in inspect("alone.om").out


def test_the_address_map_has_no_overlap_and_covers_every_byte(inspect: Inspect, conv_train_om: Path) -> None:
    blocks = json.loads(inspect(conv_train_om, "--vars", "--map", "--json").out)["map"]
    position = 0
    for block in blocks:
        assert block["kind"] in ("variable", "padding", "gap")
        assert block["offset"] == position
        position += block["size"]


@pytest.mark.parametrize(
    ("filters", "types"),
    [
        (["--type", "Conv2D"], {"Conv2D"}),
        (["--type", "Apply*"], {"ApplyMomentum"}),
        (["--name", "up_w2"], {"ApplyMomentum"}),
        (["--type", "Data", "--type", "NetOutput"], {"Data", "NetOutput"}),
        (["--type", "Nothing"], set()),
    ],
)
def test_filters_choose_nodes(filters: list[str], types: set[str], inspect: Inspect, conv_train_om: Path) -> None:
    document = json.loads(inspect(conv_train_om, "--nodes", *filters, "--json").out)
    assert {row["type"] for row in document["nodes"]} == types
    assert document["count"] == len(document["nodes"])


def test_a_graph_that_is_not_there_is_a_usage_error_that_names_those_that_are(
    inspect: Inspect, digits_om: Path
) -> None:
    shown = inspect(digits_om, "--nodes", "--graph-name", "other")
    assert (shown.status, "graphs: digits_0" in shown.err) == (2, True)


def test_hex_is_the_bytes_of_the_file(inspect: Inspect, digits_om: Path) -> None:
    data = digits_om.read_bytes()
    lines = inspect(digits_om, "--hex", "file").out.splitlines()
    shown = b"".join(bytes.fromhex(line[10:58]) for line in lines)
    assert shown == data
    document = json.loads(inspect(digits_om, "--hex", "0:0x10:8", "--json").out)
    start = document["part_offset"] + 16
    assert bytes.fromhex(document["bytes"]) == data[start : start + 8]


@pytest.mark.parametrize("spec", ["NOTHING", "header:300", "header:x", "99"])
def test_a_part_that_is_not_there_is_a_usage_error(spec: str, inspect: Inspect, digits_om: Path) -> None:
    shown = inspect(digits_om, "--hex", spec)
    assert (shown.status, "--hex" in shown.err) == (2, True)


def test_hex_without_a_value_is_a_usage_error_with_a_document(inspect: Inspect, digits_om: Path) -> None:
    shown = inspect(digits_om, "--hex", "--json")
    document = json.loads(shown.out)
    assert (shown.status, document["schema"], document["ok"]) == (2, "gecli.inspect.error/1", False)
    assert [each["message"] for each in document["errors"]] == ["option --hex needs a value"]


def test_digests_of_partitions_are_those_of_their_bytes(inspect: Inspect, digits_om: Path) -> None:
    data = digits_om.read_bytes()
    rows = json.loads(inspect(digits_om, "--partitions", "--json").out)["partitions"]
    for row in rows:
        assert row["sha256"] == hashlib.sha256(data[row["offset"] : row["offset"] + row["size"]]).hexdigest()
    plain = json.loads(inspect(digits_om, "--partitions", "--no-hash", "--json").out)["partitions"]
    assert "sha256" not in plain[0]


def test_random_bytes_look_random_and_others_do_not(inspect: Inspect) -> None:
    rows = json.loads(inspect(REAL / "ascend310-2022-vae.om", "--partitions", "--json").out)["partitions"]
    assert [row["looks_random"] for row in rows] == [False] * 4


def test_a_changed_payload_is_a_warning_and_with_strict_an_error(
    tmp_path: Path, inspect: Inspect, digits_om: Path
) -> None:
    data = bytearray(digits_om.read_bytes())
    weights = next(
        row for row in json.loads(inspect(digits_om, "--summary", "--json").out)["partitions"] if row["type"] == 1
    )
    data[weights["offset"] + 600] ^= 1
    (tmp_path / "changed.om").write_bytes(data)
    shown = inspect("changed.om")
    assert (shown.status, "warning[G3006]" in shown.err) == (0, True)
    assert "verdict    1 problem, payload digest wrong" in shown.out
    strict = inspect("changed.om", "--io", "--strict")
    assert (strict.status, "error[G3006]" in strict.err) == (3, True)
    assert strict.out


def test_names_from_the_file_cannot_reach_the_terminal_as_commands(
    tmp_path: Path, inspect: Inspect, digits_om: Path
) -> None:
    data = digits_om.read_bytes().replace(b"relu1", b"\x1b[2Jx")
    (tmp_path / "hostile.om").write_bytes(data)
    for view in ([], ["--nodes"], ["--nodes", "--show", "edges,io,attrs"], ["--tasks"], ["--info"]):
        shown = inspect("hostile.om", *view)
        assert "\x1b" not in shown.out + shown.err


def test_the_whole_document_has_every_node_with_its_fields(inspect: Inspect, digits_om: Path) -> None:
    document = json.loads(inspect(digits_om, "--json").out)
    assert document["schema"] == "gecli.inspect/1"
    assert document["file"]["sha256"] == hashlib.sha256(digits_om.read_bytes()).hexdigest()
    ops = document["models"][0]["graphs"][0]["ops"]
    conv = next(op for op in ops if op["name"] == "conv1")
    assert conv["attr"]["strides"] == [1, 1, 1, 1]
    assert conv["input_desc"][0]["dtype"] == "DT_FLOAT"
    assert {op["type"] for op in ops} >= {"Data", "Const", "Conv2D", "NetOutput"}


def test_data_can_be_put_into_the_document_or_beside_it(tmp_path: Path, inspect: Inspect, digits_om: Path) -> None:
    import base64

    def weight(*options: str) -> dict[str, object]:
        ops = json.loads(inspect(digits_om, "--json", *options).out)["models"][0]["graphs"][0]["ops"]
        const = next(op for op in ops if op["type"] == "Const" and "conv1" in op["name"])
        found: dict[str, object] = const["attr"]["value"]["value"].get("data", {})
        return found

    assert weight() == {}
    inside = weight("--embed-data")
    data = base64.b64decode(str(inside["base64"]))
    assert hashlib.sha256(data).hexdigest() == inside["sha256"]
    beside = weight("--data-file", "weights.bin")
    start, length = int(str(beside["offset"])), int(str(beside["length"]))
    assert (tmp_path / "weights.bin").read_bytes()[start : start + length] == data


@pytest.mark.parametrize(
    ("fields", "attrs"),
    [
        ("weight_size: 8 data_offset: 512", {}), ("", {"weight_size": 8, "data_offset": 512}),
        ("weight_size: 3 data_offset: 7", {"weight_size": 8, "data_offset": 512}),
        ("weight_size: 8 data_offset: 7", {"merged_offset": 512}),
    ],
    ids=["fields", "attributes", "attributes win", "merged"],
)  # fmt: skip
def test_the_data_in_the_document_are_those_of_the_tensors_view(
    fields: str, attrs: dict[str, int], tmp_path: Path, inspect: Inspect
) -> None:
    places = " ".join(f'attr {{ key: "{name}" value {{ i: {value} }} }}' for name, value in attrs.items())
    desc = f'desc {{ dtype: DT_FLOAT layout: "ND" shape {{ dim: 2 }} {fields} {places} }}'
    const = f'op {{ name: "c" type: "Const" attr {{ key: "value" value {{ t {{ {desc} }} }} }} }}'
    data = bytes(range(8))
    model = model_def(f'name: "m" graph {{ name: "g" {const} }}')
    (tmp_path / "m.om").write_bytes(wide_om((0, model), (1, bytes(512) + data + bytes(504))))
    (tensor,) = json.loads(inspect("m.om", "--tensors", "--json").out)["tensors"]
    shown = json.loads(inspect("m.om", "--json", "--embed-data").out)["models"][0]["graphs"][0]["ops"][0]
    held = shown["attr"]["value"]["value"]["data"]
    assert held["sha256"] == tensor["sha256"] == hashlib.sha256(data).hexdigest()
    assert base64.b64decode(held["base64"]) == data


def test_statistics_are_those_of_numpy(inspect: Inspect, digits_om: Path) -> None:
    import numpy as np

    inspect(digits_om, "--extract", "all", "--to", "out")
    manifest = json.loads(Path("out/manifest.json").read_text())
    for row in json.loads(inspect(digits_om, "--tensors", "--stats", "--json").out)["tensors"]:
        array = np.load(Path("out") / manifest[row["name"]]["file"]).astype(np.float64)
        assert row["stats"]["min"] == array.min() and row["stats"]["max"] == array.max()
        assert row["stats"]["mean"] == pytest.approx(array.mean(), abs=1e-12)
        assert row["stats"]["zeros"] == int((array == 0).sum())


def test_one_line_a_file_goes_on_behind_a_bad_one(tmp_path: Path, inspect: Inspect, digits_om: Path) -> None:
    (tmp_path / "bad.om").write_bytes(b"nothing of the kind")
    shown = inspect("bad.om", digits_om, "--oneline")
    bad, good = shown.out.splitlines()
    assert shown.status == 3
    assert bad.startswith("bad.om  bad  ")
    assert re.search(r"digits\.om  ok  digits  Ascend910B1  \(image:FLOAT\[1,1,8,8\]\) -> ", good)


@pytest.mark.parametrize("option", ["--diff", "--graph=dot", "--around=x", "--only=io"])
def test_a_view_that_does_not_exist_yet_is_refused_with_a_way_out(
    option: str, inspect: Inspect, digits_om: Path
) -> None:
    shown = inspect(digits_om, option)
    assert (shown.status, "E10055" in shown.err, "yet" in shown.err) == (2, True, True)
