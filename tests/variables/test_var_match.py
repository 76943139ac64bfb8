"""Matching a cache entry's record with a session, and the refresh after it (cache.md 3.3-3.6)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gecli.errors import CacheError, CompileError
from gecli.ir.dtype import DataType
from gecli.ir.format import Format
from gecli.ir.tensor_desc import TensorDesc
from gecli.variables.desc_match import same_desc
from gecli.variables.rebuild_control import RebuildControl
from gecli.variables.sizes import padded_bytes
from gecli.variables.trans_road import TransRoad, TransStep
from gecli.variables.var_manager import VarManager
from gecli.variables.var_match import VarDescCache, VarMatch, match, record_of, refresh, why_contradictory


def _sized(desc: TensorDesc) -> TensorDesc:
    return replace(desc, size_bytes=padded_bytes(desc))


ND = _sized(TensorDesc(DataType.FLOAT, (16, 16)))
NZ = _sized(ND.with_format(Format.FRACTAL_NZ, (1, 1, 16, 16)))
NCHW = _sized(TensorDesc(DataType.FLOAT, (16, 16), Format.NCHW))
FP32 = _sized(TensorDesc(DataType.FLOAT, (3,)))
ROAD = TransRoad((TransStep("TransData", ND, NZ),))
RECORD = VarMatch(VarDescCache({"w": ND}), VarDescCache({"w": NZ, "m": ND}, {"w": ROAD}, ("w",), {"w": ND}))


def _session(**descs: TensorDesc) -> VarManager:
    manager = VarManager()
    for name, desc in descs.items():
        manager.assign(name, desc)
    return manager


@pytest.mark.parametrize(
    ("descs", "side", "reason"),
    [
        ({"w": NZ, "m": ND}, "after", ""),
        ({"w": NZ}, None, "var_desc_mismatch"),
        ({"w": ND}, "before", ""),
        ({"w": ND, "m": ND, "k": FP32}, "before", ""),
        ({"w": ND, "m": NCHW}, None, "var_conflict"),
        ({}, None, "var_missing"),
    ],
)
def test_a_record_matches_the_states_of_the_worked_example(
    descs: dict[str, TensorDesc], side: str | None, reason: str
) -> None:
    result = match(RECORD, _session(**descs))
    assert (result.side, result.reason) == (side, reason)
    assert result.needs_refresh == (side == "before")


def test_a_mismatch_names_variable_field_and_both_values() -> None:
    result = match(RECORD, _session(w=NZ))
    assert result.after is not None and str(result.after) == "variable 'm' is not known to the session"
    assert result.before is not None
    assert (result.before.name, result.before.field) == ("w", "shape")
    result = match(RECORD, _session(w=ND, m=NCHW))
    assert result.conflict is not None and (result.conflict.name, result.conflict.field) == ("m", "format")


def test_a_cold_start_matches_through_the_empty_before_map() -> None:
    record = VarMatch(VarDescCache(), RECORD.after)
    assert match(record, VarManager()).side == "before"


def test_an_empty_before_map_does_not_match_a_session_with_another_layout() -> None:
    record = VarMatch(VarDescCache(), RECORD.after)
    assert match(record, _session(w=ND)).reason == "var_conflict"
    assert match(record, _session(k=FP32)).side == "before"


def test_an_entry_without_a_record_always_matches_without_refresh() -> None:
    result = match(None, _session(w=ND))
    assert result.matched and not result.needs_refresh


def test_a_record_is_empty_when_neither_side_knows_a_variable() -> None:
    assert VarMatch(VarDescCache(), VarDescCache()).is_empty
    assert not RECORD.is_empty


def test_the_record_of_a_compile_holds_what_the_graph_changed_and_staged() -> None:
    manager = _session(w=ND)
    before = record_of(manager)
    assert before == VarDescCache({"w": ND}, {})
    manager.record_staged(2, "w", ND)
    manager.set_trans_road("w", ROAD)
    manager.set_changed_graph_id("w", 2)
    manager.assign("w", NZ)
    manager.assign("m", ND)
    assert record_of(manager, 2) == VarDescCache({"m": ND, "w": NZ}, {"w": ROAD}, ("w",), {"w": ND})
    assert record_of(manager, 1).changed_var_names == ()
    assert before == VarDescCache({"w": ND}, {})
    assert match(VarMatch(before, record_of(manager, 2)), manager).side == "after"


def test_a_refresh_replays_the_change_and_marks_other_graphs() -> None:
    manager, rebuild = _session(w=ND), RebuildControl()
    rebuild.add_graph_names(1, ["w"])
    rebuild.add_graph_names(2, ["w"])
    change = refresh(RECORD, manager, rebuild, graph_id=2)
    assert manager.trans_road("w") is None and not rebuild.stale_graphs
    change.commit(manager, rebuild)
    assert manager.trans_road("w") == ROAD
    assert manager.resource.changed_graph_id("w") == 2
    assert manager.resource.changed_names(2) == ("w",)
    assert manager.resource.staged(2) == {"w": ND}
    assert rebuild.stale_graphs == (1, 2)
    assert not rebuild.permits_change("w")
    current = manager.current_desc("w")
    assert current is not None and current.same_storage(ND)  # the data still have to be moved


def test_a_refresh_of_a_description_road_renews_the_current_descriptor() -> None:
    road = TransRoad((TransStep("ReFormat", ND, NCHW),))
    record = VarMatch(VarDescCache({"w": ND}), VarDescCache({"w": NCHW}, {"w": road}, ("w",)))
    manager, rebuild = _session(w=ND), RebuildControl()
    refresh(record, manager, rebuild, 2).commit(manager, rebuild)
    assert manager.resource.address_of("w", NCHW) == manager.logic_base
    assert match(record, manager).side == "after"


def test_a_staged_descriptor_is_replayed_first() -> None:
    record = VarMatch(VarDescCache({"w": NCHW}), VarDescCache({"w": ND}, staged_var_desc_map={"w": ND}))
    manager, rebuild = _session(w=NCHW), RebuildControl()
    assert match(record, manager).side == "before"
    refresh(record, manager, rebuild, 2).commit(manager, rebuild)
    assert match(record, manager).side == "after"


@pytest.mark.parametrize(
    "after",
    [
        VarDescCache({"w": NZ}, {}, ("w",)),
        VarDescCache({}, {"w": ROAD}, ("w",)),
    ],
)
def test_a_changed_name_without_road_or_descriptor_is_refused_before_anything_changes(after: VarDescCache) -> None:
    manager, rebuild = _session(w=ND), RebuildControl()
    record = VarMatch(VarDescCache({"w": ND}), after)
    with pytest.raises(CacheError) as error:
        refresh(record, manager, rebuild, 2)
    assert error.value.kind == "trans_road_missing"
    assert "'w'" in why_contradictory(record)
    assert manager.trans_road("w") is None


def test_a_refresh_onto_another_road_is_refused() -> None:
    manager, rebuild = _session(w=ND), RebuildControl()
    manager.set_trans_road("w", TransRoad((TransStep("ReFormat", ND, NCHW),)))
    with pytest.raises(CompileError) as error:
        refresh(RECORD, manager, rebuild, 2)
    assert error.value.kind == "VAR_ROAD_CONFLICT"
    assert rebuild.permits_change("w")


def test_a_record_whose_road_does_not_chain_is_contradictory() -> None:
    road = TransRoad((TransStep("TransData", ND, NZ), TransStep("TransData", ND, NZ)))
    record = VarMatch(VarDescCache(), VarDescCache({"w": NZ}, {"w": road}, ("w",)))
    assert why_contradictory(record) == "trans road of 'w': step 1 does not begin where step 0 ends"
    assert why_contradictory(RECORD) == ""


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"shape": (1,)}, "shape"),
        ({"dtype": DataType.FLOAT16}, "dtype"),
        ({"format": Format.FRACTAL_NZ.with_c0(16)}, "format"),
        ({"origin_shape": (256,)}, "origin_shape"),
        ({"origin_format": Format.NCHW}, "origin_format"),
        ({"origin_dtype": DataType.FLOAT}, "origin_dtype"),
        ({"name": "x"}, "name"),
        ({"attrs": {"device_type": "CPU"}}, "device_type"),
        ({"size_bytes": 1}, "size"),
        ({"attrs": {"weight_size": 4}}, "weight_size"),
        ({"attrs": {"input_tensor": True}}, "input_tensor"),
    ],
)
def test_descriptors_are_compared_field_by_field(change: dict[str, object], field: str) -> None:
    assert same_desc(NZ, replace(NZ, **change)) == field  # type: ignore[arg-type]  # one field of any type


def test_free_attributes_and_an_unset_origin_are_no_difference() -> None:
    assert same_desc(ND, ND.with_attr("_init_value", 1)) is None
    assert same_desc(ND, ND.with_origin(ND.shape, ND.format)) is None
    assert same_desc(ND, replace(ND, origin_dtype=DataType.UNDEFINED)) is None
    assert same_desc(ND, ND.with_attr("weight_size", 0)) is None
