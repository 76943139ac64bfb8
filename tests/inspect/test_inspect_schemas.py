"""The published JSON Schemas describe what the views print."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

import gecli.report

from .conftest import REAL, Inspect

SCHEMAS = Path(gecli.report.__file__).parent / "schemas"
VIEWS = {
    "summary": ["--summary"], "info": ["--info"], "nodes": ["--nodes", "--show", "attrs,weights,io,edges"],
    "tensors": ["--tensors", "--stats"], "vars": ["--vars", "--map"], "io": ["--io"], "partitions": ["--partitions"],
    "tasks": ["--tasks"], "kernels": ["--kernels"], "options": ["--options"], "hex": ["--hex", "table"], "model": [],
    "atc-json": ["--atc-json"],
}  # fmt: skip


def schema(view: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((SCHEMAS / f"inspect.{view}.json").read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator.check_schema(found)
    return found


def check(view: str, text: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(text)
    jsonschema.validate(document, schema(view))
    return document


def test_there_is_one_schema_for_every_document() -> None:
    names = {path.name for path in SCHEMAS.glob("inspect.*.json")}
    assert names == {f"inspect.{view}.json" for view in (*VIEWS, "extract", "salvage", "oneline", "files")}


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("source", ["own", "training", "real", "mobile"])
def test_a_view_prints_what_its_schema_says(
    view: str, source: str, inspect: Inspect, digits_om: Path, conv_train_om: Path
) -> None:
    path = {
        "own": digits_om,
        "training": conv_train_om,
        "real": REAL / "ascend310-2022-vae.om",
        "mobile": REAL / "hiai-resnet20_quant8.om",
    }[source]
    shown = inspect(path, *VIEWS[view], "--json")
    assert (shown.status, shown.err) == (0, "")
    check(view, shown.out)


@pytest.mark.parametrize("view", ["summary", "vars", "model"])
def test_a_variable_record_has_the_documents_of_its_views(view: str, inspect: Inspect, conv_train_om: Path) -> None:
    document = check(view, inspect(conv_train_om.with_suffix(".rdcpkt"), *VIEWS[view], "--json").out)
    if view == "vars":
        assert len(document["variables"]) == 12


def test_a_cache_index_has_a_summary(tmp_path: Path, inspect: Inspect) -> None:
    record = {"graph_key": "k", "cache_file_name": "k_1.om", "var_desc_file_name": "k_1.rdcpkt"}
    (tmp_path / "k.idx").write_text(json.dumps({"cache_file_list": [record]}))
    document = check("summary", inspect("k.idx", "--summary", "--json").out)
    assert document["records"] == [
        {"graph_key": "k", "om": "k_1.om", "rdcpkt": "k_1.rdcpkt", "found": False, "problem": None}
    ]


def test_documents_of_several_files_and_of_damage_have_schemas(
    tmp_path: Path, inspect: Inspect, digits_om: Path
) -> None:
    (tmp_path / "cut.om").write_bytes(digits_om.read_bytes()[:5000])
    check("salvage", inspect("cut.om", "--salvage", "--json").out)
    files = check("files", inspect(digits_om, "cut.om", "--io", "--json").out)
    assert [sorted(entry) for entry in files["files"]] == [["document", "path"], ["errors", "path"]]
    lines = check("oneline", inspect(digits_om, "cut.om", "--oneline", "--json").out)
    assert [row["ok"] for row in lines["files"]] == [True, False]
    check("extract", inspect(digits_om, "--extract", "all", "--to", "out", "--json").out)
