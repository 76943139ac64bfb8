"""--threads: how many threads the steps of a model use."""

from __future__ import annotations

import os

from gecli.ops.thread_count import set_intra_op_threads

BLAS_VARIABLES = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")


def use_threads(threads: int | None) -> None:
    """Let a step use `threads` threads (0 or None: as many as the environment or else the cores allow)."""
    count = threads or min((usable_cores(), *_asked_of_blas()))
    keep_blas_to_one_thread()
    set_intra_op_threads(count)


def keep_blas_to_one_thread() -> None:
    """Whatever BLAS numpy is built with: one thread (intra_op.py says why). It counts only before numpy is imported."""
    for name in BLAS_VARIABLES:
        os.environ[name] = "1"


def usable_cores() -> int:
    """The cores this process may run on."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on macOS
        return os.cpu_count() or 1


def _asked_of_blas() -> list[int]:
    """The thread counts that the variables of the BLAS libraries ask for."""
    values = (os.environ.get(name, "").partition(",")[0] for name in BLAS_VARIABLES)
    return [int(value) for value in values if value.isdigit() and int(value) > 0]
