"""Compiles that end early and write no OM: --stop-after and --check."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field
from typing import Any

from gecli.compiler.api import CheckRead, new_session
from gecli.compiler.graph_compiler import StoppedEarly
from gecli.compiler.job import Job, jobs_of
from gecli.compiler.model_loading import check_names, load_model
from gecli.errors import Diagnostic, GecliError, InvalidOption
from gecli.ir.graph import Graph
from gecli.options.values import Options
from gecli.passes.base import Stage
from gecli.records import dataclass

PARSE = "parse"  # before the first pass


@dataclass(slots=True)
class CheckedModel:
    """What --check found in one model. `nodes` are (name, type); empty when the model could not be loaded."""

    source: str
    nodes: list[tuple[str, str]] = field(default_factory=list)
    inputs: list[dict[str, Any]] = field(default_factory=list)
    outputs: list[dict[str, Any]] = field(default_factory=list)
    warnings: list[Diagnostic] = field(default_factory=list)
    errors: list[Diagnostic] = field(default_factory=list)


def partial_jobs(models: Sequence[str], options: Options) -> list[Job]:
    """The jobs of a command that needs no output; their names stand in the current directory then."""
    return jobs_of(models, options.text("output") or "./")


def stopped_graphs(
    models: Sequence[str],
    options: Options,
    progress: Callable[[str, str], None] | None = None,
    check_read: CheckRead | None = None,
) -> list[tuple[Job, Graph]]:
    """Every model after the stage or pass of --stop-after. Raises GecliError, and what `check_read` raises."""
    stage = options.text("stop-after")
    session = new_session(options)
    found = []
    jobs = partial_jobs(models, options)
    all_loaded = [load_model(job, options, progress) for job in jobs]
    check_names(all_loaded)
    for loaded in all_loaded:
        if check_read is not None:
            check_read(loaded.path, loaded.files)
    for job, loaded in zip(jobs, all_loaded):
        if stage == PARSE:
            found.append((job, loaded.graph))
            continue
        try:
            session.compile(session.add(loaded.graph, loaded.overrides), progress)
        except StoppedEarly as stopped:
            found.append((job, stopped.graph))
    return found


def check_models(
    models: Sequence[str], options: Options, progress: Callable[[str, str], None] | None = None
) -> list[CheckedModel]:
    """Load every model, check its operators and infer its shapes. Faults of models are in the result."""
    found = []
    complete = []
    for job in partial_jobs(models, options):
        checked = CheckedModel(job.source)
        found.append(checked)
        try:
            loaded = load_model(job, options, progress)
            complete.append(loaded)
            checked.warnings = list(loaded.warnings)
            checked.nodes = [(node.name, node.type) for node in loaded.graph.all_nodes() if node.type != "NetOutput"]
            session = new_session(options)
            session.stop_after = Stage.PREPARE.value
            session.compile(session.add(loaded.graph, loaded.overrides), progress)
        except StoppedEarly as stopped:
            graph = stopped.graph
            checked.inputs = [_tensor(node.name, node.output_descs[0]) for node in graph.inputs]
            names = [*graph.output_names, *([""] * len(graph.outputs))]
            checked.outputs = [_tensor(name or str(port), port.desc) for name, port in zip(names, graph.outputs)]
        except GecliError as error:
            checked.errors = list(error.diagnostics)
    if len(complete) == len(found):
        try:
            check_names(complete)
        except InvalidOption as error:
            found[0].errors += error.diagnostics
    return found


def _tensor(name: str, desc: Any) -> dict[str, Any]:
    return {"name": name, "dtype": desc.dtype.serial, "shape": list(desc.shape), "format": desc.format.name}
