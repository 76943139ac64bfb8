"""Variables of models with free dims, which run node by node."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from gecli.runtime.session import Session
from tests.runtime.test_variables_in_subgraphs import TWO, X, loaded

FREE = np.ones(3, np.float32)


@pytest.mark.parametrize("length", ["?", "3"], ids=["dynamic", "static"])
def test_a_value_is_computed_into_its_variable(tmp_path: Path, length: str) -> None:
    text = """
        graph g(%x : f32[4] ND, %d : f32[?] ND) {
          %w = Variable() {VALUE} : f32[4] ND
          %v = Neg(%x) : f32[4] ND
          %a = Assign(%w, %v) : f32[4] ND
          %q = Abs(%a) : f32[4] ND
          %e = Relu(%d) : f32[?] ND
          return %q, %e
        }
    """
    session = Session()
    model = loaded(text.replace("?", length), tmp_path, session, "")
    outputs = model.run({"x": X, "d": FREE})[0]
    np.testing.assert_array_equal(outputs["q:0"], X)
    np.testing.assert_array_equal(session.store.value("w"), -X)
    assert session.store["w"].initialised_by


@pytest.mark.parametrize("length", ["?", "3"], ids=["dynamic", "static"])
def test_each_reader_sees_what_the_variable_holds_then(tmp_path: Path, length: str) -> None:
    text = """
        graph g(%x : f32[4] ND, %d : f32[?] ND) {
          %w = Variable() {VALUE} : f32[4] ND
          %before = Abs(%w) : f32[4] ND
          %a = Assign(%w, %x) : f32[4] ND after %before
          %between = Abs(%w) : f32[4] ND after %a
          %c = AssignAdd(%a, %x) : f32[4] ND after %between
          %behind = Abs(%w) : f32[4] ND after %c
          %e = Relu(%d) : f32[?] ND
          return %before, %between, %behind, %e
        }
    """
    session = Session()
    model = loaded(text.replace("?", length), tmp_path, session)
    for first in (TWO, 2 * X):
        outputs = model.run({"x": X, "d": FREE})[0]
        np.testing.assert_array_equal(outputs["before:0"], first)
        np.testing.assert_array_equal(outputs["between:0"], X)
        np.testing.assert_array_equal(outputs["behind:0"], 2 * X)
        np.testing.assert_array_equal(session.store.value("w"), 2 * X)
    assert session.warnings == []
