"""`gecli cache ls` and `gecli cache gc`: options in, exit status out."""

from __future__ import annotations

from gecli.cli.invocation import Invocation


def cache_ls(invocation: Invocation) -> int:
    """List the entries of a cache directory."""
    options = invocation.resolve()
    from gecli.cache import ls_command

    return ls_command(options, invocation.console)


def cache_gc(invocation: Invocation) -> int:
    """Remove garbage, and what the policy flags name, from a cache directory."""
    options = invocation.resolve()
    from gecli.cache import gc_command

    return gc_command(options, invocation.console)
