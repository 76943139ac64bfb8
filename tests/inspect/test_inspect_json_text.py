"""Documents are written as the standard library writes them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gecli.report.inspect.json_text import json_chunks
from gecli.report.inspect.view import Large, Members, Rows

SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4)
)


@given(VALUES, st.booleans())
def test_the_text_is_that_of_the_standard_library(value: Any, ascii_only: bool) -> None:
    expected = json.dumps(value, indent=2, sort_keys=True, ensure_ascii=ascii_only)
    assert "".join(json_chunks(value, ascii_only=ascii_only)) == expected


@given(st.lists(st.dictionaries(st.text(), VALUES, max_size=3), max_size=3))
def test_a_lazy_list_is_written_as_a_list(items: list[Any]) -> None:
    lazy = {"a": 1, "rows": Rows(lambda: iter([{"inner": Rows(lambda: iter(items))}]))}
    expected = json.dumps({"a": 1, "rows": [{"inner": items}]}, indent=2, sort_keys=True, ensure_ascii=False)
    assert "".join(json_chunks(lazy)) == expected


@pytest.mark.parametrize(
    ("value", "text"), [(float("nan"), '"nan"'), (float("inf"), '"inf"'), (-float("inf"), '"-inf"')]
)
def test_numbers_that_json_lacks_are_text(value: float, text: str) -> None:
    assert "".join(json_chunks(value)) == text


@given(st.dictionaries(st.text(), VALUES, max_size=4))
def test_what_is_written_piece_by_piece_has_the_same_text(content: dict[str, Any]) -> None:
    expected = json.dumps({"a": [{"b": content}]}, indent=2, sort_keys=True, ensure_ascii=False)
    for lazy in (Large(content), Members(content, content.__getitem__)):
        assert "".join(json_chunks({"a": [{"b": lazy}]})) == expected


@pytest.mark.parametrize("items", [[1] * 2500, [1] * 999 + [{"x": [2, {}]}] + ["y"] * 1200, [[3]] * 1001])
def test_a_long_list_has_the_same_text(items: list[Any]) -> None:
    document = {
        "a": Large({"b": {"c": items}}),
        "rows": Rows(lambda: iter([{"inputs": items, "ops": Rows(lambda: iter(()))}])),
    }
    plain = {"a": {"b": {"c": items}}, "rows": [{"inputs": items, "ops": []}]}
    assert "".join(json_chunks(document)) == json.dumps(plain, indent=2, sort_keys=True, ensure_ascii=False)


@pytest.mark.parametrize("ascii_only", [False, True])
def test_a_long_text_has_the_same_escapes(ascii_only: bool) -> None:
    text = '\x01\U0001f600"\\é' * 40_000
    expected = json.dumps({"a": text}, indent=2, ensure_ascii=ascii_only)
    assert "".join(json_chunks({"a": text}, ascii_only=ascii_only)) == expected
