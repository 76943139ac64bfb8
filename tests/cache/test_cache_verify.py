"""`gecli.cache.verify` finds every kind of damage, and `gecli.cache.repair` leaves a directory without any."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from gecli.cache.lock import KeyLock
from gecli.cache.recovery import names_by_key, stems_of
from gecli.cache.repair import repair
from gecli.cache.survey import survey
from gecli.cache.verify import verify
from gecli.cache.weight_sweep import unreferenced

from .conftest import Store, om_bytes

Damage = Callable[[Path, str], None]


def kinds(directory: Path, *, fast: bool = False) -> list[str]:
    return [each.kind for each in verify(str(directory), fast=fast).problems]


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


def edit_index(directory: Path, change: Callable[[list[object]], object]) -> None:
    path = directory / "k.idx"
    content = json.loads(path.read_text())
    change(content["cache_file_list"])
    path.write_text(json.dumps(content))


def edit_sidecar(directory: Path, stem: str, **members: object) -> None:
    path = directory / f"{stem}.gecli.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **members}))


ELSEWHERE = {"graph_key": "k", "cache_file_name": "/nowhere/x_20260415_022030.om"}
WEIGHT = {"file": "weight_1", "offset": 0, "length": 4, "sha256": "0" * 64, "node": "w"}
# What is done, the kind that a full check finds, and the one that a fast check finds.
DAMAGES: dict[str, tuple[Damage, str, str]] = {
    "a bit of the om": (lambda d, s: flip(d / f"{s}.om"), "om-corrupt", ""),
    "a bit of the rdcpkt": (lambda d, s: flip(d / f"{s}.rdcpkt"), "rdcpkt-corrupt", ""),
    "a shorter om": (lambda d, s: os.truncate(d / f"{s}.om", 10), "om-corrupt", "om-corrupt"),
    "no om": (lambda d, s: (d / f"{s}.om").unlink(), "om-missing", "om-missing"),
    "no rdcpkt": (lambda d, s: (d / f"{s}.rdcpkt").unlink(), "rdcpkt-missing", "rdcpkt-missing"),
    "a torn sidecar": (
        lambda d, s: os.truncate(d / f"{s}.gecli.json", 9) and None, "sidecar-invalid", "sidecar-invalid",
    ),
    "a sidecar of another entry": (
        lambda d, s: edit_sidecar(d, s, entry="other"), "sidecar-invalid", "sidecar-invalid",
    ),
    "no index": (lambda d, s: (d / "k.idx").unlink(), "orphan", "orphan"),
    "a torn index": (lambda d, s: os.truncate(d / "k.idx", 30), "index-corrupt", "index-corrupt"),
    "a malformed record": (
        lambda d, s: edit_index(d, lambda rows: rows.append(7)), "index-entry-invalid", "index-entry-invalid",
    ),
    "a record elsewhere": (lambda d, s: edit_index(d, lambda rows: rows.append(ELSEWHERE)), "bad-path", "bad-path"),
    "a record twice": (
        lambda d, s: edit_index(d, lambda rows: rows.append(rows[0])), "duplicate-files", "duplicate-files",
    ),
    "weights that are gone": (lambda d, s: edit_sidecar(d, s, weights=[WEIGHT]), "weights-missing", "weights-missing"),
    "weights that are no rows": (lambda d, s: edit_sidecar(d, s, weights=[7]), "sidecar-invalid", "sidecar-invalid"),
}  # fmt: skip


@pytest.mark.parametrize("name", DAMAGES)
def test_each_damage_is_found_and_repaired(name: str, store: Store, tmp_path: Path) -> None:
    damage, full, fast = DAMAGES[name]
    good = store("good", "b", body="good", rdcpkt=b"")
    stem = store("k", "a", rdcpkt=b"\x0a\x00").stem
    assert kinds(tmp_path) == []
    damage(tmp_path, stem)
    assert kinds(tmp_path) == [full]
    assert kinds(tmp_path, fast=True) == ([fast] if fast else [])
    repairs = repair(verify(str(tmp_path)), wait_s=0)
    assert len(repairs.done) == 1
    assert kinds(tmp_path) == []
    assert (tmp_path / f"{good.stem}.om").read_bytes() == om_bytes("good")


def test_a_damaged_entry_is_kept_in_the_quarantine(store: Store, tmp_path: Path) -> None:
    stem = store().stem
    flip(tmp_path / f"{stem}.om")
    torn = (tmp_path / f"{stem}.om").read_bytes()
    repair(verify(str(tmp_path)), wait_s=0)
    kept = {path.name.rpartition(".")[0]: path for path in (tmp_path / ".gecli/quarantine").iterdir()}
    assert set(kept) == {f"{stem}.om", f"{stem}.gecli.json"}
    assert kept[f"{stem}.om"].read_bytes() == torn


def test_repair_adopts_what_was_cut_off_before_the_index(store: Store, tmp_path: Path) -> None:
    first, second = store("k", "a").stem, store("k", "b").stem
    (tmp_path / "k.idx").unlink()
    repair(verify(str(tmp_path)), wait_s=0)
    records = json.loads((tmp_path / "k.idx").read_text())["cache_file_list"]
    assert [record["cache_file_name"] for record in records] == [f"{first}.om", f"{second}.om"]


@pytest.mark.parametrize("data", [b"", b"IMOD", om_bytes("not a model")])
def test_a_bare_model_that_is_damaged_is_set_aside_and_no_lock_is_made(data: bytes, tmp_path: Path) -> None:
    (tmp_path / "k.om").write_bytes(data)
    assert kinds(tmp_path) == ["om-corrupt"]
    done = repair(verify(str(tmp_path)), wait_s=0).done
    assert done == ["k.om, which no index names, was set aside (om-corrupt)"]
    assert kinds(tmp_path) == []
    assert [path.name for path in tmp_path.iterdir()] == [".gecli"]
    (kept,) = (tmp_path / ".gecli" / "quarantine").iterdir()
    assert kept.name.startswith("k.om.") and kept.read_bytes() == data


def test_a_foreign_model_is_read_as_far_as_it_tells(tmp_path: Path) -> None:
    (tmp_path / "k.om").write_bytes(om_bytes("not a model"))
    assert kinds(tmp_path) == ["om-corrupt"]
    assert kinds(tmp_path, fast=True) == []


@pytest.mark.parametrize("kind", ["directory", "pipe", "link to nothing"])
def test_a_lock_that_nobody_can_take_is_a_problem(kind: str, store: Store, tmp_path: Path) -> None:
    store()
    path = tmp_path / "other.lock"
    if kind == "directory":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to("nowhere")
    assert kinds(tmp_path) == ["lock-invalid"]
    assert repair(verify(str(tmp_path)), wait_s=0).done == []


@pytest.mark.parametrize("text", ["{", '{"gecli": {"foreign_entries": "maybe"}}'])
def test_settings_that_cannot_be_used_are_a_problem(text: str, store: Store, tmp_path: Path) -> None:
    store()
    (tmp_path / "cache.conf").write_text(text)
    assert kinds(tmp_path) == ["conf-invalid"]


def test_what_a_compile_has_not_finished_is_no_problem(store: Store, tmp_path: Path) -> None:
    store()
    (tmp_path / "k.idx").unlink()  # as between sidecar and index
    with KeyLock(str(tmp_path), "k", timeout_s=0):
        found = verify(str(tmp_path))
        assert (found.problems, found.busy) == ([], ["k"])
    assert kinds(tmp_path) == ["orphan"]


def test_an_entry_that_is_removed_meanwhile_is_no_problem(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from gecli.cache import verify as module
    from gecli.cache.recovery import remove_records

    stem = store().stem
    real = module.entry_problems

    def slow(directory: str, key: str, record: object, *, fast: bool) -> object:
        remove_records(directory, key, [stem], 0o644)
        (tmp_path / f"{stem}.om").unlink()
        return real(directory, key, record, fast=fast)  # type: ignore[arg-type]  # it is passed on

    monkeypatch.setattr(module, "entry_problems", slow)
    assert verify(str(tmp_path)).problems == []


def test_a_key_in_use_is_repaired_when_it_is_free_or_told(store: Store, tmp_path: Path) -> None:
    stem = store().stem
    flip(tmp_path / f"{stem}.om")
    found = verify(str(tmp_path))
    held, release = threading.Event(), threading.Event()

    def hold() -> None:
        with KeyLock(str(tmp_path), "k", timeout_s=0):
            held.set()
            release.wait(10)

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait(10)
    repairs = repair(found, wait_s=0)
    assert (repairs.done, list(repairs.busy)) == ([], ["k"])
    release.set()
    thread.join()
    assert repair(found, wait_s=5).busy == {}
    assert kinds(tmp_path) == []


def test_a_healthy_entry_is_not_touched_whatever_was_found_before(store: Store, tmp_path: Path) -> None:
    stem = store().stem
    flip(tmp_path / f"{stem}.om")
    found = verify(str(tmp_path))
    flip(tmp_path / f"{stem}.om")
    assert repair(found, wait_s=0).done == []
    assert (tmp_path / f"{stem}.om").exists()


def test_counts_and_garbage(store: Store, tmp_path: Path) -> None:
    stem = store("k", "a", rdcpkt=b"\x0a\x00").stem
    stray = tmp_path / "k_20250101_000000.om"
    stray.write_bytes(b"IMOD")
    os.utime(stray, (0, 0))
    found = verify(str(tmp_path))
    sizes = [path.stat().st_size for path in tmp_path.glob(f"{stem}.*")]
    assert (found.entries, found.files, found.size_bytes) == (1, 3, sum(sizes))
    assert (found.problems, found.garbage) == ([], [stray.name])


@pytest.mark.parametrize("look", ["survey", "verify", "unreferenced"])
def test_many_keys_do_not_list_the_directory_each(
    look: str, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = []
    (tmp_path / "weight").mkdir()
    (tmp_path / f"weight/weight_{'a' * 40}").write_bytes(b"")
    for number in range(12):
        store(f"k{number}", str(number))
        if number in (3, 11):
            listed: list[object] = []
            real = os.listdir
            with monkeypatch.context() as patch:
                patch.setattr(
                    os, "listdir", lambda path=".", real=real, listed=listed: listed.append(path) or real(path)
                )
                if look == "unreferenced":
                    unreferenced(str(tmp_path), 4e9, 0.0)
                else:
                    {"survey": survey, "verify": verify}[look](str(tmp_path))
            counts.append(len(listed))
    assert counts[0] == counts[1]


NAMES = [
    "k_20260415_102030.om", "k_20260415102030_20260415102031.om", "k_20260415_102030_1.rdcpkt",
    "k_20260415102030.idx", "a_20260415_102030_20260415_102031.gecli.json", "a_20260415_102030.lock", "k.om", "x",
]  # fmt: skip


@pytest.mark.parametrize("names", [NAMES, NAMES[:3], NAMES[3:]])
def test_the_names_of_each_key_are_all_that_its_stems_need(names: list[str], tmp_path: Path) -> None:
    for name in names:
        (tmp_path / name).touch()
    by_key = names_by_key(set(names))
    for key in ("k", "k_20260415102030", "a", "a_20260415_102030", "x"):
        assert stems_of(str(tmp_path), key, by_key.get(key, [])) == stems_of(str(tmp_path), key)


def test_only_the_keys_asked_for_are_checked(store: Store, tmp_path: Path) -> None:
    for key in ("one", "two"):
        flip(tmp_path / f"{store(key).stem}.om")
    assert [each.key for each in verify(str(tmp_path), "o*").problems] == ["one"]
