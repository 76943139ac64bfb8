"""Garbage collection of slices: sizes, policies, what a killed run leaves, and runs that go on beside it."""

from __future__ import annotations

import json
import os
import re
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from gecli.cache import jit_edit
from gecli.cache.export_archive import plan_export
from gecli.cache.gc import collect, select
from gecli.cache.gc_actions import Action, GcPolicy
from gecli.cache.lock import KeyLock
from gecli.cache.repair import repair
from gecli.cache.survey import EntryRow, Survey, survey
from gecli.cache.verify import verify
from gecli.jit.loading import jit_model
from gecli.jit.model import JitModel
from tests.jit.dynamic_models import MODELS, assert_equal, expected

NAME = "chosen_rows"
FEEDS = MODELS[NAME][1]
DAY = 86400.0


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a model and a cache that knows two slices of it, and one slice of another model."""
    folder = tmp_path_factory.mktemp("filled")
    for name in (NAME, "plain"):
        (folder / f"{name}.onnx").write_bytes(MODELS[name][0]())
    assert_right(model_of(folder, cache_create="true"), folder)
    other = jit_model(folder / "plain.onnx", cache_dir=str(folder / "c"), graph_key="other")
    other.run(MODELS["plain"][1][0])
    return folder


@pytest.fixture
def place(filled: Path, tmp_path: Path) -> Path:
    """A copy of that directory, in which nothing was used for two days."""
    shutil.copytree(filled, tmp_path / "copy")
    age(tmp_path / "copy", 2 * DAY)
    return tmp_path / "copy"


def model_of(place: Path, **options: str) -> JitModel:
    return jit_model(place / f"{NAME}.onnx", cache_dir=str(place / "c"), graph_key="rows", **options)


def assert_right(model: JitModel, place: Path) -> None:
    for feeds in FEEDS[:2]:
        assert_equal(model.run(feeds)[0], expected(place / f"{NAME}.onnx", feeds))


def age(place: Path, seconds: float) -> None:
    old = time.time() - seconds
    for path in (place / "c/jit").rglob("*"):
        if path.is_file() and path.suffix != ".lock":
            os.utime(path, (old, old))


def home(place: Path) -> Path:
    return place / "c/jit/slicing_hierarchy/rows"


def found_in(place: Path, glob: str | None = None) -> Survey:
    return survey(str(place / "c"), glob)


def versions(place: Path) -> list[EntryRow]:
    jit = found_in(place).jit
    return [row for row in jit.rows if not row.is_slicing] if jit is not None else []


def slices(place: Path) -> dict[str, EntryRow]:
    jit = found_in(place).jit
    return {row.key: row for row in jit.rows if row.is_slicing} if jit is not None else {}


def run(place: Path, policy: GcPolicy, glob: str | None = None, now: float = 0.0) -> list[Action]:
    """Select and collect; the list of a dry run is the list of the run."""
    found = found_in(place, glob)
    when = now or time.time()
    planned = select(found, policy, when)
    assert select(found_in(place, glob), policy, when) == planned
    outcome = collect(found, planned, grace_s=policy.grace_s)
    assert (outcome.done, outcome.spared) == (planned, [])
    return planned


def whys(actions: list[Action]) -> list[str]:
    """The actions without what differs from run to run."""
    return [f"{re.sub(r'_[0-9]{19}.*', '', each.what.removeprefix('jit/'))}:{each.why}" for each in actions]


def assert_in_order(place: Path) -> None:
    assert verify(str(place / "c")).all_problems == []
    assert_right(model_of(place), place)
    again = model_of(place)
    assert_right(again, place)
    assert (again.counts["compiled"], again.jit_warnings) == (0, [])


@contextmanager
def somebody_else(place: Path, key: str) -> Iterator[None]:
    """Another thread that holds the lock of a graph."""
    release, held = threading.Event(), threading.Event()

    def hold() -> None:
        with KeyLock(str(place / "c/jit"), key, timeout_s=5):
            held.set()
            release.wait(60)

    thread = threading.Thread(target=hold)
    thread.start()
    assert held.wait(10)
    yield
    release.set()
    thread.join()


def on_disk(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def test_slices_have_a_size_and_are_used_when_their_versions_are(place: Path) -> None:
    row = slices(place)["rows"]
    assert (row.size_bytes, row.state, row.layer) == (on_disk(home(place)), "ok", "jit")
    used = time.time() - 60
    sidecar = sorted((place / "c/jit").glob("rows_1_*.gecli.json"))[-1]
    os.utime(sidecar, (used, used))
    assert slices(place)["rows"].used_s == pytest.approx(used)
    assert slices(place)["other"].used_s < used - DAY


def test_a_hit_renews_the_use_of_its_versions(place: Path) -> None:
    model_of(place).run(FEEDS[0])
    now = time.time()
    assert sum(now - row.used_s < 3600 for row in versions(place)) == 2


def test_everything_means_slices_too(place: Path) -> None:
    planned = run(place, GcPolicy(everything=True))
    assert {"slicing_hierarchy/rows:all", "slicing_hierarchy/other:all"} <= set(whys(planned))
    assert sum(each.size_bytes for each in planned) > on_disk(place / "c/jit")
    assert list((place / "c/jit/slicing_hierarchy").iterdir()) == []
    assert list((place / "c/jit").glob("*.om")) == []
    assert_in_order(place)


def test_the_keys_asked_for_are_those_of_graphs_and_of_versions(place: Path) -> None:
    assert {each.graph for each in run(place, GcPolicy(everything=True), "other") if each.key} == {"other"}
    assert set(slices(place)) == {"rows"}
    first = sorted(row.key for row in versions(place))[0]
    assert whys(run(place, GcPolicy(everything=True), first)) == ["rows_0:all"]
    assert_in_order(place)


def test_slices_go_with_the_last_of_their_versions(place: Path) -> None:
    keep = time.time()
    for path in (place / "c/jit").glob("rows_0_*.gecli.json"):
        os.utime(path, (keep, keep))
    planned = run(place, GcPolicy(max_age_s=DAY))
    assert [each for each in whys(planned) if "hierarchy" in each] == [
        "slicing_hierarchy/other:max-age", "slicing_hierarchy/rows/1:max-age",
    ]  # fmt: skip
    assert json.loads((home(place) / "slicing_result.json").read_text())["slice_graph_list"] == [{"slice_graph_id": 0}]
    assert not (home(place) / "1").exists()
    assert_in_order(place)


def test_versions_behind_a_slice_without_versions_go_as_orphans(place: Path) -> None:
    keep = time.time()
    for path in (place / "c/jit").glob("rows_1_*.gecli.json"):
        os.utime(path, (keep, keep))
    planned = whys(run(place, GcPolicy(max_age_s=DAY), "rows*"))
    count = sum(each == "rows_1:jit-orphan" for each in planned)
    assert count == len(planned) - 1 - sum(each == "rows_0:max-age" for each in planned) > 0
    assert "slicing_hierarchy/rows:max-age" in planned
    assert_in_order(place)


def total_of(place: Path) -> int:
    found = found_in(place)
    return sum(row.size_bytes for row in found.all_rows)


def test_the_size_limit_shrinks_slices_from_their_end(place: Path) -> None:
    while True:
        before = total_of(place)
        if not before:
            break
        planned = run(place, GcPolicy(max_size_bytes=before - 1))
        assert planned and total_of(place) < before
        assert "jit-orphan" not in {each.why for each in planned}  # nothing becomes useless that was not chosen
        assert verify(str(place / "c")).all_problems == []
    assert list((place / "c/jit/slicing_hierarchy").iterdir()) == []
    assert_in_order(place)


def test_the_size_limit_is_kept_and_no_more_goes_than_it_needs(place: Path) -> None:
    before = total_of(place)
    for limit in (before * 3 // 4, before // 2, before // 4):
        planned = run(place, GcPolicy(max_size_bytes=limit))
        left = total_of(place)
        assert left <= limit
        last = [each for each in planned if each.slice_id is None][-1]
        with_last = left + last.size_bytes + sum(each.size_bytes for each in planned if each.slice_id is not None)
        assert with_last > limit - 3000  # the lists become shorter too, which nobody computes beforehand


def test_the_least_recently_used_of_both_layers_goes_first(place: Path, store_in: Callable[[Path, float], str]) -> None:
    newest, oldest = store_in(place / "c", time.time() - DAY), store_in(place / "c", time.time() - 3 * DAY)
    before = total_of(place)
    assert [each.stem for each in select(found_in(place), GcPolicy(max_size_bytes=before - 1), time.time())] == [oldest]
    planned = select(found_in(place), GcPolicy(max_size_bytes=1), time.time())
    entries = [each.stem for each in planned if each.slice_id is None]
    assert entries[-1] == newest or entries.index(newest) == 1  # listed by layer
    kept = select(found_in(place), GcPolicy(max_size_bytes=before // 10), time.time())
    assert newest not in [each.stem for each in kept] and any(each.graph for each in kept)


@pytest.fixture
def store_in() -> Callable[[Path, float], str]:
    """Store a whole-model entry with a time of use; returns its stem."""
    from gecli.cache.recovery import append_record
    from gecli.cache.sidecar import Sidecar
    from gecli.cache.stat_index import StatIndex
    from gecli.cache.store import store_entry
    from tests.cache.conftest import om_bytes

    def store(directory: Path, used_s: float) -> str:
        written = store_entry(
            str(directory), "whole", lambda stream: stream.write(om_bytes("model")) and None, None,
            lambda stem, files: Sidecar(
                {"schema": 1, "graph_key": "whole", "entry": stem, "files": files, "confirmed": True}
            ),
            style="seed", mode=0o644, stats=StatIndex(),
            append=lambda record: append_record(str(directory), record, 0o644),
        )  # fmt: skip
        os.utime(directory / f"{written.stem}.gecli.json", (used_s, used_s))
        return written.stem

    return store


def test_a_run_that_compiles_is_not_disturbed(place: Path) -> None:
    before = {path: path.read_bytes() for path in home(place).rglob("*") if path.is_file()}
    with somebody_else(place, "rows"):
        found = found_in(place)
        planned = select(found, GcPolicy(everything=True), time.time())
        assert {each.graph for each in planned if each.key} == {"other"}
        assert collect(found, planned).busy == ["rows"]
    assert {path: path.read_bytes() for path in home(place).rglob("*") if path.is_file()} == before
    assert_in_order(place)


def test_a_run_that_begins_after_the_survey_is_not_disturbed(place: Path) -> None:
    found = found_in(place)
    planned = select(found, GcPolicy(everything=True), time.time())
    with somebody_else(place, "rows"):
        outcome = collect(found, planned)
    assert outcome.busy == ["rows"] and {each.graph for each in outcome.done if each.key} == {"other"}
    assert_in_order(place)


def test_what_was_used_or_made_since_the_survey_is_spared(place: Path) -> None:
    found = found_in(place)
    planned = select(found, GcPolicy(everything=True), time.time())
    model = model_of(place)
    model.run(FEEDS[0])
    outcome = collect(found, planned)
    assert len([each for each in outcome.spared if each.slice_id is None]) == 2
    assert "slicing_hierarchy/rows" in [each.stem for each in outcome.spared]
    assert verify(str(place / "c")).all_problems == []
    again = model_of(place)
    again.run(FEEDS[0])
    assert again.counts["compiled"] == 0


def test_a_model_in_memory_goes_on_without_its_files(place: Path) -> None:
    model = model_of(place)
    model.run(FEEDS[0])
    run(place, GcPolicy(everything=True))
    assert_right(model, place)
    assert_equal(model.run(FEEDS[2])[0], expected(place / f"{NAME}.onnx", FEEDS[2]))
    assert verify(str(place / "c")).all_problems == []


class Killed(BaseException):
    """The process ends here."""


STEPS = ("unlink", "rename", "rmdir")


def killed_at(stop: int, place: Path, policy: GcPolicy, patch: pytest.MonkeyPatch) -> bool:
    """Whether a collection was ended at its change number `stop`, and not before that by itself."""
    real = {name: getattr(os, name) for name in STEPS}
    count = 0

    def counted(name: str) -> Callable[..., object]:
        def call(path: str, *words: object, **named: object) -> object:
            nonlocal count
            count += "/inflight/" not in str(path)  # what a lock leaves must go, as this process lives on
            if count >= stop and "/inflight/" not in str(path):
                raise Killed
            return real[name](path, *words, **named)

        return call

    for name in STEPS:
        patch.setattr(os, name, counted(name))
    found = found_in(place)
    with suppress(Killed):
        collect(found, select(found, policy, time.time()), grace_s=0)
    patch.undo()
    return count >= stop


@pytest.mark.parametrize("policy", [GcPolicy(everything=True), GcPolicy(max_size_bytes=20000)], ids=["all", "size"])
def test_killed_anywhere_it_leaves_what_the_next_one_removes(policy: GcPolicy, place: Path, tmp_path: Path) -> None:
    stop = 0
    while True:
        stop += 1
        copy = tmp_path / f"at{stop}"
        shutil.copytree(place, copy)
        if not killed_at(stop, copy, policy, pytest.MonkeyPatch()):
            break
        problems = verify(str(copy / "c")).all_problems
        assert {each.kind for each in problems} <= {"orphan"}, (stop, problems)  # an entry that lost its index first
        model = model_of(copy)
        model.run(FEEDS[0])
        assert model.jit_warnings == [], stop
        later = time.time() + 2 * DAY
        with pytest.MonkeyPatch().context() as patch:
            patch.setattr("gecli.cache.gc_garbage.is_alive", lambda host, pid: False)  # the one that was killed
            collect(found_in(copy), select(found_in(copy), GcPolicy(), later), grace_s=0)
        assert not any(row.problems for row in found_in(copy).all_rows), stop
        assert list((copy / "c/jit").rglob(".*.tmp.*")) == [], stop
        shutil.rmtree(copy)
    assert stop > 10


def test_files_of_others_among_the_slices_stay(place: Path) -> None:
    for name in ("notes.txt", "1/notes.txt"):
        (home(place) / name).write_text("mine")
    loose = found_in(place).jit
    assert loose is not None
    assert sorted(each.path for each in loose.loose if each.kind == "unknown") == [
        str(home(place) / "1/notes.txt"), str(home(place) / "notes.txt"),
    ]  # fmt: skip
    run(place, GcPolicy(everything=True))
    assert sorted(str(path.relative_to(home(place))) for path in home(place).rglob("*") if path.is_file()) == [
        "1/notes.txt", "notes.txt",
    ]  # fmt: skip


def test_a_link_in_the_place_of_slices_is_not_followed(place: Path, tmp_path: Path) -> None:
    shutil.move(home(place), tmp_path / "elsewhere")
    home(place).symlink_to(tmp_path / "elsewhere")
    run(place, GcPolicy(everything=True))
    assert not home(place).is_symlink()
    assert (tmp_path / "elsewhere/gecli_slicing.json").exists()


def test_slices_that_ge_cut_are_listed_and_go_when_they_are_named(place: Path) -> None:
    (home(place) / "gecli_slicing.json").unlink()
    assert slices(place)["rows"].state == "foreign"
    assert "jit-orphan" not in {problem for row in versions(place) for problem in row.problems}
    assert run(place, GcPolicy()) == []
    assert verify(str(place / "c")).all_problems == []
    first = sorted(row.key for row in versions(place) if row.graph == "rows")[0]
    run(place, GcPolicy(everything=True), first)
    assert first not in (home(place) / "0/gep_list.json").read_text()
    assert "slicing_hierarchy/rows:foreign" in whys(run(place, GcPolicy(states=frozenset({"foreign"}))))
    assert not home(place).exists()


def test_slices_of_another_version_of_gecli_are_stale(place: Path) -> None:
    for path in (place / "c/jit").glob("rows_*.gecli.json"):
        content = json.loads(path.read_text())
        content["created_by"]["version"] = "0.0.1"
        path.write_text(json.dumps(content))
    assert slices(place)["rows"].state == "jit-stale"
    assert {row.state for row in versions(place) if row.graph == "rows"} == {"jit-stale"}
    assert run(place, GcPolicy()) == []
    planned = run(place, GcPolicy(states=frozenset({"stale-toolchain"})))
    assert "slicing_hierarchy/rows:jit-stale" in whys(planned) and not home(place).exists()
    assert set(slices(place)) == {"other"}


def flipped(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 4
    path.write_bytes(data)


def cut_off(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def garbage(path: Path) -> None:
    path.write_bytes(b'{"gep_list": 5, "slices": 7}')


def removed(path: Path) -> None:
    path.unlink()


def a_directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


FILES = [
    "0/gep_list.json", "0/rem_graph.pb", "0/slice_graph.pb", "1/gep_list.json", "1/slice_graph.pb",
    "gecli_slicing.json", "slicing_result.json",
]  # fmt: skip


@pytest.mark.parametrize("damage", [flipped, cut_off, garbage, removed, a_directory])
@pytest.mark.parametrize("name", FILES)
def test_each_damage_is_found_repaired_and_no_obstacle(name: str, damage: Callable[[Path], None], place: Path) -> None:
    damage(home(place) / name)
    found = verify(str(place / "c"))
    is_foreign = name == "gecli_slicing.json" and damage is removed
    if is_foreign or not found.all_problems:  # a hit of the flipped bit beside all that is read
        assert is_foreign or damage is flipped
    else:
        assert [(each.kind, each.key) for each in found.all_problems] == [("jit-broken", "rows")]
        assert slices(place)["rows"].state in ("jit-broken", "ok")  # graphs are not hashed at a glance
        repairs = repair(found, wait_s=0)
        assert repairs.done and verify(str(place / "c")).all_problems == []
        if name in ("0/gep_list.json", "1/gep_list.json", "slicing_result.json"):
            model = model_of(place)
            assert_right(model, place)
            assert model.counts["compiled"] == 0  # the lists were made from the other files
    assert_right(model_of(place), place)
    again = model_of(place)
    assert_right(again, place)
    assert again.counts["compiled"] == 0


@pytest.mark.parametrize("damage", [cut_off, garbage, removed])
@pytest.mark.parametrize("name", FILES)
def test_gc_brings_slices_in_order_as_far_as_a_glance_tells(
    name: str, damage: Callable[[Path], None], place: Path
) -> None:
    damage(home(place) / name)
    if slices(place)["rows"].state == "jit-broken":
        assert {each.why for each in run(place, GcPolicy())} == {"jit-broken"}
        assert slices(place).get("rows", slices(place)["other"]).state == "ok"
    assert_right(model_of(place), place)
    again = model_of(place)
    assert_right(again, place)
    assert again.counts["compiled"] == 0


def test_a_listed_version_that_is_gone_is_a_broken_chain(place: Path) -> None:
    key = sorted(row.key for row in versions(place) if row.graph == "rows")[0]
    for path in (place / "c/jit").glob(f"{key}*"):
        path.unlink()
    found = verify(str(place / "c"))
    assert [(each.kind, key in each.message) for each in found.all_problems] == [("jit-broken", True)]
    assert repair(found, wait_s=0).done
    assert key not in (home(place) / "0/gep_list.json").read_text()
    assert_in_order(place)


def test_a_version_of_another_slice_leaves_the_list(place: Path) -> None:
    other = next(row.key for row in versions(place) if row.graph == "other")
    path = home(place) / "0/gep_list.json"
    content = json.loads(path.read_text())
    content["gep_list"].append({"gep_graph_key": other})
    path.write_text(json.dumps(content, indent=4, sort_keys=True))
    found = verify(str(place / "c"))
    assert [each.message for each in found.all_problems] == [
        f"version {other} is listed, but its entry is of another slice"
    ]
    repair(found, wait_s=0)
    assert other not in path.read_text() and (place / "c/jit" / f"{other}.idx").exists()
    assert_in_order(place)


def test_a_repair_waits_for_the_lock_of_the_graph(place: Path) -> None:
    cut_off(home(place) / "slicing_result.json")
    found = verify(str(place / "c"))
    with somebody_else(place, "rows"):
        assert list(repair(found, wait_s=0).busy) == ["rows"]
        assert verify(str(place / "c")).all_problems == []  # its holder may be writing
    assert repair(found, wait_s=0).done
    assert_in_order(place)


def test_leftovers_of_a_killed_save_go_when_they_are_old(place: Path) -> None:
    (home(place) / "2").mkdir()
    left = [home(place) / "2/slice_graph.pb", home(place) / "0/.slice_graph.pb.tmp.4194305.ab12cd34"]
    for path in left:
        path.write_bytes(b"x" * 100)
    assert run(place, GcPolicy()) == []
    age(place, 2 * DAY)
    planned = run(place, GcPolicy())
    assert sorted(each.why for each in planned) == ["jit-orphan", "tmp"]
    assert sum(each.size_bytes for each in planned) == 200
    assert not any(path.exists() for path in left) and not (home(place) / "2").exists()
    assert_in_order(place)


def test_only_the_lists_that_change_are_written(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[str] = []
    real = jit_edit.replace_file
    monkeypatch.setattr(
        jit_edit,
        "replace_file",
        lambda path, data, mode: (written.append(os.path.basename(path)), real(path, data, mode)),
    )
    first = sorted(row.key for row in versions(place) if row.graph == "rows")[0]
    run(place, GcPolicy(everything=True), first)
    assert written == ["gecli_slicing.json", "gep_list.json"]


HOSTILE = [
    b"", b"[]", b"{}", b"null", b"{", b'{"gep_list": 5}', b'{"gep_list": [5]}',
    b'{"gep_list": [{"gep_graph_key": []}]}', b'{"gep_list": [{"gep_graph_key": "../x"}]}',
    b'{"slice_graph_list": 5, "user_graph_key": "rows"}',
    b'{"slice_graph_list": [{"slice_graph_id": 9}], "user_graph_key": "rows"}', b"[" * 100000, b"\xff\xfe",
]  # fmt: skip


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
@pytest.mark.parametrize("name", ["0/gep_list.json", "gecli_slicing.json", "slicing_result.json"])
def test_whatever_stands_in_a_list_a_run_succeeds_and_management_does_not_stumble(
    name: str, text: bytes, place: Path
) -> None:
    (home(place) / name).write_bytes(text)
    assert slices(place)["rows"].state == "jit-broken"
    assert [each.kind for each in verify(str(place / "c")).all_problems] == ["jit-broken"]
    assert plan_export(str(place / "c"), ["rows"]).left_out[0].kind == "jit-broken"
    model = model_of(place)
    assert_equal(model.run(FEEDS[0])[0], expected(place / f"{NAME}.onnx", FEEDS[0]))
    assert {warning.kind for warning in model.jit_warnings} == {"jit_corrupt"}
    again = model_of(place)
    again.run(FEEDS[0])
    assert (again.counts["compiled"], again.jit_warnings) == (0, [])
    assert verify(str(place / "c")).all_problems == []


@pytest.mark.parametrize("wanted", [1, 10_000, 10**9])
def test_a_run_that_stops_when_enough_is_free_leaves_order(wanted: int, place: Path) -> None:
    planned = run(place, GcPolicy(everything=True, free_bytes=wanted))
    assert len(planned) == 1 or sum(each.size_bytes for each in planned[:-1]) < wanted
    assert verify(str(place / "c")).all_problems == []
    assert_in_order(place)


def by_slice(place: Path) -> dict[str, list[str]]:
    """The versions of every slice, oldest first."""
    found: dict[str, list[str]] = {}
    for row in sorted(versions(place), key=lambda row: row.created_s):
        found.setdefault(re.sub(r"_[0-9]{19}.*", "", row.key), []).append(row.key)
    return found


@pytest.mark.parametrize("count", [1, 2])
def test_keep_last_leaves_the_newest_versions_of_every_slice(count: int, place: Path) -> None:
    model = model_of(place)
    for feeds in FEEDS:
        model.run(feeds)
    before = by_slice(place)
    assert max(len(each) for each in before.values()) == 2
    taken = run(place, GcPolicy(keep_last=count))
    assert [each.why for each in taken] == ["keep-last"] * sum(len(each[:-count]) for each in before.values())
    assert by_slice(place) == {key: each[-count:] for key, each in before.items()}
    assert_in_order(place)


def test_protect_last_leaves_the_newest_version_of_every_slice_whatever_its_age_and_size(place: Path) -> None:
    model = model_of(place)
    for feeds in FEEDS:
        model.run(feeds)
    before = by_slice(place)
    assert max(len(each) for each in before.values()) == 2
    run(place, GcPolicy(keep_last=1, protect_last=True, max_size_bytes=0, max_age_s=DAY))
    assert by_slice(place) == {key: each[-1:] for key, each in before.items()}
    assert_in_order(place)
