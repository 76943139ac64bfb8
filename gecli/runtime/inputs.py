"""Where the values of model inputs come from: files, and reproducible random data (cli.md 3.2)."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gecli.ir.dtype import DataType
from gecli.ir.tensor_desc import Shape

Array = NDArray[Any]
DEFAULT_SEED = 1


def random_array(
    name: str,
    dtype: DataType,
    shape: Shape,
    seed: int = DEFAULT_SEED,
    low: float | None = None,
    high: float | None = None,
) -> Array:
    """Random values for the input `name`: the same seed, name, type and shape give the same data.

    Every name has its own stream, so adding an input does not change the others. Floats are uniform in [low, high),
    by default [0, 1); integers in [0, 16), bool in {0, 1}.
    """
    digest = hashlib.sha256(name.encode("utf-8", "surrogateescape")).digest()
    stream = np.random.SeedSequence([seed, int.from_bytes(digest[:8], "little")])
    generator = np.random.Generator(np.random.PCG64(stream))
    target = dtype.numpy
    if dtype.is_float or target.kind == "c":
        low, high = (0.0 if low is None else low), (1.0 if high is None else high)
        return (generator.random(shape) * (high - low) + low).astype(target)
    if dtype is DataType.BOOL:
        return generator.integers(0, 2, shape).astype(target)
    low, high = (0 if low is None else low), (16 if high is None else high)
    if target == np.int64 or target.kind in "iub":
        return generator.integers(int(low), int(high), shape).astype(target)
    return np.zeros(shape, target)
