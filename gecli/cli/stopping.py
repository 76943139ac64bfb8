"""Signals that end a command: the first one stops it wherever it is, those behind it do not disturb the cleaning up.

Loads nothing, so that it can stand before everything else.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # the builtin part of signal, which costs 4 ms less
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

# Exit status and word of each; SIGHUP comes when the terminal goes, and is no signal of Windows.
ENDINGS = {
    getattr(_signal, name, -status): (status, word)
    for name, status, word in (
        ("SIGINT", 130, "interrupted"),
        ("SIGTERM", 143, "terminated"),
        ("SIGHUP", 129, "hung up"),
    )
}
REPEAT_S = 2.0  # a stop that was not obeyed for so long may be repeated
AGAIN_S = 0.01

_stopped_at = 0.0
_is_ended = False
_number = 0  # of the last stop


class Stopped(BaseException):
    """A signal stopped the command; like KeyboardInterrupt it passes every `except Exception`."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


STOPS = (Stopped, KeyboardInterrupt)


def arm() -> None:
    """From here the signals raise Stopped. Those that the caller has ignored, as nohup does, stay ignored.

    Raises Stopped when the signals were armed before and a stop was taken for a fault of what it struck.
    """
    global _stopped_at, _is_ended
    is_lost = _stopped_at > 0 and not _is_ended
    _stopped_at, _is_ended = 0.0, False
    if is_lost:
        raise Stopped(_number)
    sys.unraisablehook = _stop_again
    _set_all(_stop)


def end() -> None:
    """From here signals do nothing: the command has done its work, or takes away what it had begun."""
    global _is_ended
    _is_ended = True


def disarm() -> None:
    """Nothing is left to clean up: a signal may end the process at once."""
    end()
    _set_all(_signal.SIG_DFL)


def ending_of(stop: BaseException) -> tuple[int, str]:
    """The exit status for a stop, and the word that tells it."""
    return ENDINGS[stop.number if isinstance(stop, Stopped) else int(_signal.SIGINT)]


def stop_behind(error: BaseException) -> BaseException | None:
    """The stop that an exception was made of, if a signal was caught before it came.

    Making a class wraps what its fields raise in a RuntimeError, and modules in C make ImportErrors of anything.
    """
    if isinstance(error, STOPS):
        return error
    return Stopped(_number) if _stopped_at > 0 and not _is_ended else None


def _set_all(action: Callable[[int, object], None] | int) -> None:
    for number in ENDINGS:
        if number > 0 and _signal.getsignal(number) != _signal.SIG_IGN:
            _signal.signal(number, action)


def _stop(number: int, frame: object) -> None:
    # A function that returns, rather than SIG_IGN: Python reports a signal that was on its way to a handler that went.
    global _stopped_at, _number
    now = time.monotonic()
    if _is_ended or (_stopped_at and now - _stopped_at < REPEAT_S):
        return
    _stopped_at, _number = now, number
    raise Stopped(number)


def _stop_again(fault: sys.UnraisableHookArgs) -> None:
    """A stop that hit a callback of the interpreter, which swallows exceptions, comes once more a moment later."""
    stop = fault.exc_value
    if not isinstance(stop, STOPS) or not hasattr(_signal, "setitimer"):
        sys.__unraisablehook__(fault)
    elif not _is_ended:
        number = stop.number if isinstance(stop, Stopped) else int(_signal.SIGINT)
        _signal.signal(_signal.SIGALRM, lambda alarm, frame: _raise_unless_ended(number))
        _signal.setitimer(_signal.ITIMER_REAL, AGAIN_S)


def _raise_unless_ended(number: int) -> None:
    if not _is_ended:
        raise Stopped(number)
