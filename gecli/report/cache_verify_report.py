"""The document and the lines of `gecli cache verify` (cache.md 12.2)."""

from __future__ import annotations

from typing import Any

from gecli.cache.repair import Repairs
from gecli.cache.verify import Problem, Verification
from gecli.report.sizes import counted


def problem_lines(found: Verification, repairs: Repairs | None) -> list[str]:
    """What was repaired, then what is wrong: kind, what, and why."""
    lines = [f"repaired  {sentence}" for sentence in repairs.done] if repairs is not None else []
    lines += [f"{each.kind}  {each.what}  {each.message}" for each in found.problems]
    lines += found.notes
    return [*lines, *(f"in use  {key}  what its compile has not finished was not checked" for key in found.busy)]


def verify_summary(found: Verification) -> str:
    checked = (
        f"checked {counted(found.entries, 'entry', 'entries')}, {counted(found.files, 'file')}, "
        f"{found.size_bytes} bytes: {counted(len(found.problems), 'problem') if found.problems else 'all well'}"
    )
    if not found.garbage:
        return checked
    return f"{checked}; {counted(len(found.garbage), 'file')} for gecli cache gc"


def verify_document(found: Verification, repairs: Repairs | None) -> dict[str, Any]:
    return {
        "schema": "gecli.cache-verify/1",
        "cache_dir": found.directory,
        "fast": found.fast,
        "entries": found.entries,
        "files": found.files,
        "bytes": found.size_bytes,
        "problems": [_problem_json(each) for each in found.problems],
        "repaired": repairs.done if repairs is not None else [],
        "busy": sorted({*found.busy, *(repairs.busy if repairs is not None else ())}),
        "garbage": found.garbage,
        "notes": found.notes,
        "well": not found.problems,
    }


def _problem_json(problem: Problem) -> dict[str, Any]:
    return {
        "kind": problem.kind,
        "key": problem.key or None,
        "entry": problem.entry or None,
        "path": problem.path or None,
        "message": problem.message,
    }
