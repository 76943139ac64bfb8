"""A value of an attribute map that comes in parts is the message that protobuf makes of them."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from hypothesis import given, settings
from hypothesis import strategies as st

from gecli.errors import InputError
from gecli.ir.weight import FileSlice, Weight
from gecli.pb import ge_ir_pb2 as ge_ir
from gecli.report.inspect.model_fields import ModelFields
from gecli.wire.attributes import AttrReader, encode_attr
from gecli.wire.byte_source import FileSource
from gecli.wire.message_reader import WHOLE_BYTES
from gecli.wire.model_decoder import decode_model
from gecli.wire.model_edit import Offsets, edited_model_def
from gecli.wire.walker import LARGE_BYTES
from gecli.wire.writer import bytes_field, integer_field


@cache
def judge(name: str) -> Any:
    """A message as in GE's ge.proto, where the values of every attribute map are AttrDef."""
    file = descriptor_pb2.FileDescriptorProto()
    ge_ir.ModelDef.DESCRIPTOR.file.CopyToProto(file)
    for message in file.message_type:
        for entry in message.nested_type:
            entry.field[1].type_name = ".gecli.pb.ge_ir.AttrDef"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"gecli.pb.ge_ir.{name}"))


def entry(number: int, key: str, parts: list[bytes]) -> bytes:
    return bytes_field(number, bytes_field(1, key.encode()) + b"".join(bytes_field(2, part) for part in parts))


def list_of(content: bytes, val_type: int = 0) -> bytes:
    return bytes_field(1, content + (integer_field(20, val_type) if val_type else b""))


DESC = bytes_field(5, bytes_field(1, b"a") + bytes_field(2, integer_field(3, 1)))
PARTS = st.sampled_from([
    b"", integer_field(3, 5), integer_field(3, 0), integer_field(5, 1), integer_field(15, 3),
    bytes_field(2, b"text"), bytes_field(2, b""), bytes_field(7, b"bytes"), bytes_field(17, b"x"),
    list_of(bytes_field(3, b"\1\2"), 2), list_of(integer_field(3, 7)), list_of(bytes_field(2, b"s"), 1),
    list_of(b"", 4),
    bytes_field(10, bytes_field(1, b"f") + entry(2, "k", [integer_field(3, 1), bytes_field(2, b"later")])),
    bytes_field(10, entry(2, "k", [list_of(integer_field(3, 1))]) + entry(2, "j", [integer_field(3, 1)])),
    bytes_field(11, integer_field(2, 1) + bytes_field(3, bytes_field(1, b"\2\3")) + DESC),
    bytes_field(11, bytes_field(4, b"NCHW") + bytes_field(3, bytes_field(1, b"\4"))),
    bytes_field(12, bytes_field(1, integer_field(2, 4) + bytes_field(3, bytes_field(1, b"\2")))),
    bytes_field(12, bytes_field(2, b"ab") + bytes_field(1, DESC)),
    bytes_field(14, bytes_field(1, bytes_field(1, b"\1"))), bytes_field(14, b""),
])  # fmt: skip
VALUES = st.lists(st.tuples(st.sampled_from(["_p", "_q"]), st.lists(PARTS, max_size=4)), min_size=1, max_size=3)
FILLER = bytes_field(99, bytes(WHOLE_BYTES))


def in_model(entries: Callable[[int], bytes]) -> tuple[bytes, Any]:
    data = entries(11)
    return data, judge("ModelDef").FromString(data).attr


def in_graph(entries: Callable[[int], bytes]) -> tuple[bytes, Any]:
    data = entries(11)
    return bytes_field(7, data), judge("GraphDef").FromString(data).attr


def in_node(entries: Callable[[int], bytes], filler: bytes = b"") -> tuple[bytes, Any]:
    data = bytes_field(1, b"n") + entries(10)
    return bytes_field(7, bytes_field(6, data + filler)), judge("OpDef").FromString(data).attr


def in_large_node(entries: Callable[[int], bytes]) -> tuple[bytes, Any]:
    return in_node(entries, FILLER)


def in_desc(entries: Callable[[int], bytes]) -> tuple[bytes, Any]:
    data = entries(5)
    return bytes_field(7, bytes_field(6, bytes_field(34, data))), judge("TensorDescriptor").FromString(data).attr


def attrs_of(model: Any, place: Any) -> dict[str, Any]:
    """What the reader of the graph says of the attributes in a place."""
    if place is in_model:
        return dict(model.attrs)
    if place is in_graph:
        return dict(model.root.attrs)
    node = model.root.nodes[0]
    return dict(node.output_descs[0].attrs if place is in_desc else node.attrs)


@pytest.mark.parametrize("place", [in_model, in_graph, in_node, in_large_node, in_desc])
@settings(max_examples=60, deadline=None)
@given(VALUES)
def test_the_reader_agrees_with_protobuf(place: Any, values: list[tuple[str, list[bytes]]]) -> None:
    data, expected = place(lambda number: b"".join(entry(number, key, parts) for key, parts in values))
    found = attrs_of(decode_model(data), place)
    assert set(found) == set(expected)
    for key, value in found.items():
        judged = AttrReader().value(expected[key].SerializeToString())
        assert encode_attr(value) == encode_attr(judged)


@settings(max_examples=100, deadline=None)
@given(VALUES)
def test_the_documents_agree_with_protobuf(values: list[tuple[str, list[bytes]]]) -> None:
    data, expected = in_model(lambda number: b"".join(entry(number, key, parts) for key, parts in values))
    plain = b"".join(entry(11, key, [expected[key].SerializeToString(deterministic=True)]) for key in expected)
    found, judged = ModelFields(data, len(data)).attrs, ModelFields(plain, len(plain)).attrs
    assert {key: found[key] for key in sorted(found)} == {key: judged[key] for key in sorted(judged)}


@settings(max_examples=60, deadline=None)
@given(VALUES)
def test_an_edited_model_keeps_values_in_parts(values: list[tuple[str, list[bytes]]]) -> None:
    data, expected = in_node(lambda number: b"".join(entry(number, key, parts) for key, parts in values))
    edited = edited_model_def(data, {(0, "n"): Offsets((1,), (2,))}, {}, bare_locations=False)
    op = judge("OpDef").FromString(ge_ir.GraphDef.FromString(ge_ir.ModelDef.FromString(edited).graph[0]).op[0]
                                   .SerializeToString())  # fmt: skip
    assert list(op.input_i) == [1] and dict(op.attr) == dict(expected)


@pytest.mark.parametrize("place", [in_model, in_graph, in_node, in_desc])
def test_large_parts_stay_in_the_file(place: Any, tmp_path: Path) -> None:
    """Both parts are too large to be parsed as they are; the data of the later tensor counts."""
    tensors = [bytes_field(12, bytes_field(2, bytes([k]) * (WHOLE_BYTES + LARGE_BYTES))) for k in (1, 2)]
    path = tmp_path / "model"
    path.write_bytes(place(lambda number: entry(number, "_p", tensors))[0])
    with FileSource(str(path), 0, path.stat().st_size) as source:
        model = decode_model(source, file_size=path.stat().st_size)
    weight = attrs_of(model, place)["_p"]
    assert isinstance(weight, Weight) and isinstance(weight.source, FileSlice)
    assert set(b"".join(weight.chunks())) == {2} and weight.source.nbytes == WHOLE_BYTES + LARGE_BYTES


@pytest.mark.parametrize("place", [in_model, in_node])
def test_a_value_of_a_million_parts_is_refused_as_too_many_objects(place: Any, tmp_path: Path) -> None:
    path = tmp_path / "model"
    number = 11 if place is in_model else 10
    many = bytes_field(number, bytes_field(1, b"_p") + bytes_field(2, list_of(integer_field(3, 1))) * 300_000)
    path.write_bytes(place(lambda _: many)[0])
    with FileSource(str(path), 0, path.stat().st_size) as source, pytest.raises(InputError, match="bytes of memory"):
        decode_model(source)
