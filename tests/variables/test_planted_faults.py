"""Every hazard of variables.md 14, put back into the product, is caught by a test of the suite.

A row names the hazard, plants GE's behaviour, and names the very test that states gecli's: the test passes as it is
and fails with the fault.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import pytest
from _pytest.outcomes import Failed

from gecli.compiler import session as compiler_session
from gecli.errors import CompileError, GecliError
from gecli.ir.graph import Graph, GraphError
from gecli.ir.op_desc import OpDesc, Use
from gecli.ir.tensor_desc import TensorDesc
from gecli.layout.platform import platform_of
from gecli.loading import load_graph
from gecli.passes import (
    assign_remove,
    recover_trans_roads,
    variable_op,
    variable_prepare,
    variable_ref_delete,
)
from gecli.passes.base import PassContext
from gecli.passes.written_inputs import Write
from gecli.runtime import record_checks
from gecli.variables import assignment, data_movement, interval_map
from gecli.variables.constant_index import ConstantIndex
from gecli.variables.device_table import DeviceTables, LoadState
from gecli.variables.interval_map import IntervalMap
from gecli.variables.limits import MemoryLimits
from gecli.variables.mem_resource import HbmResource, MemResource
from gecli.variables.rebuild_control import RebuildControl
from gecli.variables.sizes import GUARD_BYTES, raw_bytes
from gecli.variables.trans_road import TransRoad, TransStep
from gecli.variables.var_key import VarKey
from gecli.variables.var_manager import VarManager
from gecli.variables.var_memory import VariableMemory
from gecli.variables.var_resource import Block, VarAddress, VarResource
from tests.compiler import test_sessions
from tests.passes import test_variable_acceleration as acceleration
from tests.passes import test_variable_cleanup as cleanup
from tests.passes import test_variable_pipeline as whole
from tests.passes import test_variable_presence as presence
from tests.passes import test_variable_roads as roads
from tests.passes import test_variable_writes as writes
from tests.runtime import test_shared_host_memory as shared_memory
from tests.variables import test_data_movement as movement
from tests.variables import test_device_memory as devices
from tests.variables import test_var_assignment as placing
from tests.variables import test_var_manager_state as state
from tests.variables import test_var_session as tables
from tests.wire import test_var_records as records

Plant = Callable[[pytest.MonkeyPatch], None]


class Fault(NamedTuple):
    hazard: str  # as the index of section 14 calls it, with its section
    plant: Plant
    law: Callable[[], object]
    what: str = ""  # tells two faults of one hazard apart


def context() -> PassContext:
    return PassContext(platform_of("Ascend910B1"), VarManager(), RebuildControl())


def with_context(test: Callable[..., object], *rest: object) -> Callable[[], object]:
    return lambda: test(context(), *rest)


# ------------------------------------------------------------------ keys, addresses, descriptors


def text_keys(patch: pytest.MonkeyPatch) -> None:
    def find(self: VarResource, name: str, desc: TensorDesc) -> VarAddress | None:
        text = self.key(name, desc).to_ge()
        return next((entry for key, entry in self.addresses.items() if key.to_ge() == text), None)

    patch.setattr(VarResource, "find", find)
    patch.setattr(VarResource, "exists_as", lambda self, name, desc: find(self, name, desc) is not None)


def current_size_decides(patch: pytest.MonkeyPatch) -> None:
    """GE's AssignVarMem: the current size is remembered, and memory is taken before the key is looked at."""

    def assign(
        self: VarResource,
        name: str,
        desc: TensorDesc,
        memory: MemResource,
        node: OpDesc | None = None,
        where: str = "",
    ) -> int:
        key = self.key(name, desc)
        current = self.current_descs.get(key.name)
        entry = None if current is None else self.addresses.get(VarKey.of(key.name, current))
        if entry is None or current is None or desc.size_bytes > current.size_bytes:
            address = self._allocate(key.name, desc, memory, node)
            if key in self.addresses:
                raise CompileError("G2010", "conflict", kind="VAR_KEY_CONFLICT")
        else:
            address = entry.address
        self._enter(key, desc, address, node)
        self._make_current(key.name, desc)
        return address

    patch.setattr(VarResource, "assign", assign)


def any_file_constant_length(patch: pytest.MonkeyPatch) -> None:
    def same(self: VarResource, name: str, desc: TensorDesc, node: OpDesc) -> int | None:
        place = f"{node.attrs.get('location')}:{node.attrs.get('offset', 0)}"
        key = self.file_constants.get(place)
        return None if key is None else self.addresses[key].address

    patch.setattr(VarResource, "_same_file_constant", same)


def any_block_of_equal_bytes(patch: pytest.MonkeyPatch) -> None:
    real = ConstantIndex.find
    patch.setattr(ConstantIndex, "find", lambda self, node, need_bytes: real(self, node, 0))


def overlapping_ranges(patch: pytest.MonkeyPatch) -> None:
    from bisect import bisect_left

    def place_of(self: IntervalMap[Any], start: int, end: int) -> int:
        return bisect_left(self._starts, start)

    patch.setattr(interval_map.IntervalMap, "place_of", place_of)


def placeholder_entered_first(patch: pytest.MonkeyPatch) -> None:
    real = VarResource._allocate

    def allocate(self: VarResource, name: str, desc: TensorDesc, memory: MemResource, node: OpDesc | None) -> int:
        self.addresses[VarKey.of(name, desc)] = VarAddress(desc, self.logic_base, 0)
        return real(self, name, desc, memory, node)

    patch.setattr(VarResource, "_allocate", allocate)


def shape_is_not_looked_at(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(VarResource, "require_fits", lambda self, name, desc, where="": None)


def renewal_in_two_steps(patch: pytest.MonkeyPatch) -> None:
    real = VarResource.renew

    def renew(self: VarResource, name: str, desc: TensorDesc, *, with_shape: bool = False) -> None:
        current = self.current_desc(name)
        try:
            real(self, name, desc, with_shape=with_shape)
        except GecliError:
            if current is not None:
                self.current_descs[self.base_name(name)] = replace(current, format=desc.format)
            raise

    patch.setattr(VarResource, "renew", renew)


def second_road_is_dropped(patch: pytest.MonkeyPatch) -> None:
    def set_road(self: VarResource, name: str, road: TransRoad) -> None:
        self.roads.setdefault(self.base_name(name), road)

    patch.setattr(VarResource, "set_trans_road", set_road)


def counter_stays_at_a_restore(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(HbmResource, "reserve", lambda self, offset, size: None)


def destroy_keeps_the_tables(patch: pytest.MonkeyPatch) -> None:
    def destroy(self: VarManager) -> None:
        self.hbm = HbmResource()
        self.is_initialised = False
        self.version, self.device_id = 2, 0

    patch.setattr(VarManager, "destroy", destroy)


def limits_are_looked_at_by_the_loader(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(VarManager, "check_limits", lambda self, graph_name: None)


def limits_are_only_logged(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(MemoryLimits, "of", staticmethod(lambda graph, var: MemoryLimits(graph, var, graph + var)))


def shared_base_is_ignored(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(record_checks, "_shared_base", lambda attrs: iter(()))


def snapshots_are_believed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(TransRoad, "broken_at", lambda self: None)


# ------------------------------------------------------------------ devices and data


def external_starts_are_enough(patch: pytest.MonkeyPatch) -> None:
    real = VariableMemory._require_inside

    def require(self: VariableMemory, block: Block, size: int) -> None:
        if block.address - self.manager.logic_base >= size:
            real(self, block, size)

    patch.setattr(VariableMemory, "_require_inside", require)


def initial_value_at_the_inner_offset(patch: pytest.MonkeyPatch) -> None:
    real = VariableMemory.address_of

    def address_of(self: VariableMemory, address: int, device_id: int = 0, **more: Any) -> int:
        found = self.manager.resource.resolve(address)
        assert found is not None
        row = self.tables.update(device_id).rows[found[0].address]
        first = not row.device_address
        target = real(self, address, device_id, **more)
        if first and found[1] and row.owner is not None:
            data = self._initial_bytes(found[0])
            row.owner.write(row.device_address + GUARD_BYTES, bytes(len(data)))
            row.owner.write(target, data)
        return target

    patch.setattr(VariableMemory, "address_of", address_of)


def loaded_before_the_copy(patch: pytest.MonkeyPatch) -> None:
    def load_once(
        self: DeviceTables, node: OpDesc, output_offset: int, device_id: int, load: Callable[[], None]
    ) -> bool:
        row = self.update(device_id).rows[output_offset]
        if row.load_state is LoadState.LOADED:
            return False
        row.load_state = LoadState.LOADED
        load()
        return True

    patch.setattr(DeviceTables, "load_once", load_once)


def sub_byte_widths_count_as_bytes(patch: pytest.MonkeyPatch) -> None:
    def width(desc: TensorDesc) -> int:
        bits = desc.dtype.bits or 0
        return desc.elements * (1000 + bits) if bits < 8 else raw_bytes(desc)

    patch.setattr(data_movement, "raw_bytes", width)


def equal_types_give_no_buffer(patch: pytest.MonkeyPatch) -> None:
    real = data_movement._replayed
    patch.setattr(data_movement, "_replayed", lambda road, data, desc: real(road, data, desc) if road else b"")


def writes_behind_any_input(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(assignment, "_continues", lambda use, types: use.node.type in types)


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

    def fuse(group: Any, ctx: PassContext) -> Any:
        road, removed, stop = real(group, ctx)
        return (TransRoad() if stop.reason == "REF_NOT_INVERSE" else road), removed, stop

    patch.setattr(variable_op, "fuse", fuse)


def descriptors_decide_what_undoes(patch: pytest.MonkeyPatch) -> None:
    def write_side(group: Any, layer: list[Use], step: TransStep) -> Any:
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
    real = assign_remove._is_removable
    patch.setattr(assign_remove, "_is_removable", lambda graph, assign, names: real(graph, assign, Counter()))


def ids_do_not_count(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(assign_remove, "_comes_behind", lambda graph, variable, value: True)


def the_last_subgraph_is_marked(patch: pytest.MonkeyPatch) -> None:
    real = variable_ref_delete._inner_outputs
    patch.setattr(variable_ref_delete, "_inner_outputs", lambda graph, port, ref: real(graph, port, ref)[-1:])


def built_whatever_happens(patch: pytest.MonkeyPatch) -> None:
    real = compiler_session.Session._compile

    def compile(self: Any, member: Any, on_stage: Any) -> Any:
        try:
            return real(self, member, on_stage)
        finally:
            self.rebuild.build_end(member.graph_id)

    patch.setattr(compiler_session.Session, "_compile", compile)


write_side = acceleration.TestWriteSide()
FAULTS = (
    Fault("ambiguous key 3.4", text_keys, placing.test_two_variables_that_ge_cannot_tell_apart_have_two_addresses),
    Fault(
        "same-key growth leak 4.3d",
        current_size_decides,
        placing.test_a_second_graph_with_a_larger_shape_is_refused_and_names_both_graphs,
    ),
    Fault(
        "shrink then grow 4.3e",
        current_size_decides,
        placing.test_returning_to_an_earlier_form_makes_it_current_again_without_memory,
    ),
    Fault(
        "shrink then grow 4.3e",
        current_size_decides,
        placing.test_block_capacity_and_not_the_current_size_decides_about_reuse,
        "capacity",
    ),
    Fault(
        "file-constant length 4.4",
        any_file_constant_length,
        placing.test_file_constants_at_one_place_share_a_block_and_must_agree_on_the_size,
    ),
    Fault(
        "capacity of content reuse 4.4",
        any_block_of_equal_bytes,
        placing.test_equal_bytes_are_not_shared_when_the_block_is_too_small,
    ),
    Fault("overlap on save 4.6", overlapping_ranges, tables.test_assigning_into_restored_memory_is_refused),
    Fault(
        "placeholder half-registered 4.7",
        placeholder_entered_first,
        placing.test_a_bad_placeholder_leaves_nothing_behind_in_the_manager,
    ),
    Fault(
        "shape not in IsVarExist 4.9",
        shape_is_not_looked_at,
        placing.test_a_second_graph_with_a_larger_shape_is_refused_and_names_both_graphs,
    ),
    Fault("partial RenewCurVarDesc 4.10", renewal_in_two_steps, tables.test_a_renewal_that_fails_changes_nothing),
    Fault(
        "second road ignored 4.12",
        second_road_is_dropped,
        tables.test_a_second_different_road_is_refused_and_the_same_one_accepted,
    ),
    Fault(
        "external range end 4.20",
        external_starts_are_enough,
        partial(devices.test_user_memory_that_ends_inside_a_variable_is_refused, 0xA400 + 1536031, False),
    ),
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
    Fault(
        "restore does not advance the counter, models overlap 4.22",
        counter_stays_at_a_restore,
        tables.test_a_restored_variable_keeps_the_models_address_and_later_ones_come_behind_it,
        "counter",
    ),
    Fault(
        "restore does not advance the counter, models overlap 4.22",
        overlapping_ranges,
        partial(
            tables.test_a_restored_variable_must_lie_in_variable_memory_beside_the_others,
            tables.BASE + 64,
            "RT_VAR_OVERLAP",
        ),
        "overlap",
    ),
    Fault("destroy keeps tables 4.25", destroy_keeps_the_tables, state.test_a_destroyed_manager_knows_nothing),
    Fault(
        "no limit check at compile 2.4",
        limits_are_looked_at_by_the_loader,
        placing.test_more_variables_than_the_limit_are_refused_at_compile_time,
    ),
    Fault(
        "no limit check at compile 2.4",
        limits_are_only_logged,
        state.test_maxima_beyond_256_gib_are_refused_and_not_only_logged,
        "maxima",
    ),
    Fault(
        "host-SVM base 2.4",
        shared_base_is_ignored,
        shared_memory.test_a_model_with_variables_and_shared_host_memory_is_refused,
    ),
    Fault(
        "corrupt snapshot 6",
        snapshots_are_believed,
        partial(records.test_a_snapshot_that_contradicts_itself_is_refused, records.break_road, "var_to_trans_road"),
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
        "sub-byte copy 10.1",
        sub_byte_widths_count_as_bytes,
        movement.test_sub_byte_data_are_moved_by_their_packed_size,
    ),
    Fault(
        "equal-dtype copy 10.2",
        equal_types_give_no_buffer,
        movement.test_a_twin_of_the_same_type_gets_the_bytes,
    ),
    # Hazards of the text that the index does not name.
    Fault(
        "init value at the inner offset 4.19",
        initial_value_at_the_inner_offset,
        devices.test_an_initial_value_is_at_the_start_wherever_the_first_access_is,
    ),
    Fault("loaded before the copy 4.18", loaded_before_the_copy, devices.test_a_load_that_fails_is_tried_again),
    Fault(
        "assign behind any input 5.3",
        writes_behind_any_input,
        placing.test_an_assign_behind_a_conversion_writes_the_conversion_and_only_through_input_0,
    ),
    Fault(
        "keys of one layer 8.5-4",
        outputs_decide_what_is_equal,
        with_context(
            acceleration.test_a_reader_decides_what_a_variable_takes_over, "two transposes of a square tensor"
        ),
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

INDEX = """
ambiguous key 3.4 · same-key growth leak 4.3d · shrink then grow 4.3e · file-constant length 4.4 · capacity of content
reuse 4.4 · overlap on save 4.6 · placeholder half-registered 4.7 · shape not in IsVarExist 4.9 · partial
RenewCurVarDesc 4.10 · second road ignored 4.12 · external range end 4.20 · init value after format change 4.21 ·
restore does not advance the counter, models overlap 4.22 · destroy keeps tables 4.25 · no limit check at compile 2.4 ·
host-SVM base 2.4 · corrupt snapshot 6 · O1 drops correctness passes 7 · "initialised" = mentioned 8.2 · endless ref
loop 8.3 · type-keyed ref table 8.3 · double recovery 8.4 · half-fused variable 8.5-1 · assign removed as "inverse"
8.5-2 · lossy cast 8.5-6 · AssignRemove ordering 8.7 · several subgraphs 8.9 · built flag on failure 9.1 · sub-byte
copy 10.1 · equal-dtype copy 10.2
"""


def hazards() -> Iterator[str]:
    return (" ".join(each.split()) for each in INDEX.split("·"))


def test_every_hazard_of_the_index_is_planted() -> None:
    assert set(hazards()) <= {fault.hazard for fault in FAULTS}


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: f"{fault.hazard} {fault.what}".strip())
def test_a_planted_fault_is_caught(fault: Fault, monkeypatch: pytest.MonkeyPatch) -> None:
    fault.law()
    fault.plant(monkeypatch)
    with pytest.raises((AssertionError, Failed, GecliError, GraphError, ValueError, KeyError)):
        fault.law()
