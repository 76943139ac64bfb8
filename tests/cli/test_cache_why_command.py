"""`gecli cache why` tells what a compile with the same words would find, and changes nothing."""

from __future__ import annotations

import fcntl
import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import REPOSITORY

Run = Callable[..., "subprocess.CompletedProcess[str]"]
DIGITS = str(REPOSITORY / "samples/digits/digits.onnx")
CACHE = ("--cache-dir", "cache")
KEYED = (*CACHE, "--graph-key", "k")


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from gecli.compiler.api import compile_models
    from gecli.options.resolution import resolve

    directory = tmp_path_factory.mktemp("filled")
    (directory / "cache").mkdir()
    options = {"output": (f"{directory}/x",), "ge.graph_compiler_cache_dir": (f"{directory}/cache",)}
    compile_models([DIGITS], resolve("compile", {**options, "ge.graph_key": ("k",)}))
    return directory / "cache"


@pytest.fixture
def cache(filled: Path, tmp_path: Path) -> Path:
    shutil.copytree(filled, tmp_path / "cache")
    return tmp_path / "cache"


def contents(directory: Path) -> dict[str, tuple[int, int]]:
    return {str(path): (path.stat().st_mtime_ns, path.stat().st_ino) for path in directory.rglob("*")}


def why(gecli: Run, *words: str) -> dict[str, Any]:
    result = gecli("cache", "why", DIGITS, *words, "--json", "--quiet")
    document: dict[str, Any] = json.loads(result.stdout)
    assert (result.returncode, result.stderr) == (0 if document["would_hit"] else 1, "")
    return document["models"][0]  # type: ignore[no-any-return]  # a document


@pytest.mark.parametrize(
    ("words", "hits", "reason"),
    [
        ((*KEYED, "-o", "x"), True, None),
        ((*CACHE, "-o", "elsewhere/x.om"), True, None),
        ((*KEYED, "-o", "x", "--cache-mode", "refresh"), True, None),
        ((*KEYED, "-o", "y"), False, "fingerprint_mismatch"),
        ((*KEYED,), False, "fingerprint_mismatch"),
        ((*CACHE, "--graph-key", "other", "-o", "x"), False, "no_entry"),
        ((*KEYED, "-o", "x", "--cache-mode", "off"), False, "disabled"),
        ((*CACHE, "-o", "x", "--no-auto-graph-key"), False, "disabled"),
    ],
)
def test_the_answer_is_what_the_compile_finds(
    words: tuple[str, ...], hits: bool, reason: str | None, gecli: Run, cache: Path
) -> None:
    before = contents(cache)
    answer = why(gecli, *words)
    assert (answer["would_hit"], answer["reason"]) == (hits, reason)
    assert contents(cache) == before
    if "refresh" not in words:
        compiled = gecli("compile", DIGITS, *words, *(() if "-o" in words else ("-o", "digits")))
        assert ("cache=hit" in compiled.stdout) == hits
        assert hits or reason == "disabled" or f"cache=miss reason={reason}" in compiled.stdout


def test_options_and_nodes_that_differ_are_named_with_both_values(gecli: Run, cache: Path) -> None:
    result = gecli("cache", "why", DIGITS, *KEYED, "-o", "x", "--input-shape", "image:1,1,8,8")
    assert result.returncode == 1
    lines = result.stdout.splitlines()
    assert lines[0].endswith("would miss, fingerprint_mismatch: the entry was compiled from something else")
    assert lines[1].endswith(": fingerprint_mismatch (graph, options)")
    assert lines[2] == "    option input_shape: '' in the entry, 'image:1,1,8,8' now"


def test_the_same_model_under_another_key_is_shown(gecli: Run, cache: Path) -> None:
    answer = why(gecli, *CACHE, "--graph-key", "new", "-o", "y")
    assert {near["key"] for near in answer["near"]} >= {"k"}
    assert all("option model_name" in near["details"][0] for near in answer["near"])


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (lambda om: om.write_bytes(om.read_bytes()[:-1]), "om_corrupt"),
        (lambda om: om.unlink(), "om_missing"),
        (lambda om: om.with_suffix(".gecli.json").write_text("{"), "sidecar_invalid"),
        (lambda om: (om.parent / "k.idx").write_text("{"), "index_corrupt"),
    ],
)
def test_damage_is_the_reason_and_stays(damage: Callable[[Path], object], reason: str, gecli: Run, cache: Path) -> None:
    damage(next(cache.glob("k_*.om")))
    before = contents(cache)
    answer = why(gecli, *KEYED, "-o", "x")
    assert (answer["would_hit"], answer["reason"]) == (False, reason)
    assert answer["reason_text"]
    assert contents(cache) == before


def test_an_entry_that_the_compile_would_adopt_is_a_hit(gecli: Run, cache: Path) -> None:
    (cache / "k.idx").unlink()
    answer = why(gecli, *KEYED, "-o", "x")
    assert (answer["would_hit"], answer["adopts"]) == (True, True)
    assert not (cache / "k.idx").exists()
    assert "cache=hit" in gecli("compile", DIGITS, *KEYED, "-o", "x").stdout


def test_a_derived_key_gives_way_to_an_equal_request(gecli: Run, cache: Path) -> None:
    answer = why(gecli, *CACHE, "-o", "x")
    assert (answer["key"], answer["key_origin"], answer["would_hit"]) == ("k", "of an equal request", True)
    assert "cache=hit reason=- key=k" in gecli("compile", DIGITS, *CACHE, "-o", "x").stdout


def test_nobody_is_waited_for(gecli: Run, cache: Path) -> None:
    with open(cache / "k.lock", "w") as peer:
        fcntl.flock(peer, fcntl.LOCK_EX)
        assert why(gecli, *KEYED, "-o", "y")["reason"] == "fingerprint_mismatch"


def test_what_the_compile_refuses_is_refused(gecli: Run, cache: Path) -> None:
    for words, status in (
        ((DIGITS, *CACHE, "--frobnicate"), 2),
        ((DIGITS, *CACHE, "--jit", "--sample", "missing.npz"), 3),
        ((DIGITS, *CACHE, "--jit", "--input-hint-shape", "0:[1,1,8,8]", "-o", "x"), 2),
        ((DIGITS, *CACHE, "--input-shape", "nowhere:1"), 2),
        (("missing.onnx", *CACHE), 3),
        ((DIGITS, "--cache-dir", "nowhere", "--cache-create"), 2),
        (CACHE, 2),
        ((DIGITS,), 2),
    ):
        result = gecli("cache", "why", *words)
        assert (result.returncode, result.stdout) == (status, ""), result.stderr
        assert "--output is missing" not in result.stderr
    assert not (cache.parent / "nowhere").exists()


def test_several_models_have_an_answer_each(gecli: Run, cache: Path) -> None:
    shutil.copy(DIGITS, cache.parent / "x.onnx")
    result = gecli("cache", "why", DIGITS, "x.onnx", *CACHE, "-o", "out/", "--json", "--quiet")
    document = json.loads(result.stdout)
    assert [model["source"] for model in document["models"]] == [DIGITS, "x.onnx"]
    assert result.returncode == 1
