"""Files by several threads, because each of them waits for the disk alone."""

from __future__ import annotations

TYPE_CHECKING = False  # not from typing: a cache hit would pay 7 ms for it
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

FEW = 8  # files that one thread handles sooner than several would start


def for_each(items: Sequence[Any], work: Callable[[Any], object], threads: int = 8) -> None:
    """Call `work` once for every item, many of them at once. Raises the first error, after all threads have ended."""
    left = iter(items)  # each is handed out once, whoever asks
    faults: list[Exception] = []

    def run() -> None:
        try:
            for item in left:
                work(item)
        except Exception as fault:
            faults.append(fault)

    helpers = []
    if len(items) > FEW:
        from threading import Thread

        helpers = [Thread(target=run, daemon=True) for _ in range(threads - 1)]
        for helper in helpers:
            helper.start()
    run()
    for helper in helpers:
        helper.join()
    if faults:
        raise faults[0]
