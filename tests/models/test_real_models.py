"""Real trained models, compiled and run by the command, judged by onnxruntime (`make test-models DIR=...`).

gecli runs in an interpreter where onnx and onnxruntime cannot be imported.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))

from feeds import input_shape_option, make_feeds  # noqa: E402  # the folder is on the path only now

pytestmark = pytest.mark.models

SEEDS = (20240607, 1, 2)
MODELS = [
    "magika", "nudenet-yolov8n", "ppocr4-det", "ppocr4-rec", "ddddocr-det", "swift-f0", "basic-pitch", "minilm-l3",
    "silero-vad", "caustic-gnn", "tashkeel-gru", "nsnet2", "ddddocr-rec", "rxnmap", "minilm-l6-int8",
]  # fmt: skip
DYNAMIC = [name for name in MODELS if name != "ddddocr-det"]  # that one has no free dimension
BLOCKER = """
import importlib.abc, sys

class Refuse(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("onnx", "onnxruntime"):
            raise ImportError(f"{name} is a judge, gecli must not import it")

sys.meta_path.insert(0, Refuse())
"""


@pytest.fixture(scope="session")
def models_dir(request: pytest.FixtureRequest) -> Path:
    folder = request.config.getoption("--models-dir")
    assert folder, "name the folder of models with --models-dir"
    return Path(folder)


@pytest.fixture(scope="session")
def blocked_environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("blocker")
    (folder / "sitecustomize.py").write_text(BLOCKER)
    path = os.pathsep.join(filter(None, (str(folder), str(BENCHMARKS.parent), os.environ.get("PYTHONPATH"))))
    return {**os.environ, "PYTHONPATH": path}


def gecli(environment: dict[str, str], *words: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "gecli", *words], env=environment, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr[-2000:]


def check(model: Path, om: Path, environment: dict[str, str], folder: Path) -> None:
    """Three seeds: every output within the accuracy bar of onnxruntime's."""
    import onnxruntime

    session = onnxruntime.InferenceSession(str(model), providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    for seed in SEEDS:
        feeds = make_feeds(model, seed)
        np.savez(folder / "in.npz", **feeds)
        gecli(environment, "run", str(om), "-i", str(folder / "in.npz"), "-o", str(folder / "out.npz"), "--quiet")
        expected = dict(zip(names, session.run(None, feeds)))
        with np.load(folder / "out.npz") as outputs:
            for name, value in expected.items():
                assert_close(outputs[name], value, f"{model.stem}, seed {seed}, output {name}")


def assert_close(actual: Any, expected: Any, what: str) -> None:
    assert actual.shape == expected.shape, what
    if expected.dtype.kind != "f":
        assert (actual == expected).all(), what
        return
    bar = 1e-4 * float(np.abs(expected).max(initial=0)) + 1e-6
    error = float(np.abs(actual.astype(np.float64) - expected).max(initial=0))
    assert error <= bar, f"{what}: error {error:.3g}, bar {bar:.3g}"


def test_onnx_and_onnxruntime_cannot_be_imported(blocked_environment: dict[str, str]) -> None:
    for name in ("onnx", "onnxruntime"):
        done = subprocess.run([sys.executable, "-c", f"import {name}"], env=blocked_environment, capture_output=True)
        assert done.returncode != 0


@pytest.mark.parametrize("name", MODELS)
def test_a_static_model_gives_the_numbers_of_onnxruntime(
    name: str, models_dir: Path, blocked_environment: dict[str, str], tmp_path: Path
) -> None:
    model, om = models_dir / f"{name}.onnx", tmp_path / f"{name}.om"
    gecli(blocked_environment, "compile", str(model), "-o", str(om), "--input-shape", input_shape_option(model))
    check(model, om, blocked_environment, tmp_path)


@pytest.mark.parametrize("name", DYNAMIC)
def test_a_dynamic_model_gives_the_numbers_of_onnxruntime(
    name: str, models_dir: Path, blocked_environment: dict[str, str], tmp_path: Path
) -> None:
    model, om = models_dir / f"{name}.onnx", tmp_path / f"{name}.om"
    gecli(blocked_environment, "compile", str(model), "-o", str(om))
    check(model, om, blocked_environment, tmp_path)


@pytest.mark.parametrize("shapes", ["static", "dynamic"])
@pytest.mark.parametrize("name", DYNAMIC)
def test_weights_beside_the_model_give_the_same_bits(
    name: str, shapes: str, models_dir: Path, blocked_environment: dict[str, str], tmp_path: Path
) -> None:
    model = models_dir / f"{name}.onnx"
    words = ["--input-shape", input_shape_option(model)] if shapes == "static" else []
    np.savez(tmp_path / "in.npz", **make_feeds(model, 1))
    found = []
    for mode in ("none", "split", "combined"):
        om = tmp_path / mode / f"{name}.om"
        gecli(blocked_environment, "compile", str(model), "-o", str(om), "--external-weight", mode, *words)
        out = tmp_path / f"{mode}.npz"
        gecli(blocked_environment, "run", str(om), "-i", str(tmp_path / "in.npz"), "-o", str(out), "--quiet")
        with np.load(out) as outputs:
            found.append({key: value.tobytes() for key, value in outputs.items()})
        assert mode == "none" or om.stat().st_size < max((tmp_path / "none" / om.name).stat().st_size, 1 << 20)
    assert found[0] == found[1] == found[2]


def test_every_model_of_this_list_is_in_the_catalogue() -> None:
    known = {entry["name"] for entry in json.loads((BENCHMARKS / "models.json").read_text())}
    assert set(MODELS) <= known
