"""Netron, which we did not write, opens our files and sees every node and every weight."""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gecli.artifacts.om_writer import write_om

SCRIPT = Path(__file__).resolve().parents[1] / "tools" / "netron_open.mjs"


@pytest.fixture(scope="module")
def netron_folder() -> str:
    spec = importlib.util.find_spec("netron")
    assert spec is not None and spec.origin is not None, "the netron package is missing: install the dev dependencies"
    return str(Path(spec.origin).parent)


def opened(folder: str, path: Path) -> dict[str, Any]:
    node = shutil.which("node")
    assert node is not None, "node is missing: this test opens an OM with Netron's own reader and needs Node.js"
    done = subprocess.run(
        [node, str(SCRIPT), folder, str(path), "--tensors", "--values"], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stdout + done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    assert "error" not in report and report["graphs"] == 1
    graph: dict[str, Any] = report["graph"][0]
    return graph


def test_nodes_edges_and_all_weight_bytes_are_seen(netron_folder: str, small_om: Path, built: Any) -> None:
    graph = opened(netron_folder, small_om)
    assert graph["name"] == "m_0"
    assert [node["name"] for node in graph["node"]] == ["x", "dot", "add/1:a", "more", "Node_Output"]
    assert graph["types"] == {"Data": 1, "MatMulV2": 1, "Add": 2, "NetOutput": 1}
    weights = {item["name"]: item for item in graph["tensor"] if item["where"] == "weight"}
    assert {name.removesuffix(":0"): item["bytes"] for name, item in weights.items()} == {
        name: len(data) for name, data in built.weights.items()
    }
    assert graph["tensorBytes"] == sum(map(len, built.weights.values()))
    assert graph["tensorsWithoutBytes"] == 0 and graph["danglingInputs"] == []
    assert graph["unreadableAttributeNames"] == 0


def test_a_model_with_large_constants_is_seen_whole(
    netron_folder: str, make_model: Callable[..., Any], tmp_path: Path
) -> None:
    built = make_model(3, rows=100_000)
    path = tmp_path / "large.om"
    write_om(path, built.image)
    graph = opened(netron_folder, path)
    assert graph["tensorBytes"] == 2 * 1_200_000 + 36
