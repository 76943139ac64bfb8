"""A variable that an Assign replaces needs no value before, also when a conversion stands between the two."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gecli.compiler import compile_model
from gecli.errors import GecliError
from gecli.runtime.session import Session

VALUES = [1.0, 2.5, -3.0, 0.125]


def _node(name: str, kind: str, dtype: str, **attrs: Any) -> dict[str, Any]:
    return {"id": name, "type": kind, "attrs": attrs, "outputs": [{"dtype": dtype, "shape": [4], "format": "ND"}]}


def _compiled(place: Path, writer: str, extra_reader: bool) -> Path:
    """w (half) -> Cast to float -> `writer` with a constant -> outputs, and back into w as passes of GE have it.

    The first Cast may have a reader of its own.
    """
    constant = {"dtype": "DT_FLOAT", "shape": [4], "data": VALUES}
    nodes = [
        _node("w", "Variable", "DT_FLOAT16"),
        _node("wide", "Cast", "DT_FLOAT", dst_type=0),
        {"id": "start", "type": "Const", "value": constant},
        _node("set", writer, "DT_FLOAT"),
        _node("narrow", "Cast", "DT_FLOAT16", dst_type=1),
        _node("w_ref", "Variable", "DT_FLOAT16", ref_var_src_var_name="w"),
        _node("late", "Relu", "DT_FLOAT"),
        _node("later", "Relu", "DT_FLOAT"),
    ]
    edges = [("w", "wide", 0), ("wide", "set", 0), ("start", "set", 1), ("set", "late", 0), ("late", "later", 0)]
    edges += [("set", "narrow", 0), ("narrow", "w_ref", 0)]
    outputs = ["set:0", "later:0"]
    if extra_reader:
        nodes.append(_node("old", "Neg", "DT_FLOAT"))
        edges.append(("wide", "old", 0))
        outputs.append("old:0")
    links = [{"source": source, "target": target, "src_out": 0, "dst_in": slot} for source, target, slot in edges]
    graph = {"name": "g", "outputs": outputs}
    document = {"gecli_graph": 1, "directed": True, "multigraph": True, "graph": graph, "nodes": nodes, "links": links}
    (place / "g.json").write_text(json.dumps(document))
    compile_model(place / "g.json", place / "g.om")
    return place / "g.om"


def test_a_conversion_that_only_an_assign_overwrites_reads_nothing(tmp_path: Path) -> None:
    outputs, _ = Session(poison=True).load(_compiled(tmp_path, "Assign", extra_reader=False)).run({})
    np.testing.assert_array_equal(outputs["set:0"], np.array(VALUES, np.float32))
    np.testing.assert_array_equal(outputs["later:0"], np.maximum(np.array(VALUES, np.float32), 0))


@pytest.mark.parametrize(("writer", "extra_reader"), [("Assign", True), ("AssignAdd", False)])
def test_a_conversion_that_is_read_needs_the_value(tmp_path: Path, writer: str, extra_reader: bool) -> None:
    model = Session().load(_compiled(tmp_path, writer, extra_reader))
    with pytest.raises(GecliError) as error:
        model.run({})
    assert error.value.kind == "RT_VAR_UNINITIALISED"
