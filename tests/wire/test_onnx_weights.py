"""ONNX tensors as weight references, judged by the onnx package."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from gecli.errors import Diagnostic, InputError
from gecli.ir.dtype import DataType
from gecli.ir.weight import FileSlice, Fill, Inline
from gecli.pb import onnx_pb2
from gecli.wire.onnx import parse_onnx, parse_onnx_file, tensor_strings, tensor_weight

T = onnx.TensorProto


def ours(tensor: onnx.TensorProto) -> onnx_pb2.TensorProto:
    return onnx_pb2.TensorProto.FromString(tensor.SerializeToString())


@pytest.mark.parametrize("raw", [False, True], ids=["typed", "raw"])
@pytest.mark.parametrize(
    "dtype",
    ["FLOAT", "UINT8", "INT8", "UINT16", "INT16", "INT32", "INT64", "BOOL", "FLOAT16", "DOUBLE", "UINT32", "UINT64"]
    + ["COMPLEX64", "COMPLEX128", "BFLOAT16", "FLOAT8E5M2", "FLOAT8E4M3FN", "INT4"],
)
def test_every_type_reads_as_the_onnx_package_reads_it(dtype: str, raw: bool) -> None:
    number = T.DataType.Value(dtype)
    values = np.array([[0, 1, 2], [3, 1, 0]]).astype(helper.tensor_dtype_to_np_dtype(number))
    if raw:
        tensor = numpy_helper.from_array(values, "w")
        assert tensor.data_type == number
    else:
        flat = values.flatten() if dtype.startswith("COMPLEX") else values.astype(np.float64).flatten()
        tensor = helper.make_tensor("w", number, [2, 3], flat.tolist())
    weight = tensor_weight(ours(tensor), None)
    assert weight.dtype is DataType.from_onnx(number) and weight.shape == (2, 3)
    expected = numpy_helper.to_array(tensor)
    np.testing.assert_array_equal(weight.numpy().astype(expected.dtype), expected)


def test_large_raw_data_stay_in_the_model_file(tmp_path: Path) -> None:
    values = np.arange(3000, dtype=np.float32)
    typed = helper.make_tensor("t", T.FLOAT, [3000], values.tolist())
    graph = helper.make_graph([], "g", [], [], [numpy_helper.from_array(values, "w"), typed])
    path = tmp_path / "m.onnx"
    onnx.save(helper.make_model(graph), path)
    model = parse_onnx_file(path)
    for tensor in model.graph.initializer:
        weight = tensor_weight(tensor, tmp_path, path=path)
        assert isinstance(weight.source, FileSlice) and weight.source.path == str(path)
        np.testing.assert_array_equal(weight.numpy(), values)


def test_a_model_in_memory_keeps_its_data_inline() -> None:
    values = np.arange(3000, dtype=np.float32)
    graph = helper.make_graph([], "g", [], [], [numpy_helper.from_array(values, "w")])
    model = parse_onnx(helper.make_model(graph).SerializeToString())
    weight = tensor_weight(model.graph.initializer[0], None)
    assert isinstance(weight.source, Inline)
    np.testing.assert_array_equal(weight.numpy(), values)


def external(tmp_path: Path, location: str, **entries: int) -> onnx_pb2.TensorProto:
    tensor = T(name="w", data_type=T.FLOAT, dims=[4], data_location=T.EXTERNAL)
    tensor.external_data.add(key="location", value=location)
    for key, value in entries.items():
        tensor.external_data.add(key=key, value=str(value))
    (tmp_path / "model").mkdir(exist_ok=True)
    (tmp_path / "model" / "w.bin").write_bytes(bytes(8) + np.arange(4, dtype=np.float32).tobytes())
    (tmp_path / "outside.bin").write_bytes(bytes(16))
    return ours(tensor)


def test_external_data_are_a_slice_of_their_file(tmp_path: Path) -> None:
    weight = tensor_weight(external(tmp_path, "w.bin", offset=8, length=16), tmp_path / "model")
    assert weight.numpy().tolist() == [0.0, 1.0, 2.0, 3.0]
    short = tensor_weight(external(tmp_path, "w.bin", offset=8), tmp_path / "model")
    assert short.nbytes == 16


@pytest.mark.parametrize(
    ("location", "entries", "code", "reason"),
    [
        ("w.bin", {"offset": 12, "length": 16}, "G1003", "the file has 24 bytes"),
        ("w.bin", {"offset": 16, "length": 8}, "G1004", "need 16 bytes, 8 are there"),
        ("none.bin", {}, "G1003", "No such file"),
        ("../outside.bin", {}, "G1003", "not below"),
        ("", {}, "G1003", ""),
        (".", {"length": 0}, "G1003", ""),
    ],
)
def test_bad_external_data_are_refused(
    tmp_path: Path, location: str, entries: dict[str, int], code: str, reason: str
) -> None:
    with pytest.raises(InputError) as caught:
        tensor_weight(external(tmp_path, location, **entries), tmp_path / "model")
    assert caught.value.code == code
    assert reason in caught.value.first.why


def test_external_data_outside_the_model_are_read_only_when_allowed(tmp_path: Path) -> None:
    tensor = external(tmp_path, "../outside.bin")
    assert tensor_weight(tensor, tmp_path / "model", allow_outside=True).nbytes == 16


def test_a_link_that_leaves_the_model_directory_counts_as_outside(tmp_path: Path) -> None:
    tensor = external(tmp_path, "link.bin")
    (tmp_path / "model" / "link.bin").symlink_to(tmp_path / "outside.bin")
    with pytest.raises(InputError, match="outside the model's directory"):
        tensor_weight(tensor, tmp_path / "model")


def test_one_value_for_many_elements_is_repeated_with_a_warning() -> None:
    problems: list[Diagnostic] = []
    tensor = onnx_pb2.TensorProto(name="w", data_type=1, dims=[1000], float_data=[2.5])
    weight = tensor_weight(tensor, None, problems=problems)
    assert isinstance(weight.source, Fill)
    assert weight.numpy().tolist() == [2.5] * 1000
    assert [problem.severity for problem in problems] == ["warning"]


@pytest.mark.parametrize(
    "tensor",
    [
        onnx_pb2.TensorProto(data_type=1, dims=[3], float_data=[1.0, 2.0]),
        onnx_pb2.TensorProto(data_type=1, dims=[3], float_data=[1.0] * 4),
        onnx_pb2.TensorProto(data_type=1, dims=[3], raw_data=bytes(4)),
        onnx_pb2.TensorProto(data_type=1, dims=[-1], raw_data=bytes(4)),
        onnx_pb2.TensorProto(data_type=1, dims=[1 << 40, 1 << 40], raw_data=bytes(4)),
        onnx_pb2.TensorProto(data_type=1, dims=[4], raw_file_offset=[0], raw_file_length=[16]),
    ],
    ids=["too few", "too many", "raw too short", "negative", "overflow", "forged reference"],
)
def test_data_that_do_not_fit_the_dims_are_refused(tensor: object) -> None:
    with pytest.raises(InputError) as caught:
        tensor_weight(tensor, None, where="tensor 'w'")
    assert caught.value.code == "G1004"


def test_a_type_that_ge_does_not_have_is_named() -> None:
    with pytest.raises(InputError, match="data type 21"):
        tensor_weight(onnx_pb2.TensorProto(data_type=21, dims=[1], int32_data=[1]), None)


def test_strings_are_read_as_bytes() -> None:
    assert tensor_strings(onnx_pb2.TensorProto(data_type=8, dims=[2], string_data=[b"a", b"bc"])) == (b"a", b"bc")


def test_a_scalar_zero_attribute_can_be_told_from_an_absent_one() -> None:
    node = helper.make_node("LeakyRelu", ["x"], ["y"], alpha=0.0)
    model = parse_onnx(helper.make_model(helper.make_graph([node], "g", [], [])).SerializeToString())
    attribute = model.graph.node[0].attribute[0]
    assert attribute.HasField("f") and not attribute.HasField("i")


@pytest.mark.parametrize("keep", [0.1, 0.5, 0.99])
def test_a_truncated_file_is_named_as_such(tmp_path: Path, keep: float) -> None:
    values = np.arange(3000, dtype=np.float32)
    graph = helper.make_graph([], "g", [], [], [numpy_helper.from_array(values, "w")])
    data = helper.make_model(graph).SerializeToString()
    path = tmp_path / "m.onnx"
    path.write_bytes(data[: int(len(data) * keep)])
    with pytest.raises(InputError) as caught:
        parse_onnx_file(path)
    assert caught.value.code == "G1002"


def test_a_missing_file_and_a_foreign_file_are_input_errors(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot open"):
        parse_onnx_file(tmp_path / "none.onnx")
    (tmp_path / "text.onnx").write_text("hello, this is no model")
    with pytest.raises(InputError):
        parse_onnx_file(tmp_path / "text.onnx")
