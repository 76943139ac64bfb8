"""Memory that variables are placed in (GE: MemResource): the HBM bump allocator, and pools beside it."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Protocol

from gecli.errors import CompileError
from gecli.variables.sizes import span_bytes

if TYPE_CHECKING:
    from gecli.variables.memory_pool import HostPool, RdmaPool

UINT64_MAX = (1 << 64) - 1


class MemoryType(IntEnum):
    """`rtMemType_t`: the numbers in serialized `memory_type` fields."""

    DEFAULT = 0x0
    HBM = 0x2
    RDMA_HBM = 0x3
    HOST = 0x81
    RESERVED = 0x100


class MemResource(Protocol):
    """Memory of one type: `place` gives a tensor its logical address, the counter grows."""

    used_bytes: int

    @property
    def kind(self) -> MemoryType: ...

    @property
    def variable_bytes(self) -> int: ...

    def next_address(self, base: int) -> int | None:
        """Where the next tensor will lie when that is known before; `base` is the logical base of HBM."""

    def place(self, size: int, base: int, *, placeholder: bool = False) -> int:
        """The logical address of a new block for a tensor of padded size `size`. Raises CompileError."""


class HbmResource:
    """A bump allocator: every tensor takes its padded size, aligned to 512, and two guards of 512 bytes."""

    __slots__ = ("placeholder_bytes", "used_bytes")

    def __init__(self, used_bytes: int = 0, placeholder_bytes: int = 0) -> None:
        self.used_bytes = used_bytes
        self.placeholder_bytes = placeholder_bytes

    @property
    def kind(self) -> MemoryType:
        return MemoryType.HBM

    @property
    def variable_bytes(self) -> int:
        """Bytes used by variables proper (GE: GetVarMemSize); placeholders bring their own memory."""
        return self.used_bytes - self.placeholder_bytes

    def next_address(self, base: int) -> int:
        return base + self.used_bytes

    def place(self, size: int, base: int, *, placeholder: bool = False) -> int:
        return base + self.allocate(size, placeholder=placeholder)

    def allocate(self, size: int, *, placeholder: bool = False) -> int:
        """The offset of a new block for a tensor of padded size `size`. Raises CompileError on overflow."""
        span = span_bytes(size)
        offset = self.used_bytes
        if offset + span > UINT64_MAX:
            raise CompileError(
                "G2013",
                "variable memory exhausted",
                kind="VAR_MEM_EXHAUSTED",
                why=f"{offset} bytes used and {span} bytes more overflow a 64-bit address",
            )
        self.used_bytes += span
        if placeholder:
            self.placeholder_bytes += span
        return offset

    def reserve(self, offset: int, size: int) -> None:
        """Keep the allocator behind a block that a loaded model placed itself."""
        self.used_bytes = max(self.used_bytes, offset + span_bytes(size))

    def copy(self) -> HbmResource:
        return HbmResource(self.used_bytes, self.placeholder_bytes)

    def become(self, state: HbmResource) -> None:
        """Take over the counters of `state`."""
        self.used_bytes, self.placeholder_bytes = state.used_bytes, state.placeholder_bytes


class PoolResource:
    """Memory of a pool: the logical address is the pool's own, exact sizes are counted, there are no guards."""

    __slots__ = ("kind", "pool", "used_bytes")

    def __init__(self, kind: MemoryType, pool: RdmaPool | HostPool, used_bytes: int = 0) -> None:
        self.kind = kind
        self.pool = pool
        self.used_bytes = used_bytes

    @property
    def variable_bytes(self) -> int:
        return self.used_bytes

    def next_address(self, base: int) -> None:
        return None

    def place(self, size: int, base: int, *, placeholder: bool = False) -> int:
        address = self.pool.allocate(size)
        if address is None:
            raise CompileError(
                "G2013",
                f"{self.kind.name} memory exhausted",
                kind="VAR_MEM_EXHAUSTED",
                why=f"{size} bytes asked for; no free block of the pool is that large",
            )
        self.used_bytes += size
        return address

    def copy(self) -> PoolResource:
        return PoolResource(self.kind, self.pool.copy(), self.used_bytes)

    def become(self, state: PoolResource) -> None:
        """Take over counter and pool of `state`."""
        self.used_bytes = state.used_bytes
        self.pool.become(state.pool)  # type: ignore[arg-type]  # both are pools of the same kind


def pool_missing(name: str, kind: MemoryType, where: str = "", do: str = "") -> CompileError:
    """A variable asks for memory that nobody gave the manager."""
    return CompileError(
        "G2017",
        f"variable {name!r} asks for {kind.name.partition('_')[0]} memory, which an offline compile does not have",
        kind="VAR_POOL_MISSING",
        node=name,
        where=where,
        do=do,
    )
