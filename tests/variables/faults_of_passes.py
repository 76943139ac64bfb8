"""GE's behaviour at the hazards of the variable passes and of sessions."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from gecli.compiler import session as compiler_session
from gecli.ir.graph import Graph
from gecli.ir.op_desc import OpDesc, Use
from gecli.ir.tensor_desc import TensorDesc
from gecli.loading import load_graph
from gecli.passes import (
    assign_remove,
    recover_trans_roads,
    split_variable_into_subgraph,
    variable_op,
    variable_prepare,
    variable_ref_delete,
)
from gecli.passes.base import PassContext
from gecli.passes.written_inputs import Write
from gecli.variables.trans_road import TransRoad, TransStep
from gecli.variables.var_manager import VarManager
from gecli.variables.var_resource import VarResource
from tests.compiler import test_sessions
from tests.passes import test_variable_acceleration as acceleration
from tests.passes import test_variable_cleanup as cleanup
from tests.passes import test_variable_pipeline as whole
from tests.passes import test_variable_presence as presence
from tests.passes import test_variable_roads as roads
from tests.passes import test_variable_writes as writes
from tests.variables import test_device_memory as devices
from tests.variables.planted import Fault, with_context

# ------------------------------------------------------------------ passes


def initial_value_keeps_its_form(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(TransRoad, "convert_weight", lambda self, weight: weight)


def levels_decide_about_everything(patch: pytest.MonkeyPatch) -> None:
    for step in (variable_prepare.VariablePrepare, variable_ref_delete.VariableRefDelete):
        patch.setattr(step, "correctness", False)
        patch.setattr(step, "level", "O3")


def every_update_is_stored_at_o1() -> None:
    whole.test_every_update_is_stored_at_every_level(load_graph(whole.CONV_TRAIN).graph, "O1")


def mentioned_is_initialised(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(VarResource, "is_assigned", VarResource.exists)


def no_visited_set(patch: pytest.MonkeyPatch) -> None:
    def add_refs(graph: Graph, variable: OpDesc) -> list[OpDesc]:
        added: list[OpDesc] = []
        stack = list(variable_prepare._writes_behind(graph, variable.out()))
        for _ in range(1000):
            if not stack:
                return added
            write = stack.pop()
            assert write.output is not None
            further = list(variable_prepare._writes_behind(graph, write.node.out(write.output)))
            if not further:
                added += variable_prepare._append_ref(graph, variable, write.node, write.output)
            stack += further
        raise AssertionError("it goes round for ever")

    patch.setattr(variable_prepare, "add_refs", add_refs)


def writers_by_type(patch: pytest.MonkeyPatch) -> None:
    real = variable_prepare.writes_at

    def writes_at(use: Use) -> list[Any]:
        if use.node.type != "Variable":
            return real(use)
        return [Write(0, 0)] if use.slot == 0 else []

    patch.setattr(variable_prepare, "writes_at", writes_at)


def recovery_without_a_mark(patch: pytest.MonkeyPatch) -> None:
    def road_of(node: OpDesc, ctx: PassContext) -> TransRoad | None:
        return ctx.variables.trans_road(node.ref_variable or node.name)

    patch.setattr(recover_trans_roads, "_road_to_recover", road_of)


def road_is_cleared_behind_the_first_layer(patch: pytest.MonkeyPatch) -> None:
    real = variable_op.fuse

    def fuse(group: Any, plan: Any, ctx: PassContext) -> Any:
        road, removed, stop = real(group, plan, ctx)
        return (TransRoad() if stop.reason == "REF_NOT_INVERSE" else road), removed, stop

    patch.setattr(variable_op, "fuse", fuse)


def descriptors_decide_what_undoes(patch: pytest.MonkeyPatch) -> None:
    def write_side(group: Any, plan: Any, layer: list[Use], step: TransStep) -> Any:
        for ref in group.refs:
            back = ref.inputs[0].node
            src, dst = back.inputs[0].desc, back.output_descs[0]
            if not (src.same_storage(step.dst) and dst.same_storage(step.src)):
                return variable_op.Stop("REF_NOT_INVERSE", back.name)
        return None

    patch.setattr(variable_op, "_write_side", write_side)


def outputs_decide_what_is_equal(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(variable_op, "_same_step", lambda a, b: a.dst.same_storage(b.dst))


def half_of_a_mixed_step(patch: pytest.MonkeyPatch) -> None:
    real = variable_op._refusal

    def refusal(step: TransStep, current: TensorDesc, strict_cast: bool) -> str:
        found = real(step, current, strict_cast)
        return "" if found == "MIXED_STEP" else found

    patch.setattr(variable_op, "_refusal", refusal)


class EqualToAll:
    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = None  # type: ignore[assignment]  # nothing keeps it in a set


def perms_are_not_read(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(variable_op, "permutation", lambda src, dst: EqualToAll())


def lossy_casts_pass(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(TransStep, "is_lossy", property(lambda self: False))


def other_nodes_of_the_name_do_not_count(patch: pytest.MonkeyPatch) -> None:
    real = assign_remove._why_not
    patch.setattr(assign_remove, "_why_not", lambda reference, value, names: real(reference, value, Counter()))


def ids_do_not_count(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(assign_remove, "_comes_behind", lambda place, variable, value: True)


def the_last_subgraph_is_marked(patch: pytest.MonkeyPatch) -> None:
    name = next(each for each in vars(variable_ref_delete) if each.startswith("_inner_"))
    real = getattr(variable_ref_delete, name)
    patch.setattr(variable_ref_delete, name, lambda graph, port, ref: real(graph, port, ref)[-1:])


def built_whatever_happens(patch: pytest.MonkeyPatch) -> None:
    real = compiler_session.Session._compile

    def compile(self: Any, member: Any, on_stage: Any) -> Any:
        try:
            return real(self, member, on_stage)
        finally:
            self.rebuild.build_end(member.graph_id)

    patch.setattr(compiler_session.Session, "_compile", compile)


def the_last_subgraph_counts(patch: pytest.MonkeyPatch) -> None:
    real = split_variable_into_subgraph._copy_into

    def copy_into(graph: Graph, variable: OpDesc, use: Use) -> int:
        return [0, *(real(graph.subgraphs[name], variable, use) for name in use.node.subgraphs)][-1]

    patch.setattr(split_variable_into_subgraph, "_copy_into_subgraphs", copy_into)


def roads_are_not_looked_for(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(VarManager, "trans_road", lambda self, name: None)


def dims_are_not_compared(patch: pytest.MonkeyPatch) -> None:
    real = variable_op._refusal

    def refusal(step: TransStep, current: TensorDesc, strict_cast: bool) -> str:
        return real(step, step.src, strict_cast)

    patch.setattr(variable_op, "_refusal", refusal)


def a_ref_without_producer_agrees(patch: pytest.MonkeyPatch) -> None:
    real = variable_op._write_side

    def write_side(group: Any, plan: Any, layer: list[Use], step: TransStep) -> Any:
        found = real(group, plan, layer, step)
        return None if found is not None and found.reason == "REF_NO_PRODUCER" else found

    patch.setattr(variable_op, "_write_side", write_side)


write_side = acceleration.TestWriteSide()
FAULTS = (
    Fault(
        "init value after format change 4.21",
        initial_value_keeps_its_form,
        with_context(roads.test_the_initial_value_takes_the_road_too),
        "recovery",
    ),
    Fault(
        "init value after format change 4.21",
        initial_value_keeps_its_form,
        devices.test_an_initial_value_in_the_declared_form_takes_the_road,
        "first use",
    ),
    Fault("O1 drops correctness passes 7", levels_decide_about_everything, every_update_is_stored_at_o1),
    Fault(
        '"initialised" = mentioned 8.2',
        mentioned_is_initialised,
        with_context(presence.test_a_variable_that_was_only_mentioned_is_told_apart_from_one_with_a_value),
    ),
    Fault("endless ref loop 8.3", no_visited_set, with_context(writes.test_a_loop_of_references_is_prepared_once)),
    Fault(
        "type-keyed ref table 8.3",
        writers_by_type,
        with_context(writes.test_preparing_twice_changes_nothing_even_where_variables_have_equal_port_names),
    ),
    Fault("double recovery 8.4", recovery_without_a_mark, with_context(roads.test_recovering_twice_changes_nothing)),
    Fault(
        "half-fused variable 8.5-1",
        road_is_cleared_behind_the_first_layer,
        with_context(write_side.test_a_second_layer_that_the_refs_do_not_undo_keeps_the_first),
    ),
    Fault(
        'assign removed as "inverse" 8.5-2',
        descriptors_decide_what_undoes,
        with_context(write_side.test_an_operator_with_equal_descriptors_does_not_undo_a_reformat_to_the_same),
    ),
    Fault(
        "lossy cast 8.5-6",
        lossy_casts_pass,
        with_context(acceleration.test_a_lossy_cast_is_fused_with_a_warning_that_names_both_types),
        "warning",
    ),
    Fault(
        "lossy cast 8.5-6",
        lossy_casts_pass,
        with_context(acceleration.test_a_lossy_cast_is_refused_under_strict_variable_cast),
        "strict",
    ),
    Fault(
        "AssignRemove ordering 8.7",
        other_nodes_of_the_name_do_not_count,
        with_context(cleanup.test_an_assign_stays_where_a_subgraph_has_the_variable_too),
        "name",
    ),
    Fault(
        "AssignRemove ordering 8.7",
        ids_do_not_count,
        with_context(cleanup.test_an_assign_stays_where_something_waits_for_the_variable_before_the_value),
        "order",
    ),
    Fault(
        "several subgraphs 8.9",
        the_last_subgraph_is_marked,
        with_context(cleanup.test_every_branch_that_makes_the_value_is_marked),
    ),
    Fault("built flag on failure 9.1", built_whatever_happens, test_sessions.test_a_graph_that_failed_is_not_built),
    Fault(
        "several subgraphs 8.1",
        the_last_subgraph_counts,
        with_context(presence.test_what_a_loop_returns_for_a_variable_is_the_variable),
    ),
    Fault(
        "second road in a pass 8.5-7",
        roads_are_not_looked_for,
        with_context(acceleration.test_a_variable_with_a_road_is_locked_before_the_graph_is_touched),
    ),
    Fault(
        "dims of a first step 8.5-11",
        dims_are_not_compared,
        with_context(acceleration.test_a_reader_of_other_dims_than_the_variable_has_is_refused),
    ),
    Fault(
        "keys of one layer 8.5-4",
        outputs_decide_what_is_equal,
        with_context(
            acceleration.test_a_reader_decides_what_a_variable_takes_over, "two transposes of a square tensor"
        ),
    ),
    Fault(
        "ref without producer 8.5-3",
        a_ref_without_producer_agrees,
        with_context(write_side.test_a_ref_without_producer_is_refused),
    ),
    Fault(
        "mixed step 8.5-5",
        half_of_a_mixed_step,
        with_context(
            acceleration.test_a_reader_decides_what_a_variable_takes_over, "a cast that is also a format change"
        ),
    ),
    Fault(
        "perm 8.5-10",
        perms_are_not_read,
        with_context(
            acceleration.test_a_reader_decides_what_a_variable_takes_over,
            "a transpose with another perm than its formats",
        ),
    ),
)
