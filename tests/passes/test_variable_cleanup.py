"""The passes behind variable acceleration: refs, their order, identities and assigns go."""

from __future__ import annotations

from textwrap import dedent

import pytest

from gecli.errors import CompileError
from gecli.ir.graph import Graph
from gecli.ir.text import parse, text
from gecli.ir.verify import verify
from gecli.passes.apply_add_output import ApplyAddOutput
from gecli.passes.assign_remove import AssignRemove
from gecli.passes.base import Pass, PassContext
from gecli.passes.facts import Fact, check
from gecli.passes.prune import Prune
from gecli.passes.ref_identity_delete import RefIdentityDelete
from gecli.passes.variable_prepare import VariablePrepare
from gecli.passes.variable_ref_delete import VariableRefDelete
from gecli.passes.variable_ref_useless_control_out_delete import VariableRefUselessControlOutDelete


def shown(source: str) -> str:
    return dedent(source).lstrip("\n")


def stored_by(graph: Graph) -> dict[str, str]:
    """Output port -> the variable that it is stored into."""
    return {
        f"{node.name}:{index}": desc.attrs["ref_var_src_var_name"]
        for node in graph.all_nodes()
        for index, desc in enumerate(node.output_descs)
        if "ref_var_src_var_name" in desc.attrs
    }


ASSIGNED = """
    graph g(%x : f32[4] ND) {
      %w = Variable() : f32[4] ND
      %a = Assign(%w, %x) : f32[4] ND
      %q = Relu(%a) : f32[4] ND
      %z = Relu(%x) : f32[4] ND after %a
      return %q, %z
    }
"""


def test_the_order_behind_a_ref_goes_where_its_writer_gives_it(ctx: PassContext) -> None:
    graph = parse(ASSIGNED)
    VariablePrepare().run(graph, ctx)
    graph.add_control(graph.node("w_TO_a_REF_0"), graph.create("NoOp", "other"))
    counts = VariableRefUselessControlOutDelete().run(graph, ctx)
    assert counts["control_edges_removed"] == 2
    assert [node.name for node in graph.node("w_TO_a_REF_0").control_out] == ["other"]
    assert not VariableRefUselessControlOutDelete().run(graph, ctx)


def test_a_ref_without_producer_keeps_its_order(ctx: PassContext) -> None:
    graph = parse(ASSIGNED)
    VariablePrepare().run(graph, ctx)
    graph.disconnect(graph.node("w_TO_a_REF_0"), 0)
    before = text(graph)
    assert not VariableRefUselessControlOutDelete().run(graph, ctx)
    assert text(graph) == before


def test_a_ref_is_folded_into_the_output_that_feeds_it(ctx: PassContext) -> None:
    graph = parse(ASSIGNED)
    VariablePrepare().run(graph, ctx)
    VariableRefUselessControlOutDelete().run(graph, ctx)
    counts = VariableRefDelete().run(graph, ctx)
    assert text(graph) == shown(ASSIGNED)
    assert stored_by(graph) == {"a:0": "w"}
    assert counts["refs_removed"] == 1
    assert not check(graph, Fact.NO_VARIABLE_REFS) and not verify(graph)
    assert not VariableRefDelete().run(graph, ctx)


def test_each_output_of_an_optimizer_names_its_variable(ctx: PassContext) -> None:
    graph = parse("""
        graph g(%g : f32[4] ND) {
          %w = Variable() : f32[4] ND
          %m = Variable() : f32[4] ND
          %v = Variable() : f32[4] ND
          %s = Const() {value=0.5} : f32[] ND
          %up = ApplyAdam(%w, %m, %v, %s, %s, %s, %s, %s, %s, %g) : f32[4] ND
          return %up
        }
    """)
    for step in (ApplyAddOutput(), VariablePrepare(), RefIdentityDelete(), VariableRefDelete()):
        step.run(graph, ctx)
    assert stored_by(graph) == {"up:0": "w", "up:1": "m", "up:2": "v"}


def test_a_writer_in_place_ends_up_on_the_variable_itself(ctx: PassContext) -> None:
    source = """
        graph g() {
          %w = Variable() : i32[] ND
          %n = CountUpTo(%w) {limit=9} : i32[] ND
          return %n
        }
    """
    graph = parse(source)
    for step in (ApplyAddOutput(), VariablePrepare()):
        step.run(graph, ctx)
    assert RefIdentityDelete().run(graph, ctx)["nodes_removed"] == 1
    assert [str(graph.node(name).inputs[0]) for name in ("n", "w_TO_n_REF_0")] == ["w:0", "w:0"]
    assert not RefIdentityDelete().run(graph, ctx)
    VariableRefDelete().run(graph, ctx)
    assert stored_by(graph) == {} and str(graph.node("n").inputs[0]) == "w:0"
    assert len(graph) == 3


def test_every_branch_that_makes_the_value_is_marked(ctx: PassContext) -> None:
    # GE overwrites its pointer in the loop and marks the last branch only.
    graph = parse("""
        graph g(%c : bool[] ND, %x : f32[4] ND) {
          %w = Variable() : f32[4] ND
          %i = If(%c, %x) {subgraphs=["yes", "no"]} : f32[4] ND
          %r = Variable(%i) {ref_var_src_var_name="w"} : f32[4] ND
          return %i after %r
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
    VariableRefDelete().run(graph, ctx)
    assert stored_by(graph) == {"p:0": "w", "q:0": "w"}


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ('%r = Variable(%x) {ref_var_src_var_name="gone"} : f32[4] ND', "no variable 'gone'"),
        ('%r = Variable() {ref_var_src_var_name="w"} : f32[4] ND', "not connected"),
    ],
)
def test_a_ref_that_leads_nowhere_stops_the_compile(ctx: PassContext, line: str, why: str) -> None:
    graph = parse(ASSIGNED.replace("return", f"{line}\nreturn"))
    before = text(graph)
    with pytest.raises(CompileError) as caught:
        VariableRefDelete().run(graph, ctx)
    assert why in caught.value.first.why and text(graph) == before


COMPUTED = """
    graph g(%x : f32[4] ND) {
      %v = Neg(%x) : f32[4] ND
      %w = Variable() : f32[4] ND
      %a = Assign(%w, %v) : f32[4] ND
      %q = Relu(%a) : f32[4] ND
      return %q
    }
"""


def test_a_value_is_computed_directly_into_its_variable(ctx: PassContext) -> None:
    graph = parse(COMPUTED)
    assert AssignRemove().run(graph, ctx)["assigns_removed"] == 1
    assert text(graph) == shown("""
        graph g(%x : f32[4] ND) {
          %v = Neg(%x) : f32[4] ND
          %w = Variable(%v) : f32[4] ND
          %q = Relu(%w) : f32[4] ND after %v
          return %q
        }
    """)
    assert graph.node("v").output_descs[0].attrs["_assign_var_name"] == "w"
    assert not verify(graph)
    assert not AssignRemove().run(graph, ctx)["assigns_removed"]


def test_a_value_that_can_replace_its_input_hands_the_variable_on(ctx: PassContext) -> None:
    graph = parse(COMPUTED.replace("%v = Neg(%x)", "%u = Exp(%x) : f32[4] ND\n%v = Neg(%u)"))
    value = graph.node("v")
    value.output_descs[0] = value.output_descs[0].with_attr("_inplace_support_input_index", 0)
    assert AssignRemove().run(graph, ctx) == {"assigns_removed": 1, "names_handed_on": 1}
    assert graph.node("u").output_descs[0].attrs["_assign_var_name"] == "w"


def test_an_assign_keeps_its_ref_on_the_variable(ctx: PassContext) -> None:
    graph = parse(COMPUTED)
    for step in (VariablePrepare(), VariableRefUselessControlOutDelete(), AssignRemove(), VariableRefDelete()):
        step.run(graph, ctx)
    assert stored_by(graph) == {}  # the variable's own input already stores the value
    assert [node.name for node in graph.nodes()] == ["x", "v", "w", "q", "Node_Output"]


@pytest.mark.parametrize(
    ("why", "old", "new"),
    [
        ("the value is a model input", "%v = Neg(%x) : f32[4] ND\n", ""),
        ("the value is a constant", "%v = Neg(%x)", "%v = Const() {value=[1.0,2.0,3.0,4.0]}"),
        ("the value is another variable", "%v = Neg(%x)", "%v = Variable()"),
        ("others read the value", "return %q", "return %q, %v"),
        ("others read the variable", "return %q", "return %q, %w"),
        ("the variable has a value input", "%w = Variable()", "%w = Variable(%x)"),
        ("the value has other dims", "%v = Neg(%x) : f32[4] ND", "%v = Neg(%x) : f32[2,2] ND"),
        ("the value is a view", "%v = Neg(%x)", "%v = Identity(%x)"),
        ("the value is a reference", "%v = Neg(%x)", "%u = Variable() : f32[4] ND\n%v = AssignAdd(%u, %x)"),
    ],
)
def test_an_assign_stays_where_the_value_cannot_be_placed(ctx: PassContext, why: str, old: str, new: str) -> None:
    source = dedent(COMPUTED).replace(old, new) if "\n" not in old else dedent(COMPUTED).replace("  " + old, "")
    graph = parse(source.replace("%v)", "%x)") if old.endswith("\n") else source)
    before = text(graph)
    assert not AssignRemove().run(graph, ctx)["assigns_removed"]
    assert text(graph) == before


def test_an_assign_stays_where_something_waits_for_the_variable_before_the_value(ctx: PassContext) -> None:
    graph = parse("""
        graph g(%x : f32[4] ND) {
          %w = Variable() : f32[4] ND
          %z = Relu(%x) : f32[4] ND after %w
          %v = Neg(%z) : f32[4] ND
          %a = Assign(%w, %v) : f32[4] ND
          return %a
        }
    """)
    assert not AssignRemove().run(graph, ctx)["assigns_removed"]


def test_an_assign_stays_where_a_subgraph_has_the_variable_too(ctx: PassContext) -> None:
    graph = parse("""
        graph g(%x : f32[4] ND) {
          %v = Neg(%x) : f32[4] ND
          %w = Variable() : f32[4] ND
          %a = Assign(%w, %v) : f32[4] ND
          %p = PartitionedCall(%x) {subgraphs=["inner"]} : f32[4] ND
          return %a, %p
        }
        graph inner(%y : f32[4] ND) {
          %w = Variable() : f32[4] ND
          return %w after %y
        }
    """)
    assert not AssignRemove().run(graph, ctx)["assigns_removed"]


def test_an_assign_without_a_value_stops_the_compile(ctx: PassContext) -> None:
    graph = parse(COMPUTED.replace("Assign(%w, %v)", "Assign(%w)"))
    with pytest.raises(CompileError, match="not connected"):
        AssignRemove().run(graph, ctx)


@pytest.mark.parametrize("step", [AssignRemove(), VariableRefDelete(), RefIdentityDelete()], ids=lambda step: step.name)
def test_graphs_without_variables_are_left_alone(ctx: PassContext, step: Pass) -> None:
    graph = parse("graph g(%x : f32[4] ND) {\n %r = Relu(%x) : f32[4] ND\n return %r\n }")
    before = text(graph)
    assert not +step.run(graph, ctx)
    assert text(graph) == before


@pytest.mark.parametrize("source", ["Const() {value=2.0}", "Variable()", "AssignAdd(%u, %x)"])
def test_what_has_a_place_of_its_own_is_copied_into_the_variable(ctx: PassContext, source: str) -> None:
    graph = parse(f"""
        graph g(%x : f32[] ND) {{
          %u = Variable() : f32[] ND
          %w = Variable() : f32[] ND
          %y = Abs(%w) : f32[] ND
          %v = {source} : f32[] ND
          %r = Variable(%v) {{ref_var_src_var_name="w"}} : f32[] ND
          return %y, %u after %r
        }}
    """)
    assert VariableRefDelete().run(graph, ctx)["copies_added"] == 1
    assert not verify(graph)
    copy = graph.node("TensorMove_v_0_TO_w")
    assert str(copy.inputs[0]) == "v:0" and copy.output_descs[0].attrs["ref_var_src_var_name"] == "w"
    assert graph.node("Node_Output") in copy.control_out
    assert "ref_var_src_var_name" not in graph.node("v").output_descs[0].attrs


def test_a_value_that_is_stored_twice_is_copied_for_the_second_variable(ctx: PassContext) -> None:
    graph = parse("""
        graph g(%x : f32[] ND) {
          %u = Variable() : f32[] ND
          %w = Variable() : f32[] ND
          %v = Neg(%x) : f32[] ND
          %r = Variable(%v) {ref_var_src_var_name="u"} : f32[] ND
          %s = Variable(%v) {ref_var_src_var_name="w"} : f32[] ND
          return %u, %w after %r, %s
        }
    """)
    assert VariableRefDelete().run(graph, ctx) == {"refs_removed": 2, "copies_added": 1}
    assert graph.node("v").output_descs[0].attrs["ref_var_src_var_name"] == "u"
    assert graph.node("TensorMove_v_0_TO_w").output_descs[0].attrs["ref_var_src_var_name"] == "w"


def test_a_write_that_waits_for_a_reader_still_does(ctx: PassContext) -> None:
    graph = parse("""
        graph g(%x : f32[] ND) {
          %w = Variable() : f32[] ND
          %v = Neg(%x) : f32[] ND
          %y = Abs(%w) : f32[] ND
          %r = Variable(%v) {ref_var_src_var_name="w"} : f32[] ND after %y
          return %y after %r
        }
    """)
    VariableRefDelete().run(graph, ctx)
    copy = graph.node("TensorMove_v_0_TO_w")
    assert graph.node("y") in copy.control_in


def test_a_variable_that_is_only_written_is_not_pruned(ctx: PassContext) -> None:
    graph = parse("""
        graph g(%x : f32[] ND) {
          %w = Variable() : f32[] ND
          %v = Neg(%x) : f32[] ND
          %r = Variable(%v) {ref_var_src_var_name="w"} : f32[] ND
          return %x after %r
        }
    """)
    for step in (Prune(), VariableRefDelete(), Prune()):
        step.run(graph, ctx)
    assert "w" in graph and graph.node("v").output_descs[0].attrs["ref_var_src_var_name"] == "w"
    assert graph.node("Node_Output") in graph.node("v").control_out
