"""A list without elements keeps the kind that it names: in memory, in the file that is written, in documents."""

from __future__ import annotations

import copy
import json
import pickle
import struct
import sys
from pathlib import Path
from typing import Any

import pytest

from gecli.artifacts.om_file import read_om
from gecli.artifacts.om_image_of import image_of
from gecli.artifacts.om_writer import write_om
from gecli.artifacts.partition_table import PartitionType
from gecli.compiler.api import compile_model
from gecli.ir.attributes import EmptyList, empty_list
from gecli.loading import load_graph, save_graph
from gecli.pb import ge_ir_pb2 as ge_ir
from gecli.report.inspect.json_text import json_chunks
from gecli.report.inspect.model_document import model_view
from gecli.report.inspect.stored_data import base64_data
from gecli.report.inspect.subject import open_subject
from gecli.wire.attributes import AttrReader, encode_attr
from gecli.wire.model_decoder import decode_model
from gecli.wire.model_encoder import encode_model

from . import spec_om as spec

VAL_TYPES = [*range(11), 11, 300, -1]  # GE's and some that it does not have
ROWS = {14: "list_list_int", 16: "list_list_float"}
EMPTY = {f"val_type {number}": spec.attr_list(b"", number) for number in VAL_TYPES}
EMPTY |= {f"list of {number}": spec.blob(number, b"") for number in ROWS}
EMPTY |= {"row of integers": spec.attr_rows([[]]), "row of floats": spec.blob(16, spec.blob(1, b""))}
EMPTY["rows of floats"] = spec.blob(16, spec.blob(1, b"") + spec.blob(1, spec.blob(1, struct.pack("<f", 0.5))))


def model_of(attrs: dict[str, bytes]) -> bytes:
    """A model that has the attributes in every place: its own, those of graph, node, descriptor and function."""
    names = {f"_{key}": value for key, value in attrs.items()}
    desc = spec.descriptor(1, [2], "ND", names)
    inside = {**names, "_f": spec.attr_func("f", names), "_t": spec.attr_t(spec.tensor(desc, bytes(8)))}
    node = spec.operator("x", "Data", 0, [""], {**inside, "index": spec.attr_i(0)}, [desc], [desc])
    out = spec.operator("out", "NetOutput", 1, ["x:0"], {}, [desc], [], sources=[("x", 0)])
    return spec.model("m", [spec.graph("g", [node, out], attrs=names, inputs=["x:0"])], names)


def held(data: bytes) -> dict[str, list[bytes]]:
    """The AttrDef bytes of each attribute, by name and place; protobuf is the judge."""
    model = ge_ir.ModelDef.FromString(data)
    graph = ge_ir.GraphDef.FromString(model.graph[0])
    op = graph.op[0]
    output = ge_ir.TensorDescriptor.FromString(op.output_desc[0])
    function = ge_ir.AttrDef.FromString(op.attr["_f"].SerializeToString()).func
    tensor = ge_ir.AttrDef.FromString(op.attr["_t"].SerializeToString()).t.desc
    found: dict[str, list[bytes]] = {}
    for attrs in (model.attr, graph.attr, op.attr, output.attr, function.attr, tensor.attr):
        for key in attrs:
            found.setdefault(key, []).append(attrs[key].SerializeToString(deterministic=True))
    return {key: found[key] for key in sorted(found) if key[1:] in EMPTY}


def model_def(path: Path) -> bytes:
    om = read_om(path)
    part = om.root.partition(PartitionType.MODEL_DEF)
    assert part is not None
    return om.read(part)


def document_of(path: Path) -> str:
    shown = model_view(open_subject(str(path)), base64_data)
    return "".join(json_chunks({**shown.document, "schema": "gecli.inspect/1"}))


def file_of(tmp_path: Path) -> Path:
    path = tmp_path / "foreign.om"
    path.write_bytes(spec.om_wide([(0, model_of(EMPTY)), (1, bytes(1024)), (2, spec.task_info([], 0, 1024))]))
    return path


@pytest.mark.parametrize("name", EMPTY)
def test_an_empty_list_is_written_as_it_was_read(name: str) -> None:
    value = AttrReader().value(EMPTY[name])
    assert encode_attr(value) == EMPTY[name]
    assert encode_attr(AttrReader().value(encode_attr(value))) == EMPTY[name]


def test_a_foreign_om_that_is_written_again_has_the_same_empty_lists(tmp_path: Path) -> None:
    again = tmp_path / "again.om"
    write_om(again, image_of(read_om(file_of(tmp_path))))
    found = held(model_def(again))
    assert found == held(model_of(EMPTY)) == {f"_{name}": [data] * 6 for name, data in sorted(EMPTY.items())}


def test_a_document_brings_every_empty_list_back(tmp_path: Path) -> None:
    document, again = tmp_path / "m.json", tmp_path / "again.om"
    document.write_text(document_of(file_of(tmp_path)))
    compile_model(document, again)
    found = held(model_def(again))
    assert all(EMPTY[name[1:]] == data for name, copies in found.items() for data in copies)
    assert all(len(copies) >= 4 for copies in found.values()) and len(found) == len(EMPTY)


def test_a_document_names_the_kind_of_an_empty_list(tmp_path: Path) -> None:
    attrs = json.loads(document_of(file_of(tmp_path)))["models"][0]["attrs"]
    assert attrs["_val_type 0"] == []
    assert attrs["_val_type 2"] == {"type": "list_int", "value": []}
    assert attrs["_val_type 7"] == {"type": "list_tensor", "value": []}
    assert attrs["_val_type 300"] == {"type": "list", "value": {"val_type": 300}}
    assert attrs["_list of 14"] == {"type": "list_list_int", "value": {}}


@pytest.mark.parametrize("kind", [*range(1, 12), *ROWS.values()])
def test_a_json_graph_brings_an_empty_list_back(kind: int | str, tmp_path: Path) -> None:
    data = {"dtype": "DT_FLOAT", "shape": [2]}
    path = tmp_path / "g.json"
    nodes = [
        {"id": "x", "type": "Data", "outputs": [data]},
        {"id": "y", "type": "Relu", "inputs": [data], "outputs": [data]},
    ]
    links = [{"source": "x", "target": "y", "src_out": 0, "dst_in": 0}]
    path.write_text(
        json.dumps({"directed": True, "multigraph": True, "nodes": nodes, "links": links, "outputs": ["y"]})
    )
    graph = load_graph(path).graph
    graph.node("y").attrs["a"] = empty_list(kind)
    save_graph(graph, str(path))
    again = load_graph(path).graph.node("y").attrs["a"]
    assert encode_attr(again) == encode_attr(empty_list(kind))


def test_values_of_compressed_names_become_empty_lists_of_strings() -> None:
    names = {
        "om_compress_version": spec.attr_i(1),
        "attr_name_enum": spec.attr_strings("texts", "plain"),
        "attr_value_enum": spec.attr_strings("A"),
        "attrs_use_string_value": spec.attr_bools(True, False),
    }
    attrs = {"\0\1": spec.attr_list(b"", 2), "\0\2": spec.attr_list(b"", 2)}
    node = spec.operator("x", "Data", 0, [""], attrs, [], [])
    model = decode_model(spec.model("m", [spec.graph("g", [node])], names))
    assert model.root.nodes[0].attrs == {"texts": empty_list(1), "plain": empty_list(2)}


def test_kinds_differ_and_each_is_there_once() -> None:
    assert empty_list(2) is AttrReader().value(EMPTY["val_type 2"]) is empty_list(2)
    assert empty_list(2) != empty_list(3) and empty_list(2) != () and empty_list(0) == ()
    assert isinstance(empty_list(2), tuple) and not empty_list(2) and tuple(empty_list(2)) == ()
    for value in (empty_list(2), empty_list("list_list_int")):
        for other in (copy.deepcopy(value), pickle.loads(pickle.dumps(value))):
            assert other is value
    assert "list_list_int" in repr(empty_list("list_list_int"))


def test_many_empty_lists_cost_no_memory() -> None:
    reader = AttrReader()
    left = reader.budget.left
    values: list[Any] = [reader.decode(ge_ir.AttrDef.FromString(EMPTY["val_type 9"])) for _ in range(1000)]
    assert len({id(value) for value in values}) == 1 and reader.budget.left == left
    own = [reader.decode(ge_ir.AttrDef.FromString(spec.attr_list(b"", 1000 + k))) for k in range(1000)]
    spent = left - reader.budget.left
    assert all(isinstance(value, EmptyList) and value.kind == 1000 + k for k, value in enumerate(own))
    assert spent >= sum(sys.getsizeof(value) + sys.getsizeof(value.__dict__) for value in own)


def test_values_that_differ_in_their_kind_alone_are_not_mixed_up() -> None:
    data = model_of(EMPTY)
    nodes = [spec.operator(f"n{k}", "A", k, [], {"a": value}, [], []) for k, value in enumerate(EMPTY.values())]
    again = encode_model(decode_model(spec.model("m", [spec.graph("g", nodes)]))).data()
    ops = ge_ir.GraphDef.FromString(ge_ir.ModelDef.FromString(again).graph[0]).op
    assert [op.attr["a"].SerializeToString() for op in ops] == list(EMPTY.values())
    assert (
        encode_model(decode_model(encode_model(decode_model(data)).data())).data()
        == encode_model(decode_model(data)).data()
    )
