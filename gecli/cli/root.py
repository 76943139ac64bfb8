"""From a scanned command line to the body of its command."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

from gecli.cli.console import Console
from gecli.cli.invocation import Invocation
from gecli.options.argv import Scan

Body = Callable[[Invocation], int]

# Subcommand -> module and function of its body.
BODIES: dict[str, tuple[str, str]] = {
    "compile": ("gecli.cli.compile", "compile_models"),
    "inspect-om": ("gecli.cli.inspect_om", "inspect_om"),
    "run": ("gecli.cli.run", "run_models"),
    "cache ls": ("gecli.cli.cache", "cache_ls"),
    "cache gc": ("gecli.cli.cache", "cache_gc"),
    "cache verify": ("gecli.cli.cache_verify", "cache_verify"),
    "cache stats": ("gecli.cli.cache_stats", "cache_stats"),
    "cache why": ("gecli.cli.cache_why", "cache_why"),
    "cache confirm": ("gecli.cli.cache_entry", "cache_confirm"),
    "cache path": ("gecli.cli.cache_entry", "cache_path"),
    "cache export": ("gecli.cli.cache_archive", "cache_export"),
    "cache import": ("gecli.cli.cache_archive", "cache_import"),
}
# Measured against the process that they replace, in which 30 ms for importing click would be a tenth.
WITHOUT_CLICK = ("compile", "run")


def dispatch(scan: Scan, console: Console) -> int:
    """Run the command of a scanned line; returns its exit status.

    The scan has matched every word with the option table, from which click's parameters are made too; a line without
    problems holds nothing that click would read otherwise.
    """
    if scan.subcommand in WITHOUT_CLICK and not scan.problems:
        return body_of(scan.subcommand)(Invocation(scan, console))
    from gecli.cli.click_group import dispatch_through_click

    return dispatch_through_click(scan, console)


def body_of(subcommand: str) -> Body:
    module, function = BODIES[subcommand]
    body: Body = getattr(import_module(module), function)
    return body
