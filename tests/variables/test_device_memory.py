"""Variables on devices: rows, addresses, initial values, ready and loaded marks (variables.md 2.3, 4.16-4.21, 4.25)."""

from __future__ import annotations

from dataclasses import replace
from threading import Event, Thread

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gecli.errors import GecliError, InputError, RuntimeFault
from gecli.ir.dtype import DataType
from gecli.ir.format import Format
from gecli.ir.op_desc import OpDesc
from gecli.ir.tensor_desc import TensorDesc
from gecli.ir.weight import Weight
from gecli.variables.device_arena import ARENA_BASE, DEVICE_STRIDE, DeviceArena, HugePages
from gecli.variables.device_table import DeviceTables
from gecli.variables.mem_resource import MemoryType, PoolResource
from gecli.variables.memory_pool import RDMA_POOL_BASE, RdmaPool
from gecli.variables.sizes import padded_bytes
from gecli.variables.trans_road import TransRoad, TransStep
from gecli.variables.var_manager import VarManager
from gecli.variables.var_memory import VariableMemory

BASE = 128 << 30
GIB = 1 << 30
MIB = 1 << 20


def sized(dtype: str, *shape: int, fmt: Format = Format.ND, init: Weight | None = None) -> TensorDesc:
    desc = TensorDesc(DataType[dtype], shape, fmt)
    desc = replace(desc, size_bytes=padded_bytes(desc))
    return desc if init is None else desc.with_attr("_init_value", init)


def memory_of(*descs: TensorDesc, devices: int = 1) -> VariableMemory:
    """Variables a, b, c... of these forms, on devices with 64 GiB each."""
    manager = VarManager()
    for name, desc in zip("abcdefgh", descs, strict=False):
        manager.assign(name, desc)
    memory = VariableMemory(manager)
    for device_id in range(devices):
        memory.attach(device_id, DeviceArena(device_id))
    return memory


RUNTIME_EXAMPLE = (sized("FLOAT", 64, 3, 7, 7), sized("INT64"), sized("FLOAT", 64), sized("FLOAT16", 1000, 768))


def test_the_worked_addresses_of_the_runtime() -> None:
    memory = memory_of(*RUNTIME_EXAMPLE)
    assert memory.address_of(0x2000000000) == ARENA_BASE + 512
    assert memory.address_of(0x2000009800) == ARENA_BASE + 39424
    assert memory.address_of(0x2000009E40) == ARENA_BASE + 41024, "64 bytes inside the variable"
    for address in (0x2000009F20, 0x2000181A00, BASE - 1):
        with pytest.raises(InputError) as error:
            memory.address_of(address)
        assert error.value.kind == "RT_ADDR_UNASSIGNED"


def test_user_memory_has_no_guards_and_holds_every_variable_to_its_end() -> None:
    memory = memory_of(*RUNTIME_EXAMPLE)
    area = bytearray(2 * MIB)
    memory.set_external(0x7000, area)
    assert memory.address_of(0x2000000000) == 0x7000
    assert memory.address_of(0x2000009E40) == 0x7000 + 0x9E40
    assert memory.allocated_bytes == 0
    with pytest.raises(InputError):
        memory.address_of(0x2000009F20)


@pytest.mark.parametrize(("size", "fits"), [(0xA400 + 1536032, True), (0xA400 + 1536031, False), (0xA401, False)])
def test_user_memory_that_ends_inside_a_variable_is_refused(size: int, fits: bool) -> None:
    memory = memory_of(*RUNTIME_EXAMPLE)
    if fits:
        memory.set_external(0x7000, bytearray(size))
        return
    with pytest.raises(RuntimeFault) as error:
        memory.set_external(0x7000, bytearray(size))
    assert error.value.kind == "RT_EXTERNAL_TOO_SMALL"
    assert memory.address_of(BASE) == ARENA_BASE + 512, "nothing was registered"


def test_a_variable_added_later_must_fit_into_the_user_memory_too() -> None:
    memory = memory_of(sized("FLOAT", 4))
    memory.set_external(0x7000, bytearray(2000))
    address = memory.manager.assign("late", sized("FLOAT", 256))
    with pytest.raises(RuntimeFault) as error:
        memory.address_of(address)
    assert error.value.kind == "RT_EXTERNAL_TOO_SMALL"


def test_a_variable_in_user_memory_gets_its_initial_value_once() -> None:
    memory = memory_of(sized("FLOAT", 4, init=Weight.of(np.arange(4, dtype=np.float32))))
    area = bytearray(4096)
    memory.set_external(0x7000, area)
    memory.address_of(BASE + 8)
    assert np.frombuffer(area[:16], np.float32).tolist() == [0, 1, 2, 3]
    memory.write(BASE, bytes(16))
    memory.address_of(BASE)
    assert area[:16] == bytes(16)


def initial_value_is_at_the_start_wherever_the_first_access_is() -> None:
    memory = memory_of(sized("FLOAT", 4, init=Weight.of(np.arange(4, dtype=np.float32))))
    memory.address_of(BASE + 8)
    assert np.frombuffer(memory.read(BASE, 16), np.float32).tolist() == [0, 1, 2, 3]


def test_an_initial_value_is_at_the_start_wherever_the_first_access_is() -> None:
    initial_value_is_at_the_start_wherever_the_first_access_is()


@pytest.mark.parametrize(
    "value",
    [
        Weight.of(np.zeros(5, np.float32)),
        Weight.of(np.zeros(4, np.int32)),
        Weight.of(np.zeros(4, np.float32), TensorDesc(DataType.FLOAT, (4,), Format.NCHW)),
    ],
    ids=["dims", "type", "format"],
)
def test_an_initial_value_that_does_not_fit_leaves_no_trace(value: Weight) -> None:
    memory = memory_of(sized("FLOAT", 4, init=value))
    for _ in range(2):
        with pytest.raises(RuntimeFault) as error:
            memory.address_of(BASE)
        assert error.value.kind == "RT_INIT_VALUE_MISMATCH"
    assert memory.allocated_bytes == 0


def test_an_initial_value_in_the_declared_form_takes_the_road() -> None:
    declared = TensorDesc(DataType.FLOAT, (4,))
    stored = sized("FLOAT16", 4, init=Weight.of(np.arange(4, dtype=np.float32)))
    memory = memory_of(stored)
    memory.manager.set_trans_road("a", TransRoad([TransStep("Cast", declared, replace(stored, attrs={}))]))
    assert np.frombuffer(memory.read(BASE, 8), np.float16).tolist() == [0, 1, 2, 3]


def test_without_memory_no_variable_has_an_address() -> None:
    memory = VariableMemory(VarManager())
    memory.manager.assign("a", sized("FLOAT", 4))
    for kind in (MemoryType.HBM, MemoryType.RDMA_HBM):
        with pytest.raises(RuntimeFault) as error:
            memory.address_of(BASE, kind=kind)
        assert error.value.kind == "RT_NOT_INITED"


def test_an_address_of_rdma_memory_is_itself() -> None:
    manager = VarManager(pools={MemoryType.RDMA_HBM: PoolResource(MemoryType.RDMA_HBM, RdmaPool(4096))})
    address = manager.assign("a", sized("FLOAT", 4), memory_type=MemoryType.RDMA_HBM)
    memory = VariableMemory(manager)
    memory.attach(0, DeviceArena())
    assert memory.address_of(address, kind=MemoryType.RDMA_HBM) == address == RDMA_POOL_BASE
    assert memory.allocated_bytes == 0


def test_a_placeholder_is_where_its_owner_says_and_inner_offsets_count() -> None:
    desc = sized("FLOAT", 4)
    attrs = {"storage_shape": (4,), "dtype": 0, "size": 16, "placement": 1, "addr": 0x5000}
    memory = memory_of(desc)
    address = memory.manager.assign("p", desc, OpDesc("p", "ConstPlaceHolder", attrs=attrs, output_descs=[desc]))
    assert memory.address_of(address) == 0x5000
    assert memory.address_of(address + 8) == 0x5008
    memory.free()
    assert memory.address_of(address) == 0x5000


def test_each_device_has_its_own_block_and_contents() -> None:
    memory = memory_of(sized("FLOAT", 4), devices=2)
    assert memory.address_of(BASE, 0) == ARENA_BASE + 512
    assert memory.address_of(BASE, 1) == ARENA_BASE + DEVICE_STRIDE + 512
    memory.write(BASE, b"\x01" * 16, 1)
    assert (memory.read(BASE, 16, 0), memory.read(BASE, 16, 1)) == (bytes(16), b"\x01" * 16)


def test_rows_are_added_and_the_old_ones_keep_their_block() -> None:
    memory = memory_of(sized("FLOAT", 4))
    first = memory.address_of(BASE)
    later = memory.manager.assign("late", sized("FLOAT", 4))
    assert memory.tables.find(0, later) is None
    memory.tables.update(0)
    assert memory.tables.find(0, later) is not None
    assert memory.address_of(BASE) == first


def test_rows_are_found_by_start_and_addresses_inside_by_their_variable() -> None:
    tables = memory_of(replace(sized("FLOAT", 242), size_bytes=1000)).tables
    tables.update(0)
    assert tables.inside(0, BASE + 200) == (200, BASE)
    assert tables.inside(0, BASE + 999) == (999, BASE)
    for address in (BASE, BASE + 1000):
        with pytest.raises(InputError):
            tables.inside(0, address)
    with pytest.raises(InputError):
        tables.inside(1, BASE + 200)
    assert tables.find(1, BASE) is None and tables.find(0, BASE + 200) is None


def test_a_device_address_is_set_for_known_rows_only() -> None:
    tables = memory_of(sized("FLOAT", 4)).tables
    with pytest.raises(InputError):
        tables.set_device_address(0, BASE, 0x1000)
    tables.update(0)
    tables.set_device_address(0, BASE, 0x1000)
    row = tables.find(0, BASE)
    assert row is not None and row.device_address == 0x1000
    with pytest.raises(InputError):
        tables.set_device_address(0, BASE + 1, 0x1000)


def test_what_is_ready_is_so_in_one_form_on_one_device_until_its_memory_goes() -> None:
    memory = memory_of(sized("FLOAT", 4), devices=2)
    desc = TensorDesc(DataType.FLOAT, (4,))
    tables = memory.tables
    tables.set_ready("a", desc, 0)
    assert tables.is_ready("a", desc, 0)
    assert not tables.is_ready("a", desc, 1)
    assert not tables.is_ready("a", desc.with_dtype(DataType.FLOAT16), 0)
    memory.free()
    assert not tables.is_ready("a", desc, 0)


def _node(inner: int = 0) -> OpDesc:
    desc = TensorDesc(DataType.FLOAT, (4,))
    return OpDesc("c", "Constant", output_descs=[desc.with_attr("_inner_offset", inner) if inner else desc])


def test_data_at_one_address_are_loaded_once_a_device() -> None:
    tables, calls = memory_of(sized("FLOAT", 4)).tables, []
    assert tables.load_once(_node(), BASE, 0, lambda: calls.append("first"))
    assert not tables.load_once(_node(), BASE, 0, lambda: calls.append("again"))
    assert not tables.load_once(_node(8), BASE + 8, 0, lambda: calls.append("inside")), "the inner offset is taken off"
    assert tables.load_once(_node(), BASE, 1, lambda: calls.append("other device"))
    assert calls == ["first", "other device"]
    tables.release(0)
    assert tables.load_once(_node(), BASE, 0, lambda: None)


def test_data_outside_variable_memory_are_loaded_every_time() -> None:
    tables, calls = memory_of(sized("FLOAT", 4)).tables, []
    for _ in range(2):
        assert tables.load_once(_node(), 4096, 0, lambda: calls.append(1))
    assert calls == [1, 1]
    with pytest.raises(InputError, match="no output offset"):
        tables.load_once(_node(), None, 0, lambda: None)


def test_a_load_that_fails_is_tried_again() -> None:
    tables = memory_of(sized("FLOAT", 4)).tables

    def fail() -> None:
        raise OSError("disk")

    with pytest.raises(OSError):
        tables.load_once(_node(), BASE, 0, fail)
    assert tables.load_once(_node(), BASE, 0, lambda: None)


def test_a_second_loader_waits_for_the_first() -> None:
    tables = memory_of(sized("FLOAT", 4)).tables
    begun, may_end, order = Event(), Event(), []

    def slow() -> None:
        begun.set()
        assert may_end.wait(10)
        order.append("loaded")

    first = Thread(target=lambda: tables.load_once(_node(), BASE, 0, slow))
    second = Thread(target=lambda: order.append(tables.load_once(_node(), BASE, 0, lambda: None)))
    first.start()
    assert begun.wait(10)
    second.start()
    may_end.set()
    first.join(10)
    second.join(10)
    assert order == ["loaded", False]


def test_freed_memory_comes_again_with_its_initial_value() -> None:
    memory = memory_of(sized("FLOAT", 4, init=Weight.of(np.ones(4, np.float32))))
    memory.write(BASE, bytes(16))
    memory.free()
    assert memory.allocated_bytes == 0
    assert np.frombuffer(memory.read(BASE, 16), np.float32).tolist() == [1, 1, 1, 1]
    assert memory.manager.exists("a")
    VariableMemory(VarManager()).free()


def test_a_graph_is_charged_for_what_it_allocates_and_shares() -> None:
    memory = memory_of(sized("FLOAT", 4), sized("FLOAT", 128))
    memory.address_of(BASE, graph="init")
    memory.address_of(BASE, graph="init")
    memory.address_of(BASE, graph="train")
    memory.address_of(BASE, graph="train")
    memory.address_of(BASE + 1536, graph="train")
    init, train = memory.statistics["init"], memory.statistics["train"]
    assert (init.allocated_bytes, init.shared_bytes) == (1536, 0)
    assert (train.allocated_bytes, train.shared_bytes) == (2048, 3072)


@given(st.lists(st.integers(1, 600), min_size=1, max_size=6), st.data())
@settings(max_examples=60, deadline=None)
def test_logical_and_device_addresses_agree_inside_a_variable_and_nowhere_else(
    sizes: list[int], data: st.DataObject
) -> None:
    memory = memory_of(*(sized("UINT8", size) for size in sizes), devices=2)
    starts = [block.address for block in memory.manager.resource.blocks]
    bases = [[memory.address_of(start, device) for start in starts] for device in range(2)]
    assert len({*bases[0], *bases[1]}) == 2 * len(starts)
    block = data.draw(st.sampled_from(list(memory.manager.resource.blocks)))
    inside = data.draw(st.integers(0, block.capacity_bytes - 1))
    outside = data.draw(st.integers(block.capacity_bytes, block.span_bytes - 1))
    assert memory.address_of(block.address + inside) == bases[0][starts.index(block.address)] + inside
    with pytest.raises(GecliError):
        memory.address_of(block.address + outside)


# ------------------------------------------------------------------ pages (runtime.md 2.3, 8.2)


def test_blocks_share_pages() -> None:
    arena = DeviceArena()
    assert [arena.allocate(size) for size in (38912, 1536, 1537536)] == [
        ARENA_BASE,
        ARENA_BASE + 38912,
        ARENA_BASE + 40448,
    ]
    assert (arena.used_bytes, arena.mapped_bytes) == (1577984, 2 * MIB)
    arena.allocate(600064)
    assert (arena.used_bytes, arena.mapped_bytes) == (2178048, 4 * MIB)


@pytest.mark.parametrize(
    ("huge", "available", "mapped", "fell_back_at"),
    [
        (HugePages.OFF, 0, 1280 * MIB, None),
        (HugePages.ONLY, 2, 2 * GIB, None),
        (HugePages.FIRST, 1, 2 * GIB, GIB),
    ],
)
def test_what_variables_of_1_25_gib_map(huge: HugePages, available: int, mapped: int, fell_back_at: int | None) -> None:
    arena = DeviceArena(huge_pages=huge, huge_available=available)
    for _ in range(5):
        assert _reserve(arena, 256 * MIB)
    assert (arena.mapped_bytes, arena.fell_back_at) == (mapped, fell_back_at)
    arena.clear()
    assert arena.mapped_bytes == 0


def test_without_a_page_of_1_gib_the_variable_that_crosses_fails() -> None:
    arena = DeviceArena(huge_pages=HugePages.ONLY, huge_available=1)
    assert [_reserve(arena, 256 * MIB) for _ in range(5)] == [True, True, True, True, False]
    assert arena.mapped_bytes == GIB
    assert not _reserve(arena, 2 * GIB), "what was mapped for a request that fails goes back"
    assert arena.mapped_bytes == GIB


def test_policies_3_and_4_use_pages_of_8_mib() -> None:
    arena = DeviceArena(expandable=True)
    arena.allocate(1)
    assert arena.mapped_bytes == 8 * MIB


def _reserve(arena: DeviceArena, size: int) -> bool:
    """Room without its bytes: a test does not need a gibibyte."""
    found = arena.reserve(size)
    return found is not None


@pytest.mark.parametrize(("huge", "kind"), [(HugePages.OFF, "RT_OOM"), (HugePages.ONLY, "RT_PAGE_1G_FAILED")])
def test_a_device_without_room_is_an_error_and_other_variables_still_fit(huge: HugePages, kind: str) -> None:
    memory = memory_of(sized("UINT8", 3 * MIB), sized("UINT8", 16))
    memory.attach(0, DeviceArena(0, 2 * MIB, huge_pages=huge, huge_available=0))
    with pytest.raises(RuntimeFault) as error:
        memory.address_of(BASE)
    assert error.value.kind == kind
    if huge is HugePages.OFF:
        assert memory.address_of(list(memory.manager.resource.blocks)[1].address) == ARENA_BASE + 512


def test_plain_memory_helps_out_unless_only_pages_of_1_gib_are_wanted() -> None:
    memory = memory_of(sized("UINT8", 16), sized("UINT8", 16))
    plain = DeviceArena(7)
    memory.attach(0, DeviceArena(0, 0), plain)
    assert memory.address_of(BASE) == ARENA_BASE + 7 * DEVICE_STRIDE + 512
    memory.attach(0, DeviceArena(0, huge_pages=HugePages.ONLY, huge_available=0), plain)
    with pytest.raises(RuntimeFault):
        memory.address_of(BASE + 1536)


def test_bytes_are_read_and_written_inside_one_block_only() -> None:
    arena = DeviceArena()
    address = arena.allocate(16)
    arena.allocate(16)
    assert address is not None
    with pytest.raises(ValueError, match="not in one block"):
        arena.write(address + 8, bytes(9))
    with pytest.raises(ValueError, match="not in one block"):
        arena.read(address - 1, 1)


def test_a_table_of_an_unknown_device_is_nothing_to_release() -> None:
    tables = DeviceTables(VarManager().resource)
    tables.release(3)
    assert tables.devices == ()
