"""Which entry a look-up takes, and the reason why it does not take another."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from gecli.cache.cache_conf import CacheConf
from gecli.cache.candidate import Verdict, Wanted
from gecli.cache.layout import stem_of
from gecli.cache.model_cache import CacheDir, find_request, look, note_use, remember_request
from gecli.cache.recovery import recover, stems_of
from gecli.cache.stat_index import StatIndex
from gecli.cache.store import Written, replace_file

Store = Callable[..., Written]
Make = Callable[..., Wanted]
STEM = "k_20260415_022030"
REQUEST = "sha256:" + "12" * 32


def looked(directory: Path, wanted: Wanted, **conf: str) -> tuple[str, str]:
    """(stem, reason) of a look-up under key k."""
    cache = CacheDir(str(directory), CacheConf(**conf))  # type: ignore[arg-type]  # text settings only
    lookup = look(cache, "k", wanted, StatIndex())
    return (lookup.found.stem if lookup.found else "", lookup.reason)


def test_a_stored_entry_is_found_by_its_fingerprint(tmp_path: Path, store: Store, wanted: Make) -> None:
    assert store().stem == STEM
    assert looked(tmp_path, wanted()) == (STEM, "")
    assert looked(tmp_path, wanted("b")) == ("", "fingerprint_mismatch")


def test_the_time_stamp_is_local_and_has_ge_s_form_on_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SOURCE_DATE_EPOCH", raising=False)
    assert len(stem_of("k", 1.8e9, "seed")) == len("k_20260415_102030")
    assert len(stem_of("k", 1.8e9, "ge")) == len("k_20260415102030")


def test_entries_of_one_second_get_different_names(tmp_path: Path, store: Store, wanted: Make) -> None:
    stems = [store(name=name, body=name).stem for name in "abc"]
    assert stems == [STEM, f"{STEM}_1", f"{STEM}_2"]
    assert [looked(tmp_path, wanted(name))[0] for name in "abc"] == stems


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-2])


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


DAMAGE: list[tuple[str, Callable[[Path], object], str]] = [
    (f"{STEM}.om", Path.unlink, "om_missing"),
    (f"{STEM}.om", cut, "om_corrupt"),
    (f"{STEM}.om", flip, "om_corrupt"),
    (f"{STEM}.om", lambda path: path.write_bytes(b""), "om_corrupt"),
    (f"{STEM}.rdcpkt", Path.unlink, "rdcpkt_missing"),
    (f"{STEM}.rdcpkt", flip, "rdcpkt_corrupt"),
    (f"{STEM}.rdcpkt", cut, "rdcpkt_corrupt"),
    (f"{STEM}.gecli.json", cut, "sidecar_invalid"),
    (f"{STEM}.gecli.json", lambda path: path.write_text("{}"), "sidecar_invalid"),
    (f"{STEM}.gecli.json", lambda path: path.write_text('{"schema": 2}'), "foreign_rejected"),
    (f"{STEM}.gecli.json", lambda path: path.write_text('{"schema": 1, "graph_key": "z"}'), "sidecar_invalid"),
    ("k.idx", cut, "index_corrupt"),
    ("k.idx", lambda path: path.write_bytes(b""), "index_corrupt"),
    ("k.idx", Path.unlink, "no_entry"),
    ("k.idx", lambda path: path.write_text('{"cache_file_list": [7]}'), "index_entry_invalid"),
    ("k.idx", lambda path: path.write_text('{"cache_file_list": []}'), "no_entry"),
]


@pytest.mark.parametrize(("name", "damage", "reason"), DAMAGE)
def test_damage_is_a_miss_with_the_right_reason(
    name: str, damage: Callable[[Path], object], reason: str, tmp_path: Path, store: Store, wanted: Make
) -> None:
    store(rdcpkt=b"record")
    damage(tmp_path / name)
    assert looked(tmp_path, wanted(), foreign_entries="reject") == ("", reason)


@pytest.mark.parametrize("damage", [Path.unlink, cut, lambda path: path.write_bytes(b"")])
def test_a_lost_index_is_rebuilt_from_the_entries(
    damage: Callable[[Path], object], tmp_path: Path, store: Store, wanted: Make
) -> None:
    store(rdcpkt=b"record")
    store(name="b", body="other")
    text = (tmp_path / "k.idx").read_text()
    damage(tmp_path / "k.idx")
    assert len(recover(str(tmp_path), "k", StatIndex(), 0o644)) in (1, 2)
    assert (tmp_path / "k.idx").read_text() == text
    assert looked(tmp_path, wanted("b")) == (f"{STEM}_1", "")


def test_malformed_records_are_kept_aside(tmp_path: Path, store: Store, wanted: Make) -> None:
    store()
    content = json.loads((tmp_path / "k.idx").read_text())
    content["cache_file_list"].insert(0, {"graph_key": 5})
    (tmp_path / "k.idx").write_text(json.dumps(content))
    recover(str(tmp_path), "k", StatIndex(), 0o644)
    assert looked(tmp_path, wanted()) == (STEM, "")
    assert "graph_key" in next((tmp_path / ".gecli/quarantine").iterdir()).read_text()


def test_the_next_candidate_is_tried_after_a_bad_one(tmp_path: Path, store: Store, wanted: Make) -> None:
    store()
    second = store().stem
    cut(tmp_path / f"{STEM}.om")
    assert looked(tmp_path, wanted()) == (second, "")


def test_the_reason_is_that_of_the_candidate_that_came_closest(tmp_path: Path, store: Store, wanted: Make) -> None:
    store()
    store(name="b")
    cut(tmp_path / f"{STEM}.om")
    lookup = look(CacheDir(str(tmp_path)), "k", wanted("a"), StatIndex())
    assert [str(each) for each in lookup.rejected] == [
        f"{STEM}: om_corrupt (259 bytes instead of 261)",
        f"{STEM}_1: fingerprint_mismatch (graph, weights, options, toolchain)",
    ]
    assert lookup.reason == "om_corrupt"
    assert looked(tmp_path, wanted("c")) == ("", "fingerprint_mismatch")


def test_of_equally_close_candidates_the_last_one_gives_the_reason(tmp_path: Path, store: Store, wanted: Make) -> None:
    store(rdcpkt=b"record")
    second = store(rdcpkt=b"record").stem
    (tmp_path / f"{second}.om").unlink()
    (tmp_path / f"{STEM}.rdcpkt").unlink()
    assert looked(tmp_path, wanted()) == ("", "om_missing")
    store(name="b")
    assert looked(tmp_path, wanted()) == ("", "om_missing")


def test_a_moved_directory_still_hits(tmp_path: Path, store: Store, wanted: Make) -> None:
    first = tmp_path / "first"
    first.mkdir()
    store(directory=first, rdcpkt=b"record")
    shutil.copytree(first, tmp_path / "second")
    shutil.rmtree(first)
    assert looked(tmp_path / "second", wanted()) == (STEM, "")


def test_variables_that_do_not_match_are_a_miss(tmp_path: Path, store: Store, wanted: Make) -> None:
    store(rdcpkt=b"record")
    verdict = Verdict(reason="var_conflict", evidence="w.format")
    assert looked(tmp_path, wanted(variables=verdict)) == ("", "var_conflict")


@pytest.mark.parametrize(("policy", "found"), [("accept", True), ("warn", True), ("reject", False)])
def test_entries_of_other_tools_follow_the_policy(
    policy: str, found: bool, tmp_path: Path, store: Store, wanted: Make
) -> None:
    store()
    os.unlink(tmp_path / f"{STEM}.gecli.json")
    assert looked(tmp_path, wanted(), foreign_entries=policy)[0] == (STEM if found else "")


def test_a_bare_om_counts_only_without_an_index(tmp_path: Path, store: Store, wanted: Make) -> None:
    (tmp_path / "k.om").write_bytes(b"IMOD" + bytes(300))
    lookup = look(CacheDir(str(tmp_path)), "k", wanted(), StatIndex())
    assert lookup.found is not None and (lookup.found.stem, lookup.found.via) == ("k", "legacy")
    (tmp_path / "k.idx").write_text('{"cache_file_list": []}')
    assert looked(tmp_path, wanted()) == ("", "no_entry")


def test_a_request_is_believed_only_while_index_and_sidecar_agree(tmp_path: Path, store: Store) -> None:
    store(requests=(REQUEST,))
    cache = CacheDir(str(tmp_path))
    assert find_request(cache, REQUEST, None, StatIndex()) is None  # no hint
    remember_request(cache, "k", STEM, REQUEST)
    found = find_request(cache, REQUEST, None, StatIndex())
    assert found is not None and found.stem == STEM
    assert find_request(cache, REQUEST, "other", StatIndex()) is None
    remember_request(cache, "k", STEM, "sha256:" + "34" * 32)
    assert find_request(cache, "sha256:" + "34" * 32, None, StatIndex()) is None
    (tmp_path / "k.idx").write_text('{"cache_file_list": []}')
    assert find_request(cache, REQUEST, None, StatIndex()) is None


def test_a_hint_that_names_something_else_is_ignored(tmp_path: Path, store: Store) -> None:
    store(requests=(REQUEST,))
    hints = tmp_path / ".gecli/req"
    hints.mkdir(parents=True)
    for text in ("", "k\n", "k\n../x\n", f"../k\n{STEM}\n", f"k\n{STEM}"):
        (hints / REQUEST.removeprefix("sha256:")).write_text(text)
        assert find_request(CacheDir(str(tmp_path)), REQUEST, None, StatIndex()) is None


@pytest.mark.parametrize(("mode", "renewed"), [("rw", True), ("ro", False)])
def test_the_use_time_is_renewed_after_an_hour(
    mode: str, renewed: bool, tmp_path: Path, store: Store, wanted: Make
) -> None:
    store(used_s=1_000_000_000)
    cache = CacheDir(str(tmp_path), mode=mode)
    lookup = look(cache, "k", wanted(), StatIndex())
    assert lookup.found is not None
    note_use(cache, lookup.found, StatIndex())
    assert ((tmp_path / f"{STEM}.gecli.json").stat().st_mtime > 1_000_000_001) == renewed


def test_a_use_time_of_the_future_is_renewed(tmp_path: Path, store: Store, wanted: Make) -> None:
    future = time.time() + 86400
    store(used_s=future)
    cache = CacheDir(str(tmp_path))
    lookup = look(cache, "k", wanted(), StatIndex())
    assert lookup.found is not None
    note_use(cache, lookup.found, StatIndex())
    assert (tmp_path / f"{STEM}.gecli.json").stat().st_mtime < future - 3600


def test_a_name_is_taken_by_any_file(tmp_path: Path, store: Store) -> None:
    (tmp_path / f"{STEM}.txt").write_text("somebody's")
    assert store().stem == f"{STEM}_1"


def test_a_stamp_of_ge_is_no_suffix_number_of_a_shorter_key(tmp_path: Path) -> None:
    name = "k_20260415102030_20260415102031"
    (tmp_path / f"{name}.om").write_bytes(b"IMOD" + bytes(300))
    assert stems_of(str(tmp_path), "k") == [name]
    (tmp_path / "k_20260415102030.lock").touch()
    assert stems_of(str(tmp_path), "k") == []
    assert stems_of(str(tmp_path), "k_20260415102030") == [name]


def test_a_rename_whose_answer_was_lost_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A network file system asks again, and the second time the source is gone."""
    plain = os.rename

    def answered_twice(source: str, target: str) -> None:
        plain(source, target)
        plain(source, target)

    monkeypatch.setattr(os, "rename", answered_twice)
    replace_file(str(tmp_path / "k.idx"), b"text", 0o644)
    assert (tmp_path / "k.idx").read_bytes() == b"text"
    monkeypatch.setattr(os, "rename", lambda source, target: plain("nothing", target))
    with pytest.raises(FileNotFoundError):
        replace_file(str(tmp_path / "k.idx"), b"other", 0o644)
    assert [path.name for path in tmp_path.iterdir()] == ["k.idx"]
