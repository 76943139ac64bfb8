"""A model that stays dynamic says why, in every form of the report."""

from __future__ import annotations

import json
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

from gecli.compiler.result import ModelResult, OutputFile
from gecli.report.compile_report import summary_lines
from tests.conftest import Gecli

INPUT = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 3])
SCALAR = helper.make_tensor_value_info("s", TensorProto.BOOL, [])


def branch(kind: str) -> onnx.GraphProto:
    return helper.make_graph([helper.make_node(kind, ["x"], [f"{kind}_out"])], kind, [], [
        helper.make_tensor_value_info(f"{kind}_out", TensorProto.FLOAT, None)])  # fmt: skip


def save(path: Path, *nodes: onnx.NodeProto, output: int = TensorProto.FLOAT, scalar: bool = False) -> None:
    inputs = [INPUT, SCALAR] if scalar else [INPUT]
    graph = helper.make_graph(list(nodes), "g", inputs, [helper.make_tensor_value_info("y", output, None)])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)


@pytest.fixture
def models(tmp_path: Path) -> None:
    save(tmp_path / "plain.onnx", helper.make_node("Relu", ["x"], ["y"], name="relu"))
    shaped = [helper.make_node("Shape", ["x"], ["n"]), helper.make_node("ConstantOfShape", ["n"], ["y"])]
    save(tmp_path / "shaped.onnx", *shaped)
    save(tmp_path / "values.onnx", helper.make_node("NonZero", ["x"], ["y"], name="where"), output=TensorProto.INT64)
    choice = helper.make_node("If", ["s"], ["y"], "choice", then_branch=branch("Relu"), else_branch=branch("Neg"))
    save(tmp_path / "branches.onnx", choice, scalar=True)


CHOICE = "node choice (If) keeps the model dynamic: its branches and loops are chosen while it runs"
WHERE = "node where (NonZero) keeps the model dynamic: the shape of its output 0 is known only when it has run"


@pytest.mark.usefixtures("models")
@pytest.mark.parametrize(
    ("model", "shape", "said"),
    [
        ("plain", "", ['hint=give sizes for a static plan: --input-shape "x:N,3"']),
        ("plain", "x:2,3", []),
        ("shaped", "", ['hint=give sizes for a static plan: --input-shape "x:N,3"']),
        ("shaped", "x:2,3", []),
        ("values", "x:2,3", [f"dynamic_cause={WHERE}"]),
        ("branches", "", [f"dynamic_cause={CHOICE}", 'hint=give sizes for faster steps: --input-shape "x:N,3"']),
        ("branches", "x:2,3;s:", [f"dynamic_cause={CHOICE}"]),
    ],
)
def test_a_pipe_gets_the_node_and_the_hint(gecli: Gecli, model: str, shape: str, said: list[str]) -> None:
    words = ["compile", f"{model}.onnx", "-o", "m.om", *(["--input-shape", shape] if shape else [])]
    done = gecli(*words)
    assert done.returncode == 0, done.stderr
    assert [line for line in done.stdout.splitlines() if line.startswith(("dynamic_cause=", "hint="))] == said
    cause = json.loads(gecli(*words, "--json", "-q").stdout)["models"][0]["dynamic_cause"]
    told = f"node {cause['node']} ({cause['type']}) keeps the model dynamic: {cause['why']}" if cause else ""
    assert [told] * bool(told) == [line.partition("=")[2] for line in said if line.startswith("dynamic_cause")]


@pytest.mark.usefixtures("models")
def test_a_cache_hit_says_it_too(gecli: Gecli) -> None:
    words = ["compile", "values.onnx", "-o", "m.om", "--input-shape", "x:2,3", "--cache-dir", "cache", "--cache-create"]
    gecli(*words)
    again = gecli(*words).stdout
    assert "cache=hit" in again
    assert f"dynamic_cause={WHERE}" in again


def test_the_summary_has_a_line_each() -> None:
    result = ModelResult("m.onnx", "onnx", OutputFile("m.om", 1), is_dynamic=True)
    result.inputs = [{"name": "x", "dtype": "DT_FLOAT", "format": "ND", "shape": [-1, 3]}]
    result.dynamic_cause = {"node": "n", "type": "If", "why": "because"}
    lines = summary_lines(result)
    assert "dynamic   node n (If) keeps the model dynamic: because" in lines
    assert 'dynamic   give sizes for faster steps: --input-shape "x:N,3"' in lines
