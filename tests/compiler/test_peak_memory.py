"""A compile streams its weights: the peak does not grow with their number."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.conftest import REPOSITORY

MIB = 1 << 20


def chain(directory: Path, operator: str, shape: list[int], weight: list[int], layers: int) -> Path:
    """A chain of `layers` operators whose weights all lie in one file beside the graph."""
    np.save(directory / "weight.npy", np.random.default_rng(0).standard_normal(weight, np.float32))
    x = {"dtype": "DT_FLOAT", "shape": shape, "format": "NCHW" if len(shape) == 4 else "ND"}
    w = {"dtype": "DT_FLOAT", "shape": weight, "format": "NCHW" if len(weight) == 4 else "ND"}
    attrs = {"strides": [1, 1, 1, 1], "pads": [0, 0, 0, 0], "data_format": "NCHW"} if operator == "Conv2D" else {}
    nodes: list[dict] = [{"id": "x", "type": "Data", "outputs": [x]}]
    links = []
    for layer in range(layers):
        nodes.append({"id": f"w{layer}", "type": "Const", "value": {"file": "weight.npy"}, "outputs": [w]})
        nodes.append({"id": f"y{layer}", "type": operator, "attrs": attrs, "outputs": [x]})
        links.append({"source": f"y{layer - 1}" if layer else "x", "target": f"y{layer}", "src": 0, "dst": 0})
        links.append({"source": f"w{layer}", "target": f"y{layer}", "src": 0, "dst": 1})
    document = {"gecli_graph": 1, "directed": True, "multigraph": True, "nodes": nodes, "links": links}
    document["graph"] = {"name": "chain", "outputs": [f"y{layers - 1}:0"]}
    path = directory / f"chain{layers}.json"
    path.write_text(json.dumps(document))
    return path


def peak_bytes(model: Path, output: Path) -> int:
    """The peak resident size of one compile."""
    command = [sys.executable, "-m", "gecli", "compile", str(model), "-o", str(output), "--quiet"]
    process = subprocess.Popen(command, env={**os.environ, "PYTHONPATH": str(REPOSITORY)})
    _, status, usage = os.wait4(process.pid, 0)
    assert status == 0
    return usage.ru_maxrss * 1024


@pytest.mark.parametrize(
    ("operator", "shape", "weight", "few", "many"),
    [("MatMulV2", [1, 2048], [2048, 2048], 1, 7), ("Conv2D", [1, 1024, 4, 4], [1024, 1024, 1, 1], 2, 26)],
)
def test_more_weights_do_not_need_more_memory(
    tmp_path: Path, operator: str, shape: list[int], weight: list[int], few: int, many: int
) -> None:
    models = [chain(tmp_path, operator, shape, weight, layers) for layers in (few, many)]
    peaks = [peak_bytes(model, tmp_path / "out.om") for model in models]
    assert (many - few) * 4 * int(np.prod(weight)) >= 96 * MIB
    assert peaks[1] - peaks[0] < 24 * MIB, [peak // MIB for peak in peaks]
