"""Training on the simulated device: every step equals a plain numpy loop; the worked example of the specification."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gecli.compiler import compile_model
from gecli.loading import load_graph
from gecli.ops.evaluate import evaluate_graph
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


@pytest.mark.parametrize("dtype", ["DT_FLOAT", "DT_FLOAT16"])
@pytest.mark.parametrize("rows", [2, "n"])
@pytest.mark.parametrize("outputs", [1, 2])
def test_the_slot_is_written_however_many_outputs_the_graph_gives(
    tmp_path: Path, dtype: str, rows: int | str, outputs: int
) -> None:
    """A momentum slot has no declared output; training.md 9.1 writes it all the same."""
    vector = {"dtype": dtype, "shape": [4], "format": "ND"}
    scalar = {"dtype": dtype, "shape": [], "format": "ND"}

    def variable(name: str, values: list[float]) -> dict:
        start = {"_init_value": {"tensor": {"data": values, "dtype": dtype}}}
        return {"id": name, "type": "Variable", "attrs": start, "outputs": [vector]}

    document = {
        "gecli_graph": 1, "directed": True, "multigraph": True, "graph": {"name": "m", "outputs": ["up:0"]},
        "nodes": [
            {"id": "x", "type": "Data", "attrs": {"index": 0}, "outputs": [{**vector, "shape": [rows, 4]}]},
            variable("w", [1, 2, 3, 4]),
            variable("a", [0, 0, 0, 0]),
            {"id": "lr", "type": "Const", "value": {"data": 0.5}, "outputs": [scalar]},
            {"id": "mu", "type": "Const", "value": {"data": 0.5}, "outputs": [scalar]},
            {"id": "axis", "type": "Const", "value": {"data": [0], "dtype": "DT_INT32", "shape": [1]}},
            {"id": "g", "type": "ReduceSum", "attrs": {"keep_dims": False}, "outputs": [vector]},
            {"id": "up", "type": "ApplyMomentum", "outputs": [vector] * outputs},
        ],
        "links": [
            {"source": source, "target": target, "src": 0, "dst": slot}
            for target, sources in (("g", ["x", "axis"]), ("up", ["w", "a", "lr", "g", "mu"]))
            for slot, source in enumerate(sources)
        ],
    }  # fmt: skip
    (tmp_path / "m.json").write_text(json.dumps(document))
    graph = load_graph(str(tmp_path / "m.json")).graph
    _, state = evaluate_graph(graph, {"x": np.ones((2, 4), np.dtype("f2" if dtype == "DT_FLOAT16" else "f4"))})
    assert state["a"].tolist() == [2, 2, 2, 2]
    compile_model(tmp_path / "m.json", tmp_path / "m.om", train="true")
    session = Session()
    model = session.load(tmp_path / "m.om")
    for _ in range(2):
        model.run({"x": np.ones((2, 4), model.inputs[0].dtype.numpy)})
    assert session.store.value("a").tolist() == [3, 3, 3, 3]
    assert session.store.value("w").tolist() == [-1.5, -0.5, 0.5, 1.5]
