"""Giving the inputs of a model the shapes that the user asked for, and the table that says what came of it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from typing import Any

from gecli.errors import Diagnostic, InvalidOption
from gecli.ir.tensor_desc import UNKNOWN_RANK, Range, TensorDesc
from gecli.loading.input_shapes import UNBOUNDED, InputShapes, ShapeItem
from gecli.options.spelling import similar
from gecli.records import dataclass

Symbols = tuple[str | None, ...]


@dataclass(frozen=True, slots=True)
class ModelInput:
    """An input as the model declares it; `symbols` names its unknown dims where the model does."""

    name: str
    desc: TensorDesc
    symbols: Symbols = ()

    @property
    def shape_text(self) -> str:
        """The declared shape with symbols, for example `[N,3,640,640]`."""
        return _shape_text(self.desc, self.symbols)

    def __str__(self) -> str:
        return f"{self.name} {self.desc.dtype.name} {self.shape_text}"


@dataclass(frozen=True, slots=True)
class InputRow:
    """One line of the summary: what the model says, what was given, how the input is compiled."""

    position: int
    name: str
    model_shape: str
    given: str
    desc: TensorDesc

    @property
    def compiled(self) -> str:
        if self.desc.shape_range is None:
            return _shape_text(self.desc, ())
        ranges = ",".join(f"({low},{'inf' if high == UNBOUNDED else high})" for low, high in self.desc.shape_range)
        return f"{_shape_text(self.desc, ())} range [{ranges}]"

    def as_json(self) -> dict[str, Any]:
        """The row of the machine report."""
        return {
            "index": self.position,
            "name": self.name,
            "dtype": self.desc.dtype.serial,
            "model_shape": self.model_shape,
            "given": self.given or None,
            "shape": None if self.desc.shape == UNKNOWN_RANK else list(self.desc.shape),
            "range": None if self.desc.shape_range is None else [list(pair) for pair in self.desc.shape_range],
            "compiled": self.compiled,
        }

    @property
    def unknown_dims(self) -> tuple[int, ...]:
        """Positions of dims that stay unknown; (0,) for an unknown rank."""
        return tuple(axis for axis, dim in enumerate(self.desc.shape) if dim < 0)


@dataclass(slots=True)
class Binding:
    """The outcome for a whole model; `warnings` are for the summary, `unmatched` for the other models."""

    rows: list[InputRow] = field(default_factory=list)
    warnings: list[Diagnostic] = field(default_factory=list)
    unmatched: list[Diagnostic] = field(default_factory=list)

    def desc(self, position: int) -> TensorDesc:
        return self.rows[position].desc


def bind_input_shapes(
    inputs: Sequence[ModelInput], shapes: InputShapes, others: Mapping[str, str] | None = None, model: str = ""
) -> Binding:
    """The descriptors of the inputs after `shapes` is applied.

    `others` says of names that are not inputs what they are (for example `an initializer`). Raises InvalidOption with
    every fault: E10016, E10017, E10014, E10049, E10050. One of several models may lack names: they are unmatched then.
    """
    faults: list[Diagnostic] = []
    result = Binding()
    unknown = result.unmatched if shapes.for_several_models else faults
    items = _items_by_position(inputs, shapes.items, others or {}, model, faults, unknown)
    sizes = dict(shapes.sizes)
    _check_symbols(inputs, sizes, model, unknown)
    for position, each in enumerate(inputs):
        desc, given = _with_sizes(each, sizes)
        item = items.get(position)
        if item is not None:
            found = _with_item(each, desc, item, faults)
            if found is not None:
                _warn_of_override(each, found, item, result.warnings)
                desc, given = found, item.given or "scalar"
        result.rows.append(InputRow(position, each.name, each.shape_text, given, desc))
    if faults:
        raise InvalidOption.of(faults)
    return result


def _items_by_position(
    inputs: Sequence[ModelInput],
    items: Sequence[ShapeItem],
    others: Mapping[str, str],
    model: str,
    faults: list[Diagnostic],
    unknown: list[Diagnostic],
) -> dict[int, ShapeItem]:
    positions = {each.name: position for position, each in enumerate(inputs)}
    found: dict[int, ShapeItem] = {}
    for item in items:
        position = item.position if item.name is None else positions.get(item.name)
        if position is None or position >= len(inputs):
            unknown.append(_unknown_input(item, inputs, others, model))
        elif position in found:
            faults.append(
                Diagnostic(
                    "E10014",
                    f"{item.option} gives a shape for input {inputs[position].name!r} twice",
                    where=f'{item.option} "{found[position].text}" and "{item.text}"',
                    why="which of the two holds is not clear",
                    do="drop one of them",
                    option=item.option,
                )
            )
        else:
            found[position] = item
    return found


def _unknown_input(item: ShapeItem, inputs: Sequence[ModelInput], others: Mapping[str, str], model: str) -> Diagnostic:
    listed = ", ".join(map(str, inputs)) or "none"
    do = _cure(item, inputs)
    where = f'{item.option} "{item.text}"' + (f"   (model {model})" if model else "")
    if item.name is None:
        return Diagnostic(
            "E10016",
            f"{item.option} gives a shape for input {item.position}, but the model has {len(inputs)}",
            where=where,
            why=f"the graph's inputs are: {listed}",
            do=do,
            option=item.option,
            actual=item.position,
        )
    names = [each.name for each in inputs]
    glued = _glued(item, names)
    kind = others.get(item.name)
    if kind is not None:
        return Diagnostic(
            "E10017",
            f"{item.option} names {item.name!r}, which is not an input",
            where=where,
            why=f"it is {kind}; the graph's inputs are: {listed}",
            do=do,
            option=item.option,
            actual=item.name,
            expected=names,
        )
    split = f"{item.name!r} is one name here: a semicolon separates inputs, a comma dimensions; " if glued else ""
    return Diagnostic(
        "E10016",
        f"{item.option} names an input the model does not have",
        where=where,
        why=f"{split}the graph's inputs are: {listed}",
        do=f'{item.option} "{glued}"' if glued else do,
        option=item.option,
        actual=item.name,
        expected=names,
    )


def _glued(item: ShapeItem, names: Sequence[str]) -> str:
    """The text with semicolons where commas stand before names of inputs; "" if none does."""
    known = "|".join(map(re.escape, sorted(names, key=len, reverse=True)))
    text = re.sub(rf"\s*,\s*(?=(?:{known})\s*[:=])", ";", item.text) if known else item.text
    return text if text != item.text else ""


def _cure(item: ShapeItem, inputs: Sequence[ModelInput]) -> str:
    """An option that works: the given dims for the input that was meant, if they fit it, else every declared shape."""
    fitting = [each for each in inputs if _fits(item, each)]
    names = [each.name for each in fitting]
    close = similar(item.name or "", names, 1, 0.5) or (names if len(inputs) == 1 else [])
    if close:
        return f'{item.option} "{close[0]}:{item.given}"'
    shapes = [f"{each.name}:{_usable(each)}" for each in inputs if each.desc.shape != UNKNOWN_RANK]
    return f'{item.option} "{";".join(shapes)}"' if shapes else ""


def _fits(item: ShapeItem, each: ModelInput) -> bool:
    shape = each.desc.shape
    if shape == UNKNOWN_RANK:
        return True
    return len(shape) == len(item.dims) and all(dim < 0 or _within(dim, at) for dim, at in zip(shape, item.dims))


def _usable(each: ModelInput) -> str:
    """The declared shape with 1 for what is unknown."""
    return ",".join("1" if dim < 0 else str(dim) for dim in each.desc.shape)


def _check_symbols(
    inputs: Sequence[ModelInput], sizes: Mapping[str, int], model: str, faults: list[Diagnostic]
) -> None:
    known = sorted({symbol for each in inputs for symbol in each.symbols if symbol})
    for name in sizes:
        if name in known:
            continue
        close = similar(name, known, 1, 0.5)
        faults.append(
            Diagnostic(
                "E10016",
                f"--dim names {name!r}, which no input has",
                where=f'--dim "{name}={sizes[name]}"' + (f"   (model {model})" if model else ""),
                why=f"the symbolic dims of the inputs are: {', '.join(known) or 'none'}",
                do=f"--dim {close[0]}={sizes[name]}" if close else "",
                option="--dim",
                actual=name,
                expected=known,
            )
        )


def _with_sizes(each: ModelInput, sizes: Mapping[str, int]) -> tuple[TensorDesc, str]:
    """The input with its symbolic dims bound, and the options that did it."""
    bound = [symbol for symbol in dict.fromkeys(each.symbols) if symbol and symbol in sizes]
    if not bound:
        return each.desc, ""
    shape = tuple(
        sizes[symbol] if symbol and symbol in sizes else dim for dim, symbol in zip(each.desc.shape, each.symbols)
    )
    return each.desc.with_shape(shape), " ".join(f"--dim {symbol}={sizes[symbol]}" for symbol in bound)


def _with_item(each: ModelInput, bound: TensorDesc, item: ShapeItem, faults: list[Diagnostic]) -> TensorDesc | None:
    model = bound.shape
    # A scalar takes any shape: exporters write [] for "one value", and users feed [1] (atc checks no rank there).
    if model not in (UNKNOWN_RANK, ()) and len(model) != len(item.dims):
        faults.append(
            Diagnostic(
                "E10049",
                f"the shape given for input {each.name!r} has rank {len(item.dims)}, the model's has {len(model)}",
                where=f'{item.option} "{item.text}"',
                why=f"given [{item.given}], model {each.shape_text}",
                do=f'{item.option} "{each.name}:{_usable(each)}"',
                option=item.option,
                expected=len(model),
                actual=len(item.dims),
            )
        )
        return None
    dims = item.dims
    if len(model) == len(item.dims):
        wrong = [
            axis
            for axis, dim in enumerate(model)
            # A static shape may replace the model's fixed dims (atc does so), but not what --dim says.
            if dim >= 0 and not _within(dim, dims[axis]) and (item.is_dynamic or each.desc.shape[axis] < 0)
        ]
        if wrong:
            axis = wrong[0]
            source = "the model" if each.desc.shape[axis] >= 0 else f"--dim {each.symbols[axis]}"
            faults.append(
                Diagnostic(
                    "E10050",
                    f"dimension {axis} of input {each.name!r} is {model[axis]} by {source}, outside what is given",
                    where=f'{item.option} "{item.text}"',
                    why=f"given [{item.given}], model {each.shape_text}",
                    do=f"give {model[axis]} or a range that includes it",
                    option=item.option,
                    expected=model[axis],
                    actual=list(dims[axis]),
                )
            )
            return None
    shape = tuple(low if low == high else -1 for low, high in dims)
    return replace(bound.with_shape(shape), shape_range=dims if item.is_dynamic else None)


def _within(dim: int, limits: Range) -> bool:
    low, high = limits
    return dim >= low and (high == UNBOUNDED or dim <= high)


def _warn_of_override(each: ModelInput, desc: TensorDesc, item: ShapeItem, warnings: list[Diagnostic]) -> None:
    model = each.desc.shape
    if model == UNKNOWN_RANK or (
        len(model) == len(desc.shape) and all(old in (new, -1) for old, new in zip(model, desc.shape))
    ):
        return
    if item.is_dynamic:
        return
    pairs = list(zip(model, desc.shape)) if len(model) == len(desc.shape) else []
    replaced = [(axis, old, new) for axis, (old, new) in enumerate(pairs) if old not in (new, -1)]
    told = ", ".join(
        f"dimension {axis} of {each.name!r} is {old} in the model, {new} given" for axis, old, new in replaced
    )
    kept = ",".join(str(new if old < 0 else old) for old, new in pairs)
    warnings.append(
        Diagnostic(
            "E10050",
            told or f"input {each.name!r} is {each.shape_text} in the model, [{item.given}] given",
            where=f'{item.option} "{item.text}"',
            why="the model may have been made for its fixed sizes only",
            do=f'{item.option} "{each.name}:{kept}"',
            severity="warning",
            option=item.option,
        )
    )


def _shape_text(desc: TensorDesc, symbols: Symbols) -> str:
    if desc.shape == UNKNOWN_RANK:
        return "unknown rank"
    names = symbols or (None,) * len(desc.shape)
    return "[" + ",".join(name if dim < 0 and name else str(dim) for dim, name in zip(desc.shape, names)) + "]"
