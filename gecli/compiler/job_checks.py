"""What of a command's paths and results is refused before anything is written."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence

from gecli.compiler.failures import refuse
from gecli.compiler.job import STDIO, Job, is_one_file
from gecli.compiler.result import ModelResult
from gecli.errors import Diagnostic, GecliError, InvalidOption, OutputError
from gecli.options.spelling import similar
from gecli.options.values import Options

# What atc accepts in a real path (GE: base/common/util.cc).
_ATC_PATH = r"[A-Za-z0-9./_\-\u4e00-\u9fa5]+"


def check_paths(jobs: Sequence[Job], options: Options) -> None:
    """Raises InvalidOption for an OM on a terminal, and with --strict-paths for paths that atc refuses.

    Raises OutputError for a file where a directory is needed.
    """
    single = [job.om_path for job in jobs if is_one_file(job.om_path)]
    if single and options.integer("ge.externalWeight"):
        _refuse_weights_beside(single[0], jobs[0].source)
    if single:
        _check_one_file(single[0], options)
    else:
        _check_directories(jobs)
    if not options.flag("strict-paths"):
        return
    found = []
    for option, path in dict.fromkeys(
        (o, p) for job in jobs for o, p in (("MODEL", job.source), ("--output", job.om_path))
    ):
        real = os.path.realpath(path)
        if path != STDIO and not re.fullmatch(_ATC_PATH, real):
            bad = re.sub(_ATC_PATH, "", real)
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


def _check_directories(jobs: Sequence[Job]) -> None:
    """Directories are made where they are missing, but a file in their place stays."""
    for job in jobs:
        above = os.path.dirname(job.om_path)
        while above and not os.path.lexists(above):
            above = os.path.dirname(above)
        if above and not os.path.isdir(above):
            why = f"{len(jobs)} models need a directory" if job.one_of_several else f"{job.om_path} would lie below it"
            raise OutputError(
                "G6001",
                f"the output cannot be written: {above} is a file, not a directory",
                why=why,
                do="-o DIR/" if job.one_of_several else "-o FILE.om",
                option="--output",
                file=above,
            )
        if os.path.isdir(job.om_path):
            raise OutputError(
                "G6001",
                f"the output cannot be written: {job.om_path} is a directory",
                why="an OM is a file",
                do=f"-o {os.path.join(job.om_path, '')}",
                option="--output",
                file=job.om_path,
            )


def directory_note(models: Sequence[str], output: str) -> str:
    """What to say when several models make a directory of a name that looks like a file's; else ""."""
    if len(models) < 2 or output.endswith(os.sep) or os.path.isdir(output) or not os.path.splitext(output)[1]:
        return ""
    return f"{output} is a directory: each of {len(models)} models has a file in it"


def check_results(results: Sequence[ModelResult], options: Options) -> None:
    """Called when models are compiled and nothing is written yet.

    Raises RefusedWarnings under --werror, and InvalidOption for variables with `-o -` or an unknown variable name.
    """
    if options.flag("werror"):
        refuse(warning for result in results for warning in result.warnings)
    for result in results:
        if result.variables:
            refuse_variables_in_one_file(result.output.path, result.source)
    known = sorted({str(row["name"]) for result in results for row in result.variables})
    for name in options.texts("explain-variable"):
        if name not in known:
            near = similar(name, known, 3)
            raise InvalidOption(
                "E10016",
                f"--explain-variable names {name!r}, which no model has",
                why=f"the variables are: {', '.join(known[:12]) or 'none'}",
                do=" or ".join(f"--explain-variable {each}" for each in near),
                option="--explain-variable",
                actual=name,
            )


def refuse_variables_in_one_file(om_path: str, source: str) -> None:
    """Raises InvalidOption when the variable packet would have no place. The null device takes it too."""
    if not is_one_file(om_path) or om_path == os.devnull:
        return
    place = "standard output" if om_path == STDIO else om_path
    raise InvalidOption(
        "E10001",
        f"-o {om_path} cannot be used for a model with variables",
        where=source,
        why=f"the OM needs its .rdcpkt beside it, and {place} is one file",
        do="-o FILE.om",
        option="--output",
    )


def _refuse_weights_beside(om_path: str, source: str) -> None:
    raise InvalidOption(
        "E10001",
        f"-o {om_path} cannot be used with --external-weight",
        where=source,
        why="the OM needs its weight files and its .rdcpkt, and this output is one file",
        do="-o FILE.om, or leave out --external-weight",
        option="--output",
    )


def _check_one_file(om_path: str, options: Options) -> None:
    fields = {"do": "-o FILE.om", "option": "--output"}
    if options.texts("emit"):
        why = "--emit writes its files beside the OM"
        raise InvalidOption("E10047", f"-o {om_path} excludes --emit", why=why, **fields)
    if om_path != STDIO:
        return
    if options.flag("json"):
        raise InvalidOption("E10047", "-o - excludes --json", why="--json prints its document there", **fields)
    if sys.stdout.isatty():
        why = "standard output is a terminal, and an OM is binary"
        raise InvalidOption("E10001", "-o - cannot be used here", why=why, **fields)
