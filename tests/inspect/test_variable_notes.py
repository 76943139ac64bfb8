"""`inspect-om --vars` says what its words below the table mean."""

from __future__ import annotations

from typing import Any

import pytest

from gecli.report.inspect.variables import _extra_lines

FOUND = {"dtype": "float32", "format": "NCHW", "shape": [8, 1, 3, 3]}
STORED = {"dtype": "float32", "format": "FRACTAL_Z", "shape": [9, 1, 16, 16]}


def row(name: str, staged: dict[str, Any] | None, *, changed: bool) -> dict[str, Any]:
    return {"name": name, "desc": STORED, "staged_desc": staged, "changed": changed, "changed_graph": None}


def test_each_word_is_explained_once_and_only_where_it_is_used() -> None:
    rows = [row("w1", None, changed=True), row("w2", FOUND, changed=True), row("b", None, changed=False)]
    assert list(_extra_lines(rows)) == [
        "w2: staged float32 NCHW [8,1,3,3]",
        "  staged: the form in which the variable passes of this compile found a variable that was there before",
        "changed by this compile: w1, w2",
        "  changed: stored in a new form; graphs of the session compiled with the old one are compiled again",
    ]
    assert list(_extra_lines(rows[2:])) == []


@pytest.mark.parametrize(
    ("difference", "told"),
    [({}, False), ({"origin_format": "HWCN"}, False), ({"dtype": "float16"}, True), ({"format": "ND"}, True),
     ({"shape": [9, 1, 16, 8]}, True)],
)  # fmt: skip
def test_a_staged_form_is_told_where_it_is_not_that_of_the_table(difference: dict[str, Any], told: bool) -> None:
    lines = list(_extra_lines([row("w", STORED | difference, changed=False)]))
    assert bool(lines) is told
