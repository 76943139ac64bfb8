"""Points in time as text, whatever a clock or a file says; beyond the calendar the nearest day that it has."""

from __future__ import annotations

from datetime import UTC, datetime

DAY_S = 86400.0
FIRST_S, LAST_S = -62135596800 + DAY_S, 253402300799 - DAY_S  # a day inside, for time zones


def utc_text(seconds: float) -> str:
    return datetime.fromtimestamp(_in_calendar(seconds), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def local_text(seconds: float) -> str:
    """To the minute, for people."""
    return datetime.fromtimestamp(_in_calendar(seconds)).strftime("%Y-%m-%d %H:%M")


def _in_calendar(seconds: float) -> float:
    return min(max(seconds, FIRST_S), LAST_S)
