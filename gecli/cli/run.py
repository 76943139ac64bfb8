"""`gecli run`: options and OM files in, exit status out."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from gecli.cli.invocation import Invocation
from gecli.cli.thread_limit import use_threads

if TYPE_CHECKING:
    from gecli.cli.console import Console
    from gecli.cli.run_compare import Golden
    from gecli.options.values import Options
    from gecli.report.comparison import Difference
    from gecli.runtime.input_names import Command
    from gecli.runtime.memory_map import Region
    from gecli.runtime.model import LoadedModel
    from gecli.runtime.runner import Outcome
    from gecli.runtime.session import Session
    from gecli.runtime.session_table import SessionTable
    from gecli.runtime.shared_files import SharedFiles
    from gecli.runtime.tensor_dump import TensorDump
    from gecli.runtime.weight_search import WeightSettings


class Loaded:
    """The models of a command on one device: by path, each with its session, and the memory of all."""

    def __init__(self, order: list[str], shared: Session) -> None:
        self.order = order
        self.shared = shared  # the session of every model, but with --no-session
        self.sessions: dict[str, Session] = {}
        self.models: dict[str, LoadedModel] = {}
        self.regions: list[Region] = []


class Job:
    """A model of the schedule with the values of its inputs for every request."""

    def __init__(self, path: str, model: LoadedModel, feeds: list[dict[str, Any]], dumps: list[TensorDump]) -> None:
        self.path, self.model, self.feeds, self.dumps = path, model, feeds, dumps


class Done:
    """What a run gave: outcomes and inputs by job, the file of each output, what differs from the golden outputs."""

    def __init__(
        self, outcomes: list[Outcome], jobs: list[Job], files: dict[str, str], differences: list[Difference] | None
    ) -> None:
        self.outcomes, self.jobs, self.files, self.differences = outcomes, jobs, files, differences

    @property
    def is_equal(self) -> bool:
        return all(row.equal for row in self.differences or ())


def run_models(invocation: Invocation) -> int:
    """Run every OM of the command line on the simulated device."""
    options = invocation.resolve(operand="OM")
    use_threads(options.integer("threads"))
    run = run_alone
    if options.is_set("device"):
        from gecli.cli.run_devices import run_on_devices

        run = run_on_devices
    if not options.text("session-out"):
        return run(options, invocation.models(options), invocation.console)
    from gecli.cli.run_session import session_locks

    with session_locks(options):
        return run(options, invocation.models(options), invocation.console)


def run_alone(options: Options, paths: list[str], console: Console) -> int:
    """Run the models on one device."""
    from gecli.artifacts.publish import published_together

    loaded = load_all(options, paths, console)
    if options.flag("plan"):
        return show_plan(loaded.regions, console)
    golden = give_values(options, loaded, console)
    jobs = read_inputs(options, loaded, command_of(loaded))
    with published_together():  # nothing is left of a run that fails, but what --dump saw
        outcomes = _execute(options, jobs, console)
        save_requests(options, jobs)
        files = write_files(options, paths, outcomes, loaded.shared, console)
        differences = None if golden is None else golden.differences(outcomes, [job.feeds for job in jobs])
    done = Done(outcomes, jobs, files, differences)
    document = tell(options, loaded, done, golden, console)
    if console.json:
        console.document(document)
    return 0 if done.is_equal else 1


def load_all(options: Options, paths: list[str], console: Console, files: SharedFiles | None = None) -> Loaded:
    """Every model into its session. What `files` has of another device is not read again."""
    from gecli.runtime.memory_map import memory_map, require_memory

    loaded = Loaded(_order(options, paths), _session(options, _table(options, console)))
    for path in dict.fromkeys([*paths, *loaded.order]):
        session = loaded.shared
        if options.flag("no-session"):
            session = _session(options)
        if files is not None:
            session.share(files)
        loaded.sessions[path] = session
        if options.flag("jit"):
            from gecli.cli.jit import source_model

            loaded.models[path] = source_model(options, session, path, console)
            continue
        loaded.models[path] = _load(session, path, options.text("vars") if len(paths) == 1 else None)
        console.report(session.warnings)
        session.warnings.clear()
    regions = memory_map(dict.fromkeys(loaded.sessions.values()), list(loaded.models.values()))
    loaded.regions = _in_pages(options, regions)
    require_memory(loaded.regions, options.integer("mem-limit"))
    return loaded


def give_values(options: Options, loaded: Loaded, console: Console) -> Golden | None:
    """Variables their values, and what the outputs are compared with; names that no model has are refused."""
    from gecli.cli.run_inputs import check_shapes
    from gecli.runtime.memory_map import map_lines

    shared = loaded.shared
    if options.flag("print-memory-map"):
        console.result("\n".join(map_lines(loaded.regions)))
    if options.texts("placeholder"):
        from gecli.cli.run_session import check_placeholder_names

        check_placeholder_names(options, loaded.models.values())
    if _names_variables(options):
        from gecli.cli.run_variables import set_variables

        set_variables(options, shared, loaded.sessions.values(), console)
    check_shapes(options, loaded.models.values())
    return _golden(options, console, loaded.sessions[loaded.order[0]])


def tell(options: Options, loaded: Loaded, done: Done, golden: Golden | None, console: Console) -> dict[str, Any]:
    """Show what a run gave; with --json the document about it."""
    from gecli.report.run_report import not_finite

    console.report(not_finite(done.outcomes))
    origin = "" if golden is None else golden.origin
    _show(options, console, done.outcomes, done.files, done.differences, origin)
    slices = _slices(options, loaded.models, console)
    if not console.json:
        return {}
    from gecli.report.run_report import run_document

    document = run_document(
        done.outcomes,
        [job.feeds for job in done.jobs],
        loaded.shared.store,
        seed=options.integer("seed") or 0,
        files=done.files,
        differences=done.differences,
        golden=origin,
        profile_by=options.text("profile-by") or "type",
    )
    return document | slices | _session_member(options, loaded.shared)


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


def write_files(
    options: Options, paths: list[str], outcomes: list[Outcome], shared: Session, console: Console
) -> dict[str, str]:
    """Everything that the options want in files; those of the outputs. Raises OutputError and InvalidOption."""

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
    if _names_variables(options):
        from gecli.cli.run_variables import take_variables

        take_variables(options, shared, console)
    if options.text("session-out") and shared.table is not None:
        from gecli.cli.run_session import save_session

        save_session(options, shared.table, console)
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


def _in_pages(options: Options, regions: list[Region]) -> list[Region]:
    """The memory map with the pages of --huge-page. Raises RuntimeFault."""
    mode = options.integer("ge.variableUse1gHugePage")
    if not mode:
        return regions
    from gecli.runtime.variable_pages import with_pages
    from gecli.variables.device_arena import HugePages

    return with_pages(regions, HugePages(mode), options.integer("mem-limit"))


def _names_variables(options: Options) -> bool:
    return any(options.get(name) for name in ("load-vars", "save-vars", "set-var", "get-var"))


def _weights(options: Options) -> WeightSettings | None:
    if not any(options.get(name) for name in ("weight-dir", "value-bins", "no-verify-weights")):
        return None
    from gecli.runtime.weight_search import WeightSettings, bins_of

    return WeightSettings(
        options.texts("weight-dir"), bins_of(options.text("value-bins") or ""), not options.flag("no-verify-weights")
    )


def show_plan(regions: list[Region], console: Console, **members: Any) -> int:
    """--plan: what the models need, as a table or a document with `members` beside it."""
    from gecli.runtime.memory_map import map_lines, total_bytes

    console.result("\n".join(map_lines(regions)))
    if console.json:
        rows = [region._asdict() for region in regions]
        document = {"schema": "gecli.run-plan/1", "ok": True, "regions": rows, "total_bytes": total_bytes(regions)}
        console.document(document | members)
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


def command_of(loaded: Loaded) -> Command:
    """The inputs of all models: a specification may mean one of another model."""
    from gecli.runtime.input_names import Command

    return Command([(model.name, model.inputs) for model in loaded.models.values()])


def read_inputs(options: Options, loaded: Loaded, command: Command) -> list[Job]:
    """The schedule: each model with the values of its inputs."""
    from gecli.cli.run_inputs import input_options, schedule_of
    from gecli.runtime.inputs import requests_for

    schedule_of(options)
    jobs = []
    for path in loaded.order:
        model = loaded.models[path]
        feeds = requests_for(model.inputs, options.texts("input"), input_options(options, model), model.name, command)
        jobs.append(Job(path, model, feeds, _dumps(options, len(feeds), model, len(loaded.models))))
    return jobs


def perform(options: Options, job: Job) -> Outcome:
    """Run a model for all its requests. Raises RuntimeFault."""
    from gecli.cli.run_inputs import schedule_of
    from gecli.runtime.runner import run_requests

    return run_requests(
        job.model,
        job.feeds,
        schedule_of(options),
        profile=options.flag("profile") or bool(options.text("profile-out")),
        check_numerics=options.flag("check-numerics"),
        watches=[dump.watch for dump in job.dumps],
    )


def _execute(options: Options, jobs: list[Job], console: Console) -> list[Outcome]:
    from gecli.ops.operator import REGISTRY

    if "HcomSend" not in REGISTRY:  # no model of this process sends anything
        return _perform_all(options, jobs, console)
    from gecli.ops.communication import Communicator, speaking_for

    alone = Communicator()
    with speaking_for(alone):
        outcomes = _perform_all(options, jobs, console)
    alone.require_all_taken()
    return outcomes


def _perform_all(options: Options, jobs: list[Job], console: Console) -> list[Outcome]:
    from gecli.artifacts.publish import publish_waiting
    from gecli.errors import RuntimeFault

    outcomes: list[Outcome] = []
    for job in jobs:
        try:
            outcomes.append(perform(options, job))
        except RuntimeFault:  # the tensors before it are what a dump is for
            finish([dump for dump in job.dumps if dump.rows], console)
            publish_waiting()
            raise
        finish(job.dumps, console)
        console.say(f"ran {job.path}: {len(job.feeds)} requests", level=1)
    return outcomes


def save_requests(options: Options, jobs: list[Job]) -> None:
    if options.text("save-inputs"):
        from gecli.cli.run_inputs import save_inputs

        save_inputs(options.text("save-inputs") or "", [job.feeds for job in jobs])


def finish(dumps: list[TensorDump], console: Console) -> None:
    from gecli.artifacts.publish import after_publication

    for dump in dumps:
        after_publication(partial(console.say, f"wrote {dump.finish()}: {len(dump.rows)} tensors"))


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
