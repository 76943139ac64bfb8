"""`gecli run --compare` with another model: an OM, or the source."""

from __future__ import annotations

import json
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from gecli.report.comparison import Tolerances, compare_outputs
from gecli.report.run_report import comparison_lines
from tests.conftest import Gecli

REPOSITORY = Path(__file__).resolve().parents[2]
DIGITS = REPOSITORY / "samples/digits/digits.onnx"
TRAIN = REPOSITORY / "samples/train"


@pytest.fixture
def models(gecli: Gecli) -> None:
    for name, more in (("digits", []), ("plain", ["--format-policy", "origin"])):
        done = gecli("compile", str(DIGITS), "-o", f"{name}.om", "--input-shape", "image:2,1,8,8", *more)
        assert done.returncode == 0, done.stderr
    assert gecli("compile", str(DIGITS), "-o", "dynamic.om", "--input-shape", "image:-1,1,8,8").returncode == 0


@pytest.mark.usefixtures("models")
@pytest.mark.parametrize("golden", ["plain.om", "dynamic.om", str(DIGITS)])
def test_outputs_are_compared_with_those_of_another_model(gecli: Gecli, golden: str, tmp_path: Path) -> None:
    before = sorted(each.name for each in tmp_path.iterdir())
    done = gecli("run", "digits.om", "--seed", "5", "--compare", golden)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1].startswith("equal    probabilities")
    assert sorted(each.name for each in tmp_path.iterdir()) == before


@pytest.mark.usefixtures("models")
def test_a_dynamic_model_is_compared_at_the_shape_of_the_run(gecli: Gecli, tmp_path: Path) -> None:
    np.savez(tmp_path / "runs.npz", image=np.random.default_rng(1).random((4, 3, 1, 8, 8)).astype(np.float32))
    done = gecli("run", "dynamic.om", "-i", "runs.npz", "--compare", str(DIGITS))
    assert done.returncode == 0, done.stderr
    assert "0 of 120 outside" in done.stdout


def test_another_om_begins_with_the_same_variables(gecli: Gecli) -> None:
    assert gecli("compile", str(TRAIN / "conv_train.json"), "-o", "a.om", "--train").returncode == 0
    assert gecli("run", "a.om", "-i", str(TRAIN / "batches.npz"), "--save-vars", "v.npz").returncode == 0
    done = gecli("run", "a.om", "-i", str(TRAIN / "batches.npz"), "--load-vars", "v.npz", "--compare", "a.om", "-q")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    told = gecli("run", "a.om", "--compare", str(TRAIN / "conv_train.json"))
    assert told.returncode == 2
    assert "do:  compile it and compare with its OM" in told.stderr


@pytest.mark.usefixtures("models")
def test_outputs_compared_by_position_are_said_to_be(gecli: Gecli, tmp_path: Path) -> None:
    assert gecli("run", "digits.om", "-o", "o.npz").returncode == 0
    with np.load(tmp_path / "o.npz") as saved:
        np.savez(tmp_path / "renamed.npz", p=saved["probabilities"])
    done = gecli("run", "digits.om", "--compare", "renamed.npz")
    assert done.returncode == 0
    assert "compared by position: probabilities with p" in done.stderr
    assert "by position" not in gecli("run", "digits.om", "--compare", "o.npz").stderr


@pytest.mark.usefixtures("models")
def test_models_that_do_not_fit_each_other_are_refused(gecli: Gecli) -> None:
    assert gecli("compile", str(TRAIN / "conv_eval.json"), "-o", "eval.om").returncode == 0
    done = gecli("run", "digits.om", "--compare", "eval.om", "--init", "zero")
    assert done.returncode == 2
    assert "eval.om has inputs that the model lacks: x, labels" in done.stderr
    done = gecli("run", "digits.om", "plain.om", "--compare", "dynamic.om")
    assert done.returncode == 2
    assert "takes one OM" in done.stderr


@pytest.mark.usefixtures("models")
@pytest.mark.parametrize(
    ("golden", "said"),
    [
        (str(DIGITS), f"golden computed by gecli from {DIGITS}, unoptimised"),
        ("plain.om", "golden computed by gecli from plain.om, as compiled"),
        ("o.npz", "golden read from o.npz"),
    ],
)
def test_the_output_says_who_computed_the_golden(gecli: Gecli, golden: str, said: str) -> None:
    assert gecli("run", "digits.om", "-o", "o.npz").returncode == 0
    done = gecli("run", "digits.om", "--compare", golden)
    assert done.stdout.splitlines()[-2] == said
    document = gecli("run", "digits.om", "--compare", golden, "--json", "-q")
    assert json.loads(document.stdout)["golden"] == said


def row_text(mine: list[float], theirs: list[float]) -> str:
    [row] = compare_outputs({"o": np.array(mine)}, {"o": np.array(theirs)}, Tolerances())
    return comparison_lines([row])[0]


def test_nan_is_counted_and_the_errors_are_those_of_numbers() -> None:
    nan = float("nan")
    assert row_text([nan, nan], [1.0, 2.0]).startswith("differs  o  2 NaN  worst at [0]  2 of 2 outside")
    assert "  1 NaN  max abs 0.5  max rel 0.25  " in row_text([nan, 2.5], [1.0, 2.0])
    assert "  1 NaN expected but not found  max abs 0  " in row_text([1.0, 2.0], [nan, 2.0])
    assert row_text([nan, 2.0], [nan, 2.0]).startswith("equal    o  max abs 0  ")
    assert "max abs inf" in row_text([float("inf"), 2.0], [1.0, 2.0])


def test_a_run_without_the_shape_of_a_dynamic_input_is_a_usage_error_with_its_cure(gecli: Gecli) -> None:
    assert gecli("compile", str(DIGITS), "-o", "dynamic.om").returncode == 0
    done = gecli("run", "dynamic.om")
    assert done.returncode == 2
    assert 'do:  --shape "image:1,1,8,8"' in done.stderr
    assert gecli("run", "dynamic.om", "--shape", "image:1,1,8,8").returncode == 0


def test_variables_without_their_packet_are_warned_of_once(gecli: Gecli, tmp_path: Path) -> None:
    train, evaluation = str(TRAIN / "conv_train.json"), str(TRAIN / "conv_eval.json")
    assert gecli("compile", train, evaluation, "-o", "t/", "--train").returncode == 0
    assert "warning" not in gecli("run", "t/conv_eval.om", "-i", str(TRAIN / "held_out.npz")).stderr
    (tmp_path / "t/conv_eval.rdcpkt").unlink()
    done = gecli("run", "t/conv_eval.om", "-i", str(TRAIN / "held_out.npz"))
    assert done.returncode == 0
    assert done.stderr.count("warning[") == 1
    assert "has variables but no conv_eval.rdcpkt beside it" in done.stderr
    assert "why: data in the user's format cannot be converted to the stored one" in done.stderr


@pytest.mark.parametrize(("mine", "theirs", "told"), [(2e-6, 9e-6, True), (2e-6, 2e-6, False), (0.5, 0.500001, False)])
def test_values_that_are_all_below_the_absolute_tolerance_are_said_to_be(
    mine: float, theirs: float, told: bool
) -> None:
    rows = compare_outputs({"o": np.full(3, mine)}, {"o": np.full(3, theirs)}, Tolerances())
    assert rows[0].equal and rows[0].as_json()["below_atol"] is told
    assert ("--atol 0 compares by rtol alone" in "\n".join(comparison_lines(rows))) is told


def test_a_golden_without_a_type_is_read_in_that_of_the_output() -> None:
    mine = np.array([1, 2.5], ml_dtypes.bfloat16)
    raw = np.frombuffer(mine.tobytes(), "V2")  # what numpy.save makes of it
    assert compare_outputs({"o": mine}, {"o": raw}, Tolerances())[0].equal
    assert not compare_outputs({"o": mine}, {"o": raw[::-1].copy()}, Tolerances())[0].equal
    [row] = compare_outputs({"o": mine}, {"o": np.zeros(2, "V3")}, Tolerances())
    assert not row.equal and "3 bytes without a type" in row.why
