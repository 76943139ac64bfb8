"""A variable pass plans first: whatever fails before it has its plan leaves graph and session as they were."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from gecli.errors import CompileError
from gecli.ir.graph import Graph
from gecli.ir.text import parse, text
from gecli.passes import recover_trans_roads, variable_op
from gecli.passes.apply_add_output import ApplyAddOutput
from gecli.passes.assign_remove import AssignRemove
from gecli.passes.base import Pass, PassContext
from gecli.passes.recover_trans_roads import RecoverTransRoads
from gecli.passes.split_variable_into_subgraph import SplitVariableIntoSubgraph
from gecli.passes.var_is_initialized import VarIsInitialized
from gecli.passes.variable_op import VariableOp
from gecli.passes.variable_prepare import VariablePrepare
from gecli.passes.variable_ref_delete import VariableRefDelete
from gecli.variables.rebuild_control import RebuildControl
from gecli.variables.trans_road import TransRoad
from gecli.variables.var_manager import VarManager

TWO_WRITTEN_VARIABLES = """
    graph g(%d : f16[4,1,16,16] FRACTAL_Z origin [2,2,3,2] HWCN) {
      %a = Variable() {_init_value={"fill": "0000"}} : f16[2,2,3,2] HWCN
      %at = TransData(%a) {src_format=HWCN, dst_format=FRACTAL_Z} : f16[4,1,16,16] FRACTAL_Z origin [2,2,3,2] HWCN
      %au = AssignAdd(%at, %d) : f16[4,1,16,16] FRACTAL_Z origin [2,2,3,2] HWCN
      %ab = TransData(%au) {src_format=FRACTAL_Z, dst_format=HWCN} : f16[2,2,3,2] HWCN
      %ar = Variable(%ab) {ref_var_src_var_name="a"} : f16[2,2,3,2] HWCN
      %b = Variable() {_init_value={"fill": "00000000"}} : f32[2,2,3,2] HWCN
      %bc = Cast(%b) {dst_type=DT_FLOAT16} : f16[2,2,3,2] HWCN
      %bt = TransData(%bc) {src_format=HWCN, dst_format=FRACTAL_Z} : f16[4,1,16,16] FRACTAL_Z origin [2,2,3,2] HWCN
      %bu = Abs(%bt) : f16[4,1,16,16] FRACTAL_Z origin [2,2,3,2] HWCN
      return %au, %bu after %ar
    }
"""
READER = """
    graph second() {
      %a = Variable() {_init_value={"fill": "0000"}} : f16[2,2,3,2] HWCN
      %x = Abs(%a) : f16[2,2,3,2] HWCN
      %b = Variable() {_init_value={"fill": "00000000"}} : f32[2,2,3,2] HWCN
      %bc = Cast(%b) {dst_type=DT_FLOAT16} : f16[2,2,3,2] HWCN
      %y = Abs(%bc) : f16[2,2,3,2] HWCN
      return %x, %y
    }
"""
# What a pass asks while it plans, and where it tells the session; each may fail.
ASKED: tuple[tuple[Any, str], ...] = (
    (variable_op, "step_of"),
    (variable_op, "can_transfer"),
    (variable_op, "undoes"),
    (variable_op, "stored_form"),
    (recover_trans_roads, "node_of"),
    (TransRoad, "convert_weight"),
    (VarManager, "trans_road"),
    (VarManager, "set_trans_road"),
    (VarManager, "set_changed_graph_id"),
    (VarManager, "renew"),
    (RebuildControl, "permits_change"),
    (RebuildControl, "state_changed"),
)


class _Injected(Exception):
    pass


def accelerated(ctx: PassContext) -> tuple[Pass, Graph]:
    return VariableOp(), parse(TWO_WRITTEN_VARIABLES)


def recovered(ctx: PassContext) -> tuple[Pass, Graph]:
    VariableOp().run(parse(TWO_WRITTEN_VARIABLES), ctx)
    graph = parse(READER)
    VariablePrepare().run(graph, ctx)
    return RecoverTransRoads(), graph


@pytest.mark.parametrize("case", [accelerated, recovered], ids=lambda case: case.__name__)
@pytest.mark.parametrize(("owner", "name"), ASKED, ids=lambda value: value if isinstance(value, str) else "")
def test_a_fault_at_any_point_of_planning_changes_no_graph(
    case: Callable[[PassContext], tuple[Pass, Graph]], owner: Any, name: str, ctx: PassContext
) -> None:
    step, graph = case(ctx)
    untouched = shown(graph)
    for calls in range(1, 100):
        session, changes = ctx.variables.snapshot(), ctx.rebuild.snapshot()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(owner, name, _failing(getattr(owner, name), calls))
            try:
                counts = step.run(graph, ctx)
            except _Injected:
                assert shown(graph) == untouched
                ctx.variables.restore(session)  # the compile of the graph does so
                ctx.rebuild.restore(changes)
                continue
        assert +counts and shown(graph) != untouched  # the pass was run to its end at last
        return
    raise AssertionError(f"{name} was called without end")


def _failing(real: Callable[..., Any], calls: int) -> Callable[..., Any]:
    """`real`, whose call of this number fails."""
    left = calls

    def call(*args: Any, **kwargs: Any) -> Any:
        nonlocal left
        left -= 1
        if not left:
            raise _Injected
        return real(*args, **kwargs)

    return call


def shown(graph: Graph) -> list[str]:
    """All of a graph: its text with subgraphs, and what the text leaves out."""

    def lines() -> Iterator[str]:
        for each in graph.all_graphs():
            yield text(each)
            for node in each.nodes():
                yield repr((node.name, node.attrs, node.input_descs, node.output_descs, node.output_names))

    return list(lines())


REFUSED: tuple[tuple[Pass, str, str], ...] = (
    (
        AssignRemove(),
        """
        graph g(%x : f32[4] ND) {
          %v = Neg(%x) : f32[4] ND
          %w = Variable() : f32[4] ND
          %a = Assign(%w, %v) : f32[4] ND
          %p = PartitionedCall(%a) {subgraphs=["f"]} : f32[4] ND
          return %p
        }
        graph f(%y : f32[4] ND) {
          %u = Variable() : f32[4] ND
          %z = Assign(%u) : f32[4] ND
          return %z
        }
        """,
        "has an input that is not connected",
    ),
    (
        VarIsInitialized(),
        """
        graph g() {
          %w = Variable() : f32[4] ND
          %q = IsVariableInitialized(%w) : bool[] ND
          %p = PartitionedCall(%q) {subgraphs=["f"]} : bool[] ND
          return %p
        }
        graph f(%y : bool[] ND) {
          %q = IsVariableInitialized(%y) : bool[] ND
          return %q
        }
        """,
        "cannot tell whether a variable is initialised",
    ),
    (
        SplitVariableIntoSubgraph(),
        """
        graph g() {
          %w = Variable() : f32[4] ND
          %p = PartitionedCall(%w) {subgraphs=["f"]} : f32[4] ND
          return %p
        }
        graph f(%y : f32[4] ND) {
          %q = PartitionedCall(%y) {subgraphs=["nowhere"]} : f32[4] ND
          return %q
        }
        """,
        "calls a subgraph 'nowhere' that does not exist",
    ),
    (
        VariableRefDelete(),
        """
        graph g(%x : f32[4] ND) {
          %w = Variable() : f32[4] ND
          %a = AssignAdd(%w, %x) : f32[4] ND
          %r = Variable(%a) {ref_var_src_var_name="w"} : f32[4] ND
          %s = Variable(%x) {ref_var_src_var_name="gone"} : f32[4] ND
          return %a after %r, %s
        }
        """,
        "cannot be folded",
    ),
    (
        VariablePrepare(),
        """
        graph g(%c : bool[] ND, %x : f32[4] ND) {
          %w = Variable() : f32[4] ND
          %a = AssignAdd(%w, %x) : f32[4] ND
          %p = StatelessIf(%c, %x) {subgraphs=["f", "f"]} : f32[4] ND
          return %p, %a
        }
        graph f(%y : f32[4] ND) {
          %u = Variable() : f32[4] ND
          %b = AssignAdd(%u, %y) : f32[4] ND
          return %b
        }
        """,
        "StatelessIf 'p' writes variable 'u'",
    ),
    (
        ApplyAddOutput(),
        """
        graph g(%x : f32[4] ND, %l : f32[] ND) {
          %w = Variable() : f32[4] ND
          %m = Variable() : f32[4] ND
          %a = ApplyMomentum(%w, %m, %l, %x, %l) : f32[4] ND
          %b = ApplyMomentum(%w, %x, %l, %x, %l) : f32[4] ND
          return %a, %b
        }
        """,
        "is not a variable",
    ),
)


@pytest.mark.parametrize(("step", "source", "why"), REFUSED, ids=[step.name for step, _, _ in REFUSED])
def test_a_pass_that_refuses_a_graph_has_changed_nothing(step: Pass, source: str, why: str, ctx: PassContext) -> None:
    graph = parse(source)
    untouched = shown(graph)
    with pytest.raises(CompileError, match=why):
        step.run(graph, ctx)
    assert shown(graph) == untouched


def test_a_road_that_conflicts_stops_recovery_before_the_first_variable(ctx: PassContext) -> None:
    VariableOp().run(parse(TWO_WRITTEN_VARIABLES), ctx)
    graph = parse(READER.replace("f32[2,2,3,2]", "f32[3,2,2,2]"))
    untouched = shown(graph)
    with pytest.raises(CompileError, match="declared in another form"):
        RecoverTransRoads().run(graph, ctx)
    assert shown(graph) == untouched
