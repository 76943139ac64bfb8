"""Where the variables of a session lie on its devices (GE: GetVarMemoryAddr, InitVarIfHasInitValue, SetExternalVar)."""

from __future__ import annotations

from collections.abc import Iterable

from gecli.errors import RuntimeFault
from gecli.ir.attributes import INIT_VALUE
from gecli.ir.weight import Weight
from gecli.records import dataclass
from gecli.variables.device_arena import DeviceArena, HugePages
from gecli.variables.device_table import DeviceRow, DeviceTables, unassigned
from gecli.variables.mem_resource import MemoryType
from gecli.variables.sizes import GUARD_BYTES
from gecli.variables.var_manager import VarManager
from gecli.variables.var_resource import Block


@dataclass(slots=True)
class GraphStatistics:
    """Bytes that a graph's accesses allocated, and bytes that others had allocated, once an access."""

    allocated_bytes: int = 0
    shared_bytes: int = 0


@dataclass(slots=True, eq=False)
class ExternalArea:
    """Memory of the user that holds all HBM variables of one device, without guards."""

    address: int
    memory: bytearray
    initialised: set[int]  # logical starts of the variables whose initial value is there


class VariableMemory:
    """The physical side of a manager: blocks are allocated at the first access of a device, 512 bytes of guard first.

    Every device has its own arena and its own rows.
    """

    __slots__ = ("_arenas", "_external", "_plain", "manager", "statistics", "tables")

    def __init__(self, manager: VarManager) -> None:
        self.manager = manager
        self.tables = DeviceTables(manager.resource)
        self.statistics: dict[str, GraphStatistics] = {}
        self._arenas: dict[int, DeviceArena] = {}
        self._plain: dict[int, DeviceArena] = {}
        self._external: dict[int, ExternalArea] = {}

    def attach(self, device_id: int, arena: DeviceArena, plain: DeviceArena | None = None) -> None:
        """The memory of a device. `plain` is asked when `arena` has none, unless only pages of 1 GiB are wanted."""
        self._arenas[device_id] = arena
        if plain is not None:
            self._plain[device_id] = plain

    def set_external(self, address: int, memory: bytearray, device_id: int = 0) -> None:
        """Let the variables of a device lie in memory of the user.

        Raises RuntimeFault (RT_EXTERNAL_TOO_SMALL) unless it holds every variable to its end; GE looks at the starts.
        """
        for block in self._hbm_blocks():
            self._require_inside(block, len(memory))
        self._external[device_id] = ExternalArea(address, memory, set())

    @property
    def allocated_bytes(self) -> int:
        """Physical bytes of all blocks of all devices (GE: var_malloc_mem_size)."""
        return sum(arena.used_bytes for arenas in (self._arenas, self._plain) for arena in arenas.values())

    def address_of(
        self, address: int, device_id: int = 0, kind: MemoryType = MemoryType.HBM, *, graph: str = ""
    ) -> int:
        """The device address of a logical one; the first access allocates and initialises.

        Raises RuntimeFault (RT_NOT_INITED, RT_OOM, RT_PAGE_1G_FAILED, RT_INIT_VALUE_MISMATCH) and InputError
        (RT_ADDR_UNASSIGNED). A failed first access leaves no trace.
        """
        with self.manager.lock:
            return self._address_of(address, device_id, kind, graph)

    def _address_of(self, address: int, device_id: int, kind: MemoryType, graph: str) -> int:
        if device_id not in self._arenas:
            raise RuntimeFault("G4010", f"device {device_id} has no memory yet", kind="RT_NOT_INITED")
        if kind in (MemoryType.RDMA_HBM, MemoryType.HOST):
            return address
        found = self.manager.resource.resolve(address)
        if found is None:
            raise unassigned(address, "it is in a guard, or behind all variables")
        block, inner = found
        if device_id in self._external and not block.is_external:
            return self._external_address(self._external[device_id], block) + inner
        row = self.tables.row_of(device_id, block)
        if row.is_external:
            return row.device_address + inner
        of_graph = self.statistics.setdefault(graph, GraphStatistics())
        if not row.device_address:
            self._allocate(row, device_id)
            row.graph = graph
            of_graph.allocated_bytes += row.block.span_bytes
        elif row.graph != graph:
            of_graph.shared_bytes += row.block.span_bytes
        return row.device_address + GUARD_BYTES + inner

    def read(self, address: int, size: int, device_id: int = 0) -> bytes:
        """Bytes of a variable from a logical address on. Raises as `address_of`."""
        target = self.address_of(address, device_id)
        area = self._external.get(device_id)
        if area is not None:
            return bytes(area.memory[target - area.address : target - area.address + size])
        return self._owner(address, device_id).read(target, size)

    def write(self, address: int, data: bytes, device_id: int = 0) -> None:
        """Store bytes into a variable. Raises as `address_of`."""
        target = self.address_of(address, device_id)
        area = self._external.get(device_id)
        if area is not None:
            area.memory[target - area.address : target - area.address + len(data)] = data
        else:
            self._owner(address, device_id).write(target, data)

    def free(self) -> None:
        """Give every block back on every device (GE: FreeVarMemory); names, addresses and roads stay.

        Nothing of what was ready or loaded is so any longer. Memory of the user is left to him.
        """
        with self.manager.lock:
            for device_id in self.tables.devices:
                self.tables.release(device_id)
            for arenas in (self._arenas, self._plain):
                for arena in arenas.values():
                    arena.clear()
            for area in self._external.values():
                area.initialised.clear()

    # ------------------------------------------------------------------ allocation

    def _allocate(self, row: DeviceRow, device_id: int) -> None:
        data = self._initial_bytes(row.block)  # before anything is registered
        size = row.block.span_bytes
        arena = self._arenas[device_id]
        start = arena.allocate(size)
        if start is None and arena.huge_pages is not HugePages.ONLY and device_id in self._plain:
            arena = self._plain[device_id]
            start = arena.allocate(size)
        if start is None:
            raise _out_of_memory(row.block, size, arena)
        row.device_address, row.owner = start, arena
        # At the start of the variable, whatever was asked for; GE writes from the inner offset on.
        arena.write(start + GUARD_BYTES, data)

    def _initial_bytes(self, block: Block) -> bytes:
        value: Weight | None = block.desc.attrs.get(INIT_VALUE)
        if value is None:
            return b""
        road = self.manager.resource.trans_road(block.name)
        if road and not value.desc.same_storage(block.desc) and value.desc.same_storage(road.source):
            value = road.convert_weight(value)
        data = b"".join(value.chunks())
        if not value.desc.same_storage(block.desc) or len(data) > block.capacity_bytes:
            raise RuntimeFault(
                "G4011",
                f"the initial value of variable {block.name!r} does not fit",
                why=f"the variable is {block.desc} in {block.capacity_bytes} bytes, "
                f"the value {value.desc} in {len(data)}",
                kind="RT_INIT_VALUE_MISMATCH",
            )
        return data

    def _external_address(self, area: ExternalArea, block: Block) -> int:
        self._require_inside(block, len(area.memory))
        offset = block.address - self.manager.logic_base
        if block.address not in area.initialised:
            data = self._initial_bytes(block)
            area.memory[offset : offset + len(data)] = data
            area.initialised.add(block.address)
        return area.address + offset

    def _require_inside(self, block: Block, size: int) -> None:
        end = block.address - self.manager.logic_base + block.capacity_bytes
        used = self.manager.memory_bytes(MemoryType.HBM)
        if end <= size:
            return
        raise RuntimeFault(
            "G4013",
            f"external memory ends before variable {block.name!r}",
            kind="RT_EXTERNAL_TOO_SMALL",
            why=f"the variable ends at {end}, the area has {size} bytes; all variables take {used}",
            expected=end,
            actual=size,
        )

    def _hbm_blocks(self) -> Iterable[Block]:
        blocks = self.manager.resource.blocks
        return [block for block in blocks if block.memory_type is MemoryType.HBM and not block.is_external]

    def _owner(self, address: int, device_id: int) -> DeviceArena:
        found = self.manager.resource.resolve(address)
        row = None if found is None else self.tables.find(device_id, found[0].address)
        if row is None or row.owner is None:
            raise unassigned(address, "its memory is not the session's")
        return row.owner


def _out_of_memory(block: Block, size: int, arena: DeviceArena) -> RuntimeFault:
    only_huge = arena.huge_pages is HugePages.ONLY
    return RuntimeFault(
        "G4005",
        f"no device memory for variable {block.name!r}",
        kind="RT_PAGE_1G_FAILED" if only_huge else "RT_OOM",
        why=f"{size} bytes asked for; {arena.mapped_bytes} of {arena.capacity_bytes} bytes are mapped",
        do="ge.variableUse1gHugePage=2 falls back to normal pages" if only_huge else "",
        expected=size,
        actual=arena.capacity_bytes - arena.mapped_bytes,
    )
