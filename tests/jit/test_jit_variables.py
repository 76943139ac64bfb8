"""Variables and slices: what is only read stands in every slice, what is written keeps a graph whole."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import numpy as np
import pytest

from gecli.ir.graph import Graph
from gecli.ir.text import parse
from gecli.ir.weight import Weight
from gecli.jit.loading import jit_model, load_jit_model
from gecli.loading import save_graph
from gecli.options.resolution import resolve
from gecli.runtime.session import Session

W = np.array([1, 2, 3, 4], np.float32)
READ = """
    graph g(%x : f32[?,4] ND) {
      %w = Variable() : f32[4] ND
      %m = Mul(%x, %w) : f32[?,4] ND
      %places = NonZero(%m) : i64[?,2] ND
      %c = Cast(%places) {dst_type="DT_FLOAT"} : f32[?,2] ND
      %d = ConcatD(%c, %c) {concat_dim=1, N=2} : f32[?,4] ND
      %y = Mul(%d, %w) : f32[?,4] ND
      return %y
    }
"""
WRITTEN = """
    graph g(%x : f32[4] ND) {
      %w = Variable() : f32[4] ND
      %s = Add(%w, %x) : f32[4] ND
      %a = Assign(%w, %s) : f32[4] ND
      %places = NonZero(%a) : i64[?,1] ND
      %n = Neg(%places) : i64[?,1] ND
      return %n, %a
    }
"""


def written(tmp_path: Path, text: str) -> Path:
    graph: Graph = parse(dedent(text))
    graph.node("w").set_init_value(Weight.of(W))
    path = tmp_path / "g.json"
    save_graph(graph, path)
    return path


def expected(x: np.ndarray) -> np.ndarray:
    places = np.argwhere(x * W).astype(np.float32)
    return np.concatenate([places, places], axis=1) * W


def test_a_variable_that_is_read_on_both_sides_of_a_cut_is_one(tmp_path: Path) -> None:
    path = written(tmp_path, READ)
    x = np.array([[0, 1, 0, 2], [3, 0, 0, 0]], np.float32)
    for fresh in (False, True):
        model = jit_model(path, cache_dir=str(tmp_path / "c"), cache_create="true")
        outputs, _ = model.run({"x": x})
        np.testing.assert_array_equal(next(iter(outputs.values())), expected(x))
        assert len(model.points) == 2
        assert model.counts["compiled"] == (0 if fresh else 2)
        assert model.store.names() == ["w"]
        assert model.jit_warnings == []


def test_a_variable_that_the_user_sets_is_read_by_every_slice(tmp_path: Path) -> None:
    path = written(tmp_path, READ)
    model = jit_model(path)
    x = np.ones((1, 4), np.float32)
    model.run({"x": x})
    model.store.set_value("w", W * 0 + 5, by="the test")
    outputs, _ = model.run({"x": x})
    np.testing.assert_array_equal(next(iter(outputs.values()))[:, 1], 5 * np.arange(4))


def test_a_graph_that_writes_a_variable_is_one_slice_and_counts_on(tmp_path: Path) -> None:
    path = written(tmp_path, WRITTEN)
    model = jit_model(path, cache_dir=str(tmp_path / "c"), cache_create="true")
    for step in (1, 2, 3):
        outputs, _ = model.run({"x": np.ones(4, np.float32)})
        np.testing.assert_array_equal(list(outputs.values())[1], W + step)
    assert len(model.points) == 1
    assert model.written == ["w"]


@pytest.mark.parametrize("count", [1, 3])
def test_two_models_of_a_session_share_a_variable(count: int, tmp_path: Path) -> None:
    session, options = Session(), resolve("compile", {"jit": ("true",)})
    writer = load_jit_model(str(written(tmp_path, WRITTEN)), options, session).model
    (tmp_path / "other").mkdir()
    reader = load_jit_model(str(written(tmp_path / "other", READ)), options, session).model
    for _ in range(count):
        writer.run({"x": np.ones(4, np.float32)})
    outputs, _ = reader.run({"x": np.ones((1, 4), np.float32)})
    np.testing.assert_array_equal(next(iter(outputs.values()))[:, 1], (W[1] + count) * np.arange(4))
