"""The document and the lines of `gecli cache stats` (cache.md 12.4)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gecli.cache.reasons import REASONS
from gecli.cache.statistics import Counts, total
from gecli.cache.survey import EntryRow, Survey
from gecli.report.sizes import counted, size_text
from gecli.report.times import utc_text

SIMPLE = (
    "writes", "write_errors", "adopted", "quarantined", "bytes_read", "bytes_written", "seconds_spent", "seconds_saved",
    "gc_runs", "bytes_freed",
)  # fmt: skip
WORDS = {
    "writes": "entries written", "write_errors": "entries not written", "adopted": "entries adopted",
    "quarantined": "entries set aside", "bytes_read": "read", "bytes_written": "written",
    "seconds_spent": "compile time spent", "seconds_saved": "compile time saved", "gc_runs": "gc runs",
    "bytes_freed": "freed by gc",
}  # fmt: skip
COLUMNS = ("KEY", "LOOKUPS", "HITS", "MISSES", "WRITES", "SECONDS SAVED")
WIDTH = 24


def stats_document(found: Survey, by_key: Mapping[str, Counts], since_s: float | None) -> dict[str, Any]:
    rows = [row for row in found.all_rows if not row.is_slicing]
    slices = [row for row in found.all_rows if row.is_slicing]
    aside = found.quarantined
    return {
        "schema": "gecli.cache-stats/1",
        "cache_dir": found.directory,
        "since": None if since_s is None else utc_text(since_s),
        "entries": len(rows),
        "keys": len({row.key for row in rows}),
        "bytes": sum(row.size_bytes for row in found.all_rows),
        "slices": {"graphs": len(slices), "bytes": sum(row.size_bytes for row in slices)},
        "quarantine": {"items": len(aside), "bytes": sum(each.size_bytes for each in aside)},
        "weights_bytes": found.weights_bytes(rows),
        "unreferenced_weights_bytes": found.unreferenced_bytes,
        "oldest": _extreme(sorted(rows, key=lambda row: (row.created_s, row.stem))[:1]),
        "newest": _extreme(sorted(rows, key=lambda row: (row.created_s, row.stem))[-1:]),
        "biggest": _extreme(sorted(rows, key=lambda row: (row.size_bytes, row.stem))[-1:]),
        "counters": _counters(total(by_key)),
        "by_key": [{"key": key, **_counters(by_key[key])} for key in sorted(by_key) if key],
    }


def stats_lines(document: Mapping[str, Any], *, human: bool, by_key: bool) -> list[str]:
    """One fact a line; sizes and times as they are for a pipe, shortened for people."""
    size = size_text if human else str
    counters = document["counters"]
    inside = f"{counted(document['entries'], 'entry', 'entries')}, {counted(document['keys'], 'key')}"
    unit = "" if human else " bytes"
    weights = document["weights_bytes"]
    more = f", {size(weights)}{unit} of weights" if weights else ""
    lines = [_line("contents", f"{inside}, {size(document['bytes'])}{unit}{more}")]
    unreferenced = document["unreferenced_weights_bytes"]
    if unreferenced:
        lines.append(_line("unreferenced weights", f"{size(unreferenced)}{unit}"))
    slices, aside = document["slices"], document["quarantine"]
    if slices["graphs"]:
        lines.append(
            _line("slices", f"of {counted(slices['graphs'], 'graph')}, {size(slices['bytes'])}{unit} of these")
        )
    if aside["items"]:
        lines.append(_line("set aside", f"{counted(aside['items'], 'item')}, {size(aside['bytes'])}{unit}"))
    for name in ("oldest", "newest", "biggest"):
        each = document[name]
        if each is not None:
            what = f"{size(each['bytes'])}{unit}" if name == "biggest" else each["created"]
            lines.append(_line(name, f"{each['entry']}  {what}"))
    if document["since"]:
        lines.append(_line("since", document["since"]))
    rate = f"  ({100 * counters['hits']['total'] / counters['lookups']:.0f} %)" if counters["lookups"] else ""
    lines.append(_line("lookups", str(counters["lookups"])))
    lines.append(_line("hits", f"{counters['hits']['total']}{rate}"))
    lines += [_line(f"  {via}", str(count)) for via, count in counters["hits"].items() if via != "total"]
    lines.append(_line("misses", str(counters["misses"]["total"])))
    for reason, count in counters["misses"].items():
        if reason != "total":
            words = REASONS.get(reason)
            lines.append(_line(f"  {reason}", f"{count}{f'  {words}' if words else ''}"))
    lines += [_line(WORDS[name], _shown(name, counters[name], human=human)) for name in SIMPLE]
    return [*lines, "", *_key_lines(document["by_key"])] if by_key else lines


def _key_lines(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    cells = [COLUMNS] + [
        (
            row["key"], str(row["lookups"]), str(row["hits"]["total"]), str(row["misses"]["total"]),
            str(row["writes"]), f"{row['seconds_saved']:.1f}",
        )
        for row in rows
    ]  # fmt: skip
    widths = [max(len(cell[column]) for cell in cells) for column in range(len(COLUMNS))]
    return [
        "  ".join(text.rjust(width) if column else text.ljust(width) for column, (text, width) in enumerate(pairs))
        for pairs in (list(zip(row, widths)) for row in cells)
    ]


def _shown(name: str, number: float, *, human: bool) -> str:
    if name.startswith("bytes"):
        return size_text(int(number)) if human else f"{number} bytes"
    return f"{number:.1f} s" if name.startswith("seconds") else str(number)


def _line(name: str, value: str) -> str:
    return f"{name:<{WIDTH}}{value}"


def _counters(counts: Counts) -> dict[str, Any]:
    hits, misses = int(counts.get("hits", 0)), int(counts.get("misses", 0))
    return {
        "lookups": hits + misses,
        "hits": {"total": hits, **_divided(counts, "hits")},
        "misses": {"total": misses, **_divided(counts, "misses")},
        **{name: _whole(counts.get(name, 0)) for name in SIMPLE},
    }


def _divided(counts: Counts, name: str) -> dict[str, int]:
    """The parts of a counter, the largest first."""
    parts = {part.partition(".")[2]: int(count) for part, count in counts.items() if part.startswith(f"{name}.")}
    return dict(sorted(parts.items(), key=lambda pair: (-pair[1], pair[0])))


def _whole(number: float) -> float:
    return int(number) if number == int(number) else number


def _extreme(rows: Sequence[EntryRow]) -> dict[str, Any] | None:
    if not rows:
        return None
    row = rows[0]
    return {"entry": row.stem, "created": utc_text(row.created_s), "bytes": row.size_bytes}
