"""Where graphs are cut, and what the two parts are."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent

import numpy as np
import pytest

from gecli.ir.graph import Graph
from gecli.ir.text import parse, text
from gecli.jit.cut import cut
from gecli.jit.refusal import refusal
from gecli.jit.slice_file import UnusableSlice, chunks_of, encoded, graph_digest, read_slice, sha256_of
from gecli.jit.slice_options import options_of_slice
from gecli.jit.slices import taken_apart, whole
from gecli.jit.specialise import general, specialised
from gecli.options.resolution import resolve

CHOSEN = """
    graph g(%x : f32[-1,4] ND) {
      %zero = Const() {value=0.0} : f32[] ND
      %r = Relu(%x) : f32[-1,4] ND
      %p = Greater(%x, %zero) : bool[-1,4] ND
      %places = NonZero(%p) {transpose=true} : i64[2,-1] ND
      %n = Neg(%places) : i64[2,-1] ND
      %big = Greater(%r, %zero) : bool[-1,4] ND
      return %n, %r
    }
"""


def graph_of(source: str) -> Graph:
    return parse(dedent(source.replace("-1", "?")))


def parts_of(graph: Graph, *arrays: np.ndarray) -> tuple[frozenset[str], list[str]]:
    found = cut(graph, specialised(graph, arrays).known)
    return found.inside, [node for node, _ in found.breaks]


def test_the_node_whose_shape_depends_on_data_is_the_last_of_its_slice() -> None:
    inside, breaks = parts_of(graph_of(CHOSEN), np.zeros((3, 4), np.float32))
    assert inside == {"x", "zero", "r", "p", "places", "big"}
    assert breaks == ["places"]


def test_each_tensor_that_crosses_the_cut_is_an_output_and_an_input_of_one_number() -> None:
    graph = graph_of(CHOSEN)
    before = text(graph)
    inside, _ = parts_of(graph, np.zeros((3, 4), np.float32))
    parts = taken_apart(graph, inside)
    assert parts.outputs == (("places", 0), ("r", 0))
    assert parts.io_map == ((0, 0), (1, 1))
    assert [str(port) for port in parts.sliced.outputs] == ["places:0", "r:0"]
    assert [node.name for node in parts.remaining.inputs] == ["places_output_0", "r_output_0"]
    assert [node.attrs["index"] for node in parts.remaining.inputs] == [0, 1]
    assert [node.name for node in parts.remaining.nodes() if node.type not in ("Data", "NetOutput")] == ["n"]
    assert text(graph) == before


def test_constants_stand_in_every_part_that_reads_them() -> None:
    graph = graph_of("""
        graph g(%x : f32[-1] ND) {
          %one = Const() {value=1.0} : f32[] ND
          %y = Add(%x, %one) : f32[-1] ND
          %p = NonZero(%y) {transpose=true} : i64[1,-1] ND
          %f = Cast(%p) {dst_type="DT_FLOAT"} : f32[1,-1] ND
          %z = Add(%f, %one) : f32[1,-1] ND
          return %z
        }
    """)
    inside, _ = parts_of(graph, np.zeros(3, np.float32))
    parts = taken_apart(graph, inside)
    assert parts.outputs == (("p", 0),)
    assert parts.sliced.get("one") is not None
    assert parts.remaining.get("one") is not None


def test_a_graph_whose_shapes_all_follow_from_its_inputs_is_one_slice() -> None:
    graph = graph_of("""
        graph g(%x : f32[-1,4] ND) {
          %y = Relu(%x) : f32[-1,4] ND
          return %y
        }
    """)
    assert parts_of(graph, np.zeros((2, 4), np.float32)) == (frozenset(), [])


def test_a_graph_that_writes_variables_is_not_cut() -> None:
    graph = graph_of("""
        graph g(%x : f32[4] ND) {
          %w = Variable() : f32[4] ND
          %places = NonZero(%x) {transpose=true} : i64[1,-1] ND
          %a = Assign(%w, %x) : f32[4] ND
          %n = Neg(%places) : i64[1,-1] ND
          return %n, %a
        }
    """)
    assert cut(graph, {"x", "w", "a"}).is_whole


@pytest.mark.parametrize("type", ["Switch", "Merge", "LoopCond", "GetNext", "IteratorGetNext"])
def test_graphs_of_the_old_control_flow_are_refused(type: str) -> None:
    graph = graph_of("""
        graph g(%x : f32[-1,4] ND) {
          %y = Relu(%x) : f32[-1,4] ND
          return %y
        }
    """)
    assert refusal(graph) == ""
    graph.retype(graph.node("y"), type)
    assert refusal(graph) == f"it holds the {type} node 'y'"


def test_the_value_that_decides_a_shape_becomes_part_of_the_guard() -> None:
    graph = graph_of("""
        graph g(%x : f32[-1] ND, %s : i64[2] ND, %other : i64[2] ND) {
          %r = Reshape(%x, %s) : f32[-1,-1] ND
          %o = Neg(%other) : i64[2] ND
          return %r, %o
        }
    """)
    arrays = [np.zeros(6, np.float32), np.array([2, -1]), np.array([7, 7])]
    found = specialised(graph, arrays)
    assert found.values == (1,)
    document = found.guard.as_json()
    assert [each["dims"] for each in document["inputs"]] == [[6], [2], [2]]
    assert document["checks"] == [["eq", "s0", 2], ["eq", "s1", -1]]
    assert [str(data.output_descs[0]) for data in found.graph.inputs] == [
        "DT_FLOAT ND [6]",
        "DT_INT64 ND [2]",
        "DT_INT64 ND [2]",
    ]


def test_values_that_only_decide_what_is_computed_are_not_looked_at() -> None:
    graph = graph_of("""
        graph g(%x : i64[-1] ND) {
          %p = NonZero(%x) {transpose=true} : i64[1,-1] ND
          return %p
        }
    """)
    assert specialised(graph, [np.array([1, 0, 2])]).values == ()


def test_the_general_version_leaves_free_dims_free_and_asks_whether_they_are_empty() -> None:
    graph = graph_of(CHOSEN)
    copy, guard = general(graph, [np.zeros((3, 4), np.float32)])
    assert str(copy.inputs[0].output_descs[0]) == "DT_FLOAT ND [-1,4]"
    assert guard.as_json()["inputs"][0]["dims"] == [None, 4]
    assert guard.as_json()["checks"] == [["ne", "s0", 0]]
    assert guard.refusal([np.zeros((9, 4), np.float32)], ["ND"]) == ""
    assert guard.refusal([np.zeros((0, 4), np.float32)], ["ND"]) != ""


def written(tmp_path: Path, graph: Graph) -> Path:
    path = tmp_path / "slice_graph.pb"
    path.write_bytes(b"".join(chunks_of(encoded(graph))))
    return path


def test_a_slice_survives_its_file(tmp_path: Path) -> None:
    graph = whole(graph_of(CHOSEN))
    path = written(tmp_path, graph)
    again = read_slice(str(path), graph_digest(graph))
    assert text(again) == text(graph)
    assert sha256_of(encoded(again)) == sha256_of(encoded(graph))


def test_a_file_with_another_graph_is_not_used(tmp_path: Path) -> None:
    graph = whole(graph_of(CHOSEN))
    path = written(tmp_path, graph_of(CHOSEN.replace("value=0.0", "value=1.0")))
    with pytest.raises(UnusableSlice):
        read_slice(str(path), graph_digest(graph))
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(UnusableSlice):
        read_slice(str(path), graph_digest(graph))


def test_what_reads_an_output_of_known_size_stays_though_another_output_of_the_node_is_unknown() -> None:
    graph = graph_of("""
        graph g(%x : f32[-1] ND) {
          %u = Unique(%x) : f32[-1] ND, i32[-1] ND
          %r = Neg(%u:1) : i32[-1] ND
          %s = Abs(%u:0) : f32[-1] ND
          return %r, %s
        }
    """)
    inside, breaks = parts_of(graph, np.zeros(4, np.float32))
    assert inside == {"x", "u", "r"}
    assert breaks == ["u"]


CASE = """
    graph g(%x : f32[-1] ND, %i : i32[] ND) {
      %c = Case(%i, %x) {subgraphs=["one", "two", "three"]} : f32[-1] ND
      %y = Abs(%c) : f32[-1] ND
      return %y
    }
    graph one(%a : f32[-1] ND) {
      %p = Relu(%a) : f32[-1] ND
      return %p
    }
    graph two(%b : f32[-1] ND) {
      %q = Neg(%b) : f32[-1] ND
      return %q
    }
    graph three(%d : f32[-1] ND) {
      %e = Exp(%d) : f32[-1] ND
      return %e
    }
"""


@pytest.mark.parametrize(
    ("index", "branch", "check"),
    [
        (0, "Relu", ["eq", "s0", 0]),
        (1, "Neg", ["eq", "s0", 1]),
        (2, "Exp", ["eq", "s0", 2]),  # the last branch by its number, or by one beyond
        (3, "Exp", ["le", 3, "s0"]),
        (70, "Exp", ["le", 3, "s0"]),
        (-1, "Exp", ["lt", "s0", 0]),
    ],
)
def test_a_case_contributes_a_check_of_its_index(index: int, branch: str, check: list[object]) -> None:
    found = specialised(graph_of(CASE), [np.zeros(4, np.float32), np.array(index, np.int32)])
    document = found.guard.as_json()
    assert document["symbols"] == {"s0": {"source": "cond", "input": 1}}
    assert document["checks"] == [check]
    assert [node.type for node in found.graph.nodes() if node.type in ("Relu", "Neg", "Exp", "Case")] == [branch]


def test_options_of_inputs_are_for_the_first_slice_and_those_of_outputs_for_the_last() -> None:
    typed = {
        "jit": ("true",),
        "dim": ("N=4",),
        "ge.exec.outputReuseMemIndexes": ("0",),
        "ge.socVersion": ("Ascend310P3",),
    }
    options = resolve("compile", typed)
    kept = [
        [options_of_slice(options, is_first=first, is_last=last).is_set(key) for key in typed]
        for first, last in ((True, True), (True, False), (False, False), (False, True))
    ]
    assert kept == [[True] * 4, [True] * 4, [True, False, False, True], [True, False, True, True]]
