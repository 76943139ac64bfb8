"""RDMA and host memory of variables (variables.md 3.5, runtime.md 2.6)."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gecli.errors import CompileError
from gecli.ir.dtype import DataType
from gecli.ir.graph import Graph
from gecli.ir.tensor_desc import TensorDesc
from gecli.variables.assignment import assign_variable_memory
from gecli.variables.limits import MemoryLimits
from gecli.variables.mem_resource import MemoryType, PoolResource
from gecli.variables.memory_pool import HOST_POOL_BASE, RDMA_POOL_BASE, HostPool, RdmaPool
from gecli.variables.var_manager import VarManager

DESC = TensorDesc(DataType.FLOAT, (2, 2, 3, 2))
SIZED = TensorDesc(DataType.FLOAT, (2, 2, 3, 2), size_bytes=128)


def _manager(size: int = 1 << 20) -> VarManager:
    rdma = PoolResource(MemoryType.RDMA_HBM, RdmaPool(size))
    return VarManager(pools={MemoryType.RDMA_HBM: rdma, MemoryType.HOST: PoolResource(MemoryType.HOST, HostPool())})


def test_a_variable_of_rdma_memory_lies_at_the_address_of_its_pool() -> None:
    graph = Graph("g")
    graph.create("Variable", "near", output_descs=[DESC])
    graph.create("Variable", "far", output_descs=[DESC], attrs={"_output_memory_type": 1})
    graph.create("Variable", "far2", output_descs=[DESC], attrs={"_output_memory_type": 1})
    manager = _manager()
    assigned = {node.name: address for node, address in assign_variable_memory(graph, manager, 1).items()}
    assert assigned == {"near": 128 << 30, "far": RDMA_POOL_BASE, "far2": RDMA_POOL_BASE + 512}
    entry = manager.resource.find("far", DESC)
    assert entry is not None
    assert (entry.memory_type, entry.offset) == (MemoryType.RDMA_HBM, RDMA_POOL_BASE), "the base is not added"
    assert manager.resource.memory_type_at(RDMA_POOL_BASE) is MemoryType.RDMA_HBM
    assert manager.memory_bytes(MemoryType.RDMA_HBM) == 256, "the counter does not round"
    assert manager.memory_bytes(MemoryType.HBM) == 1536


def test_a_known_variable_keeps_its_memory_type() -> None:
    manager = _manager()
    address = manager.assign("w", SIZED, memory_type=MemoryType.RDMA_HBM)
    smaller = TensorDesc(DataType.FLOAT16, (2, 2, 3, 2), size_bytes=96)
    assert manager.assign("w", smaller) == address
    entry = manager.resource.find("w", smaller)
    assert entry is not None and entry.memory_type is MemoryType.RDMA_HBM
    assert manager.hbm.used_bytes == 0


def test_a_variable_of_the_host_gets_zeros() -> None:
    manager = _manager()
    address = manager.assign("w", SIZED, memory_type=MemoryType.HOST)
    assert address == HOST_POOL_BASE
    pool = manager.pools[MemoryType.HOST].pool
    assert isinstance(pool, HostPool)
    assert pool.block(address) == bytes(128)
    pool.free(address)
    with pytest.raises(KeyError):
        pool.free(address)


def test_a_pool_that_is_missing_or_exhausted_is_an_error_and_takes_nothing() -> None:
    with pytest.raises(CompileError) as error:
        VarManager().assign("w", SIZED, memory_type=MemoryType.HOST)
    assert error.value.kind == "VAR_POOL_MISSING"
    manager = _manager(size=512)
    manager.assign("w", SIZED, memory_type=MemoryType.RDMA_HBM)
    with pytest.raises(CompileError) as error:
        manager.assign("v", SIZED, memory_type=MemoryType.RDMA_HBM)
    assert error.value.kind == "VAR_MEM_EXHAUSTED"
    assert not manager.exists("v") and manager.memory_bytes(MemoryType.RDMA_HBM) == 128


def test_a_failed_assignment_gives_the_pool_back() -> None:
    graph = Graph("g")
    graph.create("Variable", "far", output_descs=[DESC], attrs={"_output_memory_type": 1})
    graph.create("Variable", "huge", output_descs=[TensorDesc(DataType.FLOAT, (1 << 20,))])
    manager = _manager()
    manager.configure(MemoryLimits().with_var_max(4096))
    pool = manager.pools[MemoryType.RDMA_HBM].pool
    assert isinstance(pool, RdmaPool)
    with pytest.raises(CompileError, match="exhausted"):
        assign_variable_memory(graph, manager, 1)
    assert pool.free_bytes == 1 << 20
    assert manager.assign("far", SIZED, memory_type=MemoryType.RDMA_HBM) == RDMA_POOL_BASE


def test_the_smallest_block_that_fits_is_handed_out_and_split_only_for_half_of_it() -> None:
    pool = RdmaPool(16 * 512)
    first, second, third = pool.allocate(4 * 512), pool.allocate(1), pool.allocate(0)
    assert first is not None and second is not None and third is not None
    assert [address - RDMA_POOL_BASE for address in (first, second, third)] == [0, 2048, 2560]
    pool.free(first)
    assert pool.allocate(3 * 512) == first, "the block of 4 is better than the 10 behind it"
    assert pool.free_bytes == 10 * 512, "3 of 4 are more than half, so all 4 are taken"
    assert pool.allocate(11 * 512) is None


@given(st.lists(st.integers(0, 3000), max_size=30))
@settings(max_examples=60, deadline=None)
def test_blocks_of_a_pool_are_disjoint_and_all_of_it_comes_back(sizes: list[int]) -> None:
    pool = RdmaPool(1 << 15)
    held: dict[int, int] = {}
    for size in sizes:
        address = pool.allocate(size)
        if address is None:
            for each in sorted(held)[::2]:
                pool.free(each)
                del held[each]
            continue
        end = address + max(size, 1)
        assert address >= RDMA_POOL_BASE and end <= RDMA_POOL_BASE + (1 << 15) and address % 512 == 0
        assert all(end <= start or start + length <= address for start, length in held.items())
        held[address] = max(size, 1)
    for address in held:
        pool.free(address)
    assert pool.allocate(1 << 15) == RDMA_POOL_BASE
