"""Many compiles, collections and checks in one cache directory, some of them killed.

No wrong model, no unreadable index, no lost entry, no rest.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import pytest

from gecli.cache.layout import OM, entry_path
from gecli.cache.sidecar import read_sidecar
from tests.conftest import REPOSITORY

DIGITS = REPOSITORY / "samples/digits/digits.onnx"
COLLECTIONS = (["--grace", "0s"], ["--all"], ["--keep-last", "1"], [])
WEIGHTS = ("none", "split", "combined")
CHECKS = (["--json"], ["--json", "--fast"], ["--json", "--repair"])
COLLECTS, CHECKS_ALL = 0, -1  # in place of the batch of a compile


class Running(NamedTuple):
    """A process: the batch that it compiles, or what it does instead, and when it is to be killed (0: never)."""

    process: subprocess.Popen[str]
    batch: int
    output: Path
    end_s: float


def start(directory: Path, *words: str) -> subprocess.Popen[str]:
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(REPOSITORY), "HOME": str(directory)}
    return subprocess.Popen(
        [sys.executable, "-m", "gecli", *words],
        cwd=directory, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def compiling(directory: Path, output: Path, batch: int, *words: str) -> subprocess.Popen[str]:
    """Batches from 10 on are those of one digit, with external weights: in files of their own, or from 20 on in one."""
    shape = f"image:{batch % 10},1,8,8"
    words = (*words, *(("--external-weight", WEIGHTS[batch // 10]) if batch >= 10 else ()))
    return start(directory, "compile", str(DIGITS), "-o", str(output), "--input-shape", shape, "--quiet", *words)


def finished(process: subprocess.Popen[str]) -> None:
    _, err = process.communicate(timeout=120)
    assert process.returncode == 0, err


def expected_om(output: Path, batch: int) -> Path:
    """The same model, compiled before and alone."""
    return output.parents[1] / f"alone{batch}/m.om"


def weights_beside(om: Path) -> dict[str, str]:
    return {path.name: digest(path) for path in (om.parent / "weight").glob("*")}


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def judge(each: Running, expected: dict[int, str]) -> None:
    """A process that was not killed has done its work; an output, whoever was killed, is the right one."""
    out, err = each.process.communicate(timeout=120)
    if each.end_s == 0 and each.batch == CHECKS_ALL:
        judge_check(each.process.returncode, out, err)
    elif each.end_s == 0:
        assert (each.process.returncode, "error" in err) == (0, False), err
        assert each.batch == COLLECTS or each.output.exists()
    if each.output.exists():
        assert digest(each.output) == expected[each.batch]
        for name, wanted in weights_beside(expected_om(each.output, each.batch)).items():
            assert digest(each.output.parent / "weight" / name) == wanted, name


def judge_check(status: int, out: str, err: str) -> None:
    """All that a check may find is what a killed compile left.

    That is an entry which is complete before the index names it, and a `meta.json` that was about to be written: it is
    a hint, written in place because GE locks this very file.
    """
    assert (status in (0, 1), err) == (True, ""), err
    document = json.loads(out)
    assert {each["kind"] for each in document["problems"]} <= {"orphan", "meta-invalid"}, document
    assert status == (0 if document["well"] else 1)


def whirl(directory: Path, batches: dict[str, list[int]], expected: dict[int, str], slots: int, lasts_s: float) -> None:
    """Keep `slots` compiles of these keys running beside a collection and a check; kill a third of all processes."""
    chance = random.Random(5)
    end_s = time.monotonic() + lasts_s
    running: list[Running] = []
    turn = 0
    while running or time.monotonic() < end_s:
        for each in running:
            if each.end_s and time.monotonic() > each.end_s:
                each.process.kill()
        for each in [each for each in running if each.process.poll() is not None]:
            running.remove(each)
            judge(each, expected)
        if len(running) < slots + 2 and time.monotonic() < end_s:
            turn += 1
            dies_s = time.monotonic() + chance.random() if chance.random() < 1 / 3 else 0.0
            output = directory / str(turn) / "m.om"  # the name stands in the model
            if not any(each.batch == COLLECTS for each in running):
                words = chance.choice(COLLECTIONS)
                process, batch = start(directory, "cache", "gc", "--cache-dir", "cache", "--yes", *words), COLLECTS
            elif not any(each.batch == CHECKS_ALL for each in running):
                words = chance.choice(CHECKS)
                process, batch = start(directory, "cache", "verify", "--cache-dir", "cache", *words), CHECKS_ALL
            else:
                key = chance.choice(sorted(batches))
                batch = chance.choice(batches[key])
                words = ["--cache-dir", "cache", "--graph-key", key, "--lock-timeout", "inf"]
                process = compiling(directory, output, batch, *words)
            running.append(Running(process, batch, output, dies_s))
        time.sleep(0.005)


def check_the_cache(directory: Path, batches: dict[str, list[int]], expected: dict[int, str]) -> None:
    """After the next gc every entry is whole and known, nothing half written is left, and each key compiles."""
    cache = directory / "cache"
    finished(start(directory, "cache", "gc", "--cache-dir", "cache", "--grace", "0s", "--yes"))
    assert [*cache.rglob("*.tmp*"), *cache.rglob("inflight/*")] == []
    finished(start(directory, "cache", "verify", "--cache-dir", "cache"))  # 0: there is nothing to say
    finished(start(directory, "cache", "ls", "--cache-dir", "cache", "--json"))
    check_the_entries(cache)
    for key, own in batches.items():
        for batch in own:
            output = directory / f"last-{key}-{batch}/m.om"
            finished(compiling(directory, output, batch, "--cache-dir", "cache", "--graph-key", key, "--require-cache"))
            assert digest(output) == expected[batch]
    check_the_entries(cache)


def check_the_entries(cache: Path) -> None:
    """The indexes name all that is there and nothing else; every model has the digest that it was stored with."""
    named = set()
    for index in cache.glob("*.idx"):
        for record in json.loads(index.read_bytes())["cache_file_list"]:
            stem = record["cache_file_name"].removesuffix(".om")
            sidecar = read_sidecar(str(cache), record["graph_key"], stem)
            assert sidecar is not None, stem
            facts = sidecar.file_facts("om")
            assert facts is not None
            assert digest(Path(entry_path(str(cache), stem, OM))) == facts[1], stem
            named.add(stem)
    assert {path.stem for path in cache.glob("*.om")} == named
    assert {path.name.removesuffix(".gecli.json") for path in cache.glob("*.gecli.json")} == named


def whirled(directory: Path, batches: dict[str, list[int]], slots: int, lasts_s: float) -> None:
    (directory / "cache").mkdir()
    expected = {}
    for batch in sorted({batch for own in batches.values() for batch in own}):
        finished(compiling(directory, directory / f"alone{batch}/m.om", batch))
        expected[batch] = digest(directory / f"alone{batch}/m.om")
    words = ("--cache-dir", "cache", "--graph-key", "a")
    finished(compiling(directory, directory / "first/m.om", batches["a"][0], *words))  # gc asks for a cache
    whirl(directory, batches, expected, slots, lasts_s)
    check_the_cache(directory, batches, expected)


def test_six_processes_with_three_keys_and_a_collector(tmp_path: Path) -> None:
    whirled(tmp_path, {"a": [1], "b": [2, 12], "c": [23]}, 6, 5.0)


@pytest.mark.slow
def test_sixteen_processes_with_four_keys_that_change_their_models(tmp_path: Path) -> None:
    whirled(tmp_path, {"a": [1], "b": [2, 13], "c": [23, 1], "d": [11, 22, 3]}, 16, 60.0)
