"""Where wire bytes come from: a range of a file, read in pieces, or bytes in memory."""

from __future__ import annotations

import os
from types import TracebackType
from typing import Protocol

from gecli.records import dataclass
from gecli.wire.regular_file import open_regular


class ByteSource(Protocol):
    """Random access to `size` bytes; `base` is where they begin in the file `path`, if they come from one."""

    path: str | None
    base: int

    @property
    def size(self) -> int: ...

    def read(self, offset: int, length: int) -> bytes:
        """Exactly `length` bytes; fewer only when the file became shorter."""


@dataclass(slots=True)
class MemorySource:
    """Bytes in memory."""

    data: bytes | memoryview
    path: str | None = None
    base: int = 0

    @property
    def size(self) -> int:
        return len(self.data)

    def read(self, offset: int, length: int) -> bytes:
        return bytes(self.data[offset : offset + length])


class FileSource:
    """A range of a file, read with `pread` so that nothing of it becomes resident."""

    def __init__(self, path: str, base: int = 0, size: int | None = None) -> None:
        self.path: str | None = path
        self.base = base
        self._handle = open_regular(path)
        self._size = os.fstat(self._handle).st_size - base if size is None else size

    @property
    def size(self) -> int:
        return self._size

    def read(self, offset: int, length: int) -> bytes:
        block = os.pread(self._handle, length, self.base + offset)
        if len(block) == length or not block:
            return block
        parts = [block]
        done = len(block)
        while done < length:
            block = os.pread(self._handle, length - done, self.base + offset + done)
            if not block:
                break
            parts.append(block)
            done += len(block)
        return b"".join(parts)

    def close(self) -> None:
        os.close(self._handle)

    def __enter__(self) -> FileSource:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
