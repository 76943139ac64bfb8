"""The document and the lines of `gecli cache verify` (cache.md 12.2)."""

from __future__ import annotations

import os
from typing import Any

from gecli.cache.repair import Repairs
from gecli.cache.verify import Problem, Verification
from gecli.report.sizes import counted


def problem_lines(found: Verification, repairs: Repairs | None) -> list[str]:
    """What was repaired, then what is wrong: kind, what, and why."""
    lines = [f"repaired  {sentence}" for sentence in repairs.done] if repairs is not None else []
    lines += [f"{each.kind}  {each.what}  {each.message}" for each in found.all_problems]
    lines += found.notes
    busy = [key for layer in found.layers for key in layer.busy]
    return [*lines, *(f"in use  {key}  what its compile has not finished was not checked" for key in busy)]


def verify_summary(found: Verification) -> str:
    sums = _sums(found)
    problems = len(found.all_problems)
    checked = (
        f"checked {counted(sums['entries'], 'entry', 'entries')}, {counted(sums['files'], 'file')}, "
        f"{sums['bytes']} bytes: {counted(problems, 'problem') if problems else 'all well'}"
    )
    garbage = sum(len(layer.garbage) for layer in found.layers)
    return f"{checked}; {counted(garbage, 'file')} for gecli cache gc" if garbage else checked


def _sums(found: Verification) -> dict[str, int]:
    return {
        "entries": sum(layer.entries for layer in found.layers),
        "files": sum(layer.files for layer in found.layers),
        "bytes": sum(layer.size_bytes for layer in found.layers),
    }


def verify_document(found: Verification, repairs: Repairs | None) -> dict[str, Any]:
    return {
        "schema": "gecli.cache-verify/1",
        "cache_dir": found.directory,
        "fast": found.fast,
        **_sums(found),
        "problems": [_problem_json(each) for each in found.all_problems],
        "repaired": repairs.done if repairs is not None else [],
        "busy": sorted(
            {*(key for layer in found.layers for key in layer.busy), *(repairs.busy if repairs is not None else ())}
        ),
        "garbage": [
            os.path.relpath(os.path.join(layer.directory, name), found.directory)
            for layer in found.layers
            for name in layer.garbage
        ],
        "notes": found.notes,
        "well": not found.all_problems,
    }


def _problem_json(problem: Problem) -> dict[str, Any]:
    return {
        "kind": problem.kind,
        "key": problem.key or None,
        "entry": problem.entry or None,
        "path": problem.path or None,
        "message": problem.message,
    }
