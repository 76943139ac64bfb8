"""Training on the simulated device: every step equals a plain numpy loop; the worked example of the specification."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gecli.compiler import compile_model
from gecli.runtime.session import Session

SAMPLES = Path(__file__).resolve().parents[2] / "samples/train"
sys.path.insert(0, str(SAMPLES))

import reference  # noqa: E402  # the sample's folder is on the path only now

STEPS = 60
TOLERANCE = 1e-4


@pytest.mark.parametrize("policy", ["device", "origin"])
@pytest.mark.parametrize("acceleration", ["true", "false"])
def test_every_step_equals_the_numpy_loop(tmp_path: Path, policy: str, acceleration: str) -> None:
    om = tmp_path / "train.om"
    compile_model(
        SAMPLES / "conv_train.json", om, train="true", format_policy=policy,
        **{"ge.exec.variable_acc": acceleration},
    )  # fmt: skip
    session = Session()
    model = session.load(om)
    losses, history = reference.train(SAMPLES / "batches.npz", STEPS)
    with np.load(SAMPLES / "batches.npz") as batches:
        images, labels = batches["x"], batches["labels"]
    actual = []
    for step in range(STEPS):
        outputs, _ = model.run({"x": images[step], "labels": labels[step]})
        actual.append(float(outputs["loss:0"]))
        assert abs(actual[-1] - losses[step]) <= TOLERANCE, f"loss at step {step + 1}"
        for name, expected in history[step].items():
            error = np.abs(session.store.value(name) - expected).max()
            assert error <= TOLERANCE, f"{name} at step {step + 1}: {error}"
    assert min(actual) <= 0.5


MLP_AFTER_ONE_STEP: dict[str, Any] = {
    "b1": [0.102066, -0.091196, 0.301663, 0.011689, -0.209170],
    "b2": [-0.027466, 0.113153, -0.085687],
    "w2": [
        [-0.300803, 0.199313, 0.001490],
        [-0.214268, 0.333624, 0.080644],
        [-0.117193, -0.311057, 0.228249],
        [-0.004013, -0.203437, 0.307449],
        [0.097592, -0.102062, -0.295530],
    ],
}


def test_the_worked_perceptron_has_its_numbers(tmp_path: Path) -> None:
    compile_model(SAMPLES / "mlp_train.json", tmp_path / "mlp.om")
    session = Session()
    model = session.load(tmp_path / "mlp.om")
    feeds = {
        "x": np.array([[1, 2, -1, 0.5], [0.5, -1, 2, 1]], np.float32),
        "labels": np.array([[0, 1, 0], [0, 0, 1]], np.float32),
    }
    outputs, _ = model.run(feeds)
    assert float(outputs["loss:0"]) == pytest.approx(0.839195, abs=1e-6)
    for name, expected in MLP_AFTER_ONE_STEP.items():
        np.testing.assert_allclose(session.store.value(name), expected, atol=1e-6)
    np.testing.assert_allclose(outputs["up_b2:0"], MLP_AFTER_ONE_STEP["b2"], atol=1e-6)
    outputs, _ = model.run(feeds)
    assert float(outputs["loss:0"]) == pytest.approx(0.753806, abs=1e-6)
