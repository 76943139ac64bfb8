"""Attribute values of nodes, graphs and descriptors (`ge::AttrValue`).

Values are plain Python objects: bool, int, float, str (kind s), bytes (bt), DataType (dt), TensorDesc (td),
Weight (t), NamedAttrs (func), and tuples of these; a tuple of tuples is a list_list_int or list_list_float. A tuple
without items is a list of no kind in particular, unless it is an EmptyList.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from gecli.records import dataclass

Attr = Any


@dataclass(frozen=True, slots=True)
class NamedAttrs:
    """A function attribute: a name with attributes of its own."""

    name: str
    attrs: Mapping[str, Attr]


@dataclass(frozen=True, slots=True)
class RawAttr:
    """An attribute kind that gecli only carries through: its wire bytes (nested graphs, expressions)."""

    kind: str
    data: bytes


class EmptyList(tuple[Any, ...]):
    """A list without items that says of which kind they would be: a number (`val_type` of GE's ListValue), or
    "list_list_int" or "list_list_float". It equals only those of its kind. `empty_list` makes them.
    """

    kind: int | str

    def __eq__(self, other: object) -> bool:
        return isinstance(other, EmptyList) and self.kind == other.kind

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(self.kind)

    def __reduce__(self) -> tuple[Any, ...]:
        return empty_list, (self.kind,)

    def __repr__(self) -> str:
        return f"empty_list({self.kind!r})"


@lru_cache(maxsize=64)
def empty_list(kind: int | str) -> tuple[Any, ...]:
    """The list without items of a kind, one object for all that ask; `()` for 0, which is no kind."""
    if kind == 0:
        return ()
    found = EmptyList()
    found.kind = kind
    return found


# Attribute names with a meaning of their own. Source: GE's attribute definitions.
REF_VAR_SRC_VAR_NAME = "ref_var_src_var_name"  # marks a variable ref node, or an output stored into a variable
ASSIGN_VAR_NAME = "_assign_var_name"
INIT_VALUE = "_init_value"
COPY_FROM_VAR = "_copy_from_var_node"  # an fp16 twin: the variable that it begins as a copy of
COPIED_VALUE = "_copy_value"  # true: the copy was made before
SRC_VAR_NAME = "_src_var_name"  # an fp16 twin: also registered at that variable's address
VALUE = "value"
DATA_INDEX = "index"
PARENT_NODE_INDEX = "_parent_node_index"
ORIGINAL_OP_NAMES = "_datadump_original_op_names"
INPUT_IS_VAR = "INPUT_IS_VAR"
OUTPUT_IS_VAR = "OUTPUT_IS_VAR"
STREAM_LABEL = "_stream_label"
INSERTED_BY_GE = "_inserted_by_ge"
INNER_OFFSET = "_inner_offset"
REF_PORT_INDEX = "ref_port_index"
KEEP_DTYPE = "_keep_dtype"
SHA256_ATTR = "_gecli_sha256"  # on a FileConstant: the digest of its bytes, 64 hex digits

SINGLE_OP = "_single_op_type"  # of a graph that is one operator: its type
# Collectives that work in place. The names are those of GE's sources, of its metadata library and of older documents.
BROADCAST_TYPES = frozenset(("HcomBroadcast", "HorovodBroadcast", "hvdCallbackBroadcast", "HvdCallbackBroadcast"))
VARIABLE_TYPES = frozenset(("Variable", "VariableV2"))
CONST_TYPES = frozenset(("Const", "Constant"))
DATA_TYPES = frozenset(("Data", "RefData", "AippData", "AnnData"))
# Nodes whose output lives in variable memory when the graph is assigned.
VARIABLE_MEMORY_TYPES = frozenset(("Variable", "Constant", "FileConstant", "ConstPlaceHolder"))
