"""`gecli run` with several models: each takes its own inputs, and what no model has is refused."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gecli.cli.app import run
from gecli.errors import GecliError
from gecli.ir.dtype import DataType
from gecli.ir.op_desc import OpDesc, Port
from gecli.ir.tensor_desc import TensorDesc
from gecli.runtime.input_names import Command
from gecli.runtime.inputs import InputOptions, requests_for
from gecli.runtime.interface import Tensor

SAMPLES = Path(__file__).resolve().parents[2] / "samples/train"


def tensor(name: str, *shape: int) -> Tensor:
    return Tensor(name, Port(OpDesc(name, "Data"), 0), TensorDesc(DataType.FLOAT, shape))


X, LABELS, Z = tensor("x", 2), tensor("labels", 3), tensor("z", 4)
MODELS = [("init", []), ("train", [X, LABELS]), ("eval", [X, Z])]
VALUES = {"x": np.full(2, 7, np.float32), "labels": np.full(3, 8, np.float32), "z": np.full(4, 9, np.float32)}


@pytest.fixture(autouse=True)
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    np.savez("all.npz", **VALUES)
    np.savez("numbers.npz", VALUES["x"], VALUES["labels"])
    np.savez("odd.npz", q=VALUES["x"])
    for name, value in VALUES.items():
        np.save(f"{name}.npy", value)


def feeds(*specs: str, models: Any = MODELS, command: Command | None = None) -> list[dict[str, float]]:
    """The first element of each input of each model; made ones are 0."""
    command = command or Command(models)
    found = []
    for name, inputs in models:
        (feed,) = requests_for(inputs, specs, InputOptions(fill="zeros"), name, command)
        found.append({key: float(value[0]) for key, value in feed.items()})
    return found


@pytest.mark.parametrize(
    "specs",
    [("all.npz",), ("x=x.npy", "labels=labels.npy", "z=z.npy"), ("x=x.npy", "train:labels=labels.npy", "eval:z=z.npy")],
)
def test_each_model_takes_its_own_inputs(specs: tuple[str, ...]) -> None:
    assert feeds(*specs) == [{}, {"x": 7, "labels": 8}, {"x": 7, "z": 9}]


@pytest.mark.parametrize(
    "specs", [("x.npy", "labels.npy"), ("x.npy,labels.npy",), ("numbers.npz",), ("#0=x.npy", "#1=labels.npy")]
)
def test_positions_count_in_the_models_that_have_inputs(specs: tuple[str, ...]) -> None:
    assert feeds(*specs, models=MODELS[:2]) == [{}, {"x": 7, "labels": 8}]


def test_a_name_of_one_model_is_left_alone_by_the_others() -> None:
    assert feeds("train:x=x.npy") == [{}, {"x": 7, "labels": 0}, {"x": 0, "z": 0}]


def test_standard_input_serves_every_model(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = BytesIO(Path("all.npz").read_bytes())
    monkeypatch.setattr("sys.stdin", type("Stdin", (), {"buffer": stream})())
    assert feeds("-") == [{}, {"x": 7, "labels": 8}, {"x": 7, "z": 9}]


@pytest.mark.parametrize("spec", ["odd.npz", "q=x.npy", "train:z=z.npy", "other:x=x.npy", "#2=x.npy"])
def test_what_no_model_has_is_refused_and_all_their_inputs_are_named(spec: str) -> None:
    with pytest.raises(GecliError) as caught:
        feeds(spec)
    first = caught.value.first
    assert first.code == "E10016" and "which is no input of any model" in first.message
    assert first.why == "the inputs of init: none; of train: x, labels; of eval: x, z"
    assert "-i " in first.do and first.do.endswith("=FILE")


def test_a_file_too_many_names_the_model() -> None:
    with pytest.raises(GecliError) as caught:
        feeds("x.npy", "labels.npy", "z.npy", models=MODELS[:2])
    assert caught.value.first.why == "the model 'init' has 0 inputs"
    with pytest.raises(GecliError) as caught:
        feeds("x.npy", "x.npy", models=[("narrow", [X]), MODELS[1]])
    assert (caught.value.first.why, caught.value.first.do) == ("the model 'narrow' has 1 input", "-i x=FILE")


def test_a_single_model_is_named() -> None:
    with pytest.raises(GecliError, match="no input of the model 'train'"):
        feeds("odd.npz", models=MODELS[1:2])


def test_training_from_one_npz(capsys: pytest.CaptureFixture[str]) -> None:
    names = ["conv_init", "conv_train"]
    assert run(["compile", *(str(SAMPLES / f"{name}.json") for name in names), "-o", "om/", "--train", "-q"]) == 0
    with np.load(SAMPLES / "batches.npz") as batches:
        batch = {key: batches[key][0] for key in ("x", "labels")}
    np.savez("batch0.npz", **batch)
    for key, value in batch.items():
        np.save(f"{key}.npy", value)
    oms = [f"om/{name}.om" for name in names]
    capsys.readouterr()
    told = []
    for specs in (["batch0.npz"], ["x=x.npy", "-i", "labels=labels.npy"], ["x.npy", "-i", "labels.npy"]):
        assert run(["run", *oms, "-i", *specs, "-o", "out.npz", "-q"]) == 0
        with np.load("out.npz") as outputs:
            told.append({key: outputs[key].tolist() for key in outputs.files})
    assert told[0] and told[0] == told[1] == told[2]
