"""A session of several graphs: the manager's tables, restore, renew, roads and ids (variables.md 4, 9.3)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gecli.errors import CompileError, InputError
from gecli.ir.dtype import DataType
from gecli.ir.format import Format
from gecli.ir.graph import Graph
from gecli.ir.tensor_desc import TensorDesc
from gecli.variables.assignment import assign_variable_memory
from gecli.variables.rebuild_control import RebuildControl
from gecli.variables.sizes import padded_bytes
from gecli.variables.trans_road import TransRoad, TransStep
from gecli.variables.var_manager import VarManager, VarManagerPool

BASE = 128 << 30
FZ_GROUP_1 = Format(83886340)  # FRACTAL_Z, sub format 1, C0 16
ND = TensorDesc(DataType.FLOAT, (2, 2, 3, 2))
HWCN = TensorDesc(DataType.FLOAT, (2, 2, 3, 2), Format.HWCN)
FZ = HWCN.with_format(FZ_GROUP_1, (4, 1, 16, 16))
ROAD = TransRoad((TransStep("ReFormat", ND, HWCN), TransStep("TransData", HWCN, FZ)))


def _sized(desc: TensorDesc) -> TensorDesc:
    return replace(desc, size_bytes=padded_bytes(desc))


def _graph(name: str, **descs: TensorDesc) -> Graph:
    graph = Graph(name)
    for node, desc in descs.items():
        graph.create("Variable", node, output_descs=[desc])
    return graph


def test_the_worked_session_gives_its_keys_addresses_and_stale_graphs() -> None:
    manager, rebuild = VarManager(), RebuildControl()
    graphs = {1: _graph("init", var1=ND, var2=ND), 2: _graph("ckpt", var1=ND, var2=ND), 3: _graph("train", var1=FZ)}
    for graph_id, graph in graphs.items():
        rebuild.add_graph(graph_id, graph)

    assign_variable_memory(graphs[1], manager, 1)
    rebuild.build_end(1)
    assert {key.to_ge(): entry.address for key, entry in manager.resource.addresses.items()} == {
        "var12_0": 137438953472,
        "var22_0": 137438955008,
    }
    assert manager.hbm.used_bytes == 3072
    assert manager.resource.allocated_graph_ids == {"var1": 1, "var2": 1}

    assign_variable_memory(graphs[2], manager, 2)
    rebuild.build_end(2)
    assert manager.hbm.used_bytes == 3072 and len(manager.resource.addresses) == 2

    manager.renew("var1", ND)
    manager.record_staged(3, "var1", ND)
    manager.set_trans_road("var1", ROAD)
    manager.set_changed_graph_id("var1", 3)
    rebuild.state_changed("var1")
    assign_variable_memory(graphs[3], manager, 3)
    rebuild.build_end(3)
    assert rebuild.stale_graphs == (1, 2)
    assert rebuild.changes("var1") == 1
    entry = manager.resource.find("var1", FZ)
    assert entry is not None
    assert (manager.resource.key("var1", FZ).to_ge(), entry.address, entry.offset) == (
        "var183886340_0",
        137438956544,
        3072,
    )
    assert entry.desc.size_bytes == 4128
    assert manager.hbm.used_bytes == 8704
    current = manager.current_desc("var1")
    assert current is not None and current.same_storage(FZ)
    assert manager.resource.allocated_graph_id("var1") == 1
    assert manager.resource.changed_graph_id("var1") == 3
    assert manager.resource.changed_names(3) == ("var1",)

    # The load of graph 3 reads the old block under the road's first form and writes the new one.
    assert manager.resource.address_of("var1", ROAD.source) == 137438953472
    assert manager.resource.address_of("var1", ROAD.target) == 137438956544
    manager.resource.remove_changed_graph_id("var1")
    assert manager.resource.changed_graph_id("var1") is None
    assert manager.resource.changed_names(3) == ()

    # Graph 2 compiled again after road recovery: the variable is FRACTAL_Z there too, and no memory is taken.
    assign_variable_memory(_graph("ckpt", var1=FZ, var2=ND), manager, 2)
    rebuild.build_end(2)
    assert manager.hbm.used_bytes == 8704
    assert rebuild.stale_graphs == (1,)

    declared = manager.resource.declared_descs()
    assert declared["var1"].same_storage(ND) and declared["var2"].same_storage(ND)


def test_a_later_graph_never_moves_an_existing_key() -> None:
    manager = VarManager()
    assign_variable_memory(_graph("a", w=ND, v=HWCN), manager, 1)
    before = dict(manager.resource.addresses)
    assign_variable_memory(_graph("b", x=ND, w=FZ, v=ND), manager, 2)
    assert {key: manager.resource.addresses[key] for key in before} == before


def test_a_second_different_road_is_refused_and_the_same_one_accepted() -> None:
    manager = VarManager()
    manager.set_trans_road("w", ROAD)
    manager.set_trans_road("w", TransRoad(ROAD))
    with pytest.raises(CompileError) as error:
        manager.set_trans_road("w", TransRoad(ROAD[:1]))
    assert (error.value.code, error.value.kind) == ("G2016", "VAR_ROAD_CONFLICT")
    assert manager.trans_road("w") == ROAD


def test_an_empty_road_is_a_road() -> None:
    manager = VarManager()
    assert manager.trans_road("w") is None
    manager.set_trans_road("w", TransRoad())
    assert manager.trans_road("w") == TransRoad()


def test_renewing_changes_format_and_origin_format_only_and_moves_the_key() -> None:
    manager = VarManager()
    address = manager.assign("w", _sized(HWCN))
    manager.renew("w", ND.with_shape((99,)))
    current = manager.current_desc("w")
    assert current is not None
    assert (current.format, current.logical_format, current.shape) == (Format.ND, Format.ND, (2, 2, 3, 2))
    assert current.size_bytes == 128
    assert manager.resource.find("w", HWCN) is None
    assert manager.resource.address_of("w", ND) == address


def test_renewing_with_shape_takes_the_dims_of_a_description_road() -> None:
    manager = VarManager()
    manager.assign("w", _sized(ND))
    manager.renew("w", HWCN.with_shape((4, 3, 2, 1)), with_shape=True)
    current = manager.current_desc("w")
    assert current is not None and (current.format, current.shape) == (Format.HWCN, (4, 3, 2, 1))


def test_renewing_an_unknown_variable_has_no_effect() -> None:
    manager = VarManager()
    manager.renew("w", ND)
    assert not manager.exists("w")


def test_a_renewal_that_fails_changes_nothing() -> None:
    manager = VarManager()
    manager.assign("w", _sized(ND))
    manager.assign("w", _sized(FZ))
    before = (dict(manager.resource.addresses), dict(manager.resource.current_descs))
    with pytest.raises(CompileError) as error:
        manager.renew("w", ND)  # its key is at another address
    assert error.value.kind == "VAR_KEY_CONFLICT"
    assert (manager.resource.addresses, manager.resource.current_descs) == before
    del manager.resource.addresses[manager.resource.key("w", FZ)]
    with pytest.raises(CompileError) as error:
        manager.renew("w", HWCN)
    assert error.value.kind == "VAR_NOT_FOUND"
    assert manager.resource.current_descs == before[1]


def test_an_address_asked_for_in_an_unknown_form_is_an_error_and_the_shape_is_ignored() -> None:
    manager = VarManager()
    manager.assign("w", _sized(ND))
    assert manager.resource.address_of("w", ND.with_shape((7,))) == BASE
    with pytest.raises(CompileError) as error:
        manager.resource.address_of("w", HWCN)
    assert error.value.kind == "VAR_NOT_FOUND"


def test_batch_copies_share_address_descriptor_road_and_ids() -> None:
    manager = VarManager()
    assert not manager.shares_memory_between_batches
    copy = "w_ascend_mbatch_batch_1"
    manager.resource.share_batch_name(copy, "w")
    assert manager.shares_memory_between_batches
    assert manager.assign("w", _sized(ND)) == manager.assign(copy, _sized(ND))
    manager.set_trans_road(copy, ROAD)
    manager.set_changed_graph_id(copy, 4)
    manager.resource.set_allocated_graph_id(copy, 2)
    assert manager.trans_road("w") == ROAD
    assert manager.resource.changed_graph_id("w") == 4
    assert manager.resource.changed_names(4) == ("w",)
    assert manager.resource.allocated_graph_id("w") == 2
    assert list(manager.resource.current_descs) == ["w"]


def test_the_first_allocated_id_wins_and_an_earlier_graph_keeps_a_changed_name() -> None:
    manager = VarManager()
    for graph_id in (3, 5):
        manager.resource.set_allocated_graph_id("w", graph_id)
        manager.set_changed_graph_id("w", graph_id)
    assert manager.resource.allocated_graph_id("w") == 3
    assert manager.resource.changed_graph_id("w") == 5
    assert manager.resource.changed_names(3) == manager.resource.changed_names(5) == ("w",)


def test_asking_for_all_variables_of_an_empty_session_is_an_error() -> None:
    with pytest.raises(CompileError) as error:
        VarManager().resource.declared_descs()
    assert error.value.kind == "VAR_NOT_FOUND"


def test_a_restored_variable_keeps_the_models_address_and_later_ones_come_behind_it() -> None:
    manager = VarManager()
    assert manager.restore_variable("w", _sized(ND), BASE + 1536) == BASE + 1536
    assert manager.hbm.used_bytes == 3072
    assert manager.assign("v", _sized(ND)) == BASE + 3072


def test_restoring_the_same_variable_again_keeps_the_session_address() -> None:
    manager = VarManager()
    manager.restore_variable("w", _sized(FZ), BASE)
    assert manager.restore_variable("w", _sized(FZ), BASE + 8192) == BASE
    assert manager.restore_variable("w", _sized(ND), BASE + 8192) == BASE
    assert manager.resource.address_of("w", ND) == BASE


def test_restoring_a_larger_form_of_a_known_variable_is_refused() -> None:
    manager = VarManager()
    manager.restore_variable("w", _sized(ND), BASE)
    with pytest.raises(InputError) as error:
        manager.restore_variable("w", _sized(FZ), BASE)
    assert (error.value.code, error.value.kind) == ("G4011", "RT_VAR_GREW")
    assert "128 bytes" in error.value.first.why and "4128" in error.value.first.why


@pytest.mark.parametrize(
    ("address", "kind"),
    [
        (BASE - 512, "RT_ADDR_OUT_OF_RANGE"),
        (BASE + 5368709120 - 64, "RT_ADDR_OUT_OF_RANGE"),
        (BASE + 64, "RT_VAR_OVERLAP"),
    ],
)
def test_a_restored_variable_must_lie_in_variable_memory_beside_the_others(address: int, kind: str) -> None:
    manager = VarManager()
    manager.restore_variable("w", _sized(ND), BASE)
    with pytest.raises(InputError) as error:
        manager.restore_variable("v", _sized(ND), address)
    assert (error.value.code, error.value.kind) == ("G4010", kind)
    assert manager.hbm.used_bytes == 1536
    assert not manager.exists("v")


def test_restored_variables_may_share_a_block() -> None:
    manager = VarManager()
    manager.restore_variable("a", _sized(ND), BASE)
    assert manager.restore_variable("b", _sized(FZ), BASE) == BASE
    found = manager.resource.resolve(BASE + 4127)
    assert found is not None and found[1] == 4127
    assert manager.resource.resolve(BASE + 4128) is None


def test_assigning_into_restored_memory_is_refused() -> None:
    manager = VarManager()
    manager.restore_variable("w", _sized(FZ), BASE)
    manager.hbm.used_bytes = 0  # what GE leaves behind
    with pytest.raises(CompileError) as error:
        manager.assign("v", _sized(ND))
    assert (error.value.code, error.value.kind) == ("G2012", "VAR_OVERLAP")
    assert manager.hbm.used_bytes == 0


def test_a_snapshot_brings_back_every_table_in_place() -> None:
    manager = VarManager()
    resource = manager.resource
    assign_variable_memory(_graph("a", w=ND), manager, 1)
    state = manager.snapshot()
    assign_variable_memory(_graph("b", w=FZ, v=ND), manager, 2)
    manager.set_trans_road("w", ROAD)
    manager.set_changed_graph_id("w", 2)
    manager.record_staged(2, "w", ND)
    manager.resource.share_batch_name("x", "w")
    for _ in range(2):
        manager.restore(state)
        assert manager.resource is resource
        assert manager.hbm.used_bytes == 1536
        assert [key.to_ge() for key in resource.addresses] == ["w2_0"]
        assert len(resource.blocks) == 1
        assert not (resource.roads or resource.changed_graph_ids or resource.staged_descs or resource.batch_names)
        assert resource.changed_names(2) == ()
        manager.assign("w", _sized(FZ))


def test_a_pool_keeps_sessions_apart_and_forgets_a_removed_one_whole() -> None:
    pool = VarManagerPool()
    first = pool.get(1)
    assert pool.get(1) is first
    first.init(2, 1, 0, 0)
    first.assign("w", _sized(ND))
    assert pool.get(1).exists("w") and not pool.get(2).exists("w")
    with pytest.raises(ValueError, match="session 1"):
        pool.put(VarManager(1))
    pool.remove(1)
    assert not first.exists("w"), "whoever holds it finds nothing"
    assert not pool.get(1).exists("w")
    assert pool.get(1).hbm.used_bytes == 0
    assert [manager.session_id for manager in pool] == [1, 2]
    pool.clear()
    assert len(pool) == 0


def test_a_session_version_beyond_2_is_refused() -> None:
    with pytest.raises(ValueError, match="version"):
        VarManager(version=3)
