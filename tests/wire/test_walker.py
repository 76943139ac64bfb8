"""The walker leaves large fields in the file and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gecli.pb import onnx_pb2
from gecli.wire.byte_source import FileSource, MemorySource
from gecli.wire.onnx import MODEL
from gecli.wire.walker import LARGE_BYTES, Shape, WireError, strip_large_fields
from gecli.wire.writer import bytes_field, varint

LEAF = Shape(large={9: (15001, 15002)})
TREE = Shape(large={9: (15001, 15002)}, children={5: LEAF})


def model_with(*sizes: int) -> bytes:
    model = onnx_pb2.ModelProto(ir_version=9)
    for k, size in enumerate(sizes):
        model.graph.initializer.add(name=f"w{k}", data_type=2, dims=[size], raw_data=bytes([k + 1]) * size)
        model.graph.node.add(op_type="Relu", name=f"n{k}", input=[f"w{k}"])
    return model.SerializeToString()


def test_large_data_become_an_offset_and_a_length_in_the_file(tmp_path: Path) -> None:
    data = model_with(LARGE_BYTES, 3, 200_000)
    path = tmp_path / "m.onnx"
    path.write_bytes(b"junk" + data)
    with FileSource(str(path), 4) as source:
        small = strip_large_fields(source, MODEL)
    assert len(small) < 400
    model = onnx_pb2.ModelProto.FromString(small)
    first, second, third = model.graph.initializer
    assert second.raw_data == b"\2\2\2" and not second.raw_file_offset
    for tensor, byte, size in ((first, 1, LARGE_BYTES), (third, 3, 200_000)):
        offset = tensor.raw_file_offset[0]
        assert path.read_bytes()[offset : offset + size] == bytes([byte]) * size
        assert tensor.raw_file_length[0] == size and not tensor.HasField("raw_data")
    assert [node.name for node in model.graph.node] == ["n0", "n1", "n2"]


def test_a_message_without_large_fields_is_returned_as_it_is() -> None:
    data = model_with(1, 2)
    assert strip_large_fields(MemorySource(data), MODEL) == data


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from([0, 1, 127, 128, 4095, 4096, 5000, 65_530, 65_536, 140_000]), max_size=6))
def test_putting_the_large_fields_back_gives_the_message(sizes: list[int]) -> None:
    data = model_with(*sizes)
    model = onnx_pb2.ModelProto.FromString(strip_large_fields(MemorySource(data), MODEL))
    for tensor in model.graph.initializer:
        if tensor.raw_file_offset:
            offset, length = tensor.raw_file_offset[0], tensor.raw_file_length[0]
            tensor.raw_data = data[offset : offset + length]
            tensor.ClearField("raw_file_offset")
            tensor.ClearField("raw_file_length")
    assert model.SerializeToString() == data


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"\x4a", "ends inside a field"),
        (b"\x4a\x05abc", "outside its message"),
        (b"\x4a\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "varint"),
        (b"\x0b", "wire type 3"),
        (b"\x0f", "wire type 7"),
        (b"\x09\x00", "outside its message"),
        (b"\x08\x01" + bytes(1 << 20), "a field has the number 0"),
        (bytes_field(5, b"\x4a\x90\x50" + bytes(LARGE_BYTES)), "outside its message"),
    ],
)
def test_broken_bytes_are_refused_with_a_reason(data: bytes, reason: str) -> None:
    with pytest.raises(WireError, match=reason):
        strip_large_fields(MemorySource(data), TREE)


def test_endless_nesting_is_refused() -> None:
    endless = Shape()
    endless.children[5] = endless
    data = bytes(LARGE_BYTES)
    data = bytes_field(9, data)
    for _ in range(100):
        data = bytes_field(5, data)
    with pytest.raises(WireError, match="nested deeper"):
        strip_large_fields(MemorySource(data), endless)


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=64), st.integers(0, 200))
def test_any_bytes_give_a_message_or_a_wire_error(noise: bytes, cut: int) -> None:
    data = bytearray(model_with(4096, 10))
    data[cut : cut + len(noise)] = noise
    try:
        strip_large_fields(MemorySource(bytes(data)), MODEL)
    except WireError as error:
        assert 0 <= error.offset <= len(data) + 10


def test_varints_are_those_of_protobuf() -> None:
    from google.protobuf.internal.encoder import _VarintBytes

    for value in (0, 1, 127, 128, 300, 1 << 31, (1 << 63) - 1, (1 << 64) - 1):
        assert varint(value) == _VarintBytes(value)
