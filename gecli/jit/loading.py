"""From a source model and the options of `gecli compile` to a model that is compiled while it runs."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import NamedTuple

from gecli.cache.graph_key import auto_key
from gecli.cache.jit_store import JitStore
from gecli.cache.stat_index import StatIndex
from gecli.compiler.cache_setup import CacheOff, cache_setup
from gecli.compiler.job import Job, jobs_of
from gecli.compiler.model_loading import load_model
from gecli.compiler.optimised_graphs import refuse_where_a_source_is_needed
from gecli.errors import Diagnostic, InvalidOption
from gecli.jit.compiling import SliceCompiler
from gecli.jit.model import JitModel
from gecli.jit.refusal import refusal
from gecli.jit.slices import remove_dead_ends
from gecli.options.resolution import resolve
from gecli.options.table import find_flag, named_options_of
from gecli.options.values import Options
from gecli.runtime.session import Session

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
    source: str, options: Options, session: Session, *, init: str = "error", say: Callable[[str], None] | None = None
) -> JitSetup:
    """Load a source model to be cut and compiled by `options`, which are those of `gecli compile`. Raises GecliError.

    `say` is told while another process is waited for.
    """
    _check(options)
    job = _job(source)
    setup = cache_setup(options, [job])
    loaded = load_model(job, options)
    refuse_where_a_source_is_needed(loaded, "which is not cut into slices", "--jit")
    compiler = SliceCompiler(loaded, job, options)
    key, store, note = "", None, ""
    if isinstance(setup, CacheOff):
        note = setup.note
    else:
        key = setup.key_of(0) or auto_key(job.stem, compiler.combined)

        def waiting(seconds: float, holder: str) -> None:
            if say:
                say(f"waiting {seconds:.0f} s for key {key}, held by {holder}")

        if setup.cache.mode == "debug":
            note = "the JIT cache is not used in debug mode"
        else:
            stats = StatIndex(trusting=setup.cache.verify != "full")
            store = JitStore(setup.cache, key, compiler.facts, stats, setup.lock_timeout_s, waiting)
    remove_dead_ends(loaded.graph)  # behind the fingerprint, which is that of the whole model
    model = JitModel(
        loaded.graph,
        compiler,
        session,
        name=job.stem,
        path=source,
        store=store,
        refusal=refusal(loaded.graph),
        is_required=options.flag("require-cache"),
        init=init,
    )
    origin = "" if isinstance(setup, CacheOff) else setup.key_origin
    return JitSetup(model, loaded.warnings, key if store is not None else "", origin, note)


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
