"""`gecli run`: options and OM files in, exit status out."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from gecli.cli.invocation import Invocation
from gecli.cli.thread_limit import use_threads

MAX_DURATION_S = 31 * 86400

if TYPE_CHECKING:
    from gecli.cli.console import Console
    from gecli.cli.run_compare import Golden
    from gecli.options.values import Options
    from gecli.report.comparison import Difference
    from gecli.runtime.memory_map import Region
    from gecli.runtime.model import LoadedModel
    from gecli.runtime.runner import Outcome
    from gecli.runtime.session import Session
    from gecli.runtime.session_table import SessionTable
    from gecli.runtime.tensor_dump import TensorDump
    from gecli.runtime.weight_search import WeightSettings


def run_models(invocation: Invocation) -> int:
    """Run every OM of the command line on the simulated device."""
    options = invocation.resolve(operand="OM")
    use_threads(options.integer("threads"))
    if not options.text("session-out"):
        return _run(options, invocation.models(options), invocation.console)
    from gecli.cli.run_session import session_locks

    with session_locks(options):
        return _run(options, invocation.models(options), invocation.console)


def _run(options: Options, paths: list[str], console: Console) -> int:
    from gecli.artifacts.publish import published_together
    from gecli.cli.run_inputs import check_shapes
    from gecli.report.run_report import not_finite
    from gecli.runtime.memory_map import map_lines, memory_map, require_memory

    order = _order(options, paths)
    sessions: dict[str, Session] = {}
    shared = _session(options, _table(options, console))
    models: dict[str, LoadedModel] = {}
    for path in dict.fromkeys([*paths, *order]):
        session = shared
        if options.flag("no-session"):
            session = _session(options)
        sessions[path] = session
        if options.flag("jit"):
            from gecli.cli.jit import source_model

            models[path] = source_model(options, session, path, console)
            continue
        models[path] = _load(session, path, options.text("vars") if len(paths) == 1 else None)
        console.report(session.warnings)
        session.warnings.clear()
    regions = memory_map(dict.fromkeys(sessions.values()), list(models.values()))
    require_memory(regions, options.integer("mem-limit"))
    if options.flag("plan"):
        return _plan(regions, console)
    if options.flag("print-memory-map"):
        console.result("\n".join(map_lines(regions)))
    if options.text("load-vars"):
        from gecli.runtime.checkpoint import load_variables

        for session in dict.fromkeys(sessions.values()):
            loaded, warnings = load_variables(session.store, options.text("load-vars") or "")
            console.report(warnings)
            have = len(session.store.names())
            console.say(f"loaded {len(loaded)} of {have} variables from {options.text('load-vars')}", level=1)
    if options.texts("placeholder"):
        from gecli.cli.run_session import check_placeholder_names

        check_placeholder_names(options, models.values())
    _set_variables(options, shared)
    _check_variable_names(options, shared)
    check_shapes(options, models.values())
    golden = _golden(options, console, sessions[order[0]])
    with published_together():  # nothing is left of a run that fails, but what --dump saw
        outcomes, requests = _execute(options, order, models, console)
        files = _write_files(options, paths, outcomes, shared, console)
        differences = None if golden is None else golden.differences(outcomes, requests)
    console.report(not_finite(outcomes))
    origin = "" if golden is None else golden.origin
    _show(options, console, outcomes, files, differences, origin)
    slices = _slices(options, models, console)
    if console.json:
        from gecli.report.run_report import run_document

        console.document(
            run_document(
                outcomes,
                requests,
                shared.store,
                seed=options.integer("seed") or 0,
                files=files,
                differences=differences,
                golden=origin,
                profile_by=options.text("profile-by") or "type",
            )
            | slices
            | _session_member(options, shared)
        )
    return 1 if differences and not all(row.equal for row in differences) else 0


def _slices(options: Options, models: dict[str, LoadedModel], console: Console) -> dict[str, Any]:
    """--jit: tell what was compiled; the member of the document about it."""
    if not options.flag("jit"):
        return {}
    from gecli.cli.jit import document, tell
    from gecli.jit.model import JitModel

    found = [model for model in models.values() if isinstance(model, JitModel)]
    for model in found:
        tell(model, console, explain=options.flag("explain-cache"))
    return {"jit": [document(model) for model in found]}


def _write_files(
    options: Options, paths: list[str], outcomes: list[Outcome], shared: Session, console: Console
) -> dict[str, str]:
    """Everything that the options want in files; those of the outputs. Raises OutputError and InvalidOption."""
    from gecli.artifacts.publish import after_publication

    files: dict[str, str] = {}
    target = options.text("output")
    if target:
        from gecli.runtime.output_files import write_outputs

        files = write_outputs(
            outcomes,
            target,
            options.text("output-format") or "npy",
            lambda found: _check_outputs(options, paths, found),
        )
    if options.text("save-vars"):
        from gecli.runtime.checkpoint import save_variables

        saved = save_variables(shared.store, options.text("save-vars") or "", raw=options.flag("raw-format"))
        told = f"saved {len(saved)} variables to {options.text('save-vars')}"
        after_publication(partial(console.say, told, level=1))
    if options.text("session-out") and shared.table is not None:
        from gecli.cli.run_session import save_session

        save_session(options, shared.table, console)
    _get_variables(options, shared, console)
    if options.text("export-times"):
        from gecli.report.run_files import write_times

        write_times(options.text("export-times") or "", outcomes)
    if options.text("profile-out"):
        from gecli.report.run_files import write_profile

        write_profile(options.text("profile-out") or "", outcomes, options.text("profile-by") or "type")
    return files


def _check_outputs(options: Options, paths: list[str], found: list[str]) -> None:
    """Raises InvalidOption (E10047) when a file in the directory of -o is an input."""
    from gecli.cli.output_places import Place
    from gecli.cli.written_files import check_written_files

    check_written_files("run", options, paths, [Place("--output", path) for path in found])


def _load(session: Session, path: str, rdcpkt: str | None) -> LoadedModel:
    """An OM into a session; a file of another kind is named by its content."""
    from gecli.errors import InputError

    try:
        return session.load(path, rdcpkt=rdcpkt)
    except InputError as error:
        if error.code not in ("E13001", "G1001", "G3001", "G3002", "G3008") or error.first.file not in (None, path):
            raise
        from gecli.report.inspect.foreign import instead_of_om

        raise (instead_of_om(path) or error) from error


def _golden(options: Options, console: Console, shared: Session) -> Golden | None:
    if not options.text("compare"):
        return None
    from gecli.cli.run_compare import Golden

    return Golden(options, console, shared, lambda: _session(options, of_golden=True))


def _table(options: Options, console: Console) -> SessionTable | None:
    if not options.text("session-in") and not options.text("session-out"):
        return None
    from gecli.cli.run_session import session_table

    return session_table(options, console)


def _session_member(options: Options, session: Session) -> dict[str, Any]:
    if session.table is None:
        return {}
    from gecli.cli.run_session import session_member

    return session_member(options, session)


def _session(options: Options, table: SessionTable | None = None, *, of_golden: bool = False) -> Session:
    from gecli.runtime.session import Session

    placeholders = None
    if options.texts("placeholder"):
        from gecli.cli.run_session import placeholder_values

        placeholders = placeholder_values(options)
    return Session(
        init=options.text("init") or "error",
        seed=options.integer("seed") or 0,
        copy_weights=options.text("weights") == "copy",
        poison=options.text("mem-fill") == "poison",
        max_loop=options.integer("max-loop") or 1,
        weights=_weights(options),
        strict_order=options.flag("strict-order"),
        strict_addresses=options.flag("strict-variable-addresses"),
        table=table,
        external_bytes=None if of_golden else options.integer("external-var"),
        placeholders=placeholders,
    )


def _weights(options: Options) -> WeightSettings | None:
    if not any(options.get(name) for name in ("weight-dir", "value-bins", "no-verify-weights")):
        return None
    from gecli.runtime.weight_search import WeightSettings, bins_of

    return WeightSettings(
        options.texts("weight-dir"), bins_of(options.text("value-bins") or ""), not options.flag("no-verify-weights")
    )


def _plan(regions: list[Region], console: Console) -> int:
    """--plan: what the models need, as a table or a document."""
    from gecli.runtime.memory_map import map_lines, total_bytes

    console.result("\n".join(map_lines(regions)))
    if console.json:
        rows = [region._asdict() for region in regions]
        console.document(
            {"schema": "gecli.run-plan/1", "ok": True, "regions": rows, "total_bytes": total_bytes(regions)}
        )
    return 0


def _dumps(options: Options, count: int, model: LoadedModel, among: int) -> list[TensorDump]:
    """One directory a request below --dump-dir, else below `dump/` in the directory of -o. Raises InvalidOption."""
    patterns = [glob for text in options.texts("dump") for glob in text.split(",") if glob]
    if not patterns and not options.text("mark"):
        return []
    from gecli.runtime.tensor_dump import TensorDump

    base = _dump_directory(options)
    if among > 1:
        base = os.path.join(base, model.name)
    if options.text("mark"):
        patterns = []
    return [
        TensorDump(os.path.join(base, f"{request:04d}"), patterns, with_inputs=options.flag("dump-inputs"))
        for request in range(count)
    ]


def _dump_directory(options: Options) -> str:
    target = options.text("output") or "-"
    place = options.text("dump-dir") or (
        "" if target == "-" or target.endswith(".npz") else os.path.join(target, "dump")
    )
    if place:
        return place
    from gecli.errors import InvalidOption

    option = "--mark" if options.text("mark") else "--dump"
    raise InvalidOption(
        "E10057", f"{option} needs a directory to write into", option=option, do=f"{option} ... --dump-dir DIR",
        why="neither --dump-dir nor a directory with -o is given",
    )  # fmt: skip


def _order(options: Options, paths: list[str]) -> list[str]:
    """The schedule of --order, else every OM once. Raises InvalidOption for a name that is no OM of the command."""
    schedule = options.text("order")
    if not schedule:
        return paths
    names = [item.strip() for item in schedule.split(";") if item.strip()]
    return [_ordered(name, paths) for name in names]


def _ordered(name: str, paths: list[str]) -> str:
    """The OM that --order means: by its path, its file name or its stem. Raises InvalidOption for none or several."""
    from gecli.errors import InvalidOption

    if name in paths:
        return name
    found = [path for path in dict.fromkeys(paths) if os.path.basename(path) == name]
    found = found or [path for path in dict.fromkeys(paths) if os.path.splitext(os.path.basename(path))[0] == name]
    if len(found) == 1:
        return found[0]
    shown = "which is not given" if not found else f"which {len(found)} OMs are called"
    why = f"the OMs of the command are {', '.join(found or paths)}"
    raise InvalidOption(
        "E10001", f"--order names {name!r}, {shown}", option="--order", why=why, do=f"--order {(found or paths)[0]}"
    )


def _execute(
    options: Options, order: list[str], models: dict[str, LoadedModel], console: Console
) -> tuple[list[Outcome], list[list[dict[str, Any]]]]:
    from gecli.artifacts.publish import publish_waiting
    from gecli.cli.run_inputs import bad_value, input_options, save_inputs
    from gecli.errors import RuntimeFault
    from gecli.runtime.input_names import Command
    from gecli.runtime.inputs import requests_for
    from gecli.runtime.runner import Schedule, run_requests

    loop = options.integer("loop") or 1
    warmup, duration_s = options.integer("warmup"), options.number("duration") or 0.0
    if not 0 <= duration_s <= MAX_DURATION_S:
        raise bad_value("--duration", f"{duration_s}", f"expected seconds from 0 to {MAX_DURATION_S}")
    schedule = Schedule(loop, (3 if loop > 1 else 0) if warmup is None else warmup, duration_s)
    command = Command([(model.name, model.inputs) for model in models.values()])
    outcomes: list[Outcome] = []
    requests: list[list[dict[str, Any]]] = []
    for path in order:
        model = models[path]
        feeds = requests_for(model.inputs, options.texts("input"), input_options(options, model), model.name, command)
        dumps = _dumps(options, len(feeds), model, len(models))
        try:
            outcome = run_requests(
                model,
                feeds,
                schedule,
                profile=options.flag("profile") or bool(options.text("profile-out")),
                check_numerics=options.flag("check-numerics"),
                watches=[dump.watch for dump in dumps],
            )
        except RuntimeFault:  # the tensors before it are what a dump is for
            _finish([dump for dump in dumps if dump.rows], console)
            publish_waiting()
            raise
        outcomes.append(outcome)
        _finish(dumps, console)
        requests.append(feeds)
        console.say(f"ran {path}: {len(feeds)} requests", level=1)
    if options.text("save-inputs"):
        save_inputs(options.text("save-inputs") or "", requests)
    return outcomes, requests


def _finish(dumps: list[TensorDump], console: Console) -> None:
    from gecli.artifacts.publish import after_publication

    for dump in dumps:
        after_publication(partial(console.say, f"wrote {dump.finish()}: {len(dump.rows)} tensors"))


def _set_variables(options: Options, session: Session) -> None:
    if not options.texts("set-var"):
        return
    from gecli.runtime.array_files import read_npy
    from gecli.runtime.checkpoint import set_variable

    for item in options.texts("set-var"):
        name, _, path = item.partition("=")
        if not session.store.take_over(name):
            raise _no_variable("--set-var", name, session)
        set_variable(session.store, name, read_npy(path), path)


def _check_variable_names(options: Options, session: Session) -> None:
    """Raises InvalidOption before the run for a --get-var that no model has."""
    for item in options.texts("get-var"):
        name, _, _ = item.partition("=")
        if not session.store.take_over(name):
            raise _no_variable("--get-var", name, session)


def _no_variable(option: str, name: str, session: Session) -> Exception:
    import difflib

    from gecli.errors import InvalidOption

    names = session.store.names()
    near = difflib.get_close_matches(name, names, n=1)
    return InvalidOption(
        "E10016", f"{option} names {name!r}, which is no variable of the models", option=option,
        why=f"their variables: {', '.join(names) or 'none'}", expected=names, actual=name,
        do=f"{option} {near[0] if near else names[0]}" if names else f"leave out {option}",
    )  # fmt: skip


def _get_variables(options: Options, session: Session, console: Console) -> None:
    from gecli.artifacts.publish import after_publication
    from gecli.report.run_report import output_lines

    for item in options.texts("get-var"):
        name, _, path = item.partition("=")
        array = session.store.value(name, raw=options.flag("raw-format"))
        if path:
            from io import BytesIO

            import numpy as np

            from gecli.artifacts.publish import publish_bytes
            from gecli.runtime.checkpoint import portable

            buffer = BytesIO()
            np.lib.format.write_array(buffer, portable(array), allow_pickle=False)
            publish_bytes(path, buffer.getvalue())
        else:
            after_publication(partial(console.result, output_lines(name, array)))


def _show(
    options: Options,
    console: Console,
    outcomes: list[Outcome],
    files: dict[str, str],
    differences: list[Difference] | None,
    golden: str,
) -> None:
    """What was asked for, with -q too: the profile and what differs; without -q all there is to say."""
    from gecli.report.run_report import comparison_lines, output_lines, profile_lines, timing_lines

    show = console.say if options.text("output") == "-" else console.result
    loaded = "; ".join(dict.fromkeys(_loaded_text(each) for each in outcomes))
    console.say(f"seed {options.integer('seed')}; {loaded}")
    for outcome in outcomes:
        if not console.quiet:
            for line in _outputs_of(outcome, among=len(outcomes), line=output_lines):
                show(line)
        for line in timing_lines(outcome):
            console.say(line)
        if outcome.per_node is not None and options.flag("profile"):
            for line in profile_lines(outcome.per_node, options.text("profile-by") or "type"):
                show(line)
    for path in dict.fromkeys(files.values()):
        console.say(f"wrote {path}", level=1)
    if golden and not console.quiet:
        show(golden)
    for line in comparison_lines(row for row in differences or [] if not (console.quiet and row.equal)):
        show(line)


def _outputs_of(outcome: Outcome, among: int, line: Callable[[str, Any], str]) -> Iterator[str]:
    prefix = f"{outcome.model.name}: " if among > 1 else ""
    for request, outputs in enumerate(outcome.outputs[:MAX_SHOWN_REQUESTS]):
        run = f"[{request}] " if len(outcome.outputs) > 1 else ""
        for name, array in outputs.items():
            yield f"{prefix}{run}{line(name, array)}"
    hidden = len(outcome.outputs) - MAX_SHOWN_REQUESTS
    if hidden > 0:
        yield f"... and {hidden} more runs"


MAX_SHOWN_REQUESTS = 4


def _loaded_text(outcome: Outcome) -> str:
    model = outcome.model
    kind = "dynamic" if model.program is None else f"{len(model.program.instructions)} steps"
    return f"{model.name} loaded in {model.load_ns / 1e6:.1f} ms ({kind})"
