"""What a file may cost in memory: a file of a few bytes must not become an object each."""

from __future__ import annotations

from google.protobuf.message import DecodeError

FREE_BYTES = 16 << 20  # what every file may cost
FACTOR = 8  # what a file may cost for each of its bytes; graphs that compilers write stay below


class MemoryBudget:
    """Bytes of memory that the objects made from `size` bytes of a file may take, by a rough estimate."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.left = max(FREE_BYTES, FACTOR * size)

    def spend(self, cost: int) -> None:
        """Raises DecodeError when the objects would be out of all proportion to the file."""
        self.left -= cost
        if self.left < 0:
            spent = max(FREE_BYTES, FACTOR * self.size)
            raise DecodeError(f"{self.size} bytes would need more than {spent} bytes of memory")
