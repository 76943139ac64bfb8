"""What a command body gets: the words of the command line, taken apart, and the console."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from gecli.cli.console import Console
from gecli.options.argv import Scan
from gecli.options.resolution import resolve
from gecli.options.values import Options

if TYPE_CHECKING:
    from gecli.errors import Diagnostic


class Invocation:
    """One run of one command. `typed` holds the texts per option key, `operands` the positional words."""

    def __init__(
        self,
        scan: Scan,
        console: Console,
        typed: Mapping[str, Sequence[str]] | None = None,
        operands: Sequence[str] | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self.subcommand = scan.subcommand
        self.typed: Mapping[str, Sequence[str]] = scan.typed if typed is None else typed
        self.operands = list(scan.operands if operands is None else operands)
        self.console = console
        self.environ = os.environ if environ is None else environ
        self._scan = scan

    def resolve(self, operand: str = "", as_command: str = "") -> Options:
        """The options from all sources; with `operand` (a metavar) at least one operand or --model is required.

        With `as_command` they are those that the other command would get from the same words; nothing is written then.
        Raises one InvalidOption with everything wrong in words, files and values; warnings go to the console.
        """
        from gecli.cli.config import load_configs

        command = as_command or self.subcommand
        configs, config_problems = load_configs(command, self.typed, self.environ)
        problems = [*self._scan.problems, *config_problems]
        if operand and not self.operands and not self.typed.get("model") and not self._needs_no_model():
            problems.append(_missing(self.subcommand, operand))
        options = resolve(command, self.typed, environ=self.environ, configs=configs, problems=problems)
        if not as_command:
            self._check_written_files(options)
        self._configure_console(options)
        warnings = [*self._scan.warnings, *options.warnings]
        if self.subcommand == "compile" and options.flag("werror"):
            _refuse(warnings)
        self.console.report(warnings)
        self._say_what_was_decided(options)
        return options

    def models(self, options: Options) -> list[str]:
        """Positional models, then those of --model and --graph, in order."""
        return [*self.operands, *options.texts("model")]

    def _check_written_files(self, options: Options) -> None:
        from gecli.cli.output_places import check_places, places_of
        from gecli.cli.written_files import check_written_files

        models = self.models(options) if self.subcommand in ("compile", "run") else self.operands
        places = list(places_of(self.subcommand, options, models))
        check_written_files(self.subcommand, options, models, places)
        check_places(places)

    def _needs_no_model(self) -> bool:
        return any(key in self.typed for key in ("show-config", "print-pipeline", "print-schema", "om", "singleop"))

    def _configure_console(self, options: Options) -> None:
        console = self.console
        console.verbosity = options.get("verbose")
        console.quiet = options.flag("quiet")
        console.color = options.get("color")
        console.progress = options.get("progress")
        if self.subcommand == "compile":
            console.verbosity = max(console.verbosity, {"debug": 3, "info": 2}.get(options.get("log"), 0))
        log_file = options.text("log-file")
        if log_file:
            console.open_log(log_file)

    def _say_what_was_decided(self, options: Options) -> None:
        for line in options.overrides:
            self.console.say(line, level=1)
        recorded = [
            option.name for option, _, origin in options.items() if origin != "default" and option.option_class == "R"
        ]
        if recorded:
            self.console.say(f"recorded, no effect here: {', '.join(sorted(recorded))}", level=1)


def _refuse(warnings: list[Diagnostic]) -> None:
    """--werror: what is only a warning elsewhere ends the command."""
    from dataclasses import replace

    from gecli.errors import InvalidOption

    refused = [replace(warning, severity="error") for warning in warnings if warning.severity == "warning"]
    if refused:
        raise InvalidOption.of(refused)


def _missing(subcommand: str, operand: str) -> Diagnostic:
    from gecli.errors import Diagnostic

    return Diagnostic("E10054", f"{operand} is missing", do=f"gecli {subcommand} {operand}")
