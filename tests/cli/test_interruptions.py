"""Commands that are stopped at any moment: the status of the signal, nothing half written, and the next one works."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
DIGITS = REPOSITORY / "samples/digits/digits.onnx"
TRAIN = REPOSITORY / "samples/train/conv_train.json"
COMPILE = ["compile", str(DIGITS), "-o", "digits.om", "--cache-dir", "cache", "--graph-key", "k"]
COLLECT = ["cache", "gc", "--cache-dir", "cache", "--all", "--yes"]
TRAINING = ["run", "train.om", "--init", "zero", "--save-vars", "vars.npz", "-o", "out"]
LONGEST_S = {"compile": 0.8, "cache": 0.3, "run": 0.6}


def start(words: list[str], directory: Path) -> subprocess.Popen[str]:
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(REPOSITORY), "HOME": str(directory)}
    return subprocess.Popen(
        [sys.executable, "-m", "gecli", *words],
        cwd=directory, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def finish(words: list[str], directory: Path) -> str:
    process = start(words, directory)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    return out


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("prepared")
    (directory / "cache").mkdir()
    finish(COMPILE, directory)
    finish(["compile", str(TRAIN), "-o", "train.om", "--train"], directory)
    finish(TRAINING, directory)
    return directory


def is_begun(process: subprocess.Popen[str]) -> bool:
    """Wait until the command has installed its own handler of SIGTERM; before, Python itself may answer a signal."""
    while process.poll() is None:
        status = Path(f"/proc/{process.pid}/status").read_text()
        caught = next(line for line in status.splitlines() if line.startswith("SigCgt"))
        if int(caught.split()[1], 16) >> (signal.SIGTERM - 1) & 1:
            return True
        time.sleep(0.002)
    return False


def check_that_nothing_is_lost(words: list[str], prepared: Path, directory: Path, *, clean: bool) -> None:
    left = [str(path) for path in directory.rglob("*.tmp*") if path.name not in ("tmp",)]
    inflight = list((directory / "cache/.gecli/inflight").glob("*"))
    assert not clean or (left, inflight) == ([], [])
    if words[0] == "run":
        with np.load(directory / "vars.npz") as variables:
            assert all(variables[name].size for name in variables.files)
        finish(words, directory)
        return
    good = (prepared / "digits.om").read_bytes()
    assert not (directory / "digits.om").exists() or (directory / "digits.om").read_bytes() == good
    finish(COMPILE, directory)
    assert (directory / "digits.om").read_bytes() == good
    listed = json.loads(finish(["cache", "ls", "--cache-dir", "cache", "--json"], directory))
    assert {entry["state"] for entry in listed["entries"]} == {"ok"}


def stop_at(words: list[str], number: signal.Signals, delay_s: float, prepared: Path, directory: Path) -> int:
    (directory / "cache").mkdir(parents=True)
    if words is COLLECT:
        finish(COMPILE, directory)
    (directory / "train.om").write_bytes((prepared / "train.om").read_bytes())
    (directory / "train.rdcpkt").write_bytes((prepared / "train.rdcpkt").read_bytes())
    (directory / "vars.npz").write_bytes((prepared / "vars.npz").read_bytes())
    process = start(words, directory)
    if number is not signal.SIGKILL:
        is_begun(process)
    time.sleep(delay_s)
    process.send_signal(number)
    _, err = process.communicate(timeout=60)
    assert "Traceback" not in err
    assert "Exception ignored" not in err
    return process.returncode


@pytest.mark.parametrize("part", [0.1, 0.5, 0.9])
@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_a_compile_with_its_status_and_leaves_nothing(
    number: signal.Signals, status: int, part: float, prepared: Path, tmp_path: Path
) -> None:
    directory = tmp_path / "work"
    ended = stop_at(COMPILE, number, part * LONGEST_S["compile"] / 2, prepared, directory)
    assert ended in (status, 0, -number)  # 0 and -number: it came when all was done
    check_that_nothing_is_lost(COMPILE, prepared, directory, clean=True)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("words", [COMPILE, COLLECT, TRAINING], ids=["compile", "gc", "save-vars"])
def test_a_hundred_stops_at_random_moments_lose_nothing(
    words: list[str], number: signal.Signals, prepared: Path, tmp_path: Path
) -> None:
    chance = random.Random(11)
    for turn in range(100):
        directory = tmp_path / str(turn)
        ended = stop_at(words, number, chance.random() * LONGEST_S[words[0]], prepared, directory)
        assert ended in ({signal.SIGINT: 130, signal.SIGTERM: 143}.get(number), 0, -number)
        check_that_nothing_is_lost(words, prepared, directory, clean=number is not signal.SIGKILL)


@pytest.mark.slow
def test_compiles_and_collections_at_once_give_the_right_model_every_time(prepared: Path, tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir()
    finish(COMPILE, tmp_path)
    good = (prepared / "digits.om").read_bytes()
    for _ in range(4):
        running = [start(COLLECT if turn % 4 == 3 else COMPILE, tmp_path) for turn in range(8)]
        for process in running:
            _, err = process.communicate(timeout=120)
            assert process.returncode == 0, err
        assert (tmp_path / "digits.om").read_bytes() == good
    assert not list(tmp_path.rglob("*.tmp*"))
    finish(COMPILE, tmp_path)
    listed = json.loads(finish(["cache", "ls", "--cache-dir", "cache", "--json"], tmp_path))
    assert [entry["state"] for entry in listed["entries"]] == ["ok"]


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_stop_inside_a_callback_that_swallows_exceptions_still_stops(number: int, status: int) -> None:
    code = f"""
import os, sys, time, weakref
from gecli.cli import app
class Thing: pass
def swallowed(ref):
    os.kill(os.getpid(), {number})
    time.sleep(0.1)
def work(argv):
    thing = Thing()
    ref = weakref.ref(thing, swallowed)
    del thing
    time.sleep(20)
    return 0
app._run = work
sys.exit(app.run([]))
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=REPOSITORY, capture_output=True, text=True, timeout=15)
    assert (done.returncode, "Traceback" in done.stderr) == (status, False), done.stderr
