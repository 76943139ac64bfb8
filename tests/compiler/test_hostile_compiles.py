"""`gecli compile` with odd models, as a process: names that steer terminals, writes into copies, equal bytes."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.conftest import Gecli

node = helper.make_node


def save(path: Path, nodes: list[onnx.NodeProto], inputs: list[onnx.ValueInfoProto], output: str) -> None:
    results = [helper.make_empty_tensor_value_info(output)]
    graph = helper.make_graph(nodes, "g", inputs, results)
    onnx.save(helper.make_model(graph, ir_version=9, opset_imports=[helper.make_opsetid("", 18)]), path)


@pytest.mark.parametrize("name", ["a\x1b[31mb", "a\nsize=1", "a\rb", "\u202eabc"], ids=["escape", "line", "cr", "bidi"])
@pytest.mark.parametrize("words", [[], ["--color", "always"], ["-v"]], ids=["plain", "colour", "verbose"])
def test_a_name_out_of_a_model_cannot_steer_the_terminal(
    gecli: Gecli, tmp_path: Path, name: str, words: list[str]
) -> None:
    value = helper.make_tensor_value_info(name, TensorProto.FLOAT, [2])
    save(tmp_path / "m.onnx", [node("Relu", [name], [name + "y"], name=name + "n")], [value], name + "y")
    done = gecli("compile", "m.onnx", "-o", "o.om", *words)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert sum(line.startswith("size=") for line in lines) == 1
    assert all(line.isprintable() for line in lines)
    document = json.loads(gecli("compile", "m.onnx", "-o", "o.om", "--json").stdout)
    assert document["models"][0]["inputs"][0]["name"] == name


@pytest.mark.parametrize("reduction", ["none", "add", "mul", "max", "min"])
def test_scatter_nd_of_onnx_compiles_and_gives_the_numbers_of_its_definition(
    gecli: Gecli, tmp_path: Path, reduction: str
) -> None:
    inputs = [
        helper.make_tensor_value_info("data", TensorProto.FLOAT, [4, 2]),
        helper.make_tensor_value_info("at", TensorProto.INT64, [2, 1]),
        helper.make_tensor_value_info("new", TensorProto.FLOAT, [2, 2]),
    ]
    scatter = node("ScatterND", ["data", "at", "new"], ["s"], reduction=reduction)
    # The input is read again afterwards: it must not have been written.
    save(tmp_path / "m.onnx", [scatter, node("Sub", ["s", "data"], ["y"])], inputs, "y")
    done = gecli("compile", "m.onnx", "-o", "o.om")
    assert done.returncode == 0, done.stderr
    data = np.arange(8, dtype=np.float32).reshape(4, 2)
    at, new = np.array([[1], [3]]), np.full((2, 2), 5, np.float32)
    np.savez(tmp_path / "in.npz", data=data, at=at, new=new)
    done = gecli("run", "o.om", "-i", "in.npz", "-o", "out.npz")
    assert done.returncode == 0, done.stderr
    expected = data.copy()
    old = expected[at[:, 0]]
    how = {"none": lambda a, b: b, "add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}
    expected[at[:, 0]] = how[reduction](old, new)
    with np.load(tmp_path / "out.npz") as found:
        np.testing.assert_array_equal(found[found.files[0]], expected - data)


def test_the_bytes_do_not_depend_on_hash_seed_zone_language_or_umask(gecli: Gecli, tmp_path: Path) -> None:
    digits = Path(__file__).resolve().parents[2] / "samples/digits/digits.onnx"
    hashes = set()
    for number, surroundings in enumerate(
        (
            {"PYTHONHASHSEED": "1", "TZ": "Asia/Tokyo", "LANG": "C"},
            {"PYTHONHASHSEED": "2", "TZ": "UTC", "LC_ALL": "zh_CN.UTF-8", "OMP_NUM_THREADS": "1"},
        )
    ):
        done = gecli("compile", str(digits), "-o", f"d{number}/d.om", env=surroundings)
        assert done.returncode == 0, done.stderr
        hashes.add(hashlib.sha256((tmp_path / f"d{number}/d.om").read_bytes()).hexdigest())
    assert len(hashes) == 1


def test_a_refused_model_leaves_no_file(gecli: Gecli, tmp_path: Path) -> None:
    array = numpy_helper.from_array(np.ones(3, np.float32), "w")
    results = [helper.make_empty_tensor_value_info("y")]
    value = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3])
    graph = helper.make_graph([node("Add", ["x", "w"], ["y"])], "g", [value], results, [array, array])
    (tmp_path / "m.onnx").write_bytes(helper.make_model(graph, ir_version=9).SerializeToString())
    done = gecli("compile", "m.onnx", "-o", "o.om")
    assert done.returncode == 3
    assert "tensor 'w' is made twice" in done.stderr
    assert not (tmp_path / "o.om").exists()


def test_a_quantisation_of_constants_rounds_as_it_does_in_a_run(gecli: Gecli, tmp_path: Path) -> None:
    x = np.array([0, 2, -3, -2.5, 1.34, 0.5], np.float32)  # one quotient is a half in float32 only
    quantise = node("DynamicQuantizeLinear", ["x"], ["y", "scale", "zero"])
    results = [helper.make_empty_tensor_value_info("y")]
    for name, inputs, weights in (
        ("run", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [6])], []),
        ("fold", [], [numpy_helper.from_array(x, "x")]),
    ):
        graph = helper.make_graph([quantise], "g", inputs, results, weights)
        model = helper.make_model(graph, ir_version=9, opset_imports=[helper.make_opsetid("", 18)])
        onnx.save(model, tmp_path / f"{name}.onnx")
        assert gecli("compile", f"{name}.onnx", "-o", f"{name}.om").returncode == 0
    np.savez(tmp_path / "in.npz", x=x)
    assert gecli("run", "run.om", "-i", "in.npz", "-o", "run.npz").returncode == 0
    assert gecli("run", "fold.om", "-o", "fold.npz").returncode == 0
    with np.load(tmp_path / "run.npz") as run, np.load(tmp_path / "fold.npz") as fold:
        np.testing.assert_array_equal(run[run.files[0]], fold[fold.files[0]])
