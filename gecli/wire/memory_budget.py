"""What a file may cost in memory: a file of a few bytes must not become an object each.

A process that reads a file shall stay below twice the file and 64 MiB. The interpreter with protobuf takes 25 MiB of
these, numpy 13 to 19 (a kernel maps more pages of a library that was just written), and what is decoded, compared or
printed at the moment some more; the rest is for the objects that stay.
"""

from __future__ import annotations

from google.protobuf.message import DecodeError

FREE_BYTES = 22 << 20  # what every file may cost
FACTOR = 2  # what a file may cost for each of its bytes; graphs that compilers write stay below

# Bytes of memory that an object takes, with its place in a list or dictionary; measured with CPython 3.11.
TEXT_COST = 64  # and its characters
NUMBER_COST = 40
EMPTY_TUPLE_COST = 64
EMPTY_LIST_COST = 300  # with a kind of its own
DICT_COST, DICT_ENTRY_COST = 200, 60  # the first five entries are in the former
DESC_COST = 200
WEIGHT_COST = 220
FUNCTION_COST = 120

ROOM = "a file is read in less than twice its size and 64 MiB of memory"


def dict_cost(entries: int) -> int:
    """Of a dictionary with shared keys, without its values."""
    return 0 if entries == 0 else DICT_COST + DICT_ENTRY_COST * max(entries - 5, 0)


class TooManyObjects(DecodeError):
    """The bytes are sound, but what they say does not fit into the memory that their number allows."""


def is_about_memory(error: BaseException | None) -> bool:
    """True when `error`, or what it was raised from, is TooManyObjects."""
    while error is not None and not isinstance(error, TooManyObjects):
        error = error.__cause__
    return error is not None


class MemoryBudget:
    """Bytes of memory that the objects made from a file may take, by an estimate that is rather too high.

    `size` is the size of the file, or of the part of it that has this budget; `shares` among how many of them the free
    bytes are divided.
    """

    def __init__(self, size: int, shares: int = 1) -> None:
        self.size = size
        self.whole = self.left = FREE_BYTES // shares + FACTOR * size

    @staticmethod
    def unlimited() -> MemoryBudget:
        """For files that are gecli's own, and for bytes in memory."""
        return MemoryBudget(1 << 60)

    def spend(self, cost: int) -> None:
        """Raises TooManyObjects when the objects would be out of all proportion to the file."""
        self.left -= cost
        if self.left < 0:
            raise self.refusal()

    def require(self, cost: int) -> None:
        """Raises TooManyObjects when there is no room for objects that go again."""
        if self.left < cost:
            raise self.refusal()

    def refusal(self) -> TooManyObjects:
        return TooManyObjects(f"the objects of {self.size} bytes would need more than {self.whole} bytes of memory")
