"""What gc removes, by a clock that the test sets; a dry run decides exactly what the run does."""

from __future__ import annotations

import errno
import fcntl
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gecli.cache.cache_conf import CacheConf
from gecli.cache.gc import collect, collect_sometimes, select
from gecli.cache.gc_actions import Action, GcPolicy
from gecli.cache.layout import host_name
from gecli.cache.lock import KeyLock, LockUnavailable
from gecli.cache.store import Written
from gecli.cache.survey import survey

Store = Callable[..., Written]
NOW = 1_800_000_000.0
DAY = 86400.0
DEAD_PID = 2**22 + 1


@pytest.fixture
def cache(tmp_path: Path, store: Store) -> Path:
    """Four entries: key a used 1, 10 and 40 days ago, key b 20 days ago."""
    for key, days in (("a", 40), ("a", 10), ("a", 1), ("b", 20)):
        created = f"2026-01-{31 - days % 31:02d}T00:00:00.000000Z" if days < 31 else "2025-12-20T00:00:00.000000Z"
        store(key, f"{key}{days}", created=created, used_s=NOW - days * DAY)
    return tmp_path


def stems(actions: list[Action]) -> list[str]:
    return sorted(f"{action.what.replace('20260415_022030', 't')}:{action.why}" for action in actions)


def run(directory: Path, policy: GcPolicy) -> list[Action]:
    """Select, collect, and check that the list of a dry run is the list of the run."""
    found = survey(str(directory))
    planned = select(found, policy, NOW)
    assert select(survey(str(directory)), policy, NOW) == planned
    outcome = collect(found, planned)
    assert outcome.done == planned
    return planned


POLICIES: list[tuple[GcPolicy, list[str]]] = [
    (GcPolicy(), []),
    (GcPolicy(max_age_s=30 * DAY), ["a_t:max-age"]),
    (GcPolicy(max_age_s=5 * DAY), ["a_t:max-age", "a_t_1:max-age", "b_t:max-age"]),
    (GcPolicy(keep_last=1), ["a_t:keep-last", "a_t_1:keep-last"]),
    (GcPolicy(keep_last=0), ["a_t:keep-last", "a_t_1:keep-last", "a_t_2:keep-last", "b_t:keep-last"]),
    (GcPolicy(keep_last=3, max_age_s=15 * DAY), ["a_t:max-age", "b_t:max-age"]),
    (GcPolicy(keep_last=1, max_age_s=5 * DAY, protect_last=True), ["a_t:max-age", "a_t_1:max-age"]),
    (GcPolicy(max_size_bytes=0), ["a_t:max-size", "a_t_1:max-size", "a_t_2:max-size", "b_t:max-size"]),
    (GcPolicy(states=frozenset({"superseded"})), ["a_t:superseded", "a_t_1:superseded"]),
    (GcPolicy(everything=True), ["a_t:all", "a_t_1:all", "a_t_2:all", "b_t:all"]),
    (GcPolicy(max_age_s=5 * DAY, free_bytes=1), ["a_t:max-age"]),
]


@pytest.mark.parametrize(("policy", "removed"), POLICIES)
def test_a_policy_removes_exactly_these_entries(policy: GcPolicy, removed: list[str], cache: Path) -> None:
    assert stems(run(cache, policy)) == removed
    left = {row.stem for row in survey(str(cache)).rows}
    assert len(left) == 4 - len(removed)
    assert not [path for path in cache.glob("*.om") if path.stem not in left]


def test_the_least_recently_used_go_until_the_size_fits(cache: Path) -> None:
    total = survey(str(cache)).total_bytes
    assert stems(run(cache, GcPolicy(max_size_bytes=total - 1))) == ["a_t:max-size"]
    assert survey(str(cache)).total_bytes < total


def test_an_index_without_entries_goes_unless_a_bare_om_would_come_back(cache: Path) -> None:
    (cache / "a.om").write_bytes(b"IMOD" + bytes(300))
    run(cache, GcPolicy(everything=True))
    assert not (cache / "b.idx").exists()
    assert "[]" in (cache / "a.idx").read_text()
    assert [row.state for row in survey(str(cache)).rows] == ["shadowed"]


def test_a_key_in_use_is_left_alone(cache: Path) -> None:
    with KeyLock(str(cache), "a", timeout_s=0):
        found = survey(str(cache))
        actions = select(found, GcPolicy(everything=True), NOW)
        assert stems(actions) == ["b_t:all"]
        assert collect(found, actions).busy == ["a"]


def test_an_entry_used_since_the_survey_is_spared(cache: Path) -> None:
    found = survey(str(cache))
    actions = select(found, GcPolicy(max_age_s=30 * DAY), NOW)
    os.utime(cache / f"{actions[0].stem}.gecli.json", (NOW, NOW))
    outcome = collect(found, actions)
    assert (outcome.done, len(outcome.spared)) == ([], 1)
    assert (cache / f"{actions[0].stem}.om").exists()


def test_garbage_goes_without_any_flag_and_unknown_files_stay(cache: Path) -> None:
    old = NOW - 2 * DAY
    (cache / "a_20260415_022030.om").write_bytes(b"torn")  # broken
    names = {
        "a_20200101_000000.om": "orphan",
        f".a_20260415_022030.om.tmp.{DEAD_PID}.ab12": "tmp",
        "notes.txt": "",
        f".a_20260415_022031.om.tmp.{os.getpid()}.ab12": "",
    }
    for name in names:
        (cache / name).write_bytes(b"x")
        os.utime(cache / name, (old, old))
    planned = run(cache, GcPolicy())
    assert stems(planned) == [
        f".a_t.om.tmp.{DEAD_PID}.ab12:tmp", "a_20200101_000000.om:orphan", "a_t:om-corrupt",
    ]  # fmt: skip
    assert {name for name in names if (cache / name).exists()} == {name for name, why in names.items() if not why}


def test_young_garbage_is_spared(cache: Path) -> None:
    (cache / "a_20200101_000000.om").write_bytes(b"x")
    os.utime(cache / "a_20200101_000000.om", (NOW - 60, NOW - 60))
    assert run(cache, GcPolicy()) == []


def test_class_flags_limit_a_run(cache: Path) -> None:
    (cache / "a_20260415_022030.om").write_bytes(b"torn")
    (cache / "a_20200101_000000.om").write_bytes(b"x")
    os.utime(cache / "a_20200101_000000.om", (NOW - DAY, NOW - DAY))
    found = survey(str(cache))
    assert stems(select(found, GcPolicy(only=frozenset({"broken"})), NOW)) == ["a_t:om-corrupt"]
    assert stems(select(found, GcPolicy(only=frozenset({"orphans"})), NOW)) == ["a_20200101_000000.om:orphan"]
    assert select(found, GcPolicy(only=frozenset({"tmp"})), NOW) == []


def test_a_complete_entry_without_a_record_is_adopted(cache: Path) -> None:
    (cache / "b.idx").unlink()
    assert stems(run(cache, GcPolicy())) == ["b_t:orphan"]
    assert [row.state for row in survey(str(cache)).rows if row.key == "b"] == ["ok"]


def test_a_broken_index_is_rebuilt_and_its_files_are_no_garbage(cache: Path) -> None:
    (cache / "a.idx").write_text("{")
    found = survey(str(cache))
    assert found.broken_indexes == ["a"]
    run(cache, GcPolicy())
    assert len([row for row in survey(str(cache)).rows if row.key == "a"]) == 3


def test_locks_go_only_on_request_and_when_nothing_needs_them(cache: Path) -> None:
    for name in ("a", "lonely"):
        (cache / f"{name}.lock").touch()
        os.utime(cache / f"{name}.lock", (NOW - 2 * DAY, NOW - 2 * DAY))
    assert run(cache, GcPolicy()) == []
    assert stems(run(cache, GcPolicy(locks=True))) == ["lonely.lock:lock"]
    assert (cache / "a.lock").exists() and not (cache / "lonely.lock").exists()


def test_locks_of_entries_that_go_in_the_same_run_go_too(cache: Path) -> None:
    for name in ("a", "b", "lonely"):
        (cache / f"{name}.lock").touch()
        os.utime(cache / f"{name}.lock", (NOW - 60, NOW - 60))
    assert "lonely.lock:lock" not in stems(run(cache, GcPolicy(locks=True, grace_s=0)))
    policy = GcPolicy(keep_last=0, locks=True, lock_age_s=0)
    assert [each for each in stems(run(cache, policy)) if each.endswith(":lock")] == [
        "a.lock:lock", "b.lock:lock", "lonely.lock:lock",
    ]  # fmt: skip
    assert not list(cache.glob("*.lock")) and not list(cache.glob("*.idx"))


def test_a_lock_stays_when_its_key_is_held_or_got_an_entry_since_the_survey(cache: Path, store: Store) -> None:
    for name in ("held", "new", "lonely"):
        (cache / f"{name}.lock").touch()
        os.utime(cache / f"{name}.lock", (NOW - 60, NOW - 60))
    found = survey(str(cache))
    planned = select(found, GcPolicy(locks=True, lock_age_s=0), NOW)
    assert len(planned) == 3
    store("new", "late")
    with open(cache / "held.lock") as peer:
        fcntl.flock(peer, fcntl.LOCK_EX)
        outcome = collect(found, planned)
    assert (stems(outcome.done), stems(outcome.spared)) == (["lonely.lock:lock"], ["new.lock:lock"])
    assert outcome.busy == ["held"]
    assert (cache / "held.lock").exists() and (cache / "new.lock").exists()


def test_a_link_out_of_the_cache_is_removed_and_not_followed(
    cache: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    outside = tmp_path_factory.mktemp("outside") / "precious"
    outside.write_bytes(b"x")
    (cache / "a_20260415_022030.om").unlink()
    (cache / "a_20260415_022030.om").symlink_to(outside)
    run(cache, GcPolicy(everything=True))
    assert outside.read_bytes() == b"x"
    assert not (cache / "a_20260415_022030.om").is_symlink()


STATES = [
    ("{stem}.om", None, "om-missing"),
    ("{stem}.om", b"", "om-corrupt"),
    ("{stem}.rdcpkt", None, "rdcpkt-missing"),
    ("{stem}.rdcpkt", b"", "rdcpkt-corrupt"),
    ("{stem}.gecli.json", b"{", "sidecar-invalid"),
    ("{stem}.gecli.json", None, "foreign"),
]


@pytest.mark.parametrize(("name", "content", "state"), STATES)
def test_the_listing_shows_the_state(
    name: str, content: bytes | None, state: str, tmp_path: Path, store: Store
) -> None:
    path = tmp_path / name.format(stem=store(rdcpkt=b"record").stem)
    if content is None:
        path.unlink()
    else:
        path.write_bytes(content)
    assert [row.state for row in survey(str(tmp_path)).rows] == [state]


def test_a_bare_om_is_legacy_or_shadowed(tmp_path: Path, store: Store) -> None:
    (tmp_path / "k.om").write_bytes(b"IMOD" + bytes(300))
    assert [row.state for row in survey(str(tmp_path)).rows] == ["legacy"]
    store()
    assert sorted(row.state for row in survey(str(tmp_path)).rows) == ["ok", "shadowed"]


def test_limits_of_the_configuration_are_applied_at_most_once_an_hour(cache: Path) -> None:
    conf = CacheConf(max_age=int(30 * DAY))
    assert collect_sometimes(str(cache), CacheConf(), NOW) is None
    (cache / ".gecli").mkdir(exist_ok=True)
    first = collect_sometimes(str(cache), conf, NOW)
    assert first is not None and stems(first.done) == ["a_t:max-age"]
    assert collect_sometimes(str(cache), conf, NOW + 60) is None
    assert collect_sometimes(str(cache), conf, NOW + 3700) is not None
    assert collect_sometimes(str(cache), conf, NOW) is not None  # the clock was set back


def test_a_full_disk_is_no_reason_to_keep_entries(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from gecli.cache import recovery

    original = recovery.write_index

    def write_index(directory: str, key: str, *words: Any) -> None:
        if key == "b" or len(list(cache.glob("*.om"))) > 2:  # room for an index comes with the files that go
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        original(directory, key, *words)

    monkeypatch.setattr(recovery, "write_index", write_index)
    (cache / "b.idx").unlink()  # its entry would have to be adopted first
    found = survey(str(cache))
    outcome = collect(found, select(found, GcPolicy(keep_last=1), NOW))
    assert stems(outcome.done) == ["a_t:keep-last", "a_t_1:keep-last"]
    assert [each.verb for each in outcome.spared] == ["adopt"]
    assert sorted(row.state for row in survey(str(cache)).rows) == ["ok", "orphan"]


def test_the_entries_of_a_key_leave_its_index_together(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from gecli.cache import recovery

    written: list[int] = []
    original = recovery.write_index
    monkeypatch.setattr(
        recovery, "write_index", lambda *words: (written.append(len(words[2].records)), original(*words))
    )
    assert stems(run(cache, GcPolicy(keep_last=1))) == ["a_t:keep-last", "a_t_1:keep-last"]
    assert written == [1]  # else a key with thousands of entries takes minutes


@pytest.mark.parametrize("policy", [GcPolicy(everything=True), GcPolicy(max_size_bytes=0), GcPolicy(max_age_s=0)])
def test_a_model_that_no_index_names_stays_until_its_state_is_named(
    tmp_path: Path, store: Store, policy: GcPolicy
) -> None:
    store()
    mine = [tmp_path / "k.om", tmp_path / "mine.om"]
    for path in mine:
        path.write_bytes(b"IMOD" + bytes(300))
    assert len(run(tmp_path, policy)) == 1
    assert all(path.exists() for path in mine)
    run(tmp_path, GcPolicy(states=frozenset({"legacy", "shadowed"})))
    assert not any(path.exists() for path in mine)


def test_a_damaged_bare_om_goes_when_damaged_entries_are_asked_for_and_leaves_no_lock(tmp_path: Path) -> None:
    path = tmp_path / "random.om"
    path.write_bytes(b"")
    (row,) = survey(str(tmp_path)).rows
    assert (row.state, row.problems) == ("om-corrupt", ("om-corrupt", "legacy"))
    assert run(tmp_path, GcPolicy()) == []  # it may be half written
    assert path.exists()
    run(tmp_path, GcPolicy(only=frozenset({"broken"})))
    assert [each.name for each in tmp_path.iterdir() if each.name != ".gecli"] == []


def test_a_key_that_cannot_be_locked_is_an_error_and_not_busy(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(lock: KeyLock) -> None:
        raise LockUnavailable("Read-only file system")

    monkeypatch.setattr(KeyLock, "__enter__", refuse)
    found = survey(str(cache))
    outcome = collect(found, select(found, GcPolicy(everything=True), NOW))
    assert outcome.busy == []
    assert {error.strerror for error in outcome.failures} == {"its lock cannot be used: Read-only file system"}


def test_an_entry_whose_writer_came_to_the_end_since_the_survey_is_spared(cache: Path, store: Store) -> None:
    """With a grace time of zero the files of a running store look like orphans until the index names them."""
    for indexed in (True, False):
        stem = store("a", f"late{indexed}").stem
        index, sidecar = cache / "a.idx", cache / f"{stem}.gecli.json"
        kept = [index.read_bytes(), sidecar.read_bytes()]
        index.write_bytes(kept[0].replace(f"{stem}.om".encode(), b"a_20260415_022030.om"))
        sidecar.unlink()  # so far had the writer come
        found = survey(str(cache))
        planned = select(found, GcPolicy(grace_s=0.0), time.time() + 1)
        assert f"{stem}.om" in [action.what for action in planned]
        if indexed:
            index.write_bytes(kept[0])
        sidecar.write_bytes(kept[1])
        spared = [action.what for action in collect(found, planned).spared]
        assert f"{stem}.om" in spared
        assert (cache / f"{stem}.om").exists()


def test_what_killed_writers_left_in_the_private_directories_goes(cache: Path) -> None:
    left = [
        f".gecli/stat/.e-a.tmp.{DEAD_PID}.ab12cd34",
        f".gecli/req/.0123.tmp.{DEAD_PID}.ab12cd34",
        f".gecli/quarantine/.a.records.20260101T000000Z.json.tmp.{DEAD_PID}.ab12cd34",
        f".a.idx.tmp.{DEAD_PID}.ab12cd34",
        f".gecli/inflight/{host_name()}-{DEAD_PID}-0123456789ab.json",  # empty: it was not even written
    ]
    stays = [f".gecli/inflight/elsewhere-{DEAD_PID}-0123456789ab.json", ".gecli/inflight/notes.txt"]
    for name in left + stays:
        (cache / name).parent.mkdir(parents=True, exist_ok=True)
        (cache / name).write_bytes(b"")
        os.utime(cache / name, (NOW - DAY, NOW - DAY))
    assert {action.why for action in run(cache, GcPolicy())} == {"tmp"}
    assert [name for name in left + stays if (cache / name).exists()] == stays


def test_hints_go_with_their_entry_and_those_that_lead_nowhere_go(cache: Path, store: Store) -> None:
    request = "ab" * 32
    kept = store("c", "kept", used_s=NOW).stem
    stem = store("c", "gone", requests=(f"sha256:{request}",), used_s=NOW - 40 * DAY).stem
    hints = {request: stem, "cd" * 32: "c_20200101_000000", "ef" * 32: kept}
    (cache / ".gecli/req").mkdir(parents=True, exist_ok=True)
    for name, entry in hints.items():
        (cache / ".gecli/req" / name).write_text(f"c\n{entry}\n")
        os.utime(cache / ".gecli/req" / name, (NOW, NOW))
    assert run(cache, GcPolicy(only=frozenset({"tmp"}), grace_s=0.0)) == []
    assert stems(run(cache, GcPolicy())) == [f"{'cd' * 32}:hint"]
    run(cache, GcPolicy(max_age_s=30 * DAY))
    assert [path.name for path in (cache / ".gecli/req").iterdir()] == ["ef" * 32]


def test_a_request_of_a_sidecar_leads_to_no_file_elsewhere(cache: Path, store: Store) -> None:
    precious = cache / "precious"
    precious.write_bytes(b"x")
    store("c", "hostile", requests=("sha256:../../precious",), used_s=NOW)
    run(cache, GcPolicy(everything=True))
    assert precious.exists()


def test_what_was_set_aside_counts_for_the_size_limit_and_goes_first(cache: Path) -> None:
    aside = cache / ".gecli/quarantine"
    aside.mkdir(parents=True)
    for day in (1, 2):
        (aside / f"a.idx.2027010{day}T000000Z").write_bytes(b"x" * 50)
    total = survey(str(cache)).total_bytes
    assert stems(run(cache, GcPolicy(max_size_bytes=total + 99))) == ["a.idx.20270101T000000Z:max-size"]
    found = stems(run(cache, GcPolicy(max_size_bytes=total - 1)))
    assert found == ["a.idx.20270102T000000Z:max-size", "a_t:max-size"]


@pytest.mark.parametrize(
    ("name", "since"),
    [
        ("k.idx.20260101T000000Z", 1767225600),
        ("k.idx.20260101T000000Z.3", 1767225600),
        ("k.records.20260101T000000Z.json", 1767225600),
        ("k.records.20260101T000000Z.json.1", 1767225600),
        ("jit-k.20260101T000000Z-2", 1767225600),
        ("k.20260101T000000Z.om", None),
        ("k.20269901T000000Z", None),
    ],
)
def test_the_age_of_what_was_set_aside_stands_in_its_name(name: str, since: float | None, tmp_path: Path) -> None:
    from gecli.cache.quarantine import quarantined

    folder = tmp_path / ".gecli/quarantine"
    folder.mkdir(parents=True)
    (folder / name).write_bytes(b"x")
    os.utime(folder / name, (5, 5))
    (found,) = quarantined(str(tmp_path))
    assert found.since_s == (since or pytest.approx(time.time(), abs=60))
