"""`-j N`: models that share nothing are compiled by several processes at once (cli.md 1.8)."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from gecli.artifacts.publish import (
    handed_over,
    lock_taken_over,
    published_together,
    remove_temporaries,
    start_apart,
    take_over,
)
from gecli.errors import Diagnostic, GecliError

if TYPE_CHECKING:
    from gecli.compiler.result import ModelResult

Task = Callable[[], "list[ModelResult]"]
Outcome = tuple["list[ModelResult]", "type[GecliError] | None", tuple[Diagnostic, ...], Any]

_tasks: Sequence[Task] = ()  # a forked process has them without a copy
_stopped: Any = None  # an event that all processes share: nothing new is begun


def compiled_at_once(tasks: Sequence[Task], workers: int, *, keep_going: bool) -> list[list[ModelResult] | GecliError]:
    """What each task gives, in their order, or the error that it ended with.

    Without `keep_going` no task begins after one has failed; those that did not begin are left out. What a result
    needs of its graph has been written by its process, so results come without graphs. What they wrote waits for the
    end of the block of `published_together` that is running here.
    """
    global _tasks, _stopped
    context = multiprocessing.get_context("fork")
    _tasks, _stopped = tasks, context.Event()
    try:
        with context.Pool(min(workers, len(tasks)), _settle) as pool:
            outcomes = pool.map(_outcome, [(number, keep_going) for number in range(len(tasks))], chunksize=1)
            for outcome in outcomes:
                if outcome is not None:
                    take_over(*outcome[3])
            pool.close()
            pool.join()  # else they are ended by a signal
            lock_taken_over()
    finally:
        _tasks, _stopped = (), None
    found: list[list[ModelResult] | GecliError] = []
    for outcome in outcomes:
        if outcome is None:
            continue
        results, error, diagnostics, _ = outcome
        found.append(results if error is None else error.of(diagnostics))
    return found


def _settle() -> None:
    """A worker leaves it to the parent what a stop means, and is ended by it."""
    start_apart()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _end)


def _end(number: int, frame: object) -> None:
    remove_temporaries()
    os._exit(128 + number)


def _outcome(task: tuple[int, bool]) -> Outcome | None:
    number, keep_going = task
    if _stopped.is_set():
        return None
    try:
        with published_together():
            results = _tasks[number]()
    except GecliError as error:
        if not keep_going:
            _stopped.set()
        return [], type(error), error.diagnostics, handed_over()
    for result in results:
        result.graph = None
    return results, None, (), handed_over()
