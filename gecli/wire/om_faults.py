"""The ways in which an OM file can be unusable: one line each, with the file, the kind, the offset and the numbers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from gecli.errors import Diagnostic, InputError

# In the order in which a file is judged: of several faults the first one here is told first.
CODES = {
    "not-om": "G3001",
    "git-lfs-pointer": "G3001",
    "om2": "G3008",
    "svp": "G3008",
    "encrypted": "G3008",
    "newer-version": "G3005",
    "bad-header": "G3009",
    "truncated": "G3002",
    "trailing-bytes": "G3002",
    "bundle": "G3008",
    "flow": "G3008",
    "preload": "G3008",
    "bad-table": "G3003",
    "bad-partition": "G3003",
    "no-model-def": "G3010",
    "bad-proto": "G3004",
    "bad-graph": "G3011",
    "bad-weights": "G3012",
    "bad-kernels": "G3013",
    "bad-attr-enum": "G3014",
    "bad-inout": "G3015",
    "bad-checksum": "G3006",
}
RANKS = {kind: rank for rank, kind in enumerate(CODES)}
IN_MEMORY = "bytes in memory"


def om_problem(kind: str, path: str | None, message: str, offset: int | None = None, **fields: Any) -> Diagnostic:
    """What is wrong with a file, under its short name. `offset` counts from the start of the file."""
    line = f"{path or IN_MEMORY}: {kind}: {message}"
    if offset is not None:
        line += f" (offset {offset})"
    return Diagnostic(CODES[kind], line.replace("\n", "\\n"), kind=kind, file=path, offset=offset, **fields)


def om_error(kind: str, path: str | None, message: str, offset: int | None = None, **fields: Any) -> InputError:
    """The same as an exception."""
    problem = om_problem(kind, path, message, offset, **fields)
    error = InputError(problem.code, problem.message)
    error.diagnostics = (problem,)
    return error


def in_order(problems: Iterable[Diagnostic]) -> list[Diagnostic]:
    """The problems, graver kinds first; those of one kind in the order of the file."""
    return sorted(problems, key=lambda problem: RANKS.get(problem.kind, len(RANKS)))
