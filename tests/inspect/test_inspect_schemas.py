"""The published JSON Schemas describe what the views print, for every kind of file."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import pytest

import gecli.report

from .conftest import REAL, Files, Inspect

SCHEMAS = Path(gecli.report.__file__).parent / "schemas"
VIEWS = {
    "summary": ["--summary"], "info": ["--info"], "nodes": ["--nodes", "--show", "attrs,weights,io,edges"],
    "tensors": ["--tensors", "--stats"], "vars": ["--vars", "--map"], "io": ["--io"], "partitions": ["--partitions"],
    "tasks": ["--tasks"], "kernels": ["--kernels"], "options": ["--options"], "hex": ["--hex", "file:0:64"],
    "model": ["--full"], "atc-json": ["--atc-json"],
}  # fmt: skip
READABLE = sorted(path.name for path in REAL.glob("*.om") if not path.name.startswith("encrypted"))
OF_GRAPHS = ("summary", "nodes", "tensors", "vars", "io", "options", "hex", "model", "atc-json")
OF_CONTAINERS = ("summary", "partitions", "hex", "model")
# Files without a graph, or without a container, have these views; the others are refused by name.
PARTIAL = {
    "rdcpkt": ("summary", "vars", "hex", "model"),
    "session": ("summary", "vars", "hex", "model"),
    "idx": ("summary", "hex", "model"),
    "model-def": (*OF_GRAPHS, "info"),
    "ge-text": (*OF_GRAPHS, "info"),
    "ge-onnx-text": (*OF_GRAPHS, "info"),
    "bundle": (*OF_CONTAINERS, "tasks", "kernels"),
}


@cache
def validator(view: str) -> Any:
    schema = json.loads((SCHEMAS / f"inspect.{view}.json").read_text(encoding="utf-8"))
    return jsonschema.Draft202012Validator(schema)


def check(view: str, text: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(text)
    validator(view).validate(document)
    return document


def test_there_is_one_schema_for_every_document() -> None:
    names = {path.name for path in SCHEMAS.glob("inspect.*.json")}
    assert names == {f"inspect.{view}.json" for view in (*VIEWS, "extract", "salvage", "oneline", "files", "error")}


@pytest.mark.parametrize("path", sorted(SCHEMAS.glob("inspect.*.json")), ids=lambda path: path.stem)
def test_a_published_schema_is_one(path: Path) -> None:
    jsonschema.Draft202012Validator.check_schema(json.loads(path.read_text(encoding="utf-8")))


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("name", READABLE)
def test_every_view_of_a_real_file_prints_what_its_schema_says(view: str, name: str, inspect: Inspect) -> None:
    shown = inspect(REAL / name, *VIEWS[view], "--json")
    assert (shown.status, shown.err) == (0, "")
    check(view, shown.out)


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("kind", ["digits", "training"])
def test_every_view_of_an_own_file_prints_what_its_schema_says(
    view: str, kind: str, inspect: Inspect, digits_om: Path, conv_train_om: Path
) -> None:
    shown = inspect({"digits": digits_om, "training": conv_train_om}[kind], *VIEWS[view], "--json")
    assert (shown.status, shown.err) == (0, "")
    check(view, shown.out)


@pytest.mark.parametrize("kind", PARTIAL)
@pytest.mark.parametrize("view", VIEWS)
def test_a_view_of_another_kind_of_file_has_its_document_or_is_refused_by_name(
    view: str, kind: str, inspect: Inspect, files: Files
) -> None:
    shown = inspect(files[kind], *VIEWS[view], "--json")
    if view in PARTIAL[kind]:
        assert (shown.status, shown.err) == (0, "")
        document = check(view, shown.out)
        assert document.get("file", {}).get("kind", kind) == kind
        return
    error = check("error", shown.out)["errors"][0]
    assert (shown.status, error["code"] in ("G3008", "G3010"), str(files[kind]) in error["message"]) == (3, True, True)


def test_the_encrypted_file_has_a_document_of_its_error(inspect: Inspect) -> None:
    shown = inspect(REAL / "encrypted-2020-conv_pad.om", "--nodes", "--json")
    assert (shown.status, check("error", shown.out)["errors"][0]["kind"]) == (3, "not-om")


FAILING = {
    "encrypted": (REAL / "encrypted-2020-conv_pad.om").read_bytes(), "empty": b"", "text": b"no model\n" * 9,
    "cut": (REAL / "ascend310-2022-vae.om").read_bytes()[:300_000],
    "short": (REAL / "ascend310-2022-vae.om").read_bytes()[:99], "zip": b"PK\x03\x04" + bytes(40),
    "html": b"<html></html>", "pickle": b"\x80\x04\x95.", "onnx-json": b'{"nodes": [], "links": []}',
    "list": b"[1]", "lfs": b"version https://git-lfs.github.com/spec/v1\n",
}  # fmt: skip


@pytest.mark.parametrize("kind", [*FAILING, "directory", "missing"])
@pytest.mark.parametrize("view", VIEWS)
def test_a_file_that_cannot_be_shown_has_the_document_of_an_error_for_every_view(
    view: str, kind: str, tmp_path: Path, inspect: Inspect
) -> None:
    path = tmp_path / kind
    if kind == "directory":
        path.mkdir()
    elif kind != "missing":
        path.write_bytes(FAILING[kind])
    shown = inspect(path, *VIEWS[view], "--json")
    document = check("error", shown.out)
    assert (shown.status, document["ok"], document["errors"][0]["severity"]) == (3, False, "error")
    printed = json.loads(inspect(*VIEWS[view], "--json", "--print-schema").out)
    jsonschema.Draft202012Validator(printed).validate(document)


@pytest.mark.parametrize("words", [["--io", "--nodes"], ["--extract", "all"], ["--nodes", "--graph-name", "none"]])
def test_a_command_that_cannot_be_carried_out_has_the_document_of_an_error(
    words: list[str], inspect: Inspect, digits_om: Path
) -> None:
    shown = inspect(digits_om, *words, "--json")
    assert (shown.status, check("error", shown.out)["ok"]) == (2, False)


def test_a_cache_index_has_a_summary(inspect: Inspect, files: Files) -> None:
    document = check("summary", inspect(files["idx"], "--summary", "--json").out)
    assert document["records"] == [
        {"graph_key": "k", "om": "k_1.om", "rdcpkt": "k_1.rdcpkt", "found": False, "problem": None}
    ]


@pytest.mark.parametrize("kind", ["rdcpkt", "session"])
def test_the_document_of_a_record_holds_its_variables(kind: str, inspect: Inspect, files: Files) -> None:
    document = check("model", inspect(files[kind], "--json").out)
    variables = json.loads(inspect(files[kind], "--vars", "--json").out)["variables"]
    assert document["variables"] == variables and variables


def test_the_document_with_its_data_has_the_schema_too(inspect: Inspect, digits_om: Path) -> None:
    check("model", inspect(digits_om, "--json", "--full", "--embed-data").out)
    check("model", inspect(digits_om, "--json", "--data-file", "data.bin").out)


def test_documents_of_several_files_and_of_damage_have_schemas(
    tmp_path: Path, inspect: Inspect, digits_om: Path
) -> None:
    (tmp_path / "cut.om").write_bytes(digits_om.read_bytes()[:5000])
    assert check("salvage", inspect("cut.om", "--salvage", "--json").out)["cut_model"]["nodes"]
    (tmp_path / "late.om").write_bytes(digits_om.read_bytes()[:20_000])
    (tmp_path / "cut.def").write_bytes((REAL / "ascend310-2022-vae.om").read_bytes()[308:60_308])
    assert check("salvage", inspect("cut.def", "--salvage", "--json").out)["header"] is None
    assert check("salvage", inspect("late.om", "--salvage", "--json").out)["model"]["name"] == "digits"
    assert check("io", inspect("late.om", "--salvage", "--io", "--json").out)["inputs"]
    files = check("files", inspect(digits_om, "cut.om", "--io", "--json").out)
    assert [sorted(entry) for entry in files["files"]] == [["document", "path"], ["errors", "path"]]
    lines = check("oneline", inspect(digits_om, "cut.om", "--oneline", "--json").out)
    assert [row["ok"] for row in lines["files"]] == [True, False]
    check("extract", inspect(digits_om, "--extract", "all", "--to", "out", "--json").out)


@pytest.mark.parametrize("view", [view for view in VIEWS if view != "model"])
def test_each_document_of_several_files_is_that_of_its_view(view: str, inspect: Inspect, digits_om: Path) -> None:
    paths = (digits_om, REAL / "hiai-relu.om")
    document = check("files", inspect(*paths, *VIEWS[view], "--json").out)
    for path, entry in zip(paths, document["files"], strict=True):
        shown = entry["document"]
        validator(view).validate(shown)
        assert entry["path"] == str(path)
        assert ("warnings" in entry) is (view == "atc-json")


@pytest.mark.parametrize(
    ("words", "name"),
    [
        ([], "model"), (["--json"], "model"), (["--json", "--full"], "model"), (["--nodes"], "nodes"),
        (["--hex", "header"], "hex"), (["--oneline"], "oneline"), (["--summary"], "summary"),
        (["--extract", "all", "--to", "out"], "extract"), (["a.om", "b.om", "--io"], "files"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else value,
)  # fmt: skip
def test_print_schema_prints_the_schema_of_the_view_without_a_file(
    words: list[str], name: str, inspect: Inspect
) -> None:
    shown = inspect(*words, "--print-schema")
    assert (shown.status, shown.err) == (0, "")
    printed = json.loads(shown.out)
    published = [{**validator(each).schema} for each in (name, "error")]
    dialects = {schema.pop("$schema") for schema in published}
    assert printed["anyOf"] == published and {printed["$schema"]} == dialects
    jsonschema.Draft202012Validator.check_schema(printed)


EXTRACTED = ["--extract", "all", "--to", "out"]
OPTIONS = [[], *VIEWS.values(), EXTRACTED, ["--oneline"]]


@pytest.mark.parametrize("state", ["sound", "cut in the model", "cut in the weights", "no OM"])
@pytest.mark.parametrize("words", [[], ["--salvage"]], ids=["", "salvaged"])
@pytest.mark.parametrize(
    ("count", "view"),
    [(count, view) for count in (1, 2) for view in OPTIONS if count == 1 or view != EXTRACTED],
    ids=lambda value: str(value) if isinstance(value, int) else " ".join(value[:1]),
)
def test_what_is_printed_has_the_schema_that_is_printed(
    count: int, view: list[str], words: list[str], state: str, tmp_path: Path, inspect: Inspect, digits_om: Path
) -> None:
    data = digits_om.read_bytes()
    kept = {"sound": len(data), "cut in the model": 5000, "cut in the weights": 20_000, "no OM": 3}[state]
    (tmp_path / "m.om").write_bytes(data[:kept])
    options = ["m.om"] * count + view + words
    printed = json.loads(inspect(*options, "--json", "--print-schema").out)
    if view != VIEWS["model"]:  # which belongs to --json
        assert printed == json.loads(inspect(*options, "--print-schema").out)
    document = json.loads(inspect(*options, "--json").out)
    jsonschema.Draft202012Validator(printed).validate(document)


def test_several_files_for_atc_are_one_document_without_json_too(
    tmp_path: Path, inspect: Inspect, digits_om: Path
) -> None:
    (tmp_path / "none.om").write_bytes(b"")
    shown = inspect(digits_om, "none.om", REAL / "hiai-relu.om", "--atc-json")
    document = check("files", shown.out)
    assert (shown.status, [sorted(entry) for entry in document["files"]]) == (
        3, [["document", "path", "warnings"], ["errors", "path"], ["document", "path", "warnings"]]
    )  # fmt: skip
    assert document["files"][0]["document"] == json.loads(inspect(digits_om, "--atc-json").out)
    assert document == json.loads(inspect(digits_om, "none.om", REAL / "hiai-relu.om", "--atc-json", "--json").out)
