"""`gecli inspect-om`: options and files in, exit status out."""

from __future__ import annotations

import gc

from gecli.cli.invocation import Invocation


def inspect_om(invocation: Invocation) -> int:
    """Show what the files of the command line hold."""
    options = invocation.resolve(operand="FILE")
    from gecli.report.inspect.command import inspect_command

    # The nodes of a graph are cycles that live to the end: a collector would walk all of them and free nothing.
    collecting = gc.isenabled()
    gc.disable()
    try:
        return inspect_command(options, invocation.operands, invocation.console)
    finally:
        if collecting:
            gc.enable()
