"""Graph dumps of GE in both text forms, and what is wrong with damaged ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gecli.errors import InputError
from gecli.report.inspect.text_proto import model_bytes, parse_text

from .conftest import GE_TEXT, Files, Inspect


def document(inspect: Inspect, *words: str | Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(inspect(*words, "--json").out)
    return found


def test_a_text_model_has_the_nodes_of_its_text(inspect: Inspect, files: Files) -> None:
    rows = document(inspect, files["ge-text"], "--nodes", "--show", "attrs")["nodes"]
    assert [(row["id"], row["name"], row["type"], row["inputs"]) for row in rows] == [
        (0, "x", "Data", []), (1, "w", "Const", []), (2, "add", "Add", ["x:0", "w:0"]),
        (3, "out", "NetOutput", ["add:0"]),
    ]  # fmt: skip
    assert rows[0]["outputs"][0]["shape"] == [1, 3, -1, 4]
    attrs = rows[2]["attrs"]
    assert (attrs["alpha"], attrs["names"], attrs["flag"]) == (0.5, ["a", "bc"], True)


def test_the_data_of_a_text_model_are_its_tensors(inspect: Inspect, files: Files) -> None:
    (row,) = document(inspect, files["ge-text"], "--tensors", "--stats")["tensors"]
    assert (row["name"], row["bytes"], row["stored"], row["stats"]["min"], row["stats"]["max"]) == (
        "w", 8, "inline", 1.0, 2.0
    )  # fmt: skip
    assert inspect(files["ge-text"], "--extract", "w", "--to", "out").status == 0
    assert np.load("out/w.npy").tolist() == [1.0, 2.0]


def test_a_text_model_and_its_binary_form_have_one_atc_document(tmp_path: Path, inspect: Inspect, files: Files) -> None:
    (tmp_path / "model.pb").write_bytes(model_bytes(parse_text(GE_TEXT.encode(), "text"), "text"))
    assert inspect("model.pb", "--atc-json").out == inspect(files["ge-text"], "--atc-json").out


def test_onnx_text_of_ge_is_a_graph_of_ge(inspect: Inspect, files: Files) -> None:
    rows = document(inspect, files["ge-onnx-text"], "--nodes", "--show", "attrs,edges")["nodes"]
    assert [(row["name"], row["type"], row["inputs"], row["control_in"]) for row in rows] == [
        ("x", "Data", [], []), ("relu", "Relu", ["x:0"], ["x"])
    ]  # fmt: skip
    assert rows[0]["outputs"] == [
        {"dtype": "DT_FLOAT16", "format": "NC1HWC0", "shape": [1, 1, 4, 4, 16], "origin_format": "NCHW",
         "origin_shape": [1, 3, 4, 4], "size": None}
    ]  # fmt: skip
    assert rows[1]["attrs"]["negative_slope"] == 0.25


def test_a_text_dump_comes_through_standard_input_too(
    inspect: Inspect, files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    with files["ge-text"].open("rb") as stream:
        monkeypatch.setattr("sys.stdin", type("Stdin", (), {"buffer": stream})())
        shown = inspect("-", "--nodes", "--type", "Add")
    assert (shown.status, len(shown.out.splitlines())) == (0, 2)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("graph {\n  op {\n    name: }\n}", "line 3, column 11"),
        ("graph {\n  op {\n    name: 'x'\n", "line 4, column 1"),
        ("graph {\n  op {\n    = 3\n  }\n}", "line 3, column 5"),
        ("graph {\n  op {\n    name 'x'\n  }\n}", "line 3, column 10"),
        ("graph {\n  op {\n    id: [1, {]\n  }\n}", "line 3, column 14"),
    ],
)
def test_the_place_of_a_fault_in_the_text_is_told(text: str, place: str, tmp_path: Path, inspect: Inspect) -> None:
    (tmp_path / "broken.txt").write_text(text)
    shown = inspect("broken.txt")
    assert (shown.status, "error[E13018]" in shown.err, place in shown.err) == (3, True, True)


@pytest.mark.parametrize("value", ["id: many", "id { a: 1 }", "attr: 3", "output_desc { dtype: DT_NEW }", "id: -"])
def test_a_value_of_the_wrong_form_is_refused(value: str, tmp_path: Path, inspect: Inspect) -> None:
    (tmp_path / "broken.txt").write_text(f"graph {{\n  op {{\n    {value}\n  }}\n}}\n")
    shown = inspect("broken.txt")
    assert (shown.status, "error[E13018]" in shown.err, "Traceback" in shown.err) == (3, True, False)


def test_a_dump_that_was_cut_is_an_input_error_at_every_length(tmp_path: Path, inspect: Inspect) -> None:
    whole = GE_TEXT.encode()
    for length in range(len(whole) // 3, len(whole) - 3, 29):
        (tmp_path / "cut.txt").write_bytes(whole[:length])
        shown = inspect("cut.txt", "--nodes")
        assert (shown.status, "error[E13018]" in shown.err) == (3, True), length


def test_other_onnx_text_is_named_as_what_it_is(tmp_path: Path, inspect: Inspect) -> None:
    (tmp_path / "model.pbtxt").write_text('ir_version: 8\ngraph {\n  node {\n    op_type: "Relu"\n  }\n}\n')
    shown = inspect("model.pbtxt")
    assert (shown.status, "this is an ONNX model in text form" in shown.err) == (3, True)


@given(st.binary(max_size=200) | st.text(alphabet='{}<>[]:,"\\# \nagrphop1.-', max_size=80).map(str.encode))
def test_any_bytes_are_a_tree_or_an_input_error(data: bytes) -> None:
    try:
        tree = parse_text(data, "text")
    except InputError as error:
        assert error.code == "E13018"
        return
    assert all(isinstance(values, list) for values in tree.values())


@given(st.binary(max_size=40))
def test_quoted_bytes_come_back(data: bytes) -> None:
    quoted = b'"' + b"".join(b"\\%03o" % byte for byte in data) + b'"'
    assert parse_text(b"name: " + quoted, "text") == {"name": [data]}
    readable = data.replace(b"\\", b"\\\\").replace(b"'", b"\\'").replace(b"\n", b"\\n")
    assert parse_text(b"name: '" + readable + b"'", "text") == {"name": [data]}


def test_numbers_are_read_in_every_base_and_lists_in_both_forms() -> None:
    text = b"a: 0x10 a: -3, b: [1, 2]; c { d: 1.5e3f } c < d: inf > # end"
    tree = parse_text(text, "text")
    assert tree == {"a": ["0x10", "-3"], "b": ["1", "2"], "c": [{"d": ["1.5e3f"]}, {"d": ["inf"]}]}


@pytest.mark.parametrize("kind", ["ge-text", "ge-onnx-text"])
def test_a_text_dump_has_no_size_of_a_model_def(kind: str, inspect: Inspect, files: Files) -> None:
    sizes = json.loads(inspect(files[kind], "--info", "--json").out)["om"]
    assert {*sizes.values()} == {None}
    shown = inspect(files[kind], "--info").out
    assert "modeldef_size" not in shown and "note: a text dump has none of the sizes of an OM" in shown


@pytest.mark.parametrize("options", [[], ["--strict"]])
def test_a_fault_in_the_graph_of_a_text_names_the_file_and_no_place_in_a_copy(
    options: list[str], tmp_path: Path, inspect: Inspect
) -> None:
    (tmp_path / "dump.txt").write_text(GE_TEXT.replace('input: "add:0"', 'input: "lost:0"'))
    shown = inspect("dump.txt", "--nodes", *options)
    first = shown.err.splitlines()[0]
    assert first.endswith("[G3011]: dump.txt: bad-graph: input 0 of 'out' is 'lost:0', but no node of that name exists")
    assert "bytes in memory" not in shown.err and "offset" not in shown.err
    assert "  why: " in shown.err and "  do:  " in shown.err


def test_a_text_that_is_no_sound_model_names_the_file_and_no_place_in_a_copy(tmp_path: Path, inspect: Inspect) -> None:
    value = "g { " * 99 + "}" * 99
    attr = f'attr {{ key: "a" value {{ {value} }} }}'
    (tmp_path / "dump.txt").write_text(GE_TEXT.replace('type: "Add"', f'type: "Add" {attr}'))
    shown = inspect("dump.txt", "--nodes")
    assert "bytes in memory" not in shown.err and "offset" not in shown.err
