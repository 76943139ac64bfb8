"""VarIsInitialized and SplitVariableIntoSubgraph: where variables are, and whether they have a value."""

from __future__ import annotations

from textwrap import dedent

import pytest

from gecli.errors import CompileError
from gecli.ir.text import parse, parse_desc, text
from gecli.ir.verify import verify
from gecli.passes.base import PassContext
from gecli.passes.split_variable_into_subgraph import SplitVariableIntoSubgraph
from gecli.passes.var_is_initialized import VarIsInitialized


def shown(source: str) -> str:
    return dedent(source).lstrip("\n")


ASKED = """
    graph g(%x : f32[4] ND) {
      %w = Variable() : f32[4] ND
      %a = Assign(%w, %x) : f32[4] ND
      %b = VarIsInitializedOp(%w) : bool[] ND after %a
      %c = LogicalNot(%b) : bool[] ND
      %d = Relu(%x) : f32[4] ND after %b
      return %c, %d
    }
"""


def test_a_variable_assigned_before_the_question_is_initialised(ctx: PassContext) -> None:
    graph = parse(ASKED)
    counts = VarIsInitialized().run(graph, ctx)
    assert text(graph) == shown("""
        graph g(%x : f32[4] ND) {
          %w = Variable() : f32[4] ND
          %a = Assign(%w, %x) : f32[4] ND
          %b = Const() {value=true} : bool[] ND after %a, %w
          %c = LogicalNot(%b) : bool[] ND
          %d = Relu(%x) : f32[4] ND after %b
          return %c, %d
        }
    """)
    assert counts["answered"] == 1
    assert graph.node("b").attrs["value"].nbytes == 1
    assert not verify(graph)
    assert not VarIsInitialized().run(graph, ctx)


@pytest.mark.parametrize(
    ("change", "answer"),
    [
        (("", ""), True),
        ((" after %a", ""), False),  # on a parallel path
        (("Assign(", "AssignAdd("), False),
        (("%a = Assign(%w, %x)", "%i = Identity(%w) : f32[4] ND\n%a = Assign(%i, %x)"), False),
        (("VarIsInitializedOp", "IsVariableInitialized"), True),
    ],
)
def test_only_an_assign_of_the_variable_surely_before_counts(
    ctx: PassContext, change: tuple[str, str], answer: bool
) -> None:
    graph = parse(ASKED.replace(*change) if change[0] else ASKED)
    VarIsInitialized().run(graph, ctx)
    assert bool(graph.node("b").attrs["value"].numpy()) is answer


def test_a_variable_of_the_session_is_initialised(ctx: PassContext) -> None:
    ctx.variables.assign("w", parse_desc("f32[4] ND"))
    graph = parse(ASKED.replace(" after %a", ""))
    VarIsInitialized().run(graph, ctx)
    assert bool(graph.node("b").attrs["value"].numpy())
    assert ctx.records[0]["reason"] == "in the session"


def a_variable_that_was_only_mentioned_is_told_apart(ctx: PassContext) -> None:
    """Shared with the planted faults."""
    ctx.variables.assign("w", parse_desc("f32[4] ND"))
    for strict, answer, warned in ((False, True, 1), (True, False, 0)):
        ctx.warnings.clear()
        ctx.settings.strict_var_init = strict
        graph = parse(ASKED.replace(" after %a", ""))
        VarIsInitialized().run(graph, ctx)
        assert bool(graph.node("b").attrs["value"].numpy()) is answer
        assert len(ctx.warnings) == warned


def test_a_variable_that_was_only_mentioned_is_told_apart_from_one_with_a_value(ctx: PassContext) -> None:
    a_variable_that_was_only_mentioned_is_told_apart(ctx)
    ctx.variables.resource.set_assigned(["w"])
    ctx.warnings.clear()
    graph = parse(ASKED.replace(" after %a", ""))
    VarIsInitialized().run(graph, ctx)
    assert bool(graph.node("b").attrs["value"].numpy()) and not ctx.warnings


@pytest.mark.parametrize(
    "change", [("%w = Variable()", "%w = VariableV2()"), ("VarIsInitializedOp(%w)", "VarIsInitializedOp(%x)")]
)
def test_a_question_about_anything_else_stops_the_compile(ctx: PassContext, change: tuple[str, str]) -> None:
    with pytest.raises(CompileError) as caught:
        VarIsInitialized().run(parse(ASKED.replace(*change)), ctx)
    assert caught.value.first.node == "b"


def test_an_assign_of_nothing_stops_the_compile(ctx: PassContext) -> None:
    with pytest.raises(CompileError, match="not connected"):
        VarIsInitialized().run(parse(ASKED.replace("Assign(%w, %x)", "Assign(_, %x)")), ctx)


CALLED = """
    graph g(%x : f32[4] ND) {
      %w = Variable() {_init_value=[1.0, 2.0, 3.0, 4.0]} : f32[4] ND
      %p = PartitionedCall(%x, %w) {subgraphs=["f"]} : f32[4] ND
      return %p
    }
    graph f(%y : f32[4] ND, %v : f32[4] ND) {
      %a = AssignAdd(%v, %y) : f32[4] ND
      return %a
    }
"""


def test_a_variable_passed_into_a_subgraph_stands_there_itself(ctx: PassContext) -> None:
    graph = parse(CALLED)
    counts = SplitVariableIntoSubgraph().run(graph, ctx)
    assert text(graph) == shown("""
        graph g(%x : f32[4] ND) {
          %w = Variable() {_init_value=[1.0, 2.0, 3.0, 4.0]} : f32[4] ND
          %p = PartitionedCall(%x, %w) {subgraphs=["f"]} : f32[4] ND
          return %p
        }
        graph f(%y : f32[4] ND, %v : f32[4] ND) {
          %w = Variable() {_init_value=[1.0, 2.0, 3.0, 4.0]} : f32[4] ND after %v
          %a = AssignAdd(%w, %y) : f32[4] ND
          return %a
        }
    """)
    assert counts["variables_copied"] == 1
    assert not verify(graph)
    assert not +SplitVariableIntoSubgraph().run(graph, ctx)


def test_a_variable_reaches_the_innermost_subgraph(ctx: PassContext) -> None:
    graph = parse("""
        graph g(%x : f32[4] ND) {
          %w = Variable() : f32[4] ND
          %p = PartitionedCall(%w) {subgraphs=["f"]} : f32[4] ND
          return %p
        }
        graph f(%y : f32[4] ND) {
          %q = PartitionedCall(%y) {subgraphs=["h"]} : f32[4] ND
          return %q
        }
        graph h(%z : f32[4] ND) {
          %r = Relu(%z) : f32[4] ND
          return %r
        }
    """)
    assert SplitVariableIntoSubgraph().run(graph, ctx)["variables_copied"] == 2
    assert str(graph.subgraphs["h"].node("r").inputs[0]) == "w:0"


def test_a_parent_index_decides_which_argument_a_data_node_stands_for(ctx: PassContext) -> None:
    graph = parse(CALLED)
    sub = graph.subgraphs["f"]
    sub.node("y").attrs["_parent_node_index"] = 1
    sub.node("v").attrs["_parent_node_index"] = 0
    SplitVariableIntoSubgraph().run(graph, ctx)
    assert [str(port) for port in sub.node("a").inputs] == ["v:0", "w:0"]


def test_the_condition_of_an_if_is_no_argument(ctx: PassContext) -> None:
    graph = parse("""
        graph g(%c : bool[] ND) {
          %w = Variable() : f32[4] ND
          %i = If(%c, %w) {subgraphs=["yes", "no"]} : f32[4] ND
          return %i
        }
        graph yes(%y : f32[4] ND) {
          %p = Relu(%y) : f32[4] ND
          return %p
        }
        graph no(%n : f32[4] ND) {
          %q = Neg(%n) : f32[4] ND
          return %q
        }
    """)
    assert SplitVariableIntoSubgraph().run(graph, ctx)["variables_copied"] == 2


def test_what_a_loop_returns_for_a_variable_is_the_variable(ctx: PassContext) -> None:
    # The last subgraph has the variable itself and does not use the argument: GE then forgets the change of the first.
    graph = parse("""
        graph g(%i : i32[] ND) {
          %w = Variable() : i32[] ND
          %l = While(%i, %w) {subgraphs=["cond", "body"]} : i32[] ND, i32[] ND
          %r = Neg(%l:1) : i32[] ND
          return %r
        }
        graph body(%a : i32[] ND, %b : i32[] ND) {
          %w = Variable() : i32[] ND
          %n = AssignAdd(%w, %a) : i32[] ND
          return %a, %n
        }
        graph cond(%c : i32[] ND, %d : i32[] ND) {
          %e = Less(%c, %d) : bool[] ND
          return %e
        }
    """)
    SplitVariableIntoSubgraph().run(graph, ctx)
    assert str(graph.node("r").inputs[0]) == "w:0"
    assert [node.name for node in graph.node("r").control_in] == ["l"]
    assert str(graph.node("l").inputs[1]) == "w:0"


def test_a_loop_that_carries_a_value_begins_with_a_copy_once(ctx: PassContext) -> None:
    graph = parse("""
        graph g(%i : i32[] ND) {
          %w = Variable() : i32[] ND
          %u = Add(%i, %i) : i32[] ND
          %p = Neg(%i) : i32[] ND
          %l = While(%u, %w) {subgraphs=["cond", "body"]} : i32[] ND, i32[] ND after %p
          return %l:1
        }
        graph cond(%c : i32[] ND, %d : i32[] ND) {
          %e = Less(%c, %d) : bool[] ND
          return %e
        }
        graph body(%a : i32[] ND, %b : i32[] ND) {
          %n = Add(%b, %a) : i32[] ND
          return %a, %n
        }
    """)
    counts = SplitVariableIntoSubgraph().run(graph, ctx)
    assert (counts["values_copied"], counts["variables_copied"]) == (1, 0)
    copy = graph.node("TensorMove_w_TO_l_1")
    assert [str(port) for port in graph.node("l").inputs] == ["u:0", "TensorMove_w_TO_l_1:0"]
    # It reads the variable when the loop would.
    assert sorted(node.name for node in copy.control_in) == ["p", "u"]
    assert not +SplitVariableIntoSubgraph().run(graph, ctx)


def test_a_loop_that_passes_the_variable_on_stays_as_it_is(ctx: PassContext) -> None:
    graph = parse("""
        graph g(%i : i32[] ND) {
          %w = Variable() : i32[] ND
          %l = While(%i, %w) {subgraphs=["cond", "body"]} : i32[] ND, i32[] ND
          return %l:1
        }
        graph cond(%c : i32[] ND, %d : i32[] ND) {
          %e = Less(%c, %d) : bool[] ND
          return %e
        }
        graph body(%a : i32[] ND, %b : i32[] ND) {
          %f = If(%a, %b) {subgraphs=["yes", "no"]} : i32[] ND
          return %a, %f
        }
        graph yes(%p : i32[] ND) {
          %n = AssignAdd(%p, %p) : i32[] ND
          return %n
        }
        graph no(%q : i32[] ND) {
          return %q
        }
    """)
    assert not SplitVariableIntoSubgraph().run(graph, ctx)["values_copied"]
    assert [str(port) for port in graph.outputs] == ["w:0"]
    assert not +SplitVariableIntoSubgraph().run(graph, ctx)


def test_another_node_of_the_variables_name_gives_way(ctx: PassContext) -> None:
    graph = parse(CALLED)
    sub = graph.subgraphs["f"]
    sub.rename(sub.node("a"), "w")
    SplitVariableIntoSubgraph().run(graph, ctx)
    assert sub.node("w").type == "Variable" and sub.node("w_1").type == "AssignAdd"


def test_a_call_of_unknown_shape_is_left_for_unfolding(ctx: PassContext) -> None:
    graph = parse(CALLED)
    graph.subgraphs["f"].attrs["_graph_unknown_flag"] = True
    assert not +SplitVariableIntoSubgraph().run(graph, ctx)


def test_a_missing_subgraph_stops_the_compile(ctx: PassContext) -> None:
    graph = parse(CALLED)
    graph.node("p").subgraphs.append("nowhere")
    with pytest.raises(CompileError, match="nowhere"):
        SplitVariableIntoSubgraph().run(graph, ctx)


def test_a_writable_input_of_one_batch_size_takes_the_dims_of_its_branch(ctx: PassContext) -> None:
    graph = parse("""
        graph g(%i : i32[] ND) {
          %r = RefData() {index=1} : f32[8,4] ND
          %c = Case(%i, %r) {subgraphs=["one"], "mbatch-inserted-node"=true} : f32[2,4] ND
          return %c
        }
        graph one(%d : f32[2,4] ND) {
          %a = Relu(%d) : f32[2,4] ND
          return %a
        }
    """)
    SplitVariableIntoSubgraph().run(graph, ctx)
    assert graph.subgraphs["one"].node("r").output_descs[0].shape == (2, 4)
