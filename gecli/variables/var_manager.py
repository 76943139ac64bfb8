"""The variable manager of a session (GE: VarManager) and the pool of managers (GE: VarManagerPool)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from gecli.ir.op_desc import OpDesc
from gecli.ir.tensor_desc import TensorDesc
from gecli.variables import var_faults
from gecli.variables.limits import MemoryLimits
from gecli.variables.mem_resource import HbmResource
from gecli.variables.sizes import DEFAULT_PADDING_BYTES
from gecli.variables.var_resource import VarResource

OTHER_VERSION = 2  # GE: SessionVersion; stored only


@dataclass(frozen=True, slots=True)
class VarManagerState:
    """A moment of a manager, to return to when a compile fails."""

    variables: VarResource
    hbm: HbmResource


class VarManager:
    """The variables of one session (`variables`), their memory (`hbm`) and its limits.

    Passes work on `variables`; this class adds what concerns memory and the session as a whole.
    """

    __slots__ = ("device_id", "hbm", "job_id", "limits", "padding_bytes", "session_id", "variables", "version")

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
        self.variables = VarResource(self.limits.var_logic_base)
        self.hbm = HbmResource()

    @property
    def logic_base(self) -> int:
        return self.variables.logic_base

    @property
    def model_variable_bytes(self) -> int:
        """The `variable_size` of a compiled model: the maximum, or 0 when the session has no HBM variable."""
        return self.limits.var_max_bytes if self.hbm.variable_bytes > 0 else 0

    def assign(self, name: str, desc: TensorDesc, node: OpDesc | None = None, where: str = "") -> int:
        """The logical address of a variable in the form of `desc`. Raises as `VarResource.assign`."""
        return self.variables.assign(name, desc, self.hbm, node, where)

    def restore_variable(self, name: str, desc: TensorDesc, address: int) -> int:
        """Take over a variable of a loaded model. Raises as `VarResource.restore`."""
        return self.variables.restore(name, desc, address, self.hbm, self.limits.var_max_bytes)

    def check_limits(self, graph_name: str) -> None:
        """Refuse more variables than can be loaded. Raises CompileError (VAR_MEM_EXHAUSTED).

        GE compares only at load: 6 GiB of variables compile there and cannot be loaded.
        """
        if self.hbm.used_bytes > self.limits.var_max_bytes:
            raise var_faults.exhausted(graph_name, self.hbm.used_bytes, self.limits.var_max_bytes)

    def snapshot(self) -> VarManagerState:
        return VarManagerState(self.variables.copy(), self.hbm.copy())

    def restore(self, state: VarManagerState) -> None:
        """Return to `state`, which stays usable."""
        self.variables.become(state.variables)
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
