"""The ways in which an OM file can be unusable, with their codes."""

from __future__ import annotations

from typing import Any

from gecli.errors import Diagnostic, InputError

CODES = {
    "not-om": "G3001",
    "git-lfs-pointer": "G3001",
    "truncated": "G3002",
    "trailing-bytes": "G3002",
    "bad-table": "G3003",
    "bad-partition": "G3003",
    "bad-proto": "G3004",
    "newer-version": "G3005",
    "bad-checksum": "G3006",
    "om2": "G3008",
    "svp": "G3008",
    "encrypted": "G3008",
    "bundle": "G3008",
    "flow": "G3008",
    "preload": "G3008",
    "bad-header": "G3009",
    "no-model-def": "G3010",
    "bad-graph": "G3011",
    "bad-weights": "G3012",
    "bad-kernels": "G3013",
    "bad-attr-enum": "G3014",
    "bad-inout": "G3015",
}


def om_problem(kind: str, path: str, message: str, **fields: Any) -> Diagnostic:
    """What is wrong with a file, under its short name."""
    return Diagnostic(CODES[kind], message, kind=kind, file=path, **fields)


def om_error(kind: str, path: str, message: str, offset: int | None = None, **fields: Any) -> InputError:
    """The same as an exception, whose one line names the file and the kind."""
    return InputError(CODES[kind], f"{path}: {kind}: {message}", kind=kind, file=path, offset=offset, **fields)
