"""`make test` that is killed leaves no process behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from tests.conftest import REPOSITORY

TEST = """
import os, pathlib, time

def test_waits():
    pathlib.Path("started").write_text(str(os.getpid()))
    time.sleep(50)
"""
# As make does it: the child is pytest, whose workers are its children.
MAKE = """
import subprocess, sys
options = ["-n", "1", "-q", "-c", "own.ini", "-p", "tests.conftest"]
subprocess.run([sys.executable, "-m", "pytest", *options, "test_waits.py"])
"""


def test_workers_end_when_make_is_killed(tmp_path: Path) -> None:
    (tmp_path / "test_waits.py").write_text(TEST)
    (tmp_path / "own.ini").write_text("[pytest]\n")
    environment = {**os.environ, "MAKELEVEL": "1", "PYTHONPATH": str(REPOSITORY)}
    for name in ("PYTEST_XDIST_WORKER", "PYTEST_XDIST_WORKER_COUNT", "PYTEST_ADDOPTS"):
        environment.pop(name, None)
    make = subprocess.Popen(
        [sys.executable, "-c", MAKE], cwd=tmp_path, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    deadline = time.monotonic() + 40
    while not (tmp_path / "started").exists():
        assert make.poll() is None and time.monotonic() < deadline
        time.sleep(0.1)
    make.send_signal(signal.SIGKILL)
    killed = time.monotonic()
    make.communicate(timeout=30)  # every descendant holds the other end of this pipe
    assert time.monotonic() - killed < 20
