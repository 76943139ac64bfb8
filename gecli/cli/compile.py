"""`gecli compile`: options and models in, exit status out."""

from __future__ import annotations

import os
import sys
from functools import partial
from typing import TYPE_CHECKING, Any

from gecli.cli.invocation import Invocation
from gecli.cli.thread_limit import keep_blas_to_one_thread
from gecli.ir.networkx_core import load_networkx_core

if TYPE_CHECKING:
    from gecli.cli.console import Console
    from gecli.compiler.result import CompileReport
    from gecli.errors import Diagnostic
    from gecli.ir.graph import Graph
    from gecli.options.values import Options


def compile_models(invocation: Invocation) -> int:
    """Compile every model of the command line."""
    options = invocation.resolve(operand="MODEL")
    keep_blas_to_one_thread()  # constants are computed alike whatever the machine
    load_networkx_core()
    console = invocation.console
    if options.flag("keep-cmdline"):
        import shlex

        options.command_line = shlex.join(["gecli", *sys.argv[1:]])
    if options.flag("show-config"):
        from gecli.cli.show_config import show_config

        return show_config(options, console)
    if options.flag("print-schema"):
        from gecli.loading.json_schema import schema_text

        console.stdout.write(schema_text())
        console.document_printed = True
        return 0
    if options.flag("print-pipeline"):
        return _print_pipeline(options, console)
    models = invocation.models(options)
    if options.get("mode") in (1, 6):
        from gecli.cli.atc_modes import inspect_as_atc

        return inspect_as_atc(options, models, console)
    if options.flag("check") or options.get("mode") == 3:
        from gecli.cli.check_command import check

        return check(options, models, console)
    if options.text("stop-after"):
        return _stop_early(options, models, console)
    if options.flag("jit"):
        from gecli.cli.jit import compile_slices

        return compile_slices(options, models, console)
    return _compile(options, models, console)


def _stop_early(options: Options, models: list[str], console: Console) -> int:
    """--stop-after: the graphs go to files beside the output, in the forms of --emit, else to stdout."""
    from gecli.artifacts.publish import published_together
    from gecli.cli.written_files import DataFileCheck
    from gecli.compiler.extra_outputs import GRAPH_KINDS, emit_graph, emitted
    from gecli.compiler.job import is_one_file
    from gecli.compiler.partial_compile import stopped_graphs

    stopped = stopped_graphs(models, options, _progress(console), DataFileCheck(options, models))
    kinds = [kind for kind in emitted(options) if kind in GRAPH_KINDS]
    if options.text("output") and not any(is_one_file(job.om_path) for job, _ in stopped):
        kinds = kinds or ["json" if console.json else "readable"]
        with published_together():
            written = [path for job, graph in stopped for path in emit_graph(graph, job.om_path, kinds)]
        for path in written:
            console.say(f"wrote {path}", level=1 if options.texts("emit") else 0)
        if console.json:
            console.document({"schema": "gecli.emit/1", "stage": options.text("stop-after"), "written": written})
    elif console.json or kinds == ["json"]:
        _print_graphs([graph for _, graph in stopped], console)
    else:
        from gecli.ir.text import text

        for _, graph in stopped:
            console.result(text(graph).rstrip())
    return 0


def _print_graphs(graphs: list[Graph], console: Console) -> None:
    """One graph is a document that can be compiled; several are the members of one document."""
    from gecli.loading.json_writer import document_of, document_text

    documents = [document_of(graph, os.getcwd()) for graph in graphs]
    if len(documents) > 1:
        console.document({"schema": "gecli.graphs/1", "graphs": documents})
        return
    console.stdout.writelines(document_text(documents[0]))
    console.document_printed = True


def _compile(options: Options, models: list[str], console: Console) -> int:
    from gecli.artifacts.publish import published_together
    from gecli.cli.written_files import DataFileCheck
    from gecli.compiler.api import compile_models as run
    from gecli.errors import GecliError, OutputError
    from gecli.report.compile_report import compile_document, times_wanted

    try:
        with published_together():  # a report that cannot be written leaves no OM
            report = run(models, options, _progress(console), console.say, DataFileCheck(options, models))
            document = _write_others(report, options, console)
    except GecliError as error:
        document = compile_document(None, error.diagnostics, with_times=times_wanted())
        try:
            write_report(options, document)
        except OutputError as second:
            if not isinstance(error, OutputError):  # a full disk is told once
                console.report(second.diagnostics)
        if console.json:
            console.document(document)
        raise
    _show(report, options, console)
    _explain(report, options, console)
    errors = _errors(report)
    if options.get("ge.display_model_info"):
        from gecli.cli.atc_modes import show_model_info

        for result in report.models:
            show_model_info(result.output.path, console)
    console.report(errors)
    if console.json:
        console.document(document)
    if errors:
        return max(failure.exit_status for failure in report.failures)
    if any(result.cache.stored or result.cache.state == "hit" for result in report.models):
        from gecli.cli.remember import remember_command

        remember_command(sys.argv[1:], models, options, report, console)
    return 0


def _errors(report: CompileReport) -> list[Diagnostic]:
    return [diagnostic for failure in report.failures for diagnostic in failure.diagnostics]


def _write_others(report: CompileReport, options: Options, console: Console) -> dict[str, Any]:
    """What is written beside OM and rdcpkt; the document of the command. Raises OutputError."""
    from gecli.report.compile_report import compile_document, times_wanted

    if options.flag("print-hash") or console.json or options.text("report"):
        from gecli.compiler.output_hash import add_hashes

        add_hashes(report)
    explained = options.texts("explain-variable")
    document = compile_document(report, _errors(report), with_times=times_wanted(), explained=explained)
    write_report(options, document)
    if options.texts("emit"):
        _emit(report, document, options, console)
    depfile = options.text("depfile")
    if depfile and not (os.path.exists(depfile) and all(result.up_to_date for result in report.models)):
        from gecli.compiler.depfile import write_depfile

        write_depfile(depfile, report, options)
    return document


def _show(report: CompileReport, options: Options, console: Console) -> None:
    from gecli.report.compile_report import plain_lines, summary_lines

    to_stdout = any(result.output.path == "-" for result in report.models)
    for result in report.models:
        console.report(result.warnings)
        for line in result.cache.explanation:
            console.say(f"cache: {line}", asked=True)
        for line in _detail_lines(result):
            console.say(line, level=1)
        human = console.stdout.isatty() or console.json
        lines = summary_lines(result) if human else plain_lines(result)
        if to_stdout:
            console.say("\n".join(summary_lines(result)))
        elif not console.quiet:
            console.result("\n".join(lines))
        if options.flag("print-hash"):
            show = console.say if to_stdout else console.result
            for file in (*result.external_weights, result.output, result.rdcpkt):
                if file is not None:
                    show(f"sha256={file.sha256} {file.path}")


def _explain(report: CompileReport, options: Options, console: Console) -> None:
    for name in options.texts("explain-variable"):
        from gecli.report.variable_explanation import explanation_lines

        for result in report.models:
            for line in explanation_lines(result, name):
                console.result(line)


def _emit(report: CompileReport, document: dict[str, Any], options: Options, console: Console) -> None:
    from gecli.artifacts.publish import after_publication
    from gecli.compiler.extra_outputs import emit_documents, emit_graph, emitted

    kinds = emitted(options)
    for result, row in zip(report.models, document["models"]):
        if result.up_to_date:
            continue
        written = emit_documents(result, {**document, "models": [row]}, kinds)
        if result.graph is not None:
            written += emit_graph(result.graph, result.output.path, kinds)
        for path in written:
            after_publication(partial(console.say, f"wrote {path}", level=1))


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


def write_report(options: Options, document: dict[str, Any]) -> None:
    """--report: the document of the command in a file. Raises OutputError."""
    path = options.text("report")
    if not path:
        return
    import json

    from gecli.artifacts.publish import publish_bytes
    from gecli.json_text import escape_halves

    text = json.dumps(document, indent=2, sort_keys=True, ensure_ascii=False) + "\n"
    publish_bytes(path, escape_halves(text).encode("utf-8"))


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
