"""ApplyAddOutput and VariablePrepare: every write to a variable becomes visible."""

from __future__ import annotations

from textwrap import dedent
from typing import Any

import pytest

from gecli.errors import CompileError
from gecli.ir.text import parse, text
from gecli.ir.verify import verify
from gecli.passes import variable_prepare, written_inputs
from gecli.passes.apply_add_output import ApplyAddOutput
from gecli.passes.base import PassContext
from gecli.passes.facts import Fact, check
from gecli.passes.variable_prepare import VariablePrepare

MOMENTUM = """
    graph g(%g : f32[4] ND) {
      %w = Variable() : f32[4] ND
      %m = Variable() : f32[4] ND
      %lr = Const() {value=0.5} : f32[] ND
      %mu = Const() {value=0.5} : f32[] ND
      %up = ApplyMomentum(%w, %m, %lr, %g, %mu) : f32[4] ND
      return %up
    }
"""


def shown(source: str) -> str:
    return dedent(source).lstrip("\n")


def test_an_optimizer_gets_an_output_for_each_written_input(ctx: PassContext) -> None:
    graph = parse(MOMENTUM)
    counts = ApplyAddOutput().run(graph, ctx)
    assert text(graph) == shown("""
        graph g(%g : f32[4] ND) {
          %w = Variable() : f32[4] ND
          %m = Variable() : f32[4] ND
          %lr = Const() {value=0.5} : f32[] ND
          %mu = Const() {value=0.5} : f32[] ND
          %up = ApplyMomentum(%w, %m, %lr, %g, %mu) {output_names=["var", "accum"]} : f32[4] ND, f32[4] ND
          return %up
        }
    """)
    assert counts["outputs_added"] == 1
    assert ctx.records == [
        {
            "pass": "ApplyAddOutputPass",
            "event": "outputs_added",
            "node": "up",
            "type": "ApplyMomentum",
            "outputs": ["accum"],
        }
    ]


def test_adding_outputs_twice_changes_nothing(ctx: PassContext) -> None:
    graph = parse(MOMENTUM)
    ApplyAddOutput().run(graph, ctx)
    before = text(graph)
    assert not ApplyAddOutput().run(graph, ctx)
    assert text(graph) == before


def test_an_operator_whose_output_is_no_reference_gets_its_input_marked(ctx: PassContext) -> None:
    graph = parse("""
        graph g() {
          %w = Variable() : i32[] ND
          %n = CountUpTo(%w) {limit=9} : i32[] ND
          return %n
        }
    """)
    assert not ApplyAddOutput().run(graph, ctx)
    desc = graph.node("n").input_descs[0]
    assert desc is not None and desc.attrs["ref_port_index"] == (0,)
    assert len(graph.node("n").output_descs) == 1


@pytest.mark.parametrize(
    ("accum", "said"),
    [("%w", "writes variable 'w' through two inputs"), ("%g", "writes its input 'accum', which is not a variable")],
)
def test_a_write_that_cannot_be_kept_stops_the_compile(ctx: PassContext, accum: str, said: str) -> None:
    graph = parse(MOMENTUM.replace("%w, %m", f"%w, {accum}"))
    before = text(graph)
    with pytest.raises(CompileError, match="up") as caught:
        ApplyAddOutput().run(graph, ctx)
    assert said in caught.value.first.message
    assert text(graph) == before


STORED_BACK = """
    graph g(%x : f32[4] ND) {
      %w = Variable() : f32[4] ND
      %a = Assign(%w, %x) : f32[4] ND
      %c = Cast(%a) {dst_type=DT_FLOAT16} : f16[4] ND
      %y = Cast(%x) {dst_type=DT_FLOAT16} : f16[4] ND
      %b = AssignAdd(%c, %y) : f16[4] ND
      %d = Cast(%b) {dst_type=DT_FLOAT} : f32[4] ND
      %s = Variable(%d) {ref_var_src_var_name="w"} : f32[4] ND
      return %b after %s
    }
"""


def test_a_written_input_may_come_through_conversions_whose_result_is_stored_back(ctx: PassContext) -> None:
    assert not ApplyAddOutput().run(parse(STORED_BACK), ctx)


@pytest.mark.parametrize(
    ("between", "desc"),
    [
        ("Cast(%a) {dst_type=DT_FLOAT16}", "f16[4] ND"),
        ("TransposeD(%a) {perm=[0]}", "f32[4] ND"),
        ("UnsqueezeV2(%a) {axis=[0]}", "f32[1,4] ND"),
        ("TensorMove(%a)", "f32[4] ND"),
    ],
)
def test_a_writer_of_what_a_conversion_of_a_variable_gave_is_refused(ctx: PassContext, between: str, desc: str) -> None:
    graph = parse(f"""
        graph g(%x : f32[4] ND, %y : {desc}) {{
          %w = Variable() : f32[4] ND
          %a = Assign(%w, %x) : f32[4] ND
          %c = {between} : {desc}
          %b = AssignAdd(%c, %y) : {desc}
          return %b
        }}
    """)
    with pytest.raises(CompileError, match="node 'b' writes its input 'ref', which is not a variable") as caught:
        ApplyAddOutput().run(graph, ctx)
    assert caught.value.first.code == "G2018" and "actual 'c' of type" in str(caught.value.first.why)


def test_a_writer_in_a_called_graph_is_not_given_a_conversion_of_a_variable(ctx: PassContext) -> None:
    graph = parse("""
        graph g(%x : f16[4] ND) {
          %w = Variable() : f32[4] ND
          %c = Cast(%w) {dst_type=DT_FLOAT16} : f16[4] ND
          %p = PartitionedCall(%x, %c) {subgraphs=["s"]} : f16[4] ND
          return %p
        }
        graph s(%y : f16[4] ND, %v : f16[4] ND) {
          %b = AssignAdd(%v, %y) : f16[4] ND
          return %b
        }
    """)
    with pytest.raises(CompileError, match="node 'b' writes its input 'ref', which is not a variable") as caught:
        ApplyAddOutput().run(graph, ctx)
    assert "actual 'c' of type Cast" in str(caught.value.first.why)


def test_a_copy_of_something_else_may_be_written(ctx: PassContext) -> None:
    graph = parse("""
        graph g(%x : f32[4] ND) {
          %c = TensorMove(%x) : f32[4] ND
          %b = AssignAdd(%c, %x) : f32[4] ND
          return %b
        }
    """)
    assert not ApplyAddOutput().run(graph, ctx)


def test_an_assign_gets_a_ref_that_comes_before_its_readers(ctx: PassContext) -> None:
    graph = parse("""
        graph g(%x : f32[4] ND) {
          %w = Variable() {_init_value=[1.0, 2.0, 3.0, 4.0]} : f32[4] ND
          %a = Assign(%w, %x) {_stream_label="s"} : f32[4] ND
          %q = Relu(%a) : f32[4] ND
          return %q
        }
    """)
    counts = VariablePrepare().run(graph, ctx)
    assert text(graph) == shown("""
        graph g(%x : f32[4] ND) {
          %w = Variable() {_init_value=[1.0, 2.0, 3.0, 4.0]} : f32[4] ND
          %a = Assign(%w, %x) {_stream_label="s"} : f32[4] ND
          %w_TO_a_REF_0 = Variable(%a) {_stream_label="s", ref_var_src_var_name="w"} : f32[4] ND
          %q = Relu(%a) : f32[4] ND after %w_TO_a_REF_0
          return %q
        }
    """)
    assert counts["refs_added"] == 1


def test_a_writer_without_an_output_for_the_variable_gets_a_ref_identity(ctx: PassContext) -> None:
    graph = parse("""
        graph g() {
          %w = Variable() : i32[] ND
          %n = CountUpTo(%w) {limit=9} : i32[] ND
          return %n
        }
    """)
    ApplyAddOutput().run(graph, ctx)
    VariablePrepare().run(graph, ctx)
    assert text(graph) == shown("""
        graph g() {
          %w = Variable() : i32[] ND
          %RefIdentity_w_0_TO_n_0 = RefIdentity(%w) : i32[] ND
          %n = CountUpTo(%RefIdentity_w_0_TO_n_0) {limit=9} : i32[] ND
          %w_TO_n_REF_0 = Variable(%RefIdentity_w_0_TO_n_0) {ref_var_src_var_name="w"} : i32[] ND after %n
          return %n after %w_TO_n_REF_0
        }
    """)


def test_only_the_last_writer_of_a_chain_gets_a_ref(ctx: PassContext) -> None:
    graph = parse("""
        graph g(%x : f32[4] ND) {
          %w = Variable() : f32[4] ND
          %a = Assign(%w, %x) : f32[4] ND
          %b = AssignAdd(%a, %x) : f32[4] ND
          return %b
        }
    """)
    VariablePrepare().run(graph, ctx)
    assert [node.name for node in graph.nodes_of("Variable")] == ["w", "w_TO_b_REF_0"]


def test_a_writer_in_a_chain_with_a_control_successor_gets_a_ref_too(ctx: PassContext) -> None:
    graph = parse("""
        graph g(%x : f32[4] ND) {
          %w = Variable() : f32[4] ND
          %a = Assign(%w, %x) : f32[4] ND
          %b = AssignAdd(%a, %x) : f32[4] ND
          %q = Relu(%x) : f32[4] ND after %a
          return %b, %q
        }
    """)
    VariablePrepare().run(graph, ctx)
    assert sorted(node.name for node in graph.nodes_of("Variable")) == ["w", "w_TO_a_REF_0", "w_TO_b_REF_0"]
    assert {node.name for node in graph.node("w_TO_a_REF_0").control_out} == {"b", "q"}


def test_a_loop_of_references_is_prepared_once(ctx: PassContext) -> None:
    # As RefMerge and RefNextIteration make it: GE goes round for ever.
    graph = parse("""
        graph g(%x : f32[4] ND) {
          %w = Variable() : f32[4] ND
          %m = AssignAdd(%w, %x) {input_names=["ref", "ref"], output_names=["ref"]} : f32[4] ND
          %n = AssignAdd(%m, %x) : f32[4] ND
          %o = AssignSub(%m, %x) : f32[4] ND
          return %o
        }
    """)
    graph.replace_input(graph.node("m"), 1, graph.node("n").out())
    added = variable_prepare.add_refs(graph, graph.node("w"))
    assert [node.name for node in added] == ["w_TO_o_REF_0"]


def test_two_independent_writers_give_two_refs(ctx: PassContext) -> None:
    graph = parse("""
        graph g(%x : f32[4] ND) {
          %w = Variable() : f32[4] ND
          %a = AssignAdd(%w, %x) : f32[4] ND
          %b = AssignAdd(%w, %x) : f32[4] ND after %a
          return %a, %b
        }
    """)
    assert VariablePrepare().run(graph, ctx)["refs_added"] == 2


def test_a_chain_that_ends_without_an_output_is_prepared_once(ctx: PassContext) -> None:
    graph = parse("""
        graph g(%x : i32[] ND) {
          %w = Variable() : i32[] ND
          %a = Assign(%w, %x) : i32[] ND
          %n = CountUpTo(%a) {limit=9} : i32[] ND
          return %n
        }
    """)
    ApplyAddOutput().run(graph, ctx)
    assert VariablePrepare().run(graph, ctx)["refs_added"] == 1
    before = text(graph)
    assert "RefIdentity_a_0_TO_n_0" in before
    assert not VariablePrepare().run(graph, ctx)
    assert text(graph) == before


def test_each_slot_variable_of_an_optimizer_gets_its_ref(ctx: PassContext) -> None:
    graph = parse(MOMENTUM)
    ApplyAddOutput().run(graph, ctx)
    VariablePrepare().run(graph, ctx)
    refs = {node.name: str(node.inputs[0]) for node in graph.nodes_of("Variable") if node.ref_variable}
    assert refs == {"w_TO_up_REF_0": "up:0", "m_TO_up_REF_1": "up:1"}
    assert not verify(graph) and not check(graph, Fact.VARIABLES_PREPARED)


def test_preparing_twice_changes_nothing_even_where_variables_have_equal_port_names(ctx: PassContext) -> None:
    # GE keys writers by type: one such Variable makes every ref a writer, and a second run prolongs the chain.
    graph = parse("""
        graph g(%x : f32[4] ND) {
          %w = Variable() {input_names=["x"], output_names=["x"]} : f32[4] ND
          %a = Assign(%w, %x) : f32[4] ND
          return %a
        }
    """)
    VariablePrepare().run(graph, ctx)
    before = text(graph)
    assert not VariablePrepare().run(graph, ctx)
    assert text(graph) == before


def test_a_ref_does_not_take_the_name_of_a_node_of_the_user(ctx: PassContext) -> None:
    graph = parse("""
        graph g(%x : f32[4] ND) {
          %w = Variable() : f32[4] ND
          %a = Assign(%w, %x) : f32[4] ND
          %w_TO_a_REF_0 = Relu(%x) : f32[4] ND
          return %a, %w_TO_a_REF_0
        }
    """)
    VariablePrepare().run(graph, ctx)
    assert graph.node("w_TO_a_REF_0_1").ref_variable == "w"


def test_a_merge_behind_a_writer_waits_for_the_ref_through_an_identity(ctx: PassContext) -> None:
    graph = parse("""
        graph g(%x : f32[4] ND) {
          %w = Variable() : f32[4] ND
          %a = Assign(%w, %x) : f32[4] ND
          %q = Merge(%a, %x) : f32[4] ND, i32[] ND
          return %q
        }
    """)
    VariablePrepare().run(graph, ctx)
    identity = graph.node("Identity_a_TO_q_0")
    assert [before.name for before in identity.control_in] == ["w_TO_a_REF_0"]
    assert graph.node("q").inputs[0] == identity.out()
    assert not graph.node("q").control_in


def test_writable_inputs_are_prepared_like_variables(ctx: PassContext) -> None:
    graph = parse("""
        graph g(%x : f32[4] ND) {
          %w = RefData() {index=1} : f32[4] ND
          %a = Assign(%w, %x) : f32[4] ND
          return %a
        }
    """)
    VariablePrepare().run(graph, ctx)
    assert graph.node("w_TO_a_REF_0").type == "RefData"


def test_who_writes_is_asked_once_for_each_reader_of_a_variable(
    ctx: PassContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A NetOutput reads all of hundreds of results; looking at all its inputs for each one is quadratic."""
    count = 300
    lines = [f"%v{k} = Variable() : f32[4] ND\n%a{k} = AssignAdd(%v{k}, %x) : f32[4] ND" for k in range(count)]
    graph = parse(
        "graph g(%x : f32[4] ND) {\n"
        + "\n".join(lines)
        + "\nreturn "
        + ", ".join(f"%a{k}" for k in range(count))
        + "\n}"
    )
    asked = 0
    real = written_inputs.find

    def counted(type_name: str) -> Any:
        nonlocal asked
        asked += 1
        return real(type_name)

    monkeypatch.setattr(written_inputs, "find", counted)
    assert VariablePrepare().run(graph, ctx)["refs_added"] == count
    assert asked <= 10 * count
