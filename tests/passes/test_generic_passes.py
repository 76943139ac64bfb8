"""Shape inference with folding, dead code, common subexpressions, useless nodes: graphs before and after, as text."""

from __future__ import annotations

from collections.abc import Callable
from textwrap import dedent

import numpy as np
import pytest

from gecli.errors import CompileError, GecliError
from gecli.ir.graph import Graph
from gecli.ir.text import parse, text
from gecli.ir.verify import verify
from gecli.layout.platform import platform_of
from gecli.ops.evaluate import evaluate_graph
from gecli.passes.base import CompileSettings, Pass, PassContext
from gecli.passes.common_subexpression import CommonSubexpression
from gecli.passes.constant_folding import ConstantFolding
from gecli.passes.infer_shape import InferShape
from gecli.passes.prune import Prune
from gecli.passes.useless_nodes import IdentityRemove, NoUseReshapeRemove, UnchangedTransposeRemove
from gecli.variables.rebuild_control import RebuildControl
from gecli.variables.var_manager import VarManager


def context(**settings: object) -> PassContext:
    chosen = CompileSettings(**settings)  # type: ignore[arg-type]  # tests give any field
    return PassContext(platform_of("Ascend910B1"), VarManager(), RebuildControl(), chosen)


def after(step: Pass, source: str, **settings: object) -> str:
    graph = parse(dedent(source))
    step.run(graph, context(**settings))
    assert verify(graph) == []
    return text(graph)


def same(actual: str, expected: str) -> None:
    assert actual == dedent(expected).lstrip()


def test_shapes_follow_from_the_inputs() -> None:
    same(
        after(
            InferShape(),
            """
            graph g(%x : f32[2,3] ND, %y : f32[3] ND) {
              %s = Add(%x, %y)
              %r = Relu(%s)
              return %r
            }
            """,
        ),
        """
        graph g(%x : f32[2,3] ND, %y : f32[3] ND) {
          %s = Add(%x, %y) : f32[2,3] ND
          %r = Relu(%s) : f32[2,3] ND
          return %r
        }
        """,
    )


def test_the_shape_of_a_static_tensor_is_folded_and_decides_the_reshape_behind_it() -> None:
    result = parse(
        after(
            InferShape(),
            """
            graph g(%x : f32[2,3,4] ND) {
              %s = Shape(%x) {dtype=3} : i32[3] ND
              %y = Reshape(%x, %s)
              return %y
            }
            """,
        )
    )
    assert result.node("s").type == "Const"
    assert result.node("y").output_descs[0].shape == (2, 3, 4)


def test_inputs_that_do_not_fit_stop_the_compile_and_name_the_node() -> None:
    with pytest.raises(CompileError, match="'s' cannot be inferred") as caught:
        after(InferShape(), "graph g(%x : f32[2] ND, %y : f32[3] ND) { %s = Add(%x, %y)\n return %s }")
    assert caught.value.code == "G2001"
    assert "[2]" in caught.value.first.why


def test_all_unsupported_operators_are_reported_at_once() -> None:
    source = (
        "graph g(%x : f32[2] ND) { %a = Foo(%x) : f32[2]\n %b = Foo(%a) : f32[2]\n %c = Bar(%b) : f32[2]\n return %c }"
    )
    with pytest.raises(GecliError) as caught:
        after(InferShape(), source)
    assert [each.code for each in caught.value.diagnostics] == ["G1005", "E13010", "E13010"]
    assert "2 nodes" in caught.value.diagnostics[2].where


def test_a_declared_shape_that_contradicts_the_inputs_is_refused() -> None:
    with pytest.raises(CompileError, match="declared with another shape"):
        after(InferShape(), "graph g(%x : f32[2,3] ND) { %r = Relu(%x) : f32[2,4] ND\n return %r }")


def test_constants_are_computed() -> None:
    same(
        after(
            ConstantFolding(),
            """
            graph g(%x : f32[2] ND) {
              %a = Const() {value=[1.0, 2.0]} : f32[2] ND
              %b = Const() {value=[3.0, 4.0]} : f32[2] ND
              %s = Add(%a, %b) : f32[2] ND
              %y = Mul(%x, %s) : f32[2] ND
              return %y
            }
            """,
        ),
        """
        graph g(%x : f32[2] ND) {
          %a = Const() {value=[1.0, 2.0]} : f32[2] ND
          %b = Const() {value=[3.0, 4.0]} : f32[2] ND
          %s = Const() {value=[4.0, 6.0]} : f32[2] ND
          %y = Mul(%x, %s) : f32[2] ND
          return %y
        }
        """,
    )


def test_a_fold_never_makes_a_result_that_is_larger_than_its_inputs() -> None:
    result = after(
        ConstantFolding(),
        """
        graph g(%x : f32[1000,1000] ND) {
          %d = Const() {value=[1000, 1000]} : i64[2] ND
          %v = Const() {value=[1.0]} : f32[1] ND
          %f = Fill(%d, %v) : f32[1000,1000] ND
          %y = Add(%x, %f) : f32[1000,1000] ND
          return %y
        }
        """,
    )
    assert "%f = Fill" in result


def test_folding_can_be_switched_off() -> None:
    source = """
        graph g(%x : f32[1] ND) {
          %a = Const() {value=[1.0]} : f32[1] ND
          %s = Neg(%a) : f32[1] ND
          %y = Mul(%x, %s) : f32[1] ND
          return %y
        }
        """
    same(after(ConstantFolding(), source, constant_folding=False), source)


def test_what_reaches_no_output_goes() -> None:
    same(
        after(
            Prune(),
            """
            graph g(%x : f32[2] ND) {
              %dead = Neg(%x) : f32[2] ND
              %deader = Abs(%dead) : f32[2] ND
              %y = Relu(%x) : f32[2] ND
              return %y
            }
            """,
        ),
        """
        graph g(%x : f32[2] ND) {
          %y = Relu(%x) : f32[2] ND
          return %y
        }
        """,
    )


def test_a_writer_of_a_variable_stays_and_comes_before_the_output() -> None:
    same(
        after(
            Prune(),
            """
            graph g(%x : f32[2] ND) {
              %v = Variable() : f32[2] ND
              %set = Assign(%v, %x) : f32[2] ND
              %y = Relu(%x) : f32[2] ND
              return %y
            }
            """,
        ),
        """
        graph g(%x : f32[2] ND) {
          %v = Variable() : f32[2] ND
          %set = Assign(%v, %x) : f32[2] ND
          %y = Relu(%x) : f32[2] ND
          return %y after %set
        }
        """,
    )


def test_equal_nodes_become_one_and_random_ones_do_not() -> None:
    same(
        after(
            CommonSubexpression(),
            """
            graph g(%x : f32[2] ND) {
              %a = Neg(%x) : f32[2] ND
              %b = Neg(%x) : f32[2] ND
              %shape = Const() {value=[2]} : i32[1] ND
              %r = RandomUniform(%shape) {dtype=0} : f32[2] ND
              %q = RandomUniform(%shape) {dtype=0} : f32[2] ND
              %s = Add(%a, %b) : f32[2] ND
              return %s, %r, %q
            }
            """,
        ),
        """
        graph g(%x : f32[2] ND) {
          %a = Neg(%x) : f32[2] ND
          %shape = Const() {value=[2]} : i32[1] ND
          %r = RandomUniform(%shape) {dtype=0} : f32[2] ND
          %q = RandomUniform(%shape) {dtype=0} : f32[2] ND
          %s = Add(%a, %a) : f32[2] ND
          return %s, %r, %q
        }
        """,
    )


def test_nodes_with_other_attributes_stay_apart() -> None:
    source = """
        graph g(%x : f32[2,2] ND) {
          %a = TransposeD(%x) {perm=[1, 0]} : f32[2,2] ND
          %b = TransposeD(%x) {perm=[0, 1]} : f32[2,2] ND
          return %a, %b
        }
        """
    same(after(CommonSubexpression(), source), source)


def test_identity_goes_unless_it_reads_a_variable() -> None:
    same(
        after(
            IdentityRemove(),
            """
            graph g(%x : f32[2] ND) {
              %i = Identity(%x) : f32[2] ND
              %v = Variable() : f32[2] ND
              %old = Identity(%v) : f32[2] ND
              %s = Add(%i, %old) : f32[2] ND
              return %s
            }
            """,
        ),
        """
        graph g(%x : f32[2] ND) {
          %v = Variable() : f32[2] ND
          %old = Identity(%v) : f32[2] ND
          %s = Add(%x, %old) : f32[2] ND
          return %s
        }
        """,
    )


def test_a_reshape_to_the_same_dims_goes() -> None:
    same(
        after(
            NoUseReshapeRemove(),
            """
            graph g(%x : f32[2,3] ND) {
              %s = Const() {value=[2, 3]} : i64[2] ND
              %r = Reshape(%x, %s) : f32[2,3] ND
              %y = Relu(%r) : f32[2,3] ND
              return %y
            }
            """,
        ),
        """
        graph g(%x : f32[2,3] ND) {
          %s = Const() {value=[2, 3]} : i64[2] ND
          %y = Relu(%x) : f32[2,3] ND after %s
          return %y
        }
        """,
    )


def test_a_transpose_that_moves_only_dims_of_one_in_place_goes() -> None:
    result = after(
        UnchangedTransposeRemove(),
        """
        graph g(%x : f32[1,5,1] ND) {
          %t = TransposeD(%x) {perm=[2, 1, 0]} : f32[1,5,1] ND
          %y = Relu(%t) : f32[1,5,1] ND
          return %y
        }
        """,
    )
    assert "TransposeD" not in result


PASSES: list[Callable[[], Pass]] = [
    InferShape, ConstantFolding, Prune, CommonSubexpression, IdentityRemove, NoUseReshapeRemove,
    UnchangedTransposeRemove,
]  # fmt: skip
MIXED = """
    graph g(%x : f32[2,3] ND) {
      %c = Const() {value=[[1.0, -2.0, 3.0]]} : f32[1,3] ND
      %n = Neg(%c) : f32[1,3] ND
      %i = Identity(%x) : f32[2,3] ND
      %a = Add(%i, %n) : f32[2,3] ND
      %b = Add(%x, %n) : f32[2,3] ND
      %d = Abs(%a) : f32[2,3] ND
      %s = Const() {value=[2, 3]} : i64[2] ND
      %r = Reshape(%b, %s) : f32[2,3] ND
      %y = Mul(%a, %r) : f32[2,3] ND
      return %y
    }
"""


@pytest.mark.parametrize("make", PASSES)
def test_a_second_run_changes_nothing(make: Callable[[], Pass]) -> None:
    graph = parse(dedent(MIXED))
    make().run(graph, context())
    once = text(graph)
    make().run(graph, context())
    assert text(graph) == once


@pytest.mark.parametrize("make", PASSES)
def test_the_numbers_stay(make: Callable[[], Pass]) -> None:
    graph = parse(dedent(MIXED))
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    before, _ = evaluate_graph(graph, {"x": x})
    make().run(graph, context())
    result, _ = evaluate_graph(graph, {"x": x})
    np.testing.assert_array_equal(result[0], before[0])


def test_a_copy_of_the_graph_compiles_like_the_graph() -> None:
    graph = parse(dedent(MIXED))
    twin: Graph = graph.copy()
    for make in PASSES:
        make().run(graph, context())
        make().run(twin, context())
    assert text(graph) == text(twin)
