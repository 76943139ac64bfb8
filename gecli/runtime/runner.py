"""Running a loaded model for several requests and repetitions, with times."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from time import perf_counter_ns
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gecli.errors import RuntimeFault
from gecli.runtime.model import LoadedModel, Times

Array = NDArray[Any]
P99_SAMPLES = 20  # fewer samples say nothing about the hundredth


@dataclass(frozen=True, slots=True)
class Schedule:
    """How often each request runs: `warmup` unmeasured runs, then `loop` measured ones, at least `seconds` long."""

    loop: int = 1
    warmup: int = 0
    seconds: float = 0.0


@dataclass(slots=True)
class Outcome:
    """The runs of one model: the outputs of every request (of its last repetition) and the measured times."""

    model: LoadedModel
    outputs: list[dict[str, Array]] = field(default_factory=list)
    times: list[Times] = field(default_factory=list)
    per_node: dict[str, NodeTime] | None = None


@dataclass(slots=True)
class NodeTime:
    """Time spent in one node over all measured runs."""

    name: str
    type: str
    count: int = 0
    total_ns: int = 0
    bytes_out: int = 0


def run_requests(
    model: LoadedModel,
    requests: Sequence[dict[str, Array]],
    schedule: Schedule,
    *,
    profile: bool = False,
    check_numerics: bool = False,
) -> Outcome:
    """Run every request in order. A model that writes variables changes them in every run, warm-up included.

    Raises RuntimeFault (RT_NUMERIC with `check_numerics`, when an output holds an infinity or NaN).
    """
    outcome = Outcome(model)
    for feeds in requests:
        for _ in range(schedule.warmup):
            model.run(feeds)
        outputs: dict[str, Array] = {}
        end = perf_counter_ns() + int(schedule.seconds * 1e9)
        done = 0
        while done < schedule.loop or perf_counter_ns() < end:
            outputs, times = model.run(feeds)
            outcome.times.append(times)
            done += 1
        if check_numerics:
            _require_finite(outputs)
        outcome.outputs.append(outputs)
    if profile and model.program is not None:
        outcome.per_node = _profile(model, requests[-1], max(schedule.loop, 1))
    return outcome


def _profile(model: LoadedModel, feeds: dict[str, Array], loop: int) -> dict[str, NodeTime]:
    """Time each instruction in runs of their own, so that the measured runs carry no instruments."""
    assert model.program is not None
    found: dict[str, NodeTime] = {}
    with np.errstate(all="ignore"):
        for _ in range(loop):
            for instruction in model.program.instructions:
                start = perf_counter_ns()
                instruction.step()
                spent = perf_counter_ns() - start
                node = instruction.node
                row = found.setdefault(node.name, NodeTime(node.name, node.type))
                row.total_ns += spent
        for row in found.values():
            row.count = loop
    return found


def _require_finite(outputs: dict[str, Array]) -> None:
    for name, array in outputs.items():
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            first = tuple(int(i) for i in np.argwhere(~np.isfinite(array))[0])
            raise RuntimeFault(
                "G4007",
                f"output {name!r} holds a value that is not finite",
                where=f"first at index {list(first)}",
                why=f"it is {array[first]}",
                kind="RT_NUMERIC",
            )


def statistics(times: Sequence[Times]) -> dict[str, Any]:
    """min, mean, median, p90, p95, p99, max, std in milliseconds for each phase, and runs a second.

    Percentiles interpolate linearly; p99 needs at least 20 samples and is None otherwise.
    """
    if not times:
        return {}
    phases = {
        "h2d": [each.h2d_ns for each in times],
        "compute": [each.compute_ns for each in times],
        "d2h": [each.d2h_ns for each in times],
        "total": [each.total_ns for each in times],
    }
    table = {name: _row(np.array(values) / 1e6) for name, values in phases.items()}
    mean = table["total"]["mean"]
    return {"runs": len(times), "phases": table, "throughput": 1000 / mean if mean else None}


def _row(values: Array) -> dict[str, Any]:
    quantiles = np.percentile(values, [50, 90, 95, 99])
    return {
        "min": float(values.min()),
        "mean": float(values.mean()),
        "median": float(quantiles[0]),
        "p90": float(quantiles[1]),
        "p95": float(quantiles[2]),
        "p99": float(quantiles[3]) if len(values) >= P99_SAMPLES else None,
        "max": float(values.max()),
        "std": float(values.std()),
    }
