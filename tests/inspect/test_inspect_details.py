"""`inspect-om`: an option that says more of a view is refused without that view."""

from __future__ import annotations

import pytest

from gecli.errors import InvalidOption
from gecli.options import resolve

ROWS = [
    ({"stats": "true"}, "--stats belongs to --tensors", "--tensors --stats"),
    ({"map": "true"}, "--map belongs to --vars", "--vars --map"),
    ({"type": "Relu"}, "--type belongs to --nodes", "--nodes --type GLOB"),
    ({"name": "r*"}, "--name belongs to --nodes", "--nodes --name GLOB"),
    ({"graph-name": "g"}, "--graph-name belongs to --nodes", "--nodes --graph-name NAME"),
    ({"show": "attrs"}, "--show belongs to --nodes", "--nodes --show LIST"),
    ({"hash": "false"}, "--no-hash belongs to --partitions", "--partitions --no-hash"),
    ({"vars": "true", "stats": "true"}, "--stats belongs to --tensors", "--tensors --stats"),
    ({"origin-format": "true"}, "--origin-format belongs to --extract", "--extract all --to DIR --origin-format"),
    ({"embed-data": "true"}, "--embed-data belongs to --json without a view", "--json --embed-data"),
    (
        {"data-file": "d", "json": "true", "vars": "true"},
        "--data-file belongs to --json without a view",
        "--json --data-file DATA",
    ),
]


@pytest.mark.parametrize(("typed", "message", "do"), ROWS)
def test_a_detail_without_its_view_is_refused_with_the_view(typed: dict[str, str], message: str, do: str) -> None:
    with pytest.raises(InvalidOption) as caught:
        resolve("inspect-om", {key: (text,) for key, text in typed.items()})
    assert (caught.value.code, caught.value.exit_status) == ("E10057", 2)
    assert caught.value.first.message == message
    assert caught.value.first.do == f"gecli inspect-om FILE {do}"


@pytest.mark.parametrize(
    "typed",
    [
        {"tensors": "true", "stats": "true"},
        {"nodes": "true", "type": "Relu", "show": "attrs", "json": "true"},
        {"partitions": "true", "hash": "false"},
        {"hash": "true"},
        {"json": "true", "embed-data": "true"},
        {"extract": "all", "to": "d", "origin-format": "true"},
    ],
)
def test_a_detail_with_its_view_is_accepted(typed: dict[str, str]) -> None:
    resolve("inspect-om", {key: (text,) for key, text in typed.items()})
