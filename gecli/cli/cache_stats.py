"""`gecli cache stats`: counters and contents of a cache directory (cache.md 12.4)."""

from __future__ import annotations

import fnmatch
import time
from typing import TYPE_CHECKING

from gecli.cli.cache_directory import count_unreferenced, operands_of, surveyed, writable
from gecli.cli.cache_schema import print_schema
from gecli.cli.invocation import Invocation

if TYPE_CHECKING:
    from gecli.cache.statistics import Counts


def cache_stats(invocation: Invocation) -> int:
    """Print what is in the cache and what happened there; with --zero forget the latter."""
    options, console = invocation.resolve(), invocation.console
    if options.flag("print-schema"):
        return print_schema(invocation.subcommand, console)
    operands_of(invocation)
    from gecli.cache.statistics import counts_by_key, zero
    from gecli.report.cache_stats_report import stats_document, stats_lines

    found = surveyed(options)
    count_unreferenced(found)
    age = options.get("since")
    since = None if age is None else time.time() - float(age)
    by_key = _selected(counts_by_key(found.directory, since), options.text("key"))
    document = stats_document(found, by_key, since)
    if not console.json:
        human = console.stdout.isatty()
        console.result("\n".join(stats_lines(document, human=human, by_key=options.flag("by-key"))))
    if options.flag("zero"):
        with writable(found.directory, "reset the counters of"):
            zero(found.directory)
    if console.json:
        console.document(document)
    return 0


def _selected(by_key: dict[str, Counts], glob: str | None) -> dict[str, Counts]:
    return {key: counts for key, counts in by_key.items() if glob is None or fnmatch.fnmatchcase(key, glob)}
