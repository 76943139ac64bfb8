"""Broken OM files by the thousand: every view and every run ends with an exit status and words, in time and memory."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))

from om_corpus import load_seeds  # the folder is on the path only now
from om_mutations import CHANGES, Mutator
from om_worker import RUNS, VIEWS, judged, words_for

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parents[1]
NORMAL, PROCESSES, LONG = 5_000, 40, 200_000
LONG_PROCESSES = 500
LONG_SEEDS = 16


def environment(home: Path) -> dict[str, str]:
    kept = {name: os.environ[name] for name in ("PATH", "SYSTEMROOT") if name in os.environ}
    return {**kept, "PYTHONPATH": str(REPOSITORY), "HOME": str(home)}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Own compiled files and made variants; the real ones are beside the tests."""
    directory = tmp_path_factory.mktemp("corpus")
    words = [sys.executable, str(HERE / "om_corpus.py"), str(directory)]
    done = subprocess.run(words, env=environment(directory), capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return directory


def worked(corpus: Path, directory: Path, seed: str, count: int) -> dict[str, Any]:
    """What one worker process reports; it must end by itself."""
    words = [sys.executable, str(HERE / "om_worker.py"), str(corpus), seed, str(count)]
    done = subprocess.run(
        words, cwd=directory, env=environment(directory), capture_output=True, text=True, timeout=600 + count / 5
    )
    assert done.returncode == 0, done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def judge(report: dict[str, Any], count: int) -> None:
    assert not report["failures"], report["failures"][:3]
    statuses = report["statuses"]
    assert sum(statuses.values()) == report["count"] == count
    # A change that breaks nothing, or refuses everything at the door, proves nothing.
    assert statuses["inspect-om 0"] > count / 5 and statuses["inspect-om 3"] > count / 5
    assert statuses["run 0"] > count / 100 and statuses["run 3"] > count / 20


def test_changed_files_never_stop_the_command(corpus: Path, tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("one", "two")]
    for folder in folders:
        folder.mkdir()
    with ThreadPoolExecutor(2) as pool:
        reports = list(pool.map(lambda folder: worked(corpus, folder, folder.name, NORMAL // 2), folders))
    for report in reports:
        judge(report, NORMAL // 2)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(LONG_SEEDS))
def test_changed_files_never_stop_the_command_in_the_long_run(corpus: Path, tmp_path: Path, seed: int) -> None:
    judge(worked(corpus, tmp_path, f"long-{seed}", LONG // LONG_SEEDS), LONG // LONG_SEEDS)


@pytest.mark.parametrize("count", [PROCESSES, pytest.param(LONG_PROCESSES, marks=pytest.mark.slow)])
def test_changed_files_never_stop_the_command_as_a_process(count: int, corpus: Path, tmp_path: Path) -> None:
    mutator = Mutator(load_seeds(corpus))

    def ended(number: int) -> str:
        what, data, rng = mutator.case(f"process:{number}")
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / "case.om").write_bytes(data)
        words = words_for(rng, what)
        done = subprocess.run(
            [sys.executable, "-m", "gecli", *words],
            cwd=folder, env=environment(folder), capture_output=True, encoding="utf-8", errors="replace", timeout=120,
        )  # fmt: skip
        fault = judged(words, done.returncode, done.stdout, done.stderr, 0, len(data))
        return f"{what}, {words}: {fault}" if fault else ""

    with ThreadPoolExecutor(2) as pool:
        faults = [fault for fault in pool.map(ended, range(count)) if fault]
    assert not faults, faults


def test_a_case_is_made_again_from_its_number(corpus: Path) -> None:
    one, two = Mutator(load_seeds(corpus)), Mutator(load_seeds(corpus))
    for number in ("a:1", "a:2", "long-3:777"):
        assert one.case(number)[:2] == two.case(number)[:2]


def test_every_kind_of_change_every_file_and_every_view_has_its_turn(corpus: Path) -> None:
    seeds = load_seeds(corpus)
    mutator = Mutator(seeds)
    cases = [mutator.case(f"turns:{number}") for number in range(NORMAL)]
    assert {what for what, _, _ in cases} >= {f"{change.__name__} of half.om" for change in CHANGES}
    assert {what.rpartition(" ")[2] for what, _, _ in cases} == {seed.name for seed in seeds}
    rng = random.Random(1)
    asked = {tuple(words_for(rng, "half.om")) for _ in range(3000)}
    assert {words[2:] for words in asked if words[0] == "run"} == set(RUNS)
    assert {words[2:] for words in asked if words[0] == "inspect-om"} >= set(VIEWS)
