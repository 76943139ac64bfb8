"""A compile whose request is in the cache, answered before click, numpy, networkx and protobuf are loaded.

The second short way, behind `gecli.cli.fast_hit`: the options are resolved and the model's bytes are looked at, but the
model is not parsed.
"""

from __future__ import annotations

import os
import time
from functools import partial

from gecli.cli.console import Console
from gecli.options.argv import Scan, scan

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from gecli.compiler.job import Job
    from gecli.compiler.result import ModelResult
    from gecli.options.values import Options


def try_request_hit(argv: list[str]) -> int | None:
    """The exit status if one model's outputs could be taken from the cache, else None: go the long way.

    Prints nothing when it returns None.
    """
    start = time.perf_counter()
    found = scan(argv)
    if found.problems or found.warnings or found.verbosity or any(map(found.has, ("help", "help-all", "version"))):
        return None
    options = _options(found)
    if options is None:
        return None
    from gecli.cli.remember import is_plain_command

    models = [*found.operands, *options.texts("model")]
    if len(models) != 1 or not is_plain_command(options) or not options.text("output"):
        return None
    result = _delivered(models, options)
    if result is None:
        return None
    result.elapsed_ms = (time.perf_counter() - start) * 1000
    return _show(argv, models, options, result)


def _options(found: Scan) -> Options | None:
    """The resolved options; None when anything about them has to be told to the user."""
    from gecli.cli.config import load_configs
    from gecli.options.resolution import resolve

    configs, problems = load_configs(found.subcommand, found.typed, os.environ)
    if problems:
        return None
    try:
        options = resolve(found.subcommand, found.typed, environ=os.environ, configs=configs)
    except Exception:  # told by the long way, which resolves them again
        return None
    return None if options.warnings else options


def _delivered(models: list[str], options: Options) -> ModelResult | None:
    from gecli.cache.stat_index import StatIndex
    from gecli.compiler.cache_setup import CacheOff, cache_setup
    from gecli.compiler.direct_hit import deliver_direct, direct_hits
    from gecli.compiler.job import is_one_file, jobs_of

    try:
        jobs = jobs_of(models, options.text("output"))
        if is_one_file(jobs[0].om_path):
            return None
        setup = cache_setup(options, jobs)
        if isinstance(setup, CacheOff) or _is_inside(jobs[0], setup.cache.path):
            return None
        stats = StatIndex(trusting=setup.cache.verify != "full")
        hits = direct_hits(setup, jobs, options, stats, partial(_spare_data, jobs[0]))
        return deliver_direct(setup, jobs[0], hits[0], options, stats) if hits else None
    except Exception:  # told by the long way
        return None


def _is_inside(job: Job, directory: str) -> bool:
    """Whether the outputs may be files of the cache, none of which they may replace: looked at the long way.

    So are links, which may lead there.
    """
    if os.path.islink(job.om_path) or os.path.islink(job.rdcpkt_path):
        return True
    return os.path.realpath(os.path.dirname(job.om_path)) == os.path.realpath(directory)


def _spare_data(job: Job, model: str, files: Sequence[str]) -> None:
    """Raises ValueError when an output is a file that the model names, by whatever name; the long way says so."""
    from gecli.cache.stat_index import numbers_of

    outputs = [found[:2] for path in (job.om_path, job.rdcpkt_path) if (found := numbers_of(path)) is not None]
    if outputs and any(found[:2] in outputs for path in files if (found := numbers_of(path)) is not None):
        raise ValueError(f"an output is a file of {model}")


def _soc(options: Options) -> str:
    from gecli.layout.platform import platform_of

    return platform_of(options.text("ge.socVersion") or "Ascend910B1").soc


def _show(argv: list[str], models: list[str], options: Options, result: ModelResult) -> int:
    from gecli.cli.fast_hit import broken_pipe
    from gecli.cli.remember import remember_command
    from gecli.compiler.result import CompileReport
    from gecli.report.compile_report import compile_document, plain_lines, summary_lines, times_wanted

    console = Console(
        quiet=options.flag("quiet"),
        json=options.flag("json"),
        color=options.get("color"),
        progress=options.get("progress"),
    )
    report = CompileReport([result], _soc(options) if console.json else "")
    try:
        console.report(result.warnings)
        if not console.quiet:
            human = console.json or console.stdout.isatty()
            console.result("\n".join(summary_lines(result) if human else plain_lines(result)))
        if console.json:
            console.document(compile_document(report, with_times=times_wanted()))
        console.stdout.flush()
    except BrokenPipeError:
        return broken_pipe()
    remember_command(argv, models, options, report, console)
    return 0
