"""Weight files of a cache: what refers to them stays, the rest goes, in the run as in the dry run."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from gecli.artifacts.weight_meta import WeightMeta
from gecli.cache.gc import collect, select
from gecli.cache.gc_actions import GcPolicy, Outcome
from gecli.cache.layout import host_name
from gecli.cache.repair import repair
from gecli.cache.survey import survey
from gecli.cache.verify import verify
from gecli.planning.weight_names import spelled, split_name

from .conftest import Store

OLD_S = time.time() - 7200
DATA = (b"first", b"second", b"third")
FIRST, SECOND, THIRD = (split_name(hashlib.sha256(data).hexdigest()) for data in DATA)


@pytest.fixture
def weight(tmp_path: Path) -> Path:
    """A weight directory with three old files of one weight each and their meta.json."""
    folder = tmp_path / "weight"
    folder.mkdir()
    meta = WeightMeta()
    for data, name in zip(DATA, (FIRST, SECOND, THIRD)):
        (folder / name).write_bytes(data)
        os.utime(folder / name, (OLD_S, OLD_S))
        meta.record(name.removeprefix("weight_"), f"{folder}/{name}")
    (folder / "meta.json").write_text(meta.text())
    return folder


def refer(directory: Path, stem: str, *names: str, offset: int = 0, length: int | None = None) -> None:
    """Let an entry refer to weight files."""
    rows = []
    for name in names:
        data = (directory / "weight" / name).read_bytes()[offset:][:length]
        digest = hashlib.sha256(data).hexdigest()
        rows.append({"file": name, "offset": offset, "length": len(data), "sha256": digest, "node": name[:9]})
    path = directory / f"{stem}.gecli.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "weights": rows}))


def run(directory: Path, *, glob: str | None = None, **policy: Any) -> tuple[list[str], Outcome]:
    """What is planned, and what a collection then does."""
    found = survey(str(directory), glob)
    notes: list[str] = []
    actions = select(found, GcPolicy(**policy), time.time(), notes=notes)
    outcome = collect(found, actions, grace_s=policy.get("grace_s", 3600.0))
    outcome.notes = [*notes, *outcome.notes]
    return [action.what for action in actions], outcome


def test_only_what_nothing_refers_to_goes_and_leaves_meta_json(store: Store, weight: Path, tmp_path: Path) -> None:
    refer(tmp_path, store("k", "a").stem, FIRST)
    planned, outcome = run(tmp_path)
    assert planned == [action.what for action in outcome.done] == sorted((SECOND, THIRD))
    assert outcome.freed_bytes == len(b"second") + len(b"third")
    assert sorted(path.name for path in weight.iterdir()) == ["meta.json", FIRST]
    meta = json.loads((weight / "meta.json").read_text())
    assert list(meta["hash_to_weight_file"].values()) == [f"{weight}/{FIRST}"]
    assert verify(str(tmp_path)).problems == []


def test_weights_go_with_the_last_entry_that_uses_them(store: Store, weight: Path, tmp_path: Path) -> None:
    refer(tmp_path, store("one", "a").stem, FIRST, SECOND)
    refer(tmp_path, store("two", "b").stem, SECOND, THIRD)
    planned, outcome = run(tmp_path, glob="one", everything=True)
    assert planned[1:] == [FIRST]
    assert [action.what for action in outcome.done] == planned
    assert sorted(path.name for path in weight.glob("weight_*")) == sorted((SECOND, THIRD))


def test_young_files_and_those_of_running_compiles_stay(store: Store, weight: Path, tmp_path: Path) -> None:
    store()
    os.utime(weight / FIRST)
    inflight = tmp_path / ".gecli/inflight"
    inflight.mkdir(parents=True)
    now = time.time()
    (weight / "m_weight_combined").write_bytes(b"x")
    os.utime(weight / "m_weight_combined", (OLD_S, OLD_S))
    record = {"host": host_name(), "pid": os.getpid(), "key": "x", "since": now - 60, "weights": [SECOND]}
    (inflight / "a.json").write_text(json.dumps(record))
    assert run(tmp_path)[0] == [THIRD]
    assert run(tmp_path, grace_s=0.0)[0] == []  # the first was written while the compile ran
    (inflight / "a.json").unlink()
    old = {**record, "host": "elsewhere", "since": now - 90000, "weights": [FIRST]}
    (inflight / "b.json").write_text(json.dumps(old))
    assert set(run(tmp_path, grace_s=0.0)[0]) == {FIRST, SECOND, "m_weight_combined"}


@pytest.mark.parametrize("damage", ["index", "sidecar", "foreign om"])
def test_nothing_is_swept_when_references_are_not_known(
    damage: str, store: Store, weight: Path, tmp_path: Path
) -> None:
    stem = store("k", "a").stem
    if damage == "index":
        (tmp_path / "other.idx").mkdir()  # rebuilding it is not tried here
    elif damage == "sidecar":
        (tmp_path / f"{stem}.gecli.json").write_text("{")
    else:
        (tmp_path / "legacy.om").write_bytes(b"IMOD")
    planned, outcome = run(tmp_path, only=frozenset({"unreferenced_weights"}))
    assert planned == []
    assert len(outcome.notes) == 1 and outcome.notes[0].startswith("no weight file is removed: ")
    assert len(list(weight.glob("weight_*"))) == 3


def test_a_damaged_entry_that_goes_in_the_same_run_is_no_obstacle(store: Store, weight: Path, tmp_path: Path) -> None:
    (tmp_path / f"{store().stem}.gecli.json").write_text("{")
    planned, outcome = run(tmp_path)
    assert [action.what for action in outcome.done] == planned
    assert (len(planned), list(weight.glob("weight_*"))) == (4, [])


def test_a_reference_that_came_since_the_plan_saves_a_file(store: Store, weight: Path, tmp_path: Path) -> None:
    stem = store().stem
    found = survey(str(tmp_path))
    actions = select(found, GcPolicy(), time.time())
    refer(tmp_path, stem, FIRST)
    outcome = collect(found, actions)
    assert [action.what for action in outcome.spared] == [FIRST]
    assert (weight / FIRST).exists()


def test_a_writer_of_weights_is_not_disturbed(
    store: Store, weight: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gecli.cache.weight_sweep.META_WAIT_S", 0.0)
    store()
    with open(weight / "meta.json") as peer:
        fcntl.flock(peer, fcntl.LOCK_EX)
        _, outcome = run(tmp_path)
    assert (outcome.done, len(outcome.notes)) == ([], 1)
    assert len(list(weight.glob("weight_*"))) == 3


def test_only_names_of_weights_are_ever_removed(store: Store, weight: Path, tmp_path: Path) -> None:
    store()
    for name in ("notes.txt", "weight_x", "weights", f"{FIRST}.bak", ".hidden_weight_combined"):
        (weight / name).write_text("mine")
        os.utime(weight / name, (OLD_S, OLD_S))
    victim = tmp_path / "victim"
    victim.write_text("outside")
    (weight / FIRST).unlink()
    (weight / FIRST).symlink_to(victim)
    os.utime(weight / FIRST, (OLD_S, OLD_S), follow_symlinks=False)
    run(tmp_path)
    assert victim.read_text() == "outside"
    names = {path.name for path in weight.iterdir()}
    assert names == {"meta.json", "notes.txt", "weight_x", "weights", f"{FIRST}.bak", ".hidden_weight_combined"}


def test_what_dead_writers_left_among_the_weights_goes(store: Store, weight: Path, tmp_path: Path) -> None:
    refer(tmp_path, store().stem, FIRST, SECOND, THIRD)
    for name, is_dead in ((f".{FIRST}.tmp-4194305-0a1b2c3d", True), (f".{FIRST}.tmp-{os.getpid()}-0a1b2c3d", False)):
        (weight / name).write_bytes(b"half")
        os.utime(weight / name, (OLD_S, OLD_S))
        assert (name in run(tmp_path)[0]) is is_dead


def test_a_combined_file_goes_only_as_a_whole(store: Store, weight: Path, tmp_path: Path) -> None:
    from gecli.cache.weight_sweep import combined_shares

    name = "m_weight_combined"
    (weight / name).write_bytes(b"x" * 1024)
    os.utime(weight / name, (OLD_S, OLD_S))
    refer(tmp_path, store().stem, name, length=100)
    found = survey(str(tmp_path))
    assert combined_shares(str(tmp_path), found.rows[0].weights) == {name: (100, 1024)}
    assert name not in run(tmp_path)[0]
    assert name in run(tmp_path, everything=True)[0]


def test_the_size_limit_counts_a_shared_file_once(store: Store, weight: Path, tmp_path: Path) -> None:
    (weight / FIRST).write_bytes(b"x" * 100_000)
    stems = [store("k", name, used_s=1000 + position).stem for position, name in enumerate("abc")]
    for stem in stems:
        refer(tmp_path, stem, FIRST)
        os.utime(tmp_path / f"{stem}.gecli.json", (OLD_S, OLD_S))
    sizes = sum(row.size_bytes for row in survey(str(tmp_path)).rows)
    assert run(tmp_path, max_size_bytes=100_000 + sizes, grace_s=1e9)[0] == []
    planned, _ = run(tmp_path, max_size_bytes=100_000, grace_s=0.0)
    assert planned[:3] == stems and FIRST in planned


def test_ls_shows_weights_and_who_shares_them(store: Store, weight: Path, tmp_path: Path) -> None:
    from gecli.report.cache_report import footer, ls_lines, owners_of_files

    refer(tmp_path, store("a", "a").stem, FIRST, SECOND)
    refer(tmp_path, store("b", "b").stem, SECOND)
    refer(tmp_path, store("c", "c").stem, THIRD)
    found = survey(str(tmp_path))
    assert [(row.weights_bytes, row.shares_weights) for row in found.rows] == [(11, True), (6, True), (5, False)]
    cells = [line.split() for line in ls_lines(found.rows, found)]
    assert [row[6] for row in cells[1:4]] == ["11*", "6*", "5"]
    assert "16 bytes of weights" in footer(found.rows, found, human=False)
    owners = dict(owners_of_files(found.rows, found))
    assert owners[f"weight/{SECOND}"] == f"{found.rows[0].stem}, {found.rows[1].stem}"
    (weight / SECOND).unlink()
    assert [row.state for row in survey(str(tmp_path)).rows] == ["weights-missing", "weights-missing", "ok"]


# ---------------------------------------------------------------- verify and repair


def test_a_weight_that_is_not_what_its_name_says_is_found_and_set_aside(
    store: Store, weight: Path, tmp_path: Path
) -> None:
    store()
    (weight / FIRST).write_bytes(b"other")  # no entry refers to it, but the next compile would use it
    problems = verify(str(tmp_path)).problems
    assert [(each.kind, each.what) for each in problems] == [("weights-corrupt", FIRST)]
    assert verify(str(tmp_path), fast=True).problems == []
    repair(verify(str(tmp_path)), wait_s=0)
    assert verify(str(tmp_path)).problems == []
    assert (not (weight / FIRST).exists(), (weight / SECOND).exists()) == (True, True)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"hash_to_weight_file": {"a": "/x/weight_gone"}}'])
def test_meta_json_is_written_anew(text: str, store: Store, weight: Path, tmp_path: Path) -> None:
    (weight / "m_weight_combined").write_bytes(b"x" * 1024)
    refer(tmp_path, store().stem, "m_weight_combined", offset=512, length=100)
    (weight / "meta.json").write_text(text)
    assert [each.kind for each in verify(str(tmp_path)).problems] == ["meta-invalid"]
    repair(verify(str(tmp_path)), wait_s=0)
    assert verify(str(tmp_path)).problems == []
    meta = json.loads((weight / "meta.json").read_text())
    spelling = spelled(hashlib.sha256(b"x" * 100).hexdigest())
    assert meta["hash_to_weight_offset"] == {spelling: 512}
    assert meta["hash_to_weight_file"][spelling] == f"{weight}/m_weight_combined"


def test_a_changed_weight_takes_its_entry_out_of_the_cache(store: Store, weight: Path, tmp_path: Path) -> None:
    stem = store().stem
    refer(tmp_path, stem, FIRST)
    (weight / FIRST).write_bytes(b"other")
    assert [(each.kind, each.entry) for each in verify(str(tmp_path)).problems] == [("weights-corrupt", stem)]
    repair(verify(str(tmp_path)), wait_s=0)
    assert not (tmp_path / f"{stem}.om").exists()
    assert verify(str(tmp_path)).problems == []
