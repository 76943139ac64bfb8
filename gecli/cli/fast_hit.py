"""A compile that is already in the cache, answered before click and the option tables are loaded.

The command line, the environment and every file that decided the result are compared with a memo that an earlier run
left in the cache directory; if nothing changed, the entry's files become the outputs.
"""

from __future__ import annotations

import os
import sys
import time

TYPE_CHECKING = False  # not from typing, which costs 7 ms
if TYPE_CHECKING:
    from gecli.cache.command_memo import Memo, Placement

STARTED_NS = time.time_ns()  # nothing was read before
BROKEN_PIPE = 141
USE_TIME_STEP_NS = 3_600_000_000_000  # as gecli.cache.model_cache: renewed at most once an hour


def try_fast_hit(argv: list[str]) -> int | None:
    """The exit status if the whole command could be served from the cache, else None: go the long way.

    Prints nothing when it returns None; at most an output is in place then, with the right content.
    """
    start = time.perf_counter()
    directory = cache_dir_of(argv)
    if not directory or not os.path.isdir(os.path.join(directory, ".gecli", "stat")):
        return None
    from gecli.cache.command_memo import conditions_of, memo_path, read_memo, write_memo

    conditions = conditions_of(argv, os.environ)
    path = memo_path(directory, conditions)
    memo = read_memo(path)
    if memo is None or not memo.holds(conditions) or not _printable(memo):
        from gecli.cli.request_hit import try_request_hit

        return try_request_hit(argv)
    try:
        changed = _place(memo)
        if memo.stale and os.path.lexists(memo.stale):
            os.unlink(memo.stale)
    except Exception:  # whatever is wrong with an output, the long way finds it again and says so
        return None
    used = _note_use(memo)
    if changed or used:
        write_memo(path, memo)
    if memo.event:
        from gecli.cache.events import record

        record(directory, memo.event)
    return _answer(memo, argv, (time.perf_counter() - start) * 1000)


def cache_dir_of(argv: list[str]) -> str:
    """The cache directory that a command line seems to name. A wrong guess only leads to no memo."""
    found = os.environ.get("GECLI_CACHE_DIR", "")
    for position, word in enumerate(argv):
        name, equals, value = word.lstrip("-").partition("=")
        if word.startswith("-") and name.replace("_", "-") == "cache-dir":
            found = value if equals else next(iter(argv[position + 1 :]), "")
    return found


def _place(memo: Memo) -> bool:
    """Make the outputs right, all of them or none; True if their looks changed in a way that the memo should know."""
    from gecli.cache.stat_index import touch_as_witness

    missing = [each for each in memo.placements if not _is_in_place(each)]
    if missing:
        from gecli.artifacts.publish import published_together

        with published_together():
            for each in missing:
                _copy(each, memo)
    for each in memo.placements:
        each.numbers = touch_as_witness(each.target)
    return bool(memo.placements)


def _is_in_place(output: Placement) -> bool:
    from gecli.cache.stat_index import numbers_of

    known = output.numbers
    return known is not None and numbers_of(output.target) == known and not os.path.islink(output.target)


def _copy(output: Placement, memo: Memo) -> None:
    from gecli.artifacts.publish import place_copy
    from gecli.cache.stat_index import numbers_of, numbers_of_open

    if os.path.islink(output.target):
        raise ValueError(f"{output.target} is a link, which may lead into the cache")
    found = numbers_of(output.target)  # another name of an input is one too
    is_input = found is not None and any(each is not None and each[:2] == found[:2] for each in memo.files.values())
    if is_input or os.path.realpath(output.target) in memo.files:
        raise ValueError(f"{output.target} is an input by now")
    numbers = memo.files.get(os.path.realpath(output.source))
    place_copy(output.source, output.target, lambda descriptor: numbers_of_open(descriptor) == numbers)


def _note_use(memo: Memo) -> bool:
    from gecli.cache.stat_index import touch_as_witness

    numbers = memo.files.get(memo.sidecar)
    if numbers is None or 0 <= time.time_ns() - numbers[3] < USE_TIME_STEP_NS:
        return False
    try:
        memo.files[memo.sidecar] = touch_as_witness(memo.sidecar)
    except OSError:
        return False
    return True


def _printable(memo: Memo) -> bool:
    """Whether the texts can be printed as they are; otherwise the console has to look at every character."""
    if all(text.isascii() for text in memo.texts.values()):
        return True
    streams = (sys.stdout, sys.stderr)
    return all((stream.encoding or "").lower().replace("-", "") == "utf8" for stream in streams)


def _answer(memo: Memo, argv: list[str], elapsed_ms: float) -> int:
    from gecli.cache.command_memo import TIME_MARK

    document = memo.texts["document"]
    try:
        if document:
            if memo.texts["human"]:
                print(memo.texts["human"].replace(TIME_MARK, _time_text(elapsed_ms)), file=sys.stderr)
            print(document.replace(TIME_MARK, f"{elapsed_ms:.3f}"))
        else:
            text = memo.texts["human" if sys.stdout.isatty() else "plain"]
            if text:
                print(text.replace(TIME_MARK, _time_text(elapsed_ms)))
        sys.stdout.flush()
    except BrokenPipeError:
        return broken_pipe()
    return 0


def broken_pipe() -> int:
    """Let nothing more be written to a closed pipe; the exit status for it."""
    devnull = os.open(os.devnull, os.O_WRONLY)
    os.dup2(devnull, sys.stdout.fileno())
    os.close(devnull)
    return BROKEN_PIPE


def _time_text(milliseconds: float) -> str:
    """As gecli.report.sizes.time_text, whose module need not be loaded."""
    return f"{milliseconds:.0f} ms" if milliseconds >= 10 else f"{milliseconds:.2f} ms"
