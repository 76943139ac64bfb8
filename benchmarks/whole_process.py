"""Timing of whole processes: wall, cpu and peak memory of one child, commands run in turn, ratios by round."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

# Both change numpy's matrix product by a factor of two, so a measurement never inherits them.
BLAS_OVERRIDES = ("OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE")
TIMED_OUT = 124  # as timeout(1)


@dataclass(frozen=True, slots=True)
class Run:
    """One finished process, as the operating system accounts for it."""

    wall_s: float
    cpu_s: float
    peak_mb: float
    status: int
    stdout: str
    stderr: str

    @property
    def failure(self) -> str:
        """Why the process failed, in one line; empty for a good one."""
        if self.status == 0:
            return ""
        if self.status == TIMED_OUT:
            return "timed out"
        lines = [line.strip() for line in self.stderr.splitlines() if line.strip()]
        reason = next((line for line in lines if line.startswith("error")), lines[-1] if lines else "no message")
        return f"exit {self.status}: {reason[:120]}"


Job = Callable[[], Run]


def environment(threads: int, *import_paths: Path) -> dict[str, str]:
    """The environment of every child: nothing that changes the numbers, one number of threads for all."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if name not in (*BLAS_OVERRIDES, "PYTHONDONTWRITEBYTECODE") and not name.startswith("GECLI_")
    }
    paths = [*map(str, import_paths), *filter(None, [os.environ.get("PYTHONPATH")])]
    count = str(threads)
    return {
        **kept,
        "PYTHONPATH": os.pathsep.join(paths),
        "OMP_NUM_THREADS": count,
        "OPENBLAS_NUM_THREADS": count,
        "GECLI_THREADS": count,
    }


def run_process(words: Sequence[str], env: Mapping[str, str], cwd: Path, timeout_s: float = 600) -> Run:
    """Run a command; its wall time is from just before the start to just after the reap.

    A child's peak memory cannot read below the size of its parent, so the caller keeps numpy out of its process.
    """
    # Files, not pipes: no reader competes with the child for a core.
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        start = time.perf_counter()
        child = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=out, stderr=err, env=dict(env), cwd=cwd, start_new_session=True
        )
        expired = threading.Event()
        timer = threading.Timer(timeout_s, _kill, (child.pid, expired))
        timer.daemon = True
        timer.start()
        _, wait_status, usage = os.wait4(child.pid, 0)
        wall_s = time.perf_counter() - start
        timer.cancel()
        child.returncode = os.waitstatus_to_exitcode(wait_status)
        out.seek(0)
        err.seek(0)
        return Run(
            wall_s,
            usage.ru_utime + usage.ru_stime,
            usage.ru_maxrss / 1024,  # Linux counts in KiB
            TIMED_OUT if expired.is_set() else child.returncode,
            out.read().decode(errors="replace"),
            err.read().decode(errors="replace"),
        )


def _kill(pid: int, expired: threading.Event) -> None:
    expired.set()
    try:
        os.killpg(pid, signal.SIGKILL)
    except ProcessLookupError:
        return  # it ended by itself just now


def interleave(jobs: Mapping[str, Job], rounds: int, warm_up: int = 1) -> dict[str, list[Run]]:
    """Run A B C A B C ...; the warm-up rounds are not kept, a job that failed is not run again.

    A failed job's only run is the failed one.
    """
    runs: dict[str, list[Run]] = {name: [] for name in jobs}
    failed: set[str] = set()
    for number in range(warm_up + rounds):
        for name, job in jobs.items():
            if name in failed:
                continue
            run = job()
            if run.status != 0:
                failed.add(name)
                runs[name] = [run]
            elif number >= warm_up:
                runs[name].append(run)
    return runs
