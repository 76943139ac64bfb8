"""Netron's own reader opens every OM that compile writes, with all weight bytes."""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
from pathlib import Path

import pytest

from gecli.artifacts.om_file import read_om
from gecli.compiler import compile_model

REPOSITORY = Path(__file__).resolve().parents[2]
DIGITS = REPOSITORY / "samples/digits/digits.onnx"
SAMPLES = REPOSITORY / "samples/train"


def netron(om: Path) -> dict:
    node = shutil.which("node")
    assert node, "install Node.js: Netron's reader runs under it"
    spec = importlib.util.find_spec("netron")
    assert spec is not None and spec.submodule_search_locations
    tool = REPOSITORY / "tests/tools/netron_open.mjs"
    done = subprocess.run(
        [node, str(tool), spec.submodule_search_locations[0], str(om)], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("policy", ["device", "origin"])
@pytest.mark.parametrize(
    ("source", "options"),
    [
        (DIGITS, {"input_shape": "image:4,1,8,8"}),
        (DIGITS, {}),
        (SAMPLES / "conv_train.json", {}),
        (SAMPLES / "conv_train.json", {"train": "true"}),
        (SAMPLES / "mlp_train.json", {}),
    ],
    ids=["static", "dynamic", "training", "constants in variable memory", "perceptron"],
)
def test_netron_shows_every_node_and_every_weight_byte(
    tmp_path: Path, source: Path, options: dict[str, str], policy: str
) -> None:
    om = tmp_path / "model.om"
    compile_model(source, om, format_policy=policy, **options)
    root = read_om(om).model().root
    (shown,) = netron(om)["graph"]
    constants = [node for node in root.nodes_of("Const") if any(node.users)]
    assert shown["nodes"] == len(root.nodes) - len(root.nodes_of("Const"))
    assert shown["tensorsWithoutBytes"] == 0
    used = {(node, use.node.name, use.slot) for node in constants for use in node.users[0]}
    assert shown["tensorBytes"] in (
        sum(node.attrs["value"].nbytes for node in constants),
        sum(node.attrs["value"].nbytes for node, _, _ in used),
    )
    assert shown["danglingInputs"] == []
