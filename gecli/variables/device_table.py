"""What a session knows about its variables on each device (GE: device_id_to_var_dev_addr_mgr_map_ and its flags)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from enum import Enum
from threading import Condition

from gecli.errors import InputError
from gecli.ir.op_desc import OpDesc
from gecli.ir.tensor_desc import TensorDesc
from gecli.records import dataclass
from gecli.variables.device_arena import DeviceArena
from gecli.variables.var_key import VarKey
from gecli.variables.var_resource import Block, VarResource

INNER_OFFSET = "_inner_offset"


class LoadState(Enum):
    EMPTY = "empty"
    LOADING = "loading"
    LOADED = "loaded"


@dataclass(slots=True, eq=False)
class DeviceRow:
    """One block on one device. The descriptor is the template's, so that a later change of it is seen."""

    block: Block
    device_address: int = 0  # start of the device's block, guard included; 0: not allocated
    owner: DeviceArena | None = None  # what the block came from and goes back to
    graph: str = ""  # the graph whose access made it
    load_state: LoadState = LoadState.EMPTY
    loaded_by: str = ""

    @property
    def is_external(self) -> bool:
        return self.block.is_external


@dataclass(slots=True, eq=False)
class DeviceTable:
    """The rows of one device by logical address, and the keys whose data are there."""

    rows: dict[int, DeviceRow] = field(default_factory=dict)
    ready: set[VarKey] = field(default_factory=set)


class DeviceTables:
    """The tables of all devices of a session. Registration stays in `resource`; here is only what devices differ in."""

    __slots__ = ("_changed", "_tables", "resource")

    def __init__(self, resource: VarResource) -> None:
        self.resource = resource
        self._tables: dict[int, DeviceTable] = {}
        self._changed = Condition()

    def update(self, device_id: int) -> DeviceTable:
        """The table of a device with a row for every block (GE: UpdateDevVarMgrInfo); rows it has stay."""
        table = self._tables.setdefault(device_id, DeviceTable())
        for block in self.resource.blocks:
            row = table.rows.get(block.address)
            if row is None:
                table.rows[block.address] = DeviceRow(block, block.device_address)
            else:
                row.block = block
        return table

    def row_of(self, device_id: int, block: Block) -> DeviceRow:
        """The row of a block of the session, made where the device has none yet."""
        row = self.find(device_id, block.address)
        return self.update(device_id).rows[block.address] if row is None else row

    def find(self, device_id: int, address: int) -> DeviceRow | None:
        """The row that begins at a logical address; None when device or address is unknown (GE: GetVarMgrInfo)."""
        table = self._tables.get(device_id)
        return None if table is None else table.rows.get(address)

    def set_device_address(self, device_id: int, address: int, device_address: int) -> None:
        """Raises InputError when the device has no row of that address (GE: SetVarMgrDevAddr)."""
        row = self.find(device_id, address)
        if row is None:
            raise unassigned(address, f"device {device_id} has no variable that begins there")
        row.device_address = device_address

    def inside(self, device_id: int, address: int) -> tuple[int, int]:
        """Offset and start of the variable that holds an address behind its start (GE: CheckLogicAddrValid).

        Raises InputError (RT_ADDR_UNASSIGNED) in guards, and for a start, which `find` answers.
        """
        found = self.resource.resolve(address)
        if found is None or not found[1] or self.find(device_id, found[0].address) is None:
            raise unassigned(address, f"no variable of device {device_id} holds it")
        return found[1], found[0].address

    # ------------------------------------------------------------------ ready and loaded

    def set_ready(self, name: str, desc: TensorDesc, device_id: int) -> None:
        """The data of a variable in this form are on the device (GE: SetVarIsReady)."""
        self._tables.setdefault(device_id, DeviceTable()).ready.add(self.resource.key(name, desc))

    def is_ready(self, name: str, desc: TensorDesc, device_id: int) -> bool:
        table = self._tables.get(device_id)
        return table is not None and self.resource.key(name, desc) in table.ready

    def load_once(self, node: OpDesc, output_offset: int | None, device_id: int, load: Callable[[], None]) -> bool:
        """Call `load` unless the data at the node's address are loaded (GE: CheckAndSetVarLoaded); True when called.

        Others wait while one loads. A load that fails leaves the row empty; GE marks before it copies. Raises
        InputError for a node without an offset, and what `load` raises.
        """
        if output_offset is None:
            raise InputError("G4010", f"{node.type} {node.name!r} has no output offset", kind="RT_ADDR_UNASSIGNED")
        inner = int(node.output_descs[0].attrs.get(INNER_OFFSET, 0)) if node.output_descs else 0
        row = self.update(device_id).rows.get(output_offset - inner)
        if row is None:  # not in variable memory: every load is its own
            load()
            return True
        with self._changed:
            self._changed.wait_for(lambda: row.load_state is not LoadState.LOADING)
            if row.load_state is LoadState.LOADED:
                return False
            row.load_state, row.loaded_by = LoadState.LOADING, node.name
        state = LoadState.EMPTY
        try:
            load()
            state = LoadState.LOADED
        finally:
            with self._changed:
                row.load_state = state
                self._changed.notify_all()
        return True

    def release(self, device_id: int) -> None:
        """Forget what was in the memory of a device: addresses, ready and loaded marks; rows stay."""
        table = self._tables.get(device_id)
        if table is None:
            return
        table.ready.clear()
        for row in table.rows.values():
            row.load_state, row.loaded_by = LoadState.EMPTY, ""
            if not row.is_external:
                row.device_address, row.owner, row.graph = 0, None, ""

    @property
    def devices(self) -> tuple[int, ...]:
        return tuple(sorted(self._tables))


def unassigned(address: int, why: str) -> InputError:
    return InputError("G4010", f"address {address:#x} belongs to no variable", kind="RT_ADDR_UNASSIGNED", why=why)
