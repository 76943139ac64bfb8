"""What lies in a variable's memory is read at the place that the graph gives its reader, whatever stands between."""

from __future__ import annotations

import pytest

from gecli.errors import CompileError
from gecli.ir.graph import Graph
from gecli.ir.text import parse, text
from gecli.passes.apply_add_output import ApplyAddOutput
from gecli.passes.base import PassContext
from gecli.passes.constant_folding import ConstantFolding
from gecli.passes.memory_reads import state_reads
from gecli.passes.useless_nodes import IdentityRemove, NoUseReshapeRemove, UnchangedTransposeRemove
from gecli.passes.variable_prepare import VariablePrepare
from gecli.passes.variable_ref_delete import VariableRefDelete


def prepared(lines: str, ctx: PassContext) -> Graph:
    graph = parse(f"graph g(%x : f32[2,2] ND) {{\n{lines}\n}}")
    VariablePrepare().run(graph, ctx)
    before = text(graph)
    assert not VariablePrepare().run(graph, ctx) and text(graph) == before
    return graph


def inputs(graph: Graph, name: str) -> list[str]:
    return [str(port) for port in graph.node(name).inputs]


TWICE = """
    %v = Variable() : f32[2,2] ND
    %u = Assign(%v, %x) : f32[2,2] ND
"""


def test_an_output_that_refers_to_a_variable_with_a_further_write_is_the_variable(ctx: PassContext) -> None:
    graph = prepared(TWICE + "%w = AssignAdd(%v, %x) : f32[2,2] ND after %u\n return %u, %w", ctx)
    assert [str(port) for port in graph.outputs] == ["v:0", "w:0"]


def test_an_output_that_refers_to_the_last_write_stays(ctx: PassContext) -> None:
    graph = prepared(TWICE + "return %u", ctx)
    assert [str(port) for port in graph.outputs] == ["u:0"]


def test_a_chain_of_writers_with_an_output_between_gets_one_ref(ctx: PassContext) -> None:
    graph = prepared(TWICE + "%w = AssignAdd(%u, %x) : f32[2,2] ND\n return %u, %w", ctx)
    assert [str(port) for port in graph.outputs] == ["v:0", "w:0"]
    assert [node.name for node in graph.nodes_of("Variable")] == ["v", "v_TO_w_REF_0"]


def test_a_reader_of_a_reference_behind_a_further_write_reads_the_variable(ctx: PassContext) -> None:
    lines = """
        %w = AssignAdd(%v, %x) : f32[2,2] ND after %u
        %n = Neg(%w) : f32[2,2] ND
        %before = Neg(%u) : f32[2,2] ND
        %behind = Add(%u, %n) : f32[2,2] ND
        return %before, %behind
    """
    graph = prepared(TWICE + lines, ctx)
    assert inputs(graph, "before") == ["u:0"]
    assert inputs(graph, "behind") == ["v:0", "n:0"]
    assert "v_TO_w_REF_0" in {node.name for node in graph.node("behind").control_in}


def test_a_writer_through_a_reference_behind_a_further_write_writes_the_variable(ctx: PassContext) -> None:
    """With a conversion before it, the reference would be a temporary that has the value of the first write."""
    lines = """
        %w = Assign(%v, %x) : f32[2,2] ND after %u
        %a = AssignAdd(%u, %x) : f32[2,2] ND after %w
        %b = AssignAdd(%a, %x) : f32[2,2] ND
        return %b
    """
    graph = prepared(TWICE + lines, ctx)
    assert inputs(graph, "a") == ["v:0", "x:0"]
    assert inputs(graph, "b") == ["a:0", "x:0"]
    assert {"u", "v_TO_w_REF_0"} <= {node.name for node in graph.node("a").control_in}


def test_who_uses_a_reference_that_the_model_has_uses_the_variable(ctx: PassContext) -> None:
    lines = """
        %v = Variable() : f32[2,2] ND
        %i = RefIdentity(%v) : f32[2,2] ND
        %j = RefIdentity(%i) : f32[2,2] ND after %x
        %u = Assign(%i, %x) : f32[2,2] ND
        %r = Neg(%j) : f32[2,2] ND after %u
        return %r
    """
    graph = prepared(lines, ctx)
    assert not graph.nodes_of("RefIdentity")
    assert (inputs(graph, "u"), inputs(graph, "r")) == (["v:0", "x:0"], ["v:0"])
    assert {"x", "v_TO_u_REF_0"} <= {node.name for node in graph.node("r").control_in}


def test_a_reader_behind_a_writer_in_a_chain_has_a_ref_to_wait_for(ctx: PassContext) -> None:
    """GE adds a ref to a writer in the middle of a chain only where a control edge leads on."""
    lines = """
        %n = Neg(%u) : f32[2,2] ND
        %r = Add(%v, %n) : f32[2,2] ND
        %w = AssignAdd(%u, %x) : f32[2,2] ND after %r
        return %r
    """
    graph = prepared(TWICE + lines, ctx)
    assert [node.name for node in graph.node("r").control_in] == ["v_TO_u_REF_0"]


def test_what_a_conversion_read_before_a_write_is_copied_for_readers_behind_it(ctx: PassContext) -> None:
    lines = """
        %v = Variable() : f32[2,2] ND
        %c = Cast(%v) {dst_type=1} : f16[2,2] ND
        %d = Cast(%c) {dst_type=0} : f32[2,2] ND
        %early = Neg(%d) : f32[2,2] ND
        %u = Assign(%v, %x) : f32[2,2] ND after %c, %early
        %late = Neg(%d) : f32[2,2] ND after %u
        %free = Abs(%c) : f16[2,2] ND
        return %early, %late, %free
    """
    graph = prepared(lines, ctx)
    assert inputs(graph, "early") == ["d:0"]
    assert inputs(graph, "late") == ["TensorMove_d_0_TO_late:0"]
    assert inputs(graph, "free") == ["TensorMove_c_0_TO_free:0"]
    for name in ("TensorMove_d_0_TO_late", "TensorMove_c_0_TO_free"):
        assert [node.name for node in graph.node(name).control_out] == ["u"]


def test_nothing_is_added_where_a_graph_writes_each_variable_behind_its_readers(ctx: PassContext) -> None:
    lines = """
        %v = Variable() : f32[2,2] ND
        %c = Cast(%v) {dst_type=1} : f16[2,2] ND
        %d = Cast(%c) {dst_type=0} : f32[2,2] ND
        %u = AssignAdd(%v, %d) : f32[2,2] ND
        return %u
    """
    graph = prepared(lines, ctx)
    assert not state_reads(graph)
    assert [node.name for node in graph.nodes() if node.type in ("TensorMove", "NetOutput")] == ["Node_Output"]


@pytest.mark.parametrize("more", ["", "%w = AssignAdd(%v, %x) : f32[2,2] ND after %i"], ids=["one write", "two"])
@pytest.mark.parametrize(
    ("node", "step"),
    [
        ("Identity(%u)", IdentityRemove()),
        ("Flatten(%u)", NoUseReshapeRemove()),
        ("TransposeD(%u) {perm=[0,1]}", UnchangedTransposeRemove()),
    ],
    ids=["Identity", "Flatten", "TransposeD"],
)
def test_what_copies_a_reference_stays_where_a_further_write_may_come_behind(
    node: str, step: IdentityRemove, more: str, ctx: PassContext
) -> None:
    graph = parse(f"graph g(%x : f32[2,2] ND) {{\n{TWICE}\n %i = {node} : f32[2,2] ND\n{more}\n return %i\n}}")
    step.run(graph, ctx)
    assert (graph.get("i") is not None) == bool(more)


@pytest.mark.parametrize(
    ("node", "step"),
    [
        ("Identity(%u)", IdentityRemove()),
        ("Flatten(%u)", NoUseReshapeRemove()),
        ("TransposeD(%u) {perm=[0,1]}", UnchangedTransposeRemove()),
    ],
    ids=["Identity", "Flatten", "TransposeD"],
)
def test_a_writer_of_a_copy_is_refused_though_the_copy_would_go(
    node: str, step: IdentityRemove, ctx: PassContext
) -> None:
    graph = parse(
        f"graph g(%x : f32[2,2] ND) {{\n{TWICE}\n %i = {node} : f32[2,2] ND\n"
        "%w = AssignAdd(%i, %x) : f32[2,2] ND\n return %w\n}"
    )
    step.run(graph, ctx)
    with pytest.raises(CompileError, match="writes its input 'ref', which is not a variable"):
        ApplyAddOutput().run(graph, ctx)


def test_an_unchanged_transpose_of_a_written_variable_stays(ctx: PassContext) -> None:
    graph = parse("""
        graph g(%x : f32[2,2] ND) {
          %v = Variable() : f32[2,2] ND
          %t = TransposeD(%v) {perm=[0,1]} : f32[2,2] ND
          %u = Assign(%v, %x) : f32[2,2] ND after %t
          %y = Neg(%t) : f32[2,2] ND after %u
          return %y
        }
    """)
    UnchangedTransposeRemove().run(graph, ctx)
    assert inputs(graph, "y") == ["t:0"]


def test_a_folded_constant_waits_for_what_the_folded_node_waited_for(ctx: PassContext) -> None:
    """`b` stores the constant: without the order it could do so before `r` reads."""
    graph = parse("""
        graph g() {
          %v = Variable() : f32[2] ND
          %r = Abs(%v) : f32[2] ND
          %c = Const() {value=[1.0, 2.0]} : f32[2] ND
          %n = Neg(%c) : f32[2] ND after %r
          %m = Neg(%n) : f32[2] ND
          %b = Variable(%m) {ref_var_src_var_name="v"} : f32[2] ND
          return %r after %b
        }
    """)
    ConstantFolding().run(graph, ctx)
    assert [graph.node("m").type, *graph.node("m").control_in] == ["Const", graph.node("r")]


@pytest.mark.parametrize("again", [True, False])
def test_what_is_stored_and_read_elsewhere_is_copied_only_if_the_variable_is_written_again(
    again: bool, ctx: PassContext
) -> None:
    more = "%w = AssignAdd(%v, %x) : f32[2,2] ND after %b" if again else ""
    graph = prepared(
        f"""
        %v = Variable() : f32[2,2] ND
        %n = Neg(%x) : f32[2,2] ND
        %b = Variable(%n) {{ref_var_src_var_name="v"}} : f32[2,2] ND
        {more}
        %y = Abs(%n) : f32[2,2] ND after {"%w" if again else "%b"}
        return %y
        """,
        ctx,
    )
    assert VariableRefDelete().run(graph, ctx)["copies_added"] == int(again)
    assert inputs(graph, "y") == ["n:0"]
