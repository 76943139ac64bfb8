"""From a source model and the options of `gecli compile` to a model that is compiled while it runs."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from gecli.cache.graph_key import auto_key
from gecli.cache.jit_store import JitStore
from gecli.cache.model_cache import CacheDir
from gecli.cache.stat_index import StatIndex
from gecli.compiler.cache_setup import CacheOff, cache_setup
from gecli.compiler.direct_hit import conf_warnings, request_of
from gecli.compiler.job import Job, jobs_of
from gecli.errors import Diagnostic, InvalidOption
from gecli.ir.networkx_core import load_networkx_core
from gecli.jit.known_model import KnownModel, load_file_rows, recall, remember
from gecli.jit.model import JitModel
from gecli.options.resolution import resolve
from gecli.options.table import find_flag, named_options_of
from gecli.options.values import Options
from gecli.runtime.interface import OUT_NODES, Tensor, model_inputs, model_outputs
from gecli.runtime.session import Session

if TYPE_CHECKING:
    from gecli.ir.graph import Graph
    from gecli.jit.building import SliceBuilder

EXCLUDED = (
    "session-in", "session-out", "ge.graphRunMode", "ge.externalWeight", "stop-after", "emit", "explain-variable",
    "if-changed", "depfile",
)  # fmt: skip


class JitSetup(NamedTuple):
    """A model to run, and what there is to say about it. `key` is its graph key, empty without a cache."""

    model: JitModel
    warnings: tuple[Diagnostic, ...]
    key: str
    key_origin: str
    note: str


def load_jit_model(
    source: str,
    options: Options,
    session: Session,
    *,
    init: str = "error",
    say: Callable[[str], None] | None = None,
    reads_only: bool = False,
) -> JitSetup:
    """Load a source model to be cut and compiled by `options`, which are those of `gecli compile`. Raises GecliError.

    `say` is told while another process is waited for. With `reads_only` the cache is looked at, whatever its mode, and
    left as it is.
    """
    _check(options)
    job = _job(source)
    setup = cache_setup(options, [job])
    if reads_only and not isinstance(setup, CacheOff):
        setup = setup._replace(cache=setup.cache._replace(mode="ro"))
    cache = None if isinstance(setup, CacheOff) else setup.cache
    stats = StatIndex(trusting=cache is None or cache.verify != "full")
    built: list[SliceBuilder] = []

    def build() -> SliceBuilder:
        load_networkx_core()  # before anything loads all of it
        from gecli.jit.building import SliceBuilder

        return built.pop() if built else SliceBuilder(job, options)

    known = _recalled(cache, job, options, stats)
    if known is None:
        known = _learned(build(), built)
        if cache is not None:
            _remember(cache, job, options, stats, known, built[0].loaded.files)
    key, store, note = "", None, ""
    if isinstance(setup, CacheOff):
        note = setup.note
    elif setup.cache.mode == "debug":
        note = "the JIT cache is not used in debug mode"
    else:
        key = setup.key_of(0) or auto_key(job.stem, known.combined)

        def waiting(seconds: float, holder: str) -> None:
            if say:
                say(f"waiting {seconds:.0f} s for key {key}, held by {holder}")

        store = JitStore(setup.cache, key, known.facts, stats, setup.lock_timeout_s, waiting)
        load_file_rows(setup.cache, store.home, stats)
    model = JitModel(
        known, build, session, name=job.stem, path=source, store=store, is_required=options.flag("require-cache"),
        init=init,
    )  # fmt: skip
    if isinstance(setup, CacheOff):
        return JitSetup(model, known.warnings, key, "", note)
    return JitSetup(model, (*known.warnings, *conf_warnings(setup)), key, setup.key_origin, note)


def _recalled(cache: CacheDir | None, job: Job, options: Options, stats: StatIndex) -> KnownModel | None:
    """What is known of the model without a look into it."""
    if cache is None or cache.mode not in ("rw", "ro"):
        return None
    request = request_of(cache, job, options, stats)
    return None if request is None else recall(cache, request)


def _learned(builder: SliceBuilder, built: list[SliceBuilder]) -> KnownModel:
    built.append(builder)
    compiler, graph = builder.compiler, builder.graph
    inputs, outputs = model_inputs(graph.nodes()), _outputs(graph)
    return KnownModel(compiler.facts, compiler.combined, inputs, outputs, builder.refusal, builder.loaded.warnings)


def _remember(
    cache: CacheDir, job: Job, options: Options, stats: StatIndex, known: KnownModel, files: Sequence[str]
) -> None:
    request = request_of(cache, job, options, stats, files) if cache.may_write else None
    if request is not None:
        remember(cache, job.source, request, known, stats)


def _outputs(graph: Graph) -> tuple[Tensor, ...]:
    """The outputs of a model, named as those of its OM would be."""
    names = [*graph.output_names, *[""] * len(graph.outputs)]
    entries = tuple(f"{port}:{name}" if name else str(port) for port, name in zip(graph.outputs, names))
    return model_outputs(graph.nodes(), {OUT_NODES: entries})


def jit_model(source: str | os.PathLike[str], **options: str) -> JitModel:
    """A source model that is compiled while it runs: `jit_model("a.onnx", cache_dir="cache").run(feeds)`.

    `options` are those of `gecli compile` with underscores, or GE's names. Raises GecliError.
    """
    typed = {"jit": ("true",), **{_key_of(name): (value,) for name, value in options.items()}}
    return load_jit_model(os.fspath(source), resolve("compile", typed), Session()).model


def _key_of(name: str) -> str:
    flag = find_flag("compile", name)
    option = flag.option if flag is not None else named_options_of("compile").get(name)
    if option is None:
        raise TypeError(f"jit_model() has no option {name!r}")
    return option.key


def _job(source: str) -> Job:
    """The model's own name is that of its slices: there is no output file to take one from."""
    named = jobs_of([source], "-")[0]
    return Job(source, named.om_path, named.stem)


def _check(options: Options) -> None:
    given = [name for name in EXCLUDED if options.get(name)]
    if given:
        names = ", ".join(f"--{options.option(name).name}" for name in given)
        raise InvalidOption(
            "E10001",
            f"--jit excludes {names}",
            why="a model that is compiled while it runs has no single graph and no single output",
            do=f"leave out {names}",
            option="--jit",
        )
