"""What a session knows about its variables (GE: VarResource): addresses, current descs, roads, graph ids."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from gecli.errors import InputError
from gecli.ir.attributes import SHA256_ATTR, VALUE
from gecli.ir.op_desc import OpDesc
from gecli.ir.tensor_desc import TensorDesc
from gecli.records import dataclass
from gecli.variables import var_faults
from gecli.variables.broadcast import BroadcastInfo
from gecli.variables.constant_index import CONSTANT, ConstantIndex
from gecli.variables.interval_map import IntervalMap, OverlapError
from gecli.variables.mem_resource import HbmResource, MemoryType, MemResource
from gecli.variables.placeholder import CONST_PLACEHOLDER, placeholder_address
from gecli.variables.sizes import span_bytes
from gecli.variables.trans_road import TransRoad
from gecli.variables.var_key import VarKey

FILE_CONSTANT = "FileConstant"


@dataclass(frozen=True, slots=True)
class VarAddress:
    """Where one storage form of a variable lies (GE: VarAddrMgr). `offset` counts from the variable base."""

    desc: TensorDesc
    address: int
    offset: int
    memory_type: MemoryType = MemoryType.HBM


@dataclass(frozen=True, slots=True)
class Block:
    """Memory at one logical address (GE: VarDevAddrMgr). Several storage forms, or equal constants, may share it.

    `desc` is the descriptor the block was made for, `capacity_bytes` its size without alignment and guards.
    `device_address` is 0 except for memory supplied from outside.
    """

    name: str
    address: int
    capacity_bytes: int
    desc: TensorDesc
    memory_type: MemoryType = MemoryType.HBM
    device_address: int = 0

    @property
    def span_bytes(self) -> int:
        """What the block takes of its memory: guards surround it in HBM only."""
        return span_bytes(self.capacity_bytes) if self.memory_type is MemoryType.HBM else self.capacity_bytes

    @property
    def is_external(self) -> bool:
        return self.device_address != 0


class VarResource:
    """The variable tables of one session.

    Names may be batch names: `w_ascend_mbatch_batch_1` shares everything with `w` once that is recorded. A method
    that raises leaves the tables as they were.
    """

    __slots__ = (
        "_changed_names",
        "addresses",
        "allocated_graph_ids",
        "assigned_names",
        "batch_names",
        "blocks",
        "broadcasts",
        "changed_graph_ids",
        "constants",
        "current_descs",
        "file_constants",
        "graph_names",
        "logic_base",
        "roads",
        "staged_descs",
    )

    def __init__(self, logic_base: int) -> None:
        self.logic_base = logic_base
        self.addresses: dict[VarKey, VarAddress] = {}
        self.blocks: IntervalMap[Block] = IntervalMap()
        self.current_descs: dict[str, TensorDesc] = {}
        self.roads: dict[str, TransRoad] = {}
        self.changed_graph_ids: dict[str, int] = {}
        self.allocated_graph_ids: dict[str, int] = {}
        self.staged_descs: dict[int, dict[str, TensorDesc]] = {}
        self.broadcasts: dict[int, tuple[BroadcastInfo, ...]] = {}
        self.file_constants: dict[str, VarKey] = {}
        self.constants = ConstantIndex()
        self.batch_names: dict[str, str] = {}
        self.graph_names: dict[int, str] = {}  # for messages only
        self.assigned_names: frozenset[str] = frozenset()  # given a value by a compiled graph
        self._changed_names: dict[int, set[str]] = {}

    def copy(self) -> VarResource:
        """An independent copy; descriptors and roads are shared, they never change."""
        other = VarResource(self.logic_base)
        other.become(self)
        return other

    def become(self, state: VarResource) -> None:
        """Take over the tables of `state`, which stays independent."""
        self.logic_base = state.logic_base
        self.addresses = dict(state.addresses)
        self.blocks = state.blocks.copy()
        self.current_descs = dict(state.current_descs)
        self.roads = dict(state.roads)
        self.changed_graph_ids = dict(state.changed_graph_ids)
        self.allocated_graph_ids = dict(state.allocated_graph_ids)
        self.staged_descs = {graph_id: dict(descs) for graph_id, descs in state.staged_descs.items()}
        self.broadcasts = dict(state.broadcasts)
        self.file_constants = dict(state.file_constants)
        self.constants = state.constants.copy()
        self.batch_names = dict(state.batch_names)
        self.graph_names = dict(state.graph_names)
        self.assigned_names = state.assigned_names
        self._changed_names = {graph_id: set(names) for graph_id, names in state._changed_names.items()}

    def without_addresses(self) -> VarResource:
        """A copy that knows no address and no form: what is assigned to it begins at the base again."""
        other = self.copy()
        other.addresses, other.blocks, other.current_descs = {}, IntervalMap(), {}
        other.constants, other.file_constants, other.broadcasts = ConstantIndex(), {}, {}
        return other

    def forget_unassigned(self) -> None:
        """Drop what is known of variables that have no form here."""
        for table in (self.roads, self.changed_graph_ids, self.allocated_graph_ids):
            for name in [name for name in table if name not in self.current_descs]:
                del table[name]
        self.assigned_names &= self.current_descs.keys()

    # ------------------------------------------------------------------ names and look-up

    def base_name(self, name: str) -> str:
        return self.batch_names.get(name, name)

    def share_batch_name(self, batch_name: str, name: str) -> None:
        """Let a multi-batch copy of a variable stand for the variable (GE: SetBatchVariablesKeyName)."""
        self.batch_names[batch_name] = name

    def session_name(self, name: str, node: OpDesc) -> str:
        """The name under which the session keeps a node. Raises as `ConstantIndex.name_of`."""
        data = file_place(node) or (node.attrs.get(VALUE) if node.type == CONSTANT else None)
        if data is None and node.type in (CONSTANT, FILE_CONSTANT, CONST_PLACEHOLDER):
            return name
        return self.constants.name_of(name, data)

    @property
    def shares_memory_between_batches(self) -> bool:
        """True turns variable acceleration off for the session (GE: HasSharedVarMemBetweenBatch)."""
        return bool(self.batch_names)

    def key(self, name: str, desc: TensorDesc) -> VarKey:
        return VarKey.of(self.base_name(name), desc)

    def exists(self, name: str) -> bool:
        return self.base_name(name) in self.current_descs

    def exists_as(self, name: str, desc: TensorDesc) -> bool:
        """True when the variable has an address in this format and type; the shape is not compared."""
        return self.key(name, desc) in self.addresses

    def current_desc(self, name: str) -> TensorDesc | None:
        return self.current_descs.get(self.base_name(name))

    def find(self, name: str, desc: TensorDesc) -> VarAddress | None:
        return self.addresses.get(self.key(name, desc))

    def address_of(self, name: str, desc: TensorDesc) -> int:
        """The logical address of a variable in the form of `desc`. Raises CompileError (VAR_NOT_FOUND)."""
        entry = self.find(name, desc)
        if entry is None:
            current = self.current_desc(name)
            raise var_faults.not_found(name, f"no address in {desc}; the current descriptor is {current}")
        return entry.address

    def is_var_address(self, address: int) -> bool:
        """True for the logical address at which a variable starts."""
        return self.blocks.get(address) is not None

    def memory_type_at(self, address: int) -> MemoryType:
        """Memory type of the variable that starts at `address`; RESERVED when none does."""
        block = self.blocks.get(address)
        return MemoryType.RESERVED if block is None else block.memory_type

    def resolve(self, address: int) -> tuple[Block, int] | None:
        """The block that holds a logical address, and the offset inside; None in guards and beyond."""
        found = self.blocks.find(address)
        return None if found is None else (found[1], address - found[0])

    def declared_descs(self) -> dict[str, TensorDesc]:
        """Each variable in the form its user declared (GE: GetAllVariables). Raises CompileError when there is none."""
        if not self.current_descs:
            raise var_faults.not_found("*", "the session has no variables")
        return {name: self.declared_desc(name) or desc for name, desc in sorted(self.current_descs.items())}

    def declared_desc(self, name: str) -> TensorDesc | None:
        """The input of the variable's road, or its current descriptor when it has none."""
        road = self.trans_road(name)
        return road.source if road else self.current_desc(name)

    # ------------------------------------------------------------------ addresses

    def assign(
        self, name: str, desc: TensorDesc, memory: MemResource, node: OpDesc | None = None, where: str = ""
    ) -> int:
        """Give the variable an address in the form of `desc` (GE: AssignVarMem) and make that its current form.

        Reuse, in this order: the address of this very form; the block of the current form when it is large enough;
        for a new name, the block of an equal constant or file constant. Otherwise a new block. Raises CompileError
        (VAR_SHAPE_GROWS) when this form exists in a block that is too small.
        """
        key = self.key(name, desc)
        known = self.addresses.get(key)
        if known is not None:
            self.use_again(name, desc, where)
            return known.address
        address = self._reusable(key.name, desc, node)
        if address is None:
            address = self._allocate(key.name, desc, memory, node)
        self._enter(key, desc, address, node)
        self._make_current(key.name, desc)
        return address

    def require_fits(self, name: str, desc: TensorDesc, where: str = "") -> None:
        """Refuse a form whose existing block is too small (GE compares format and type only).

        Raises CompileError (VAR_SHAPE_GROWS) naming the graph that allocated the block.
        """
        known = self.find(name, desc)
        block = None if known is None else self.blocks.get(known.address)
        if known is None or block is None or desc.size_bytes <= block.capacity_bytes:
            return
        owner = self.graph_names.get(self.allocated_graph_ids.get(self.base_name(name), -1), "")
        place = where + (f", block allocated by graph {owner!r}" if owner else "")
        raise var_faults.shape_grows(name, known.desc, desc, block.capacity_bytes, place)

    def use_again(self, name: str, desc: TensorDesc, where: str = "") -> None:
        """Let an existing form be the current one, which GE leaves alone: the record of a compile says what it stores.

        Raises as `require_fits`.
        """
        self.require_fits(name, desc, where)
        self._make_current(self.base_name(name), desc)

    def set_address(self, name: str, desc: TensorDesc, address: int) -> None:
        """Let the variable live at an existing address in the form of `desc` (GE: SetVarAddr)."""
        key = self.key(name, desc)
        self._enter(key, desc, address, None)
        self.current_descs[key.name] = desc

    def restore(
        self,
        name: str,
        desc: TensorDesc,
        address: int,
        hbm: HbmResource,
        var_max_bytes: int,
        *,
        strict_addresses: bool = False,
        device_address: int = 0,
    ) -> int:
        """Take over a variable of a loaded model with the address the model gives it (GE: RestoreVarMem).

        A known variable keeps its session address; with `strict_addresses` the model must give the same. One with a
        `device_address` is a placeholder, whose memory is not the session's (GE does not restore these). Raises
        InputError under the runtime's names (RT_VAR_GREW, RT_ADDR_OUT_OF_RANGE, RT_VAR_OVERLAP).
        """
        key = self.key(name, desc)
        current = self.current_descs.get(key.name)
        entry = None if current is None else self.addresses.get(VarKey.of(key.name, current))
        if current is not None and entry is not None:
            if strict_addresses and entry.address != address:
                raise _two_addresses(key.name, entry.address, address)
            return self._restore_known(key, current, entry, desc)
        known = self.addresses.get(key)
        if known is not None and known.address != address:
            raise _two_addresses(key.name, known.address, address)
        self._place_restored(key.name, desc, address, hbm, var_max_bytes, device_address)
        self._enter(key, desc, address, None)
        self.current_descs[key.name] = desc
        return address

    def _restore_known(self, key: VarKey, current: TensorDesc, entry: VarAddress, desc: TensorDesc) -> int:
        if current.same_storage(desc):
            return entry.address
        block = self.blocks.get(entry.address)
        capacity = current.size_bytes if block is None else block.capacity_bytes
        if desc.size_bytes > capacity:
            raise var_faults.restore_fault(
                "RT_VAR_GREW",
                key.name,
                f"variable {key.name!r} needs more bytes than the session gave it",
                f"the session has {current} in {capacity} bytes; the model has {desc} in {desc.size_bytes}",
                "compile the model again in this session",
            )
        self._enter(key, desc, entry.address, None)
        self.current_descs[key.name] = desc
        return entry.address

    def _place_restored(
        self, name: str, desc: TensorDesc, address: int, hbm: HbmResource, limit: int, device_address: int
    ) -> None:
        offset = address - self.logic_base
        if desc.size_bytes < 0 or offset < 0 or offset + desc.size_bytes > limit:
            raise var_faults.restore_fault(
                "RT_ADDR_OUT_OF_RANGE",
                name,
                f"variable {name!r} lies outside variable memory",
                f"{desc.size_bytes} bytes at {address:#x}; variable memory has {limit} bytes from {self.logic_base:#x}",
            )
        shared = self.blocks.get(address)  # equal constants share a block
        if shared is not None and shared.capacity_bytes >= desc.size_bytes:
            return
        try:
            if shared is None:
                block = Block(name, address, desc.size_bytes, desc, device_address=device_address)
                self._add_block(block)
                hbm.placeholder_bytes += block.span_bytes if block.is_external else 0
            else:
                end = address + desc.size_bytes
                self.blocks.extend(address, end, replace(shared, capacity_bytes=desc.size_bytes))
        except OverlapError as error:
            other = self.blocks.get(error.start)
            raise var_faults.restore_fault(
                "RT_VAR_OVERLAP",
                name,
                f"variable {name!r} overlaps variable {other.name if other else '?'!r}",
                f"{desc.size_bytes} bytes at {address:#x} meet {error.start:#x}..{error.end:#x}",
                var_faults.ONE_SESSION,
            ) from None
        # GE leaves the counter at 0, so that the next assignment would overlap what was restored.
        hbm.reserve(offset, desc.size_bytes)

    def _reusable(self, name: str, desc: TensorDesc, node: OpDesc | None) -> int | None:
        current = self.current_descs.get(name)
        if current is not None:
            entry = self.addresses.get(VarKey.of(name, current))
            block = None if entry is None else self.blocks.get(entry.address)
            return block.address if block is not None and desc.size_bytes <= block.capacity_bytes else None
        if node is None:
            return None
        if node.type == FILE_CONSTANT:
            return self._same_file_constant(name, desc, node)
        return self.constants.find(node, desc.size_bytes)

    def _same_file_constant(self, name: str, desc: TensorDesc, node: OpDesc) -> int | None:
        place = file_place(node)
        key = self.file_constants.get(place) if place else None
        entry = None if key is None else self.addresses.get(key)
        block = None if entry is None else self.blocks.get(entry.address)
        if key is None or block is None:
            return None
        if block.capacity_bytes != desc.size_bytes:  # GE does not compare: a longer tensor would reuse a shorter block
            raise var_faults.key_conflict(
                name,
                f"{place} is {key.name!r} with {block.capacity_bytes} bytes; this one has {desc.size_bytes}",
            )
        return block.address

    def _allocate(self, name: str, desc: TensorDesc, memory: MemResource, node: OpDesc | None) -> int:
        external = node is not None and node.type == CONST_PLACEHOLDER
        device_address = placeholder_address(node) if node is not None and external else 0
        planned = memory.next_address(self.logic_base)
        if planned is not None:
            self._require_free(name, planned, desc.size_bytes)
        address = memory.place(desc.size_bytes, self.logic_base, placeholder=external)
        self._add_block(Block(name, address, desc.size_bytes, desc, memory.kind, device_address))
        return address

    def _require_free(self, name: str, address: int, size: int) -> None:
        try:
            self.blocks.place_of(address, address + max(size, 1))
        except OverlapError as error:
            other = self.blocks.get(error.start)
            raise var_faults.overlap(name, address, size, other.name if other else "?", error.start) from None

    def _add_block(self, block: Block) -> None:
        # The guards belong to the allocator: only the tensor's bytes can be addressed.
        self.blocks.add(block.address, block.address + max(block.capacity_bytes, 1), block)

    def _enter(self, key: VarKey, desc: TensorDesc, address: int, node: OpDesc | None) -> None:
        if key in self.addresses:
            return
        block = self.blocks.get(address)
        kind = MemoryType.HBM if block is None else block.memory_type
        # Outside HBM an address is the pool's own, and so is the offset.
        offset = address - self.logic_base if kind is MemoryType.HBM else address
        self.addresses[key] = VarAddress(desc, address, offset, kind)
        if node is None:
            return
        place = file_place(node)
        if place:
            self.file_constants.setdefault(place, key)
        if block is not None:
            self.constants.add(node, address, block.capacity_bytes)

    def _make_current(self, name: str, desc: TensorDesc) -> None:
        current = self.current_descs.get(name)
        if current is None or not current.same_storage(desc):
            self.current_descs[name] = desc

    # ------------------------------------------------------------------ descriptors and roads

    def renew(self, name: str, desc: TensorDesc, *, with_shape: bool = False) -> None:
        """Give the current descriptor the format and origin format of `desc`, and re-key its address.

        GE: RenewCurVarDesc. `with_shape` takes the dims too, for a road that only changes the description. An unknown
        name has no effect. Raises CompileError (VAR_NOT_FOUND, VAR_KEY_CONFLICT).
        """
        base = self.base_name(name)
        current = self.current_descs.get(base)
        if current is None:
            return
        old, new = VarKey.of(base, current), VarKey(base, desc.format, current.dtype)
        entry = self.addresses.get(old)
        if entry is None:
            raise var_faults.not_found(name, f"its current form {current} has no address")
        taken = self.addresses.get(new)
        if taken is not None and taken.address != entry.address:
            raise var_faults.key_conflict(
                name, f"{desc.format} is at {taken.address:#x}, its current form {current} at {entry.address:#x}"
            )
        self.current_descs[base] = _renewed(current, desc, with_shape)
        del self.addresses[old]
        self.addresses[new] = replace(entry, desc=_renewed(entry.desc, desc, with_shape))

    def record_staged(self, graph_id: int, name: str, desc: TensorDesc) -> None:
        """Remember how an existing variable looked when variable acceleration began on a graph."""
        self.staged_descs.setdefault(graph_id, {})[name] = desc

    def staged(self, graph_id: int) -> Mapping[str, TensorDesc]:
        return self.staged_descs.get(graph_id, {})

    def trans_road(self, name: str) -> TransRoad | None:
        """The variable's road; None when it has none (an empty road is a road)."""
        return self.roads.get(self.base_name(name))

    def set_trans_road(self, name: str, road: TransRoad) -> None:
        """Store a road. Raises CompileError (VAR_ROAD_CONFLICT) when the variable has another one; GE ignores it."""
        base = self.base_name(name)
        known = self.roads.setdefault(base, road)
        if not known.same_as(road):
            raise var_faults.road_conflict(name, known, road)

    # ------------------------------------------------------------------ graph ids

    def set_changed_graph_id(self, name: str, graph_id: int) -> None:
        """Record the graph that changed the variable's form; the name stays in an earlier graph's set."""
        base = self.base_name(name)
        self.changed_graph_ids[base] = graph_id
        self._changed_names.setdefault(graph_id, set()).add(base)

    def changed_graph_id(self, name: str) -> int | None:
        return self.changed_graph_ids.get(self.base_name(name))

    def changed_names(self, graph_id: int) -> tuple[str, ...]:
        """The variables this graph changed, ascending."""
        return tuple(sorted(self._changed_names.get(graph_id, ())))

    def remove_changed_graph_id(self, name: str) -> None:
        """Forget that the variable changed, because its data have been converted."""
        base = self.base_name(name)
        graph_id = self.changed_graph_ids.pop(base, None)
        if graph_id is None:
            return
        left = self._changed_names.get(graph_id, set())
        left.discard(base)
        if not left:
            self._changed_names.pop(graph_id, None)

    def set_allocated_graph_id(self, name: str, graph_id: int) -> None:
        """Record the graph that created the variable; the first one wins."""
        self.allocated_graph_ids.setdefault(self.base_name(name), graph_id)

    def allocated_graph_id(self, name: str) -> int | None:
        return self.allocated_graph_ids.get(self.base_name(name))

    def graph_name(self, graph_id: int) -> str:
        """The name of a graph of this command; a session file keeps no names."""
        return self.graph_names.get(graph_id, f"graph {graph_id} of an earlier command")

    def set_assigned(self, names: Iterable[str]) -> None:
        """Record variables that a graph gives a value: written in it, or with an initial value."""
        self.assigned_names |= {self.base_name(name) for name in names}

    def is_assigned(self, name: str) -> bool:
        """True when some compiled graph gives the variable a value. GE asks whether some graph mentions it."""
        return self.base_name(name) in self.assigned_names

    def save_broadcast(self, graph_id: int, info: BroadcastInfo) -> None:
        """Record a broadcast of a variable; the same operator input replaces its record."""
        same = (info.var_name, info.broadcast_name, info.idx)
        kept = tuple(i for i in self.broadcasts.get(graph_id, ()) if (i.var_name, i.broadcast_name, i.idx) != same)
        self.broadcasts[graph_id] = (*kept, info)


def file_place(node: OpDesc) -> str:
    """`path:offset` of a FileConstant; empty for other nodes and without a path.

    A graph that is compiled again may have other bytes at the same place, so the digest counts where there is one.
    """
    location = node.attrs.get("location") if node.type == FILE_CONSTANT else None
    return f"{location}:{node.attrs.get('offset', 0)}{node.attrs.get(SHA256_ATTR, '')}" if location else ""


def _two_addresses(name: str, known: int, given: int) -> InputError:
    return var_faults.restore_fault(
        "RT_VAR_OVERLAP",
        name,
        f"variable {name!r} has two addresses",
        f"the session has it at {known:#x}, the model at {given:#x}",
        var_faults.ONE_SESSION,
    )


def _renewed(old: TensorDesc, new: TensorDesc, with_shape: bool) -> TensorDesc:
    """`old` with format and origin format of `new`, and its dims on request."""
    shape, origin = (new.shape, new.logical_shape) if with_shape else (old.shape, old.logical_shape)
    return replace(old, shape=shape, format=new.format, origin_shape=origin, origin_format=new.logical_format)
