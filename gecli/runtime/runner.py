"""Running a loaded model for several requests and repetitions, with times."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from time import perf_counter_ns
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from gecli.errors import RuntimeFault
from gecli.ir.op_desc import OpDesc, Port
from gecli.records import dataclass
from gecli.runtime.model import LoadedModel, Times
from gecli.runtime.program import ValueOf, Watch

Array = NDArray[Any]
P99_SAMPLES = 20  # fewer samples say nothing about the hundredth


@dataclass(frozen=True, slots=True)
class Schedule:
    """How often each request runs: `warmup` unmeasured runs, then `loop` measured ones, at least `seconds` long.

    All runs of a request begin with the same variables, so that they measure one step and do not train on.
    """

    loop: int = 1
    warmup: int = 0
    seconds: float = 0.0

    @property
    def repeats(self) -> bool:
        """Whether a request may run more than once."""
        return self.loop > 1 or self.warmup > 0 or self.seconds > 0


@dataclass(slots=True)
class Outcome:
    """The runs of one model: the outputs of every request (of its last repetition) and the measured times."""

    model: LoadedModel
    outputs: list[dict[str, Array]] = field(default_factory=list)
    times: list[Times] = field(default_factory=list)
    per_node: dict[str, NodeTime] | None = None
    trace: list[Span] = field(default_factory=list)  # the steps of the first profiled run


class Span(NamedTuple):
    """One step of a profiled run."""

    name: str
    type: str
    start_ns: int
    elapsed_ns: int


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
    watches: Sequence[Watch] = (),
) -> Outcome:
    """Run every request in order. Each request changes the variables once, however often it is repeated.

    `watches` holds one for each request or none; it sees the last measured run. Raises RuntimeFault (RT_NUMERIC with
    `check_numerics`, when the result of a node holds an infinity or NaN).
    """
    outcome = Outcome(model)
    for position, feeds in enumerate(requests):
        watch = watches[position] if watches else None
        before = model.store.snapshot(model.written) if schedule.repeats else []
        for _ in range(schedule.warmup):
            model.run(feeds)
            model.store.restore(before)
        outputs: dict[str, Array] = {}
        end = perf_counter_ns() + int(schedule.seconds * 1e9)
        done = 0
        while done < schedule.loop or perf_counter_ns() < end:
            if done:
                model.store.restore(before)
            is_last = done + 1 >= schedule.loop and perf_counter_ns() >= end
            outputs, times = model.run(feeds, _both(watch if is_last else None, check_numerics))
            outcome.times.append(times)
            done += 1
        outcome.outputs.append(outputs)
    if profile and model.program is not None:
        outcome.per_node, outcome.trace = _profile(model, max(schedule.loop, 1))
    return outcome


def _profile(model: LoadedModel, loop: int) -> tuple[dict[str, NodeTime], list[Span]]:
    """Time each instruction in runs of their own, so that the measured runs carry no instruments.

    The variables are as before afterwards: a profiled training step must not count.
    """
    assert model.program is not None
    found: dict[str, NodeTime] = {}
    trace: list[Span] = []
    kept = [(variable.form.view, variable.form.view.copy()) for variable in model.variables]
    with np.errstate(all="ignore"):
        for number in range(loop):
            for instruction in model.program.instructions:
                start = perf_counter_ns()
                instruction.step()
                spent = perf_counter_ns() - start
                node = instruction.node
                row = found.setdefault(node.name, NodeTime(node.name, node.type))
                row.total_ns += spent
                if number == 0:
                    trace.append(Span(node.name, node.type, start, spent))
        for row in found.values():
            row.count = loop
    for view, before in kept:
        view[...] = before
    return found, trace


def _both(watch: Watch | None, check_numerics: bool) -> Watch | None:
    if not check_numerics:
        return watch

    def check_and_watch(node: OpDesc, value_of: ValueOf) -> None:
        if watch is not None:
            watch(node, value_of)
        _require_finite(node, value_of)

    return check_and_watch


def _require_finite(node: OpDesc, value_of: ValueOf) -> None:
    for index in range(len(node.output_descs)):
        array = value_of(Port(node, index))
        if array is None or array.dtype.kind not in "fV" or np.isfinite(array).all():
            continue
        first = tuple(int(i) for i in np.argwhere(~np.isfinite(array))[0])
        raise RuntimeFault(
            "G4007",
            f"output {index} of {node.type} node {node.name!r} holds a value that is not finite",
            where=f"first at index {list(first)}",
            why=f"it is {array[first]}",
            do=f"look at its inputs: --dump '{node.name}' --dump-inputs",
            node=node.name,
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
