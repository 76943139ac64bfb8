"""What `ls` and `gc` make of the same entries: states, ages, sizes of models without a record."""

from __future__ import annotations

import json
import os
import shutil
import time
from pathlib import Path

import pytest

from tests.cli.bad_files import gecli_in
from tests.conftest import REPOSITORY

TRAIN = str(REPOSITORY / "samples/train/conv_train.json")
CACHE = ("--cache-dir", "cache")


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two entries of one key, of which the second supersedes the first."""
    directory = tmp_path_factory.mktemp("filled")
    for name in ("one", "two"):
        words = ("compile", TRAIN, "-o", name, "--train", "--graph-key", "k", *CACHE, "--cache-create")
        assert gecli_in(directory, *words).returncode == 0
    return directory


@pytest.fixture
def home(filled: Path, tmp_path: Path) -> Path:
    shutil.copytree(filled, tmp_path / "home")
    return tmp_path / "home"


def listed(home: Path, *words: str) -> list[str]:
    done = gecli_in(home, "cache", "ls", *CACHE, "--json", *words)
    assert done.returncode == 0, done.stderr
    return [row["entry"] for row in json.loads(done.stdout)["entries"]]


def removed(home: Path, *words: str) -> list[str]:
    done = gecli_in(home, "cache", "gc", *CACHE, "--json", "--dry-run", *words)
    assert done.returncode == 0, done.stderr
    return [row["what"] for row in json.loads(done.stdout)["actions"] if row["key"]]


def change(home: Path, **members: object) -> None:
    for path in (home / "cache").glob("*.gecli.json"):
        path.write_text(json.dumps({**json.loads(path.read_text()), **members}))


@pytest.mark.parametrize("state", ["stale-toolchain", "superseded"])
def test_ls_lists_in_a_state_what_gc_removes_for_it(state: str, home: Path) -> None:
    change(home, created_by={"tool": "gecli", "version": "0.0.1"})
    found = listed(home, "--state", state)
    assert len(found) == {"stale-toolchain": 2, "superseded": 1}[state]
    assert found == removed(home, f"--{state}")


def test_an_entry_of_another_tool_is_as_old_as_its_name(home: Path) -> None:
    cache = home / "cache"
    model = next(cache.glob("*.om")).read_bytes()
    for path in cache.glob("k*"):
        path.unlink()
    stems = ["k_20260103101112", "k_20260102101112", "k_20260101101112"]
    for age, stem in enumerate(stems):  # the oldest name was copied last
        (cache / f"{stem}.om").write_bytes(model)
        os.utime(cache / f"{stem}.om", (time.time() - 100 * (3 - age),) * 2)
    records = [{"graph_key": "k", "cache_file_name": f"{stem}.om"} for stem in stems]
    (cache / "k.idx").write_text(json.dumps({"cache_file_list": records}))
    assert listed(home, "--sort", "created") == stems[::-1]
    assert removed(home, "--keep-last", "1") == stems[1:]
    text = gecli_in(home, "cache", "ls", *CACHE, "--json", TZ="UTC").stdout
    assert {row["created"] for row in json.loads(text)["entries"]} == {f"2026-01-0{day}T10:11:12Z" for day in (1, 2, 3)}


def test_models_without_a_record_count_for_the_size_limit_and_stay(home: Path) -> None:
    cache = home / "cache"
    shutil.copy(next(cache.glob("*.om")), cache / "bare.om")
    size = (cache / "bare.om").stat().st_size
    done = gecli_in(home, "cache", "gc", *CACHE, "--max-size", str(size + 1), "--grace", "0")
    assert (done.returncode, "above --max-size" in done.stderr) == (0, False)
    assert [path.name for path in cache.glob("*.om")] == ["bare.om"]
    done = gecli_in(home, "cache", "gc", *CACHE, "--max-size", "1", "--grace", "0")
    assert f"{size} bytes are models that no index names" in done.stderr
    assert (cache / "bare.om").exists()


@pytest.mark.parametrize("created", ["9999-12-31T23:59:59-23:00", "0001-01-01T00:00:00+23:00"])
@pytest.mark.parametrize(
    "command", [("ls",), ("ls", "--json"), ("ls", "--files"), ("stats",), ("gc", "--keep-last", "1")]
)
def test_a_time_beyond_the_calendar_ends_no_command(command: tuple[str, ...], created: str, home: Path) -> None:
    change(home, created_utc=created)
    done = gecli_in(home, "cache", *command, *CACHE, TZ="Pacific/Kiritimati")
    assert (done.returncode, done.stderr) == (0, "")


def test_what_a_killed_gc_left_beside_the_counters_goes(home: Path) -> None:
    left = home / "cache" / ".gecli" / "stats" / ".summary.json.tmp.4194303.0123456789abcdef"
    kept = left.with_name("summary.json")
    for path in (left, kept):
        path.write_text("{}")
        os.utime(path, (1e9, 1e9))
    assert gecli_in(home, "cache", "gc", *CACHE).returncode == 0
    assert (left.exists(), kept.exists()) == (False, True)


def test_a_sidecar_of_another_schema_says_nothing(home: Path) -> None:
    change(home, schema=2)
    text = gecli_in(home, "cache", "ls", *CACHE, "--json").stdout
    assert {row["state"] for row in json.loads(text)["entries"]} == {"recovered"}
    words = ("compile", TRAIN, "-o", "two", "--train", "--graph-key", "k", *CACHE)
    assert "cache=hit" in gecli_in(home, *words).stdout  # the model itself says what it was compiled from
    assert {json.loads(path.read_text())["schema"] for path in (home / "cache").glob("*.gecli.json")} == {2}
