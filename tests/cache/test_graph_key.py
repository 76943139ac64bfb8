"""The rule for graph keys, and keys that gecli makes."""

from __future__ import annotations

import pytest

from gecli.cache.graph_key import auto_key, expanded, is_graph_key


@pytest.mark.parametrize("key", ["a", "A-b_9", "x" * 128, "-", "_"])
def test_letters_digits_dash_and_underscore_make_a_key(key: str) -> None:
    assert is_graph_key(key)


@pytest.mark.parametrize("key", ["", "x" * 129, "a\n", "a.b", "a/b", "a b", "ä", "٣", "a\0"])
def test_anything_else_is_no_key(key: str) -> None:
    assert not is_graph_key(key)


def test_placeholders_give_each_model_a_key() -> None:
    assert [expanded("m-{stem}-{n}", stem, number) for number, stem in enumerate(["a b", "c"])] == ["m-a_b-0", "m-c-1"]


@pytest.mark.parametrize(
    ("stem", "name"), [("res net.v1", "res_net_v1"), ("", "graph"), ("x" * 60, "x" * 40), ("日本", "__")]
)
def test_an_automatic_key_is_a_legal_key_with_name_and_content(stem: str, name: str) -> None:
    key = auto_key(stem, "sha256:" + "0123456789abcdef" * 4)
    assert key == f"auto-{name}-0123456789abcdef0123456789abcdef"
    assert is_graph_key(key)
