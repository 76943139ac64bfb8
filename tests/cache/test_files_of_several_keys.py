"""Directories made by hand whose indexes name one model under several keys: what one key loses, the others keep."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from gecli.cache.gc import collect, select
from gecli.cache.gc_actions import GcPolicy
from gecli.cache.index import read_index
from gecli.cache.recovery import set_aside_entry
from gecli.cache.repair import repair
from gecli.cache.survey import survey
from gecli.cache.verify import verify

from .conftest import Store

Act = Callable[[str], object]


def collected(directory: str, key: str | None, policy: GcPolicy) -> None:
    found = survey(directory, key)
    collect(found, select(found, policy, time.time() + 1e6))


ACTS: dict[str, Act] = {
    "verify --repair": lambda directory: repair(verify(directory), wait_s=0),
    "verify --repair --fast": lambda directory: repair(verify(directory, fast=True), wait_s=0),
    "gc": lambda directory: collected(directory, None, GcPolicy(grace_s=0)),
    "gc --key b": lambda directory: collected(directory, "b", GcPolicy(grace_s=0)),
    "gc --broken": lambda directory: collected(directory, None, GcPolicy(only=frozenset(("broken",)))),
    "gc --key b --all": lambda directory: collected(directory, "b", GcPolicy(everything=True, grace_s=0)),
    "set aside": lambda directory: set_aside_entry(directory, "b", "a_20260415_022030", 0o644),
}


@pytest.fixture
def cache(tmp_path: Path, store: Store) -> Path:
    """The entry of key a, which the index of key b names too."""
    store("a", rdcpkt=b"\x0a\x00", directory=tmp_path)
    index = tmp_path / "a.idx"
    (tmp_path / "b.idx").write_text(index.read_text().replace('"graph_key": "a"', '"graph_key": "b"'))
    for path in tmp_path.glob("a_*"):
        os.utime(path, (1e9, 1e9))
    return tmp_path


def files(cache: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in cache.glob("a*") if path.suffix != ".lock"}


@pytest.mark.parametrize("name", ACTS)
def test_a_file_that_another_key_names_stays(name: str, cache: Path) -> None:
    before = files(cache)
    ACTS[name](str(cache))
    assert files(cache) == before
    assert [each.problems for each in survey(str(cache), "a").rows] == [()]


@pytest.mark.parametrize("name", ["gc --key b --all", "set aside"])
def test_only_the_record_of_the_key_goes(name: str, cache: Path) -> None:
    ACTS[name](str(cache))
    assert read_index(str(cache), "b") is None


def test_files_go_with_the_last_key_that_names_them(cache: Path) -> None:
    collected(str(cache), None, GcPolicy(everything=True, grace_s=0))
    assert [path.name for path in cache.iterdir() if path.suffix != ".lock" and path.name != ".gecli"] == []


def test_a_damaged_model_is_set_aside_once_no_key_names_it(cache: Path) -> None:
    (cache / "a_20260415_022030.om").write_bytes(b"IMOD")
    repair(verify(str(cache)), wait_s=0)
    assert list(cache.glob("*.om")) == []
    assert verify(str(cache)).all_problems == []


def test_a_sidecar_of_another_key_is_damage_where_that_key_does_not_name_the_model(cache: Path) -> None:
    (cache / "a.idx").unlink()
    assert {each.kind for each in verify(str(cache), "b").all_problems} == {"sidecar-invalid"}


def test_a_bare_model_that_an_index_names_stays(tmp_path: Path, store: Store) -> None:
    (tmp_path / "b.om").write_bytes(b"damaged")
    store("a", directory=tmp_path)
    record = {"graph_key": "a", "cache_file_name": "b.om"}
    (tmp_path / "a.idx").write_text(json.dumps({"cache_file_list": [record]}))
    for key in ("b", None):
        collected(
            str(tmp_path), key, GcPolicy(only=frozenset(("broken",)), grace_s=0) if key else GcPolicy(grace_s=1e9)
        )
        repair(verify(str(tmp_path), key and "b"), wait_s=0)
        assert (tmp_path / "b.om").exists() == (key is not None)


@pytest.mark.parametrize("named", ["./x.om", "{folder}/x.om", "{path}/x.om", "../{folder}/x.om"])
def test_a_record_whose_model_is_gone_keeps_its_name(named: str, tmp_path: Path) -> None:
    name = named.format(folder=tmp_path.name, path=tmp_path)
    index = {"cache_file_list": [{"graph_key": "k", "cache_file_name": name}]}
    (tmp_path / "k.idx").write_text(json.dumps(index))
    assert [each.problems for each in survey(str(tmp_path)).rows] == [("om-missing",)]
    assert [each.kind for each in verify(str(tmp_path)).all_problems] == ["om-missing"]
