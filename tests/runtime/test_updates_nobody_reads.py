"""An update of a variable is an effect: it stays whatever becomes of the values that it gives."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from gecli.artifacts.om_file import read_om
from gecli.runtime.session import Session
from tests.runtime.test_variables_in_subgraphs import first, loaded

X = np.array([1, 2, 3, 4], np.float32)
HEAD = """
    graph g(%n : i32[] ND, %c : bool[] ND, %x : f32[4] ND) {
      %w = Variable() {_init_value={"fill": "0000803f"}} : f32[4] ND
      %y = Neg(%x) : f32[4] ND
"""
TAIL = """
      %m = Neg(%{U}) : f32[4] ND
      %k = Abs(%m) : f32[4] ND
      return %y
    }
"""
CALLED = """
    graph more(%i : i32[] ND, %a : f32[4] ND) {
      %z = Const() {value={"fill": "00000000"}} : i32[] ND
      %g = Greater(%i, %z) : bool[] ND
      return %g
    }
    graph body(%j : i32[] ND, %b : f32[4] ND) {
      %o = Const() {value={"fill": "01000000"}} : i32[] ND
      %s = Sub(%j, %o) : i32[] ND
      %t = AssignAdd(%b, %b) : f32[4] ND
      return %s, %t
    }
    graph yes(%d : f32[4] ND, %e : f32[4] ND) {
      %p = AssignAdd(%d, %e) : f32[4] ND
      %q = Neg(%p) : f32[4] ND
      return %q
    }
    graph no(%f : f32[4] ND, %h : f32[4] ND) {
      %r = Add(%f, %h) : f32[4] ND
      return %r
    }
"""
UPDATES = {
    "one": ("%u = AssignAdd(%w, %x) : f32[4] ND", 1 + X),
    "a chain": ("%v = AssignAdd(%w, %x) : f32[4] ND\n %u = AssignAdd(%v, %x) : f32[4] ND", 1 + 2 * X),
    "a branch": ('%u = If(%c, %w, %x) {subgraphs=["yes", "no"]} : f32[4] ND', 1 + X),
    "a loop": (
        '%u = While(%n, %w) {subgraphs=["more", "body"]} : i32[] ND, f32[4] ND',
        np.full(4, 8, np.float32),
    ),
}


@pytest.mark.parametrize("name", UPDATES)
def test_an_update_stays_when_only_unused_nodes_read_it(name: str, tmp_path: Path) -> None:
    update, want = UPDATES[name]
    session = Session()
    tail = TAIL.replace("{U}", "u:1" if name == "a loop" else "u")
    model = loaded(HEAD + update + tail + CALLED, tmp_path, session, "")
    np.testing.assert_array_equal(first(model, {"n": np.int32(3), "c": np.array(True), "x": X}), -X)
    np.testing.assert_array_equal(session.store.value("w"), want)
    names = {node.name for node in read_om(tmp_path / "g.om").model().root.nodes}
    assert "u" in names and not names & {"m", "k"}


def test_what_nobody_reads_and_changes_nothing_goes(tmp_path: Path) -> None:
    model = loaded(HEAD + "%u = Add(%w, %x) : f32[4] ND" + TAIL.replace("{U}", "u"), tmp_path, Session(), "")
    assert "w" not in {variable.name for variable in model.variables}
