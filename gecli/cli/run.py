"""`gecli run`: options and OM files in, exit status out."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from gecli.cli.invocation import Invocation
from gecli.cli.thread_limit import limit_threads

MAX_DURATION_S = 31 * 86400

if TYPE_CHECKING:
    from gecli.cli.console import Console
    from gecli.options.values import Options
    from gecli.report.comparison import Difference
    from gecli.runtime.inputs import InputOptions
    from gecli.runtime.memory_map import Region
    from gecli.runtime.model import LoadedModel
    from gecli.runtime.runner import Outcome
    from gecli.runtime.session import Session
    from gecli.runtime.tensor_dump import TensorDump


def run_models(invocation: Invocation) -> int:
    """Run every OM of the command line on the simulated device."""
    options = invocation.resolve(operand="OM")
    limit_threads(options.integer("threads"))
    return _run(options, invocation.models(options), invocation.console)


def _run(options: Options, paths: list[str], console: Console) -> int:
    from gecli.report.run_files import write_profile, write_times
    from gecli.runtime.checkpoint import load_variables, save_variables
    from gecli.runtime.memory_map import map_lines, memory_map, require_memory
    from gecli.runtime.output_files import write_outputs

    order = _order(options, paths)
    sessions: dict[str, Session] = {}
    shared = _session(options)
    models: dict[str, LoadedModel] = {}
    for path in dict.fromkeys([*paths, *order]):
        session = shared
        if options.flag("no-session"):
            session = _session(options)
        sessions[path] = session
        models[path] = session.load(path, rdcpkt=options.text("vars") if len(paths) == 1 else None)
        console.report(session.warnings)
        session.warnings.clear()
    regions = memory_map(dict.fromkeys(sessions.values()), list(models.values()))
    require_memory(regions, options.integer("mem-limit"))
    if options.flag("plan"):
        return _plan(regions, console)
    if options.flag("print-memory-map"):
        console.result("\n".join(map_lines(regions)))
    if options.text("load-vars"):
        for session in dict.fromkeys(sessions.values()):
            loaded, warnings = load_variables(session.store, options.text("load-vars") or "")
            console.report(warnings)
            console.say(f"loaded {len(loaded)} variables from {options.text('load-vars')}", level=1)
    _set_variables(options, shared)
    outcomes, requests = _execute(options, order, models, console)
    files: dict[str, str] = {}
    target = options.text("output")
    if target:
        files = write_outputs(outcomes, target, options.text("output-format") or "npy")
    if options.text("save-vars"):
        saved = save_variables(shared.store, options.text("save-vars") or "", raw=options.flag("raw-format"))
        console.say(f"saved {len(saved)} variables to {options.text('save-vars')}", level=1)
    _get_variables(options, shared, console)
    if options.text("export-times"):
        write_times(options.text("export-times") or "", outcomes)
    if options.text("profile-out"):
        write_profile(options.text("profile-out") or "", outcomes, options.text("profile-by") or "type")
    differences = _compare(options, outcomes)
    _show(options, console, outcomes, files, differences)
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
                profile_by=options.text("profile-by") or "type",
            )
        )
    return 1 if differences and not all(row.equal for row in differences) else 0


def _session(options: Options) -> Session:
    from gecli.runtime.session import Session

    return Session(
        init=options.text("init") or "error",
        seed=options.integer("seed") or 0,
        copy_weights=options.text("weights") == "copy",
        poison=options.text("mem-fill") == "poison",
        max_loop=options.integer("max-loop") or 1,
    )


def _plan(regions: list[Region], console: Console) -> int:
    """--plan: what the models need, as a table or a document."""
    from gecli.runtime.memory_map import map_lines, total_bytes

    console.result("\n".join(map_lines(regions)))
    if console.json:
        rows = [region._asdict() for region in regions]
        console.document({"schema": "gecli.run-plan/1", "regions": rows, "total_bytes": total_bytes(regions)})
    return 0


def _dumps(options: Options, count: int, model: LoadedModel, among: int) -> list[TensorDump]:
    """One directory a request below `dump/`, which stands in the output directory if there is one."""
    patterns = [glob for text in options.texts("dump") for glob in text.split(",") if glob]
    if not patterns and not options.text("mark"):
        return []
    from gecli.runtime.tensor_dump import TensorDump

    target = options.text("output") or ""
    base = os.path.join("" if target == "-" or target.endswith(".npz") else target, "dump")
    if among > 1:
        base = os.path.join(base, model.name)
    if options.text("mark"):
        patterns = []
    return [
        TensorDump(os.path.join(base, f"{request:04d}"), patterns, with_inputs=options.flag("dump-inputs"))
        for request in range(count)
    ]


def _order(options: Options, paths: list[str]) -> list[str]:
    """The schedule of --order, else every OM once. Raises InvalidOption for a name that is no OM of the command."""
    schedule = options.text("order")
    if not schedule:
        return paths
    from gecli.errors import InvalidOption

    names = [item.strip() for item in schedule.split(";") if item.strip()]
    known = {**{os.path.splitext(os.path.basename(path))[0]: path for path in paths}, **{path: path for path in paths}}
    for name in names:
        if name not in known:
            why = f"the OMs of the command are {', '.join(paths)}"
            raise InvalidOption("E10001", f"--order names {name!r}, which is not given", option="--order", why=why)
    return [known[name] for name in names]


def _execute(
    options: Options, order: list[str], models: dict[str, LoadedModel], console: Console
) -> tuple[list[Outcome], list[list[dict[str, Any]]]]:
    from gecli.runtime.inputs import requests_for
    from gecli.runtime.runner import Schedule, run_requests

    loop = options.integer("loop") or 1
    warmup, duration_s = options.integer("warmup"), options.number("duration") or 0.0
    if not 0 <= duration_s <= MAX_DURATION_S:
        raise _bad_value("--duration", f"{duration_s}", f"expected seconds from 0 to {MAX_DURATION_S}")
    schedule = Schedule(loop, (3 if loop > 1 else 0) if warmup is None else warmup, duration_s)
    outcomes: list[Outcome] = []
    requests: list[list[dict[str, Any]]] = []
    for path in order:
        model = models[path]
        stem = model.name if len(models) > 1 else ""
        feeds = requests_for(model.inputs, options.texts("input"), _input_options(options, model), stem)
        dumps = _dumps(options, len(feeds), model, len(models))
        outcomes.append(
            run_requests(
                model,
                feeds,
                schedule,
                profile=options.flag("profile") or bool(options.text("profile-out")),
                check_numerics=options.flag("check-numerics"),
                watches=[dump.watch for dump in dumps],
            )
        )
        for dump in dumps:
            console.say(f"wrote {dump.finish()}: {len(dump.rows)} tensors")
        requests.append(feeds)
        console.say(f"ran {path}: {len(feeds)} requests", level=1)
    if options.text("save-inputs"):
        _save_inputs(options.text("save-inputs") or "", requests)
    return outcomes, requests


def _save_inputs(path: str, requests: list[list[dict[str, Any]]]) -> None:
    from gecli.artifacts.publish import publish_bytes
    from gecli.runtime.checkpoint import npz_bytes, portable

    first = requests[0][0]
    publish_bytes(path, npz_bytes({name: portable(array) for name, array in first.items()}))


def _input_options(options: Options, model: LoadedModel) -> InputOptions:
    from gecli.runtime.inputs import InputOptions

    how, _, value = (options.text("fill") or "").partition(":")
    if how == "const" and not _is_number(value):
        raise _bad_value("--fill", f"const:{value}", "expected const:NUMBER")
    return InputOptions(
        seed=options.integer("seed") or 0,
        fill=options.text("fill") or "random",
        ranges=dict(_range(text) for text in options.texts("val-range")),
        shapes=dict(_shape(text, model) for text in options.texts("shape")),
        cast=options.flag("cast"),
        transposes=dict(_perm(text) for text in options.texts("transpose")),
    )


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _range(text: str) -> tuple[str, tuple[float, float]]:
    name, _, numbers = text.rpartition(":")
    try:
        low, high = (float(number) for number in numbers.strip("[]").split(","))
    except ValueError as err:
        raise _bad_value("--val-range", text, "expected LO,HI or NAME:[LO,HI]") from err
    return name, (low, high)


def _shape(text: str, model: LoadedModel) -> tuple[str, tuple[int, ...]]:
    name, _, dims = text.rpartition(":")
    try:
        shape = tuple(int(dim) for dim in dims.replace("x", ",").split(",") if dim)
    except ValueError as err:
        raise _bad_value("--shape", text, "expected NAME:1,3,32,32") from err
    if name not in {tensor.name for tensor in model.inputs}:
        names = ", ".join(tensor.name for tensor in model.inputs)
        raise _bad_value("--shape", text, f"the model's inputs are {names}")
    return name, shape


def _perm(text: str) -> tuple[str, tuple[int, ...]]:
    name, _, axes = text.rpartition(":")
    try:
        perm = tuple(int(axis) for axis in axes.split(","))
    except ValueError as err:
        raise _bad_value("--transpose", text, "expected NAME:0,3,1,2") from err
    if not name or sorted(perm) != list(range(len(perm))):
        raise _bad_value("--transpose", text, "expected NAME:0,3,1,2 with every axis once")
    return name, perm


def _bad_value(option: str, text: str, why: str) -> Exception:
    from gecli.errors import InvalidOption

    return InvalidOption("E10001", f"value {text!r} for {option} is invalid", option=option, why=why)


def _set_variables(options: Options, session: Session) -> None:
    from gecli.runtime.array_files import read_npy
    from gecli.runtime.checkpoint import set_variable

    for item in options.texts("set-var"):
        name, _, path = item.partition("=")
        set_variable(session.store, name, read_npy(path), path)


def _get_variables(options: Options, session: Session, console: Console) -> None:
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
            console.result(output_lines(name, array))


def _compare(options: Options, outcomes: list[Outcome]) -> list[Difference] | None:
    golden = options.text("compare")
    if not golden:
        return None
    import numpy as np

    from gecli.report.comparison import Tolerances, compare_outputs, read_golden

    expected = read_golden(golden)
    tolerances = Tolerances(
        _tolerances(options.texts("rtol"), "--rtol"),
        _tolerances(options.texts("atol"), "--atol"),
        options.text("stat") or "all",
        options.flag("nan-differs"),
    )
    rows: list[Difference] = []
    for outcome in outcomes:
        outputs = outcome.outputs[0]
        if len(outcome.outputs) > 1:
            outputs = {name: np.stack([each[name] for each in outcome.outputs]) for name in outputs}
        prefix = f"{outcome.model.name}/" if len(outcomes) > 1 else ""
        mine = {name[len(prefix) :]: array for name, array in expected.items() if name.startswith(prefix)}
        rows += compare_outputs(outputs, mine, tolerances)
    return rows


def _tolerances(texts: tuple[str, ...], option: str) -> dict[str, float]:
    """`1e-5`, or `out0:1e-3`; several in one value are separated by blanks."""
    found: dict[str, float] = {}
    for item in (item for text in texts for item in text.split()):
        name, _, number = item.rpartition(":")
        try:
            found[name] = float(number)
        except ValueError as err:
            raise _bad_value(option, item, "expected a number or NAME:NUMBER") from err
    return found


def _show(
    options: Options,
    console: Console,
    outcomes: list[Outcome],
    files: dict[str, str],
    differences: list[Difference] | None,
) -> None:
    from gecli.report.run_report import comparison_lines, output_lines, profile_lines, timing_lines

    if console.quiet:
        return
    show = console.say if options.text("output") == "-" else console.result
    console.say(f"seed {options.integer('seed')}; {'; '.join(_loaded_text(each) for each in outcomes)}")
    for outcome in outcomes:
        for request, outputs in enumerate(outcome.outputs[:MAX_SHOWN_REQUESTS]):
            for name, array in outputs.items():
                prefix = f"{outcome.model.name}: " if len(outcomes) > 1 else ""
                run = f"[{request}] " if len(outcome.outputs) > 1 else ""
                show(f"{prefix}{run}{output_lines(name, array)}")
        hidden = len(outcome.outputs) - MAX_SHOWN_REQUESTS
        if hidden > 0:
            show(f"... and {hidden} more runs")
        for line in timing_lines(outcome):
            console.say(line)
        if outcome.per_node is not None and options.flag("profile"):
            for line in profile_lines(outcome.per_node, options.text("profile-by") or "type"):
                show(line)
    for path in dict.fromkeys(files.values()):
        console.say(f"wrote {path}", level=1)
    for line in comparison_lines(differences or []):
        show(line)


MAX_SHOWN_REQUESTS = 4


def _loaded_text(outcome: Outcome) -> str:
    model = outcome.model
    kind = "dynamic" if model.program is None else f"{len(model.program.instructions)} steps"
    return f"{model.name} loaded in {model.load_ns / 1e6:.1f} ms ({kind})"
