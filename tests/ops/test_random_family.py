"""Generated tensors: random streams that are reproducible and rightly distributed, and window functions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gecli.errors import InputError
from gecli.ir.dtype import DataType
from gecli.ops.registry import find
from tests.ops.onnx_judge import (
    Array,
    apply,
    assert_close,
    import_model,
    judge,
    one_node_model,
    run,
    run_onnxruntime,
)

SHAPE = np.array([200, 50], np.int64)


def imported(op: str, inputs: list[Array], attrs: dict[str, Any], opset: int = 17) -> Array:
    model, feeds = one_node_model(op, list(inputs), attrs, opset, "", 1)
    return run(import_model(model, feeds), feeds)[0]


@pytest.mark.parametrize("type", ["RandomUniform", "RandomStandardNormal", "TruncatedNormal"])
def test_equal_seeds_give_equal_numbers(type: str) -> None:
    (first,) = apply(type, SHAPE, constant=(0,), dtype=DataType.FLOAT, seed=3)
    (second,) = apply(type, SHAPE, dtype=DataType.FLOAT, seed=3)
    (other,) = apply(type, SHAPE, dtype=DataType.FLOAT, seed=4)
    np.testing.assert_array_equal(first, second)
    assert (first != other).mean() > 0.9


def test_each_node_and_step_has_its_own_stream() -> None:
    kind = find("RandomUniform")
    assert kind is not None
    draws = []
    for name, step in (("a", 0), ("b", 0), ("a", 1)):
        op = kind.cls(dtype=DataType.FLOAT)
        op.node_name, op.step = name, step
        draws.append(op.kernel(SHAPE))
    assert (draws[0] != draws[1]).mean() > 0.9 and (draws[0] != draws[2]).mean() > 0.9


def test_distributions_have_their_moments() -> None:
    normal = imported("RandomNormal", [], {"shape": [200, 50], "mean": 3.0, "scale": 2.0, "seed": 1.0})
    assert abs(normal.mean() - 3) < 0.1 and abs(normal.std() - 2) < 0.1
    uniform = imported("RandomUniform", [], {"shape": [200, 50], "low": -1.0, "high": 3.0, "seed": 1.0})
    assert uniform.min() >= -1 and uniform.max() <= 3 and abs(uniform.mean() - 1) < 0.1
    like = imported("RandomUniformLike", [uniform.astype(np.float16)], {})
    assert like.dtype == np.float16 and like.shape == uniform.shape
    (whole,) = apply("RandomUniformInt", SHAPE, np.int32(3), np.int32(9))
    assert whole.dtype == np.int32 and sorted(set(whole.ravel())) == [3, 4, 5, 6, 7, 8]
    (cut,) = apply("TruncatedNormal", SHAPE, dtype=DataType.FLOAT)
    assert np.abs(cut).max() <= 2


def test_multinomial_draws_by_weight() -> None:
    drawn = imported("Multinomial", [np.log(np.array([[0.1, 0.9], [0.5, 0.5]], np.float32))], {"sample_size": 4000})
    assert drawn.dtype == np.int32
    np.testing.assert_allclose(drawn.mean(axis=1), [0.9, 0.5], atol=0.05)


def test_bernoulli_has_the_probability_of_each_element() -> None:
    drawn = imported("Bernoulli", [np.full((100, 100), 0.3, np.float32)], {"seed": 2.0})
    assert set(np.unique(drawn)) == {0.0, 1.0} and abs(drawn.mean() - 0.3) < 0.03


def test_dropout_is_the_identity_with_a_true_mask() -> None:
    x = np.ones((3, 4), np.float32)
    judge("Dropout", [x], outputs=2, opset=12)
    judge("Dropout", [x, np.float32(0.5), np.array(False)], outputs=2, constant=(2,), opset=13, dynamic=False)


def test_dropout_that_may_train_is_refused() -> None:
    with pytest.raises(InputError, match="training_mode"):
        imported("Dropout", [np.ones(3, np.float32), np.float32(0.5), np.array(True)], {}, 13)


@pytest.mark.parametrize("periodic", [0, 1])
@pytest.mark.parametrize("op", ["HannWindow", "HammingWindow", "BlackmanWindow"])
def test_windows_are_those_of_onnxruntime(op: str, periodic: int) -> None:
    model, feeds = one_node_model(op, [np.array(10, np.int64)], {"periodic": periodic}, 17, "", 1)
    (got,) = run(import_model(model, feeds, constant=feeds), feeds)
    assert_close(got, run_onnxruntime(model, feeds)[0], op)
    with pytest.raises(InputError, match="must be constant"):
        import_model(model, feeds)
