"""The digits sample: the committed model, data and answers belong together and the training code is right."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import onnx
import onnxruntime
import pytest

FOLDER = Path(__file__).resolve().parents[2] / "samples" / "digits"


def trainer() -> ModuleType:
    """train_digits.py as a module."""
    spec = importlib.util.spec_from_file_location("sample_train_digits", FOLDER / "train_digits.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def accuracy(*arguments: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(FOLDER / "accuracy.py"), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def test_expected_probabilities_are_those_of_onnxruntime_on_the_held_out_images() -> None:
    session = onnxruntime.InferenceSession(str(FOLDER / "digits.onnx"), providers=["CPUExecutionProvider"])
    images = np.load(FOLDER / "test_images.npz")["image"]
    assert (images.shape, images.dtype) == ((360, 1, 8, 8), np.dtype("f4"))
    (probabilities,) = session.run(["probabilities"], {"image": images})
    np.testing.assert_allclose(np.load(FOLDER / "expected.npz")["probabilities"], probabilities, atol=1e-5)


def test_model_keeps_its_normalisations_and_a_dynamic_batch() -> None:
    model = onnx.load(FOLDER / "digits.onnx")
    assert [node.op_type for node in model.graph.node].count("BatchNormalization") == 2
    assert model.opset_import[0].version == 17
    assert model.graph.input[0].type.tensor_type.shape.dim[0].dim_param == "batch"
    assert model.graph.output[0].type.tensor_type.shape.dim[0].dim_param == "batch"


def test_held_out_data_are_those_of_the_split() -> None:
    train_digits = trainer()
    images, _, test_images, test_labels = train_digits.split_digits()
    np.testing.assert_array_equal(np.load(FOLDER / "test_images.npz")["image"], test_images)
    np.testing.assert_array_equal(np.load(FOLDER / "test_labels.npy"), test_labels)
    assert test_labels.dtype == np.int64
    assert len(images) == 1437


def test_accuracy_of_the_expected_answers_is_at_least_97_percent() -> None:
    done = accuracy(FOLDER / "expected.npz", FOLDER / "test_labels.npy")
    assert done.returncode == 0
    words = done.stdout.split()
    assert words[0] == "accuracy"
    assert float(words[1]) >= 0.97
    assert done.stdout.endswith(" of 360)\n")


def test_accuracy_below_95_percent_is_exit_status_1(tmp_path: Path) -> None:
    labels = np.load(FOLDER / "test_labels.npy")
    np.savez(tmp_path / "wrong.npz", probabilities=np.eye(10)[(labels + (np.arange(360) < 36)) % 10])
    done = accuracy(tmp_path / "wrong.npz", FOLDER / "test_labels.npy")
    assert done.stdout == "accuracy 0.900 (324 of 360)\n"
    assert done.returncode == 1


def test_gradients_agree_with_central_differences() -> None:
    train_digits = trainer()
    images, labels, _, _ = train_digits.split_digits()
    images, labels = images[:16].astype(float), labels[:16]
    start = train_digits.initial_params(np.random.default_rng(1))
    params = {name: value.astype(float) for name, value in start.items()}
    _, gradients = train_digits.loss_and_gradients(dict(params), images, labels)
    assert set(params) - set(gradients) == {"bn1_mean", "bn1_variance", "bn2_mean", "bn2_variance"}
    rng, step = np.random.default_rng(2), 1e-6
    for name, gradient in gradients.items():
        for place in rng.choice(gradient.size, size=3, replace=False):
            index = np.unravel_index(place, gradient.shape)
            losses = []
            for sign in (1, -1):
                moved = params[name].copy()
                moved[index] += sign * step
                losses.append(train_digits.loss_and_gradients({**params, name: moved}, images, labels)[0])
            assert gradient[index] == pytest.approx((losses[0] - losses[1]) / (2 * step), rel=1e-4, abs=1e-7), name
