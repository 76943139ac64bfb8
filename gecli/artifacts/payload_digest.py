"""The digest of an OM's payload, taken while it is written: a second thread hashes what the first one copies."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from queue import Queue
    from threading import Thread
    from types import TracebackType

PARALLEL_BYTES = 16 << 20  # smaller payloads are hashed before a thread has started
_BLOCKS_AHEAD = 4  # bounds what waits to be hashed, and so the memory


class PayloadDigest:
    """SHA-256 of the blocks given to `update`; `result` is there when the `with` block has ended."""

    def __init__(self, size_bytes: int) -> None:
        self.result = b""
        self._digest = hashlib.sha256()
        self._size_bytes = size_bytes
        self._blocks: Queue[bytes | None] | None = None
        self._thread: Thread | None = None

    def __enter__(self) -> PayloadDigest:
        if self._size_bytes >= PARALLEL_BYTES:
            from queue import Queue
            from threading import Thread

            self._blocks = Queue(_BLOCKS_AHEAD)
            self._thread = Thread(target=self._hash, args=(self._blocks,), daemon=True)
            self._thread.start()
        return self

    def update(self, block: bytes) -> None:
        """Add a block, which must not change any more."""
        if self._blocks is None:
            self._digest.update(block)
        else:
            self._blocks.put(block)

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._blocks is not None and self._thread is not None:
            self._blocks.put(None)
            self._thread.join()
        self.result = self._digest.digest()

    def _hash(self, blocks: Queue[bytes | None]) -> None:
        while (block := blocks.get()) is not None:
            self._digest.update(block)
