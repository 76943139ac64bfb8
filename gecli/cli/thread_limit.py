"""--threads: how many threads numpy's linear algebra may use."""

from __future__ import annotations

import os


def limit_threads(threads: int | None) -> None:
    """Set the thread count of every BLAS that numpy may be built with; has an effect only before numpy is imported."""
    if threads:
        for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
            os.environ[name] = str(threads)
