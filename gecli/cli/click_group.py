"""The click group: its commands are built from the option table when they are asked for."""

from __future__ import annotations

import click

from gecli.cli.console import Console
from gecli.cli.invocation import Invocation
from gecli.cli.params import parameters_of, typed_texts
from gecli.cli.root import BODIES, body_of
from gecli.options.argv import Scan


class LazyGroup(click.Group):
    """A group that builds a command on first use; `prefix` is the path of names in front of its commands."""

    def __init__(self, name: str, prefix: str = "") -> None:
        super().__init__(name, add_help_option=False)
        self.prefix = prefix

    def list_commands(self, ctx: click.Context) -> list[str]:
        heads = [path.removeprefix(self.prefix).split()[0] for path in BODIES if path.startswith(self.prefix)]
        return list(dict.fromkeys(heads))

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        path = self.prefix + cmd_name
        if path in BODIES:
            return _command(path)
        if any(known.startswith(f"{path} ") for known in BODIES):
            return LazyGroup(cmd_name, f"{path} ")
        return None


def dispatch_through_click(scan: Scan, console: Console) -> int:
    """Run the command of a scanned line through click; returns its exit status."""
    group = LazyGroup("gecli")
    # Not group.main(): it turns KeyboardInterrupt and a closed pipe into exits of its own.
    with group.make_context("gecli", scan.canonical(), obj=(scan, console)) as context:
        return int(group.invoke(context))


def _command(path: str) -> click.Command:
    def callback(operands: tuple[str, ...], **values: object) -> int:
        scan, console = click.get_current_context().obj
        return body_of(path)(Invocation(scan, console, typed_texts(path, values), operands))

    # Help is ours (gecli.cli.help): click's own is switched off so that there is only one.
    return click.Command(path.split()[-1], params=parameters_of(path), callback=callback, add_help_option=False)
