"""Memory that variables are placed in (GE: MemResource): the HBM bump allocator and its blocks."""

from __future__ import annotations

from enum import IntEnum

from gecli.errors import CompileError
from gecli.variables.sizes import span_bytes

UINT64_MAX = (1 << 64) - 1


class MemoryType(IntEnum):
    """`rtMemType_t`: the numbers in serialized `memory_type` fields."""

    DEFAULT = 0x0
    HBM = 0x2
    RDMA_HBM = 0x3
    HOST = 0x81
    RESERVED = 0x100


class HbmResource:
    """A bump allocator: every tensor takes its padded size, aligned to 512, and two guards of 512 bytes."""

    __slots__ = ("placeholder_bytes", "used_bytes")

    def __init__(self, used_bytes: int = 0, placeholder_bytes: int = 0) -> None:
        self.used_bytes = used_bytes
        self.placeholder_bytes = placeholder_bytes

    @property
    def variable_bytes(self) -> int:
        """Bytes used by variables proper (GE: GetVarMemSize); placeholders bring their own memory."""
        return self.used_bytes - self.placeholder_bytes

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
