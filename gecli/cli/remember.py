"""Leaving a memo for `gecli.cli.fast_hit` after a compile whose outputs are the files of a cache entry."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from gecli.cli.fast_hit import STARTED_NS, cache_dir_of

if TYPE_CHECKING:
    from gecli.cache.candidate import Found
    from gecli.cache.command_memo import Memo
    from gecli.cache.sidecar import Sidecar
    from gecli.cache.stat_index import Numbers, StatIndex
    from gecli.cli.console import Console
    from gecli.compiler.cache_setup import CacheSetup
    from gecli.compiler.direct_hit import Request
    from gecli.compiler.job import Job
    from gecli.compiler.result import CompileReport
    from gecli.options.values import Options

# Options beside those that count in the fingerprint with which a command does nothing but make its two outputs.
HARMLESS = frozenset((
    "output", "model", "base-dir", "session", "no-session", "ge-option", "keep-going", "jobs", "profile", "threads",
    "ge.externalWeightDir", "ge.graph_compiler_cache_dir", "ge.graph_key", "auto-graph-key", "cache-mode",
    "cache-create", "cache-verify", "lock-timeout", "require-cache", "mode", "quiet", "json", "color", "progress",
    "config", "no-config",
))  # fmt: skip
RACY_NS = 2_000_000_000  # a change this close to the reading would not show in the time stamps
NO_DIGEST = "-"  # of a row that only says that a file is unchanged
SENTINEL_MS = 987654321.125  # stands for the time while the texts are made


def remember_command(
    argv: list[str], models: list[str], options: Options, report: CompileReport, console: Console
) -> None:
    """Let the next run of exactly this command line take the short way, if that is safe."""
    if len(models) != 1 or not _is_plain(argv, options, report, console):
        return
    from gecli.cache.command_memo import conditions_of, memo_path, write_memo
    from gecli.compiler.cache_setup import CacheSetup, cache_setup
    from gecli.compiler.job import jobs_of

    jobs = jobs_of(models, options.text("output"))
    setup = cache_setup(options, jobs)
    if (
        not isinstance(setup, CacheSetup)
        or setup.cache.mode != "rw"
        or not setup.cache.may_write
        or setup.cache.verify == "full"
    ):
        return
    memo = _memo(setup, jobs[0], options, conditions_of(argv, os.environ), report.soc, console)
    if memo is not None:
        write_memo(memo_path(setup.cache.path, memo.conditions), memo)


def _is_plain(argv: list[str], options: Options, report: CompileReport, console: Console) -> bool:
    result = report.models[0]
    served = result.cache.state == "hit" or result.cache.stored
    if (
        not served
        or not os.path.isfile(result.output.path)
        or console.warnings
        or console.verbosity
        or not cache_dir_of(argv)
    ):
        return False
    return is_plain_command(options)


def is_plain_command(options: Options) -> bool:
    """Whether a command does nothing but make the outputs of its models and print the summary."""
    others = [option.key for option, _, origin in options.items() if origin != "default" and not option.fingerprint]
    told = any(options.get(name) for name in ("verbose", "log-file", "atc-compat"))
    return HARMLESS.issuperset(others) and not told and not options.get("mode")


def _memo(
    setup: CacheSetup, job: Job, options: Options, conditions: list[str], soc: str, console: Console
) -> Memo | None:
    from gecli.cache.cache_conf import NAME
    from gecli.cache.command_memo import Memo, Placement
    from gecli.cache.events import hit_event
    from gecli.cache.index import index_path
    from gecli.cache.layout import OM, RDCPKT, SIDECAR, entry_path
    from gecli.cache.model_cache import find_request, load_entry_rows, read_request_hint, save_entry_rows
    from gecli.cache.request_digest import numpy_version_file
    from gecli.cache.stat_index import StatIndex
    from gecli.compiler.direct_hit import output_rows_path, request_of

    directory, stats = setup.cache.path, StatIndex()
    request = request_of(setup.cache, job, options, stats)
    hint = request and read_request_hint(directory, request.digest)
    if request is None or hint is None:
        return None
    key, stem = hint
    sidecar = entry_path(directory, stem, SIDECAR)
    load_entry_rows(directory, stem, stats)
    # First the times, then the content: what changes later shows in the times.
    files: dict[str, Numbers | None] = {}
    for path in (sidecar, index_path(directory, key)):
        files[path] = _settled(path, stats)
    found = find_request(setup.cache, request.digest, setup.key_of(0), stats)
    if found is None or found.sidecar is None or None in files.values():
        return None
    save_entry_rows(setup.cache, key, stem, stats, found.sidecar)
    if found.sidecar.content.get("weights"):
        return None  # many files; the second short way looks at each
    kinds = (RDCPKT, OM) if found.has_rdcpkt else (OM,)
    for suffix in kinds:
        row = stats.row(found.path(directory, suffix))
        if row is None:
            return None
        files[row.path] = row.numbers
    if not _add_inputs(files, [*_inputs(request, options), numpy_version_file(), *_config_paths(options)], stats):
        return None
    if not _add_inputs(files, [os.path.join(directory, NAME)], stats):
        return None
    placements = []
    for suffix in kinds:
        target = job.om_path if suffix == OM else job.rdcpkt_path
        stats.load(output_rows_path(directory, target))
        row = stats.row(target)
        numbers = row.numbers if row is not None and row.sha256 == _digest(found.sidecar, suffix) else None
        placements.append(Placement(found.path(directory, suffix), target, numbers))
    stale = "" if found.has_rdcpkt else job.rdcpkt_path
    texts = _texts(setup, job, found, options, soc, console)
    return Memo(conditions, files, placements, sidecar, stale, texts, hit_event(found))


def _settled(path: str, stats: StatIndex) -> Numbers | None:
    """How a file of the cache looks as long as it has its present content; None when that cannot be said.

    A file that changed a moment ago gets a time of its own, which is then in the stat index: commands that share an
    entry must not take the memo of each other away.
    """
    from gecli.cache.stat_index import StatRow, numbers_of, touch_as_witness

    row = stats.row(path)
    if row is not None:
        return row.numbers
    numbers = numbers_of(path)
    if numbers is not None and max(numbers[3:]) < STARTED_NS - RACY_NS:
        return numbers
    try:
        numbers = touch_as_witness(path)
    except OSError:
        return None
    if numbers is not None:
        stats.add(StatRow(os.path.realpath(path), numbers, NO_DIGEST, STARTED_NS, is_witness=True))
    return numbers


def _inputs(request: Request, options: Options) -> list[str]:
    return [*request.files, *(path for _, path in options.path_options())]


def _add_inputs(files: dict[str, Numbers | None], paths: list[str], stats: StatIndex) -> bool:
    """Note how files look that were read by this process; False if one may have changed meanwhile."""
    from gecli.cache.stat_index import numbers_of

    for path in paths:
        numbers = numbers_of(path) if path else None
        if numbers is None and os.path.lexists(path):
            return False
        row = stats.row(path) if numbers is not None else None
        if numbers is not None and row is None and max(numbers[3:]) > STARTED_NS - RACY_NS:
            return False
        files[path] = numbers
    return True


def _config_paths(options: Options) -> list[str]:
    """Every place where a configuration file is looked for, whether there is one or not."""
    named = options.text("config") or os.environ.get("GECLI_CONFIG")
    if options.flag("no-config"):
        return []
    if named:
        return [named]
    from gecli.cli.config import with_parents

    names = ("gecli.toml", "pyproject.toml")
    paths = [os.path.join(current, name) for current in with_parents(".") for name in names]
    base = os.environ.get("XDG_CONFIG_HOME") or os.path.join(os.environ.get("HOME", ""), ".config")
    return [*paths, os.path.join(base, "gecli", "config.toml")]


def _digest(sidecar: Sidecar, suffix: str) -> str:
    facts = sidecar.file_facts(suffix[1:])
    return facts[1] if facts else ""


def _texts(setup: CacheSetup, job: Job, found: Found, options: Options, soc: str, console: Console) -> dict[str, str]:
    """What a hit prints, made by the functions that print it, with a mark where the time goes."""
    from gecli.cache.command_memo import TIME_MARK
    from gecli.compiler.direct_hit import hit_result
    from gecli.compiler.result import CompileReport
    from gecli.report.compile_report import compile_document, plain_lines, summary_lines, times_wanted
    from gecli.report.sizes import time_text

    result = hit_result(job, found, setup, options)
    result.elapsed_ms = SENTINEL_MS
    human = "\n".join(summary_lines(result)).replace(time_text(SENTINEL_MS), TIME_MARK)
    plain = "\n".join(plain_lines(result))
    document = ""
    if console.json:
        import json

        from gecli.json_text import escape_halves

        report = CompileReport([result], soc)
        content = compile_document(report, with_times=times_wanted())
        # As Console.document writes it to a terminal that shows every character.
        text = json.dumps(content, indent=2, sort_keys=True, ensure_ascii=False, allow_nan=False)
        document = escape_halves(text).replace(str(SENTINEL_MS), TIME_MARK)
    if console.quiet:
        human = plain = ""
    return {"plain": plain, "human": human, "document": document}
