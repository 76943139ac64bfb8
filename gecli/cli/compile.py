"""`gecli compile`: options and models in, exit status out."""

from __future__ import annotations

from gecli.cli.invocation import Invocation


def compile_models(invocation: Invocation) -> int:
    """Compile every model of the command line."""
    options = invocation.resolve(operand="MODEL")
    if options.flag("show-config"):
        from gecli.cli.show_config import show_config

        return show_config(options, invocation.console)
    from gecli.compiler import compile_command

    return compile_command(options, invocation.models(options), invocation.console)
