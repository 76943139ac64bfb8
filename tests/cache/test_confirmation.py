"""cache_manual_check: an entry with user functions is used only after somebody confirmed it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from gecli.cache.cache_conf import CacheConf
from gecli.cache.candidate import Wanted
from gecli.cache.confirmation import confirm_entry
from gecli.cache.model_cache import CacheDir, find_request, look, remember_request
from gecli.cache.stat_index import StatIndex
from gecli.cache.store import Written
from gecli.compiler.api import compile_models
from gecli.compiler.result import CacheUse
from gecli.errors import InvalidOption
from gecli.options.resolution import resolve
from tests.conftest import REPOSITORY

Store = Callable[..., Written]
Make = Callable[..., Wanted]
STEM = "k_20260415_022030"
REQUEST = "sha256:" + "12" * 32
MANUAL = CacheConf(manual_check=True)
TRAIN = REPOSITORY / "samples/train/mlp_train.json"


def reason(directory: Path, wanted: Wanted, conf: CacheConf = MANUAL) -> str:
    return look(CacheDir(str(directory), conf), "k", wanted, StatIndex()).reason


def test_an_entry_with_user_functions_waits_for_its_confirmation(tmp_path: Path, store: Store, wanted: Make) -> None:
    store()
    with_functions = wanted()._replace(has_user_functions=True)
    assert reason(tmp_path, with_functions) == "manual_check_required"
    assert reason(tmp_path, with_functions, CacheConf()) == ""
    assert reason(tmp_path, wanted()) == ""
    assert confirm_entry(str(tmp_path), "k", STEM, 0o644)
    assert reason(tmp_path, with_functions) == ""
    assert not confirm_entry(str(tmp_path), "k", STEM, 0o644)


@pytest.mark.parametrize("indexed", [True, False])
def test_the_confirmation_of_a_foreign_entry_holds_for_its_files_only(
    indexed: bool, tmp_path: Path, store: Store, wanted: Make
) -> None:
    stem = store().stem
    (tmp_path / f"{stem}.gecli.json").unlink()
    if not indexed:
        (tmp_path / "k.idx").unlink()
        (tmp_path / f"{stem}.om").rename(tmp_path / "k.om")
        stem = "k"
    with_functions = wanted()._replace(has_user_functions=True)
    assert reason(tmp_path, with_functions) == "manual_check_required"
    assert confirm_entry(str(tmp_path), "k", stem, 0o644)
    content = json.loads((tmp_path / f"{stem}.gecli.json").read_text())
    assert sorted(content) == ["confirmed", "entry", "files", "graph_key", "schema"]
    assert reason(tmp_path, with_functions) == ""
    om = tmp_path / f"{stem}.om"
    om.write_bytes(om.read_bytes() + b"other")
    assert reason(tmp_path, with_functions) == ("om_corrupt" if indexed else "manual_check_required")


def test_a_known_request_does_not_go_round_the_manual_check(tmp_path: Path, store: Store) -> None:
    store(requests=(REQUEST,))
    remember_request(CacheDir(str(tmp_path)), "k", STEM, REQUEST)
    assert find_request(CacheDir(str(tmp_path)), REQUEST, "k", StatIndex()) is not None
    assert find_request(CacheDir(str(tmp_path), MANUAL), REQUEST, "k", StatIndex()) is None
    confirm_entry(str(tmp_path), "k", STEM, 0o644)
    assert find_request(CacheDir(str(tmp_path), MANUAL), REQUEST, "k", StatIndex()) is not None


@pytest.mark.parametrize(
    ("name", "damage", "kind"),
    [
        (f"{STEM}.om", Path.unlink, "om_missing"),
        (f"{STEM}.om", lambda path: path.write_bytes(b"IMOD"), "om_corrupt"),
        (f"{STEM}.gecli.json", lambda path: path.write_text("{"), "sidecar_invalid"),
        (f"{STEM}.gecli.json", lambda path: path.write_text('{"schema": 2}'), "sidecar_invalid"),
        ("k.idx", lambda path: path.write_text("{"), "index_corrupt"),
        ("k.idx", Path.unlink, ""),
    ],
)
def test_what_is_not_whole_cannot_be_confirmed(
    name: str, damage: Callable[[Path], object], kind: str, tmp_path: Path, store: Store
) -> None:
    store()
    damage(tmp_path / name)
    with pytest.raises(InvalidOption) as caught:
        confirm_entry(str(tmp_path), "k", STEM, 0o644)
    assert caught.value.kind == kind


def test_a_compile_takes_a_graph_with_user_functions_after_the_confirmation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    cache = tmp_path / "cache"
    cache.mkdir()
    (cache / "cache.conf").write_text('{"cache_manual_check": true}')
    document = json.loads(TRAIN.read_text())
    document["graph"]["attrs"] = {"_process_node_engine_id": "UDF"}
    Path("udf.json").write_text(json.dumps(document))

    def use(model: str) -> CacheUse:
        typed = {"output": ("x.om",), "ge.graph_compiler_cache_dir": ("cache",), "ge.graph_key": ("k",)}
        return compile_models([model], resolve("compile", typed)).models[0].cache

    stem = use("udf.json").entry
    assert use("udf.json").reason == "manual_check_required"
    confirm_entry("cache", "k", stem, 0o644)
    found = use("udf.json")
    assert (found.state, found.entry) == ("hit", stem)
    assert use(str(TRAIN)).state == "miss"
    assert use(str(TRAIN)).state == "hit"
