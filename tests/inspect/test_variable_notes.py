"""`inspect-om --vars` says what its words below the table mean."""

from __future__ import annotations

from gecli.report.inspect.variables import _extra_lines

DESC = {"format": "FRACTAL_Z", "shape": [9, 1, 16, 8]}


def test_each_word_is_explained_once_and_only_where_it_is_used() -> None:
    rows = [
        {"name": "w1", "staged_desc": None, "changed": True, "changed_graph": None},
        {"name": "w2", "staged_desc": DESC, "changed": True, "changed_graph": None},
        {"name": "b", "staged_desc": None, "changed": False, "changed_graph": None},
    ]
    assert list(_extra_lines(rows)) == [
        "w2: staged FRACTAL_Z [9,1,16,8]",
        "  staged: the form that this compile chose and the session has not taken over yet",
        "changed by this compile: w1, w2",
        "  changed: stored in a new form; graphs of the session compiled with the old one are compiled again",
    ]
    assert list(_extra_lines(rows[2:])) == []
