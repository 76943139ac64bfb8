"""Sizes and bases of the address spaces a session is configured with, and the checks against them."""

from __future__ import annotations

from dataclasses import replace

from gecli.errors import InvalidOption
from gecli.records import dataclass

GIB = 1 << 30
VAR_LOGIC_BASE = 128 * GIB  # every artifact; GE: kVarMemoryLogicBase
UNCONFIGURED_VAR_LOGIC_BASE = 32 * GIB  # a manager nobody configured; GE: kMemoryVarLogicBase
GRAPH_MEM_MAX_BYTES = 26 * GIB
VAR_MEM_MAX_BYTES = 5 * GIB
USE_MEM_MAX_BYTES = 31 * GIB
UINT64_MAX = (1 << 64) - 1
TOTAL_LIMIT_BYTES = 256 * GIB  # graph and variable maximum together; GE: kMaxMemorySize


@dataclass(frozen=True, slots=True)
class MemoryLimits:
    """What `SetMemoryMallocSize` and `SetAllMemoryMaxValue` set in GE. The default is that of the offline compile."""

    graph_max_bytes: int = GRAPH_MEM_MAX_BYTES
    var_max_bytes: int = VAR_MEM_MAX_BYTES
    use_max_bytes: int = USE_MEM_MAX_BYTES
    var_logic_base: int = VAR_LOGIC_BASE
    evaluate_only: bool = False  # ge.evaluateGraphResourceMode=1: needs are computed, maxima do not count

    @property
    def checked_graph_max_bytes(self) -> int:
        """What feature maps are compared with (GE: GetGraphMemoryMaxSize for a check)."""
        return UINT64_MAX if self.evaluate_only else self.graph_max_bytes

    @property
    def checked_var_max_bytes(self) -> int:
        """What variables are compared with (GE: GetVarMemMaxSize for a check)."""
        return UINT64_MAX if self.evaluate_only else self.var_max_bytes

    @property
    def checked_use_max_bytes(self) -> int:
        """GE: GetUseMaxMemorySize, which knows no other purpose than a check."""
        return UINT64_MAX if self.evaluate_only else self.use_max_bytes

    @staticmethod
    def unconfigured() -> MemoryLimits:
        """The state of a manager before any configuration: variable base 32 GiB."""
        return MemoryLimits(var_logic_base=UNCONFIGURED_VAR_LOGIC_BASE)

    @staticmethod
    def of(graph_max_bytes: int, var_max_bytes: int) -> MemoryLimits:
        """The given maxima, checked. Raises InvalidOption when they exceed 256 GiB together (GE only logs it)."""
        total = graph_max_bytes + var_max_bytes
        if total > TOTAL_LIMIT_BYTES:
            raise InvalidOption(
                "E10001",
                f"graph memory and variable memory exceed {TOTAL_LIMIT_BYTES // GIB} GiB together",
                kind="OPTION_INVALID",
                why=f"graph memory {graph_max_bytes} + variable memory {var_max_bytes} = {total} bytes",
                do=f"give maxima whose sum is at most {TOTAL_LIMIT_BYTES} bytes",
                expected=TOTAL_LIMIT_BYTES,
                actual=total,
            )
        return MemoryLimits(graph_max_bytes, var_max_bytes, total, VAR_LOGIC_BASE)

    @staticmethod
    def of_device(total_bytes: int) -> MemoryLimits:
        """The online split of a device's memory: 26/32 for graphs, 5/32 for variables. Raises as `of`."""
        return MemoryLimits.of(total_bytes * 26 // 32, total_bytes * 5 // 32)

    def with_var_max(self, var_max_bytes: int) -> MemoryLimits:
        """Another variable maximum (`--var-mem-max-size`). Raises as `of`."""
        return replace(
            MemoryLimits.of(self.graph_max_bytes, var_max_bytes),
            var_logic_base=self.var_logic_base,
            evaluate_only=self.evaluate_only,
        )
