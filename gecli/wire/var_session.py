"""`VarManagerInfo` messages <-> variable managers (GE: deployer.VarManagerInfo): the session snapshot."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import field, replace
from operator import itemgetter
from typing import Any, NamedTuple

from gecli.errors import InputError
from gecli.ir.tensor_desc import TensorDesc
from gecli.pb import var_manager_pb2 as pb
from gecli.records import dataclass
from gecli.variables.broadcast import BroadcastInfo
from gecli.variables.interval_map import OverlapError
from gecli.variables.limits import MemoryLimits
from gecli.variables.mem_resource import MemoryType, PoolResource
from gecli.variables.memory_pool import HostPool, RdmaPool
from gecli.variables.trans_road import TransRoad
from gecli.variables.var_key import VarKey, parse_all, require_unambiguous
from gecli.variables.var_manager import VarManager, VarManagerPool
from gecli.variables.var_resource import Block, VarAddress, VarResource
from gecli.wire.attributes import AttrReader
from gecli.wire.byte_source import ByteSource, MemorySource
from gecli.wire.decode_errors import DECODE_ERRORS, reason
from gecli.wire.field_scan import FieldScanner
from gecli.wire.memory_budget import ROOM, MemoryBudget, is_about_memory
from gecli.wire.tensor_desc import Message
from gecli.wire.var_manager import ENTRY_COST, PARSED_FACTOR, VarReader, VarWriter, in_name_order, parsed_pieces
from gecli.wire.walker import LENGTH_DELIMITED, WireError

ASSIGNED = "_gecli_assigned"  # on a current descriptor: some graph gives the variable a value; GE has no field for it
IN_DEVICE_MEMORY = (MemoryType.HBM, MemoryType.RDMA_HBM)
RESOURCE, MEMORY = 9, 10  # fields of VarManagerInfo: variables, and how much there is of each type of memory
SESSIONS = 1  # of MultiVarManagerInfo
# Bytes of memory for an entry, as it is read and as it is kept; measured with CPython 3.11.
_ADDRESS_COST, _BLOCK_COST, _BROADCAST_COST = 800, 500, 500


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
    scanner = FieldScanner(MemorySource(data))
    reader = _reader(len(data), path)
    with _refusing(path):
        for span in scanner.spans(0, len(data)):
            if span.number == SESSIONS and span.kind == LENGTH_DELIMITED:
                pool.put(_manager_of(scanner, span.body, span.end, reader))
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
    """The session in the bytes of a snapshot. Raises as `read_var_manager`."""
    return read_var_manager(MemorySource(data), path=path, device_id=device_id)


def read_var_manager(source: ByteSource, *, path: str | None = None, device_id: int | None = None) -> VarManager:
    """The session in a snapshot, on `device_id` (GE: the current device, never the one of the file).

    Raises InputError (DATA_CORRUPT) naming the field that contradicts another.
    """
    with _refusing(path):
        manager = _manager_of(FieldScanner(source), 0, source.size, _reader(source.size, path))
    if device_id is not None:
        manager.device_id = device_id
    return manager


def _reader(size: int, path: str | None) -> VarReader:
    return VarReader(AttrReader(path, budget=MemoryBudget(size)))


@contextmanager
def _refusing(path: str | None) -> Iterator[None]:
    try:
        yield
    except (*DECODE_ERRORS, _Contradiction, ValueError) as error:
        raise InputError(
            "G3007",
            "the session snapshot cannot be used",
            why=f"{error}; {ROOM}" if is_about_memory(error) else reason(error),
            kind="DATA_CORRUPT",
            file=path,
            offset=error.offset if isinstance(error, WireError) else None,
            do="make it again with --session-out",
        ) from error


def _manager_of(scanner: FieldScanner, begin: int, end: int, reader: VarReader) -> VarManager:
    """The session in the VarManagerInfo of a range."""
    tables = _Tables()
    rest: list[bytes] = []
    for span in scanner.spans(begin, end):
        if span.number == RESOURCE and span.kind == LENGTH_DELIMITED:
            for piece in parsed_pieces(pb.VarResourceInfo, scanner, span.body, span.end, reader):
                tables.add(piece, reader)
        elif span.number < RESOURCE or span.number == MEMORY:
            reader.budget.spend(PARSED_FACTOR * (span.end - span.begin))
            rest.append(scanner.take(span.begin, span.end))
    message = pb.VarManagerInfo.FromString(b"".join(rest))
    if not message.var_mem_max_size:  # what no session has, but every file of strange fields
        raise _Contradiction("it gives no size of the variable memory" if end > begin else "it is empty")
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
    _read_resource(tables, manager)
    return manager


class _Contradiction(Exception):
    """A field of a snapshot that contradicts another."""


class _Address(NamedTuple):
    """An entry of var_addr_mgr_map."""

    desc: TensorDesc
    address: int
    offset: int
    memory_type: int


@dataclass(slots=True)
class _Tables:
    """What a VarResourceInfo says, under its names."""

    var_addr_mgr_map: dict[str, _Address] = field(default_factory=dict)
    var_dev_addr_mgr_map: dict[int, tuple[TensorDesc, int, int]] = field(default_factory=dict)
    var_offset_map: dict[int, int] = field(default_factory=dict)
    descs: dict[str, TensorDesc] = field(default_factory=dict)
    roads: dict[str, TransRoad] = field(default_factory=dict)
    changed_graph_ids: dict[str, int] = field(default_factory=dict)
    allocated_graph_ids: dict[str, int] = field(default_factory=dict)
    broadcasts: dict[int, tuple[BroadcastInfo, ...]] = field(default_factory=dict)

    def add(self, message: Message, reader: VarReader) -> None:
        """Take in some of the entries."""
        reader.add(message.cur_var_tensor_desc_map, self.descs, reader.desc)
        reader.add(message.var_to_trans_road, self.roads, reader.road)
        reader.add(message.var_names_to_changed_graph_id, self.changed_graph_ids, int)
        reader.add(message.var_names_to_allocated_graph_id, self.allocated_graph_ids, int)
        addresses, blocks, types = message.var_addr_mgr_map, message.var_dev_addr_mgr_map, message.var_offset_map
        reader.budget.spend(_ADDRESS_COST * len(addresses) + _BLOCK_COST * len(blocks) + ENTRY_COST * len(types))
        for text, entry in addresses.items():
            desc = reader.desc(entry.desc)
            self.var_addr_mgr_map[text] = _Address(desc, entry.address, entry.offset, entry.memory_type)
        for address, entry in blocks.items():
            self.var_dev_addr_mgr_map[address] = (reader.desc(entry.desc), entry.address, entry.dev_addr)
        self.var_offset_map.update(types)
        for graph_id, infos in message.var_broad_cast_info.items():
            table = infos.broadcast_info
            reader.budget.spend(ENTRY_COST + _BROADCAST_COST * len(table))
            self.broadcasts[graph_id] = tuple(_broadcast(table[name]) for name in sorted(table))


def _fill_resource(message: Message, resource: VarResource, seed_keys: bool) -> None:
    require_unambiguous(resource.addresses, VarKey.to_seed if seed_keys else VarKey.to_ge)
    writer = VarWriter()
    for key, entry in resource.addresses.items():
        target = message.var_addr_mgr_map[key.to_seed() if seed_keys else key.to_ge()]
        target.desc = writer.desc(entry.desc)
        target.address = entry.address
        target.offset = entry.offset
        target.memory_type = int(entry.memory_type)
        if entry.memory_type in IN_DEVICE_MEMORY:
            message.var_offset_map[entry.address] = int(entry.memory_type)
    assigned = resource.assigned_names
    writer.fill_descs(
        message.cur_var_tensor_desc_map,
        {
            name: desc.with_attr(ASSIGNED, True) if name in assigned else desc
            for name, desc in resource.current_descs.items()
        },
    )
    writer.fill_roads(message.var_to_trans_road, resource.roads)
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
        target.desc = writer.desc(replace(block.desc, size_bytes=block.capacity_bytes))
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


def _read_resource(tables: _Tables, manager: VarManager) -> None:
    resource = manager.resource
    descs = in_name_order(tables.descs)
    resource.set_assigned(name for name, desc in descs.items() if desc.attrs.get(ASSIGNED))
    plain: dict[int, TensorDesc] = {}  # equal descriptors are one object, and stay one without the mark
    resource.current_descs = {
        name: plain.get(id(desc)) or plain.setdefault(id(desc), desc.without_attr(ASSIGNED))
        for name, desc in descs.items()
    }
    resource.roads = in_name_order(tables.roads)
    _read_addresses(tables, resource)
    _read_blocks(tables, manager)
    for name, road in resource.roads.items():
        step = road.broken_at()
        if step is not None:
            raise _Contradiction(f"var_to_trans_road of {name!r}: step {step} does not begin where the last one ends")
    for name, graph_id in in_name_order(tables.changed_graph_ids).items():
        resource.set_changed_graph_id(name, graph_id)
    for name, graph_id in in_name_order(tables.allocated_graph_ids).items():
        resource.set_allocated_graph_id(name, graph_id)
    resource.broadcasts.update(sorted(tables.broadcasts.items()))


def _read_addresses(tables: _Tables, resource: VarResource) -> None:
    in_memory: dict[int, MemoryType] = {}
    entries = tables.var_addr_mgr_map
    descs = {text: entries[text].desc for text in sorted(entries)}
    for text, key in parse_all(descs, resource.current_descs).items():
        desc, address, offset, number = entries[text]
        kind = _memory_type(number)
        if kind is MemoryType.HBM and address != resource.logic_base + offset:
            raise _Contradiction(f"var_addr_mgr_map[{text!r}]: address {address} is not base + offset {offset}")
        if kind in IN_DEVICE_MEMORY and in_memory.setdefault(address, kind) is not kind:
            raise _Contradiction(f"var_addr_mgr_map[{text!r}]: address {address} is of two memory types")
        if kind is MemoryType.HOST and resource.blocks.get(address) is None:
            block = Block(key.name, address, desc.size_bytes, desc, kind)
            resource.blocks.add(address, address + max(desc.size_bytes, 1), block)
        resource.addresses[key] = VarAddress(desc, address, offset, kind)
    _same("var_offset_map", tables.var_offset_map, set(in_memory))
    _same("var_dev_addr_mgr_map", tables.var_dev_addr_mgr_map, set(in_memory))
    for address, kind in in_memory.items():
        if tables.var_offset_map[address] != kind:
            found = tables.var_offset_map[address]
            raise _Contradiction(f"var_offset_map[{address}]: memory type {found}, var_addr_mgr_map has {kind}")
    for name, desc in resource.current_descs.items():
        if VarKey.of(name, desc) not in resource.addresses:
            raise _Contradiction(f"cur_var_tensor_desc_map[{name!r}]: {desc} has no address in var_addr_mgr_map")


def _read_blocks(tables: _Tables, manager: VarManager) -> None:
    resource = manager.resource
    owners: dict[int, str] = {}
    for key, entry in resource.addresses.items():
        owners.setdefault(entry.address, key.name)
    for address, (desc, own, device_address) in sorted(tables.var_dev_addr_mgr_map.items(), key=itemgetter(0)):
        kind = _memory_type(tables.var_offset_map[address])
        block = Block(owners[address], address, desc.size_bytes, desc, kind, device_address)
        if own != address:
            raise _Contradiction(f"var_dev_addr_mgr_map[{address}]: its entry is of address {own}")
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
