"""Minimum, maximum, mean and odd values of a tensor, read in pieces so that large weights are never held."""

from __future__ import annotations

from typing import Any

import numpy as np

from gecli.ir.packing import unpack
from gecli.ir.weight import Weight

NUMBERS = "biufV"  # kinds of numpy that have an order; V are those of ml_dtypes


def tensor_statistics(weight: Weight) -> dict[str, Any] | None:
    """Figures over all elements; None for types without numbers and for data that do not fit the description."""
    dtype = weight.dtype
    bits = dtype.bits
    if bits is None or weight.source.nbytes == 0:
        return None
    try:
        item = np.dtype(dtype.numpy)
    except (ValueError, TypeError):
        return None
    if item.kind not in NUMBERS or item.names:
        return None
    step = max(item.itemsize, 1) if bits >= 8 else 1
    totals = _Totals()
    left = b""
    for chunk in weight.chunks():
        data = left + chunk if left else chunk
        whole = len(data) // step * step
        left = data[whole:]
        count = whole * 8 // bits
        if count:
            totals.add(unpack(data[:whole] if left else data, dtype, (count,)))
    return totals.facts()


class _Totals:
    def __init__(self) -> None:
        self.low = np.inf
        self.high = -np.inf
        self.sum = 0.0
        self.finite = self.nan = self.inf = self.zeros = 0

    def add(self, values: Any) -> None:
        wide = values.astype(np.float64)
        finite = wide[np.isfinite(wide)]
        if finite.size:
            self.low = min(self.low, float(finite.min()))
            self.high = max(self.high, float(finite.max()))
            self.sum += float(finite.sum())
        self.finite += int(finite.size)
        self.nan += int(np.isnan(wide).sum())
        self.inf += int(np.isinf(wide).sum())
        self.zeros += int((wide == 0).sum())

    def facts(self) -> dict[str, Any]:
        some = self.finite > 0
        return {
            "min": self.low if some else None,
            "max": self.high if some else None,
            "mean": self.sum / self.finite if some else None,
            "nan": self.nan,
            "inf": self.inf,
            "zeros": self.zeros,
        }
