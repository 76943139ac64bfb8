"""The goals, and the table that holds the figures against them."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from figures import START_UP_MODEL, Figures, growth_exponent, measured, paired_ratio

MB, MIB = 1e6, 1 << 20
SMALL_BYTES = 5 * MB
LARGE_BYTES = 400 * MB

START_UP_BAR = 5.0
SMALL_HIT_BAR = 6.0
LARGE_HIT_BAR = 8.0
HIT_BAR = 0.45
COMPILE_BAR, COMPILE_MEAN_BAR = 1.6, 1.5  # the mean's first bar allows for networkx, which is the graph store
LARGE_COMPILE_BAR = 0.55
SYNTHETIC_COMPILE_BARS = {"elt-10k": 1.0, "elt-100k": 0.5}
GROWTH_BAR = 1.15
SESSIONS = (20, 2_000, 20_000)  # variables of the sessions measured; the first is nothing but start-up
PEAK_BASE_MB, PEAK_OF_WEIGHTS = 120, 0.25
PEAK_100K_BAR = 1.0
DEVICE_SIZE_BAR = 1.10
ORIGIN_SIZE_FACTOR, ORIGIN_SIZE_EXTRA, ORIGIN_SIZE_NODE = 1.02, 64 << 10, 300
SMALL_LOAD_BAR, LARGE_LOAD_BAR = 0.75, 0.15
REFERENCE_BAR = 0.05
ERROR_BAR = 1e-5
RUN_PEAK_BAR = 1.0
SUMMARY_BAR_S, SUMMARY_PEAK_BAR = 0.5, 150 * MIB  # of an OM of 1 GiB, the time over that of --version
NODES_BAR_S = 4.0  # of an OM of 100,000 nodes
INSPECT_PEAK_OF_FILE, INSPECT_PEAK_BASE = 2, 64 * MIB  # no view may need more than this

LATENCY_BARS = {"transformer": 1.8, "convolution": 3.0, "depthwise": 6.0, "recurrent": 5.0, "node-bound": 2.0}
KINDS = {
    "minilm-l3": "transformer",
    "minilm-l6-int8": "transformer",  # weights are int8, the arithmetic is float
    "rxnmap": "transformer",
    "bert-base-shape": "transformer",
    "mlp-deep": "transformer",
    "basic-pitch": "convolution",
    "ddddocr-det": "convolution",
    "ddddocr-rec": "convolution",
    "magika": "convolution",
    "nudenet-yolov8n": "convolution",
    "swift-f0": "convolution",
    "ppocr4-det": "depthwise",
    "ppocr4-rec": "depthwise",
    "nsnet2": "recurrent",
    "silero-vad": "recurrent",
    "tashkeel-gru": "recurrent",
    "caustic-gnn": "node-bound",
    "elt-1k": "node-bound",
    "elt-10k": "node-bound",
    "elt-100k": "node-bound",
}
# Activations are quantised while running: correct runtimes differ by a step where a value lies at a rounding edge.
DYNAMIC_INT8 = {"t5-encoder-int8"}


@dataclass(frozen=True, slots=True)
class Row:
    """A line of the table; `met` is None without a bar or without a figure."""

    measure: str
    ours: str
    peer: str
    ratio: str
    bar: str
    met: bool | None
    note: str = ""
    floor: str = ""


def table_rows(
    start_up: Figures | None,
    models: Sequence[Figures],
    inspect: Figures | None = None,
    session: Figures | None = None,
) -> list[Row]:
    """Every goal there are figures for, in the order of the README."""
    rows = list(_start_up_rows(start_up)) if start_up else []
    rows += _inspect_rows(inspect) if inspect else []
    rows += _session_rows(session) if session else []
    real = [model for model in models if model.real]
    judged = [model for model in models if model.name != START_UP_MODEL]
    rows += (_against(m, "cache hit / pass", "hit", "pass", _hit_bar(m)) for m in judged)
    rows += (_against(m, "cache hit / ort reload", "hit", "ort reload", HIT_BAR if m.real else None) for m in judged)
    compiles = _ratios((model.wall_s for model in real), "compile", "ort compile")
    floors = _ratios((model.wall_s for model in real), "floor compile", "ort compile")
    rows += _mean_row("cold compile / ort compile", compiles, COMPILE_MEAN_BAR, floors)
    rows += (_against(m, "cold compile / ort compile", "compile", "ort compile", _compile_bar(m)) for m in judged)
    rows += _growth_rows({model.name: model for model in models})
    rows += (_peak_row(m) for m in judged)
    rows += (_peak_against(m, "compile peak / ort", "compile", "ort compile", PEAK_100K_BAR) for m in judged
             if m.name == "elt-100k")  # fmt: skip
    for model in judged:
        rows += _size_rows(model)
    rows += (_against(m, "load / ort reload", "load", "ort reload", _load_bar(m)) for m in judged)
    rows += _mean_row("latency / ort", _ratios((model.latency_s for model in real), "run", "ort run"), None)
    rows += (_latency_row(m) for m in judged)
    rows += _reference_rows(real)
    rows += (_error_row(m) for m in judged)
    rows += (_peak_against(m, "run peak / ort", "run", "ort run", RUN_PEAK_BAR) for m in judged)
    return rows


def _start_up_rows(figures: Figures) -> Iterator[Row]:
    for command in ("--version", "--help"):
        yield _ratio_row(f"gecli {command} / pass", figures, figures.wall_s, command, "pass", START_UP_BAR)


def _inspect_rows(figures: Figures) -> Iterator[Row]:
    """Bars in seconds and bytes, not against a peer: there is none that opens these files."""
    summary, version, nodes = (figures.wall_s.get(name) for name in ("summary", "--version", "nodes"))
    over = [a - b for a, b in zip(summary or [], version or [])]
    yield _limit_row("inspect-om --summary of 1 GiB - --version", figures, "summary", over, SUMMARY_BAR_S)
    yield _inspect_peak("inspect-om --summary of 1 GiB, peak memory", figures, "summary", SUMMARY_PEAK_BAR)
    yield _limit_row("inspect-om --nodes of elt-100k", figures, "nodes", nodes or [], NODES_BAR_S)
    bound = INSPECT_PEAK_OF_FILE * figures.om_bytes.get("many", 0) + INSPECT_PEAK_BASE
    yield _inspect_peak("inspect-om --nodes of elt-100k, peak memory", figures, "nodes", bound)


def _session_rows(figures: Figures) -> Iterator[Row]:
    """Three graphs that share variables, 10 nodes a variable: time, memory, and how time grows."""
    start, small, large = (figures.wall_s.get(str(count), []) for count in SESSIONS)
    for count, walls in zip(SESSIONS[1:], (small, large)):
        what = f"session, {count:,} variables and {10 * count:,} nodes"
        why = "" if walls else figures.why_not(str(count))
        yield Row(what, _time(walls), "", "", "-", None, why)
        yield Row(f"{what}: peak memory", _peak(figures.peak_mb.get(str(count))), "", "", "-", None, why)
    measure = f"growth exponent: session of {SESSIONS[1]:,} to {SESSIONS[2]:,} variables"
    # Of each round: what slows a round down slows all of its compiles.
    powers = [growth_exponent(*walls) for walls in zip(start, small, large)]
    powers = [power for power in powers if not math.isnan(power)]
    if not powers:
        why = figures.why_not(*map(str, SESSIONS)) if figures.failures else "noise exceeds the difference"
        yield Row(measure, "-", "", "", _bar(GROWTH_BAR), None, why)
        return
    power = statistics.median(powers)
    yield Row(measure, number(power), "", "", _bar(GROWTH_BAR), power <= GROWTH_BAR)


def _limit_row(measure: str, figures: Figures, job: str, walls: Sequence[float], bar_s: float) -> Row:
    bar = f"<= {seconds(bar_s)}"
    if not walls:
        return Row(measure, "-", "", "", bar, None, figures.why_not(job, "compile"))
    wall = statistics.median(walls)
    return Row(measure, seconds(wall), "", "", bar, wall <= bar_s)


def _inspect_peak(measure: str, figures: Figures, job: str, bound: float) -> Row:
    peak = figures.peak_mb.get(job)
    bar = f"<= {bound / MB:.0f} MB"
    if peak is None:
        return Row(measure, "-", "", "", bar, None, figures.why_not(job, "compile"))
    return Row(measure, _peak(peak), "", "", bar, peak <= bound / MB)


def _against(model: Figures, what: str, ours: str, peer: str, bar: float | None) -> Row:
    return _ratio_row(f"{what}: {model.name}", model, model.wall_s, ours, peer, bar)


def _ratio_row(
    measure: str, figures: Figures, series: dict[str, list[float]], ours: str, peer: str, bar: float | None
) -> Row:
    a, b = series.get(ours), series.get(peer)
    shown = _time(a), _time(b)
    if not a or not b:
        return Row(measure, *shown, "-", _bar(bar), None, figures.why_not(ours, peer, "run", "compile"))
    ratio = paired_ratio(a, b)
    if math.isnan(ratio):
        return Row(measure, *shown, "-", _bar(bar), None, "noise exceeds the difference")
    return Row(measure, *shown, f"{ratio:.2f}", _bar(bar), _met(ratio, bar), floor=_floor(series, ours, b))


def _floor(series: dict[str, list[float]], ours: str, peer: Sequence[float]) -> str:
    """The ratio of a process with the same dependencies and data that does none of the work (floor.py)."""
    floor = series.get(f"floor {ours}")
    return number(paired_ratio(floor, peer)) if floor else ""


def _mean_row(measure: str, ratios: Sequence[float], bar: float | None, floors: Sequence[float] = ()) -> Iterator[Row]:
    if ratios:
        mean = statistics.geometric_mean(ratios)
        floor = number(statistics.geometric_mean(floors)) if floors else ""
        name = f"{measure}: geometric mean of {len(ratios)}"
        yield Row(name, "", "", number(mean), _bar(bar), _met(mean, bar), floor=floor)


def _ratios(series: Iterable[dict[str, list[float]]], ours: str, peer: str) -> list[float]:
    ratios = [paired_ratio(values[ours], values[peer]) for values in series if ours in values and peer in values]
    return [ratio for ratio in ratios if not math.isnan(ratio)]


def _growth_rows(models: dict[str, Figures]) -> Iterator[Row]:
    for small, large in (("elt-1k", "elt-10k"), ("elt-10k", "elt-100k")):
        if {START_UP_MODEL, small, large} <= set(models):
            ours, peer = (_exponent(models, job, small, large) for job in ("compile", "ort compile"))
            met = None if math.isnan(ours) else ours <= GROWTH_BAR
            yield Row(f"growth exponent: {small} to {large}", number(ours), number(peer), "", _bar(GROWTH_BAR), met)


def _exponent(models: dict[str, Figures], job: str, small: str, large: str) -> float:
    series = [models[name].wall_s.get(job) for name in (START_UP_MODEL, small, large)]
    return growth_exponent(*(statistics.median(walls) if walls else math.nan for walls in series))


def _peak_row(model: Figures) -> Row:
    bound = PEAK_BASE_MB + PEAK_OF_WEIGHTS * model.onnx_bytes / MB
    return _peak_line(
        f"compile peak memory: {model.name}", model, "compile", "ort compile", bound, f"<= {bound:.0f} MB"
    )


def _peak_against(model: Figures, what: str, ours: str, peer: str, bar: float) -> Row:
    bound = bar * model.peak_mb.get(peer, math.nan)
    return _peak_line(f"{what}: {model.name}", model, ours, peer, bound, _bar(bar))


def _peak_line(measure: str, model: Figures, ours: str, peer: str, bound: float, bar: str) -> Row:
    a, b = model.peak_mb.get(ours), model.peak_mb.get(peer)
    shown = _peak(a), _peak(b)
    ratio = f"{a / b:.2f}" if a and b else "-"
    if a is None or math.isnan(bound):
        return Row(measure, *shown, ratio, bar, None, model.why_not(ours, peer, "compile"))
    return Row(measure, *shown, ratio, bar, a <= bound)


def _size_rows(model: Figures) -> Iterator[Row]:
    origin = ORIGIN_SIZE_FACTOR * model.onnx_bytes + ORIGIN_SIZE_EXTRA + ORIGIN_SIZE_NODE * model.nodes
    yield _size_row(model, "origin", origin, f"<= {origin / MB:.2f} MB")
    device = DEVICE_SIZE_BAR * model.onnx_bytes if model.onnx_bytes >= MB else None
    yield _size_row(model, "device", device, _bar(DEVICE_SIZE_BAR if device else None))


def _size_row(model: Figures, policy: str, bound: float | None, bar: str) -> Row:
    measure = f"OM size / ONNX, {policy} formats: {model.name}"
    source = f"{model.onnx_bytes / MB:.2f} MB"
    size = model.om_bytes.get(policy)
    if size is None:
        return Row(measure, "-", source, "-", bar, None, model.why_not(policy, "compile"))
    return Row(measure, f"{size / MB:.2f} MB", source, f"{size / model.onnx_bytes:.2f}", bar, _met(size, bound))


def _latency_row(model: Figures) -> Row:
    kind = KINDS.get(model.name, "")
    measure = f"latency / ort{f', {kind}' if kind else ''}: {model.name}"
    return _ratio_row(measure, model, model.latency_s, "run", "ort run", LATENCY_BARS.get(kind))


def _reference_rows(models: Sequence[Figures]) -> Iterator[Row]:
    measure = "latency / ReferenceEvaluator"
    ratios = _ratios((model.latency_s for model in models), "run", "reference")
    yield from _mean_row(measure, ratios, REFERENCE_BAR)
    if ratios:
        worst = max(ratios)
        yield Row(f"{measure}: worst of {len(ratios)}", "", "", number(worst), _bar(1.0), worst <= 1)


def _error_row(model: Figures) -> Row:
    measure = f"scaled error against ort: {model.name}"
    bar = None if model.name in DYNAMIC_INT8 else ERROR_BAR
    if not model.error:
        return Row(measure, "-", "", "", _bar(bar), None, model.why_not("error", "run", "ort run", "compile"))
    scaled = model.error["scaled"]
    return Row(measure, f"{scaled:.0e}", "", "", _bar(bar), _met(scaled, bar))


def _hit_bar(model: Figures) -> float | None:
    return _by_size(model, SMALL_HIT_BAR, LARGE_HIT_BAR)


def _load_bar(model: Figures) -> float | None:
    return _by_size(model, SMALL_LOAD_BAR, LARGE_LOAD_BAR)


def _by_size(model: Figures, small: float, large: float) -> float | None:
    if model.onnx_bytes >= LARGE_BYTES:
        return large
    return small if model.real and model.onnx_bytes <= SMALL_BYTES else None


def _compile_bar(model: Figures) -> float | None:
    if model.onnx_bytes >= LARGE_BYTES:
        return LARGE_COMPILE_BAR
    return COMPILE_BAR if model.real else SYNTHETIC_COMPILE_BARS.get(model.name)


def _time(values: list[float] | None) -> str:
    counted = measured(values or [])
    return seconds(statistics.median(counted)) if counted else "-"


def _peak(peak_mb: float | None) -> str:
    return "-" if peak_mb is None else f"{peak_mb:.0f} MB"


def _bar(bar: float | None) -> str:
    return "-" if bar is None else f"<= {bar:g}"


def _met(value: float, bar: float | None) -> bool | None:
    return None if bar is None else value <= bar


def number(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.2g}" if value < 0.1 else f"{value:.2f}"


def seconds(value: float) -> str:
    """A time to three digits or so, with its unit."""
    if value < 1e-3:
        return f"{value * 1e6:.0f} us"
    if value < 0.1:
        return f"{value * 1e3:.1f} ms"
    return f"{value * 1e3:.0f} ms" if value < 1 else f"{value:.2f} s"


def markdown(rows: Sequence[Row]) -> str:
    """The table, readable as it is and as Markdown."""
    cells = [["measure", "gecli", "peer", "ratio", "floor", "bar", "met?"]]
    cells += [[row.measure, row.ours, row.peer, row.ratio, row.floor, row.bar, _verdict(row)] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells)]
    lines = ["| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths)) + " |" for line in cells]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(lines)


def _verdict(row: Row) -> str:
    if row.met is None:
        return row.note or "-"
    return "yes" if row.met else "no"


def summary(rows: Sequence[Row]) -> str:
    judged = [row.met for row in rows if row.met is not None]
    absent = sum(bool(row.note) for row in rows)
    return f"{judged.count(True)} of {len(judged)} bars met; {absent} rows without a figure"
