"""Which entries of a key a newer one of something else replaces."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gecli.cache.survey import EntryRow, _with_superseded

ROWS = st.lists(st.tuples(st.sampled_from(("", "a", "b", "c")), st.integers(0, 4)), max_size=7)


def row(number: int, fingerprint: str, created: int) -> EntryRow:
    return EntryRow("k", f"k_{number}", created, created, 1, (), fingerprint=fingerprint)


@given(ROWS)
def test_an_entry_is_superseded_by_any_newer_one_of_another_fingerprint(facts: list[tuple[str, int]]) -> None:
    found = _with_superseded([row(number, *each) for number, each in enumerate(facts)])
    assert [each.state == "superseded" for each in found] == [
        bool(mine) and any(other and other != mine and later > created for other, later in facts)
        for mine, created in facts
    ]


def test_a_key_with_very_many_entries_is_looked_at_once_each() -> None:
    rows = [row(number, f"f{number}", number) for number in range(50_000)]  # minutes, if each were compared with each
    assert sum(each.state == "superseded" for each in _with_superseded(rows)) == len(rows) - 1
