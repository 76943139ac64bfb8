"""How many threads a step may use (runtime.md 11.2); apart from intra_op.py, which needs numpy."""

from __future__ import annotations

_threads = 1


def set_intra_op_threads(count: int) -> None:
    """How many threads a step may use from now on, the calling one included; programs bound before keep theirs.

    The default is 1: whoever calls gecli from Python has a BLAS with threads of its own.
    """
    global _threads
    _threads = max(count, 1)


def intra_op_threads() -> int:
    return _threads
