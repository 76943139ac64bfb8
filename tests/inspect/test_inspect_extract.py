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

from gecli.ir.dtype import DataType
from gecli.report.inspect.extraction import unique_name
from tests.artifacts import spec_om as spec

from .conftest import REAL, REPOSITORY, Inspect, model_def, wide_om
from .test_inspect_schemas import validator


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


def om_of_constants(*constants: tuple[str, DataType | int, list[int], bytes]) -> bytes:
    """An OM with these constants (name, type, dims, bytes) in its weights."""
    nodes, place, weights = [], 0, b""
    for name, dtype, dims, data in constants:
        number = dtype.proto if isinstance(dtype, DataType) else dtype
        shape = " ".join(f"dim: {dim}" for dim in dims)
        desc = f'dtype: {number} layout: "ND" weight_size: {len(data)} data_offset: {place} shape {{ {shape} }}'
        value = f'attr {{ key: "value" value {{ t {{ desc {{ {desc} }} }} }} }}'
        nodes.append(f'op {{ name: "{name}" type: "Const" {value} output_desc {{ {desc} }} }}')
        place, weights = place + len(data), weights + data
    text = 'name: "m" graph { name: "g" ' + " ".join(nodes) + " }"
    return wide_om((0, model_def(text)), (1, weights))


@pytest.mark.parametrize("dtype", DataType)
def test_statistics_and_files_can_be_asked_of_every_type(dtype: DataType, tmp_path: Path, inspect: Inspect) -> None:
    data = bytes(range(1, 1 + ((dtype.bits or 168) * 4 + 7) // 8))
    (tmp_path / "m.om").write_bytes(om_of_constants(("c", dtype, [4], data)))
    shown = inspect("m.om", "--tensors", "--stats", "--json")
    assert (shown.status, shown.err) == (0, "")
    row = json.loads(shown.out)["tensors"][0]
    without_order = {"STRING", "STRING_REF", "COMPLEX32", "COMPLEX64", "COMPLEX128", "DUAL", "UNDEFINED"}
    without_numpy = {"FLOAT4_E1M2", "HIFLOAT4"}
    assert (row["stats"] is None) is (dtype.name in without_order | without_numpy)
    assert inspect("m.om", "--tensors", "--stats").status == 0
    assert inspect("m.om", "--extract", "all", "--to", "out").status == 0
    array = np.load("out/c.npy")
    assert array.size == (len(data) if dtype.name in ("STRING", "STRING_REF", "UNDEFINED") else 4)
    if (dtype.bits or 8) % 8 == 0:
        assert array.tobytes() == data


def test_a_string_tensor_is_written_as_its_bytes_whatever_its_shape(tmp_path: Path, inspect: Inspect) -> None:
    """A head of 16 bytes, and the text behind it."""
    data = (16).to_bytes(8, "little") + (5).to_bytes(8, "little") + b"hello"
    (tmp_path / "m.om").write_bytes(om_of_constants(("s", DataType.STRING, [1], data)))
    shown = inspect("m.om", "--extract", "s", "--to", "out", "--json")
    assert (shown.status, shown.err) == (0, "")
    assert np.load("out/s.npy").tobytes() == data
    sidecar = json.loads(Path("out/s.json").read_text())
    assert (sidecar["dtype"], sidecar["storage_shape"]) == ("string", [1])


def test_a_tensor_of_another_size_than_its_description_does_not_keep_the_others_back(
    tmp_path: Path, inspect: Inspect
) -> None:
    good, wrong = bytes(16), bytes(range(16))
    path = tmp_path / "m.om"
    path.write_bytes(
        om_of_constants(
            ("first", DataType.FLOAT, [4], good), ("wrong", DataType.FLOAT, [1], wrong),
            ("open", DataType.FLOAT, [-1], wrong), ("few", DataType.INT4, [9], b"abc"),
            ("last", DataType.FLOAT, [4], good),
        )
    )  # fmt: skip
    offset = path.read_bytes().index(wrong)
    shown = inspect("m.om", "--extract", "all", "--to", "out", "--json")
    document = json.loads(shown.out)
    assert (shown.status, [row["name"] for row in document["tensors"]]) == (3, ["first", "last"])
    assert sorted(json.loads(Path("out/manifest.json").read_text())) == ["first", "last"]
    validator("extract").validate(document)
    lacking = {row["name"]: (row["bytes"], row["available"]) for row in document["missing"]}
    assert lacking == {"wrong": (4, 16), "open": (None, 16), "few": (5, 3)}
    told = "m.om: 3 tensors are not written, the first 'wrong': its description DT_FLOAT ND [1] needs 4 bytes, 16 are"
    assert f"{told} there at offset {offset}" in shown.err
    assert "open, its description DT_FLOAT ND [-1] has dims that are not known" in inspect(
        "m.om", "--extract", "open", "--to", "one"
    ).out  # fmt: skip
    advice = inspect("m.om", "--extract", "wrong", "--to", "one").err.splitlines()[-1].split("do: ")[1].split()
    assert inspect(*advice[2:]).out.splitlines()[-1].startswith(f"{offset:08x}  00 01 02 03")


def test_a_tensor_that_does_not_convert_does_not_keep_the_others_back(tmp_path: Path, inspect: Inspect) -> None:
    text = (
        'name: "m" graph { name: "g" '
        'op { name: "odd" type: "Const" attr { key: "value" value { t { desc { dtype: 2 layout: "NC1HWC0" '
        "weight_size: 128 shape { dim: 1 dim: 1 dim: 2 dim: 2 dim: 16 } "
        'attr { key: "origin_format" value { s: "NCHW" } } attr { key: "origin_shape" value { list { i: 7 i: 3 i: 2 '
        "i: 2 val_type: VT_LIST_INT } } } } } } } } "
        'op { name: "plain" type: "Const" attr { key: "value" value { t { desc { dtype: 1 layout: "ND" weight_size: 16 '
        "data_offset: 128 shape { dim: 4 } } } } } } }"
    )
    (tmp_path / "m.om").write_bytes(wide_om((0, model_def(text)), (1, bytes(144))))
    shown = inspect("m.om", "--extract", "all", "--to", "out", "--origin-format")
    assert (shown.status, Path("out/plain.npy").exists(), Path("out/odd.npy").exists()) == (3, True, False)
    assert "not written: odd, it does not convert to NCHW" in shown.out
    assert shown.err.splitlines()[-1].endswith("leave out --origin-format")
    assert inspect("m.om", "--extract", "odd", "--to", "out").status == 0


def test_tensors_that_lie_upon_each_other_are_read_up_to_a_multiple_of_the_file(
    inspect: Inspect, tmp_path: Path
) -> None:
    size, count = 1 << 20, 200
    descs = [spec.descriptor(4, [size - count], weight_size=size - count, data_offset=k) for k in range(count)]
    nodes = [
        spec.operator(f"c{k}", "Const", k, (), {"value": spec.attr_t(spec.tensor(desc))}, (), [desc])
        for k, desc in enumerate(descs)
    ]
    path = tmp_path / "upon.om"
    path.write_bytes(spec.om_wide([(0, spec.model("m", [spec.graph("g", nodes)])), (1, bytes(size))]))
    read = ((64 << 20) + 4 * path.stat().st_size) // (size - count)
    shown = inspect(path, "--tensors", "--json")
    assert sum(row["sha256"] is not None for row in json.loads(shown.out)["tensors"]) == read < count
    assert "the tensors lie upon each other" in shown.err
    assert json.loads(inspect(path, "--summary", "--json").out)["held_weights"] == {"count": count, "bytes": size - 1}
    shown = inspect(path, "--extract", "all", "--to", "out")
    assert (shown.status, len(list(Path("out").glob("*.npy")))) == (3, read)
    assert inspect(path, "--extract", f"c{count - 1}", "--to", "one").status == 0
