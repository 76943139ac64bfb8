"""Killed just before and just after every write, sync, rename and removal: what is left is old or new, and usable."""

from __future__ import annotations

import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY

DIGITS = REPOSITORY / "samples/digits/digits.onnx"
TRAIN = REPOSITORY / "samples/train"
CACHE = ("--cache-dir", "cache", "--auto-graph-key", "--cache-create")

# Runs gecli and kills it at the k-th change of a file: `before` the call or after it. Every write is flushed at once.
KILLER = """
import builtins, io, os, signal, sys
k, when = int(sys.argv[1]), sys.argv[2]
del sys.argv[1:3]
count = 0

def counted(real, after=lambda: None):
    def call(*args, **more):
        global count
        count += 1
        mine = count == k
        if mine and when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        result = real(*args, **more)
        after()
        if mine:
            os.kill(os.getpid(), signal.SIGKILL)
        return result
    return call

def opening(real):
    def call(*args, **more):
        stream = real(*args, **more)
        if isinstance(stream, (io.BufferedWriter, io.BufferedRandom, io.TextIOWrapper)) and stream.fileno() > 2:
            stream.write = counted(stream.write, stream.flush)
        return stream
    return call

for name in ("write", "pwrite", "fsync", "replace", "rename", "link", "unlink", "remove", "copy_file_range", "utime"):
    if hasattr(os, name):
        setattr(os, name, counted(getattr(os, name)))
builtins.open = io.open = opening(io.open)
os.fdopen = opening(os.fdopen)
from gecli.__main__ import main
sys.exit(main())
"""


def killed(directory: Path, k: int, when: str, *words: str) -> bool:
    """Run gecli in `directory` and kill it at change `k`; False when it ended before."""
    line = [sys.executable, "-c", KILLER, str(k), when, *words]
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY), "HOME": str(directory)}
    done = subprocess.run(line, cwd=directory, env=environment, capture_output=True, timeout=60)
    assert done.returncode in (0, -signal.SIGKILL), done.stderr
    return done.returncode != 0


def points(directory: Path, prepare: Callable[[Path], None], *words: str) -> Iterator[Path]:
    """A prepared directory in which the command was killed, once for every change and side of it."""
    for k in itertools.count(1):
        for when in ("before", "after"):
            place = directory / f"{k}{when}"
            place.mkdir()
            prepare(place)
            ended = not killed(place, k, when, *words)
            yield place
            shutil.rmtree(place)
            if ended:  # by itself: there is no change number k
                assert k > 3
                return


def compiled(gecli: Callable, directory: Path, name: str, batch: int, *words: str) -> bytes:
    shape = f"image:{batch},1,8,8"
    done = gecli("compile", str(DIGITS), "-o", name, "--input-shape", shape, *words, cwd=directory)
    assert done.returncode == 0, done.stderr
    return (directory / f"{name}.om").read_bytes()


def check_no_rest(place: Path) -> None:
    """No temporary file and no record of a running compile is there."""
    assert [*place.rglob("*.tmp*"), *place.rglob("inflight/*")] == []


def check_the_cache(gecli: Callable, place: Path) -> list[str]:
    """The cache can be read and holds whole entries; after a gc nothing half written is left. The keys in it."""
    shown = gecli("cache", "ls", "--cache-dir", "cache", "--json", cwd=place)
    assert shown.returncode == 0, f"{place.name} {shown.stderr}"
    entries = json.loads(shown.stdout)["entries"]
    assert {entry["state"] for entry in entries} <= {"ok", "orphan"}, place.name  # orphan: complete, adopted next
    swept = gecli("cache", "gc", "--cache-dir", "cache", "--grace", "0s", "--yes", cwd=place)
    assert swept.returncode == 0, f"{place.name} {swept.stderr}"
    check_no_rest(place / "cache")
    return sorted(entry["key"] for entry in entries)


@pytest.mark.slow
def test_a_compile_with_a_cache(gecli: Callable, tmp_path: Path) -> None:
    made = tmp_path / "made"
    made.mkdir()
    old = compiled(gecli, made, "d", 1, *CACHE)
    keys = check_the_cache(gecli, made)
    new = compiled(gecli, made, "d", 2)

    def prepare(place: Path) -> None:
        shutil.copytree(made / "cache", place / "cache")
        (place / "d.om").write_bytes(old)

    line = ("compile", str(DIGITS), "-o", "d", "--input-shape", "image:2,1,8,8", *CACHE)
    seen = set()
    for place in points(tmp_path, prepare, *line):
        left = (place / "d.om").read_bytes()
        assert left in (old, new), place.name
        seen.add(left)
        assert set(keys) <= set(check_the_cache(gecli, place)), place.name
        assert compiled(gecli, place, "d", 2, *CACHE) == new, place.name
        check_no_rest(place)
    assert seen == {old, new}


@pytest.mark.slow
def test_a_session_with_a_variable_record(gecli: Callable, tmp_path: Path) -> None:
    made = tmp_path / "made"
    made.mkdir()
    line = ("compile", str(TRAIN / "conv_train.json"), "-o", "t", "--train")
    names = ("t.om", "t.rdcpkt")
    versions: list[dict[str, bytes]] = []
    for words in (("--format-policy", "origin"), ()):
        assert gecli(*line, *words, cwd=made).returncode == 0
        versions.append({name: (made / name).read_bytes() for name in names})

    def prepare(place: Path) -> None:
        for name in names:
            (place / name).write_bytes(versions[0][name])

    for place in points(tmp_path, prepare, *line):
        for name in names:
            assert (place / name).read_bytes() in (versions[0][name], versions[1][name]), f"{place.name} {name}"
        assert gecli(*line, cwd=place).returncode == 0
        assert {name: (place / name).read_bytes() for name in names} == versions[1]
        check_no_rest(place)


@pytest.mark.slow
def test_a_garbage_collection(gecli: Callable, tmp_path: Path) -> None:
    made = tmp_path / "made"
    made.mkdir()
    models = {batch: compiled(gecli, made, "d", batch, *CACHE) for batch in (1, 2)}

    def prepare(place: Path) -> None:
        shutil.copytree(made / "cache", place / "cache")

    for place in points(tmp_path, prepare, "cache", "gc", "--cache-dir", "cache", "--all", "--yes"):
        check_the_cache(gecli, place)
        for batch, model in models.items():
            assert compiled(gecli, place, "d", batch, *CACHE) == model, place.name
        assert gecli("cache", "gc", "--cache-dir", "cache", "--all", "--yes", cwd=place).returncode == 0, place.name
        check_no_rest(place)


@pytest.mark.slow
def test_saved_variables(gecli: Callable, tmp_path: Path) -> None:
    made = tmp_path / "made"
    made.mkdir()
    assert gecli("compile", str(TRAIN / "conv_train.json"), "-o", "t", "--train", cwd=made).returncode == 0
    line = ("run", str(made / "t.om"), "--seed", "1", "--quiet", "--save-vars", "v.npz")
    assert gecli(*line, "--seed", "2", cwd=made).returncode == 0
    old = (made / "v.npz").read_bytes()
    assert gecli(*line, cwd=made).returncode == 0
    new = (made / "v.npz").read_bytes()
    assert old != new

    def prepare(place: Path) -> None:
        (place / "v.npz").write_bytes(old)

    for place in points(tmp_path, prepare, *line):
        assert (place / "v.npz").read_bytes() in (old, new), place.name
        assert gecli(*line, "--load-vars", "v.npz", cwd=place).returncode == 0, place.name
        check_no_rest(place)
