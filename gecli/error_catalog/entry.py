"""One catalogue entry and the exit statuses it may name."""

from __future__ import annotations

from typing import NamedTuple

OPTION, INPUT, COMPILE, OUTPUT, RUN, CACHE = 2, 3, 4, 5, 6, 7
INTERNAL_STATUS = 70  # a bug of gecli


class Entry(NamedTuple):
    """What `gecli explain CODE` says, and the exit status that the code stands for."""

    exit_status: int
    title: str
    cause: str
    remedy: str
