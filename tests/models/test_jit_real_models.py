"""Real models whose inputs have free sizes, slice by slice: three classes of shapes, judged by onnxruntime.

Cold, warm in the same process, and warm in a new one, where onnx and onnxruntime cannot be imported.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.models.test_real_models import BENCHMARKS, BLOCKER, DYNAMIC, assert_close

sys.path.insert(0, str(BENCHMARKS))

from feeds import feed_spec, make_feeds  # the folder is on the path only now

pytestmark = pytest.mark.models

# Sizes by the name that the model gives to a dim, or by input and axis.
CLASSES: dict[str, list[dict[str, int]]] = {
    "magika": [{"unk__214": n} for n in (1, 2, 3)],
    "nudenet-yolov8n": [
        {"batch": 1, "height": 320, "width": 320},
        {"batch": 1, "height": 256, "width": 320},
        {"batch": 2, "height": 160, "width": 160},
    ],
    "ppocr4-det": [{"x/0": n, "x/2": h, "x/3": w} for n, h, w in ((1, 640, 640), (1, 320, 480), (2, 160, 320))],
    "ppocr4-rec": [{"x/0": n, "x/3": w} for n, w in ((1, 320), (1, 160), (2, 240))],
    "swift-f0": [{"samples": n} for n in (16000, 8000, 24000)],
    "basic-pitch": [{"unk__749": n} for n in (1, 2, 3)],
    "minilm-l3": [{"batch_size": n, "sequence_length": s} for n, s in ((1, 128), (2, 16), (1, 40))],
    "silero-vad": [{"input/0": 1}, {"input/0": 3, "state/1": 3}, {"input/1": 288, "sr": 8000}],
    "caustic-gnn": [
        {"num_atoms": a, "num_edges": e, "num_residues": r} for a, e, r in ((60, 400, 10), (70, 300, 10), (90, 500, 4))
    ],
    "tashkeel-gru": [
        {"batch": n, "seq": s, "input_lengths": s} for n, s in ((1, 64), (1, 32), (2, 20))
    ],
    "nsnet2": [{"batch_size": n, "frames": f} for n, f in ((1, 100), (1, 50), (2, 30))],
    "ddddocr-rec": [{"image_width": n} for n in (256, 128, 320)],
    "rxnmap": [{"seq_len": n} for n in (100, 40, 64)],
    "minilm-l6-int8": [{"batch": n, "sequence": s} for n, s in ((1, 128), (2, 16), (1, 40))],
}  # fmt: skip

# Sizes that change become symbols with the second class; the third needs a version where more of them change.
THREE_VERSIONS = ("nudenet-yolov8n", "ppocr4-det", "ppocr4-rec", "silero-vad", "caustic-gnn", "tashkeel-gru", "nsnet2")

RUN = """
import sys
import numpy as np
from gecli.jit.loading import jit_model

model = jit_model(sys.argv[1], cache_dir="cache", cache_create="true")
for turn in range(int(sys.argv[2])):
    for number in range(3):
        outputs, _ = model.run(dict(np.load(f"in{number}.npz")))
        np.savez(f"out{turn}_{number}.npz", **outputs)
print(model.counts["compiled"], model.counts["restored"], len(model.jit_warnings))
"""


def dims_of(model: Path) -> dict[str, list[str]]:
    import onnx

    graph = onnx.load(str(model), load_external_data=False).graph
    return {each.name: [dim.dim_param for dim in each.type.tensor_type.shape.dim] for each in graph.input}


def class_feeds(model: Path, sizes: dict[str, int], folder: Path) -> dict[str, Any]:
    """Inputs of the kinds that the feeds file names, with other sizes."""
    import json

    spec, dims = feed_spec(model), dims_of(model)
    for name, entry in spec.items():
        entry["shape"] = [
            sizes.get(f"{name}/{axis}", sizes.get(dims[name][axis], size)) for axis, size in enumerate(entry["shape"])
        ]
        if name in sizes:
            entry["value"] = sizes[name]
    twin = folder / model.name
    twin.with_suffix(".feeds.json").write_text(json.dumps(spec))
    return make_feeds(twin, 1)


def test_every_dynamic_model_has_three_classes() -> None:
    assert sorted(CLASSES) == sorted(DYNAMIC)
    assert {len(classes) for classes in CLASSES.values()} == {3}


@pytest.mark.parametrize("name", list(CLASSES))
def test_three_classes_of_shapes_give_the_numbers_of_onnxruntime(
    name: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    import onnxruntime

    folder = request.config.getoption("--models-dir")
    assert folder, "name the folder of models with --models-dir"
    model = Path(folder) / f"{name}.onnx"
    session = onnxruntime.InferenceSession(str(model), providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    expected = []
    for number, sizes in enumerate(CLASSES[name]):
        feeds = class_feeds(model, sizes, tmp_path)
        np.savez(tmp_path / f"in{number}.npz", **feeds)
        expected.append(dict(zip(names, session.run(None, feeds))))
    (tmp_path / "sitecustomize.py").write_text(BLOCKER)
    environment = {"PYTHONPATH": f"{tmp_path}:{BENCHMARKS.parent}", "PATH": "/usr/bin:/bin", "HOME": str(tmp_path)}
    versions = 3 if name in THREE_VERSIONS else 2
    for turns, wanted in ((2, (versions, 0, 0)), (1, (0, versions, 0))):
        done = subprocess.run(
            [sys.executable, "-c", RUN, str(model.resolve()), str(turns)],
            cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=900,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr[-3000:]
        assert tuple(map(int, done.stdout.split())) == wanted
        for path in sorted(tmp_path.glob("out*.npz")):
            number = int(path.stem[-1])
            with np.load(path) as outputs:
                for output, value in expected[number].items():
                    assert_close(outputs[output], value, f"{name}, {path.stem}, output {output}")
            path.unlink()
