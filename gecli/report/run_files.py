"""Files about a run: every sample of --export-times, and the profile of --profile-out (cli.md 3.5)."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from io import StringIO
from typing import Any

from gecli.artifacts.publish import publish_bytes
from gecli.report.run_report import profile_rows
from gecli.runtime.runner import Outcome

NS_PER_US = 1000


def write_times(path: str, outcomes: Sequence[Outcome]) -> None:
    """All samples in milliseconds, one object a measured run. Raises OutputError."""
    samples = [
        {
            "model": outcome.model.name,
            "run": number,
            "h2d_ms": times.h2d_ns / 1e6,
            "compute_ms": times.compute_ns / 1e6,
            "d2h_ms": times.d2h_ns / 1e6,
            "total_ms": times.total_ns / 1e6,
        }
        for outcome in outcomes
        for number, times in enumerate(outcome.times)
    ]
    _publish_json(path, {"schema": "gecli.times/1", "simulated": True, "samples": samples})


def write_profile(path: str, outcomes: Sequence[Outcome], by: str) -> None:
    """A `.csv` table of the profile, or else a trace for chrome://tracing and Perfetto. Raises OutputError."""
    if path.endswith(".csv"):
        publish_bytes(path, _table(outcomes, by).encode("utf-8", "surrogateescape"))
    else:
        _publish_json(
            path, {"displayTimeUnit": "ms", "otherData": {"simulated": "true"}, "traceEvents": _events(outcomes)}
        )


def _table(outcomes: Sequence[Outcome], by: str) -> str:
    text = StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("model", by, "nodes", "count", "total_ms", "mean_ms", "share"))
    for outcome in outcomes:
        for row in profile_rows(outcome.per_node or {}, by):
            numbers = (f"{row['total_ms']:.6f}", f"{row['mean_ms']:.6f}", f"{row['share']:.6f}")
            writer.writerow((outcome.model.name, row["name"], row["nodes"], row["count"], *numbers))
    return text.getvalue()


def _events(outcomes: Sequence[Outcome]) -> list[dict[str, Any]]:
    """One complete event a step, one process a model; times count from the first step."""
    events: list[dict[str, Any]] = []
    for process, outcome in enumerate(outcomes):
        events.append({"name": "process_name", "ph": "M", "pid": process, "args": {"name": outcome.model.name}})
        start = outcome.trace[0].start_ns if outcome.trace else 0
        events += [
            {
                "name": span.name,
                "cat": span.type,
                "ph": "X",
                "pid": process,
                "tid": 0,
                "ts": (span.start_ns - start) / NS_PER_US,
                "dur": span.elapsed_ns / NS_PER_US,
            }
            for span in outcome.trace
        ]
    return events


def _publish_json(path: str, document: dict[str, Any]) -> None:
    publish_bytes(path, (json.dumps(document, indent=1) + "\n").encode("utf-8", "surrogateescape"))
