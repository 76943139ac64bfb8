"""`VarManagerInfo` messages <-> variable managers (GE: deployer.VarManagerInfo): the session snapshot."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from gecli.errors import InputError
from gecli.pb import var_manager_pb2 as pb
from gecli.variables.broadcast import BroadcastInfo
from gecli.variables.interval_map import OverlapError
from gecli.variables.limits import MemoryLimits
from gecli.variables.mem_resource import MemoryType, PoolResource
from gecli.variables.memory_pool import HostPool, RdmaPool
from gecli.variables.var_key import VarKey, parse_all, require_unambiguous
from gecli.variables.var_manager import VarManager, VarManagerPool
from gecli.variables.var_resource import Block, VarAddress, VarResource
from gecli.wire.attributes import AttrReader
from gecli.wire.decode_errors import DECODE_ERRORS
from gecli.wire.tensor_desc import Message
from gecli.wire.var_manager import (
    fill_roads,
    fill_var_desc,
    fill_var_map,
    roads_of,
    var_desc_of,
    var_map_of,
)

ASSIGNED = "_gecli_assigned"  # on a current descriptor: some graph gives the variable a value; GE has no field for it
IN_DEVICE_MEMORY = (MemoryType.HBM, MemoryType.RDMA_HBM)


def encode_var_manager(manager: VarManager, *, seed_keys: bool = False) -> bytes:
    """The snapshot of a session, the same for the same state; `seed_keys` writes `w_0_0` for GE's `w0_0`.

    Raises CompileError (VAR_KEY_CONFLICT) when two keys have one text form.
    """
    data: bytes = _message(manager, seed_keys).SerializeToString(deterministic=True)
    return data


def encode_var_managers(managers: Iterable[VarManager]) -> bytes:
    """The snapshots of several sessions in one message (GE: MultiVarManagerInfo). Raises as `encode_var_manager`."""
    message = pb.MultiVarManagerInfo(var_manager_info=[_message(manager, False) for manager in managers])
    data: bytes = message.SerializeToString(deterministic=True)
    return data


def decode_var_managers(data: bytes, *, path: str | None = None) -> VarManagerPool:
    """The sessions of a MultiVarManagerInfo by their ids. Raises InputError (DATA_CORRUPT)."""
    pool = VarManagerPool()
    with _refusing(path):
        for info in pb.MultiVarManagerInfo.FromString(data).var_manager_info:
            pool.put(_manager_of(info, AttrReader(path)))
    return pool


def _message(manager: VarManager, seed_keys: bool) -> Message:
    message = pb.VarManagerInfo(
        version=manager.version,
        session_id=manager.session_id,
        device_id=manager.device_id,
        job_id=manager.job_id,
        graph_mem_max_size=manager.limits.graph_max_bytes,
        var_mem_max_size=manager.limits.var_max_bytes,
        var_mem_logic_base=manager.logic_base,
        use_max_mem_size=manager.limits.use_max_bytes,
    )
    _fill_resource(message.var_resource, manager.resource, seed_keys)
    for kind in (MemoryType.HBM, *sorted(manager.pools)):
        message.mem_resource_map[int(kind)].var_mem_size = manager.memory(kind).used_bytes
    return message


def decode_var_manager(data: bytes, *, path: str | None = None, device_id: int | None = None) -> VarManager:
    """The session in a snapshot, on `device_id` (GE: the current device, never the one of the file).

    Raises InputError (DATA_CORRUPT) naming the field that contradicts another.
    """
    with _refusing(path):
        manager = _manager_of(pb.VarManagerInfo.FromString(data), AttrReader(path))
    if device_id is not None:
        manager.device_id = device_id
    return manager


@contextmanager
def _refusing(path: str | None) -> Iterator[None]:
    try:
        yield
    except (*DECODE_ERRORS, _Contradiction, ValueError) as error:
        raise InputError(
            "G3007",
            "the session snapshot cannot be used",
            why=str(error),
            kind="DATA_CORRUPT",
            file=path,
            do="make it again with --session-out",
        ) from error


def _manager_of(message: Message, reader: AttrReader) -> VarManager:
    if not message.var_mem_max_size:  # what no session has, but every file of strange fields
        raise _Contradiction("it gives no size of the variable memory" if message.ByteSize() else "it is empty")
    if message.version > 2:
        raise _Contradiction(f"version {message.version} is not 0, 1 or 2")
    limits = MemoryLimits(
        message.graph_mem_max_size,
        message.var_mem_max_size,
        message.use_max_mem_size,
        message.var_mem_logic_base,
    )
    manager = VarManager(
        message.session_id,
        limits,
        version=message.version,
        device_id=message.device_id,
        job_id=message.job_id,
    )
    _read_memory(message, manager)
    _read_resource(message.var_resource, manager, reader)
    return manager


class _Contradiction(Exception):
    """A field of a snapshot that contradicts another."""


def _fill_resource(message: Message, resource: VarResource, seed_keys: bool) -> None:
    require_unambiguous(resource.addresses, VarKey.to_seed if seed_keys else VarKey.to_ge)
    for key, entry in resource.addresses.items():
        target = message.var_addr_mgr_map[key.to_seed() if seed_keys else key.to_ge()]
        fill_var_desc(target.desc, entry.desc)
        target.address = entry.address
        target.offset = entry.offset
        target.memory_type = int(entry.memory_type)
        if entry.memory_type in IN_DEVICE_MEMORY:
            message.var_offset_map[entry.address] = int(entry.memory_type)
    assigned = resource.assigned_names
    fill_var_map(
        message.cur_var_tensor_desc_map,
        {
            name: desc.with_attr(ASSIGNED, True) if name in assigned else desc
            for name, desc in resource.current_descs.items()
        },
    )
    fill_roads(message.var_to_trans_road, resource.roads)
    message.var_names_to_changed_graph_id.update(resource.changed_graph_ids)
    message.var_names_to_allocated_graph_id.update(resource.allocated_graph_ids)
    for graph_id, infos in resource.broadcasts.items():
        target = message.var_broad_cast_info[graph_id]
        target.SetInParent()
        last = {info.var_name: info for info in infos}
        for info in infos:
            # GE's map has room for one operator a variable; the others stand under names that it does not ask for.
            plain = info is last[info.var_name]
            key_text = info.var_name if plain else f"{info.var_name}@{info.broadcast_name}:{info.idx}"
            _fill_broadcast(target.broadcast_info[key_text], info)
    for block in resource.blocks:
        if block.memory_type not in IN_DEVICE_MEMORY:
            continue
        target = message.var_dev_addr_mgr_map[block.address]
        fill_var_desc(target.desc, replace(block.desc, size_bytes=block.capacity_bytes))
        target.address = block.address
        target.dev_addr = block.device_address


def _fill_broadcast(target: Message, info: BroadcastInfo) -> None:
    for name, value in info._asdict().items():
        setattr(target, name, value)


def _read_memory(message: Message, manager: VarManager) -> None:
    for kind in sorted(message.mem_resource_map):
        used = message.mem_resource_map[kind].var_mem_size
        if kind == MemoryType.HBM:
            manager.hbm.used_bytes = used
        elif kind == MemoryType.RDMA_HBM:
            manager.pools[MemoryType.RDMA_HBM] = PoolResource(MemoryType.RDMA_HBM, RdmaPool(0), used)
        elif kind == MemoryType.HOST:
            manager.pools[MemoryType.HOST] = PoolResource(MemoryType.HOST, HostPool(), used)
        else:
            raise _Contradiction(f"mem_resource_map has memory type {kind}, which holds no variables")


def _read_resource(message: Message, manager: VarManager, reader: AttrReader) -> None:
    resource = manager.resource
    descs = var_map_of(message.cur_var_tensor_desc_map, reader)
    resource.set_assigned(name for name, desc in descs.items() if desc.attrs.get(ASSIGNED))
    resource.current_descs = {name: desc.without_attr(ASSIGNED) for name, desc in descs.items()}
    resource.roads = roads_of(message.var_to_trans_road, reader)
    _read_addresses(message, resource, reader)
    _read_blocks(message, manager, reader)
    for name, road in resource.roads.items():
        step = road.broken_at()
        if step is not None:
            raise _Contradiction(f"var_to_trans_road of {name!r}: step {step} does not begin where the last one ends")
    for name in sorted(message.var_names_to_changed_graph_id):
        resource.set_changed_graph_id(name, message.var_names_to_changed_graph_id[name])
    for name in sorted(message.var_names_to_allocated_graph_id):
        resource.set_allocated_graph_id(name, message.var_names_to_allocated_graph_id[name])
    for graph_id in sorted(message.var_broad_cast_info):
        infos = message.var_broad_cast_info[graph_id].broadcast_info
        resource.broadcasts[graph_id] = tuple(_broadcast(infos[name]) for name in sorted(infos))


def _read_addresses(message: Message, resource: VarResource, reader: AttrReader) -> None:
    in_memory: dict[int, MemoryType] = {}
    descs = {
        text: var_desc_of(message.var_addr_mgr_map[text].desc, reader) for text in sorted(message.var_addr_mgr_map)
    }
    for text, key in parse_all(descs, resource.current_descs).items():
        source, desc = message.var_addr_mgr_map[text], descs[text]
        kind = _memory_type(source.memory_type)
        if kind is MemoryType.HBM and source.address != resource.logic_base + source.offset:
            raise _Contradiction(
                f"var_addr_mgr_map[{text!r}]: address {source.address} is not base + offset {source.offset}"
            )
        if kind in IN_DEVICE_MEMORY and in_memory.setdefault(source.address, kind) is not kind:
            raise _Contradiction(f"var_addr_mgr_map[{text!r}]: address {source.address} is of two memory types")
        if kind is MemoryType.HOST and resource.blocks.get(source.address) is None:
            block = Block(key.name, source.address, desc.size_bytes, desc, kind)
            resource.blocks.add(source.address, source.address + max(desc.size_bytes, 1), block)
        resource.addresses[key] = VarAddress(desc, source.address, source.offset, kind)
    _same("var_offset_map", message.var_offset_map, set(in_memory))
    _same("var_dev_addr_mgr_map", message.var_dev_addr_mgr_map, set(in_memory))
    for address, kind in in_memory.items():
        if message.var_offset_map[address] != kind:
            raise _Contradiction(
                f"var_offset_map[{address}]: memory type {message.var_offset_map[address]}, var_addr_mgr_map has {kind}"
            )
    for name, desc in resource.current_descs.items():
        if VarKey.of(name, desc) not in resource.addresses:
            raise _Contradiction(f"cur_var_tensor_desc_map[{name!r}]: {desc} has no address in var_addr_mgr_map")


def _read_blocks(message: Message, manager: VarManager, reader: AttrReader) -> None:
    resource = manager.resource
    owners: dict[int, str] = {}
    for key, entry in resource.addresses.items():
        owners.setdefault(entry.address, key.name)
    for address in sorted(message.var_dev_addr_mgr_map):
        source = message.var_dev_addr_mgr_map[address]
        desc = var_desc_of(source.desc, reader)
        kind = _memory_type(message.var_offset_map[address])
        block = Block(owners[address], address, desc.size_bytes, desc, kind, source.dev_addr)
        if source.address != address:
            raise _Contradiction(f"var_dev_addr_mgr_map[{address}]: its entry is of address {source.address}")
        try:
            resource.blocks.add(address, address + max(block.capacity_bytes, 1), block)
        except OverlapError as error:
            raise _Contradiction(f"var_dev_addr_mgr_map[{address}]: {error}") from error
        if kind is not MemoryType.HBM:
            continue
        if block.is_external:
            manager.hbm.placeholder_bytes += block.span_bytes
        end = address - resource.logic_base + block.span_bytes
        if end > manager.hbm.used_bytes:
            raise _Contradiction(f"var_mem_size {manager.hbm.used_bytes} is less than {end}, where {block.name!r} ends")


def _same(field: str, found: Iterable[int], expected: set[int]) -> None:
    difference = sorted(set(found) ^ expected)
    if difference:
        raise _Contradiction(f"{field} and var_addr_mgr_map differ at address {difference[0]}")


def _memory_type(number: int) -> MemoryType:
    try:
        return MemoryType(number)
    except ValueError:
        raise _Contradiction(f"memory type {number} is unknown") from None


def _broadcast(message: Message) -> BroadcastInfo:
    values: dict[str, Any] = {name: getattr(message, name) for name in BroadcastInfo._fields}
    return BroadcastInfo(**values)
