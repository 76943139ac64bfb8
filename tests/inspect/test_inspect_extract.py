"""Tensors that leave the file."""

from __future__ import annotations

import gc
import hashlib
import json
from pathlib import Path

import numpy as np
import onnx
import onnx.numpy_helper
import pytest

from gecli.report.inspect.extraction import unique_name

from .conftest import REAL, REPOSITORY, Inspect


def test_every_weight_of_the_source_model_comes_out_again(inspect: Inspect, digits_om: Path) -> None:
    assert inspect(digits_om, "--extract", "all", "--to", "out").status == 0
    manifest = json.loads(Path("out/manifest.json").read_text())
    found = [np.load(Path("out") / entry["file"]) for entry in manifest.values()]
    model = onnx.load(REPOSITORY / "samples" / "digits" / "digits.onnx")
    conv = next(tensor for tensor in model.graph.initializer if list(tensor.dims) == [16, 1, 3, 3])
    expected = onnx.numpy_helper.to_array(conv)
    assert any(array.shape == expected.shape and np.array_equal(array, expected) for array in found)
    for entry in manifest.values():
        assert hashlib.sha256((Path("out") / entry["file"]).read_bytes()).hexdigest() == entry["sha256"]


def test_one_tensor_has_a_sidecar_with_its_description(inspect: Inspect) -> None:
    path = REAL / "ascend310-2022-vae.om"
    rows = json.loads(inspect(path, "--tensors", "--json").out)["tensors"]
    row = next(row for row in rows if row["format"] == "FRACTAL_Z")
    shown = json.loads(inspect(path, "--extract", row["name"], "--to", "out", "--json").out)
    file = Path("out") / shown["tensors"][0]["file"]
    sidecar = json.loads(file.with_suffix(".json").read_text())
    assert list(np.load(file).shape) == sidecar["storage_shape"] == row["shape"]
    assert (sidecar["format"], sidecar["origin_shape"]) == ("FRACTAL_Z", row["origin_shape"])


def test_a_device_format_is_converted_back_on_demand(inspect: Inspect, conv_train_om: Path) -> None:
    rows = json.loads(inspect(conv_train_om, "--tensors", "--json").out)["tensors"]
    row = next(row for row in rows if row["format"] == "FRACTAL_Z")
    options = ["--extract", row["name"], "--to", "out", "--origin-format", "--json"]
    shown = json.loads(inspect(conv_train_om, *options).out)
    array = np.load(Path("out") / shown["tensors"][0]["file"])
    assert list(array.shape) == row["origin_shape"]
    sidecar = json.loads((Path("out") / shown["tensors"][0]["file"]).with_suffix(".json").read_text())
    assert (sidecar["format"], sidecar["storage_shape"]) == (sidecar["origin_format"], row["origin_shape"])
    assert (sidecar["stored_format"], sidecar["stored_shape"]) == ("FRACTAL_Z", row["shape"])


def test_a_name_that_is_not_there_is_a_usage_error_with_the_nearest_one(inspect: Inspect, digits_om: Path) -> None:
    shown = inspect(digits_om, "--extract", "conv1_filter", "--to", "out")
    assert (shown.status, "no tensor 'conv1_filter'" in shown.err) == (2, True)


@pytest.mark.parametrize(
    ("name", "do"),
    [
        ("dynamic_const_5478_3", "--extract dynamic_const_5478_30"),
        ("*_5478_33*", "--extract dynamic_const_5478_33"),
        ("dynamic_const_5478_3[01]", "--extract dynamic_const_5478_31 --extract dynamic_const_5478_30"),
        ("dynamic_const*", " and so on, or --extract all"),
        ("nothing*", "gecli inspect-om FILE --tensors"),
    ],
)
def test_the_advice_for_a_name_that_is_not_there_can_be_typed(name: str, do: str, inspect: Inspect) -> None:
    shown = inspect(REAL / "ascend310-2022-vae.om", "--extract", name, "--to", "out")
    advice = shown.err.splitlines()[-1]
    assert shown.status == 2 and advice.endswith(do) and not set("[]'") & set(advice)
    assert ("takes names and no patterns" in shown.err) is any(mark in name for mark in "*[")


@pytest.mark.parametrize("options", [["--extract", "all"], ["--to", "out"]])
def test_a_tensor_needs_a_directory_and_a_directory_a_tensor(
    options: list[str], inspect: Inspect, digits_om: Path
) -> None:
    shown = inspect(digits_om, *options)
    assert (shown.status, "E10054" in shown.err) == (2, True)


@pytest.mark.parametrize("name", ["../../etc/passwd", "/abs", "..", ".", "", "a\0b", "con:1", "x" * 400, "manifest"])
def test_no_name_leaves_the_directory(name: str) -> None:
    found = unique_name(name, {})
    assert "/" not in found and found not in ("", ".", "..") and len(found) < 210
    assert found.lower() != "manifest"


def test_names_that_clash_get_numbers() -> None:
    taken: dict[str, int] = {}
    assert [unique_name(name, taken) for name in ("a/b", "a_b", "A_B", "c")] == ["a_b", "a_b~2", "A_B~3", "c"]


def test_types_that_numpy_lacks_come_out_as_their_bits(tmp_path: Path, inspect: Inspect) -> None:
    def const(name: str, dtype: str, count: int, data: str) -> str:
        desc = f'{{ dtype: {dtype} layout: "ND" shape {{ dim: {count} }} }}'
        value = f'value {{ t {{ desc {desc} data: "{data}" }} }}'
        return f'op {{ name: "{name}" type: "Const" attr {{ key: "value" {value} }} output_desc {desc} }}\n'

    nodes = (
        const("a/bf", "DT_BF16", 2, r"\x80\x3f\x00\x40")
        + const("a:bf", "DT_FLOAT8_E4M3FN", 2, r"\x38\x40")
        + const("a_bf", "DT_INT4", 3, r"\xf1\x08")
    )
    (tmp_path / "m.txt").write_text(f'name: "m"\ngraph {{\n name: "g"\n {nodes} }}')
    shown = inspect("m.txt", "--extract", "all", "--to", "out")
    assert (shown.status, shown.err) == (0, "")
    manifest = json.loads(Path("out/manifest.json").read_text())
    assert {name: entry["file"] for name, entry in manifest.items()} == {
        "a/bf": "a_bf.npy", "a:bf": "a_bf~2.npy", "a_bf": "a_bf~3.npy"
    }  # fmt: skip
    arrays = [np.load(Path("out") / entry["file"]) for entry in manifest.values()]
    assert [array.dtype.name for array in arrays] == ["uint16", "uint8", "int8"]
    assert [array.tolist() for array in arrays] == [[0x3F80, 0x4000], [0x38, 0x40], [1, -1, -8]]
    types = [json.loads((Path("out") / entry["file"]).with_suffix(".json").read_text())["dtype"]
             for entry in manifest.values()]  # fmt: skip
    assert types == ["bfloat16", "float8_e4m3fn", "int4"]


def test_an_extraction_that_cannot_be_written_is_an_output_error(
    tmp_path: Path, inspect: Inspect, digits_om: Path
) -> None:
    (tmp_path / "taken").write_bytes(b"")
    shown = inspect(digits_om, "--extract", "all", "--to", "taken/inside")
    assert (shown.status, "error[G6001]" in shown.err or "error[E13004]" in shown.err) == (5, True)


def test_what_is_written_leaves_no_cycles_of_objects_behind(inspect: Inspect) -> None:
    """inspect-om does not look for garbage while it runs: a graph that is shown lives to the end."""
    path = REAL / "ascend310-2022-vae.om"
    inspect(path, "--extract", "all", "--to", "first")  # with what is imported and made once
    gc.collect()
    gc.disable()
    try:
        inspect(path, "--tensors", "--json")
        reading = gc.collect()
        inspect(path, "--extract", "all", "--to", "second")
        extracting = gc.collect()
    finally:
        gc.enable()
    count = sum(1 for path in Path("second").iterdir() if path.suffix == ".npy")
    assert count > 10 and extracting < reading + 10 * count
