"""What `gecli run` says of a tensor, computed piece by piece."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

from gecli.report.run_report import PIECE, tensor_statistics


@pytest.mark.parametrize("size", [1, 7, PIECE, PIECE + 1, 3 * PIECE + 5])
@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int32, np.uint8, np.bool_])
def test_pieces_give_what_the_whole_tensor_gives(size: int, dtype: type) -> None:
    array = (np.random.default_rng(size).standard_normal((1, size)) * 9 + 40).astype(dtype)
    facts = tensor_statistics(array)
    wide = array.astype(np.float64)
    assert (facts["min"], facts["max"], facts["nan"], facts["inf"]) == (wide.min(), wide.max(), 0, 0)
    assert facts["mean"] == pytest.approx(wide.mean(), rel=1e-12)
    assert facts["std"] == pytest.approx(wide.std(), rel=1e-9, abs=1e-12)
    assert facts["sha256"] == hashlib.sha256(array.tobytes()).hexdigest()


def test_numbers_that_are_not_finite_are_counted_and_left_out() -> None:
    array = np.ones(2 * PIECE, np.float32)
    array[[0, 5, PIECE + 1]] = np.nan, np.inf, -np.inf
    facts = tensor_statistics(array)
    assert (facts["nan"], facts["inf"], facts["mean"], facts["std"]) == (1, 2, 1.0, 0.0)
    facts = tensor_statistics(np.full(3, np.nan, np.float32))
    assert (facts["nan"], facts["min"], facts["std"]) == (3, None, None)


def test_a_tensor_seen_through_a_transpose_has_the_digest_of_its_values() -> None:
    array = np.arange(6, dtype=np.int64).reshape(2, 3).T
    assert tensor_statistics(array)["sha256"] == hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()
    assert tensor_statistics(np.float32(3).reshape(()))["mean"] == 3.0
