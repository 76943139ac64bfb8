"""Whatever stands in place of a file of the cache: a compile gives the right model, ls and gc work, nobody waits."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from gecli.cache.cache_conf import BrokenConf, read_cache_conf
from gecli.cache.candidate import om_fault
from gecli.cache.command_memo import read_memo
from gecli.cache.index import UnreadableIndex, read_index
from gecli.cache.lock import inflight_records
from gecli.cache.model_cache import read_request_hint
from gecli.cache.sidecar import InvalidSidecar, read_sidecar
from gecli.cache.stat_index import read_rows
from gecli.cache.survey import survey

REPOSITORY = Path(__file__).resolve().parents[2]
MODEL = REPOSITORY / "samples/digits/digits.onnx"


def gecli(directory: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(REPOSITORY), "HOME": str(directory)}
    return subprocess.run(
        [sys.executable, "-m", "gecli", *words],
        cwd=directory, env=environment, capture_output=True, text=True, timeout=30,
    )  # fmt: skip


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("filled")
    (directory / "cache").mkdir()
    done = compiled(directory)
    assert done.returncode == 0, done.stderr
    return directory


def compiled(directory: Path) -> subprocess.CompletedProcess[str]:
    return gecli(directory, "compile", str(MODEL), "-o", "m.om", "--cache-dir", "cache", "--graph-key", "k")


def put(path: Path, what: str) -> None:
    path.unlink(missing_ok=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    if what == "pipe":
        os.mkfifo(path)
    elif what == "device":
        path.symlink_to("/dev/zero")
    elif what == "directory":
        path.mkdir()
    elif what == "loop":
        path.symlink_to(path.name)
    else:
        path.write_bytes(b"[" * 100_000 if what == "deep" else os.urandom(200))


@pytest.mark.parametrize(
    ("pattern", "what"),
    [
        ("k.idx", "pipe"),
        ("k.idx", "directory"),
        ("k_*.om", "device"),
        ("k_*.om", "directory"),
        ("k.lock", "pipe"),
        ("k_*.gecli.json", "pipe"),
        (".gecli/req/*", "pipe"),
        (".gecli/stat/c-*", "loop"),
        (".gecli/inflight/x.json", "device"),
        (".gecli/inflight/x.json", "deep"),
    ],
)
def test_a_compile_is_right_whatever_a_cache_file_became(pattern: str, what: str, filled: Path, tmp_path: Path) -> None:
    shutil.copytree(filled / "cache", tmp_path / "cache", symlinks=True)
    target = next(iter((tmp_path / "cache").glob(pattern)), tmp_path / "cache" / pattern)
    put(target, what)
    for words in (("ls", "--json"), ("gc", "--grace", "0s")):
        done = gecli(tmp_path, "cache", words[0], "--cache-dir", "cache", *words[1:])
        assert done.returncode == 0, done.stderr
        done = compiled(tmp_path)
        assert done.returncode == 0, done.stderr
        assert (tmp_path / "m.om").read_bytes() == (filled / "m.om").read_bytes()


@pytest.mark.parametrize("what", ["pipe", "device", "directory", "loop"])
def test_no_reader_waits_for_a_pipe_or_reads_a_device(what: str, tmp_path: Path) -> None:
    for name in ("cache.conf", "k.idx", "k_20260101_000000.gecli.json", ".gecli/req/aa", ".gecli/inflight/x.json"):
        put(tmp_path / name, what)
    with pytest.raises(BrokenConf):
        read_cache_conf(str(tmp_path))
    for read in (
        lambda: read_index(str(tmp_path), "k"),
        lambda: read_sidecar(str(tmp_path), "k", "k_20260101_000000"),
    ):
        with pytest.raises((OSError, UnreadableIndex, InvalidSidecar)):
            read()
    assert read_request_hint(str(tmp_path), "sha256:aa") is None
    assert inflight_records(str(tmp_path)) == []
    assert read_memo(str(tmp_path / "k.idx")) is None
    assert read_rows(str(tmp_path / "k.idx")) == []
    assert om_fault(str(tmp_path / "k.idx"))


def test_files_that_vanish_while_they_are_listed_are_not_missed(
    filled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process renames hints and collects entries all the time."""
    shutil.copytree(filled / "cache", tmp_path / "cache")
    real = os.lstat

    def vanished(path: str, **keywords: object) -> os.stat_result:
        if str(path).endswith((".om", ".idx")) or "/stat/" in str(path):
            raise FileNotFoundError(2, "No such file or directory", path)
        return real(path, **keywords)  # type: ignore[arg-type]  # passed on as they came

    monkeypatch.setattr(os, "lstat", vanished)
    assert [row.key for row in survey(str(tmp_path / "cache")).rows] == ["k"]
