"""The lock of a key excludes other processes, threads and GE, and waits no longer than allowed."""

from __future__ import annotations

import fcntl
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from gecli.cache.lock import KeyLock, LockTimeout, holder_of, inflight_records, is_busy, wait_for_writers

HOLD = """
import sys, time
from gecli.cache.lock import KeyLock
with KeyLock(sys.argv[1], "k", timeout_s=5):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def holder(tmp_path: Path):  # type: ignore[no-untyped-def]  # a generator fixture of a process
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None and process.stdin is not None
    assert process.stdout.readline() == "held\n"
    yield process
    process.stdin.close()
    process.wait(10)
    process.stdout.close()


def test_a_second_process_waits_and_is_told_who_holds_the_key(tmp_path: Path, holder: subprocess.Popen[str]) -> None:
    told: list[str] = []
    start = time.monotonic()
    lock = KeyLock(str(tmp_path), "k", timeout_s=1.2, on_wait=lambda seconds, name: told.append(name))
    with pytest.raises(LockTimeout, match=f"pid {holder.pid}"), lock:
        pass
    assert 1.0 < time.monotonic() - start < 5
    assert told and f"pid {holder.pid}" in told[0]


def test_a_timeout_of_zero_does_not_wait(tmp_path: Path, holder: subprocess.Popen[str]) -> None:
    start = time.monotonic()
    with pytest.raises(LockTimeout), KeyLock(str(tmp_path), "k", timeout_s=0):
        pass
    assert time.monotonic() - start < 1
    assert is_busy(str(tmp_path), "k")


def test_other_keys_run_in_parallel(tmp_path: Path, holder: subprocess.Popen[str]) -> None:
    with KeyLock(str(tmp_path), "other", timeout_s=0):
        assert not is_busy(str(tmp_path), "free")


def test_a_reader_waits_for_the_writer_only_so_long(tmp_path: Path, holder: subprocess.Popen[str]) -> None:
    assert not wait_for_writers(str(tmp_path), "k", 0.2)


def test_the_lock_is_flock_on_an_empty_file_that_stays(tmp_path: Path) -> None:
    with KeyLock(str(tmp_path), "k", timeout_s=0), open(tmp_path / "k.lock") as peer, pytest.raises(BlockingIOError):
        fcntl.flock(peer, fcntl.LOCK_EX | fcntl.LOCK_NB)  # as GE takes it
    assert (tmp_path / "k.lock").read_bytes() == b""
    with open(tmp_path / "k.lock") as peer:
        fcntl.flock(peer, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_the_same_thread_asking_twice_is_an_error_and_no_deadlock(tmp_path: Path) -> None:
    with (
        KeyLock(str(tmp_path), "k", timeout_s=0),
        pytest.raises(RuntimeError, match="already"),
        KeyLock(str(tmp_path), "k", timeout_s=60),
    ):
        pass


def test_two_threads_exclude_each_other(tmp_path: Path) -> None:
    outcome: list[str] = []

    def other() -> None:
        try:
            with KeyLock(str(tmp_path), "k", timeout_s=0):
                outcome.append("held")
        except LockTimeout:
            outcome.append("timeout")

    with KeyLock(str(tmp_path), "k", timeout_s=0):
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
    assert outcome == ["timeout"]


def test_the_record_of_the_holder_goes_with_the_lock(tmp_path: Path) -> None:
    with KeyLock(str(tmp_path), "k", timeout_s=0):
        assert [record["key"] for record in inflight_records(str(tmp_path))] == ["k"]
        assert holder_of(str(tmp_path), "k").startswith("pid ")
    assert inflight_records(str(tmp_path)) == []
    assert holder_of(str(tmp_path), "k") == "another process"
