"""`gecli run`: options and OM files in, exit status out."""

from __future__ import annotations

from gecli.cli.invocation import Invocation


def run_models(invocation: Invocation) -> int:
    """Run every OM of the command line on the simulated device."""
    options = invocation.resolve(operand="OM")
    from gecli.runtime import run_command

    return run_command(options, invocation.models(options), invocation.console)
