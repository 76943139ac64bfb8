"""The published JSON Schemas describe what every cache command prints, successes and errors."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from functools import cache as cached
from pathlib import Path
from typing import Any

import jsonschema
import pytest

import gecli.report
from gecli.options.option import CACHE_COMMANDS
from tests.conftest import REPOSITORY

Run = Callable[..., "subprocess.CompletedProcess[str]"]
SCHEMAS = Path(gecli.report.__file__).parent / "schemas"
TRAIN = str(REPOSITORY / "samples/train/conv_train.json")
DIGITS = str(REPOSITORY / "samples/digits/digits.onnx")


@cached
def schema_of(name: str) -> Any:
    return json.loads((SCHEMAS / f"{name}.json").read_text(encoding="utf-8"))


def check(text: str, name: str) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(text)
    jsonschema.Draft202012Validator(schema_of(name)).validate(document)
    return document


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two whole keys, an entry that is damaged, a torn index, an orphan, and an archive of what is whole."""
    from gecli.cache.export_archive import plan_export, write_archive
    from gecli.compiler.api import compile_models
    from gecli.options.resolution import resolve

    folder = tmp_path_factory.mktemp("filled")
    directory = folder / "cache"
    directory.mkdir()
    for key, model in (("k", TRAIN), ("d", DIGITS), ("bad", DIGITS), ("torn", DIGITS)):
        options = {"output": (f"{folder}/x",), "ge.graph_compiler_cache_dir": (str(directory),), "ge.graph_key": (key,)}
        compile_models([model], resolve("compile", options | ({"ge.graphRunMode": ("1",)} if model == TRAIN else {})))
    with open(folder / "all.tar", "wb") as stream:
        write_archive(stream, plan_export(str(directory), ["k", "d"]))
    next(directory.glob("bad_*.om")).write_bytes(b"IMOD")
    (directory / "torn.idx").write_text("{")
    (directory / "k_20200101_000000.om").write_bytes(b"")
    return folder


@pytest.fixture
def cache(filled: Path, tmp_path: Path) -> Path:
    shutil.copytree(filled / "cache", tmp_path / "cache")
    shutil.copy(filled / "all.tar", tmp_path)
    (tmp_path / "new").mkdir()
    return tmp_path / "cache"


def test_there_is_one_schema_for_every_command() -> None:
    names = {path.stem for path in SCHEMAS.glob("cache*.json")}
    assert names == {*(command.replace(" ", "-") for command in CACHE_COMMANDS), "cache.error"}


@pytest.mark.parametrize("name", [path.stem for path in sorted(SCHEMAS.glob("cache*.json"))])
def test_a_published_schema_is_one(name: str) -> None:
    jsonschema.Draft202012Validator.check_schema(schema_of(name))


@pytest.mark.parametrize(
    ("line", "status"),
    [
        ("ls", 0),
        ("ls --files", 0),
        ("ls --state orphan,om-corrupt", 0),
        ("gc --all --dry-run", 0),
        ("gc --all", 0),
        ("verify", 1),
        ("verify --fast", 1),
        ("verify --repair", 0),
        (f"verify --recompile {DIGITS}", 1),
        ("stats", 0),
        ("stats --since 1h", 0),
        (f"why {DIGITS} -o x --graph-key d", 0),
        (f"why {DIGITS} -o y --graph-key d", 1),
        (f"why {DIGITS} -o y", 1),
        (f"why {DIGITS} -o x --graph-key bad", 1),
        (f"why {DIGITS} -o x --cache-mode off", 1),
        ("path k", 0),
        ("export k -o k.tar", 0),
        ("export --key * -o a.tar", 1),
    ],
)
def test_a_document_is_what_its_schema_says(line: str, status: int, gecli: Run, cache: Path) -> None:
    command, *words = line.split()
    result = gecli("cache", command, *words, "--cache-dir", "cache", "--json")
    assert result.returncode == status, result.stderr
    check(result.stdout, f"cache-{command}")


def test_documents_of_import_and_confirm(gecli: Run, cache: Path) -> None:
    for states in ({"imported"}, {"present"}):
        result = gecli("cache", "import", "all.tar", "--cache-dir", "new", "--json")
        assert {each["state"] for each in check(result.stdout, "cache-import")["entries"]} == states
    stem = next(cache.glob("k_2*.gecli.json")).name.removesuffix(".gecli.json")
    check(gecli("cache", "confirm", "k", stem, "--cache-dir", "cache", "--json").stdout, "cache-confirm")


@pytest.mark.parametrize("command", CACHE_COMMANDS)
def test_an_error_has_a_document_too(command: str, gecli: Run, tmp_path: Path) -> None:
    words = {"cache why": [DIGITS], "cache import": ["x.tar"], "cache confirm": ["k", "e"]}.get(command, [])
    result = gecli(*command.split(), *words, "--cache-dir", "nowhere", "--json")
    assert result.returncode == 2
    assert check(result.stdout, "cache.error")["schema"] == f"gecli.{command.replace(' ', '-')}/1"


@pytest.mark.parametrize("command", CACHE_COMMANDS)
def test_a_schema_is_printed_without_a_cache(command: str, gecli: Run) -> None:
    result = gecli(*command.split(), "--print-schema")
    assert (result.returncode, result.stderr) == (0, "")
    schema = json.loads(result.stdout)
    jsonschema.Draft202012Validator.check_schema(schema)
    assert schema["title"].startswith(f"gecli.{command.replace(' ', '-')}/1 or ")


def test_the_schemas_know_every_state_and_reason() -> None:
    from gecli.cache.reasons import REASONS
    from gecli.cache.survey import STATES

    entry = schema_of("cache-ls")["properties"]["entries"]["items"]["properties"]
    assert set(entry["state"]["enum"]) == set(entry["problems"]["items"]["enum"]) == set(STATES)
    model = schema_of("cache-why")["properties"]["models"]["items"]["properties"]
    assert set(model["reason"]["enum"]) == {*REASONS, None}
    assert set(model["candidates"]["items"]["properties"]["reason"]["enum"]) == set(REASONS)
