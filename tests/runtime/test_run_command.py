"""`gecli run` as a process, on the committed samples: outputs, statuses, sessions, variables, comparison."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
DIGITS = REPOSITORY / "samples/digits"
TRAIN = REPOSITORY / "samples/train"


@pytest.fixture
def digits(gecli, tmp_path: Path) -> str:
    done = gecli("compile", str(DIGITS / "digits.onnx"), "-o", "digits.om", "--input-shape", "image:360,1,8,8")
    assert done.returncode == 0, done.stderr
    return "digits.om"


@pytest.fixture
def session(gecli, tmp_path: Path) -> Path:
    done = gecli("compile", str(TRAIN / "conv_train.json"), str(TRAIN / "conv_eval.json"), "-o", "s/", "--train")
    assert done.returncode == 0, done.stderr
    return tmp_path / "s"


def test_the_classifier_gives_the_outputs_of_its_source_model(gecli, digits: str, tmp_path: Path) -> None:
    done = gecli("run", digits, "-i", str(DIGITS / "test_images.npz"), "-o", "out.npz")
    assert done.returncode == 0, done.stderr
    actual = np.load(tmp_path / "out.npz")["probabilities"]
    expected = np.load(DIGITS / "expected.npz")["probabilities"]
    assert np.abs(actual - expected).max() <= 1e-4 * np.abs(expected).max() + 1e-6
    assert (actual.argmax(1) == expected.argmax(1)).all()
    labels = np.load(DIGITS / "test_labels.npy")
    assert (actual.argmax(1) == labels).mean() >= 0.97


def test_compare_is_0_when_equal_and_1_when_not(gecli, digits: str, tmp_path: Path) -> None:
    images, golden = str(DIGITS / "test_images.npz"), str(DIGITS / "expected.npz")
    assert gecli("run", digits, "-i", images, "--compare", golden).returncode == 0
    other = np.load(golden)["probabilities"].copy()
    other[3, 4] += 0.1
    np.savez(tmp_path / "other.npz", probabilities=other)
    done = gecli("run", digits, "-i", images, "--compare", "other.npz")
    assert done.returncode == 1
    assert "worst at [3, 4]" in done.stdout


def test_the_same_seed_gives_the_same_run(gecli, digits: str) -> None:
    runs = [gecli("run", digits, "--seed", "3", "--json") for _ in range(2)]
    documents = [json.loads(run.stdout) for run in runs]
    digests = [document["requests"][0]["outputs"][0]["sha256"] for document in documents]
    assert digests[0] == digests[1]
    assert documents[0]["simulated"] is True


def test_saved_inputs_repeat_the_run(gecli, digits: str) -> None:
    assert gecli("run", digits, "--seed", "9", "--save-inputs", "in.npz", "-o", "a.npz").returncode == 0
    assert gecli("run", digits, "-i", "in.npz", "--compare", "a.npz", "--rtol", "0", "--atol", "0").returncode == 0


def test_outputs_go_to_a_directory_one_file_each(gecli, digits: str, tmp_path: Path) -> None:
    assert gecli("run", digits, "--fill", "zeros", "-o", "out/").returncode == 0
    assert np.load(tmp_path / "out/probabilities.npy").shape == (360, 10)


def test_times_are_said_to_be_of_the_simulation(gecli, digits: str) -> None:
    done = gecli("run", digits, "--loop", "3", "--profile")
    assert done.returncode == 0, done.stderr
    assert "not device time" in done.stderr
    assert "Conv2D" in done.stdout


def test_a_wrong_shape_says_what_was_expected(gecli, digits: str, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros((1, 1, 8, 8), np.float32))
    done = gecli("run", digits, "-i", "x.npy")
    assert done.returncode == 6
    assert "expected [360, 1, 8, 8], got [1, 1, 8, 8]" in done.stderr


def test_a_file_that_is_no_om_is_refused(gecli, tmp_path: Path) -> None:
    (tmp_path / "x.om").write_text("version https://git-lfs.github.com/spec/v1\n")
    done = gecli("run", "x.om")
    assert done.returncode == 3
    assert "Git LFS" in done.stderr


def test_a_real_om_names_the_operators_it_cannot_run(gecli) -> None:
    done = gecli("run", str(REPOSITORY / "tests/data/om/real/ascend310-2022-vae.om"))
    assert done.returncode == 3
    assert "Traceback" not in done.stderr


def test_training_and_evaluation_share_the_variables_of_one_session(gecli, session: Path) -> None:
    before = gecli("run", "s/conv_eval.om", "-i", str(TRAIN / "held_out.npz"), "--json")
    assert before.returncode == 0, before.stderr
    both = gecli(
        "run", "s/conv_train.om", "s/conv_eval.om",
        "-i", f"conv_train:x={TRAIN / 'batches.npz'}", "-i", f"conv_train:labels={TRAIN / 'batches.npz'}",
        "-i", f"conv_eval:x={TRAIN / 'held_out.npz'}", "-i", f"conv_eval:labels={TRAIN / 'held_out.npz'}", "--json",
    )  # fmt: skip
    assert both.returncode == 0, both.stderr
    loss_before = loss(json.loads(before.stdout))
    assert loss_before > 2
    assert loss(json.loads(both.stdout)) < 0.6


def loss(document: dict) -> float:
    outputs = document["requests"][-1]["outputs"]
    return next(output["first"][0] for output in outputs if output["name"] == "loss:0")


def test_variables_are_saved_and_loaded_in_the_declared_format(gecli, session: Path, tmp_path: Path) -> None:
    done = gecli("run", "s/conv_train.om", "-i", str(TRAIN / "batches.npz"), "--save-vars", "v.npz", "--quiet")
    assert done.returncode == 0, done.stderr
    with np.load(tmp_path / "v.npz") as saved:
        assert saved["w2"].shape == (3, 3, 8, 16)
        assert saved["w1"].shape == (8, 1, 3, 3)
    done = gecli("run", "s/conv_eval.om", "-i", str(TRAIN / "held_out.npz"), "--load-vars", "v.npz", "--json")
    assert loss(json.loads(done.stdout)) < 0.6


def test_get_var_and_set_var_speak_the_declared_format(gecli, session: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "w2.npy", np.full((3, 3, 8, 16), 0.5, np.float32))
    done = gecli("run", "s/conv_eval.om", "--set-var", "w2=w2.npy", "--get-var", "w2=back.npy")
    assert done.returncode == 0, done.stderr
    np.testing.assert_array_equal(np.load(tmp_path / "back.npy"), 0.5)
