"""How long the cheapest answers take, against a Python that does nothing."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

import gecli

TIMES_OF_PASS = 5  # the bound of the design; click alone would cost four


def fastest_s(words: list[str], env: dict[str, str], rounds: int = 7) -> float:
    """The fastest of several runs: the machine may be busy with other things."""
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        subprocess.run([sys.executable, *words], env=env, stdout=subprocess.DEVNULL, check=True)
        times.append(time.perf_counter() - start)
    return min(times)


@pytest.mark.parametrize("line", ["--version", "--help", "compile --help"])
def test_a_cheap_answer_takes_at_most_five_times_an_empty_python(line: str, tmp_path: Path) -> None:
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    root = str(Path(gecli.__file__).parent.parent)
    env = {**kept, "PYTHONPATH": root, "PYTHONPYCACHEPREFIX": str(tmp_path)}
    words = ["-m", "gecli", *line.split()]
    fastest_s(words, env, rounds=1)  # compiles the bytecode
    assert fastest_s(words, env) <= TIMES_OF_PASS * fastest_s(["-c", "pass"], env)
