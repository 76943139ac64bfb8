"""Variables that begin as a copy of another one (variables.md 10.2)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gecli.compiler import compile_model
from gecli.errors import GecliError, InputError
from gecli.runtime.session import Session

VALUES = [1.0, 2.5, -3.0, 0.1]


def _variable(name: str, dtype: str, attrs: dict[str, Any]) -> dict[str, Any]:
    return {
        "id": name,
        "type": "Variable",
        "attrs": attrs,
        "outputs": [{"dtype": dtype, "shape": [4], "format": "ND"}],
    }


def _compiled(place: Path, dtype: str, twin: dict[str, Any], value: list[float] | None = None) -> Path:
    """A variable w, and one that reads it in its own type."""
    attrs = {} if value is None else {"_init_value": {"tensor": {"data": value}}}
    reader = {"id": "y", "type": "Relu", "attrs": {}, "outputs": [{"dtype": dtype, "shape": [4], "format": "ND"}]}
    source = {"id": "z", "type": "Relu", "attrs": {}, "outputs": [{"dtype": "DT_FLOAT", "shape": [4], "format": "ND"}]}
    document = {
        "gecli_graph": 1,
        "directed": True,
        "multigraph": True,
        "graph": {"name": "twins", "outputs": ["y:0", "z:0"]},
        "nodes": [_variable("w", "DT_FLOAT", attrs), _variable("twin", dtype, twin), reader, source],
        "links": [
            {"source": "twin", "target": "y", "src_out": 0, "dst_in": 0},
            {"source": "w", "target": "z", "src_out": 0, "dst_in": 0},
        ],
    }
    path = place / "twins.json"
    path.write_text(json.dumps(document))
    compile_model(path, place / "twins.om")
    return place / "twins.om"


@pytest.mark.parametrize("dtype", ["DT_FLOAT16", "DT_FLOAT", "DT_INT32"])
def test_a_twin_begins_as_its_source(tmp_path: Path, dtype: str) -> None:
    om = _compiled(tmp_path, dtype, {"_copy_from_var_node": "w", "_copy_value": False}, VALUES)
    session = Session()
    model = session.load(om)
    found = session.store.value("twin")
    np.testing.assert_array_equal(found, np.array(VALUES, np.float32).astype(found.dtype))
    outputs, _ = model.run({})
    np.testing.assert_array_equal(outputs["y:0"], np.maximum(found, 0))


@pytest.mark.parametrize(
    ("attrs", "value"),
    [({"_copy_from_var_node": "w", "_copy_value": True}, VALUES), ({}, VALUES), ({"_copy_from_var_node": "w"}, None)],
    ids=["copied before", "no twin", "no value to copy"],
)
def test_a_variable_that_is_not_filled_has_no_value(
    tmp_path: Path, attrs: dict[str, Any], value: list[float] | None
) -> None:
    model = Session().load(_compiled(tmp_path, "DT_FLOAT16", attrs, value))
    with pytest.raises(GecliError) as error:
        model.run({})
    assert error.value.kind == "RT_VAR_UNINITIALISED"


def test_the_source_of_a_twin_must_be_in_the_model(tmp_path: Path) -> None:
    om = _compiled(tmp_path, "DT_FLOAT16", {"_copy_from_var_node": "gone"}, VALUES)
    with pytest.raises(InputError, match="'gone'") as error:
        Session().load(om)
    assert error.value.kind == "RT_VAR_NOT_FOUND"


def test_a_twin_that_names_the_memory_of_its_source_runs(tmp_path: Path) -> None:
    om = _compiled(tmp_path, "DT_FLOAT16", {"_src_var_name": "w", "_copy_from_var_node": "w"}, VALUES)
    session = Session()
    outputs, _ = session.load(om).run({})
    np.testing.assert_array_equal(outputs["y:0"], np.maximum(np.array(VALUES, np.float16), 0))
    assert session.store.value("twin").dtype == np.float16


@pytest.mark.parametrize("first", ["copied", "given"])
def test_an_initial_value_of_any_model_counts_more_than_the_copy(tmp_path: Path, first: str) -> None:
    given = {"_init_value": {"tensor": {"data": [7.0, 7.0, 7.0, 7.0]}}}
    for name, twin in (("copied", {"_copy_from_var_node": "w"}), ("given", given)):
        (tmp_path / name).mkdir()
        _compiled(tmp_path / name, "DT_FLOAT16", twin, VALUES)
    session = Session()
    for name in (first, "given" if first == "copied" else "copied"):
        session.load(tmp_path / name / "twins.om")
    np.testing.assert_array_equal(session.store.value("twin"), np.full(4, 7, np.float16))


def test_a_twin_keeps_what_was_written_to_it(tmp_path: Path) -> None:
    """A model that is loaded later neither copies again nor begins with an initial value."""
    session = Session()
    om = _compiled(tmp_path, "DT_FLOAT16", {"_copy_from_var_node": "w"}, VALUES)
    session.load(om)
    session.store.mark_written("twin", "node n")
    session.store.set_value("w", np.zeros(4, np.float32))
    session.load(om)
    np.testing.assert_array_equal(session.store.value("twin"), np.array(VALUES, np.float16))
    (tmp_path / "given").mkdir()
    given = {"_init_value": {"tensor": {"data": [7.0, 7.0, 7.0, 7.0]}}}
    session.load(_compiled(tmp_path / "given", "DT_FLOAT16", given, VALUES))
    np.testing.assert_array_equal(session.store.value("twin"), np.array(VALUES, np.float16))
