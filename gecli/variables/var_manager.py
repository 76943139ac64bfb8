"""The variable manager of a session (GE: VarManager) and the pool of managers (GE: VarManagerPool)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from threading import RLock

from gecli.ir.op_desc import OpDesc
from gecli.ir.tensor_desc import TensorDesc
from gecli.records import dataclass
from gecli.variables import var_faults
from gecli.variables.limits import MemoryLimits
from gecli.variables.mem_resource import HbmResource, MemoryType, MemResource, PoolResource, pool_missing
from gecli.variables.sizes import DEFAULT_PADDING_BYTES
from gecli.variables.trans_road import TransRoad
from gecli.variables.var_resource import VarResource

OTHER_VERSION = 2  # GE: SessionVersion; stored only


@dataclass(frozen=True, slots=True)
class VarManagerState:
    """A moment of a manager, to return to when a compile fails."""

    resource: VarResource
    hbm: HbmResource
    pools: Mapping[MemoryType, PoolResource]


class VarManager:
    """The variables of one session (`resource`), their memory (`hbm`, `pools`) and its limits.

    What variable passes ask for is also here; memory and artifacts work on `resource`. The constructor does what GE's
    Init and memory configuration do; only a pool makes managers that still have to be told (`init`, `configure`).
    Threads that share a session hold `lock`, as the methods that change addresses do.
    """

    __slots__ = (
        "device_id",
        "hbm",
        "is_initialised",
        "job_id",
        "limits",
        "lock",
        "padding_bytes",
        "pools",
        "resource",
        "session_id",
        "version",
    )

    def __init__(
        self,
        session_id: int = 0,
        limits: MemoryLimits | None = None,
        *,
        padding_bytes: int = DEFAULT_PADDING_BYTES,
        version: int = OTHER_VERSION,
        device_id: int = 0,
        job_id: int = 0,
        pools: Mapping[MemoryType, PoolResource] | None = None,
    ) -> None:
        _require_version(version)
        self.session_id = session_id
        self.limits = limits or MemoryLimits()
        self.padding_bytes = padding_bytes
        self.version = version
        self.device_id = device_id
        self.job_id = job_id
        self.is_initialised = True
        self.lock = RLock()
        self.resource = VarResource(self.limits.var_logic_base)
        self.hbm = HbmResource()
        self.pools = dict(pools or {})

    # ------------------------------------------------------------------ configuration

    @staticmethod
    def of_pool(session_id: int) -> VarManager:
        """A manager that nobody has initialised or configured: variable base 32 GiB."""
        manager = VarManager(session_id, MemoryLimits.unconfigured())
        manager.is_initialised = False
        return manager

    def init(self, version: int, session_id: int, device_id: int, job_id: int) -> None:
        """Begin the session; later calls change nothing (GE: Init).

        Raises ValueError for an unknown version, and for the id of another session, which GE takes: its variables
        then get the base of that session's manager.
        """
        if self.is_initialised:
            return
        _require_version(version)
        if session_id != self.session_id:
            raise ValueError(f"the manager of session {self.session_id} cannot begin session {session_id}")
        self.version, self.device_id, self.job_id = version, device_id, job_id
        self.is_initialised = True

    def configure(self, limits: MemoryLimits) -> None:
        """Take the limits as they are (GE: UpdateMemoryConfig); `MemoryLimits.of` and `of_device` check them.

        Raises ValueError for another base when variables already have addresses.
        """
        if limits.var_logic_base != self.logic_base and self.resource.addresses:
            raise ValueError(f"variables have addresses from {self.logic_base:#x}; the base cannot change")
        self.limits = limits
        self.resource.logic_base = limits.var_logic_base

    def configure_from_model(self, logic_base: int, var_max_bytes: int) -> None:
        """The values that a loaded model carries (GE: SetVarMemLogicBase, SetVarMemMaxSize). Raises as `configure`."""
        self.configure(replace(self.limits, var_logic_base=logic_base, var_max_bytes=var_max_bytes))

    def memory(self, kind: MemoryType, name: str = "", where: str = "", do: str = "") -> MemResource:
        """The memory of this type. Raises CompileError (VAR_POOL_MISSING) when the session has none."""
        found = self.hbm if kind is MemoryType.HBM else self.pools.get(kind)
        if found is None:
            raise pool_missing(name, kind, where, do)
        return found

    def memory_bytes(self, kind: MemoryType) -> int:
        """Bytes that variables take of one type of memory, 0 for a type never used (GE: GetVarMemSize)."""
        found = self.hbm if kind is MemoryType.HBM else self.pools.get(kind)
        return 0 if found is None else found.variable_bytes

    def set_memory_bytes(self, kind: MemoryType, used_bytes: int) -> None:
        """GE: UpdateVarMemSize. Raises CompileError (VAR_POOL_MISSING)."""
        self.memory(kind).used_bytes = used_bytes

    def destroy(self) -> None:
        """Forget everything; the manager is as a pool makes it. GE keeps the tables and answers from them."""
        fresh = VarManager.of_pool(self.session_id)
        with self.lock:
            for name in VarManager.__slots__:
                if name != "lock":
                    setattr(self, name, getattr(fresh, name))

    @property
    def logic_base(self) -> int:
        return self.resource.logic_base

    @property
    def model_variable_bytes(self) -> int:
        """The `variable_size` of a compiled model: the maximum, or 0 when the session has no HBM variable."""
        return self.limits.var_max_bytes if self.hbm.variable_bytes > 0 else 0

    def assign(
        self,
        name: str,
        desc: TensorDesc,
        node: OpDesc | None = None,
        where: str = "",
        memory_type: MemoryType = MemoryType.HBM,
    ) -> int:
        """The logical address of a variable in the form of `desc`. Raises as `VarResource.assign` and `memory`."""
        self._require_initialised()
        with self.lock:
            return self.resource.assign(name, desc, self.memory(memory_type, name, where), node, where)

    def restore_variable(
        self, name: str, desc: TensorDesc, address: int, *, strict_addresses: bool = False, device_address: int = 0
    ) -> int:
        """Take over a variable of a loaded model. Raises as `VarResource.restore`."""
        self._require_initialised()
        limit = self.limits.var_max_bytes
        with self.lock:
            return self.resource.restore(
                name, desc, address, self.hbm, limit, strict_addresses=strict_addresses, device_address=device_address
            )

    def _require_initialised(self) -> None:
        if not self.is_initialised:
            raise RuntimeError(f"the variable manager of session {self.session_id} is not initialised")

    def check_limits(self, graph_name: str) -> None:
        """Refuse more variables than can be loaded. Raises CompileError (VAR_MEM_EXHAUSTED).

        GE compares only at load: 6 GiB of variables compile there and cannot be loaded.
        """
        if self.hbm.used_bytes > self.limits.checked_var_max_bytes:
            raise var_faults.exhausted(graph_name, self.hbm.used_bytes, self.limits.var_max_bytes)

    # ------------------------------------------------------------------ what passes ask for

    def exists(self, name: str) -> bool:
        return self.resource.exists(name)

    def current_desc(self, name: str) -> TensorDesc | None:
        return self.resource.current_desc(name)

    def trans_road(self, name: str) -> TransRoad | None:
        return self.resource.trans_road(name)

    def set_trans_road(self, name: str, road: TransRoad) -> None:
        """Raises as `VarResource.set_trans_road`."""
        self._require_initialised()
        self.resource.set_trans_road(name, road)

    def set_changed_graph_id(self, name: str, graph_id: int) -> None:
        self._require_initialised()
        self.resource.set_changed_graph_id(name, graph_id)

    def renew(self, name: str, desc: TensorDesc, *, with_shape: bool = False) -> None:
        """Raises as `VarResource.renew`."""
        self._require_initialised()
        self.resource.renew(name, desc, with_shape=with_shape)

    def record_staged(self, graph_id: int, name: str, desc: TensorDesc) -> None:
        self._require_initialised()
        self.resource.record_staged(graph_id, name, desc)

    @property
    def shares_memory_between_batches(self) -> bool:
        return self.resource.shares_memory_between_batches

    # ------------------------------------------------------------------ atomicity

    def snapshot(self) -> VarManagerState:
        with self.lock:
            return VarManagerState(self.resource.copy(), self.hbm.copy(), _copies(self.pools))

    def restore(self, state: VarManagerState) -> None:
        """Return to `state`, which stays usable."""
        with self.lock:
            self.resource.become(state.resource)
            self.hbm.become(state.hbm)
            for kind, pool in _copies(state.pools).items():
                self.pools[kind].become(pool)


def _copies(pools: Mapping[MemoryType, PoolResource]) -> dict[MemoryType, PoolResource]:
    return {kind: pool.copy() for kind, pool in pools.items()}


def _require_version(version: int) -> None:
    if not 0 <= version <= OTHER_VERSION:
        raise ValueError(f"session version must be 0, 1 or 2, not {version}")


class VarManagerPool:
    """Managers by session id. An object that the caller holds: sessions never share variables by accident."""

    __slots__ = ("_managers",)

    def __init__(self) -> None:
        self._managers: dict[int, VarManager] = {}

    def get(self, session_id: int) -> VarManager:
        """The manager of a session, made on first use: not initialised and not configured."""
        manager = self._managers.get(session_id)
        if manager is None:
            manager = self._managers[session_id] = VarManager.of_pool(session_id)
        return manager

    def put(self, manager: VarManager) -> None:
        """Enter a manager under its session id. Raises ValueError when the session has another one."""
        if self._managers.setdefault(manager.session_id, manager) is not manager:
            raise ValueError(f"session {manager.session_id} already has a variable manager")

    def remove(self, session_id: int) -> None:
        """Forget a session with everything it knew, also for those who still hold its manager."""
        manager = self._managers.pop(session_id, None)
        if manager is not None:
            manager.destroy()

    def clear(self) -> None:
        """Forget all sessions (GE: Destroy of the pool)."""
        for session_id in sorted(self._managers):
            self.remove(session_id)

    def __len__(self) -> int:
        return len(self._managers)

    def __iter__(self) -> Iterator[VarManager]:
        """The managers by session id."""
        return iter([self._managers[session_id] for session_id in sorted(self._managers)])
