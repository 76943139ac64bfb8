"""Where constants lie in WEIGHTS_DATA (om-format: weights; GE: ModelBuilder::SaveWeights)."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from gecli.ir.weight import FileSlice, Weight
from gecli.records import dataclass

ALIGN_BYTES = 512
FIRST_OFFSET_BYTES = 512  # offset 0 means "not placed", so the area begins with a block of zeros
TAIL_BYTES = 32  # CANN 7 and later reserve this much behind the last constant, rounded up to a block
PREFIX_BYTES = 4096  # constants that differ here are told apart without reading the rest


@dataclass(frozen=True, slots=True)
class WeightLayout:
    """`offsets[k]` is the place of the k-th weight; `blocks` are the distinct ones in file order."""

    offsets: tuple[int, ...]
    blocks: tuple[tuple[int, Weight], ...]
    total_bytes: int


def lay_out_weights(weights: Sequence[Weight]) -> WeightLayout:
    """Place the weights in order, each at a multiple of 512; equal contents share one place."""
    offsets: list[int] = []
    blocks: list[tuple[int, Weight]] = []
    end = FIRST_OFFSET_BYTES
    for weight, same_as in zip(weights, _duplicates(weights)):
        if same_as is not None:
            offsets.append(offsets[same_as])
            continue
        place = _aligned(end)
        offsets.append(place)
        blocks.append((place, weight))
        end = place + weight.nbytes
    return WeightLayout(tuple(offsets), tuple(blocks), _aligned(_aligned(end) + TAIL_BYTES))


def _aligned(value: int) -> int:
    return -(-value // ALIGN_BYTES) * ALIGN_BYTES


def _duplicates(weights: Sequence[Weight]) -> list[int | None]:
    """For each weight the first earlier one with the same bytes.

    Sources are compared, not converted values: equal sources under equal conversions give equal bytes, and a
    duplicate that is missed costs space only. A weight is read whole only if another has its size and first bytes.
    """
    first: list[int | None] = [None] * len(weights)
    groups: dict[tuple[object, ...], list[int]] = {}
    for k, weight in enumerate(weights):
        # A layout counts even without conversions: dtype and shape do not change bytes, conversions do.
        groups.setdefault((weight.nbytes, weight.source.nbytes, _recipe(weight)), []).append(k)
    for group in groups.values():
        if len(group) > 1:
            _mark_equal(weights, group, first)
    return first


def _recipe(weight: Weight) -> tuple[object, ...]:
    if not weight.transforms:
        return ()
    stored = weight.stored or weight.desc
    return (stored.dtype, stored.shape, weight.desc.dtype, *(transform.token for transform in weight.transforms))


def _mark_equal(weights: Sequence[Weight], group: list[int], first: list[int | None]) -> None:
    by_prefix: dict[bytes, list[int]] = {}
    for k in group:
        by_prefix.setdefault(_prefix(weights[k]), []).append(k)
    for same in by_prefix.values():
        if len(same) == 1:
            continue
        by_digest: dict[object, int] = {}
        for k in same:
            earlier = by_digest.setdefault(_digest(weights[k]), k)
            if earlier != k:
                first[k] = earlier


def _prefix(weight: Weight) -> bytes:
    source = weight.source
    if isinstance(source, FileSlice):
        head = FileSlice(source.path, source.offset_bytes, min(PREFIX_BYTES, source.length_bytes))
        return head.read()
    return next(source.chunks(), b"")[:PREFIX_BYTES]


def _digest(weight: Weight) -> bytes:
    digest = hashlib.sha256()
    for chunk in weight.source.chunks():
        digest.update(chunk)
    return digest.digest()
