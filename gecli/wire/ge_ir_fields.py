"""The messages of MODEL_DEF under the names of GE's ge.proto, and how a `gecli.inspect/1` document shows their values.

The documents show everything that a file holds; what writes them and what reads them back share these tables.
"""

from __future__ import annotations

from dataclasses import field
from typing import Any

from gecli.records import dataclass

# Names of ListValue.val_type, with VT_LIST_ in front.
VAL_TYPES = ("NONE", "STRING", "INT", "FLOAT", "BOOL", "BYTES", "TENSOR_DESC", "TENSOR", "GRAPH", "NAMED_ATTRS",
             "DATA_TYPE")  # fmt: skip
DATA_OFFSET, DATA_LENGTH = "data_file_offset", "data_file_length"  # private fields of the walker
# How an attribute says what it is where its value does not: by the field of AttrDef, or of its list.
VALUE_TYPES = {"bt": "bytes", "func": "func", "td": "tensor_desc", "t": "tensor", "g": "graph",
               "list_list_int": "list_list_int", "list_list_float": "list_list_float", "dt": "data_type",
               "expression": "expression"}  # fmt: skip
LIST_TYPES = {"bt": "list_bytes", "td": "list_tensor_desc", "t": "list_tensor", "g": "list_graph",
              "na": "list_named_attrs", "dt": "list_data_type"}  # fmt: skip
# Strings that JSON has in the place of numbers; a text that reads like one of them says that it is text.
NOT_FINITE = frozenset(("nan", "inf", "-inf"))
TEXT_TYPE, TEXTS_TYPE = "string", "list_string"
# What a list without elements is, by its val_type; another number stands in the members of ListValue, under LIST_TYPE.
EMPTY_LIST_TYPES = {1: TEXTS_TYPE, 2: "list_int", 3: "list_float", 4: "list_bool", 5: "list_bytes",
                    6: "list_tensor_desc", 7: "list_tensor", 8: "list_graph", 9: "list_named_attrs",
                    10: "list_data_type"}  # fmt: skip
LIST_TYPE = "list"


@dataclass(slots=True)
class Field:
    """`kind` is string, bytes, int, bool, float, dtype, val_type, or message."""

    name: str
    kind: str
    repeated: bool = False
    message: Message | None = None
    is_map: bool = False
    always: bool = False  # member of a oneof: a default value on the wire counts


@dataclass(eq=False, slots=True)
class Message:
    """Fields by number."""

    name: str
    fields: dict[int, Field] = field(default_factory=dict)


Fields = dict[str, Any]


def _scalars(target: Message, kind: str, always: bool = False, **names: int) -> None:
    for name, number in names.items():
        target.fields[number] = Field(name.rstrip("_"), kind, always=always)


def _many(target: Message, kind: str, **names: int) -> None:
    for name, number in names.items():
        target.fields[number] = Field(name, kind, repeated=True)


SHAPE, DESC, TENSOR, NAMED = (
    Message("ShapeDef"),
    Message("TensorDescriptor"),
    Message("TensorDef"),
    Message("NamedAttrs"),
)
ATTR, LIST, OP, GRAPH = Message("AttrDef"), Message("ListValue"), Message("OpDef"), Message("GraphDef")
MODEL, INT_ROW, INT_ROWS = Message("ModelDef"), Message("ListInt"), Message("ListListInt")
FLOAT_ROW, FLOAT_ROWS = Message("ListFloat"), Message("ListListFloat")
GROUPS = Message("AttrGroups")


def _attr_map(name: str = "attr") -> Field:
    return Field(name, "message", message=ATTR, is_map=True)


def _one(name: str, message: Message, *, always: bool = False) -> Field:
    return Field(name, "message", message=message, always=always)


def _each(name: str, message: Message) -> Field:
    return Field(name, "message", repeated=True, message=message)


_many(SHAPE, "int", dim=1)
_scalars(DESC, "string", name=1, layout=4, device_type=14, cmps_tab=20)
_scalars(DESC, "dtype", dtype=2)
_scalars(DESC, "bool", has_out_attr=9, reuse_input=12, output_tensor=13, input_tensor=15)
_scalars(DESC, "int", size=10, weight_size=11, real_dim_cnt=16, reuse_input_index=17, data_offset=18, cmps_size=19,
         cmps_tab_offset=21)  # fmt: skip
DESC.fields |= {3: _one("shape", SHAPE), 5: _attr_map(), 6: _one("attr_groups", GROUPS)}
_scalars(TENSOR, "bytes", data=2)
TENSOR.fields |= {1: _one("desc", DESC), 15001: Field(DATA_OFFSET, "int"), 15002: Field(DATA_LENGTH, "int")}
_scalars(NAMED, "string", name=1)
NAMED.fields[2] = _attr_map()
_many(INT_ROW, "int", list_i=1)
INT_ROWS.fields[1] = _each("list_list_i", INT_ROW)
_many(FLOAT_ROW, "float", list_f=1)
FLOAT_ROWS.fields[1] = _each("list_list_f", FLOAT_ROW)
_many(LIST, "bytes", s=2, bt=7)
_many(LIST, "int", i=3, dt=12)
_many(LIST, "float", f=4)
_many(LIST, "bool", b=5)
_scalars(LIST, "val_type", val_type=20)
LIST.fields |= {8: _each("td", DESC), 9: _each("t", TENSOR), 10: _each("g", GRAPH), 11: _each("na", NAMED)}
_scalars(ATTR, "bytes", always=True, s=2, bt=7, expression=17)
_scalars(ATTR, "int", always=True, i=3, dt=15)
_scalars(ATTR, "float", always=True, f=4)
_scalars(ATTR, "bool", always=True, b=5)
ATTR.fields |= {
    1: _one("list", LIST, always=True), 10: _one("func", NAMED, always=True), 11: _one("td", DESC, always=True),
    12: _one("t", TENSOR, always=True), 13: _one("g", GRAPH, always=True),
    14: _one("list_list_int", INT_ROWS, always=True), 16: _one("list_list_float", FLOAT_ROWS, always=True),
}  # fmt: skip
_scalars(OP, "string", name=1, type=2)
_many(OP, "string", input=5, input_name=23, src_name=24, dst_name=26, subgraph_name=35)
_scalars(OP, "bool", has_out_attr=20)
_scalars(OP, "int", id=21, stream_id=22)
_many(OP, "int", src_index=25, dst_index=27, input_i=28, output_i=29, workspace=30, workspace_bytes=31)
_many(OP, "bool", is_input_const=32)
OP.fields |= {10: _attr_map(), 11: _one("attr_groups", GROUPS), 33: _each("input_desc", DESC),
              34: _each("output_desc", DESC)}  # fmt: skip
_scalars(GRAPH, "string", name=1)
_many(GRAPH, "string", input=4, output=5)
GRAPH.fields |= {6: _each("op", OP), 11: _attr_map(), 12: _one("attr_groups", GROUPS)}
_scalars(MODEL, "string", name=1, custom_version=3)
_scalars(MODEL, "int", version=2)
MODEL.fields |= {7: _each("graph", GRAPH), 11: _attr_map(), 12: _one("attr_groups", GROUPS)}

# AttrGroups is absent from every known file; its parts are shown as bytes.
_many(GROUPS, "bytes", other_group_def=1, attr_group_def=2)
