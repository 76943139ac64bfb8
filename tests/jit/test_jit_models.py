"""Models cut at data-dependent shapes give what onnxruntime gives: cold, warm in the process, warm in a new one."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from gecli.errors import GecliError
from gecli.jit.loading import jit_model
from gecli.jit.model import JitModel
from gecli.jit.points import ExecutionPoint
from tests.jit.dynamic_models import MODELS, Feeds, assert_equal, expected, floats

SLICES = {
    "chosen_rows": 2, "largest_of_given_count": 1, "largest_of_computed_count": 2, "distinct_values": 2,
    "boxes_that_stay": 2, "two_breaks": 2, "reshaped": 1, "given_branch": 1, "computed_branch": 2, "counted": 1,
    "any_rank": 1, "plain": 1,
}  # fmt: skip


def written(folder: Path, name: str) -> Path:
    path = folder / f"{name}.onnx"
    path.write_bytes(MODELS[name][0]())
    return path


def outputs(model: JitModel, feeds: Feeds) -> Feeds:
    return model.run(feeds)[0]


@pytest.mark.parametrize("name", list(MODELS))
def test_three_classes_of_inputs_give_the_results_of_onnxruntime(name: str, tmp_path: Path) -> None:
    path, classes = written(tmp_path, name), MODELS[name][1]
    model = jit_model(path, cache_dir=str(tmp_path / "c"), cache_create="true")
    for feeds in classes:
        assert_equal(outputs(model, feeds), expected(path, feeds))
    cold = dict(model.counts)
    assert cold["cut"] == len(model.points) == SLICES[name]
    for feeds in classes:
        assert_equal(outputs(model, feeds), expected(path, feeds))
    assert model.counts["compiled"] == cold["compiled"]
    fresh = jit_model(path, cache_dir=str(tmp_path / "c"))
    for feeds in classes:
        assert_equal(outputs(fresh, feeds), expected(path, feeds))
    assert (fresh.counts["cut"], fresh.counts["compiled"]) == (0, 0)
    assert fresh.counts["restored"] == cold["compiled"]
    assert model.jit_warnings == fresh.jit_warnings == []


@pytest.mark.parametrize("name", list(MODELS))
def test_without_a_cache_the_results_are_the_same(name: str, tmp_path: Path) -> None:
    path, classes = written(tmp_path, name), MODELS[name][1]
    model = jit_model(path)
    for feeds in reversed(classes):
        assert_equal(outputs(model, feeds), expected(path, feeds))
    assert sorted(file.name for file in tmp_path.iterdir()) == [path.name]


def test_a_restored_slice_is_compiled_again_for_inputs_that_no_guard_takes(tmp_path: Path) -> None:
    path, classes = written(tmp_path, "two_breaks"), MODELS["two_breaks"][1]
    outputs(jit_model(path, cache_dir=str(tmp_path / "c"), cache_create="true"), classes[0])
    fresh = jit_model(path, cache_dir=str(tmp_path / "c"))
    assert_equal(outputs(fresh, classes[2]), expected(path, classes[2]))
    assert (fresh.counts["cut"], fresh.counts["compiled"]) == (0, 2)


def test_a_slice_that_was_never_reached_is_cut_from_the_restored_rest(tmp_path: Path) -> None:
    path, classes = written(tmp_path, "chosen_rows"), MODELS["chosen_rows"][1]
    first = jit_model(path, cache_dir=str(tmp_path / "c"), cache_create="true")
    first.prepare([classes[0]["x"]])
    assert len(first.points) == 1
    fresh = jit_model(path, cache_dir=str(tmp_path / "c"))
    assert_equal(outputs(fresh, classes[0]), expected(path, classes[0]))
    assert fresh.counts == {"cut": 1, "compiled": 1, "restored": 1, "hits": 1}


@pytest.mark.parametrize("name", ["chosen_rows", "two_breaks", "largest_of_computed_count", "distinct_values"])
def test_nothing_found_is_a_result_too(name: str, tmp_path: Path) -> None:
    path = written(tmp_path, name)
    shape = (0, 3) if name == "distinct_values" else (5,) if name == "largest_of_computed_count" else (5, 4)
    feeds = {"x": np.full(shape, -1 if name != "two_breaks" else 1, np.float32)}
    model = jit_model(path, cache_dir=str(tmp_path / "c"), cache_create="true")
    assert_equal(outputs(model, feeds), expected(path, feeds))
    assert_equal(outputs(jit_model(path, cache_dir=str(tmp_path / "c")), feeds), expected(path, feeds))


def test_of_ten_versions_the_one_with_the_fewest_hits_makes_room_for_a_general_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ExecutionPoint, "changed", lambda self, arrays: ([], set()))  # no size becomes a symbol
    path = written(tmp_path, "plain")
    model = jit_model(path, cache_dir=str(tmp_path / "c"), cache_create="true")
    for count in range(1, 11):
        for _ in range(2 if count != 4 else 1):
            outputs(model, {"x": floats(count, 4)})
    for count in (11, 12, 40):
        feeds = {"x": floats(count, 4)}
        assert_equal(outputs(model, feeds), expected(path, feeds))
    assert model.counts["compiled"] == 11
    guards = [version.guard.as_json()["inputs"][0]["dims"] for version in model.points[0].versions]
    assert sorted(dims[0] or 99 for dims in guards) == [1, 2, 3, 5, 6, 7, 8, 9, 10, 99]
    fresh = jit_model(path, cache_dir=str(tmp_path / "c"))
    for count in (3, 77):
        feeds = {"x": floats(count, 4)}
        assert_equal(outputs(fresh, feeds), expected(path, feeds))
    assert fresh.counts["compiled"] == 0


def test_versions_are_listed_by_their_hits(tmp_path: Path) -> None:
    path = written(tmp_path, "any_rank")
    model = jit_model(path)
    for shape in ((2,), (2, 2), (2, 2), (2, 2), (1, 1, 2)):
        outputs(model, {"x": floats(*shape)})
    assert [version.hits for version in model.points[0].versions] == [3, 1, 1]


def test_what_no_output_needs_is_no_reason_to_cut(tmp_path: Path) -> None:
    path, feeds = written(tmp_path, "chosen_rows"), MODELS["chosen_rows"][1][0]
    for fresh in (False, True):
        model = jit_model(path, cache_dir=str(tmp_path / "c"), cache_create="true", out_nodes="Relu_0:0")
        np.testing.assert_array_equal(next(iter(outputs(model, feeds).values())), np.maximum(feeds["x"], 0))
        assert len(model.points) == 1
        assert model.counts["compiled"] == (not fresh)


def test_a_wrong_input_is_told_before_anything_is_compiled(tmp_path: Path) -> None:
    model = jit_model(written(tmp_path, "plain"))
    for feeds in ({}, {"x": np.zeros((2, 5), np.float32)}, {"x": np.zeros((2, 4), np.float64)}):
        with pytest.raises(GecliError):
            model.run(feeds)
    assert model.counts["compiled"] == 0


def test_the_guard_lies_in_the_sidecar_and_in_the_om(tmp_path: Path) -> None:
    from gecli.artifacts.om_file import read_om

    path, classes = written(tmp_path, "largest_of_given_count"), MODELS["largest_of_given_count"][1]
    outputs(jit_model(path, cache_dir=str(tmp_path / "c"), cache_create="true"), classes[0])
    (om,) = (tmp_path / "c/jit").glob("*.om")
    (sidecar,) = (tmp_path / "c/jit").glob("*.gecli.json")
    guard = json.loads(sidecar.read_text())["guard"]
    assert guard["checks"] == [["eq", "s0", 2]]
    assert guard["symbols"] == {"s0": {"source": "value", "input": 1, "elem": 0}}
    assert json.loads(read_om(om).model().root.attrs["_gecli_guard"]) == guard


def test_outputs_are_named_as_those_of_the_om(tmp_path: Path) -> None:
    from gecli.cli.app import run
    from gecli.ir.text import parse
    from gecli.loading import save_graph
    from gecli.runtime.session import Session

    graph = parse("""
        graph g(%x : f32[2] ND) {
          %y = Neg(%x) : f32[2] ND
          return %y, %x, %y
        }
    """)
    save_graph(graph, tmp_path / "g.json")
    assert run(["compile", str(tmp_path / "g.json"), "-o", str(tmp_path / "g.om")]) == 0
    feeds = {"x": np.array([1, 2], np.float32)}
    compiled = Session().load(tmp_path / "g.om").run(feeds)[0]
    assert_equal(outputs(jit_model(tmp_path / "g.json"), feeds), compiled)
    assert len(compiled) == 3
