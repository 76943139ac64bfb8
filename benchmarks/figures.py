"""What a benchmark run measured, as it is kept in --json; goals.py makes the table of it."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field

START_UP_MODEL = "elt-10"  # so few nodes that its compile is nothing but start-up; measured for nothing else


@dataclass(slots=True)
class Figures:
    """One thing measured: a model, or the start-up. Every list has one entry a round, in the same order."""

    name: str
    real: bool = False  # a trained model, not a synthetic one
    onnx_bytes: int = 0
    nodes: int = 0
    wall_s: dict[str, list[float]] = field(default_factory=dict)
    peak_mb: dict[str, float] = field(default_factory=dict)
    latency_s: dict[str, list[float]] = field(default_factory=dict)  # of one steady call
    om_bytes: dict[str, int] = field(default_factory=dict)  # by --format-policy
    error: dict[str, float] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)

    def why_not(self, *names: str) -> str:
        """Why there is no figure for one of these."""
        return next((f"{name}: {self.failures[name]}" for name in names if name in self.failures), "not measured")


def measured(values: Sequence[float]) -> list[float]:
    """The rounds that count: noise can make a difference of two times zero or less."""
    return [value for value in values if value > 0]


def paired_ratio(ours: Sequence[float], peer: Sequence[float]) -> float:
    """The median of the ratios of each round: what slows a round down slows both of its sides.

    Not a number when half of the rounds or more were lost to noise.
    """
    pairs = list(zip(ours, peer))
    ratios = [a / b for a, b in pairs if a > 0 and b > 0]
    return statistics.median(ratios) if 2 * len(ratios) > len(pairs) else math.nan


def growth_exponent(start_s: float, small_s: float, large_s: float, times_nodes: float = 10) -> float:
    """The power of the node count that the time grows by, net of start-up; not a number when noise hides the work."""
    if small_s <= start_s or large_s <= start_s:
        return math.nan
    return math.log((large_s - start_s) / (small_s - start_s), times_nodes)
