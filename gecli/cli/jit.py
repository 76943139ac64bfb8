"""`gecli run --jit` and `gecli compile --jit`: source models that are compiled slice by slice."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from gecli.errors import Diagnostic, InvalidOption
from gecli.options.jit_table import compile_keys
from gecli.options.option import value_text
from gecli.options.resolution import resolve

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from gecli.cli.console import Console
    from gecli.jit.loading import JitSetup
    from gecli.jit.model import JitModel
    from gecli.options.values import Options
    from gecli.runtime.session import Session

HINT = r"(\d{1,9}):\[([\d,\s]*)\]"


def source_model(options: Options, session: Session, path: str, console: Console) -> JitModel:
    """A model of `gecli run --jit`. Raises GecliError."""
    from gecli.jit.loading import load_jit_model

    init = options.text("init") or "error"
    setup = load_jit_model(path, _compile_options(options), session, init=init, say=console.say)
    _tell_setup(setup, console)
    return setup.model


def _compile_options(options: Options) -> Options:
    """What the options of `gecli run` say about compiling, as those of `gecli compile`."""
    typed: dict[str, tuple[str, ...]] = {"jit": ("true",)}
    for key in compile_keys():
        if options.is_set(key):
            value = options.get(key)
            typed[key] = value if isinstance(value, tuple) else (value_text(value),)
    return resolve("compile", typed)


def compile_slices(options: Options, models: list[str], console: Console) -> int:
    """Cut a model and compile its slices for the samples; they stay in the cache."""
    from gecli.cli.compile import write_report
    from gecli.jit.loading import load_jit_model
    from gecli.runtime.session import Session

    check_one_model(models)
    setup = load_jit_model(models[0], options, Session(), say=console.say)
    if not setup.key:
        why = setup.note or "what is compiled is kept in the cache only"
        raise InvalidOption("E10054", "--jit needs a cache", option="--cache-dir", why=why, do="--cache-dir DIR")
    _tell_setup(setup, console)
    _feed(setup.model, options, console)
    if options.flag("werror"):
        from gecli.compiler.failures import refuse

        refuse([*setup.warnings, *setup.model.jit_warnings])
    tell(setup.model, console, explain=options.flag("explain-cache"))
    if not console.quiet:
        for line in slice_lines(setup.model):
            console.result(line)
    found = {"schema": "gecli.compile-jit/1", **document(setup.model), "graph_key": setup.key}
    write_report(options, found)
    if console.json:
        console.document(found)
    return 0


def check_one_model(models: Sequence[str]) -> None:
    """Raises InvalidOption for several: --jit takes one."""
    if len(models) != 1:
        why = f"{len(models)} models were given"
        raise InvalidOption("E10001", "--jit takes one model", option="--jit", why=why, do="one command for each")


def _feed(model: JitModel, options: Options, console: Console) -> None:
    """Run the samples; without one, compile the first slice for the shapes that are known or hinted at."""
    from gecli.runtime.inputs import InputOptions, requests_for

    samples = options.texts("sample")
    for sample in samples:
        for feeds in requests_for(model.inputs, [sample], InputOptions()):
            model.run(feeds)
    if samples:
        return
    model.prepare(hinted_inputs(model, options))
    if not model.points[0].is_last:
        console.say("only the first slice was compiled: the others need its results, so a --sample")


def hinted_inputs(model: JitModel, options: Options) -> list[NDArray[Any]]:
    """Inputs of the shapes that are known or hinted at. Raises InvalidOption for one that is neither."""
    import numpy as np

    hints = _hints(options.text("ge.inputHintShape") or "")
    shapes = [hints.get(position, tensor.shape) for position, tensor in enumerate(model.inputs)]
    unknown = [tensor.name for tensor, shape in zip(model.inputs, shapes) if any(dim < 0 for dim in shape)]
    if unknown:
        raise InvalidOption(
            "E10054",
            f"--jit needs to know the shape of {', '.join(unknown)}",
            why="a slice is compiled for its inputs, and neither sample nor hint is given",
            do="--sample FILE.npz, or --input-hint-shape 0:[...]",
            option="--sample",
        )
    return [np.zeros(shape, tensor.dtype.numpy) for tensor, shape in zip(model.inputs, shapes)]


def _hints(text: str) -> dict[int, tuple[int, ...]]:
    """`0:[1,64];1:[1,64]` by the position of the input. Raises InvalidOption (E10014)."""
    found: dict[int, tuple[int, ...]] = {}
    for item in filter(None, text.split(";")):
        match = re.fullmatch(HINT, item.strip())
        dims = [dim.strip() for dim in match[2].split(",")] if match and match[2].strip() else []
        if match is None or int(match[1]) in found or not all(re.fullmatch(r"\d{1,18}", dim) for dim in dims):
            raise InvalidOption(
                "E10014",
                f"value {text!r} for --input-hint-shape is invalid",
                why=f"{item!r} is no INDEX:[DIM,...] of an input of its own",
                do="--input-hint-shape 0:[1,64]",
                option="--input-hint-shape",
            )
        found[int(match[1])] = tuple(map(int, dims))
    return found


def _tell_setup(setup: JitSetup, console: Console) -> None:
    console.report(setup.warnings)
    if setup.note:
        console.say(setup.note)
    if setup.key:
        console.say(f"graph key {setup.key} ({setup.key_origin})", level=1)
    if setup.model.refusal:
        console.say(f"the model is not cut: {setup.model.refusal}")


def tell(model: JitModel, console: Console, *, explain: bool = False) -> None:
    """What compiling on the way had to say: warnings, and one line of counts."""
    warnings: list[Diagnostic] = list(model.jit_warnings)
    model.jit_warnings.clear()
    console.report(warnings)
    for line in model.explanation if explain else ():
        console.say(f"cache: {line}", asked=True)
    counts = model.counts
    slices = f"{len(model.points)} slice{'' if len(model.points) == 1 else 's'}"
    compiled = f"{counts['compiled']} version{'' if counts['compiled'] == 1 else 's'} compiled"
    console.say(f"{slices}: {compiled}, {counts['restored']} from the cache")


def slice_lines(model: JitModel) -> list[str]:
    """One line for each slice: its versions and where it ends."""
    lines = []
    for point in model.points:
        stored = point.stored
        ends = ", ".join(f"{node!r} ({reason})" for node, reason in stored.reasons if node)
        behind = f"; ends behind {ends}" if not point.is_last and ends else ""
        count = len(point.versions) + len(point.waiting)
        lines.append(f"slice {stored.id}: {count} compiled version{'' if count == 1 else 's'}{behind}")
    return lines


def document(model: JitModel) -> dict[str, Any]:
    """The slices and their guards for machines."""
    return {
        "model": model.path,
        "refusal": model.refusal or None,
        "counts": dict(model.counts),
        "slices": [
            {
                "id": point.stored.id,
                "is_last": point.is_last,
                "cut_reason": [{"node": node, "reason": reason} for node, reason in point.stored.reasons],
                "versions": [
                    {"key": version.key or None, "hits": version.hits, "guard": version.guard.as_json()}
                    for version in point.versions
                ],
            }
            for point in model.points
        ],
    }
