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

from gecli.artifacts.om_file import read_om
from gecli.artifacts.om_writer import write_om
from gecli.errors import InputError
from gecli.wire.model_record import ModelRecord

REAL = Path(__file__).resolve().parents[1] / "data" / "om" / "real"
SCRIPT = Path(__file__).resolve().parents[1] / "tools" / "netron_open.mjs"


@pytest.fixture(scope="module")
def netron_folder() -> str:
    spec = importlib.util.find_spec("netron")
    assert spec is not None and spec.origin is not None, "the netron package is missing: install the dev dependencies"
    return str(Path(spec.origin).parent)


def report_of(folder: str, path: Path) -> dict[str, Any]:
    node = shutil.which("node")
    assert node is not None, "node is missing: this test opens an OM with Netron's own reader and needs Node.js"
    done = subprocess.run(
        [node, str(SCRIPT), folder, str(path), "--tensors", "--values"], capture_output=True, text=True, timeout=60
    )
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def opened(folder: str, path: Path) -> dict[str, Any]:
    report = report_of(folder, path)
    assert "error" not in report and report["graphs"] == 1, report
    graph: dict[str, Any] = report["graph"][0]
    return graph


def check_same(graph: dict[str, Any], model: ModelRecord) -> None:
    """Nodes, edges, control edges, constants and their bytes are those that gecli reads.

    Netron shows constants as weights of their readers, and none that nobody reads.
    """
    record = model.root
    nodes = [node for node in record.nodes if node.type != "Const"]
    assert graph["name"] == record.name
    assert [(node["name"], node["type"]) for node in graph["node"]] == [(node.name, node.type) for node in nodes]
    for seen, node in zip(graph["node"], nodes):
        edges = [value for _, values in seen["inputs"] for value, _ in values]
        assert edges == [str(port) for port in node.data_inputs], node.name
    assert graph["controlDependencies"] == sum(len(node.control_in) for node in nodes)
    weights = {item["name"]: item for item in graph["tensor"] if item["where"] == "weight"}
    used = {f"{node.name}:0": node.attrs["value"] for node in record.nodes_of("Const") if node.users[0]}
    assert set(weights) == set(used)
    for name, weight in used.items():
        assert (weights[name]["bytes"], weights[name]["sha256"]) == (weight.nbytes, weight.sha256()), name
        assert weights[name]["layout"] == weight.desc.format.name.partition(":")[0]
    assert graph["tensorBytes"] == sum(weight.nbytes for weight in used.values())
    assert graph["tensorsWithoutBytes"] == 0 and graph["unreadableAttributeNames"] == 0


DUPLICATE = "Duplicate value"  # consumers that describe one value in two ways: Netron gives up, GE and gecli do not
UNSEEN = {"hiai-aipp": DUPLICATE}


@pytest.mark.parametrize("name", sorted(path.stem for path in REAL.glob("*.om")))
def test_a_real_file_is_read_as_netron_reads_it(netron_folder: str, name: str) -> None:
    path = REAL / f"{name}.om"
    report = report_of(netron_folder, path)
    if not report["recognised"]:
        with pytest.raises(InputError, match="not-om"):
            read_om(path)
        assert name.startswith("encrypted")
        return
    model = read_om(path).model()
    assert not model.problems
    if name in UNSEEN:
        assert UNSEEN[name] in report["error"]
        return
    assert report["graphs"] == len(model.graphs) == 1
    check_same(report["graph"][0], model)


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
    check_same(graph, read_om(small_om).model())


def test_a_model_with_large_constants_is_seen_whole(
    netron_folder: str, make_model: Callable[..., Any], tmp_path: Path
) -> None:
    built = make_model(3, rows=100_000)
    path = tmp_path / "large.om"
    write_om(path, built.image)
    graph = opened(netron_folder, path)
    assert graph["tensorBytes"] == 2 * 1_200_000 + 36
