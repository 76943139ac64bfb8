"""Guards are data: what they can say, and that whatever is wrong with one makes it refuse."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gecli.jit.guard import Guard, GuardError, parse_guard

ARRAYS = [np.zeros((4, 64), np.float32), np.array([3, 5], np.int64), np.array(True)]
FORMATS = ["ND", "ND", "ND"]
INPUTS = [
    {"index": 0, "dtype": "DT_FLOAT", "format": "ND", "rank": 2, "dims": [None, 64]},
    {"index": 1, "dtype": "DT_INT64", "format": "ND", "rank": 1, "dims": [2]},
    {"index": 2, "dtype": "DT_BOOL", "format": "ND", "rank": 0, "dims": []},
]
SYMBOLS = {
    "n": {"source": "shape", "input": 0, "dim": 0},
    "r": {"source": "rank", "input": 0},
    "v": {"source": "value", "input": 1, "elem": 1},
    "t": {"source": "value_sum", "input": 1},
    "c": {"source": "cond", "input": 2},
}


def guard(*checks: Any, inputs: list[Any] | None = None, symbols: dict[str, Any] | None = None) -> Guard:
    chosen = SYMBOLS if symbols is None else symbols
    document = {"version": 1, "inputs": inputs or INPUTS, "symbols": chosen, "checks": list(checks)}
    return parse_guard(json.loads(json.dumps(document)))


@pytest.mark.parametrize(
    "check",
    [
        ["eq", "n", 4],
        ["ne", "n", 0],
        ["eq", "r", 2],
        ["eq", "v", 5],
        ["eq", "t", 8],
        ["ne", "c", 0],
        ["lt", "n", "v"],
        ["le", "n", 4],
        ["eq", ["mod", "n", 4], 0],
        ["eq", ["mul", "n", "v", 2], 40],
        ["eq", ["add", "n", "v", 1], 10],
        ["eq", ["sub", "n", "v"], -1],
        ["eq", ["div", 1, 3], ["div", 2, 6]],
        ["eq", ["mul", ["div", 1, 3], 3], 1],
        ["eq", ["max", "n", "v"], 5],
        ["eq", ["min", "n", "v"], 4],
        ["eq", ["pow", 2, 100], 1267650600228229401496703205376],
        ["eq", ["pow", 2, -2], ["div", 1, 4]],
        ["eq", ["exp", 0], 1],
        ["eq", ["log", 1], 0],
        ["eq", ["sqrt", 9], 3],
        ["eq", ["ceil", ["div", 7, 2]], 4],
        ["eq", ["floor", ["div", 7, 2]], 3],
        ["eq", ["abs", -7], 7],
        ["eq", 0.1, 0.10000001],  # floats within a millionth
        ["ne", 0.1, 0.1001],
        ["and", 1, ["or", 0, 1], ["not", 0]],
    ],
)
def test_a_check_that_is_true_lets_the_guard_hold(check: Any) -> None:
    assert guard(check).refusal(ARRAYS, FORMATS) == ""
    assert guard(["not", check]).refusal(ARRAYS, FORMATS) != ""


def nested(depth: int) -> Any:
    expression: Any = 1
    for _ in range(depth):
        expression = ["abs", expression]
    return expression


@pytest.mark.parametrize(
    "check",
    [
        ["eq", ["div", 1, 0], 0],
        ["eq", ["mod", 1, 0], 0],
        ["le", ["log", 0], 0],
        ["le", ["sqrt", -1], 0],
        ["le", ["exp", 100000], 0],
        ["le", 0, ["pow", 10, ["pow", 10, 10]]],
        ["le", 0, ["pow", 0, -1]],
        ["le", 0, ["pow", -1, 0.5]],
        ["eq", "unknown", 1],
        ["shell", "rm"],
        ["eq", 1],
        ["eq", 1, 1, 1],
        ["eq", None, 1],
        ["eq", True, 1],
        {"eq": 1},
        [],
        nested(65),
        ["add", *([1] * 10_001)],
    ],
)
def test_a_check_that_cannot_be_decided_makes_the_guard_refuse(check: Any) -> None:
    assert "cannot be decided" in guard(check).refusal(ARRAYS, FORMATS)


@pytest.mark.parametrize(
    ("arrays", "why"),
    [
        (ARRAYS[:2], "2 inputs instead of 3"),
        ([ARRAYS[0].astype(np.float64), *ARRAYS[1:]], "float64 instead of float32"),
        ([np.zeros((4, 63), np.float32), *ARRAYS[1:]], "[4, 63] instead of [*, 64]"),
        ([np.zeros((4, 64, 1), np.float32), *ARRAYS[1:]], "instead of [*, 64]"),
        ([ARRAYS[0], np.zeros(3, np.int64), ARRAYS[2]], "[3] instead of [2]"),
    ],
)
def test_inputs_are_checked_before_anything_else(arrays: list[Any], why: str) -> None:
    assert why in guard(["eq", "no symbol", 1]).refusal(arrays, FORMATS)


def test_a_free_dim_takes_any_size_and_a_symbol_tells_it() -> None:
    wide = [np.zeros((9, 64), np.float32), *ARRAYS[1:]]
    assert guard(["ne", "n", 0]).refusal(wide, FORMATS) == ""
    assert guard(["eq", "n", 4]).refusal(wide, FORMATS) == '["eq", "n", 4] is false'


def test_another_format_is_refused() -> None:
    assert "NCHW instead of ND" in guard().refusal(ARRAYS, ["NCHW", "ND", "ND"])


@pytest.mark.parametrize(
    "symbol",
    [
        {"source": "shape", "input": 0, "dim": 2},
        {"source": "value", "input": 1, "elem": 2},
        {"source": "cond", "input": 1},
    ],
)
def test_a_symbol_that_the_inputs_lack_makes_the_guard_refuse(symbol: Any) -> None:
    assert guard(["eq", "s", 0], symbols={"s": symbol}).refusal(ARRAYS, FORMATS) != ""


@pytest.mark.parametrize(
    "change",
    [
        {"version": 2},
        {"inputs": None},
        {"symbols": []},
        {"checks": {}},
        {"inputs": [{**INPUTS[0], "rank": 3}]},
        {"inputs": [{**INPUTS[0], "index": 1}]},
        {"inputs": [{**INPUTS[0], "dtype": "DT_NONSENSE"}]},
        {"inputs": [{**INPUTS[0], "dtype": None}]},
        {"inputs": [{**INPUTS[0], "format": 2}]},
        {"inputs": [{**INPUTS[0], "dims": [-1, 64]}]},
        {"inputs": [{**INPUTS[0], "dims": [True, 64]}]},
        {"inputs": ["x"]},
        {"symbols": {"s": {"source": "file", "input": 0}}},
        {"symbols": {"s": {"source": "shape", "input": 0}}},
        {"symbols": {"s": {"source": "rank", "input": 3}}},
        {"symbols": {"s": {"source": ["rank"], "input": 0}}},
        {"symbols": {"s": "rank"}},
    ],
)
def test_a_document_that_is_no_guard_is_none(change: Any) -> None:
    document = {"version": 1, "inputs": INPUTS, "symbols": {}, "checks": [], **change}
    with pytest.raises(GuardError):
        parse_guard(document)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.sampled_from(["n", "v", "eq", "pow", "div", "mul"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=12,
)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(JSON, max_size=3))
def test_whatever_a_check_is_the_guard_holds_or_says_why_not(checks: list[Any]) -> None:
    document = {"version": 1, "inputs": INPUTS, "symbols": SYMBOLS, "checks": checks}
    assert isinstance(parse_guard(document).refusal(ARRAYS, FORMATS), str)


def test_a_guard_survives_its_document() -> None:
    first = guard(["eq", ["mod", "n", 8], 4], ["ne", "c", 0])
    assert parse_guard(json.loads(json.dumps(first.as_json()))).as_json() == first.as_json()
