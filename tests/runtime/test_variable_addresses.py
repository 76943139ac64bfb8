"""Loading models whose variables meet: overlaps of one OM, addresses of several, reads and writes in no order."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gecli.compiler import compile_model
from gecli.errors import GecliError, InputError, RuntimeFault
from gecli.runtime.session import Session


def document(name: str, *variables: tuple[str, list[int]], writer: str = "") -> dict[str, Any]:
    """A graph that reads each variable, and adds its input to the one named by `writer`."""
    nodes: list[dict[str, Any]] = []
    links: list[dict[str, Any]] = []
    for variable, shape in variables:
        outputs = [{"dtype": "DT_FLOAT", "shape": shape, "format": "ND"}]
        count = shape[0]
        attrs = {"_init_value": {"tensor": {"data": [1.0] * count}}}
        nodes.append({"id": variable, "type": "Variable", "attrs": attrs, "outputs": outputs})
        nodes.append({"id": f"{variable}_read", "type": "Relu", "attrs": {}, "outputs": outputs})
        links.append({"source": variable, "target": f"{variable}_read", "src_out": 0, "dst_in": 0})
        if variable == writer:
            nodes.append({"id": "x", "type": "Data", "attrs": {"index": 0}, "outputs": outputs})
            nodes.append({"id": "add", "type": "AssignAdd", "attrs": {}, "outputs": outputs})
            links.append({"source": variable, "target": "add", "src_out": 0, "dst_in": 0})
            links.append({"source": "x", "target": "add", "src_out": 0, "dst_in": 1})
    reads = [f"{variable}_read:0" for variable, _ in variables]
    outputs = [*reads, "add:0"] if writer else reads
    graph = {"name": name, "outputs": outputs}
    return {"gecli_graph": 1, "directed": True, "multigraph": True, "graph": graph, "nodes": nodes, "links": links}


def compiled(place: Path, name: str, *variables: tuple[str, list[int]], writer: str = "") -> Path:
    (place / f"{name}.json").write_text(json.dumps(document(name, *variables, writer=writer)))
    compile_model(place / f"{name}.json", place / f"{name}.om")
    return place / f"{name}.om"


def test_models_compiled_apart_share_a_session_unless_addresses_are_to_be_one(tmp_path: Path) -> None:
    first = compiled(tmp_path, "first", ("b", [4]), ("a", [4]))
    second = compiled(tmp_path, "second", ("a", [4]))
    free = Session()
    assert [free.load(om).name for om in (first, second)] == ["first", "second"]
    strict = Session(strict_addresses=True)
    strict.load(first)
    with pytest.raises(InputError, match="two addresses") as refused:
        strict.load(second)
    found = refused.value.first
    assert (found.kind, found.file, found.node) == ("RT_VAR_OVERLAP", str(second), "a")
    assert "one session" in found.do


@pytest.mark.parametrize("size", [4, 500])
def test_two_variables_at_one_address_are_refused_where_addresses_are_to_be_one(tmp_path: Path, size: int) -> None:
    first = compiled(tmp_path, "first", ("a", [4]), ("c", [4]))
    second = compiled(tmp_path, "second", ("b", [size]))
    strict = Session(strict_addresses=True)
    strict.load(first)
    with pytest.raises(InputError, match="'b' overlaps variable 'a'") as refused:
        strict.load(second)
    assert refused.value.first.kind == "RT_VAR_OVERLAP"


def test_models_of_one_session_load_strictly(tmp_path: Path) -> None:
    om = compiled(tmp_path, "first", ("a", [4]), ("b", [4]))
    strict = Session(strict_addresses=True)
    strict.load(om)
    strict.load(om)
    assert len(strict.models) == 2


def test_variables_of_one_model_that_overlap_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from gecli.runtime.session import _Loader

    om = compiled(tmp_path, "first", ("a", [500]), ("b", [4]))
    real = _Loader._variable_rows
    rows = {row[0]: row for row in _rows(om, monkeypatch)}
    assert list(rows) == ["a", "b"]
    moved = ("b", rows["b"][1], rows["a"][2] + 512)
    monkeypatch.setattr(_Loader, "_variable_rows", lambda self: [rows["a"], moved])
    with pytest.raises(InputError, match="'b' overlaps variable 'a'"):
        Session().load(om)
    beyond = ("b", rows["b"][1], rows["a"][2] + (5 << 30))
    monkeypatch.setattr(_Loader, "_variable_rows", lambda self: [rows["a"], beyond])
    with pytest.raises(InputError, match="outside variable memory") as refused:
        Session().load(om)
    assert refused.value.first.kind == "RT_ADDR_OUT_OF_RANGE"
    monkeypatch.setattr(_Loader, "_variable_rows", real)
    Session().load(om)


def _rows(om: Path, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    from gecli.runtime.variable_addresses import AddressBook

    seen: list[Any] = []
    with monkeypatch.context() as patch:
        patch.setattr(AddressBook, "enter", lambda self, rows, attrs, path: seen.extend(rows))
        Session().load(om)
    return seen


def test_a_read_and_a_write_in_no_order_are_a_warning_and_strictly_an_error(tmp_path: Path) -> None:
    om = compiled(tmp_path, "race", ("w", [4]), writer="w")
    session = Session()
    session.load(om)
    (warning,) = session.warnings
    assert (warning.code, warning.kind, warning.node, warning.actual) == ("G4012", "RT_RW_RACE", "add", ["w_read"])
    with pytest.raises(RuntimeFault, match="nothing orders 'add'") as refused:
        Session(strict_order=True).load(om)
    assert refused.value.exit_status == 6
    assert isinstance(refused.value, GecliError)


def test_a_model_that_writes_nothing_has_no_races(tmp_path: Path) -> None:
    session = Session(strict_order=True)
    session.load(compiled(tmp_path, "reader", ("w", [4])))
    assert session.warnings == []


RACE = """
    graph g(%x : f32[4] ND, %d : f32[LENGTH] ND) {
      %w = Variable() {VALUE} : f32[4] ND
      %r = Abs(%w) : f32[4] ND
      %a = AssignAdd(%w, %x) : f32[4] ND ORDER
      %e = Relu(%d) : f32[LENGTH] ND
      return %r, %a, %e
    }
"""


@pytest.mark.parametrize("length", ["?", "3"], ids=["dynamic", "static"])
def test_static_and_dynamic_models_are_asked_for_the_order(tmp_path: Path, length: str) -> None:
    from tests.runtime.test_variables_in_subgraphs import loaded

    text = RACE.replace("LENGTH", length)
    session = Session()
    loaded(text.replace("ORDER", ""), tmp_path, session)
    assert [warning.kind for warning in session.warnings] == ["RT_RW_RACE"]
    with pytest.raises(RuntimeFault, match="nothing orders 'a'") as refused:
        loaded(text.replace("ORDER", ""), tmp_path, Session(strict_order=True))
    assert (refused.value.first.kind, refused.value.exit_status) == ("RT_RW_RACE", 6)
    ordered = Session(strict_order=True)
    loaded(text.replace("ORDER", "after %r"), tmp_path, ordered)
    assert ordered.warnings == []


def test_two_writers_without_an_order_are_a_race(tmp_path: Path) -> None:
    from tests.runtime.test_variables_in_subgraphs import loaded

    two = RACE.replace("LENGTH", "3").replace("%r = Abs(%w)", "%r = AssignSub(%w, %x)")
    with pytest.raises(RuntimeFault) as refused:
        loaded(two.replace("ORDER", ""), tmp_path, Session(strict_order=True))
    assert refused.value.first.kind == "RT_RW_RACE"
    loaded(two.replace("ORDER", "after %r"), tmp_path, Session(strict_order=True))


def test_a_writer_in_a_branch_and_a_reader_beside_it_are_a_race(tmp_path: Path) -> None:
    from tests.runtime.test_variables_in_subgraphs import CHOICE, loaded

    text = CHOICE.replace("TYPE", "If").replace("{condition}", "bool")
    beside = text.replace("return %i", "%k = Abs(%w) : f32[4] ND ORDER\n      return %i, %k", 1)
    with pytest.raises(RuntimeFault) as refused:
        loaded(beside.replace("ORDER", ""), tmp_path, Session(strict_order=True))
    assert (refused.value.first.kind, refused.value.first.node) == ("RT_RW_RACE", "i")
    loaded(beside.replace("ORDER", "after %i"), tmp_path, Session(strict_order=True))
