"""Life of a manager: begun, configured, limited, merged with a snapshot, destroyed (variables.md 1.3, 2.4, 3, 4, 6)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from threading import Thread
from time import sleep

import pytest

from gecli.errors import CompileError, InvalidOption
from gecli.ir.dtype import DataType
from gecli.ir.tensor_desc import TensorDesc
from gecli.variables.broadcast import BroadcastInfo
from gecli.variables.limits import MemoryLimits
from gecli.variables.mem_resource import HbmResource, MemoryType
from gecli.variables.merge import merge
from gecli.variables.trans_road import TransRoad, TransStep
from gecli.variables.var_manager import VarManager, VarManagerPool

GIB = 1 << 30
W = TensorDesc(DataType.FLOAT, (2, 2, 3, 2), size_bytes=128)
LARGER = TensorDesc(DataType.FLOAT, (256,), size_bytes=1056)
HALF = TensorDesc(DataType.FLOAT16, (2, 2, 3, 2), size_bytes=96)
ROAD = TransRoad([TransStep("Cast", W, HALF)])


def test_a_manager_of_a_pool_is_neither_initialised_nor_configured() -> None:
    manager = VarManagerPool().get(7)
    assert not manager.is_initialised
    assert (manager.version, manager.session_id, manager.device_id, manager.job_id) == (2, 7, 0, 0)
    limits = manager.limits
    assert (limits.graph_max_bytes, limits.var_max_bytes, limits.use_max_bytes) == (26 * GIB, 5 * GIB, 31 * GIB)
    assert manager.logic_base == 32 * GIB


@pytest.mark.parametrize(
    "call",
    [
        lambda manager: manager.assign("w", W),
        lambda manager: manager.restore_variable("w", W, manager.logic_base),
        lambda manager: manager.set_trans_road("w", ROAD),
        lambda manager: manager.set_changed_graph_id("w", 1),
        lambda manager: manager.renew("w", W),
        lambda manager: manager.record_staged(1, "w", W),
    ],
)
def test_nothing_can_be_recorded_before_the_manager_is_initialised(call: Callable[[VarManager], object]) -> None:
    manager = VarManagerPool().get(1)
    with pytest.raises(RuntimeError, match="session 1 is not initialised"):
        call(manager)
    assert not manager.resource.addresses and not manager.resource.roads


def test_questions_to_a_manager_that_is_not_initialised_are_answered_with_nothing() -> None:
    manager = VarManagerPool().get(1)
    resource = manager.resource
    assert (
        not manager.exists("w") and not resource.exists_as("w", W) and not resource.is_var_address(manager.logic_base)
    )
    assert resource.memory_type_at(manager.logic_base) is MemoryType.RESERVED
    assert manager.trans_road("w") is None and manager.current_desc("w") is None
    assert resource.changed_names(1) == () and resource.staged(1) == {}
    assert not manager.shares_memory_between_batches
    resource.remove_changed_graph_id("w")
    assert manager.memory_bytes(MemoryType.HBM) == manager.memory_bytes(MemoryType.RDMA_HBM) == 0


def test_the_first_init_counts() -> None:
    manager = VarManagerPool().get(3)
    manager.init(1, 3, 4, 5)
    manager.init(0, 9, 9, 9)
    assert (manager.version, manager.session_id, manager.device_id, manager.job_id) == (1, 3, 4, 5)


@pytest.mark.parametrize(("version", "session_id"), [(3, 1), (2, 8)])
def test_an_init_with_an_unknown_version_or_the_id_of_another_session_is_refused(version: int, session_id: int) -> None:
    manager = VarManagerPool().get(1)
    with pytest.raises(ValueError, match="session"):
        manager.init(version, session_id, 0, 0)
    assert not manager.is_initialised


def test_configuring_sets_base_and_maxima() -> None:
    manager = VarManagerPool().get(1)
    manager.configure(MemoryLimits.of_device(32 * GIB))
    assert (manager.limits.graph_max_bytes, manager.limits.var_max_bytes) == (27917287424, 5368709120)
    assert manager.logic_base == 128 * GIB
    manager.configure_from_model(64 * GIB, 4096)
    assert (manager.logic_base, manager.limits.var_max_bytes) == (64 * GIB, 4096)


def test_the_base_cannot_change_under_variables() -> None:
    manager = VarManager()
    address = manager.assign("w", W)
    with pytest.raises(ValueError, match="cannot change"):
        manager.configure(MemoryLimits.unconfigured())
    assert manager.resource.address_of("w", W) == address


def test_an_evaluation_of_needs_knows_no_maximum() -> None:
    limits = replace(MemoryLimits.of(1024, 1024), evaluate_only=True)
    assert limits.checked_graph_max_bytes == limits.checked_var_max_bytes == limits.checked_use_max_bytes == 2**64 - 1
    plain = MemoryLimits.of(1024, 1024)
    assert (plain.checked_graph_max_bytes, plain.checked_var_max_bytes, plain.checked_use_max_bytes) == (
        1024,
        1024,
        2048,
    )
    for each, fits in ((plain, False), (limits, True)):
        manager = VarManager(limits=each)
        manager.assign("w", LARGER)
        if fits:
            manager.check_limits("g")
        else:
            with pytest.raises(CompileError, match="exhausted"):
                manager.check_limits("g")


def test_maxima_beyond_256_gib_are_refused_and_not_only_logged() -> None:
    assert MemoryLimits.of_device(264 * GIB).use_max_bytes <= 256 * GIB
    with pytest.raises(InvalidOption):
        MemoryLimits.of_device(265 * GIB)


def test_the_counter_of_a_memory_can_be_set_but_not_of_one_that_is_missing() -> None:
    manager = VarManager()
    manager.set_memory_bytes(MemoryType.HBM, 4096)
    assert manager.memory_bytes(MemoryType.HBM) == 4096
    assert manager.assign("w", W) == manager.logic_base + 4096
    with pytest.raises(CompileError) as error:
        manager.set_memory_bytes(MemoryType.HOST, 1)
    assert error.value.kind == "VAR_POOL_MISSING"


def test_a_destroyed_manager_knows_nothing() -> None:
    manager = VarManager(5, version=1, device_id=2, job_id=3)
    manager.assign("w", W)
    manager.destroy()
    assert not manager.exists("w") and manager.hbm.used_bytes == 0
    assert not manager.is_initialised
    assert (manager.session_id, manager.version, manager.device_id) == (5, 2, 0)


def test_threads_that_share_a_session_get_disjoint_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    manager = VarManager()
    real = HbmResource.next_address

    def slow(self: HbmResource, base: int) -> int:
        found = real(self, base)
        sleep(0.001)  # others run between the question and the allocation
        return found

    monkeypatch.setattr(HbmResource, "next_address", slow)
    faults: list[BaseException] = []

    def work(thread: int) -> None:
        try:
            for number in range(5):
                manager.assign(f"own{thread}_{number}", W)
                manager.assign(f"shared{number}", W)
        except BaseException as error:
            faults.append(error)

    threads = [Thread(target=work, args=(thread,)) for thread in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not faults
    assert manager.hbm.used_bytes == 25 * 1536
    assert [block.address - manager.logic_base for block in manager.resource.blocks] == list(range(0, 25 * 1536, 1536))


# ------------------------------------------------------------------ merging a snapshot


def _session() -> VarManager:
    manager = VarManager(5, device_id=3, job_id=8)
    manager.assign("w", W)
    manager.assign("v", LARGER)
    manager.set_trans_road("w", ROAD)
    manager.set_changed_graph_id("w", 2)
    manager.resource.set_allocated_graph_id("w", 1)
    manager.resource.save_broadcast(2, BroadcastInfo("w", "hcom", 0, 0, 128, 0, 128))
    return manager


def test_a_new_manager_takes_everything_but_the_device() -> None:
    manager, other = VarManagerPool().get(5), _session()
    manager.device_id = 1
    merge(manager, other)
    assert manager.resource.addresses == other.resource.addresses
    assert list(manager.resource.blocks) == list(other.resource.blocks)
    assert manager.resource.changed_names(2) == ("w",), "GE leaves the names of a graph empty"
    assert (manager.limits, manager.hbm.used_bytes) == (other.limits, other.hbm.used_bytes)
    assert (manager.device_id, manager.job_id) == (1, 8)
    assert manager.assign("new", W) == other.assign("new", W)


def test_merging_the_same_again_changes_nothing() -> None:
    manager = _session()
    merge(manager, _session())
    assert manager.resource.addresses == _session().resource.addresses
    assert manager.hbm.used_bytes == _session().hbm.used_bytes
    assert manager.resource.broadcasts == _session().resource.broadcasts


def _elsewhere(manager: VarManager) -> None:
    manager.resource.restore("w", W, manager.logic_base + 8192, manager.hbm, 1 << 20)


def _other_variable_there(manager: VarManager) -> None:
    manager.assign("other", LARGER)


def _other_form(manager: VarManager) -> None:
    manager.assign("w", W)
    manager.assign("w", HALF)


def _other_road(manager: VarManager) -> None:
    manager.assign("w", W)
    manager.set_trans_road("w", TransRoad())


def _other_change(manager: VarManager) -> None:
    manager.assign("w", W)
    manager.set_changed_graph_id("w", 7)


def _other_creator(manager: VarManager) -> None:
    manager.assign("w", W)
    manager.resource.set_allocated_graph_id("w", 7)


@pytest.mark.parametrize(
    ("prepare", "kind"),
    [
        (_elsewhere, "VAR_KEY_CONFLICT"),
        (_other_variable_there, "VAR_OVERLAP"),
        (_other_form, "VAR_KEY_CONFLICT"),
        (_other_road, "VAR_ROAD_CONFLICT"),
        (_other_change, "VAR_KEY_CONFLICT"),
        (_other_creator, "VAR_KEY_CONFLICT"),
    ],
)
def test_what_both_know_differently_is_refused_and_nothing_changes(
    prepare: Callable[[VarManager], None], kind: str
) -> None:
    manager = VarManager()
    prepare(manager)
    before = (dict(manager.resource.addresses), dict(manager.resource.roads), manager.hbm.used_bytes)
    with pytest.raises(CompileError) as error:
        merge(manager, _session())
    assert error.value.kind == kind
    assert (manager.resource.addresses, manager.resource.roads, manager.hbm.used_bytes) == before


def test_sessions_with_another_base_do_not_merge() -> None:
    with pytest.raises(CompileError, match="two addresses"):
        merge(VarManager(limits=MemoryLimits.unconfigured()), _session())
