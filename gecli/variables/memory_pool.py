"""Pools that variables outside HBM are placed in (runtime.md 2.6): RDMA memory of a device, memory of the host."""

from __future__ import annotations

RDMA_POOL_BASE = 0x120000000000 + 5 * (1 << 37)  # device 0, arena kind 5 (runtime.md 2.2)
HOST_POOL_BASE = 0x100000000000
DEVICE_STRIDE = 1 << 40  # between the addresses of two devices
RDMA_ALIGN_BYTES = 512
SPLIT_RATIO = 2  # a block is split only for a request of at most half of it


class RdmaPool:
    """One region of a device; the smallest free block that fits is handed out, the lowest of equal ones."""

    __slots__ = ("_blocks", "_free", "base", "size_bytes")

    def __init__(self, size_bytes: int, device_id: int = 0) -> None:
        self.base = RDMA_POOL_BASE + device_id * DEVICE_STRIDE
        self.size_bytes = size_bytes
        self._free: dict[int, int] = {self.base: size_bytes} if size_bytes else {}
        self._blocks: dict[int, int] = {}

    def allocate(self, size: int) -> int | None:
        """The address of a block for `size` bytes; None when no free block is large enough."""
        need = max(-(-size // RDMA_ALIGN_BYTES), 1) * RDMA_ALIGN_BYTES
        fitting = [(length, address) for address, length in self._free.items() if length >= need]
        if not fitting:
            return None
        length, address = min(fitting)
        del self._free[address]
        taken = need if need * SPLIT_RATIO <= length else length
        if taken < length:
            self._free[address + taken] = length - taken
        self._blocks[address] = taken
        return address

    def free(self, address: int) -> None:
        """Give a block back and join it with free neighbours. Raises KeyError for an address not handed out."""
        length = self._blocks.pop(address)
        behind = self._free.pop(address + length, 0)
        before = next((start for start, size in self._free.items() if start + size == address), None)
        if before is None:
            self._free[address] = length + behind
        else:
            self._free[before] += length + behind

    @property
    def free_bytes(self) -> int:
        return sum(self._free.values())

    def copy(self) -> RdmaPool:
        other = RdmaPool(0)
        other.become(self)
        return other

    def become(self, state: RdmaPool) -> None:
        """Take over what `state` has handed out."""
        self.base, self.size_bytes = state.base, state.size_bytes
        self._free, self._blocks = dict(state._free), dict(state._blocks)


class HostPool:
    """Memory of the host: exact sizes, zero-filled."""

    __slots__ = ("_blocks", "_next")

    def __init__(self) -> None:
        self._next = HOST_POOL_BASE
        self._blocks: dict[int, bytearray] = {}

    def allocate(self, size: int) -> int:
        """The address of `size` bytes of zeros."""
        address = self._next
        self._blocks[address] = bytearray(size)
        self._next += max(size, 1)
        return address

    def free(self, address: int) -> None:
        """Forget a block. Raises KeyError for an address not handed out."""
        del self._blocks[address]

    def block(self, address: int) -> bytearray:
        """The bytes of the block that begins at `address`. Raises KeyError."""
        return self._blocks[address]

    def copy(self) -> HostPool:
        other = HostPool()
        other.become(self)
        return other

    def become(self, state: HostPool) -> None:
        """Take over the blocks of `state`."""
        self._next = state._next
        self._blocks = {address: bytearray(data) for address, data in state._blocks.items()}
