"""An OM that compile wrote, read and written again, is the same file byte for byte, in every shape that there is."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from gecli.artifacts.om_file import read_om
from gecli.artifacts.om_image_of import image_of
from gecli.artifacts.om_writer import write_om
from gecli.compiler.api import compile_models
from gecli.options.resolution import resolve
from gecli.options.table import find_flag

REPOSITORY = Path(__file__).resolve().parents[2]
DIGITS = str(REPOSITORY / "samples/digits/digits.onnx")
TRAIN = [str(REPOSITORY / f"samples/train/{name}.json") for name in ("conv_train", "conv_eval")]
PERCEPTRON = str(REPOSITORY / "samples/train/mlp_train.json")
STATIC = ["--input-shape", "image:2,1,8,8"]

CASES: dict[str, list[str]] = {
    "static": [DIGITS, *STATIC],
    "dynamic": [DIGITS],
    "origin formats": [DIGITS, *STATIC, "--format-policy", "origin"],
    "device formats": [DIGITS, *STATIC, "--format-policy", "device"],
    "fp16": [DIGITS, *STATIC, "--precision-mode", "force_fp16"],
    "one graph with variables": [TRAIN[0], "--train"],
    "a session of two graphs": [*TRAIN, "--train"],
    "constants in variable memory": [PERCEPTRON, "--train"],
    "no variables kept": [PERCEPTRON],
}  # fmt: skip


def compiled(arguments: list[str], folder: Path) -> list[Path]:
    sources = [each for each in arguments if each.startswith("/")]
    typed: dict[str, tuple[Any, ...]] = {"output": (f"{folder}/",)}
    words = iter(each for each in arguments if not each.startswith("/"))
    for word in words:
        flag = find_flag("compile", word.removeprefix("--"))
        assert flag is not None
        typed[flag.option.key] = ("true",) if word == "--train" else (next(words),)
    folder.mkdir()
    compile_models(sources, resolve("compile", typed))
    return sorted(folder.glob("*.om"))


def check_rewritten(path: Path) -> None:
    om = read_om(path)
    again = path.with_name("again.bin")
    write_om(again, image_of(om))
    assert again.read_bytes() == path.read_bytes(), path.name
    again.unlink()


@pytest.mark.parametrize("name", CASES)
def test_a_file_of_this_shape_is_written_again_byte_for_byte(name: str, tmp_path: Path) -> None:
    files = compiled(CASES[name], tmp_path / "out")
    assert len(files) == (2 if name == "a session of two graphs" else 1)
    for path in files:
        check_rewritten(path)


def branches(then_value: float, else_value: float) -> onnx.ModelProto:
    """An If with a constant of its own in each branch, and constants of several types around it."""
    out = helper.make_tensor_value_info("b", TensorProto.FLOAT, [2])

    def branch(name: str, value: float) -> onnx.GraphProto:
        const = numpy_helper.from_array(np.full(2, value, np.float32), f"{name}_c")
        return helper.make_graph([helper.make_node("Add", ["y", f"{name}_c"], ["b"])], name, [], [out], [const])

    nodes = [
        helper.make_node("Mul", ["x", "scale"], ["y"]),
        helper.make_node("Greater", ["limit", "zero"], ["p"]),
        helper.make_node("If", ["p"], ["z"], then_branch=branch("t", then_value), else_branch=branch("e", else_value)),
        helper.make_node("Cast", ["z"], ["h"], to=TensorProto.FLOAT16),
    ]
    info = helper.make_tensor_value_info
    inputs = [info("x", TensorProto.FLOAT, [2]), info("limit", TensorProto.INT32, [])]
    outputs = [info("z", TensorProto.FLOAT, [2]), info("h", TensorProto.FLOAT16, [2])]
    constants = {"scale": np.array([2, 3], np.float32), "zero": np.array(0, np.int32)}
    initializers = [numpy_helper.from_array(value, name) for name, value in constants.items()]
    graph = helper.make_graph(nodes, "g", inputs, outputs, initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_a_model_with_subgraphs_is_written_again_byte_for_byte(tmp_path: Path) -> None:
    onnx.save(branches(1.0, 2.0), tmp_path / "branches.onnx")
    (path,) = compiled([str(tmp_path / "branches.onnx")], tmp_path / "out")
    assert len(read_om(path).model().graphs) == 3
    check_rewritten(path)


@pytest.mark.parametrize("name", ["x", "\u2603 snow", "a" * 40, "a/b:0"])
def test_odd_names_are_written_again_byte_for_byte(name: str, tmp_path: Path) -> None:
    graph = helper.make_graph(
        [helper.make_node("Relu", [name], ["y"], name="")], name,
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
    )  # fmt: skip
    stem = name.replace("/", "_")
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), tmp_path / f"{stem}.onnx"
    )
    (path,) = compiled([str(tmp_path / f"{stem}.onnx")], tmp_path / "out")
    check_rewritten(path)
