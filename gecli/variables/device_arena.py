"""Variable memory of one simulated device (GE: ExpandableMemoryAllocator): a bump allocator over pages."""

from __future__ import annotations

from bisect import bisect_right
from enum import IntEnum

ARENA_BASE = 0x120000000000  # device 0, arena kind 0 (runtime.md 2.2)
DEVICE_STRIDE = 1 << 40
MIB = 1 << 20
NORMAL_PAGE_BYTES = 2 * MIB
EXPANDABLE_PAGE_BYTES = 8 * MIB  # memory policies 3 and 4
HUGE_PAGE_BYTES = 1 << 30
DEVICE_BYTES = 64 << 30


class HugePages(IntEnum):
    """`ge.variableUse1gHugePage`."""

    OFF = 0
    ONLY = 1  # no page of 1 GiB, no memory
    FIRST = 2  # normal pages, in chunks of 1 GiB, when there is none


class DeviceArena:
    """Blocks behind each other, with the bytes in them. Blocks share pages, so only whole pages are charged."""

    __slots__ = (
        "_data",
        "_huge_left",
        "_starts",
        "base",
        "capacity_bytes",
        "fell_back_at",
        "huge_pages",
        "mapped_bytes",
        "page_bytes",
        "used_bytes",
    )

    def __init__(
        self,
        device_id: int = 0,
        capacity_bytes: int = DEVICE_BYTES,
        *,
        huge_pages: HugePages = HugePages.OFF,
        huge_available: int | None = None,
        expandable: bool = False,
    ) -> None:
        self.base = ARENA_BASE + device_id * DEVICE_STRIDE
        self.capacity_bytes = capacity_bytes
        self.huge_pages = huge_pages
        normal = EXPANDABLE_PAGE_BYTES if expandable else NORMAL_PAGE_BYTES
        self.page_bytes = HUGE_PAGE_BYTES if huge_pages else normal
        self._huge_left = capacity_bytes // HUGE_PAGE_BYTES if huge_available is None else huge_available
        self.used_bytes = 0
        self.mapped_bytes = 0
        self.fell_back_at: int | None = None  # bytes mapped when pages of 1 GiB ran out
        self._starts: list[int] = []
        self._data: list[bytearray] = []

    def reserve(self, size: int) -> int | None:
        """The address of room for `size` bytes, charged to the device; None when it has no pages left."""
        end = self.used_bytes + size
        before = self.mapped_bytes, self._huge_left, self.fell_back_at
        while self.mapped_bytes < end:
            if not self._map_page():
                self.mapped_bytes, self._huge_left, self.fell_back_at = before
                return None
        address = self.base + self.used_bytes
        self.used_bytes = end
        return address

    def allocate(self, size: int) -> int | None:
        """The address of a new block of zeros; None as `reserve`."""
        address = self.reserve(size)
        if address is not None:
            self._starts.append(address)
            self._data.append(bytearray(size))
        return address

    def clear(self) -> None:
        """Give all blocks and pages back."""
        if self.huge_pages and self.fell_back_at is None:
            self._huge_left += self.mapped_bytes // HUGE_PAGE_BYTES
        elif self.fell_back_at is not None:
            self._huge_left += self.fell_back_at // HUGE_PAGE_BYTES
        self.used_bytes = self.mapped_bytes = 0
        self.fell_back_at = None
        self._starts.clear()
        self._data.clear()

    def write(self, address: int, data: bytes) -> None:
        """Store bytes inside one block. Raises ValueError for bytes that are in no block as a whole."""
        block, offset = self._block_of(address, len(data))
        block[offset : offset + len(data)] = data

    def read(self, address: int, size: int) -> bytes:
        """Bytes inside one block. Raises as `write`."""
        block, offset = self._block_of(address, size)
        return bytes(block[offset : offset + size])

    def _block_of(self, address: int, size: int) -> tuple[bytearray, int]:
        at = bisect_right(self._starts, address) - 1
        if at < 0 or address + size > self._starts[at] + len(self._data[at]):
            raise ValueError(f"{size} bytes at {address:#x} are not in one block")
        return self._data[at], address - self._starts[at]

    def _map_page(self) -> bool:
        if self.mapped_bytes + self.page_bytes > self.capacity_bytes:
            return False
        if self.huge_pages and self.fell_back_at is None:
            if self._huge_left:
                self._huge_left -= 1
            elif self.huge_pages is HugePages.ONLY:
                return False
            else:
                self.fell_back_at = self.mapped_bytes
        self.mapped_bytes += self.page_bytes
        return True
