"""Hits, misses and what else happened in a cache directory, counted from the events of all hosts (cache.md 12.4).

Old logs are folded into `summary.json`, which keeps a row for each day and key of the last month, and one for each key
before.
"""

from __future__ import annotations

import io
import json
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from gecli.artifacts.shared_files import mode_in
from gecli.cache.events import log_path, stats_dir
from gecli.cache.gc_lock import gc_lock
from gecli.cache.store import replace_file
from gecli.json_text import parse_json
from gecli.wire.regular_file import read_regular

SCHEMA = "gecli.cache-summary/1"
SUMMARY = "summary.json"
LOG_SUFFIX = ".jsonl"
SETTLED_S = 2.0  # a log that was set aside may still be open in a process that is writing its line
KEPT_DAYS = 30
EARLIER = "earlier"  # in the place of a day
MAX_BYTES = 1 << 26

Counts = dict[str, float]
Days = dict[str, dict[str, Counts]]  # by day (or EARLIER), then by key

# The counters, each with the event and the member that it sums; `hits.VIA` and `misses.REASON` come beside them.
SUMS = {
    "writes": ("write", "count"), "bytes_written": ("write", "bytes"), "seconds_spent": ("write", "seconds"),
    "write_errors": ("write_error", "count"), "adopted": ("adopted", "count"), "quarantined": ("quarantined", "count"),
    "hits": ("hit", "count"), "bytes_read": ("hit", "bytes"), "seconds_saved": ("hit", "seconds"),
    "misses": ("miss", "count"), "gc_runs": ("gc", "count"), "bytes_freed": ("gc", "bytes"),
}  # fmt: skip
DIVIDED = {"hit": "hits", "miss": "misses"}  # events that are also counted by what they say


def counts_by_key(directory: str, since_s: float | None = None) -> dict[str, Counts]:
    """The counters of every key ("" for what belongs to none) from all logs. Changes nothing.

    With `since_s` only what happened from then on; of days that are in the summary already, whole days.
    """
    days, folded = _summary(directory)
    first = "" if since_s is None else _day(since_s)
    found: dict[str, Counts] = {}
    for day, keys in days.items():
        if since_s is None or (day != EARLIER and day >= first):
            for key, counts in keys.items():
                _add(found.setdefault(key, {}), counts)
    for name in _logs(directory):
        if name not in folded:
            for entry in _events(os.path.join(stats_dir(directory), name)):
                if since_s is None or _time(entry) >= since_s:
                    _add(found.setdefault(_text(entry, "key"), {}), _counts(entry))
    return found


def total(by_key: Mapping[str, Counts]) -> Counts:
    found: Counts = {}
    for counts in by_key.values():
        _add(found, counts)
    return found


def fold(directory: str) -> None:
    """Take logs that were set aside into the summary, and set this host's aside. Never fails, never waits.

    The summary names the logs that it holds until they are gone, so that none is counted twice.
    """
    with suppress(OSError), gc_lock(directory) as is_held:
        if is_held:
            _fold(directory)


def _fold(directory: str) -> None:
    folder = stats_dir(directory)
    days, folded = _summary(directory)
    for name in folded:
        _remove(os.path.join(folder, name))
    now = time.time()
    own = os.path.basename(log_path(folder))
    settled = [
        name
        for name in _logs(directory)
        if name not in folded and _is_aside(name) and now - os.stat(os.path.join(folder, name)).st_mtime > SETTLED_S
    ]
    if settled:
        for name in settled:
            _take(days, _events(os.path.join(folder, name)))
        _shorten(days, _day(now - KEPT_DAYS * 86400))
        document = {"schema": SCHEMA, "days": days, "folded": settled}
        text = json.dumps(document, sort_keys=True, separators=(",", ":"))
        replace_file(os.path.join(folder, SUMMARY), text.encode(), mode_in(directory))
        for name in settled:
            _remove(os.path.join(folder, name))
    if os.path.exists(os.path.join(folder, own)):
        aside = f"{own.removesuffix(LOG_SUFFIX)}.{time.time_ns():x}{LOG_SUFFIX}"
        os.rename(os.path.join(folder, own), os.path.join(folder, aside))


def zero(directory: str) -> None:
    """Begin to count anew. Raises OSError."""
    folder = stats_dir(directory)
    for name in [*_logs(directory), SUMMARY]:
        with suppress(FileNotFoundError):
            os.unlink(os.path.join(folder, name))


def _take(days: Days, entries: Iterable[dict[str, Any]]) -> None:
    for entry in entries:
        keys = days.setdefault(_day(_time(entry)), {})
        _add(keys.setdefault(_text(entry, "key"), {}), _counts(entry))


def _shorten(days: Days, first: str) -> None:
    for day in [day for day in days if day != EARLIER and day < first]:
        for key, counts in days.pop(day).items():
            _add(days.setdefault(EARLIER, {}).setdefault(key, {}), counts)


def _counts(entry: Mapping[str, Any]) -> Counts:
    kind, why = _text(entry, "event"), _text(entry, "why")
    numbers = {"count": _number(entry.get("count", 1)), "bytes": _number(entry.get("bytes"))}
    numbers["seconds"] = _number(entry.get("seconds"))
    found = {name: numbers[member] for name, (event, member) in SUMS.items() if event == kind and numbers[member]}
    if kind in DIVIDED and why:
        found[f"{DIVIDED[kind]}.{why}"] = numbers["count"]
    return found


def _add(counts: Counts, more: Mapping[str, float]) -> None:
    for name, number in more.items():
        counts[name] = round(counts.get(name, 0) + number, 3)


def _summary(directory: str) -> tuple[Days, list[str]]:
    """What was folded, and the logs that are in it; nothing when the file is missing or damaged."""
    try:
        content = parse_json(read_regular(os.path.join(stats_dir(directory), SUMMARY), MAX_BYTES), raw_bytes=True)
    except (OSError, ValueError, RecursionError):
        return {}, []
    if not isinstance(content, dict) or content.get("schema") != SCHEMA:
        return {}, []
    days: Days = {}
    for day, keys in _object(content.get("days")).items():
        for key, counts in _object(keys).items():
            days.setdefault(day, {})[key] = {name: _number(value) for name, value in _object(counts).items()}
    folded = content.get("folded")
    names = [str(name) for name in folded] if isinstance(folded, list) else []
    return days, [name for name in names if _is_aside(name) and "/" not in name]


def _logs(directory: str) -> list[str]:
    try:
        return sorted(name for name in os.listdir(stats_dir(directory)) if name.endswith(LOG_SUFFIX))
    except OSError:
        return []


def _is_aside(name: str) -> bool:
    """Whether a log has its time of setting aside in the name, `{host}.{hex}.jsonl`; nobody opens those to write."""
    stamp = name.removesuffix(LOG_SUFFIX).rpartition(".")[2]
    return name.endswith(LOG_SUFFIX) and len(stamp) >= 15 and not stamp.strip("0123456789abcdef")


def _events(path: str) -> Iterator[dict[str, Any]]:
    """The events of a log; lines that are none are left out."""
    try:
        lines = io.BytesIO(read_regular(path, MAX_BYTES))
    except OSError:
        return
    for line in lines:
        if line.isspace():
            continue
        try:
            entry = parse_json(line, raw_bytes=True)
        except (ValueError, RecursionError):
            continue  # cut off by a full disk
        if isinstance(entry, dict):
            yield entry


def _day(seconds: float) -> str:
    return datetime.fromtimestamp(min(max(seconds, 0), 1e11), UTC).strftime("%Y-%m-%d")


def _time(entry: Mapping[str, Any]) -> float:
    return _number(entry.get("time"))


def _text(entry: Mapping[str, Any], name: str) -> str:
    value = entry.get(name)
    return value if isinstance(value, str) else ""


def _number(value: Any) -> float:
    """A count as it was written: whole numbers stay whole."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return value if is_number and value - value == 0 and abs(value) < 1e18 else 0


def _object(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _remove(path: str) -> None:
    with suppress(OSError):
        os.unlink(path)
