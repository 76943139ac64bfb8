"""The summary and the JSON document of `gecli run` (cli.md 3.4, 3.5, 3.8)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import fsum
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gecli.errors import Diagnostic
from gecli.report.sizes import shape_text
from gecli.runtime.runner import NodeTime, Outcome, statistics
from gecli.runtime.variable_store import Variable, VariableStore

if TYPE_CHECKING:
    from gecli.report.comparison import Difference

Array = NDArray[Any]
SCHEMA = "gecli.run/1"
FIRST_VALUES = 6
PIECE = 1 << 16  # elements
HEADING = "simulation on this host - not device time"


def tensor_statistics(array: Array) -> dict[str, Any]:
    """dtype, shape, min, max, mean, std, counts of NaN and infinity, digest prefix and first values."""
    import hashlib

    facts: dict[str, Any] = {
        "dtype": array.dtype.name,
        "shape": list(array.shape),
        "sha256": hashlib.sha256(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data).hexdigest(),
        "first": [_plain(value) for value in array.reshape(-1)[:FIRST_VALUES]],
    }
    if array.size and array.dtype.kind in "biufV":
        facts |= _number_statistics(array.reshape(-1))
    return facts


def _number_statistics(flat: Array) -> dict[str, Any]:
    """Of the finite numbers, in double precision; piece by piece, as a tensor may be most of the memory in use."""
    pieces = [flat[start : start + PIECE] for start in range(0, flat.size, PIECE)]
    nan = inf = 0
    parts: list[tuple[int, float, float, float]] = []
    for piece in pieces:
        wide = piece.astype(np.float64)
        nan += int(np.isnan(wide).sum())
        inf += int(np.isinf(wide).sum())
        finite = wide[np.isfinite(wide)]
        if finite.size:
            parts.append((finite.size, float(finite.min()), float(finite.max()), float(finite.sum())))
    if not parts:
        return {"min": None, "max": None, "mean": None, "std": None, "nan": nan, "inf": inf}
    count = sum(part[0] for part in parts)
    mean = fsum(part[3] for part in parts) / count
    squares = fsum(_squares_about(mean, piece) for piece in pieces)
    return {
        "min": min(part[1] for part in parts),
        "max": max(part[2] for part in parts),
        "mean": mean,
        "std": float(np.sqrt(squares / count)),
        "nan": nan,
        "inf": inf,
    }


def _squares_about(mean: float, piece: Array) -> float:
    wide = piece.astype(np.float64)
    distance = wide[np.isfinite(wide)] - mean
    return float((distance * distance).sum())


def _plain(value: Any) -> Any:
    if isinstance(value, (np.bool_, bool)):
        return bool(value)
    try:
        number = float(value)
    except (TypeError, ValueError):
        return str(value)
    if not np.isfinite(number):
        return str(number)
    return int(value) if np.issubdtype(np.asarray(value).dtype, np.integer) else number


def output_lines(name: str, array: Array) -> str:
    """One line about an output."""
    facts = tensor_statistics(array)
    first = " ".join(_short(value) for value in facts["first"])
    parts = [f"{name}  {facts['dtype']} {shape_text(facts['shape'])}"]
    if "min" in facts and facts["min"] is not None:
        parts.append(f"min {facts['min']:.6g} max {facts['max']:.6g} mean {facts['mean']:.6g} std {facts['std']:.6g}")
    if facts.get("nan") or facts.get("inf"):
        parts.append(f"nan {facts['nan']} inf {facts['inf']}")
    parts.append(f"sha256 {facts['sha256'][:12]}  [{first}{' ...' if array.size > FIRST_VALUES else ''}]")
    return "  ".join(parts)


def _short(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def not_finite(outcomes: Iterable[Outcome]) -> list[Diagnostic]:
    """One warning that names the outputs with NaN or infinity, and how many; none when all are finite."""
    counts: dict[str, tuple[int, int]] = {}
    for outcome in outcomes:
        for outputs in outcome.outputs:
            for name, array in outputs.items():
                if array.dtype.kind not in "fcV" or np.isfinite(array).all():
                    continue
                nan = int(np.isnan(array).sum())
                before = counts.get(name, (0, 0))
                counts[name] = (before[0] + nan, before[1] + int((~np.isfinite(array)).sum()) - nan)
    if not counts:
        return []
    shown = ", ".join(f"{name} ({nan} nan, {inf} inf)" for name, (nan, inf) in counts.items())
    message = f"outputs hold values that are not finite: {shown}; --check-numerics names the node"
    return [Diagnostic("G4007", message, severity="warning", kind="RT_NUMERIC")]


def timing_lines(outcome: Outcome) -> list[str]:
    """The table of times in milliseconds; one line for one run."""
    stats = statistics(outcome.times)
    if not stats:
        return []
    if stats["runs"] == 1:
        phases = "  ".join(f"{phase} {row['mean']:.3f}" for phase, row in stats["phases"].items())
        return [f"{phases} ms ({HEADING})"]
    columns = ("min", "mean", "median", "p90", "p95", "p99", "max", "std")
    lines = [f"{HEADING}; {stats['runs']} runs, ms"]
    lines.append(f"{'':8}" + "".join(f"{column:>10}" for column in columns))
    for phase, row in stats["phases"].items():
        cells = ("n/a" if row[column] is None else f"{row[column]:.3f}" for column in columns)
        lines.append(f"{phase:8}" + "".join(f"{cell:>10}" for cell in cells))
    if stats["throughput"]:
        lines.append(f"{stats['throughput']:.2f} runs a second; loaded in {outcome.model.load_ns / 1e6:.1f} ms")
    return lines


def profile_rows(per_node: dict[str, NodeTime], by: str) -> list[dict[str, Any]]:
    """Time by node, by type, or in one row for the stream; the most expensive first."""
    groups: dict[str, dict[str, Any]] = {}
    total = sum(row.total_ns for row in per_node.values()) or 1
    for row in per_node.values():
        key = {"op": row.name, "type": row.type}.get(by, "stream 0")
        group = groups.setdefault(
            key, {"name": key, "type": row.type if by == "op" else "", "nodes": 0, "count": row.count, "total_ms": 0.0}
        )
        group["nodes"] += 1
        group["total_ms"] += row.total_ns / 1e6
    rows = sorted(groups.values(), key=lambda group: (-group["total_ms"], group["name"]))
    for group in rows:
        group["mean_ms"] = group["total_ms"] / max(group["count"], 1)
        group["share"] = group["total_ms"] * 1e6 / total
    return rows


def profile_lines(per_node: dict[str, NodeTime], by: str) -> list[str]:
    rows = profile_rows(per_node, by)
    width = max((len(row["name"]) for row in rows), default=4)
    lines = [f"{HEADING}", f"{'':{width}}  {'nodes':>6} {'mean ms':>10} {'share':>7}"]
    lines += [
        f"{row['name']:{width}}  {row['nodes']:>6} {row['mean_ms']:>10.3f} {100 * row['share']:>6.1f}%" for row in rows
    ]
    return lines


def comparison_lines(rows: Iterable[Difference]) -> list[str]:
    lines = []
    for row in rows:
        state = "equal  " if row.equal else "differs"
        if row.why:
            lines.append(f"{state}  {row.name}  {row.why}")
            continue
        cosine = "" if row.cosine is None else f"  cosine {row.cosine:.9f}"
        errors = f"  max abs {row.max_abs:.3g}  max rel {row.max_rel:.3g}  mean rel {row.mean_rel:.3g}{cosine}"
        if row.count and row.nan + row.nan_expected == row.count:
            errors = ""
        lines.append(
            f"{state}  {row.name}{_nan_text(row)}{errors}  worst at {list(row.worst)}"
            f"  {row.bad} of {row.count} outside rtol {row.rtol:g} atol {row.atol:g}"
        )
        if row.equal and row.is_below_atol:
            lines.append(f"note     {row.name}  no value is larger than atol; --atol 0 compares by rtol alone")
    return lines


def _nan_text(row: Difference) -> str:
    """NaN on one side only; the errors beside it are those of the other elements."""
    mine = f"  {row.nan} NaN" if row.nan else ""
    return mine + (f"  {row.nan_expected} NaN expected but not found" if row.nan_expected else "")


def run_document(
    outcomes: Sequence[Outcome],
    requests: Sequence[Sequence[dict[str, Array]]],
    store: VariableStore | None,
    *,
    seed: int,
    files: dict[str, str],
    differences: Sequence[Difference] | None = None,
    golden: str = "",
    profile_by: str = "type",
) -> dict[str, Any]:
    """The `gecli.run/1` document."""
    return {
        "schema": SCHEMA,
        "ok": differences is None or all(row.equal for row in differences),
        "simulated": True,
        "seed": seed,
        "models": [_model_json(outcome, profile_by) for outcome in outcomes],
        "requests": [
            {
                "model": outcome.model.name,
                "inputs": [{"name": name, **tensor_statistics(array)} for name, array in feeds.items()],
                "outputs": [
                    {
                        "name": name,
                        **tensor_statistics(array),
                        "file": files.get(f"{outcome.model.name}/{index}/{name}"),
                    }
                    for name, array in outcome.outputs[index].items()
                ],
            }
            for outcome, each in zip(outcomes, requests)
            for index, feeds in enumerate(each)
        ],
        "variables": {} if store is None else {name: _variable_json(store, name) for name in store.names()},
        "golden": golden or None,
        "compare": None if differences is None else [row.as_json() for row in differences],
    }


def _model_json(outcome: Outcome, profile_by: str) -> dict[str, Any]:
    model = outcome.model
    return {
        "name": model.name,
        "path": model.path,
        "inputs": [tensor.as_json() for tensor in model.inputs],
        "outputs": [tensor.as_json() for tensor in model.outputs],
        "dynamic": model.program is None,
        "memory_bytes": model.memory_bytes,
        "weight_bytes": model.weight_bytes,
        "external_weights": [use.as_json() for use in model.weight_files],
        "load_ms": model.load_ns / 1e6,
        "stats": statistics(outcome.times),
        "profile": None if outcome.per_node is None else profile_rows(outcome.per_node, profile_by),
    }


def _state(variable: Variable) -> str:
    if variable.is_initialised:
        return "initialised"
    has_memory = variable.current is not None and variable.current.held is not None
    return "allocated" if has_memory else "registered"


def _variable_json(store: VariableStore, name: str) -> dict[str, Any]:
    variable = store[name]
    form = variable.current
    assert form is not None
    return {
        "logical": f"{form.logical_address:#x}",
        "dtype": form.desc.dtype.serial,
        "format": form.desc.format.name,
        "shape": list(form.desc.shape),
        "user_format": form.user_desc.format.name,
        "user_shape": list(form.user_desc.shape),
        "state": _state(variable),
        "initialised_by": variable.initialised_by or None,
    }
