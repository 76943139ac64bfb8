"""Whether variable records and session snapshots fit into the memory that their size allows: seen before decoding."""

from __future__ import annotations

from gecli.errors import InputError
from gecli.wire.byte_source import FileSource
from gecli.wire.decode_errors import DECODE_ERRORS
from gecli.wire.field_scan import FieldScanner
from gecli.wire.memory_budget import MemoryBudget, TooManyObjects
from gecli.wire.walker import LENGTH_DELIMITED, WireError

ROADS = 2  # of VarDescInfo: a road has a message for each step, with two descriptors
COSTS = (100, 170, 120, 420)  # bytes of memory for a field, by its depth; measured


def require_room(path: str, shown: str) -> None:
    """Raises InputError (DATA_CORRUPT) when a small file says so much that reading it takes out-of-scale memory."""
    with FileSource(path) as source:
        scanner = FieldScanner(source)
        budget = MemoryBudget(source.size)
        try:
            _walk(scanner, budget, 0, source.size, 0, deep=False)
        except TooManyObjects as error:
            raise InputError(
                "G3007", f"{shown}: {error}", kind="DATA_CORRUPT", file=shown,
                why="a file is read in less than twice its size and 64 MiB of memory",
                do="write it again: gecli compile makes no such file",
            ) from error  # fmt: skip
        except (*DECODE_ERRORS, WireError):
            return  # whoever reads it says what is wrong


def _walk(scanner: FieldScanner, budget: MemoryBudget, begin: int, end: int, depth: int, *, deep: bool) -> None:
    for span in scanner.spans(begin, end):
        budget.spend(COSTS[depth])
        below = deep or (depth == 1 and span.number == ROADS)
        if span.kind != LENGTH_DELIMITED or depth + 1 >= len(COSTS) - (not below):
            continue
        try:
            _walk(scanner, budget, span.body, span.end, depth + 1, deep=below)
        except WireError:
            continue  # a text
