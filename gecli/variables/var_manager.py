"""The variable manager of a session (GE: VarManager) and the pool of managers (GE: VarManagerPool)."""

from __future__ import annotations

from collections.abc import Iterator

from gecli.ir.op_desc import OpDesc
from gecli.ir.tensor_desc import TensorDesc
from gecli.records import dataclass
from gecli.variables import var_faults
from gecli.variables.limits import MemoryLimits
from gecli.variables.mem_resource import HbmResource
from gecli.variables.sizes import DEFAULT_PADDING_BYTES
from gecli.variables.trans_road import TransRoad
from gecli.variables.var_resource import VarResource

OTHER_VERSION = 2  # GE: SessionVersion; stored only


@dataclass(frozen=True, slots=True)
class VarManagerState:
    """A moment of a manager, to return to when a compile fails."""

    resource: VarResource
    hbm: HbmResource


class VarManager:
    """The variables of one session (`resource`), their memory (`hbm`) and its limits.

    What variable passes ask for is also here; memory and artifacts work on `resource`.
    """

    __slots__ = ("device_id", "hbm", "job_id", "limits", "padding_bytes", "resource", "session_id", "version")

    def __init__(
        self,
        session_id: int = 0,
        limits: MemoryLimits | None = None,
        *,
        padding_bytes: int = DEFAULT_PADDING_BYTES,
        version: int = OTHER_VERSION,
        device_id: int = 0,
        job_id: int = 0,
    ) -> None:
        if not 0 <= version <= OTHER_VERSION:
            raise ValueError(f"session version must be 0, 1 or 2, not {version}")
        self.session_id = session_id
        self.limits = limits or MemoryLimits()
        self.padding_bytes = padding_bytes
        self.version = version
        self.device_id = device_id
        self.job_id = job_id
        self.resource = VarResource(self.limits.var_logic_base)
        self.hbm = HbmResource()

    @property
    def logic_base(self) -> int:
        return self.resource.logic_base

    @property
    def model_variable_bytes(self) -> int:
        """The `variable_size` of a compiled model: the maximum, or 0 when the session has no HBM variable."""
        return self.limits.var_max_bytes if self.hbm.variable_bytes > 0 else 0

    def assign(self, name: str, desc: TensorDesc, node: OpDesc | None = None, where: str = "") -> int:
        """The logical address of a variable in the form of `desc`. Raises as `VarResource.assign`."""
        return self.resource.assign(name, desc, self.hbm, node, where)

    def restore_variable(self, name: str, desc: TensorDesc, address: int) -> int:
        """Take over a variable of a loaded model. Raises as `VarResource.restore`."""
        return self.resource.restore(name, desc, address, self.hbm, self.limits.var_max_bytes)

    def check_limits(self, graph_name: str) -> None:
        """Refuse more variables than can be loaded. Raises CompileError (VAR_MEM_EXHAUSTED).

        GE compares only at load: 6 GiB of variables compile there and cannot be loaded.
        """
        if self.hbm.used_bytes > self.limits.var_max_bytes:
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
        self.resource.set_trans_road(name, road)

    def set_changed_graph_id(self, name: str, graph_id: int) -> None:
        self.resource.set_changed_graph_id(name, graph_id)

    def renew(self, name: str, desc: TensorDesc, *, with_shape: bool = False) -> None:
        """Raises as `VarResource.renew`."""
        self.resource.renew(name, desc, with_shape=with_shape)

    def record_staged(self, graph_id: int, name: str, desc: TensorDesc) -> None:
        self.resource.record_staged(graph_id, name, desc)

    @property
    def shares_memory_between_batches(self) -> bool:
        return self.resource.shares_memory_between_batches

    # ------------------------------------------------------------------ atomicity

    def snapshot(self) -> VarManagerState:
        return VarManagerState(self.resource.copy(), self.hbm.copy())

    def restore(self, state: VarManagerState) -> None:
        """Return to `state`, which stays usable."""
        self.resource.become(state.resource)
        self.hbm.become(state.hbm)


class VarManagerPool:
    """Managers by session id. An object that the caller holds: sessions never share variables by accident."""

    __slots__ = ("_managers",)

    def __init__(self) -> None:
        self._managers: dict[int, VarManager] = {}

    def get(self, session_id: int) -> VarManager:
        """The manager of a session, made on first use."""
        manager = self._managers.get(session_id)
        if manager is None:
            manager = self._managers[session_id] = VarManager(session_id)
        return manager

    def put(self, manager: VarManager) -> None:
        """Enter a manager under its session id. Raises ValueError when the session has another one."""
        if self._managers.setdefault(manager.session_id, manager) is not manager:
            raise ValueError(f"session {manager.session_id} already has a variable manager")

    def remove(self, session_id: int) -> None:
        """Forget a session with everything it knew."""
        self._managers.pop(session_id, None)

    def clear(self) -> None:
        self._managers.clear()

    def __len__(self) -> int:
        return len(self._managers)

    def __iter__(self) -> Iterator[VarManager]:
        """The managers by session id."""
        return iter([self._managers[session_id] for session_id in sorted(self._managers)])
