"""One catalogue entry and the exit statuses it may name."""

from __future__ import annotations

from typing import NamedTuple

OUTCOME_DIFFERS = 1
OPTION, INPUT, COMPILE, OUTPUT, RUN, CACHE = 2, 3, 4, 5, 6, 7
INTERNAL_STATUS = 70  # a bug of gecli, or parts of it are missing

# Every exit status: (status, name, when).
EXIT_STATUSES: tuple[tuple[int, str, str], ...] = (
    (0, "ok", "done; a comparison found no difference"),
    (OUTCOME_DIFFERS, "differs", "a comparison or verification found a difference, nothing else went wrong"),
    (OPTION, "usage", "an option, its value or a combination is not valid, or one is missing"),
    (INPUT, "input", "a file is missing, unreadable, foreign or damaged, or uses an unsupported operator"),
    (COMPILE, "compile", "a compile stage failed on a well-formed graph"),
    (OUTPUT, "output", "an output cannot be written"),
    (RUN, "runtime", "execution failed"),
    (CACHE, "cache", "--require-cache was given and the cache could not be used, or a lock was not obtained"),
    (INTERNAL_STATUS, "internal", "a bug in gecli, or its installation is incomplete"),
    (129, "hung up", "SIGHUP arrived: the terminal went away"),
    (130, "interrupted", "SIGINT arrived"),
    (141, "broken pipe", "the reader of the standard output went away"),
    (143, "terminated", "SIGTERM arrived"),
)


class Entry(NamedTuple):
    """What `gecli explain CODE` says, and the exit status that the code stands for."""

    exit_status: int
    title: str
    cause: str
    remedy: str
