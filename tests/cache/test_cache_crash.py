"""A store that is cut off at any moment leaves a directory that works, and nothing compiled is lost."""

from __future__ import annotations

import contextlib
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from gecli.cache import store as store_module
from gecli.cache.candidate import Wanted
from gecli.cache.index import read_index
from gecli.cache.model_cache import CacheDir, look
from gecli.cache.recovery import adoptable, recover, remove_old_temporaries
from gecli.cache.stat_index import StatIndex
from gecli.cache.store import Written

KILLS = 30
WRITER = """
import sys
from gecli.cache.lock import KeyLock
from gecli.cache.recovery import append_record
from gecli.cache.sidecar import SCHEMA, Sidecar
from gecli.cache.stat_index import StatIndex
from gecli.cache.store import store_entry
directory = sys.argv[1]
def describe(stem, files):
    return Sidecar({"schema": SCHEMA, "graph_key": "k", "entry": stem, "files": files, "weights": [],
                    "fingerprint": {"combined": "sha256:a"}})
print("ready", flush=True)
while True:
    with KeyLock(directory, "k", timeout_s=5):
        store_entry(directory, "k", lambda stream: stream.write(b"IMOD" + bytes(100_000)), b"record", describe,
                    style="seed", mode=0o644, stats=StatIndex(),
                    append=lambda record: append_record(directory, record, 0o644))
"""


def test_a_killed_writer_leaves_a_usable_cache(tmp_path: Path, wanted: Callable[..., Wanted]) -> None:
    chance = random.Random(7)
    for _ in range(KILLS):
        process = subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path)], stdout=subprocess.PIPE)
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(chance.random() * 0.03)
        process.kill()
        process.wait(10)
        process.stdout.close()
        lookup = look(CacheDir(str(tmp_path)), "k", wanted(), StatIndex())
        assert all(each.reason == "never" for each in lookup.rejected)  # every indexed entry is whole
        recover(str(tmp_path), "k", StatIndex(), 0o644)
        content = read_index(str(tmp_path), "k")
        assert adoptable(str(tmp_path), "k", content, StatIndex()) == []
        for path in tmp_path.glob("k_*"):  # keep the directory small; what follows starts afresh
            path.unlink()
        (tmp_path / "k.idx").unlink(missing_ok=True)


@pytest.mark.parametrize("after", range(1, 7))
def test_what_was_complete_before_the_index_is_adopted(
    after: int,
    tmp_path: Path,
    store: Callable[..., Written],
    wanted: Callable[..., Wanted],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The n-th link, rename or sync fails as if power were lost there."""
    calls = 0

    class PowerLoss(BaseException):
        pass

    def limited(function: Callable[..., None]) -> Callable[..., None]:
        def run(*arguments: object) -> None:
            nonlocal calls
            calls += 1
            if calls == after:
                raise PowerLoss
            function(*arguments)

        return run

    with monkeypatch.context() as patch:
        patch.setattr(store_module, "publish", limited(store_module.publish))
        patch.setattr(store_module, "sync_directory", limited(store_module.sync_directory))
        patch.setattr(os, "rename", limited(os.rename))
        with contextlib.suppress(PowerLoss):
            store(rdcpkt=b"record")
    recover(str(tmp_path), "k", StatIndex(), 0o644)
    lookup = look(CacheDir(str(tmp_path)), "k", wanted(), StatIndex())
    assert (lookup.found is not None) == (after > 3)  # om, rdcpkt and sidecar were published
    assert store(name="b").stem.startswith("k_")


def test_temporary_files_go_when_their_writer_is_gone(tmp_path: Path) -> None:
    old = time.time() - 7200
    dead, alive = (tmp_path / f".k_20260415_022030.om.tmp.{pid}.ab12" for pid in (2**22 + 1, os.getpid()))
    young = tmp_path / f".k_20260415_022031.om.tmp.{2**22 + 1}.ab12"
    for path in (dead, alive, young):
        path.write_bytes(b"x")
    for path in (dead, alive):
        os.utime(path, (old, old))
    remove_old_temporaries(str(tmp_path), "k")
    assert sorted(tmp_path.iterdir()) == sorted([alive, young])


def test_a_full_disk_leaves_no_temporary_file(
    tmp_path: Path, store: Callable[..., Written], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        store()
    monkeypatch.undo()
    assert [path.name for path in tmp_path.iterdir()] == []
    store_module._full_directories.clear()
