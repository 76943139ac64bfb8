"""--loop and --warmup measure a step; the variables change once a request."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tests.conftest import Gecli

TRAIN = Path(__file__).resolve().parents[2] / "samples/train"


@pytest.fixture
def train(gecli: Gecli, tmp_path: Path) -> str:
    done = gecli("compile", str(TRAIN / "conv_train.json"), "-o", "train.om", "--train")
    assert done.returncode == 0, done.stderr
    return "train.om"


def variables(gecli: Gecli, place: Path, *words: str) -> dict[str, np.ndarray]:
    done = gecli("run", *words, "--save-vars", "v.npz", "--quiet")
    assert done.returncode == 0, done.stderr
    with np.load(place / "v.npz") as saved:
        return {name: saved[name] for name in saved.files if name != "__meta__"}


@pytest.mark.parametrize("words", [["--loop", "3"], ["--warmup", "2"], ["--loop", "2", "--warmup", "0"]])
def test_repeats_of_a_step_train_no_further(gecli: Gecli, train: str, tmp_path: Path, words: list[str]) -> None:
    once = variables(gecli, tmp_path, train)
    repeated = variables(gecli, tmp_path, train, *words)
    assert once.keys() == repeated.keys()
    for name, value in once.items():
        np.testing.assert_array_equal(repeated[name], value, err_msg=name)


def test_the_same_model_twice_in_the_order_does_train_further(gecli: Gecli, train: str, tmp_path: Path) -> None:
    once = variables(gecli, tmp_path, train)
    twice = variables(gecli, tmp_path, train, "--order", "train;train")
    assert not np.array_equal(once["w1"], twice["w1"])


@pytest.mark.parametrize("target", ["out/", "out.npz"])
def test_of_a_model_twice_in_the_order_the_last_outputs_are_written(
    gecli: Gecli, train: str, tmp_path: Path, target: str
) -> None:
    def loss(order: str) -> float:
        place = tmp_path / f"{order.count('train')}_{target}"
        done = gecli("run", train, "--order", order, "-o", f"{place}{'/' * target.endswith('/')}", "--quiet")
        assert done.returncode == 0, done.stderr
        if place.is_dir():
            (path,) = place.rglob("loss_0.npy")
            return float(np.load(path))
        with np.load(place) as saved:
            return float(next(saved[name] for name in saved.files if name.endswith("loss:0")))

    assert loss("train;train") < loss("train")


def test_warm_ups_are_not_measured_and_leave_no_trace(gecli: Gecli, train: str) -> None:
    plain, warm = (json.loads(gecli("run", train, "--json", *words).stdout) for words in ([], ["--warmup", "2"]))
    assert warm["models"][0]["stats"]["runs"] == 1
    assert warm["requests"][0]["outputs"] == plain["requests"][0]["outputs"]


def test_one_run_has_one_line_of_times_and_several_have_a_table(gecli: Gecli, train: str) -> None:
    lines = gecli("run", train).stderr.splitlines()
    (times,) = [line for line in lines if "not device time" in line]
    assert [word for word in times.split() if word.isalnum()][:5] == ["h2d", "compute", "d2h", "total", "ms"]
    assert "median" not in "".join(lines)
    assert "median" in gecli("run", train, "--loop", "2").stderr
