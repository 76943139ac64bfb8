"""One command from its words to its exit status: help, dispatch, signals, and what happens to errors."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

from gecli.cli.console import Console
from gecli.cli.stopping import STOPS, arm, disarm, end, ending_of, stop_behind
from gecli.options.argv import Scan, scan
from gecli.version import __version__

if TYPE_CHECKING:
    from gecli.errors import Diagnostic

BROKEN_PIPE, INTERNAL, USAGE, OUTPUT = 141, 70, 2, 5
ATC_FAILURE = 255
ATC_START = "ATC start working now, please wait for a moment."
ATC_SUCCESS = "ATC run success, welcome to the next use."
ATC_FAILED = "ATC run failed, Please check the detail log, Try 'atc --help' for more information"


def run(argv: list[str]) -> int:
    """Run a command line; returns its exit status and never lets an exception out."""
    try:
        arm()
        status = _run(argv)
        end()
    except STOPS as stop:  # before or after the guarded part
        status = stopped(stop)
    disarm()
    return status


def _run(argv: list[str]) -> int:
    found = scan(argv)
    console = Console(
        verbosity=found.verbosity,
        quiet=found.has("quiet"),
        json=found.has("json"),
        color=_last(found, "color", ("auto", "always", "never")),
        progress=_last(found, "progress", ("auto", "rich", "plain", "none")),
    )
    compat = found.has("atc-compat") and found.subcommand == "compile"
    if compat:
        console.result(ATC_START)
    status = _guarded(found, console, compat)
    log_fault = console.close()
    if log_fault is not None and status != OUTPUT:  # a full disk is told once
        console.report([log_fault])
        status = status or log_fault.exit_status
    return status


def _guarded(found: Scan, console: Console, compat: bool) -> int:
    try:
        status = _answer(found, console, argv_problems=found.problems)
        if compat:
            console.result(f"...\n{ATC_SUCCESS}" if status == 0 else ATC_FAILED)
            status = ATC_FAILURE if status else 0
        console.stdout.flush()
        return status
    except STOPS as stop:
        return stopped(stop, console)
    except BrokenPipeError:
        _drop_stdout()
        return BROKEN_PIPE
    except Exception as error:
        wrapped = stop_behind(error)
        if wrapped is not None:
            return stopped(wrapped, console)
        clean_up()
        return _failed(error, found, console, compat)


def _answer(found: Scan, console: Console, argv_problems: list[Diagnostic]) -> int:
    if found.has("version"):
        return _told(console, "version", f"gecli {__version__}\n")
    if found.has("help") or found.has("help-all") or _is_bare(found):
        from gecli.cli.help import help_text

        return _told(console, "help", help_text(found.subcommand, everything=found.has("help-all")))
    if argv_problems and not _collects(found):
        from gecli.errors import InvalidOption

        raise InvalidOption.of(argv_problems)
    if found.subcommand in ("explain", "completion"):
        return _light_command(found, console)
    from gecli.cli.root import dispatch

    return dispatch(found, console)


def _told(console: Console, what: str, text: str) -> int:
    """Print a text that is the whole answer; with --json it is a member of the document."""
    if console.json:
        console.document({"schema": f"gecli.{what}/1", "gecli_version": __version__, "text": text})
    else:
        console.stdout.write(text)
    return 0


def _light_command(found: Scan, console: Console) -> int:
    """Commands that need neither click nor the option sources."""
    if found.subcommand == "explain":
        from gecli.cli.explain import explain

        return explain(found.operands, console)
    from gecli.cli.completion import completion

    return completion(found.operands, console)


def _collects(found: Scan) -> bool:
    """Whether the command itself reports problems of the words together with those of the values."""
    return found.subcommand in ("compile", "inspect-om", "run") or found.subcommand.startswith("cache ")


def _is_bare(found: Scan) -> bool:
    return not found.subcommand and not found.problems


def _failed(error: Exception, found: Scan, console: Console, compat: bool) -> int:
    """Report an exception and give the exit status that belongs to it."""
    from gecli.errors import GecliError

    if isinstance(error, GecliError):
        where = f"gecli {found.subcommand}".strip()
        diagnostics, status = error.at(where=where).diagnostics, error.exit_status
    else:
        from gecli.cli.crash import diagnostics_of

        diagnostics = (diagnostics_of(error, console.environ),)
        status = diagnostics[0].exit_status
    try:
        if compat:
            console.result(ATC_FAILED)
            console.result("\n".join(f"{d.code}: {d.message}\n    {d.do or d.why}" for d in diagnostics))
        else:
            console.report(diagnostics)
        if console.json and not console.document_printed:
            console.document(error_document(found.subcommand, diagnostics, console.warnings))
        console.stdout.flush()
    except OSError:  # the screen itself is closed or full: the status still tells
        _drop_stdout()
        _drop_stderr()
    return ATC_FAILURE if compat else status


def error_document(subcommand: str, errors: tuple[Diagnostic, ...], warnings: list[Diagnostic]) -> dict[str, Any]:
    """The JSON document of a command that failed before it had a document of its own."""
    # The views of inspect-om have published schemas, and so has the document of an error.
    name = "inspect.error" if subcommand == "inspect-om" else subcommand.replace(" ", "-") or "gecli"
    return {
        "schema": f"gecli.{name}/1",
        "gecli_version": __version__,
        "ok": False,
        "errors": [diagnostic.as_json() for diagnostic in errors],
        "warnings": [diagnostic.as_json() for diagnostic in warnings],
    }


def stopped(stop: BaseException, console: Console | None = None) -> int:
    """Take away what was begun and say why; the exit status of the signal."""
    end()
    clean_up()
    status, word = ending_of(stop)
    try:
        (console or Console()).say(f"gecli: {word}")
    except OSError:  # the terminal is gone
        _drop_stderr()
    return status


def clean_up() -> None:
    """Remove temporary files of outputs that were being written, if any writing was started."""
    publish = sys.modules.get("gecli.artifacts.publish")
    if publish is not None:
        publish.remove_temporaries()


def _drop_stdout() -> None:
    """Let nothing more be written to a closed pipe, not even at interpreter exit."""
    devnull = os.open(os.devnull, os.O_WRONLY)
    os.dup2(devnull, sys.stdout.fileno())
    os.close(devnull)


def _drop_stderr() -> None:
    devnull = os.open(os.devnull, os.O_WRONLY)
    os.dup2(devnull, sys.stderr.fileno())
    os.close(devnull)


def _last(found: Scan, key: str, legal: tuple[str, ...]) -> str:
    """The typed value of a console option; an illegal one is reported later, by the option table."""
    text = found.typed.get(key, [legal[0]])[-1]
    return text if text in legal else legal[0]
