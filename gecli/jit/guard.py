"""Guards: whether a compiled slice may be used for these inputs (cache.md 9.7). Data, never code."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gecli.ir.dtype import DataType
from gecli.records import dataclass

Array = NDArray[Any]
Number = int | Fraction | float

VERSION = 1
MAX_DEPTH = 64
MAX_NODES = 10_000
MAX_BITS = 4096  # of a number on the way: a guard must not take the memory of the machine
MAX_VALUES = 200  # elements of an input whose values may become part of a guard
EPSILON = 2.220446049250313e-16
RELATIVE = 1e-6
SOURCES = {"shape": ("input", "dim"), "rank": ("input",), "value": ("input", "elem"), "value_sum": ("input",),
           "cond": ("input",)}  # fmt: skip


class GuardError(ValueError):
    """The guard is malformed, or cannot be decided for these inputs; both mean that it does not hold."""


@dataclass(frozen=True, slots=True)
class InputRule:
    """What one input must be; a dim of None is free."""

    dtype: DataType
    format: str
    dims: tuple[int | None, ...]

    def as_json(self, index: int) -> dict[str, Any]:
        return {
            "index": index,
            "dtype": self.dtype.serial,
            "format": self.format,
            "rank": len(self.dims),
            "dims": list(self.dims),
        }


@dataclass(frozen=True, slots=True)
class Guard:
    """A predicate over the inputs of a slice. `symbols` name numbers of the inputs, `checks` must all be true."""

    inputs: tuple[InputRule, ...]
    symbols: Mapping[str, Mapping[str, Any]]
    checks: tuple[Any, ...]

    def as_json(self) -> dict[str, Any]:
        """The guard as it is stored beside a compiled slice."""
        return {
            "version": VERSION,
            "inputs": [rule.as_json(index) for index, rule in enumerate(self.inputs)],
            "symbols": {name: dict(source) for name, source in self.symbols.items()},
            "checks": [_plain(check) for check in self.checks],
        }

    @property
    def free(self) -> int:
        """How many sizes are symbols: a version with fewer is made for fewer inputs, and is the faster one."""
        return sum(rule.dims.count(None) for rule in self.inputs)

    def fixed(self, source: str) -> dict[tuple[int, int], int]:
        """The numbers of this source that a check wants, by input and by dim or element."""
        found = {}
        for check in self.checks:
            match check:
                case ("eq", str(name), int(number)) if self.symbols.get(name, {}).get("source") == source:
                    symbol = self.symbols[name]
                    found[symbol["input"], symbol[SOURCES[source][-1]]] = number
        return found

    def refusal(self, arrays: Sequence[Array], formats: Sequence[str]) -> str:
        """Why the guard does not hold for these inputs; empty when it does."""
        try:
            return self._refusal(arrays, formats)
        except (GuardError, ArithmeticError, ValueError) as error:
            return f"it cannot be decided: {error}"

    def _refusal(self, arrays: Sequence[Array], formats: Sequence[str]) -> str:
        if len(arrays) != len(self.inputs):
            return f"{len(arrays)} inputs instead of {len(self.inputs)}"
        for index, (rule, array, fmt) in enumerate(zip(self.inputs, arrays, formats)):
            if array.dtype != rule.dtype.numpy:
                return f"input {index} is {array.dtype.name} instead of {rule.dtype.numpy.name}"
            if fmt != rule.format:
                return f"input {index} is {fmt} instead of {rule.format}"
            fits = array.ndim == len(rule.dims) and all(w in (None, h) for w, h in zip(rule.dims, array.shape))
            if not fits:
                return f"input {index} is {list(array.shape)} instead of {_dims_text(rule.dims)}"
        values = _Symbols(self.symbols, arrays)
        for check in self.checks:
            if not _Evaluation(values.number).number(check, 0):
                return f"{_text(check)} is false"
        return ""


def parse_guard(document: Any) -> Guard:
    """The guard in a JSON document. Raises GuardError."""
    if not isinstance(document, dict) or document.get("version") != VERSION:
        raise GuardError("it is no guard of this version")
    inputs, symbols, checks = (document.get(name) for name in ("inputs", "symbols", "checks"))
    if not isinstance(inputs, list) or not isinstance(symbols, dict) or not isinstance(checks, list):
        raise GuardError("inputs, symbols or checks are missing")
    rules = tuple(_rule(index, each) for index, each in enumerate(inputs))
    for name, source in symbols.items():
        _require_source(name, source, len(rules))
    return Guard(rules, symbols, tuple(checks))


def evaluated(expression: Any, symbols: Mapping[str, Mapping[str, Any]], arrays: Sequence[Array]) -> Number:
    """The number behind one expression. Raises GuardError, ArithmeticError and ValueError."""
    return _Evaluation(_Symbols(symbols, arrays).number).number(expression, 0)


def _rule(index: int, each: Any) -> InputRule:
    dims = each.get("dims") if isinstance(each, dict) else None
    if not isinstance(dims, list) or each.get("index") != index or each.get("rank") != len(dims):
        raise GuardError(f"input {index} is not described")
    if not all(dim is None or _is_size(dim) for dim in dims) or not isinstance(each.get("format"), str):
        raise GuardError(f"input {index} has no proper dims or format")
    try:
        dtype = DataType.parse(each.get("dtype"))
    except (ValueError, TypeError, AttributeError, KeyError) as error:
        raise GuardError(f"input {index} has no known type") from error
    return InputRule(dtype, each["format"], tuple(dims))


def _is_size(dim: Any) -> bool:
    return type(dim) is int and dim >= 0


def _require_source(name: str, source: Any, inputs: int) -> None:
    kind = source.get("source") if isinstance(source, dict) else None
    members = SOURCES.get(kind) if isinstance(kind, str) else None
    if members is None or not all(_is_size(source.get(each)) for each in members):
        raise GuardError(f"symbol {name} has no known source")
    if source["input"] >= inputs:
        raise GuardError(f"symbol {name} is of input {source['input']}, there are {inputs}")


class _Symbols:
    """The numbers behind symbols, for the inputs of one run."""

    def __init__(self, symbols: Mapping[str, Mapping[str, Any]], arrays: Sequence[Array]) -> None:
        self._symbols = symbols
        self._arrays = arrays
        self._known: dict[str, Number] = {}

    def number(self, name: str) -> Number:
        found = self._known.get(name)
        if found is None:
            if name not in self._symbols:
                raise GuardError(f"symbol {name} is not declared")
            found = self._known[name] = self._read(self._symbols[name])
        return found

    def _read(self, source: Mapping[str, Any]) -> Number:
        array = self._arrays[source["input"]]
        match source["source"]:
            case "shape":
                if source["dim"] >= array.ndim:
                    raise GuardError(f"input {source['input']} has no dim {source['dim']}")
                return int(array.shape[source["dim"]])
            case "rank":
                return int(array.ndim)
            case "value":
                if source["elem"] >= array.size:
                    raise GuardError(f"input {source['input']} has no element {source['elem']}")
                return _number(array.reshape(-1)[source["elem"]])
            case "value_sum":
                if array.size > MAX_VALUES:
                    raise GuardError(f"input {source['input']} has more than {MAX_VALUES} elements")
                return sum((_number(each) for each in array.reshape(-1)), 0)
        if array.size != 1:
            raise GuardError(f"input {source['input']} is no scalar")
        value = array.reshape(-1)[0]
        return int(bool(value)) if array.dtype.hasobject else int(value)


def _number(value: Any) -> Number:
    """A number of an array, exact for integers."""
    if isinstance(value, (np.bool_, np.integer)):
        return int(value)
    return float(value)


class _Evaluation:
    """The value of one expression: exact for integers and their quotients, float64 as soon as a float takes part."""

    def __init__(self, symbol: Callable[[str], Number]) -> None:
        self._symbol = symbol
        self._left = MAX_NODES

    def number(self, expression: Any, depth: int) -> Number:
        self._left -= 1
        if depth > MAX_DEPTH or self._left < 0:
            raise GuardError("the expression is too large")
        if isinstance(expression, str):
            return self._symbol(expression)
        if type(expression) in (int, float):
            return self._checked(expression)
        if not isinstance(expression, (list, tuple)) or not expression or not isinstance(expression[0], str):
            raise GuardError(f"{str(expression)[:80]!r} is no expression")
        word, arguments = expression[0], [self.number(each, depth + 1) for each in expression[1:]]
        return self._checked(_applied(word, arguments))

    @staticmethod
    def _checked(value: Number) -> Number:
        if isinstance(value, float):
            if not math.isfinite(value):
                raise GuardError("a number is not finite")
        elif max(value.numerator.bit_length(), value.denominator.bit_length()) > MAX_BITS:
            raise GuardError("a number is too large")
        return value


def _applied(word: str, values: list[Number]) -> Number:
    one, two, many = _UNARY.get(word), _BINARY.get(word), _VARIADIC.get(word)
    if one is not None and len(values) == 1:
        return one(values[0])
    if two is not None and len(values) == 2:
        return two(values[0], values[1])
    if many is not None and values:
        return many(values)
    raise GuardError(f"{word!r} with {len(values)} operands is unknown")


def _equal(a: Number, b: Number) -> bool:
    if not isinstance(a, float) and not isinstance(b, float):
        return a == b
    a, b = float(a), float(b)
    return abs(a - b) <= EPSILON or abs(a - b) <= RELATIVE * max(abs(a), abs(b))


def _divided(a: Number, b: Number) -> Number:
    if isinstance(a, float) or isinstance(b, float):
        return float(a) / float(b)
    return Fraction(a) / Fraction(b)


def _power(a: Number, b: Number) -> Number:
    if isinstance(a, float) or isinstance(b, float) or Fraction(b).denominator != 1:
        return math.pow(float(a), float(b))
    exponent = int(b)
    size = max(a.numerator.bit_length(), a.denominator.bit_length())
    if size * abs(exponent) > 2 * MAX_BITS and a not in (0, 1, -1):
        raise GuardError("a number is too large")
    return Fraction(a) ** exponent


def _logarithm(a: Number) -> float:
    if a <= 0:
        raise GuardError("the logarithm of a number that is not positive")
    return math.log(a)


def _product(values: list[Number]) -> Number:
    result: Number = 1
    for value in values:
        result = result * value
        _Evaluation._checked(result)
    return result


def _sum(values: list[Number]) -> Number:
    result: Number = 0
    for value in values:
        result = result + value
    return result


_UNARY: dict[str, Callable[[Number], Number]] = {
    "not": lambda a: int(not a),
    "exp": lambda a: math.exp(a),
    "log": _logarithm,
    "sqrt": lambda a: math.sqrt(a),
    "ceil": lambda a: math.ceil(a),
    "floor": lambda a: math.floor(a),
    "abs": lambda a: -a if a < 0 else a,
}
_BINARY: dict[str, Callable[[Number, Number], Number]] = {
    "eq": lambda a, b: int(_equal(a, b)),
    "ne": lambda a, b: int(not _equal(a, b)),
    "lt": lambda a, b: int(a < b),
    "le": lambda a, b: int(a <= b),
    "sub": lambda a, b: a - b,
    "div": _divided,
    "mod": lambda a, b: a % b,
    "pow": _power,
}
_VARIADIC: dict[str, Callable[[list[Number]], Number]] = {
    "and": lambda values: int(all(values)),
    "or": lambda values: int(any(values)),
    "add": _sum,
    "mul": _product,
    "max": lambda values: max(values),
    "min": lambda values: min(values),
}


def _plain(expression: Any) -> Any:
    return [_plain(each) for each in expression] if isinstance(expression, (tuple, list)) else expression


def _dims_text(dims: Sequence[int | None]) -> str:
    return f"[{', '.join('*' if dim is None else str(dim) for dim in dims)}]"


def _text(check: Any) -> str:
    import json

    return json.dumps(_plain(check))[:200]
