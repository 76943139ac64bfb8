"""`--input-shape` and `--dim` of a command: several models, and sizes that the model was not made for."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

Run = Callable[..., "subprocess.CompletedProcess[str]"]


def save(path: Path, name: str, shape: list[int | str]) -> None:
    ends = [helper.make_tensor_value_info(each, TensorProto.FLOAT, shape) for each in (name, "y")]
    graph = helper.make_graph([helper.make_node("Relu", [name], ["y"], name="r")], "g", ends[:1], ends[1:])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)


@pytest.fixture
def two(tmp_path: Path) -> Path:
    save(tmp_path / "a.onnx", "x_of_a", ["N", 4])
    save(tmp_path / "b.onnx", "y_of_b", ["M", 5])
    return tmp_path


@pytest.mark.parametrize("mode", [[], ["--no-session"], ["--check"], ["--stop-after", "parse"]])
@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (["--input-shape", "x_of_a:1,4;y_of_b:1,5"], 0, ""),
        (["--dim", "N=1", "--dim", "M=1"], 0, ""),
        (["--input-shape", "x_of_a:1,4;z:1,5"], 2, "--input-shape names 'z', which none of the 2 models has"),
        (["--dim", "K=1"], 2, "--dim names 'K', which none of the 2 models has"),
    ],
)
def test_a_name_must_belong_to_one_of_the_models(
    mode: list[str], words: list[str], status: int, said: str, gecli: Run, two: Path
) -> None:
    result = gecli("compile", "a.onnx", "b.onnx", "-o", "out/", *words, *mode)
    assert result.returncode == status, result.stderr
    assert said in result.stderr
    assert not (status and (two / "out").exists())


def test_the_message_about_several_models_shows_the_inputs_of_each(gecli: Run, two: Path) -> None:
    error = gecli("compile", "a.onnx", "b.onnx", "-o", "out/", "--input-shape", "y_of_a:1,4").stderr
    assert "a.onnx: the graph's inputs are: x_of_a FLOAT [N,4]" in error
    assert "b.onnx: the graph's inputs are: y_of_b FLOAT [M,5]" in error


def test_a_name_of_another_models_command_is_an_error_for_one_model(gecli: Run, two: Path) -> None:
    result = gecli("compile", "a.onnx", "-o", "a", "--input-shape", "x_of_a:1,4;y_of_b:1,5")
    assert result.returncode == 2
    assert "error[E10016]" in result.stderr


@pytest.mark.parametrize("mode", [["-o", "x"], ["--check"], ["--stop-after", "Prepare"], ["-o", "x", "--keep-going"]])
def test_a_size_that_the_model_cannot_take_is_blamed_and_not_the_inner_node(
    mode: list[str], gecli: Run, tmp_path: Path
) -> None:
    ends = [
        helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in (("bytes", [1, 2048]), ("y", [1, 32, 64]))
    ]
    shape = numpy_helper.from_array(np.array([1, 32, 64]), "shape")
    nodes = [helper.make_node("Reshape", ["bytes", "shape"], ["y"], name="inner")]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], [shape])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), tmp_path / "m.onnx")
    result = gecli("compile", "m.onnx", "--input-shape", "bytes:1,2047", *mode)
    assert result.returncode == 2
    errors = [line for line in result.stderr.splitlines() if line.startswith("error")]
    assert errors == ["error[E10050]: dimension 1 of 'bytes' is 2048 in the model, 2047 given"]
    assert "node 'inner' cannot work with the size given: shape [1, 2047] cannot be reshaped" in result.stderr
    assert 'do:  --input-shape "bytes:1,2048"' in result.stderr
