"""GE's behaviour at the hazards of the variable manager, its snapshots, devices and data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from gecli.errors import CompileError, GecliError
from gecli.ir.op_desc import OpDesc
from gecli.ir.tensor_desc import TensorDesc
from gecli.runtime import record_checks
from gecli.runtime.variable_store import VariableStore
from gecli.variables import assignment, data_movement, interval_map, trans_road
from gecli.variables import merge as merging
from gecli.variables.constant_index import ConstantIndex
from gecli.variables.device_table import DeviceTables, LoadState
from gecli.variables.interval_map import IntervalMap
from gecli.variables.limits import MemoryLimits
from gecli.variables.mem_resource import HbmResource, MemResource
from gecli.variables.sizes import GUARD_BYTES, raw_bytes
from gecli.variables.trans_road import TransRoad
from gecli.variables.var_key import VarKey
from gecli.variables.var_manager import VarManager
from gecli.variables.var_memory import VariableMemory
from gecli.variables.var_resource import Block, VarAddress, VarResource
from tests.compiler import test_variable_forms_of_graphs as forms
from tests.passes import test_variable_acceleration as acceleration
from tests.runtime import test_shared_host_memory as shared_memory
from tests.runtime import test_variable_twins as twins
from tests.variables import test_data_movement as movement
from tests.variables import test_device_memory as devices
from tests.variables import test_trans_road as roads
from tests.variables import test_var_assignment as placing
from tests.variables import test_var_manager_state as state
from tests.variables import test_var_rules as rules
from tests.variables import test_var_session as tables
from tests.variables.planted import Fault, with_context
from tests.wire import test_var_records as records

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


def shapes_are_not_renewed(patch: pytest.MonkeyPatch) -> None:
    real = VarResource.renew
    patch.setattr(VarResource, "renew", lambda self, name, desc, *, with_shape=False: real(self, name, desc))


def changed_names_are_not_mapped(patch: pytest.MonkeyPatch) -> None:
    def set_changed(self: VarResource, name: str, graph_id: int) -> None:
        self.changed_graph_ids[name] = graph_id

    patch.setattr(VarResource, "set_changed_graph_id", set_changed)


def any_session_id(patch: pytest.MonkeyPatch) -> None:
    def init(self: VarManager, version: int, session_id: int, device_id: int, job_id: int) -> None:
        self.session_id, self.is_initialised = session_id, True

    patch.setattr(VarManager, "init", init)


def inner_offsets_of_placeholders_are_dropped(patch: pytest.MonkeyPatch) -> None:
    real = VariableMemory._address_of

    def address_of(self: VariableMemory, address: int, device_id: int, kind: Any, graph: str) -> int:
        found = self.manager.resource.resolve(address)
        if found is not None and found[0].is_external:
            address -= found[1]
        return real(self, address, device_id, kind, graph)

    patch.setattr(VariableMemory, "_address_of", address_of)


def flags_survive_a_release(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(DeviceTables, "release", lambda self, device_id: None)


def the_first_device_clears_the_mark(patch: pytest.MonkeyPatch) -> None:
    real = data_movement._convert

    def convert(name: str, road: TransRoad, memory: VariableMemory, device_id: int) -> None:
        if memory.manager.resource.changed_graph_id(name) is not None:
            memory.manager.resource.remove_changed_graph_id(name)
            real(name, road, memory, device_id)

    patch.setattr(data_movement, "_convert", convert)


def the_rest_of_the_block_stays(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(data_movement, "_filling", lambda data, name, desc, memory: data)


def existing_entries_win(patch: pytest.MonkeyPatch) -> None:
    def merge_tables(mine: VarResource, theirs: VarResource) -> None:
        for key, entry in theirs.addresses.items():
            mine.addresses.setdefault(key, entry)
        for name, desc in theirs.current_descs.items():
            mine.current_descs.setdefault(name, desc)

    patch.setattr(merging, "_merge_tables", merge_tables)


def in_a_directory(test: Callable[..., object], *rest: object) -> Callable[[], object]:
    def law() -> None:
        with TemporaryDirectory() as place:
            test(Path(place), *rest)

    return law


def equal_types_copy_nothing_at_load(patch: pytest.MonkeyPatch) -> None:
    real = VariableStore.copy_value

    def copy_value(self: VariableStore, source: str, name: str) -> None:
        if self.value(source).dtype != self.value(name).dtype:
            real(self, source, name)

    patch.setattr(VariableStore, "copy_value", copy_value)


def a_known_variable_keeps_its_address_silently(patch: pytest.MonkeyPatch) -> None:
    real = VarResource.restore

    def restore(self: VarResource, *given: Any, **more: Any) -> int:
        return real(self, *given, **{**more, "strict_addresses": False})

    patch.setattr(VarResource, "restore", restore)


def one_mark_for_all_twins(patch: pytest.MonkeyPatch) -> None:
    real = data_movement.copy_to_twins

    def copy_to_twins(nodes: Any, memory: VariableMemory, device_id: int = 0) -> list[str]:
        filled: list[str] = []
        is_copied = False
        for node in nodes:
            is_copied = node.attrs.get(data_movement.COPIED_VALUE, is_copied)
            if not is_copied:
                sources = [each for each in nodes if each.name == node.attrs.get(data_movement.COPY_FROM_VAR)]
                filled += real([*sources, node], memory, device_id)
                is_copied = bool(filled)
        return filled

    patch.setattr(movement, "copy_to_twins", copy_to_twins)


def old_data_go_before_the_conversion(patch: pytest.MonkeyPatch) -> None:
    real = data_movement._replayed

    def replayed(road: TransRoad, data: bytes, desc: TensorDesc) -> bytes:
        memory.write(memory.manager.resource.address_of("w", desc), bytes(len(data)))
        return real(road, data, desc)

    def convert(name: str, road: TransRoad, given: VariableMemory, device_id: int) -> None:
        nonlocal memory
        memory = given
        real_convert(name, road, given, device_id)

    memory: Any = None
    real_convert = data_movement._convert
    patch.setattr(data_movement, "_convert", convert)
    patch.setattr(data_movement, "_replayed", replayed)


def inverses_keep_their_type(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(trans_road, "_INVERSE_TYPES", {})


def the_current_form_places_named_outputs(patch: pytest.MonkeyPatch) -> None:
    def place(graph: Any, manager: VarManager) -> dict[Any, int]:
        resource = manager.resource
        found = {}
        for port, name in assignment._marked_ports(graph, assignment.ASSIGN_VAR_NAME):
            desc = resource.current_desc(name)
            if desc is not None:
                found[port] = resource.address_of(name, desc)
        return found

    patch.setattr(assignment, "assign_named_outputs", place)
    the_current_form_stays(patch)


def the_current_form_stays(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(VarResource, "use_again", lambda self, name, desc, where="": self.require_fits(name, desc, where))


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
    Fault(
        "equal-dtype copy 10.2",
        equal_types_give_no_buffer,
        movement.test_a_twin_of_the_same_type_gets_the_bytes,
    ),
    Fault(
        "equal-dtype copy 10.2",
        equal_types_copy_nothing_at_load,
        in_a_directory(twins.test_a_twin_begins_as_its_source, "DT_FLOAT"),
        "at load",
    ),
    Fault(
        "shape of a description road 8.5-9",
        shapes_are_not_renewed,
        with_context(acceleration.test_a_road_that_moves_no_data_renews_the_session_at_once),
    ),
    Fault(
        "names of batches 4.13", changed_names_are_not_mapped, rules.test_a_batch_copy_finds_the_change_of_its_variable
    ),
    Fault(
        "base of another session 3.2",
        any_session_id,
        partial(state.test_an_init_with_an_unknown_version_or_the_id_of_another_session_is_refused, 2, 8),
    ),
    Fault(
        "inner offset of a placeholder 2.3",
        inner_offsets_of_placeholders_are_dropped,
        devices.test_a_placeholder_is_where_its_owner_says_and_inner_offsets_count,
    ),
    Fault(
        "flags survive the memory 4.25",
        flags_survive_a_release,
        devices.test_what_is_ready_is_so_in_one_form_on_one_device_until_its_memory_goes,
    ),
    Fault(
        "only the first device is converted 10.1",
        the_first_device_clears_the_mark,
        movement.test_every_device_is_converted_before_the_mark_goes,
    ),
    Fault(
        "rest of the block 10.1",
        the_rest_of_the_block_stays,
        movement.test_both_forms_may_share_a_block_whose_rest_is_cleared,
    ),
    Fault(
        "merge keeps its own 6",
        existing_entries_win,
        partial(
            state.test_what_both_know_differently_is_refused_and_nothing_changes, state._elsewhere, "VAR_KEY_CONFLICT"
        ),
    ),
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
        "known variable at another address 4.22-3",
        a_known_variable_keeps_its_address_silently,
        rules.test_a_model_with_another_address_of_a_known_variable_is_refused_only_when_asked,
    ),
    Fault("one mark for all twins 10.2", one_mark_for_all_twins, movement.test_each_twin_has_its_own_mark),
    Fault(
        "data of a failed conversion 10.1",
        old_data_go_before_the_conversion,
        movement.test_a_step_that_is_no_conversion_is_an_error_and_writes_nothing,
    ),
    Fault(
        "type of an inverse 8.4",
        inverses_keep_their_type,
        roads.test_squeeze_and_unsqueeze_undo_each_other_and_a_perm_is_inverted,
    ),
    Fault(
        "record of another form 5.1",
        the_current_form_stays,
        partial(forms.test_the_record_of_every_graph_has_the_form_that_the_graph_stores, ("f32[4]", "f32[2,2]")),
    ),
    Fault(
        "place of a value computed into a variable 5",
        the_current_form_places_named_outputs,
        forms.test_a_value_is_computed_into_the_form_that_its_own_graph_declares,
    ),
    Fault(
        "sub-byte copy 10.1",
        sub_byte_widths_count_as_bytes,
        movement.test_sub_byte_data_are_moved_by_their_packed_size,
    ),
)
