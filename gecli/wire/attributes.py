"""`AttrDef` messages <-> attribute values (GE: ge.proto.AttrDef)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import field
from typing import Any

from google.protobuf.message import DecodeError

from gecli.errors import Diagnostic
from gecli.ir.attributes import EmptyList, NamedAttrs, RawAttr, empty_list
from gecli.ir.dtype import DataType
from gecli.ir.format import Format
from gecli.ir.tensor_desc import TensorDesc
from gecli.ir.weight import Absent, FileSlice, Inline, Source, Weight
from gecli.pb import ge_ir_pb2 as ge_ir
from gecli.records import dataclass
from gecli.wire.attribute_names import AttrNames
from gecli.wire.memory_budget import (
    DESC_COST,
    DICT_COST,
    DICT_ENTRY_COST,
    EMPTY_LIST_COST,
    EMPTY_TUPLE_COST,
    FUNCTION_COST,
    NUMBER_COST,
    TEXT_COST,
    WEIGHT_COST,
    MemoryBudget,
)
from gecli.wire.om_faults import om_problem
from gecli.wire.tensor_desc import Message, desc_of, fill_desc

MAX_NESTING = 64  # functions, descriptors and tensors inside attributes
MEMO_BYTES = 96  # larger attributes are rarely equal
MEMO_ENTRIES = 1 << 13  # of each memo; models whose nodes are all different must not be held twice
MAX_SIDES_BYTES = 2 << 20  # of the encoded descriptors that are remembered
MAX_PROBLEMS = 1000  # of one model; a damaged one may have a problem at every node
_PROBLEM_COST = 1000  # and its text, which is there as message and inside the fields
MERGED_OFFSET = "merged_offset"  # HiAI: place of a constant in WEIGHTS_DATA

# val_type numbers of ListValue, with the fields they name. Order: the search order when val_type does not help.
_LIST_FIELDS = ("s", "i", "f", "b", "bt", "td", "t", "g", "na", "dt")
_FIELD_OF_VAL_TYPE = {1: "s", 2: "i", 3: "f", 4: "b", 5: "bt", 6: "td", 7: "t", 8: "g", 9: "na", 10: "dt"}
_NO_FLOATS = empty_list(3)  # a row of a list_list_float


# ---------------------------------------------------------------- writing


def encode_attr(value: Any) -> bytes:
    """The AttrDef bytes of one attribute value. Weights are written with their data inside."""
    message = ge_ir.AttrDef()
    fill_attr(message, value)
    data: bytes = message.SerializeToString(deterministic=True)
    return data


def fill_attr(message: Message, value: Any) -> None:
    """Write an attribute value into an AttrDef. Raises TypeError for kinds that GE does not have."""
    if isinstance(value, str):
        message.s = text_bytes(value)
    elif isinstance(value, bool):
        message.b = value
    elif isinstance(value, DataType):
        message.dt = int(value)
    elif isinstance(value, Format):
        message.s = value.name.encode()
    elif isinstance(value, int):
        message.i = value
    elif isinstance(value, float):
        message.f = value
    elif isinstance(value, bytes):
        message.bt = value
    elif isinstance(value, (tuple, list)):
        _fill_list(message, value)
    elif isinstance(value, RawAttr):
        message.ParseFromString(value.data)
    elif isinstance(value, TensorDesc):
        fill_desc(message.td, value, fill_attr)
        message.td.SetInParent()
    elif isinstance(value, Weight):
        fill_tensor(message.t, value)
    elif isinstance(value, NamedAttrs):
        _fill_named(message.func, value)
    else:
        raise TypeError(f"an attribute cannot hold a {type(value).__name__}")


def fill_tensor(message: Message, weight: Weight) -> None:
    """Write a tensor with its data inside."""
    fill_desc(message.desc, weight.desc, fill_attr)
    message.data = b"".join(weight.chunks())


def _fill_named(message: Message, value: NamedAttrs) -> None:
    message.SetInParent()
    message.name = value.name
    for key, item in value.attrs.items():
        fill_attr(message.attr[key], item)


def _fill_list(message: Message, values: Any) -> None:
    if isinstance(values, EmptyList):
        if isinstance(values.kind, str):
            getattr(message, values.kind).SetInParent()
        else:
            message.list.val_type = values.kind
        return
    if values and isinstance(values[0], (tuple, list)):
        _fill_rows(message, values)
        return
    target = message.list
    target.SetInParent()
    if not values:
        return
    first = values[0]
    if isinstance(first, str):
        target.val_type = 1
        target.s.extend(map(text_bytes, values))
    elif isinstance(first, bool):
        target.val_type = 4
        target.b.extend(values)
    elif isinstance(first, DataType):
        target.val_type = 10
        target.dt.extend(map(int, values))
    elif isinstance(first, Format):
        target.val_type = 1
        target.s.extend(value.name.encode() for value in values)
    elif isinstance(first, int) and all(isinstance(value, int) for value in values):
        target.val_type = 2
        target.i.extend(values)
    elif isinstance(first, (int, float)):
        target.val_type = 3
        target.f.extend(values)
    else:
        _fill_objects(target, values)


def _fill_objects(target: Message, values: Any) -> None:
    first = values[0]
    if isinstance(first, bytes):
        target.val_type = 5
        target.bt.extend(values)
    elif isinstance(first, TensorDesc):
        target.val_type = 6
        for value in values:
            fill_desc(target.td.add(), value, fill_attr)
    elif isinstance(first, Weight):
        target.val_type = 7
        for value in values:
            fill_tensor(target.t.add(), value)
    elif isinstance(first, NamedAttrs):
        target.val_type = 9
        for value in values:
            _fill_named(target.na.add(), value)
    else:
        raise TypeError(f"a list attribute cannot hold a {type(first).__name__}")


def _fill_rows(message: Message, rows: Any) -> None:
    if any(row == _NO_FLOATS or any(isinstance(item, float) for item in row) for row in rows):
        message.list_list_float.SetInParent()
        for row in rows:
            message.list_list_float.list_list_f.add().list_f.extend(row)
        return
    message.list_list_int.SetInParent()
    for row in rows:
        message.list_list_int.list_list_i.add().list_i.extend(row)


def text_bytes(text: str) -> bytes:
    """UTF-8, with bytes that were no text when read put back as they were."""
    return text.encode("utf-8", "surrogateescape")


# ---------------------------------------------------------------- reading


@dataclass(frozen=True, slots=True)
class WeightArea:
    """Where WEIGHTS_DATA lies: a range of a file."""

    path: str
    offset_bytes: int
    size_bytes: int


@dataclass(slots=True)
class AttrReader:
    """Decodes the attributes of one model: knows its file, its weights and its compressed names.

    What is wrong but does not hinder reading is collected in `problems`. The constants of a model without container
    lie in the WEIGHTS_DATA of a file that is not here: they are counted in `outside_count` and `outside_bytes`.
    `nested_graphs` counts the attributes that hold graphs; equal ones may count once.
    """

    path: str | None = None
    file_size: int = 0
    weights: WeightArea | None = None
    in_container: bool = True
    budget: MemoryBudget = field(default_factory=MemoryBudget.unlimited)
    names: tuple[AttrNames, ...] = ()
    problems: list[Diagnostic] = field(default_factory=list)
    where: str = ""
    offset: int = 0
    unreadable_names: int = 0
    outside_count: int = 0
    outside_bytes: int = 0
    nested_graphs: int = 0
    depth: int = 0
    _values: dict[bytes, Any] = field(default_factory=dict)
    _named: dict[tuple[str, bytes], tuple[str, Any]] = field(default_factory=dict)
    _descs: dict[bytes, TensorDesc] = field(default_factory=dict)
    _sides: dict[tuple[bytes, ...], tuple[TensorDesc, ...]] = field(default_factory=dict)
    _sides_bytes: int = 0
    _keys: dict[str, str] = field(default_factory=dict)

    def problem(self, kind: str, message: str, severity: str = "error", **fields: Any) -> None:
        """Note what is wrong at the node or attribute at hand, at `where` and `offset`.

        Beyond MAX_PROBLEMS only the first error is kept, because it makes the model unusable.
        """
        if len(self.problems) >= MAX_PROBLEMS:
            if severity != "error" or any(problem.severity == "error" for problem in self.problems):
                return
        elif len(self.problems) == MAX_PROBLEMS - 1:
            message += f"; this is problem {MAX_PROBLEMS}, further ones are not listed"
        self.budget.spend(_PROBLEM_COST + 4 * len(message))
        fields = {"where": self.where, **fields}
        self.problems.append(om_problem(kind, self.path, message, self.offset, severity=severity, **fields))

    def value(self, data: bytes) -> Any:
        """The value of AttrDef bytes. Raises DecodeError."""
        if len(data) > MEMO_BYTES:
            return self.decode(ge_ir.AttrDef.FromString(data))
        try:
            return self._values[data]
        except KeyError:
            if len(self._values) >= MEMO_ENTRIES:
                self._values.clear()
            value = self._values[data] = self.decode(ge_ir.AttrDef.FromString(data))
            return value

    def node_attrs(self, coded: Message) -> dict[str, Any]:
        """The attributes in a node's map<string, Coded>, by name as stored, compressed names undone."""
        if self.names:
            return dict([self.named_value(key, coded[key].SerializeToString()) for key in sorted(coded)])
        known, keys = self._values, self._keys
        attrs: dict[str, Any] = {}
        for key in sorted(coded):
            data = coded[key].SerializeToString()
            value = known.get(data)
            attrs[keys.get(key) or self.shared_key(key)] = self.value(data) if value is None else value
        return attrs

    def shared_key(self, key: str) -> str:
        """The same text, one object for all nodes."""
        found = self._keys.get(key)
        if found is None:
            self.budget.spend(TEXT_COST + len(key))
            if len(self._keys) >= MEMO_ENTRIES:
                self._keys.clear()
            found = self._keys[key] = key
        return found

    def named_value(self, key: str, data: bytes) -> tuple[str, Any]:
        """Name and value of one attribute with a compressed name."""
        memo = (key, data)
        found = self._named.get(memo)
        if found is None:
            found = self.restored(key, self.value(data))
            if len(data) <= MEMO_BYTES:
                if len(self._named) >= MEMO_ENTRIES:
                    self._named.clear()
                self._named[memo] = found
        return found

    def restored(self, key: str, value: Any) -> tuple[str, Any]:
        """Undo the name compression (`om_compress_version` 1), which may have been applied twice."""
        if not key:
            self.problem("bad-attr-enum", "an attribute has the empty name", "warning")
        for names in self.names:
            if not key.startswith("\0"):
                break
            try:
                key, value, fits = names.restore(key, value)
            except LookupError as error:
                self.unreadable_names += 1
                self.problem("bad-attr-enum", f"attribute name {key!r} cannot be decoded: {error}")
                break
            if not fits:
                self.problem("bad-attr-enum", f"attribute {key!r} should hold numbers of strings", "warning")
        return key, value

    def desc(self, data: bytes) -> TensorDesc:
        """The descriptor in TensorDescriptor bytes, each distinct one decoded once."""
        found = self._descs.get(data)
        if found is None:
            message = ge_ir.TensorDescriptor.FromString(data)
            found = self.desc_of(message, self._restored_attr if self.names else self._plain_attr)
            if len(self._descs) >= MEMO_ENTRIES:
                self._descs.clear()
            self._descs[data] = found
        return found

    def descs(self, coded: Iterable[bytes]) -> tuple[TensorDesc, ...]:
        """The descriptors of one side of a node; nodes whose descriptors are equal byte for byte share the tuple."""
        memo = tuple(coded)
        found = self._sides.get(memo)
        if found is None:
            found = tuple(map(self.desc, memo))
            self.budget.spend(EMPTY_TUPLE_COST + 8 * len(found))
            self._sides_bytes += 128 + sum(map(len, memo)) + 40 * len(memo)
            if self._sides_bytes > MAX_SIDES_BYTES:
                self._sides.clear()
                self._sides_bytes = 0
            self._sides[memo] = found
        return found

    def desc_of(self, message: Message, attr_of: Callable[[str, Message], tuple[str, Any]] | None = None) -> TensorDesc:
        """The descriptor in a TensorDescriptor. Raises DecodeError."""
        self.budget.spend(DESC_COST + NUMBER_COST * len(message.shape.dim))
        if message.attr:
            self.budget.spend(DICT_COST + DICT_ENTRY_COST * len(message.attr) + sum(map(len, message.attr)))
        return desc_of(message, attr_of or self._plain_attr)

    def _plain_attr(self, key: str, message: Message) -> tuple[str, Any]:
        return key, self.decode(message)

    def _restored_attr(self, key: str, message: Message) -> tuple[str, Any]:
        return self.restored(key, self.decode(message))

    def decode(self, message: Message) -> Any:
        """The value of an AttrDef message; kinds that gecli does not interpret stay wire bytes."""
        kind = message.WhichOneof("value")
        if kind is None:
            self.budget.spend(TEXT_COST)
            return RawAttr("none", b"")
        simple = _SIMPLE.get(kind)
        if simple is not None:
            value = simple(message)
            self.budget.spend(TEXT_COST + len(value) if kind in ("s", "bt") else NUMBER_COST)
            return value
        if kind in ("g", "expression"):
            return self._raw(kind, message)
        if self.depth >= MAX_NESTING:
            raise DecodeError(f"attributes are nested deeper than {MAX_NESTING}")
        self.depth += 1
        try:
            return self._nested(kind, message)
        finally:
            self.depth -= 1

    def _nested(self, kind: str, message: Message) -> Any:
        if kind == "list":
            return self._list(message)
        if kind == "t":
            return self.weight(message.t)
        if kind == "td":
            return self.desc_of(message.td)
        if kind == "func":
            return self._function(message.func)
        if kind == "dt":
            try:
                return DataType(message.dt)
            except ValueError:
                return self._raw("dt", message)
        self._spend_rows(message)
        if kind == "list_list_int":
            rows = tuple([tuple(row.list_i) for row in message.list_list_int.list_list_i])
        else:
            rows = tuple([tuple(row.list_f) or _NO_FLOATS for row in message.list_list_float.list_list_f])
        return rows or empty_list(kind)

    def _spend_rows(self, message: Message) -> None:
        rows = message.list_list_int.list_list_i or message.list_list_float.list_list_f
        numbers = sum(len(row.list_i) if hasattr(row, "list_i") else len(row.list_f) for row in rows)
        self.budget.spend(NUMBER_COST * numbers + EMPTY_TUPLE_COST * (1 + len(rows)))

    def _raw(self, kind: str, message: Message) -> RawAttr:
        self.nested_graphs += kind in ("g", "list_g")
        data = message.SerializeToString(deterministic=True)
        self.budget.spend(2 * TEXT_COST + len(data))
        return RawAttr(kind, data)

    def _function(self, message: Message) -> NamedAttrs:
        entries = (DICT_ENTRY_COST + TEXT_COST) * len(message.attr) + sum(map(len, message.attr))
        self.budget.spend(FUNCTION_COST + TEXT_COST + len(message.name) + DICT_COST * bool(entries) + entries)
        return NamedAttrs(message.name, {key: self.decode(message.attr[key]) for key in sorted(message.attr)})

    def _list(self, message: Message) -> Any:
        values = message.list
        kind = _FIELD_OF_VAL_TYPE.get(values.val_type, "")
        if not kind or not len(getattr(values, kind)):
            kind = next((name for name in _LIST_FIELDS if len(getattr(values, name))), "")
        if not kind:
            if values.val_type not in _FIELD_OF_VAL_TYPE:  # those of the others are there once
                self.budget.spend(EMPTY_LIST_COST)
            return empty_list(values.val_type)
        items = getattr(values, kind)
        self.budget.spend(EMPTY_TUPLE_COST + NUMBER_COST * len(items))
        if kind in ("s", "bt"):
            self.budget.spend(TEXT_COST * len(items) + sum(map(len, items)))
        if kind == "s":
            return tuple(item.decode("utf-8", "surrogateescape") for item in items)
        if kind in ("i", "f", "b", "bt"):
            return tuple(items)
        if kind == "td":
            return tuple(self.desc_of(item) for item in items)
        if kind == "t":
            return tuple(self.weight(item) for item in items)
        if kind == "na":
            return tuple(self._function(item) for item in items)
        if kind == "dt" and all(item in _DTYPE_NUMBERS for item in items):
            return tuple(DataType(item) for item in items)
        return self._raw(f"list_{kind}", message)

    def weight(self, message: Message) -> Weight:
        """The tensor of a TensorDef: data inside the message, in the file by reference, or in WEIGHTS_DATA."""
        self.budget.spend(WEIGHT_COST + len(message.data))
        desc = self.desc_of(message.desc)
        attrs = dict(desc.attrs)
        size = attrs.pop("weight_size", 0)
        place = attrs.pop("data_offset", 0)
        merged = attrs.pop(MERGED_OFFSET, None)
        clean = desc if not desc.attrs else replace_attrs(desc, attrs)
        source = self._source(message, size, place if merged is None else merged)
        held = source.nbytes
        has_size = clean.dtype.bits is not None and clean.dtype not in _TEXT_TYPES and clean.is_static
        if held and has_size and clean.nbytes != held and not isinstance(source, Absent):
            # Not an error: the packed forms of some device formats have their own sizes.
            self.problem(
                "bad-weights",
                f"a constant {clean} has {held} bytes, its type and dims ask for {clean.nbytes}",
                "warning",
                expected=clean.nbytes,
                actual=held,
            )
        return Weight(clean, source)

    def _source(self, message: Message, size: Any, place: Any) -> Source:
        if message.data:
            return Inline(message.data)
        if message.data_file_offset and message.data_file_length:
            return self._slice(message.data_file_offset[-1], message.data_file_length[-1])
        area = self.weights
        if not isinstance(size, int) or not isinstance(place, int):
            return Inline(b"")
        if size == 0 and (area is None or not 0 < place <= area.size_bytes):
            return Inline(b"")  # an empty constant without a place of its own
        if area is None and not self.in_container and size > 0 and place >= 0:
            self.outside_count += 1
            self.outside_bytes += size
            return Absent(size, place)
        if area is None or size < 0 or place < 0 or place + size > area.size_bytes:
            held = 0 if area is None else area.size_bytes
            self.problem(
                "bad-weights",
                f"a constant of {size} bytes at {place} lies outside WEIGHTS_DATA, which has {held} bytes",
                expected=held,
                actual=place + size,
            )
            there = max(min(held - place, size), 0) if place >= 0 else 0
            return Absent(max(size, 0), place if place >= 0 else None, there)
        return FileSlice(area.path, area.offset_bytes + place, size)

    def _slice(self, offset: int, length: int) -> Source:
        # The file itself may hold these private fields, so they are not to be trusted.
        if self.path is None or offset + length > self.file_size:
            held = f"the file, which has {self.file_size} bytes"
            self.problem("bad-weights", f"tensor data of {length} bytes at {offset} lie outside {held}")
            return Absent(length)
        return FileSlice(self.path, offset, length)


def replace_attrs(desc: TensorDesc, attrs: dict[str, Any]) -> TensorDesc:
    """`desc` with other attributes."""
    from dataclasses import replace

    return replace(desc, attrs=attrs)


_SIMPLE: dict[str, Callable[[Any], Any]] = {
    "s": lambda message: message.s.decode("utf-8", "surrogateescape"),
    "i": lambda message: message.i,
    "f": lambda message: message.f,
    "b": lambda message: message.b,
    "bt": lambda message: message.bt,
}
_TEXT_TYPES = (DataType.STRING, DataType.STRING_REF)  # the texts follow their records
_DTYPE_NUMBERS = frozenset(int(dtype) for dtype in DataType)
