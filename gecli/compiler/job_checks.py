"""What of a command's paths and results is refused before anything is written."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from difflib import get_close_matches

from gecli.compiler.failures import refuse
from gecli.compiler.job import STDIO, Job
from gecli.compiler.result import ModelResult
from gecli.errors import Diagnostic, GecliError, InvalidOption
from gecli.options.values import Options

# What atc accepts in a real path (GE: base/common/util.cc).
_ATC_PATH = re.compile(r"[A-Za-z0-9./_\-\u4e00-\u9fa5]+")


def check_paths(jobs: Sequence[Job], options: Options) -> None:
    """Raises InvalidOption for an OM on a terminal, and with --strict-paths for paths that atc refuses."""
    if any(job.om_path == STDIO for job in jobs):
        _check_stdout(options)
    if not options.flag("strict-paths"):
        return
    found = []
    for option, path in dict.fromkeys(
        (o, p) for job in jobs for o, p in (("MODEL", job.source), ("--output", job.om_path))
    ):
        real = os.path.realpath(path)
        if path != STDIO and not _ATC_PATH.fullmatch(real):
            bad = _ATC_PATH.sub("", real)
            found.append(
                Diagnostic(
                    "E13026",
                    f"path {path} is refused by --strict-paths",
                    why=f"{real} contains {bad[0]!r}; atc takes letters, digits, '.', '/', '_' and '-'",
                    do="move it, or leave out --strict-paths",
                    option=option,
                    file=path,
                )
            )
    if found:
        raise GecliError.of(found)


def check_results(results: Sequence[ModelResult], options: Options) -> None:
    """Called when models are compiled and nothing is written yet.

    Raises RefusedWarnings under --werror, and InvalidOption for variables with `-o -` or an unknown variable name.
    """
    if options.flag("werror"):
        refuse(warning for result in results for warning in result.warnings)
    if any(result.output.path == STDIO and result.variables for result in results):
        refuse_variables_on_stdout(results[0].source)
    known = sorted({str(row["name"]) for result in results for row in result.variables})
    for name in options.texts("explain-variable"):
        if name not in known:
            near = get_close_matches(name, known, 3)
            raise InvalidOption(
                "E10016",
                f"--explain-variable names {name!r}, which no model has",
                why=f"the variables are: {', '.join(known[:12]) or 'none'}",
                do=" or ".join(f"--explain-variable {each}" for each in near),
                option="--explain-variable",
                actual=name,
            )


def refuse_variables_on_stdout(source: str) -> None:
    """Raises InvalidOption: the variable packet would have no place."""
    raise InvalidOption(
        "E10001",
        "-o - cannot be used for a model with variables",
        where=source,
        why="the OM needs its .rdcpkt beside it, and standard output is one file",
        do="-o FILE.om",
        option="--output",
    )


def _check_stdout(options: Options) -> None:
    fields = {"do": "-o FILE.om", "option": "--output"}
    if options.flag("json"):
        raise InvalidOption("E10047", "-o - excludes --json", why="--json prints its document there", **fields)
    if options.texts("emit"):
        raise InvalidOption("E10047", "-o - excludes --emit", why="--emit writes its files beside the OM", **fields)
    if sys.stdout.isatty():
        why = "standard output is a terminal, and an OM is binary"
        raise InvalidOption("E10001", "-o - cannot be used here", why=why, **fields)
