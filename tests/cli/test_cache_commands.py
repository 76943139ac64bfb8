"""`gecli cache ls` and `gecli cache gc` as processes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from gecli.compiler.api import compile_models
from gecli.options.resolution import resolve

Run = Callable[..., "subprocess.CompletedProcess[str]"]
DIGITS = Path(__file__).parent.parent.parent / "samples/digits/digits.onnx"
HEADER = ["KEY", "ENTRY", "LAYER", "CREATED", "LAST USED", "SIZE", "WEIGHTS", "VARS", "FP", "BY", "STATE"]


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache with one entry of key k and one of key other, the second unused for ten days."""
    directory = tmp_path_factory.mktemp("filled")
    (directory / "cache").mkdir()
    for key in ("k", "other"):
        options = {"output": (f"{directory}/x",), "ge.graph_compiler_cache_dir": (f"{directory}/cache",)}
        assert compile_models([str(DIGITS)], resolve("compile", {**options, "ge.graph_key": (key,)})).models
    old = time.time() - 10 * 86400
    os.utime(next((directory / "cache").glob("other_*.gecli.json")), (old, old))
    return directory / "cache"


@pytest.fixture
def cache(filled: Path, tmp_path: Path) -> Path:
    shutil.copytree(filled, tmp_path / "cache")
    return tmp_path / "cache"


def contents(directory: Path) -> dict[str, int]:
    return {str(path): path.stat().st_mtime_ns for path in directory.rglob("*") if path.is_file()}


def test_ls_prints_plain_columns_into_a_pipe(gecli: Run, cache: Path) -> None:
    before = contents(cache)
    result = gecli("cache", "ls", "--cache-dir", "cache")
    lines = result.stdout.splitlines()
    assert (result.returncode, result.stderr) == (0, "")
    assert [word.strip() for word in lines[0].split("  ") if word.strip()] == HEADER
    assert [line.split()[0] for line in lines[1:3]] == ["k", "other"]
    assert {line.split()[-1] for line in lines[1:3]} == {"ok"}
    assert lines[3].startswith("2 entries, 2 keys, ")
    assert contents(cache) == before


def test_ls_has_a_document(gecli: Run, cache: Path) -> None:
    document = json.loads(gecli("cache", "ls", "--cache-dir", "cache", "--json").stdout)
    assert document["schema"] == "gecli.cache-ls/1"
    assert [(entry["key"], entry["state"], entry["problems"]) for entry in document["entries"]] == [
        ("k", "ok", []), ("other", "ok", []),
    ]  # fmt: skip
    assert document["totals"]["bytes"] == sum(entry["size"] for entry in document["entries"])


@pytest.mark.parametrize(
    ("words", "keys"),
    [
        (["--key", "o*"], ["other"]),
        (["--older-than", "7d"], ["other"]),
        (["--sort", "used"], ["other", "k"]),
        (["--reverse"], ["other", "k"]),
        (["--state", "om-corrupt,foreign"], []),
        (["--larger-than", "10M"], []),
        (["--layer", "jit"], []),
    ],
)
def test_ls_filters_and_sorts(words: list[str], keys: list[str], gecli: Run, cache: Path) -> None:
    document = json.loads(gecli("cache", "ls", "--cache-dir", "cache", "--json", *words).stdout)
    assert [entry["key"] for entry in document["entries"]] == keys


def test_ls_lists_every_file_with_its_owner(gecli: Run, cache: Path) -> None:
    text = gecli("cache", "ls", "--cache-dir", "cache", "--files").stdout
    assert all(f"{path.name}  {path.stem}" in text for path in cache.glob("*.om"))


@pytest.mark.parametrize("command", ["ls", "gc"])
def test_a_missing_directory_is_exit_2(command: str, gecli: Run, tmp_path: Path) -> None:
    for words in (["--cache-dir", "nowhere"], []):
        assert gecli("cache", command, *words).returncode == 2
    assert not (tmp_path / "nowhere").exists()


def test_an_unknown_state_is_exit_2(gecli: Run, cache: Path) -> None:
    assert gecli("cache", "ls", "--cache-dir", "cache", "--state", "fine").returncode == 2


def test_the_directory_comes_from_the_environment(gecli: Run, cache: Path) -> None:
    assert "2 entries" in gecli("cache", "ls", env={"GECLI_CACHE_DIR": str(cache)}).stdout


def test_a_dry_run_prints_the_list_of_the_run_and_changes_nothing(gecli: Run, cache: Path) -> None:
    words = ["cache", "gc", "--cache-dir", "cache", "--max-age", "7d"]
    before = contents(cache)
    dry = gecli(*words, "--dry-run")
    assert (dry.returncode, contents(cache)) == (0, before)
    real = gecli(*words)
    assert dry.stdout.splitlines()[:-1] == real.stdout.splitlines()[:-1]
    assert real.stdout.splitlines()[0].startswith("remove  other_")
    assert sorted(path.name[:2] for path in cache.glob("*.om")) == ["k_"]


def test_gc_reports_files_of_others_and_leaves_them(gecli: Run, cache: Path) -> None:
    (cache / "notes.txt").write_text("mine")
    result = gecli("cache", "gc", "--cache-dir", "cache", "--all", "--grace", "0s", "-v")
    assert "notes.txt is no file of a cache and was left alone" in result.stderr
    document = json.loads(gecli("cache", "gc", "--cache-dir", "cache", "--json").stdout)
    assert document["unknown_files"] == ["notes.txt"]
    assert (cache / "notes.txt").read_text() == "mine"


def test_gc_has_a_document(gecli: Run, cache: Path) -> None:
    document = json.loads(gecli("cache", "gc", "--cache-dir", "cache", "--all", "--json").stdout)
    assert document["schema"] == "gecli.cache-gc/1"
    assert [action["why"] for action in document["actions"] if action["key"]] == ["all", "all"]
    assert {action["why"] for action in document["actions"] if not action["key"]} == {"hint"}
    assert document["freed_bytes"] > 0


@pytest.mark.parametrize(("wait", "status"), [("0", 0), ("0.2", 7)])
def test_a_busy_key_is_skipped_and_is_a_failure_only_with_wait(wait: str, status: int, gecli: Run, cache: Path) -> None:
    import fcntl

    with open(cache / "k.lock") as peer:
        fcntl.flock(peer, fcntl.LOCK_EX)
        result = gecli("cache", "gc", "--cache-dir", "cache", "--all", "--wait", wait)
    assert result.returncode == status
    assert "key k is in use" in result.stderr
    assert [path.name[:2] for path in cache.glob("*.om")] == ["k_"]


def test_a_compile_after_gc_of_everything_is_a_miss_and_stores_again(gecli: Run, cache: Path) -> None:
    gecli("cache", "gc", "--cache-dir", "cache", "--all")
    assert list(cache.glob("*.om")) == []
    result = gecli("compile", str(DIGITS), "-o", "x", "--cache-dir", "cache", "--graph-key", "k")
    assert "cache=miss reason=no_entry" in result.stdout
    assert len(list(cache.glob("*.om"))) == 1


def test_a_terminal_gets_a_table_that_fits_it(filled: Path) -> None:
    from gecli.cache.survey import survey
    from gecli.report.cache_report import ls_table

    found = survey(str(filled))
    lines = ls_table(found.rows, found, 140, color=False).splitlines()
    assert max(map(len, lines)) <= 140
    assert lines[0].split()[:3] == ["KEY", "ENTRY", "LAYER"]
    assert lines[-1].startswith("2 entries, 2 keys, ") and "KiB" in lines[-1]


@pytest.mark.parametrize("words", [["--all"], ["--foreign", "--grace", "0"], ["--max-size", "0", "--dry-run"]])
def test_gc_refuses_a_directory_that_is_no_cache(words: list[str], gecli: Run, tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    (tmp_path / "models/mine.om").write_bytes(b"IMOD" + bytes(300))
    done = gecli("cache", "gc", "--cache-dir", "models", *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert "models is not a compile cache" in done.stderr
    assert [path.name for path in (tmp_path / "models").iterdir()] == ["mine.om"]


@pytest.mark.parametrize("width", [20, 60, 80, 100, 120, 200])
def test_no_cell_of_the_table_is_folded(width: int, filled: Path) -> None:
    from gecli.cache.survey import survey
    from gecli.report.cache_report import ls_table

    found = survey(str(filled))
    lines = ls_table(found.rows, found, width, color=False).splitlines()
    rows = [line for line in lines if line.startswith("k")]
    assert len(rows) == 1
    assert found.rows[0].stem in rows[0] and rows[0].endswith(" ok")
    needed = len(f"{found.rows[1].stem}  STATE")
    assert all(len(line) <= max(width, needed) for line in lines[: 1 + len(found.rows)])
    assert (lines[0].split()[0] == "KEY") == (width >= 80)
    assert any(line.startswith("no room for ") for line in lines) == (width < 200)


def test_size_is_the_last_column_that_a_narrow_terminal_leaves_out(filled: Path) -> None:
    from gecli.cache.survey import survey
    from gecli.report.cache_report import ls_table

    found = survey(str(filled))
    shown = {tuple(ls_table(found.rows, found, width, color=False).splitlines()[0].split()) for width in range(20, 90)}
    assert {("ENTRY", "STATE"), ("ENTRY", "SIZE", "STATE")} <= shown
    assert all("SIZE" in header for header in shown - {("ENTRY", "STATE")})


def test_a_missing_directory_gets_a_cure_that_the_command_has(gecli: Run, cache: Path) -> None:
    listed = gecli("cache", "ls", "--cache-dir", "nowhere").stderr
    assert "why: No such file or directory" in listed
    assert "--cache-create" not in listed and "--strict-paths" not in listed
    compiled = gecli("compile", str(DIGITS), "-o", "x", "--cache-dir", "nowhere", "--require-cache")
    assert compiled.returncode == 2
    assert "--strict-paths" not in compiled.stderr and "do:  --cache-create makes it" in compiled.stderr


def test_gc_of_everything_asks_nobody_in_a_script(gecli: Run, cache: Path) -> None:
    assert gecli("cache", "gc", "--cache-dir", "cache", "--all").returncode == 0
    assert list(cache.glob("*.om")) == []
    assert "a script that gives them removes at once" in " ".join(gecli("cache", "gc", "--help").stdout.split())


def test_ages_and_sizes_have_units_and_the_help_says_them(gecli: Run, cache: Path) -> None:
    words = ("cache", "gc", "--cache-dir", "cache", "--dry-run", "--max-age")
    for age, count in (("9d", 1), ("11d", 0), ("700000", 1), ("1000000", 0), ("12h", 1), ("2w", 0)):
        assert gecli(*words, age).stdout.splitlines()[-1].startswith(f"would remove {count},"), age
    text = " ".join(gecli("cache", "gc", "--help").stdout.split())
    assert "30d, 12h, 90m; a number alone is seconds" in text and "10G, 512M; a number alone is bytes" in text


@pytest.mark.parametrize("made_before", [False, True])
def test_nothing_is_left_but_what_the_documents_name(made_before: bool, gecli: Run, cache: Path) -> None:
    words = (str(DIGITS), "--cache-dir", "cache", "--external-weight", "split")
    assert gecli("compile", *words, "-o", "y", "--graph-key", "k").returncode == 0
    (cache / "cache.conf").write_text("{}")
    (cache / ".gecli/gc.stamp").write_bytes(b"")
    (cache / ".gecli/quarantine").mkdir(exist_ok=True)
    (cache / ".gecli/quarantine/k.idx.20260101T000000Z").write_bytes(b"x")
    if made_before:
        gecli("cache", "gc", "--cache-dir", "cache")  # makes gc's own lock
    before = contents(cache)
    planned = json.loads(
        gecli("cache", "gc", "--cache-dir", "cache", "--all", "--grace", "0", "--locks", "--dry-run", "--json").stdout
    )
    assert contents(cache) == before
    done = json.loads(gecli("cache", "gc", "--cache-dir", "cache", "--all", "--grace", "0", "--locks", "--json").stdout)
    assert (done["actions"], done["spared"]) == (planned["actions"], [])
    left = {os.path.relpath(path, cache) for path in contents(cache)}
    assert {name for name in left if not name.startswith(".gecli/stats/")} == {"cache.conf"}


def test_locks_of_a_directory_that_nobody_locked_before_do_not_outlast_the_run(gecli: Run, cache: Path) -> None:
    for name in ("k.lock", "other.lock"):
        (cache / name).unlink()
    gecli("cache", "gc", "--cache-dir", "cache", "--all", "--locks")  # a lock of now may be waited for
    assert sorted(path.name for path in cache.glob("*.lock")) == ["k.lock", "other.lock"]
    gecli("compile", str(DIGITS), "-o", "y", "--graph-key", "k", "--cache-dir", "cache")
    for name in ("k.lock", "other.lock"):
        (cache / name).unlink()
    gecli("cache", "gc", "--cache-dir", "cache", "--all", "--locks", "--grace", "0")
    left = {os.path.relpath(path, cache) for path in contents(cache)}
    assert {name for name in left if not name.startswith(".gecli/stats/")} == set()


def test_without_locks_they_stay_and_so_does_meta_json(gecli: Run, cache: Path) -> None:
    gecli("compile", str(DIGITS), "--cache-dir", "cache", "--external-weight", "split", "-o", "y", "--graph-key", "k")
    gecli("cache", "gc", "--cache-dir", "cache", "--all", "--grace", "0")
    left = {os.path.relpath(path, cache) for path in contents(cache)}
    assert {name for name in left if not name.startswith(".gecli/stats/")} == {
        "k.lock", "other.lock", "weight/meta.json", ".gecli/gc.lock",
    }  # fmt: skip


def test_what_was_set_aside_is_shown_and_removed_on_request(gecli: Run, cache: Path) -> None:
    aside = cache / ".gecli/quarantine"
    aside.mkdir(exist_ok=True)
    (aside / "k.idx.20260101T000000Z").write_bytes(b"x" * 30)
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    (aside / f"jit-k.{stamp}").mkdir()
    (aside / f"jit-k.{stamp}/gecli_slicing.json").write_bytes(b"x" * 12)
    listed = gecli("cache", "ls", "--cache-dir", "cache").stdout.splitlines()[-1]
    assert "42 bytes set aside, 30 reclaimable" in listed
    files = gecli("cache", "ls", "--cache-dir", "cache", "--files").stdout
    assert ".gecli/quarantine/k.idx.20260101T000000Z  (quarantine)" in files
    stats = json.loads(gecli("cache", "stats", "--cache-dir", "cache", "--json").stdout)
    assert stats["quarantine"] == {"items": 2, "bytes": 42}
    assert "set aside               2 items, 42 bytes" in gecli("cache", "stats", "--cache-dir", "cache").stdout
    gecli("cache", "gc", "--cache-dir", "cache")
    assert [path.name for path in aside.iterdir()] == [f"jit-k.{stamp}"]
    gecli("cache", "gc", "--cache-dir", "cache", "--quarantine")
    assert len(list(aside.iterdir())) == 1  # younger than --grace
    document = json.loads(gecli("cache", "gc", "--cache-dir", "cache", "--quarantine", "--grace", "0", "--json").stdout)
    assert [(each["why"], each["bytes"]) for each in document["actions"]] == [("quarantine", 12)]
    assert list(aside.iterdir()) == [] and len(list(cache.glob("*.om"))) == 2


def test_what_is_too_young_for_the_size_limit_is_told(gecli: Run, cache: Path) -> None:
    aside = cache / ".gecli/quarantine"
    aside.mkdir(exist_ok=True)
    (aside / f"k.idx.{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime(time.time() - 60))}").write_bytes(b"x" * 30)
    (cache / "weight").mkdir(exist_ok=True)
    (cache / f"weight/weight_{'ab' * 32}").write_bytes(b"x" * 12)
    totals = json.loads(gecli("cache", "ls", "--cache-dir", "cache", "--json").stdout)["totals"]
    assert (totals["unreferenced_weights_bytes"], totals["reclaimable_bytes"]) == (12, 0)
    last = gecli("cache", "ls", "--cache-dir", "cache").stdout.splitlines()[-1]
    assert "12 bytes of weights that no entry refers to, 30 bytes set aside, 0 reclaimable" in last
    assert "unreferenced weights    12 bytes" in gecli("cache", "stats", "--cache-dir", "cache").stdout
    why = (
        "42 bytes stay above --max-size: 30 bytes set aside in .gecli/quarantine and 12 bytes of weights that no entry "
        "refers to are younger than --grace, 3600 s (--grace 0 removes them)"
    )
    words = ("cache", "gc", "--cache-dir", "cache", "--max-size")
    assert gecli(*words, "1G", "--dry-run").stderr == ""
    assert why in " ".join(gecli(*words, "0", "--dry-run").stderr.split())
    document = json.loads(gecli(*words, "0", "--json").stdout)
    assert document["notes"] == [why]
    assert sorted((each["why"], each["bytes"]) for each in document["spared"]) == [
        ("quarantine", 30), ("unreferenced-weight", 12),
    ]  # fmt: skip
    document = json.loads(gecli(*words, "0", "--grace", "0", "--json").stdout)
    assert (document["notes"], document["spared"], len(document["actions"])) == ([], [], 2)


def test_a_key_in_use_is_named_as_what_stays_above_the_size_limit(gecli: Run, cache: Path) -> None:
    from gecli.cache.lock import KeyLock

    size = sum(path.stat().st_size for path in cache.glob("k_*"))
    with KeyLock(str(cache), "k", timeout_s=0):
        told = gecli("cache", "gc", "--cache-dir", "cache", "--max-size", "1").stderr
    assert f"{size - 1} bytes stay above --max-size: {size} bytes belong to keys in use" in " ".join(told.split())
