"""`gecli compile`: options and models in, exit status out."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from gecli.cli.invocation import Invocation

if TYPE_CHECKING:
    from gecli.cli.console import Console
    from gecli.compiler.result import CompileReport
    from gecli.options.resolution import Options


def compile_models(invocation: Invocation) -> int:
    """Compile every model of the command line."""
    options = invocation.resolve(operand="MODEL")
    console = invocation.console
    if options.flag("show-config"):
        from gecli.cli.show_config import show_config

        return show_config(options, console)
    if options.flag("print-pipeline"):
        return _print_pipeline(options, console)
    return _compile(options, invocation.models(options), console)


def _compile(options: Options, models: list[str], console: Console) -> int:
    from gecli.compiler.api import compile_models as run
    from gecli.compiler.graph_compiler import StoppedEarly
    from gecli.errors import GecliError
    from gecli.report.compile_report import compile_document, times_wanted

    progress = _progress(console)
    try:
        report = run(models, options, progress, console.say)
    except StoppedEarly as stopped:
        from gecli.ir.text import text

        console.result(text(stopped.graph).rstrip())
        return 0
    except GecliError as error:
        _write_report(options, compile_document(None, error.diagnostics, with_times=times_wanted()))
        raise
    _show(report, options, console)
    document = compile_document(report, with_times=times_wanted())
    _write_report(options, document)
    if console.json:
        console.document(document)
    if any(result.cache.stored or result.cache.state == "hit" for result in report.models):
        from gecli.cli.remember import remember_command

        remember_command(sys.argv[1:], models, options, report, console)
    return 0


def _show(report: CompileReport, options: Options, console: Console) -> None:
    from gecli.report.compile_report import plain_lines, summary_lines

    to_stdout = any(result.output.path == "-" for result in report.models)
    for result in report.models:
        console.report(result.warnings)
        for line in result.cache.explanation:
            console.say(f"cache: {line}")
        for line in _detail_lines(result):
            console.say(line, level=1)
        if console.quiet and not console.json:
            continue
        human = console.stdout.isatty() or console.json
        lines = summary_lines(result) if human else plain_lines(result)
        if to_stdout:
            console.say("\n".join(summary_lines(result)))
        else:
            console.result("\n".join(lines))
        if options.flag("print-hash"):
            console.result(f"sha256={result.output.sha256} {result.output.path}")


def _detail_lines(result: Any) -> list[str]:
    """What -v shows: passes with their counts."""
    return [
        f"{record.stage.value:32} {record.name:36} {record.elapsed_ns / 1e6:8.1f} ms  "
        + (", ".join(f"{name} {count}" for name, count in record.counts.items() if count) or "no change")
        for record in result.passes
    ]


def _progress(console: Console) -> Any:
    if console.progress_style == "plain":
        return lambda model, stage: console.say(f"{model}: {stage}", level=1)
    return None


def _write_report(options: Options, document: dict[str, Any]) -> None:
    path = options.text("report")
    if not path:
        return
    import json

    from gecli.artifacts.publish import publish_bytes

    text = json.dumps(document, indent=2, sort_keys=True, ensure_ascii=False) + "\n"
    publish_bytes(path, text.encode("utf-8", "surrogateescape"))


def _print_pipeline(options: Options, console: Console) -> int:
    from gecli.compiler.settings import compile_settings
    from gecli.passes.pipeline import enabled
    from gecli.passes.registry import pipeline

    settings = compile_settings(options)
    rows = [
        {"stage": step.stage.value, "pass": step.name, "implemented": True, "enabled": enabled(step, settings)}
        for step in pipeline(settings)
    ]
    if console.json:
        console.document({"schema": "gecli.pipeline/1", "passes": rows})
        return 0
    for row in rows:
        console.result(f"{row['stage']:32} {row['pass']:40} {'on' if row['enabled'] else 'off'}")
    return 0
