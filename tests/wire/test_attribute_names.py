"""Compressed attribute names are undone, also when two dictionaries were applied."""

from __future__ import annotations

from typing import Any

import pytest

from gecli.ir.dtype import DataType
from gecli.ir.op_desc import OpDesc
from gecli.ir.tensor_desc import TensorDesc
from gecli.wire.attribute_names import AttrNames, coded_key, key_index
from gecli.wire.model_decoder import decode_model
from gecli.wire.model_encoder import encode_model
from gecli.wire.model_record import GraphRecord, ModelRecord


@pytest.mark.parametrize(
    ("index", "key"), [(0, "\0\1"), (126, "\0\x7f"), (127, "\0\1\2"), (128, "\0\2\2"), (127 * 127, "\0\1\1\2")]
)
def test_keys_are_coded_in_base_127(index: int, key: str) -> None:
    assert coded_key(index) == key
    assert key_index(key) == index


def compressed(attrs: dict[str, Any], names: AttrNames, desc: dict[str, Any] | None = None) -> bytes:
    model_attrs = {
        "om_compress_version": 1,
        "attr_name_enum": names.names,
        "attr_value_enum": names.values,
        "attrs_use_string_value": names.use_string_value,
    }
    outputs = [TensorDesc(DataType.FLOAT, (2,), attrs=desc or {})]
    node = OpDesc("n", "Any", attrs=attrs, output_descs=outputs)
    return encode_model(ModelRecord("m", [GraphRecord("g", [node])], model_attrs)).data()


NAMES = AttrNames(("mode", "pads", "kinds"), ("SAME", "VALID"), (True, False, True))


def test_names_and_string_values_come_back() -> None:
    data = compressed({"\0\1": 1, "\0\2": (1, 1), "\0\3": (0, 1), "plain": 7}, NAMES, {"\0\1": 0})
    model = decode_model(data)
    node = model.root.nodes[0]
    assert node.attrs == {"mode": "VALID", "pads": (1, 1), "kinds": ("SAME", "VALID"), "plain": 7}
    assert node.output_descs[0].attrs == {"mode": "SAME"}
    assert not model.problems and model.compressed_names == 3


@pytest.mark.parametrize("attrs", [{"\0\4": 1}, {"\0\1": 9}, {"\0": 1}, {"\0\1": -1}, {"\0\1\1\1\1\1\1\1": 1}])
def test_an_index_out_of_range_keeps_the_raw_key_and_is_counted(attrs: dict[str, Any]) -> None:
    model = decode_model(compressed(attrs, NAMES))
    assert list(model.root.nodes[0].attrs) == list(attrs)
    assert model.unreadable_names == 1
    assert [problem.kind for problem in model.problems] == ["bad-attr-enum"]


def test_a_value_of_another_kind_is_kept() -> None:
    assert decode_model(compressed({"\0\1": 2.5}, NAMES)).root.nodes[0].attrs == {"mode": 2.5}


def test_a_submodel_compressed_twice_is_read_with_both_dictionaries() -> None:
    root = AttrNames(("value", "mode"), ("a", "b"), (False, True))
    own = AttrNames((coded_key(1), "literal"), (), (False, False))
    data = compressed({coded_key(0): 1, coded_key(1): 3}, own)
    assert decode_model(data, root_names=root).root.nodes[0].attrs == {"mode": "b", "literal": 3}


def test_a_submodel_without_a_dictionary_uses_the_roots() -> None:
    node = OpDesc("n", "Any", attrs={coded_key(2): (1, 0)})
    data = encode_model(ModelRecord("m", [GraphRecord("g", [node])])).data()
    assert decode_model(data, root_names=NAMES).root.nodes[0].attrs == {"kinds": ("VALID", "SAME")}


def test_an_unknown_compression_is_left_alone_with_a_warning() -> None:
    node = OpDesc("n", "Any", attrs={coded_key(0): 1})
    data = encode_model(ModelRecord("m", [GraphRecord("g", [node])], {"om_compress_version": 2})).data()
    model = decode_model(data)
    assert list(model.root.nodes[0].attrs) == [coded_key(0)]
    assert [problem.severity for problem in model.problems] == ["warning"]
