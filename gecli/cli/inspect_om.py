"""`gecli inspect-om`: options and files in, exit status out."""

from __future__ import annotations

from gecli.cli.invocation import Invocation


def inspect_om(invocation: Invocation) -> int:
    """Show what the files of the command line hold."""
    options = invocation.resolve(operand="FILE")
    from gecli.report.inspect.command import inspect_command

    return inspect_command(options, invocation.operands, invocation.console)
