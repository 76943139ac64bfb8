"""Options of `gecli run` about inputs: shapes, ranges, transpositions, and the file of what was used."""

from __future__ import annotations

from collections.abc import Iterable
from math import isfinite
from typing import TYPE_CHECKING, Any

from gecli.errors import InvalidOption

if TYPE_CHECKING:
    from gecli.ir.tensor_desc import Shape
    from gecli.options.values import Options
    from gecli.runtime.inputs import InputOptions
    from gecli.runtime.interface import Tensor
    from gecli.runtime.model import LoadedModel
    from gecli.runtime.runner import Schedule

MAX_DURATION_S = 31 * 86400
_SHAPE_CURE = '--shape "NAME:1,3,32,32"'


def input_options(options: Options, model: LoadedModel) -> InputOptions:
    """What the command line says about the inputs of one model. Raises InvalidOption."""
    from gecli.runtime.inputs import InputOptions

    how, _, value = (options.text("fill") or "").partition(":")
    if how == "const" and not _is_number(value):
        raise bad_value("--fill", f"const:{value}", "expected const:NUMBER", "--fill const:0.5")
    return InputOptions(
        seed=options.integer("seed") or 0,
        fill=options.text("fill") or "random",
        ranges=dict(_range(text) for text in options.texts("val-range")),
        shapes=_shapes(options, model.inputs),
        cast=options.flag("cast"),
        transposes=dict(_perm(text) for text in options.texts("transpose")),
    )


def schedule_of(options: Options) -> Schedule:
    """How often every request runs. Raises InvalidOption."""
    from gecli.runtime.runner import Schedule

    loop = options.integer("loop") or 1
    warmup, duration_s = options.integer("warmup"), options.number("duration") or 0.0
    if not 0 <= duration_s <= MAX_DURATION_S:
        raise bad_value("--duration", f"{duration_s}", f"expected seconds from 0 to {MAX_DURATION_S}")
    return Schedule(loop, (3 if loop > 1 else 0) if warmup is None else warmup, duration_s)


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
        raise bad_value("--val-range", text, "expected LO,HI or NAME:[LO,HI]", "--val-range 0,1") from err
    if not isfinite(low) or not isfinite(high) or not isfinite(high - low):
        raise bad_value("--val-range", text, "expected finite numbers LO,HI", "--val-range 0,1")
    if low > high:
        do = f"--val-range {_given(name, high, low)}"
        raise bad_value("--val-range", text, f"LO {low:g} is above HI {high:g}", do)
    return name, (low, high)


def _given(name: str, low: float, high: float) -> str:
    return f'"{name}:[{low:g},{high:g}]"' if name else f"{low:g},{high:g}"


def _shapes(options: Options, inputs: tuple[Tensor, ...]) -> dict[str, Shape]:
    """`--shape` in the form of `gecli compile --input-shape`, by name or position; a model takes what is its own."""
    texts = options.texts("shape")
    if not texts:
        return {}
    from gecli.loading.input_shapes import parse_input_shapes

    names = [tensor.name for tensor in inputs]
    found: dict[str, Shape] = {}
    for item in parse_input_shapes(texts, option="--shape").items:
        if item.is_dynamic:
            raise bad_value("--shape", item.text, "a run needs a number for every dimension", _SHAPE_CURE)
        if item.name is not None and item.name not in names:
            continue  # of another OM of the command; `check_shapes` knows them all
        if item.position is not None and item.position >= len(names):
            raise bad_value("--shape", item.text, f"the model's inputs are {', '.join(names)}", _SHAPE_CURE)
        name = item.name if item.position is None else names[item.position]
        if name in found:
            why = f"input {name!r} has a shape already: {list(found[name])}"
            raise bad_value("--shape", item.text, why, "give the shape once")
        found[str(name)] = tuple(low for low, _ in item.dims)
    return found


def check_shapes(options: Options, models: Iterable[LoadedModel]) -> None:
    """Raises InvalidOption for a name in --shape that is no input of any OM."""
    texts = options.texts("shape")
    if not texts:
        return
    from gecli.loading.input_shapes import parse_input_shapes

    names = [tensor.name for model in models for tensor in model.inputs]
    for item in parse_input_shapes(texts, option="--shape").items:
        if item.name is not None and item.name not in names:
            raise InvalidOption(
                "E10016", f"--shape names {item.name!r}, which is no input of the model", option="--shape",
                why=f"its inputs are {', '.join(names)}", expected=names, actual=item.name,
                do=f'--shape "{names[0]}:{item.given}"' if names else "leave out --shape",
            )  # fmt: skip


def _perm(text: str) -> tuple[str, tuple[int, ...]]:
    name, _, axes = text.rpartition(":")
    try:
        perm = tuple(int(axis) for axis in axes.split(","))
    except ValueError as err:
        raise bad_value("--transpose", text, "expected NAME:0,3,1,2", f"--transpose {name or 'NAME'}:0,3,1,2") from err
    if not name or sorted(perm) != list(range(len(perm))):
        why = "expected NAME:0,3,1,2 with every axis once"
        raise bad_value("--transpose", text, why, f"--transpose {name or 'NAME'}:0,3,1,2")
    return name, perm


def bad_value(option: str, text: str, why: str, do: str = "") -> InvalidOption:
    """The error for a value that its option does not take."""
    return InvalidOption("E10001", f"value {text!r} for {option} is invalid", option=option, why=why, do=do)


def save_inputs(path: str, requests: list[list[dict[str, Any]]]) -> None:
    """--save-inputs: those of the first run."""
    from gecli.artifacts.publish import publish_bytes
    from gecli.runtime.checkpoint import npz_bytes, portable

    first = requests[0][0]
    publish_bytes(path, npz_bytes({name: portable(array) for name, array in first.items()}))
