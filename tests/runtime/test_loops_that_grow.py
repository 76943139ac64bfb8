"""Loops whose values have another shape in every iteration: nothing is computed from the first one's."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from gecli.ir.tensor_desc import UNKNOWN_RANK
from gecli.ir.text import parse
from gecli.passes.infer_shape import infer_graph
from gecli.runtime.session import Session
from tests.runtime.test_variables_in_subgraphs import first, loaded

GROWING = """
    graph main(%n : i32[] ND, %x : f32[1,3] ND) {
      %l = While(%n, %x) {subgraphs=["cond", "body"]} : i32[] ND, f32[-1,3] ND
      return %l:1
    }
    graph cond(%i : i32[] ND, %a : f32[1,3] ND) {
      %z = Const() {value={"fill": "00000000"}} : i32[] ND
      %g = Greater(%i, %z) : bool[] ND
      return %g
    }
    graph body(%j : i32[] ND, %b : f32[1,3] ND) {
      %o = Const() {value={"fill": "01000000"}} : i32[] ND
      %ax = Const() {value={"fill": "00000000"}} : i32[] ND
      %s = Sub(%j, %o) : i32[] ND
      %size = Size(%b) : i32[] ND
      %f = Cast(%size) {dst_type=0} : f32[] ND
      %bb = Add(%b, %f) : f32[-1,3] ND
      %t = ConcatV2(%bb, %b, %ax) {N=2} : f32[-1,3] ND
      return %s, %t
    }
"""


@pytest.mark.parametrize("count", [0, 1, 2, 4])
@pytest.mark.parametrize("dims", ["1,3", "-1,3"])
def test_a_size_that_the_body_computes_is_that_of_the_iteration(tmp_path: Path, count: int, dims: str) -> None:
    x = np.arange(3, dtype=np.float32).reshape(1, 3)
    model = loaded(GROWING.replace("[1,3]", f"[{dims}]"), tmp_path, Session(max_loop=10))
    got = first(model, {"n": np.array(count, np.int32), "x": x})
    want = x
    for _ in range(count):
        want = np.concatenate([want + want.size, want])
    np.testing.assert_array_equal(got, want)


def nested(depth: int) -> str:
    """Loops in loops; the innermost body gives its value back with one row more."""
    loop = '%l = While(%n, %x) {subgraphs=["cond", "body{}"]} : i32[] ND, f32[-1,3] ND'
    count = '%o = Const() {value={"fill": "01000000"}} : i32[] ND\n %s = Sub(%n, %o) : i32[] ND'
    more = '%a = Const() {value={"fill": "00000000"}} : i32[] ND\n %t = ConcatV2(%x, %x, %a) {N=2} : f32[-1,3] ND'
    graphs = ["graph main(%n : i32[] ND, %x : f32[1,3] ND) {\n" + loop.replace("{}", "0") + "\n return %l:1\n}"]
    graphs.append(
        "graph cond(%i : i32[] ND, %b : f32[1,3] ND) {\n %g = Cast(%i) {dst_type=12} : bool[] ND\n return %g\n}"
    )
    for level in range(depth):
        last = level == depth - 1
        inner = f"{more}\n return %s, %t" if last else loop.replace("{}", str(level + 1)) + "\n return %s, %l:1"
        graphs.append(f"graph body{level}(%n : i32[] ND, %x : f32[1,3] ND) {{\n {count}\n {inner}\n}}")
    return "\n".join(graphs)


def test_loops_in_loops_grow_too(tmp_path: Path) -> None:
    x = np.ones((1, 3), np.float32)
    got = first(loaded(nested(2), tmp_path, Session(max_loop=10)), {"n": np.array(3, np.int32), "x": x})
    assert got.shape == (2 ** (3 + 2 + 1), 3)


def test_the_shapes_of_deeply_nested_loops_are_found_in_time() -> None:
    graph = parse(nested(16))
    counts = Counter[str]()
    infer_graph(graph, counts, folding=True)
    assert graph.outputs[0].desc.shape in ((-1, 3), UNKNOWN_RANK)
    assert counts["nodes_inferred"] < 2_000
