"""Comparing outputs with expected ones (cli.md 3.6)."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gecli.errors import InputError
from gecli.records import dataclass
from gecli.runtime.array_files import read_npy, read_npz

Array = NDArray[Any]
DEFAULT_TOLERANCE = (1e-3, 1e-5)  # relative, absolute
HALF_TOLERANCE = (1e-2, 1e-3)


@dataclass(frozen=True, slots=True)
class Tolerances:
    """Relative and absolute tolerance, for all outputs (key "") or by name; None means the type's default."""

    rtol: Mapping[str, float] = field(default_factory=dict)
    atol: Mapping[str, float] = field(default_factory=dict)
    stat: str = "all"
    nan_differs: bool = False

    def of(self, name: str, a: Array, b: Array) -> tuple[float, float]:
        if a.dtype.kind in "iub" and b.dtype.kind in "iub":
            default = (0.0, 0.0)
        else:
            default = HALF_TOLERANCE if 2 in (a.dtype.itemsize, b.dtype.itemsize) else DEFAULT_TOLERANCE
        rtol = self.rtol.get(name, self.rtol.get("", default[0]))
        atol = self.atol.get(name, self.atol.get("", default[1]))
        return rtol, atol


@dataclass(slots=True)
class Difference:
    """How one output compares. `nan` counts NaN where the golden has none, `nan_expected` the opposite.

    The errors are those of the elements that are NaN on neither side.
    """

    name: str
    equal: bool
    why: str = ""
    max_abs: float = 0.0
    max_rel: float = 0.0
    mean_rel: float = 0.0
    cosine: float | None = None
    worst: tuple[int, ...] = ()
    nan: int = 0
    nan_expected: int = 0
    bad: int = 0
    count: int = 0
    rtol: float = 0.0
    atol: float = 0.0
    is_below_atol: bool = False  # no value on either side is as large as the absolute tolerance: nothing was compared

    def as_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "equal": self.equal,
            "why": self.why or None,
            "max_abs": self.max_abs,
            "max_rel": self.max_rel,
            "mean_rel": self.mean_rel,
            "cosine": self.cosine,
            "worst": list(self.worst),
            "nan": self.nan,
            "nan_expected": self.nan_expected,
            "bad": self.bad,
            "count": self.count,
            "rtol": self.rtol,
            "atol": self.atol,
            "below_atol": self.is_below_atol,
        }


def read_golden(path: str) -> dict[str, Array]:
    """Expected outputs by name: an npz, a directory of npy files, or one npy file.

    Raises InputError for unreadable files.
    """
    if os.path.isdir(path):
        files = sorted(Path(path).glob("*.npy"))
        if not files:
            raise InputError("E13000", f"{path} holds no .npy file", file=path)
        return {file.stem: read_npy(str(file)) for file in files}
    if not os.path.exists(path):
        raise InputError(
            "E13001", f"cannot open {path}", why="No such file or directory", file=path,
            do="check the path and its permissions",
        )  # fmt: skip
    return read_npz(path) if path.endswith(".npz") else {"": read_npy(path)}


def position_note(outputs: Mapping[str, Array], golden: Mapping[str, Array]) -> str:
    """What to say when outputs are compared by position; empty when they are compared by name."""
    if not _by_position(outputs, golden) or list(golden) == [""]:
        return ""
    pairs = ", ".join(f"{mine} with {theirs}" for mine, theirs in zip(outputs, golden))
    return f"no output name is in both, so outputs are compared by position: {pairs}"


def _by_position(outputs: Mapping[str, Array], golden: Mapping[str, Array]) -> bool:
    return not set(outputs) & set(golden) and len(outputs) == len(golden) > 0


def compare_outputs(
    outputs: Mapping[str, Array], golden: Mapping[str, Array], tolerances: Tolerances
) -> list[Difference]:
    """One row for each output; missing and extra names are differences.

    Names that have nothing in common are matched by position when the counts agree.
    """
    if _by_position(outputs, golden):
        golden = dict(zip(outputs, golden.values()))
    rows = []
    for name in [*outputs, *(name for name in golden if name not in outputs)]:
        if name not in golden:
            rows.append(Difference(name, False, "there is no expected value"))
        elif name not in outputs:
            rows.append(Difference(name, False, "the model has no such output"))
        else:
            rows.append(_compare(name, outputs[name], golden[name], tolerances))
    return rows


def _compare(name: str, a: Array, b: Array, tolerances: Tolerances) -> Difference:
    a, b = _typed(a, b), _typed(b, a)
    if b.dtype.type is np.void:
        return Difference(name, False, f"the golden's elements are {b.dtype.itemsize} bytes without a type")
    rtol, atol = tolerances.of(name, a, b)
    if a.shape != b.shape:
        return Difference(name, False, f"shape {list(a.shape)} instead of {list(b.shape)}", rtol=rtol, atol=atol)
    if not a.size:
        return Difference(name, True, rtol=rtol, atol=atol)
    x, y = _wide(a), _wide(b)
    nan_x, nan_y = (np.isnan(each) if each.dtype.kind in "fc" else np.zeros(x.shape, bool) for each in (x, y))
    with np.errstate(all="ignore"):
        error = np.where(x == y, 0.0, np.abs(x - y))
        if not tolerances.nan_differs:
            error = np.where(nan_x & nan_y, 0.0, error)
        error = np.where(np.isnan(error), np.inf, error)
        number = ~(nan_x | nan_y)
        magnitude = np.where(np.isnan(y), 0.0, np.abs(y))  # a NaN that equals a NaN asks for no tolerance
        relative = np.where(error == 0, 0.0, error / np.where(magnitude == 0, np.inf, magnitude))
        bad = ~(error <= atol + rtol * magnitude)
        cosine = _cosine(x, y)
    worst = np.unravel_index(int(np.argmax(error)), error.shape)
    return Difference(
        name,
        _passes(bad, error, magnitude, rtol, atol, tolerances.stat),
        max_abs=float(error.max(where=number, initial=0.0)),
        max_rel=float(relative.max(where=number, initial=0.0)),
        mean_rel=float(relative.mean(where=number)) if number.any() else 0.0,
        cosine=cosine,
        worst=tuple(int(i) for i in worst),
        nan=int((nan_x & ~nan_y).sum()),
        nan_expected=int((nan_y & ~nan_x).sum()),
        bad=int(bad.sum()),
        count=int(bad.size),
        rtol=rtol,
        atol=atol,
        is_below_atol=bool(number.any() and error.any() and max(_largest(x, number), _largest(y, number)) <= atol),
    )


def _typed(array: Array, other: Array) -> Array:
    """An array whose elements numpy saved without their type (bfloat16, float8) in that of the other."""
    is_raw = array.dtype.type is np.void and array.dtype.itemsize == other.dtype.itemsize
    return array.view(other.dtype) if is_raw and other.dtype.type is not np.void else array


def _largest(values: Array, where: Array) -> float:
    return float(np.abs(values).max(where=where, initial=0.0))


def _passes(bad: Array, error: Array, magnitude: Array, rtol: float, atol: float, stat: str) -> bool:
    if stat == "all":
        return not bad.any()
    how, _, quantile = stat.partition(":")
    if how == "quantile":
        level = float(quantile)
        return bool(np.quantile(error, level) <= atol + rtol * np.quantile(magnitude, level))
    if how == "max":
        return bool(error.max() <= atol + rtol * magnitude.max())
    if how == "mean":
        return bool(error.mean() <= atol + rtol * magnitude.mean())
    return bool(np.median(error) <= atol + rtol * np.median(magnitude))


def _wide(array: Array) -> Array:
    if array.dtype.kind in "iub":
        return array.astype(np.float64) if array.dtype.itemsize < 8 else array.astype(np.longdouble)
    return array if array.dtype.kind == "c" else array.astype(np.float64)


def _cosine(x: Array, y: Array) -> float | None:
    if x.dtype.kind == "c":
        return None
    length = float(np.linalg.norm(x) * np.linalg.norm(y))
    value = float(np.sum(x * y)) / length if length else None
    return value if value is None or np.isfinite(value) else None
