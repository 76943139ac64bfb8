"""`compile_models`: everything behind `gecli compile`, without a terminal."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

from gecli.artifacts.om_writer import OmImage, write_om
from gecli.artifacts.publish import remove_file
from gecli.artifacts.rdcpkt import write_rdcpkt
from gecli.cache.fingerprint import Fingerprint, fingerprint_of, toolchain_of
from gecli.cache.request_digest import option_items
from gecli.cache.stat_index import StatIndex
from gecli.compiler.cache_setup import CacheOff, CacheSetup, cache_setup
from gecli.compiler.cached_compile import CachedCompiler, Compiled, Work, uses_session
from gecli.compiler.cmdline import recorded_cmdline
from gecli.compiler.direct_hit import deliver_direct, direct_hits
from gecli.compiler.job import STDIO, Job, jobs_of
from gecli.compiler.model_image import ImageFacts, model_image
from gecli.compiler.result import CacheUse, CompileReport, ModelResult, OutputFile
from gecli.compiler.session import Member, Session
from gecli.compiler.settings import compile_settings, memory_limits, platform_setting
from gecli.compiler.variable_report import variable_rows
from gecli.errors import GecliError
from gecli.ir.op_desc import OpDesc
from gecli.loading import LoadedModel, load_graph
from gecli.loading.input_shapes import parse_input_shapes
from gecli.loading.shape_binding import InputRow
from gecli.options.resolution import Options, resolve
from gecli.passes.pipeline import Dump, Instrument
from gecli.passes.registry import pass_names
from gecli.variables.var_match import VarMatch

Progress = Callable[[str, str], None]
Notify = Callable[[str], None]


def compile_model(source: str | os.PathLike[str], output: str | os.PathLike[str], **options: str) -> ModelResult:
    """Compile one model file to `output` (and its rdcpkt beside it).

    `options` are command-line options with underscores: `compile_model("a.onnx", "a.om", input_shape="x:1,3")`.
    Raises GecliError.
    """
    typed = {name.replace("_", "-"): (value,) for name, value in options.items()}
    typed["output"] = (os.fspath(output),)
    return compile_models([os.fspath(source)], resolve("compile", typed)).models[0]


def compile_models(
    models: Sequence[str], options: Options, progress: Progress | None = None, notify: Notify | None = None
) -> CompileReport:
    """Compile every model in one session (or one session each) and publish the results.

    Nothing is written unless every model of the session compiled. `notify` is told when another process is waited for.
    Raises GecliError, and StoppedEarly.
    """
    jobs = jobs_of(models, options.text("output"))
    platform = platform_setting(options)
    setup = cache_setup(options, jobs)
    if options.flag("no-session") and len(jobs) > 1:
        results = [
            result
            for position, job in enumerate(jobs)
            for result in _compile_session([job], options, progress, _part(setup, position), notify)
        ]
    else:
        results = _compile_session(jobs, options, progress, setup, notify)
    return CompileReport(results, platform.soc)


def _part(setup: CacheSetup | CacheOff, position: int) -> CacheSetup | CacheOff:
    """The cache of one job."""
    if isinstance(setup, CacheOff) or not setup.keys:
        return setup
    return setup._replace(keys=(setup.keys[position],))


def _compile_session(
    jobs: list[Job],
    options: Options,
    progress: Progress | None,
    setup: CacheSetup | CacheOff,
    notify: Notify | None,
) -> list[ModelResult]:
    start = perf_counter()
    if isinstance(setup, CacheOff):
        results = _compile_together(jobs, _load_all(jobs, options, progress), options, progress)
        for result in results:
            result.notes += [setup.note] if setup.note else []
            result.cache = CacheUse("bypassed", reason=setup.reason) if setup.reason else CacheUse()
    else:
        results = _compile_cached(jobs, options, progress, setup, notify)
    elapsed = (perf_counter() - start) * 1000
    for result in results:
        result.elapsed_ms = elapsed / len(results)
    return results


def _compile_together(
    jobs: list[Job], loaded: list[LoadedModel], options: Options, progress: Progress | None
) -> list[ModelResult]:
    """Compile models in one session, without the cache."""
    session = new_session(options)
    fingerprints = [fingerprint(each, job, options, session) for each, job in zip(loaded, jobs)]
    members = [session.add(each.graph) for each in loaded]
    session.compile_all(progress)
    results = []
    for job, each, member, digest in zip(jobs, loaded, members, fingerprints):
        image = image_of(member, session, each, job, options, digest)
        results.append(describe(job, each, member, session, image, options))
    for result, member, job in zip(results, members, jobs):
        assert member.compiled is not None
        publish(job, member.compiled.record, result)
    return results


def _compile_cached(
    jobs: list[Job], options: Options, progress: Progress | None, setup: CacheSetup, notify: Notify | None
) -> list[ModelResult]:
    """Take models from the cache, or compile and store them. Outputs appear when all models are ready."""
    stats = StatIndex(trusting=setup.cache.verify != "full")
    direct = direct_hits(setup, jobs, options, stats)
    if direct is not None:
        return [deliver_direct(setup, job, found, options, stats) for job, found in zip(jobs, direct)]
    loaded = _load_all(jobs, options, progress)
    if len(jobs) > 1 and uses_session(loaded, options):
        results = _compile_together(jobs, loaded, options, progress)
        for result in results:
            result.cache = CacheUse("bypassed", reason="session")
            result.notes.append("the cache is not used for several models that share variables")
        return results

    def compile_one(work: Work) -> Compiled:
        session = new_session(options)
        member = session.add(work.loaded.graph)
        session.compile_all(progress)
        image = image_of(member, session, work.loaded, work.job, options, work.digest)
        assert member.compiled is not None
        result = describe(work.job, work.loaded, member, session, image, options)
        return Compiled(result, member.compiled.record)

    session = new_session(options)
    compiler = CachedCompiler(setup, options, stats, compile_one, lambda: new_session(options).manager, notify)
    works = [
        compiler.work_of(position, job, each, fingerprint(each, job, options, session))
        for position, (job, each) in enumerate(zip(jobs, loaded))
    ]
    for work in works:
        compiler.prepare(work)
    results = []
    for work in works:
        result = compiler.deliver(work)
        if work.entry is None:
            assert work.compiled is not None
            publish(work.job, work.compiled.record, result)
        results.append(result)
    not_stored = [work.not_stored for work in works if work.not_stored is not None]
    if not_stored:
        raise not_stored[0]
    return results


def new_session(options: Options) -> Session:
    """An empty session with the options' target, settings and limits."""
    return Session(
        platform=platform_setting(options),
        settings=compile_settings(options),
        limits=memory_limits(options),
        reuse=not options.integer("ge.exec.disableReuseMemory"),
        allow_rebuild=not options.flag("no-rebuild"),
        instruments=_instruments(options),
        stop_after=options.text("stop-after"),
    )


def _instruments(options: Options) -> list[Instrument]:
    dump = options.text("dump-graph")
    if not dump:
        return []
    directory, _, stages = dump.partition(":")
    directory = directory or options.text("ge.debugDir") or "."
    return [Dump(Path(directory), frozenset(stage for stage in stages.split(",") if stage))]


def _load_all(jobs: list[Job], options: Options, progress: Progress | None) -> list[LoadedModel]:
    shapes = parse_input_shapes(options.texts("input_shape"), options.texts("dim"))
    loaded: list[LoadedModel] = []
    failed: list[GecliError] = []
    for job in jobs:
        if progress:
            progress(job.stem, "parse")
        try:
            loaded.append(
                load_graph(
                    job.source,
                    front_end=options.text("from") or "auto",
                    input_shapes=shapes,
                    base_dir=options.text("base-dir"),
                )
            )
        except GecliError as err:
            if not options.flag("keep-going"):
                raise
            failed.append(err)
    if failed:
        raise GecliError.of([diagnostic for err in failed for diagnostic in err.diagnostics])
    return loaded


def fingerprint(loaded: LoadedModel, job: Job, options: Options, session: Session) -> Fingerprint:
    """The digests of a loaded model, before any pass runs."""
    items = option_items(options, StatIndex(), job.stem, job.source)
    toolchain = toolchain_of(session.platform.soc, sorted(pass_names()))
    return fingerprint_of(loaded.graph, items, toolchain)


def image_of(
    member: Member, session: Session, loaded: LoadedModel, job: Job, options: Options, digest: Fingerprint
) -> OmImage:
    """The OM of a compiled member."""
    assert member.compiled is not None
    facts = ImageFacts(
        name=job.stem,
        soc=session.platform.soc,
        arch=session.platform.profile,
        framework=loaded.front_end,
        cmdline=recorded_cmdline(options, job.source),
        fingerprint=digest.source,
    )
    return model_image(member.compiled, session.manager, facts)


def describe(
    job: Job, loaded: LoadedModel, member: Member, session: Session, image: OmImage, options: Options
) -> ModelResult:
    """The report of one model; its image is kept for publishing."""
    compiled = member.compiled
    assert compiled is not None
    plan = compiled.plan
    result = ModelResult(job.source, loaded.front_end, OutputFile(job.om_path, image.size_bytes))
    rows = {row.name: row for row in loaded.inputs}
    result.inputs = [_input_json(node, rows.get(node.name)) for node in compiled.graph.inputs]
    result.outputs = [
        {"name": name, "dtype": port.desc.dtype.serial, "shape": list(port.desc.shape), "format": port.desc.format.name}
        for name, port in zip(_output_names(compiled.graph), compiled.graph.outputs)
    ]
    result.options = options.records()
    result.session = options.text("session") or "default"
    result.variables = variable_rows(compiled, session.manager)
    memory = plan.memory
    result.memory = {
        "feature_bytes": plan.memory_bytes,
        "zero_copy_bytes": memory.zero_copy_bytes if memory else 0,
        "reusable_bytes": memory.peak_bytes if memory else 0,
        "lower_bound_bytes": memory.lower_bound_bytes if memory else 0,
        "no_reuse_bytes": memory.no_reuse_bytes if memory else 0,
        "order": memory.order_used if memory else "",
        "weight_bytes": plan.weights.total_bytes,
        "variable_bytes": session.manager.hbm.used_bytes,
        "variable_base": session.manager.logic_base,
        "streams": 1,
        "events": 0,
    }
    result.passes = compiled.passes
    result.records = compiled.records
    result.warnings = [*loaded.warnings, *compiled.warnings]
    result.files_read = list(loaded.files)
    result.node_count = len(plan.order)
    result.compile_count = member.compile_count
    result.is_dynamic = plan.is_dynamic
    result.image = image
    return result


def _input_json(node: OpDesc, row: InputRow | None) -> dict[str, Any]:
    desc = node.output_descs[0]
    facts = {"name": node.name, "dtype": desc.dtype.serial, "shape": list(desc.shape), "format": desc.format.name}
    return facts if row is None else {**row.as_json(), **facts}


def _output_names(graph: Any) -> list[str]:
    return [
        graph.output_names[i] if i < len(graph.output_names) and graph.output_names[i] else f"{p.node.name}:{p.index}"
        for i, p in enumerate(graph.outputs)
    ]


def publish(job: Job, record: VarMatch, result: ModelResult) -> None:
    """Write the rdcpkt, then the OM, then remove a stale rdcpkt: an interrupted compile leaves no OM alone."""
    assert result.image is not None
    if job.om_path == STDIO:
        result.image.write_unseekable(sys.stdout.buffer)
        sys.stdout.buffer.flush()
        return
    if not record.is_empty:
        result.rdcpkt = OutputFile(job.rdcpkt_path, write_rdcpkt(job.rdcpkt_path, record))
    result.output.size_bytes = write_om(job.om_path, result.image)
    if record.is_empty:
        remove_file(job.rdcpkt_path)
    result.image = None
