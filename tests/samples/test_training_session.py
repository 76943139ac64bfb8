"""Initialisation, training, evaluation in one session: 50 steps equal a numpy loop; half precision learns as well."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from gecli.runtime.model import LoadedModel
from gecli.runtime.session import Session
from tests.conftest import Gecli

SAMPLES = Path(__file__).resolve().parents[2] / "samples/train"
sys.path.insert(0, str(SAMPLES))

import reference  # noqa: E402  # the sample's folder is on the path only now

GRAPHS = ("conv_init", "conv_train", "conv_eval")
STEPS = 50
TOLERANCE = 1e-5

Array = NDArray[Any]


def compile_session(gecli: Gecli, folder: Path, *options: str) -> None:
    done = gecli("compile", *(str(SAMPLES / f"{name}.json") for name in GRAPHS), "-o", f"{folder}/", "-q", *options)
    assert done.returncode == 0, done.stderr


def train(model: LoadedModel, steps: int = STEPS) -> list[float]:
    """The loss of each step."""
    with np.load(SAMPLES / "batches.npz") as batches:
        images, labels = batches["x"], batches["labels"]
    return [float(model.run({"x": images[k], "labels": labels[k]})[0]["loss:0"]) for k in range(steps)]


def held_out() -> dict[str, Array]:
    with np.load(SAMPLES / "held_out.npz") as arrays:
        return {name: arrays[name] for name in ("x", "labels")}


@pytest.mark.parametrize("acceleration", ["True", "False"])
def test_initialising_training_and_evaluating_equal_the_numpy_loop(
    gecli: Gecli, tmp_path: Path, acceleration: str
) -> None:
    compile_session(gecli, tmp_path / "om", "--train", "--ge-option", f"ge.exec.variable_acc={acceleration}")
    session = Session(poison=True)
    begin = session.load(tmp_path / "om/conv_init.om")
    outputs, _ = begin.run({})
    start, _, _ = reference.starting_point(np.float32)
    for name, value in start.items():
        np.testing.assert_array_equal(outputs[f"set_{name}:0"], value, err_msg=name)
        np.testing.assert_array_equal(session.store.value(name), value, err_msg=name)

    step, evaluation = (session.load(tmp_path / f"om/{name}.om") for name in ("conv_train", "conv_eval"))
    losses, history = reference.train(SAMPLES / "batches.npz", STEPS)
    np.testing.assert_allclose(train(step), losses, rtol=0, atol=TOLERANCE)
    for name, value in history[-1].items():
        np.testing.assert_allclose(session.store.value(name), value, rtol=0, atol=TOLERANCE, err_msg=name)

    images = held_out()
    outputs, _ = evaluation.run(images)
    loss, _ = reference.loss_and_gradients(history[-1], images["x"].astype(float), images["labels"].astype(float))
    np.testing.assert_allclose(outputs["loss:0"], loss, rtol=0, atol=TOLERANCE)
    begin.run({})
    for name, value in start.items():
        np.testing.assert_array_equal(session.store.value(name), value, err_msg=name)


@pytest.mark.parametrize("acceleration", ["True", "False"])
def test_half_precision_ends_with_at_most_a_tenth_more_loss(gecli: Gecli, tmp_path: Path, acceleration: str) -> None:
    compile_session(
        gecli, tmp_path / "om", "--precision", "force_fp16", "--ge-option", f"ge.exec.variable_acc={acceleration}"
    )
    session = Session()
    begin, step, evaluation = (session.load(tmp_path / f"om/{name}.om") for name in GRAPHS)
    begin.run({})
    losses, history = reference.train(SAMPLES / "batches.npz", STEPS)
    assert train(step)[-1] <= 1.1 * losses[-1]
    images = held_out()
    loss, _ = reference.loss_and_gradients(history[-1], images["x"].astype(float), images["labels"].astype(float))
    assert float(evaluation.run(images)[0]["loss:0"]) <= 1.1 * loss
