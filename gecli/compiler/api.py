"""`compile_models`: everything behind `gecli compile`, without a terminal."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, BinaryIO, cast

from gecli.artifacts.om_writer import OmImage, write_om
from gecli.artifacts.publish import held_until_published, publish_waiting, published_together, remove_file
from gecli.cache.fingerprint import Fingerprint, fingerprint_of, toolchain_of
from gecli.cache.request_digest import option_items
from gecli.cache.stat_index import StatIndex
from gecli.compiler.cache_setup import CacheOff, CacheSetup, cache_setup
from gecli.compiler.cmdline import recorded_cmdline
from gecli.compiler.failures import combined, refuse
from gecli.compiler.job import STDIO, Job, jobs_of
from gecli.compiler.job_checks import check_paths, check_results, directory_note
from gecli.compiler.model_image import ImageFacts, model_image
from gecli.compiler.model_loading import load_all
from gecli.compiler.result import CacheUse, CompileReport, ModelResult, OutputFile
from gecli.compiler.session import Member, Session
from gecli.compiler.settings import compile_settings, dump_setting, memory_limits, platform_setting, stop_stage
from gecli.compiler.variable_report import variable_rows
from gecli.errors import Diagnostic, GecliError, InvalidOption
from gecli.ir.op_desc import OpDesc
from gecli.layout.platform import Platform, platform_of
from gecli.loading import LoadedModel
from gecli.loading.shape_binding import InputRow
from gecli.options.resolution import resolve
from gecli.options.table import find_flag, named_options_of
from gecli.options.values import Options
from gecli.passes.pipeline import Dump, Instrument, StructureCheck
from gecli.passes.registry import pass_names
from gecli.passes.variable_casts import NO_CASTS, Casts, cast_variables, casts_of_others
from gecli.variables.var_match import VarMatch

if TYPE_CHECKING:
    from gecli.compiler.cached_compile import Compiled, Work
    from gecli.compiler.session_cache import SessionCache
    from gecli.compiler.weight_output import PendingWeights

Progress = Callable[[str, str], None]
Notify = Callable[[str], None]
CheckRead = Callable[[str, Sequence[str]], None]


def compile_model(source: str | os.PathLike[str], output: str | os.PathLike[str], **options: str) -> ModelResult:
    """Compile one model file to `output` (and its rdcpkt beside it).

    `options` are command-line options with underscores, or GE's names: `compile_model("a.onnx", "a.om",
    input_shape="x:1,3")`. Raises GecliError.
    """
    typed = {_key_of(name): (value,) for name, value in options.items()}
    typed["output"] = (os.fspath(output),)
    return compile_models([os.fspath(source)], resolve("compile", typed)).models[0]


def _key_of(name: str) -> str:
    flag = find_flag("compile", name)
    option = flag.option if flag is not None else named_options_of("compile").get(name)
    if option is None:
        raise TypeError(f"compile_model() has no option {name!r}")
    return option.key


def compile_models(
    models: Sequence[str],
    options: Options,
    progress: Progress | None = None,
    notify: Notify | None = None,
    check_read: CheckRead | None = None,
) -> CompileReport:
    """Compile every model in one session (or one session each) and publish the results.

    Nothing is written unless every model compiled, or with --keep-going those with a session of their own. `notify` is
    told when another process is waited for, `check_read` of each model and the files that it was loaded from; it may
    raise. Raises GecliError, and StoppedEarly.
    """
    jobs = jobs_of_command(models, options)
    check_paths(jobs, options)
    note = directory_note(models, options.text("output") or "")
    report = CompileReport([], platform_setting(options).soc)
    setup = cache_setup(options, jobs)
    with published_together(), held_until_published(_session_locks(options)):
        if not options.flag("no-session") or len(jobs) == 1:
            report.models = _compile_session(jobs, options, progress, setup, notify, check_read)
            report.models[0].notes += [note] if note else []
            if (options.integer("jobs") or 1) > 1:
                why = "models of one session depend on each other" if len(jobs) > 1 else "there is one model"
                report.models[0].notes.append(f"--jobs had no effect: {why}")
            return report
        if options.texts("input_shape") or options.texts("dim"):
            _check_names(jobs, options)
        tasks = [
            partial(_compile_session, [job], options, progress, _part(setup, position), notify, check_read)
            for position, job in enumerate(jobs)
        ]
        for outcome in _outcomes(tasks, options):
            if isinstance(outcome, list):
                report.models += outcome
            elif not options.flag("keep-going") or outcome.code == "E10047":  # an output would overwrite an input
                raise outcome
            else:
                report.failures.append(outcome)
        if not report.models:
            raise combined(report.failures)
    report.models[0].notes += [note] if note else []
    return report


def jobs_of_command(models: Sequence[str], options: Options) -> list[Job]:
    """One job for each model, or for each operator of --singleop. Raises InvalidOption and InputError."""
    if options.text("singleop") is None:
        return jobs_of(models, options.text("output"))
    from gecli.compiler.single_op import single_op_jobs

    if models:
        why, do = f"{len(models)} models were given", "one command for each"
        raise InvalidOption("E10001", "--singleop excludes MODEL", why=why, do=do, option="--singleop")
    return single_op_jobs(options)


def _outcomes(
    tasks: Sequence[Callable[[], list[ModelResult]]], options: Options
) -> Iterable[list[ModelResult] | GecliError]:
    """The results of each task, or its error: one after the other, or with -j several at once."""
    workers = options.integer("jobs") or 1
    if workers > 1 and not options.texts("emit"):  # what --emit writes is made from the graph, here
        from gecli.compiler.worker_pool import compiled_at_once

        yield from compiled_at_once(tasks, workers, keep_going=options.flag("keep-going"))
        return
    for task in tasks:
        try:
            with published_together():
                outcome: list[ModelResult] | GecliError = task()
        except GecliError as error:
            outcome = error
        yield outcome


def _session_locks(options: Options) -> AbstractContextManager[None]:
    if not options.text("session-in") and not options.text("session-out"):
        return nullcontext()
    from gecli.compiler.session_file import locked_session_files

    return locked_session_files(options)


def _check_names(jobs: list[Job], options: Options) -> None:
    """Models with a session each are compiled one after the other; what they are named for is checked before."""
    if any(job.source == STDIO for job in jobs):
        return  # it can be read once only
    load_all(jobs, options)


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
    check_read: CheckRead | None,
) -> list[ModelResult]:
    start = perf_counter()
    loaded = _load(jobs, options, progress, check_read) if options.flag("if-changed") else None
    if loaded is not None and _all_up_to_date(jobs, loaded, options):
        from gecli.compiler.up_to_date import up_to_date_result

        return [up_to_date_result(job, each, options) for job, each in zip(jobs, loaded)]
    if isinstance(setup, CacheOff):
        loaded = loaded or _load(jobs, options, progress, check_read)
        results = _compile_together(jobs, loaded, options, progress)
        for result in results:
            result.notes += [setup.note] if setup.note else []
            result.cache = CacheUse("bypassed", reason=setup.reason) if setup.reason else CacheUse()
    else:
        results = _compile_cached(jobs, options, progress, setup, notify, check_read, loaded)
    if options.flag("werror"):  # what the cache warns of too; nothing is published yet
        refuse(warning for result in results for warning in result.warnings)
    elapsed = (perf_counter() - start) * 1000
    for result in results:
        result.elapsed_ms = elapsed / len(results)
    return results


def _load(
    jobs: list[Job], options: Options, progress: Progress | None, check_read: CheckRead | None
) -> list[LoadedModel]:
    """Every model, or the errors of all of them: those that could be loaded are compiled to find theirs."""
    loaded, failed = load_all(jobs, options, progress)
    for each in loaded:
        if check_read is not None:
            check_read(each.path, each.files)
    if failed:
        session = new_session(options)
        for each in loaded:
            session.add(each.graph, each.overrides)
        raise combined([*failed, *session.compile_all(progress, keep_going=True)])
    return loaded


def _all_up_to_date(jobs: list[Job], loaded: list[LoadedModel], options: Options) -> bool:
    """Whether every output exists as this compile would make it; never with session files, which change the result."""
    if options.text("session-in") or options.text("session-out"):
        return False
    from gecli.compiler.up_to_date import is_up_to_date
    from gecli.compiler.weight_output import weight_folder

    session = new_session(options)
    return all(
        is_up_to_date(job, digest, weight_folder(job, options))
        for job, digest in zip(jobs, fingerprints(loaded, jobs, options, session))
    )


def _compile_together(
    jobs: list[Job],
    loaded: list[LoadedModel],
    options: Options,
    progress: Progress | None,
    source: SessionCache | None = None,
) -> list[ModelResult]:
    """Compile models in one session, without the cache, or with models taken from `source`."""
    session = new_session(options)
    session.source = source
    digests = fingerprints(loaded, jobs, options, session)
    told: list[list[Diagnostic]] = []
    if len(jobs) > 1 or session.manager.resource.current_descs:
        from gecli.compiler.declared_axes import axes_warnings, declared_forms

        told = axes_warnings(loaded, declared_forms(session.manager))
    members = [session.add(each.graph, each.overrides, stem=job.stem) for each, job in zip(loaded, jobs)]
    failed = session.compile_all(progress, keep_going=options.flag("keep-going"))
    if failed:
        raise combined(failed)
    memory_notes = [_compacted(session)] if options.flag("compact-variables") else []
    results = []
    for job, each, member, digest in zip(jobs, loaded, members, digests):
        if source is not None and member.taken is not None:
            results.append(source.result(session, member))
            continue
        pending = _external_of(member, job, options)
        image = image_of(member, session, each, job, options, digest)
        results.append(describe(job, each, member, session, image, options))
        results[-1].pending = pending
    results[0].notes += memory_notes
    for result, found in zip(results, told):
        result.warnings = [*result.warnings, *found]  # of the session, not of the entry of a model in a cache
    if len(results) > 1:
        from gecli.compiler.initial_values import initial_value_warnings

        for result, found in zip(results, initial_value_warnings(loaded)):
            result.warnings = [*result.warnings, *found]  # of the session, not of the entry of a model in a cache
    check_results(results, options)
    with published_together():
        for result, member, job in zip(results, members, jobs):
            built = member.compiled or member.taken
            assert built is not None
            publish(job, built.record, result)
        for each in loaded:
            each.require_unchanged()
        if options.text("session-out"):
            from gecli.compiler.session_file import save_session

            seed_keys = options.text("var-key-style") == "seed"
            save_session(session, options.text("session-out") or "", seed_keys=seed_keys)
    for result, job in zip(results, jobs):
        remove_stale(job, result)
    return results


def _compacted(session: Session) -> str:
    """What --compact-variables saves."""
    from gecli.compiler.compact_variables import compact_variables

    before = session.manager.hbm.used_bytes
    saved = compact_variables(session)
    return f"--compact-variables saved {saved} of {before} bytes of variable memory"


def _compile_cached(
    jobs: list[Job],
    options: Options,
    progress: Progress | None,
    setup: CacheSetup,
    notify: Notify | None,
    check_read: CheckRead | None,
    loaded: list[LoadedModel] | None = None,
) -> list[ModelResult]:
    """Take models from the cache, or compile and store them. Outputs appear when all models are ready."""
    from gecli.compiler.cached_compile import CachedCompiler, Compiled, uses_session
    from gecli.compiler.direct_hit import deliver_direct, direct_hits, has_session_file
    from gecli.compiler.readdressing import memory_member

    stats = StatIndex(trusting=setup.cache.verify != "full")
    direct = None if loaded else direct_hits(setup, jobs, options, stats, check_read)
    if direct is not None:
        # An OSError: the entry went away between decision and use, so the long way decides again.
        with suppress(OSError), published_together():
            return [deliver_direct(setup, job, found, options, stats) for job, found in zip(jobs, direct)]
    loaded = loaded or _load(jobs, options, progress, check_read)
    is_session = has_session_file(options) or (len(jobs) > 1 and uses_session(loaded, options))
    if is_session:
        return _compile_session_cached(jobs, loaded, options, progress, setup, notify, stats)

    def compile_one(work: Work) -> Compiled:
        session = new_session(options)
        member = session.add(work.loaded.graph, work.loaded.overrides, stem=work.job.stem)
        session.compile_all(progress)
        pending = _external_of(member, work.job, options)
        image = image_of(member, session, work.loaded, work.job, options, work.digest)
        assert member.compiled is not None
        result = describe(work.job, work.loaded, member, session, image, options)
        result.pending = pending
        check_results([result], options)
        lay_out = partial(image_of, member, session, work.loaded, work.job, options, work.digest)
        return Compiled(result, member.compiled.record, lay_out, memory_member(member.compiled))

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
        result.files_read = list(work.loaded.files)
        if work.entry is None:
            assert work.compiled is not None
            publish(work.job, work.compiled.record, result)
            work.loaded.require_unchanged()
            remove_stale(work.job, result)
        results.append(result)
    not_stored = [work.not_stored for work in works if work.not_stored is not None]
    if not_stored:
        publish_waiting()  # --require-cache: the outputs are made, the status tells of the cache
        raise not_stored[0]
    return results


def _compile_session_cached(
    jobs: list[Job],
    loaded: list[LoadedModel],
    options: Options,
    progress: Progress | None,
    setup: CacheSetup,
    notify: Notify | None,
    stats: StatIndex,
) -> list[ModelResult]:
    """Take the models of a session from the cache one after the other, or compile and store them."""
    from gecli.compiler.cached_compile import CachedCompiler, Compiled
    from gecli.compiler.readdressing import memory_member
    from gecli.compiler.session_cache import compile_through_cache
    from gecli.compiler.weight_output import unwritten_weights

    session = new_session(options)
    digests = fingerprints(loaded, jobs, options, session)

    def compiled(session: Session, member: Member) -> Compiled:
        position = member.graph_id - session.first_graph_id
        job, each, digest, built = jobs[position], loaded[position], digests[position], member.compiled
        assert built is not None
        lay_out = partial(image_of, member, session, each, job, options, digest)
        result = describe(job, each, member, session, lay_out(), options)
        result.pending = unwritten_weights(built.external, job, options)
        return Compiled(result, built.record, lay_out, memory_member(built))

    compiler = CachedCompiler(setup, options, stats, None, lambda: new_session(options).manager, notify)
    works = [
        compiler.work_of(position, job, each, digest)
        for position, (job, each, digest) in enumerate(zip(jobs, loaded, digests))
    ]
    if len(jobs) > 1 or options.text("session-out"):
        for work in works:
            work.request = None  # the outputs may be other bytes than the entry's files
    together = partial(_compile_together, jobs, loaded, options, progress)
    results = compile_through_cache(compiler, works, together, compiled)
    for result, each in zip(results, loaded):
        result.files_read = list(each.files)
    return results


def new_session(options: Options) -> Session:
    """A session with the options' target, settings and limits; empty unless --session-in continues one."""
    session = Session(
        platform=platform_setting(options),
        settings=compile_settings(options),
        limits=memory_limits(options),
        reuse=not options.integer("ge.exec.disableReuseMemory"),
        allow_rebuild=not options.flag("no-rebuild"),
        instruments=_instruments(options),
        stop_after=stop_stage(options),
        external_weight=options.integer("ge.externalWeight") or 0,
    )
    if options.text("session-in"):
        from gecli.compiler.session_file import continue_session

        continue_session(session, options.text("session-in") or "")
    return session


def _instruments(options: Options) -> list[Instrument]:
    found: list[Instrument] = []
    if options.flag("verify-passes"):
        from gecli.compiler.pass_verification import ResultCheck

        found = [StructureCheck(), ResultCheck()]
    dump = dump_setting(options)
    return found if dump is None else [*found, Dump(Path(dump[0]), dump[1])]


def fingerprints(
    loaded: Sequence[LoadedModel], jobs: Sequence[Job], options: Options, session: Session
) -> list[Fingerprint]:
    """The digests of the models of one session."""
    casts = casts_of_others([each.graph for each in loaded])
    return [fingerprint(each, job, options, session, beside) for each, job, beside in zip(loaded, jobs, casts)]


def fingerprint(
    loaded: LoadedModel, job: Job, options: Options, session: Session, casts_beside: Casts = NO_CASTS
) -> Fingerprint:
    """The digests of a loaded model, before any pass runs. `casts_beside`: what the models beside it cast variables to.

    That decides whether a variable may be stored in a narrower type, and counts for those that this model casts.
    """
    items = option_items(options, StatIndex(), job.stem, job.source)
    if casts_beside and not session.settings.precision:
        own = cast_variables(loaded.graph)
        casts_beside = {name: type for name, type in casts_beside.items() if name in own}
    if casts_beside:
        told = " ".join(f"{name}:{'-' if type is None else type.serial}" for name, type in casts_beside.items())
        items = sorted([*items, ("casts_of_other_models", told)])
    passes = [] if loaded.graph.is_optimised else sorted(pass_names())
    toolchain = toolchain_of(_platform(loaded, session).soc, passes)
    origin = (loaded.origin.soc, loaded.origin.framework) if loaded.origin else ()
    return fingerprint_of(loaded.graph, items, toolchain, origin)


def _platform(loaded: LoadedModel, session: Session) -> Platform:
    """The chip of the session; that of the document for a graph that was compiled before."""
    soc = loaded.origin.soc if loaded.origin else ""
    if not soc:
        return session.platform
    try:
        return platform_of(soc)
    except InvalidOption:  # of another maker's file
        return replace(session.platform, soc=soc)


def image_of(
    member: Member, session: Session, loaded: LoadedModel, job: Job, options: Options, digest: Fingerprint
) -> OmImage:
    """The OM of a compiled member."""
    assert member.compiled is not None
    platform = _platform(loaded, session)
    facts = ImageFacts(
        name=job.stem,
        soc=platform.soc,
        arch=platform.profile,
        framework=(loaded.origin.framework if loaded.origin else "") or loaded.front_end,
        cmdline=recorded_cmdline(options, job.source),
        fingerprint=digest.source,
    )
    return model_image(member.compiled, session.manager, facts)


def _external_of(member: Member, job: Job, options: Options) -> PendingWeights | None:
    """The weights that go to files, before the OM is laid out."""
    if member.compiled is None or not member.compiled.external:
        return None
    from gecli.compiler.weight_output import pending_weights

    return pending_weights(member.compiled.external, job, options)


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
    result.variables = variable_rows(compiled.variables, compiled.record, session.manager)
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
    result.records = [*compiled.records, *member.events]
    notes: list[dict[str, str]] = [getattr(each, "notes", {}) for each in session.instruments]
    result.notes += [each[compiled.graph.name] for each in notes if compiled.graph.name in each]
    explained = options.texts("explain-variable")
    if explained:
        from gecli.compiler.variable_story import variable_story

        result.stories = {name: variable_story(name, member, session) for name in explained}
    checks: list[dict[int, dict[str, Any]]] = [getattr(each, "found", {}) for each in session.instruments]
    result.verification = next((each[member.graph_id] for each in checks if member.graph_id in each), None)
    result.warnings = [*loaded.warnings, *compiled.warnings]
    result.files_read = list(loaded.files)
    result.node_count = len(plan.order)
    result.compile_count = member.compile_count
    result.is_dynamic = plan.is_dynamic
    if plan.is_dynamic:
        from gecli.compiler.dynamic_cause import dynamic_cause

        result.dynamic_cause = dynamic_cause(compiled.graph)
    result.image = image
    result.graph = compiled.graph
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
    """Write external weights, the rdcpkt, then the OM: an interrupted compile leaves no OM alone."""
    assert result.image is not None
    if result.pending is not None:
        from gecli.compiler.weight_output import write_weights

        write_weights(result.pending, result)
    if job.om_path == STDIO:
        from gecli.compiler.output_hash import HashingStream

        stream = HashingStream(sys.stdout.buffer)
        result.image.write_unseekable(cast("BinaryIO", stream))  # it writes only
        sys.stdout.buffer.flush()
        result.output.sha256 = stream.sha256
        return
    if not record.is_empty:
        from gecli.artifacts.rdcpkt import write_rdcpkt

        result.rdcpkt = OutputFile(job.rdcpkt_path, write_rdcpkt(job.rdcpkt_path, record))
    result.output.size_bytes = write_om(job.om_path, result.image)
    result.image = None


def remove_stale(job: Job, result: ModelResult) -> None:
    """Remove the rdcpkt of an earlier compile, if the model needs none now."""
    if job.om_path != STDIO and result.rdcpkt is None:
        remove_file(job.rdcpkt_path)
