"""How far the outputs of a run are from those of onnxruntime.

output_error.py GOT.npz WANT.npz
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

# Below this magnitude a scaled error says nothing (random input can drive a model's outputs to nearly zero).
TINY_OUTPUT = 1e-3
TINY_ERROR = 1e-6


def output_error(got: dict[str, Any], want: dict[str, Any]) -> dict[str, float]:
    """The largest error over all outputs: absolute, and over the output's largest magnitude.

    A tiny output's scaled error is 0 within 1e-6 of onnxruntime and infinite beyond. Integers count as 0 when all
    are equal and as infinite otherwise, like a missing output, another shape or NaN in another place.
    """
    worst = {"absolute": 0.0, "scaled": 0.0}
    for name, expected in want.items():
        absolute, magnitude = _compare(got.get(name), expected)
        scaled = absolute / magnitude if magnitude >= TINY_OUTPUT else (0.0 if absolute <= TINY_ERROR else float("inf"))
        worst = {"absolute": max(worst["absolute"], absolute), "scaled": max(worst["scaled"], scaled)}
    return worst


def _compare(actual: Any, expected: Any) -> tuple[float, float]:
    """(largest absolute error, largest expected magnitude)."""
    broken = (float("inf"), 1.0)
    if actual is None or actual.shape != expected.shape or actual.dtype != expected.dtype:
        return broken
    if expected.dtype.kind != "f":
        return (0.0, 1.0) if (actual == expected).all() else broken
    if not (np.isnan(actual) == np.isnan(expected)).all():
        return broken
    wide, aim = actual.astype(np.float64), expected.astype(np.float64)
    counted = ~(np.isnan(aim) | (wide == aim))  # an infinity minus its equal would be NaN
    difference = np.abs(wide[counted] - aim[counted])
    finite = np.abs(aim[np.isfinite(aim)])
    return float(difference.max(initial=0.0)), float(finite.max(initial=0.0))


def load(path: Path) -> dict[str, Any]:
    with np.load(path) as stored:
        return dict(stored)


if __name__ == "__main__":
    print(json.dumps(output_error(*(load(Path(word)) for word in sys.argv[1:]))))
