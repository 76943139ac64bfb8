"""`VarManagerInfo` messages <-> variable managers (GE: deployer.VarManagerInfo): the session snapshot."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from gecli.errors import InputError
from gecli.pb import var_manager_pb2 as pb
from gecli.variables.broadcast import BroadcastInfo
from gecli.variables.interval_map import OverlapError
from gecli.variables.limits import MemoryLimits
from gecli.variables.mem_resource import MemoryType
from gecli.variables.sizes import span_bytes
from gecli.variables.var_key import VarKey, require_unambiguous
from gecli.variables.var_manager import VarManager
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

IN_DEVICE_MEMORY = (MemoryType.HBM, MemoryType.RDMA_HBM)


def encode_var_manager(manager: VarManager) -> bytes:
    """The snapshot of a session, the same for the same state.

    Raises CompileError (VAR_KEY_CONFLICT) when two keys have one text form.
    """
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
    _fill_resource(message.var_resource, manager.resource)
    message.mem_resource_map[int(MemoryType.HBM)].var_mem_size = manager.hbm.used_bytes
    data: bytes = message.SerializeToString(deterministic=True)
    return data


def decode_var_manager(data: bytes, *, path: str | None = None) -> VarManager:
    """The session in a snapshot. Raises InputError (DATA_CORRUPT) naming the field that contradicts another."""
    reader = AttrReader(path)
    try:
        message = pb.VarManagerInfo.FromString(data)
        if not message.var_mem_max_size:  # what no session has, but every file of strange fields
            raise _Contradiction("it is empty" if not data else "it gives no size of the variable memory")
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
    except (*DECODE_ERRORS, _Contradiction, ValueError) as error:
        raise InputError(
            "G3007",
            "the session snapshot cannot be used",
            why=str(error),
            kind="DATA_CORRUPT",
            file=path,
            do="make it again with --session-out",
        ) from error
    return manager


class _Contradiction(Exception):
    """A field of a snapshot that contradicts another."""


def _fill_resource(message: Message, resource: VarResource) -> None:
    require_unambiguous(resource.addresses)
    for key, entry in resource.addresses.items():
        target = message.var_addr_mgr_map[key.to_ge()]
        fill_var_desc(target.desc, entry.desc)
        target.address = entry.address
        target.offset = entry.offset
        target.memory_type = int(entry.memory_type)
        if entry.memory_type in IN_DEVICE_MEMORY:
            message.var_offset_map[entry.address] = int(entry.memory_type)
    fill_var_map(message.cur_var_tensor_desc_map, resource.current_descs)
    fill_roads(message.var_to_trans_road, resource.roads)
    message.var_names_to_changed_graph_id.update(resource.changed_graph_ids)
    message.var_names_to_allocated_graph_id.update(resource.allocated_graph_ids)
    for graph_id, infos in resource.broadcasts.items():
        target = message.var_broad_cast_info[graph_id]
        target.SetInParent()
        for info in infos:
            _fill_broadcast(target.broadcast_info[info.var_name], info)
    for block in resource.blocks:
        target = message.var_dev_addr_mgr_map[block.address]
        fill_var_desc(target.desc, replace(block.desc, size_bytes=block.capacity_bytes))
        target.address = block.address
        target.dev_addr = block.device_address


def _fill_broadcast(target: Message, info: BroadcastInfo) -> None:
    for name, value in info._asdict().items():
        setattr(target, name, value)


def _read_memory(message: Message, manager: VarManager) -> None:
    for kind in sorted(message.mem_resource_map):
        if kind != MemoryType.HBM:
            raise _Contradiction(f"mem_resource_map has memory type {kind}, which holds no variables")
        manager.hbm.used_bytes = message.mem_resource_map[kind].var_mem_size


def _read_resource(message: Message, manager: VarManager, reader: AttrReader) -> None:
    resource = manager.resource
    resource.current_descs = var_map_of(message.cur_var_tensor_desc_map, reader)
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
    in_memory: set[int] = set()
    for text in sorted(message.var_addr_mgr_map):
        source = message.var_addr_mgr_map[text]
        desc = var_desc_of(source.desc, reader)
        key = VarKey.parse(text, desc, resource.current_descs)
        kind = _memory_type(source.memory_type)
        if kind in IN_DEVICE_MEMORY:
            in_memory.add(source.address)
            if source.address != resource.logic_base + source.offset:
                raise _Contradiction(
                    f"var_addr_mgr_map[{text!r}]: address {source.address} is not base + offset {source.offset}"
                )
        resource.addresses[key] = VarAddress(desc, source.address, source.offset, kind)
    _same("var_offset_map", message.var_offset_map, in_memory)
    _same("var_dev_addr_mgr_map", message.var_dev_addr_mgr_map, in_memory)


def _read_blocks(message: Message, manager: VarManager, reader: AttrReader) -> None:
    resource = manager.resource
    owners: dict[int, str] = {}
    for key, entry in resource.addresses.items():
        owners.setdefault(entry.address, key.name)
    for address in sorted(message.var_dev_addr_mgr_map):
        source = message.var_dev_addr_mgr_map[address]
        desc = var_desc_of(source.desc, reader)
        block = Block(
            owners[address],
            address,
            desc.size_bytes,
            desc,
            _memory_type(message.var_offset_map[address]),
            source.dev_addr,
        )
        try:
            resource.blocks.add(address, address + max(block.capacity_bytes, 1), block)
        except OverlapError as error:
            raise _Contradiction(f"var_dev_addr_mgr_map[{address}]: {error}") from error
        if block.is_external:
            manager.hbm.placeholder_bytes += span_bytes(block.capacity_bytes)
        end = address - resource.logic_base + span_bytes(block.capacity_bytes)
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
