"""The counters of a cache directory: lines in, sums out, whatever happens to the files between."""

from __future__ import annotations

import json
import os
import threading
import time
from pathlib import Path

import pytest

from gecli.cache import statistics
from gecli.cache.events import MAX_LINE_BYTES, MAX_LOG_BYTES, event, log_path, record, stats_dir
from gecli.cache.statistics import EARLIER, KEPT_DAYS, SUMMARY, counts_by_key, fold, total, zero


@pytest.fixture
def cache(tmp_path: Path) -> str:
    return str(tmp_path)


def settle(cache: str) -> None:
    """Fold until everything is in the summary, as if the pauses between had been long."""
    for _ in range(2):
        for path in Path(stats_dir(cache)).glob("*.jsonl"):
            os.utime(path, (time.time() - 60, time.time() - 60))
        fold(cache)


def test_events_become_counters(cache: str) -> None:
    record(cache, event("miss", "k", "no_entry"), event("write", "k", seconds=8.41, size_bytes=100))
    record(cache, event("hit", "k", "before", seconds=8.41, size_bytes=100))
    record(cache, event("hit", "k", "no-vars"), event("adopted", "k", count=3), event("gc", size_bytes=7))
    assert counts_by_key(cache) == {
        "k": {
            "misses": 1, "misses.no_entry": 1, "writes": 1, "bytes_written": 100, "seconds_spent": 8.41, "hits": 2,
            "hits.before": 1, "hits.no-vars": 1, "bytes_read": 100, "seconds_saved": 8.41, "adopted": 3,
        },
        "": {"gc_runs": 1, "bytes_freed": 7},
    }  # fmt: skip


def test_the_longest_line_is_written_at_once_and_is_json(cache: str) -> None:
    record(cache, event("miss", "k" * 128, "manual_check_required", seconds=1e9, size_bytes=1 << 60, count=1 << 30))
    [line] = Path(log_path(stats_dir(cache))).read_bytes().splitlines()
    assert len(line) < MAX_LINE_BYTES
    assert json.loads(line)["key"] == "k" * 128


def test_folding_changes_no_counter(cache: str) -> None:
    for turn in range(3):
        record(cache, event("hit", "a", "before", seconds=0.001), event("miss", f"b{turn}", "om_missing"))
        before = counts_by_key(cache)
        fold(cache)
        assert counts_by_key(cache) == before
        settle(cache)
        assert counts_by_key(cache) == before
    assert [path.name for path in Path(stats_dir(cache)).iterdir()] == [SUMMARY]
    assert total(counts_by_key(cache)) == {
        "hits": 3, "hits.before": 3, "seconds_saved": 0.003, "misses": 3, "misses.om_missing": 3,
    }  # fmt: skip


def test_a_fold_that_was_cut_off_counts_nothing_twice(cache: str, monkeypatch: pytest.MonkeyPatch) -> None:
    record(cache, event("hit", "a", "before"))
    with monkeypatch.context() as patch:
        patch.setattr(statistics, "_remove", lambda path: None)
        settle(cache)
        assert counts_by_key(cache)["a"]["hits"] == 1
        settle(cache)
        assert counts_by_key(cache)["a"]["hits"] == 1
    settle(cache)
    assert counts_by_key(cache)["a"]["hits"] == 1
    assert list(Path(stats_dir(cache)).glob("*.jsonl")) == []


def test_lines_that_are_none_and_a_damaged_summary_count_nothing(cache: str) -> None:
    record(cache, event("hit", "a", "before"))
    with open(log_path(stats_dir(cache)), "ab") as stream:
        stream.write(b'{"event":"hit","key":[1],"count":"x","seconds":1e999}\nnot json\n[1]\n\xff\n{"event":"mi')
    Path(stats_dir(cache), SUMMARY).write_text('{"schema":"gecli.cache-summary/1","days":{"x":[1]},"folded":["../a"]}')
    assert total(counts_by_key(cache))["hits"] == 1
    settle(cache)
    assert total(counts_by_key(cache))["hits"] == 1


def test_since_divides_by_time_and_old_days_become_one(cache: str, monkeypatch: pytest.MonkeyPatch) -> None:
    now = time.time()
    for days in (0, 2, KEPT_DAYS + 5, KEPT_DAYS + 9):
        with monkeypatch.context() as patch:
            patch.setattr(time, "time", lambda days=days: now - days * 86400)
            record(cache, event("hit", "a", "before"))
    recent = counts_by_key(cache, now - 86400)["a"]["hits"], counts_by_key(cache, now - 3 * 86400)["a"]["hits"]
    assert recent == (1, 2)
    settle(cache)
    assert counts_by_key(cache, now - 3 * 86400)["a"]["hits"] == 2
    assert counts_by_key(cache)["a"]["hits"] == 4
    days = json.loads(Path(stats_dir(cache), SUMMARY).read_text())["days"]
    assert (len(days), days[EARLIER]["a"]["hits"]) == (3, 2)


def test_zero_forgets_everything(cache: str) -> None:
    record(cache, event("hit", "a", "before"))
    settle(cache)
    record(cache, event("hit", "a", "before"))
    zero(cache)
    assert counts_by_key(cache) == {}


def test_a_long_log_is_folded_by_whoever_finds_it(cache: str) -> None:
    record(cache, event("hit", "a", "before"))
    path = Path(log_path(stats_dir(cache)))
    line = path.read_bytes()
    path.write_bytes(line * (MAX_LOG_BYTES // len(line) + 1))
    lines = MAX_LOG_BYTES // len(line) + 1
    record(cache, event("hit", "a", "before"))
    assert not path.exists()
    assert counts_by_key(cache)["a"]["hits"] == lines + 1


def test_writers_beside_a_folder_lose_no_event(cache: str) -> None:
    def write() -> None:
        for _ in range(200):
            record(cache, event("hit", "a", "before"))

    threads = [threading.Thread(target=write) for _ in range(4)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        fold(cache)
    for thread in threads:
        thread.join()
    settle(cache)
    assert counts_by_key(cache)["a"]["hits"] == 800


@pytest.mark.parametrize("kind", ["file", "pipe", "directory", "link"])
def test_what_cannot_be_written_is_not_counted_and_stops_nothing(kind: str, cache: str) -> None:
    folder = Path(stats_dir(cache))
    folder.parent.mkdir()
    if kind == "file":
        folder.write_text("")
    else:
        folder.mkdir()
        path = Path(log_path(str(folder)))
        {"pipe": lambda: os.mkfifo(path), "directory": path.mkdir, "link": lambda: path.symlink_to("/dev/full")}[kind]()
    record(cache, event("hit", "a", "before"))
    fold(cache)
    assert counts_by_key(cache) == {}


@pytest.mark.parametrize(("mode", "group"), [(0o755, 0), (0o2775, 0o20)])
def test_who_may_write_the_cache_may_count(mode: int, group: int, cache: str) -> None:
    os.chmod(cache, mode)
    before = os.umask(0o022)
    try:
        record(cache, event("hit", "a", "before"))
    finally:
        os.umask(before)
    folder = stats_dir(cache)
    for path in (os.path.dirname(folder), folder, log_path(folder)):
        assert os.stat(path).st_mode & 0o20 == group
