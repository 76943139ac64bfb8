"""The JSON document of atc mode 1 (cli.md 2.2), rule by rule."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from gecli.ir.dtype import DataType
from gecli.report.inspect.model_fields import ModelFields, Ref
from gecli.report.inspect.view import Large, Rows, as_large
from gecli.wire.ge_ir_fields import ATTR, GRAPH, MODEL, OP, VAL_TYPES, Field, Fields, Message

# Rule 2: fields of these names are left out at every level.
DROPPED = frozenset(
    ("output", "data_offset", "data", "workspace", "workspace_bytes", "memory_size", "weight_size", "size", "bt",
     "quantize_factor")
)  # fmt: skip
COMPRESSION = frozenset(("om_compress_version", "attr_name_enum", "attr_value_enum", "attrs_use_string_value"))
FUSION_RECORD = "fm"
FUSION_SCOPE = "fusion_scope"
NUMBER_AT = 9  # a float whose text is longer stays a number
_ESCAPED = {byte: f"\\{byte:03o}" for byte in range(256) if not 32 <= byte < 127} | {
    9: "\\t",
    10: "\\n",
    13: "\\r",
    34: '\\"',
    39: "\\'",
    92: "\\\\",
}


def atc_document(fields: ModelFields) -> dict[str, Any]:
    """One object, the ModelDef; graphs and operators are made while it is written."""
    document = _object(MODEL, fields.members) or {}
    keys = [key for key in fields.attrs if key not in COMPRESSION]
    if keys:
        document["attr"] = Rows(lambda: (Large(_entry(key, fields.attrs[key])) for key in keys))
    groups = _fusion_groups(fields)
    if fields.has_graphs:
        document["graph"] = Rows(lambda: _graphs(fields.graphs(), groups))
    return document


def _graphs(graphs: Iterator[tuple[Fields, Iterator[Fields]]], groups: dict[str, int]) -> Iterator[Any]:
    for head, ops in graphs:
        members = _object(GRAPH, head) or {}
        first = next(ops, None)
        if first is not None:
            members["op"] = Rows(_ops(first, ops, groups))
        yield members or None


def _ops(first: Fields, rest: Iterator[Fields], groups: dict[str, int]) -> Callable[[], Iterator[Any]]:
    def made() -> Iterator[Any]:
        yield _op(first, groups)
        for op in rest:
            yield _op(op, groups)

    return made


def _op(op: Fields, groups: dict[str, int]) -> dict[str, Any] | None:
    name = group_name(groups.get(op.get("name", ""), 0), op.get("stream_id", 0))
    if name is not None:
        op = as_large(op, {**op, "attr": {**op.get("attr", {}), "group_op_name": {"s": name.encode()}}})
    made = _object(OP, op)
    return None if made is None else as_large(op, made)


def group_name(scope: int, stream: int) -> str | None:
    """Rule 9: the synthetic attribute of the operators of a fused group."""
    if scope >> 16 & 0xFFFF:
        return f"group_op_l1_{scope >> 16 & 0xFFFF}_{stream}"
    if scope & 0xFFFF:
        return f"group_op_ub_{scope & 0xFFFF}_{stream}"
    return None


def _fusion_groups(fields: ModelFields) -> dict[str, int]:
    """Scope ids by operator, from the operators before fusion that attribute `fm` holds."""
    found: dict[str, int] = {}
    for data in fields.attrs.get(FUSION_RECORD, {}).get("list", {}).get("bt", []):
        try:
            op = fields.message(OP, memoryview(data), 3)
        except ValueError:
            continue  # not an operator: atc leaves it out, too
        scope = op.get("attr", {}).get(FUSION_SCOPE, {}).get("i", 0)
        if scope:
            found[op.get("name", "")] = scope
    return found


def _object(kind: Message, fields: Fields) -> dict[str, Any] | None:
    """A message: the fields it has, None when none is left (rule 1)."""
    found: dict[str, Any] = {}
    for spec in kind.fields.values():
        if spec.name not in fields or spec.name in DROPPED:
            continue
        value = fields[spec.name]
        if spec.is_map:
            found[spec.name] = _map(value)
        elif spec.message is not None and spec.repeated:
            found[spec.name] = [_object(spec.message, item) for item in value]
        elif spec.message is not None:
            if value:  # a sub-message of zero bytes is absent
                found[spec.name] = _object(spec.message, value)
        elif spec.repeated:
            found[spec.name] = [_in_list(spec, item) for item in value]
        else:
            found[spec.name] = _single(spec, value)
    return found or None


def _map(attrs: dict[str, Fields]) -> list[dict[str, Any]]:
    """Rule 6: entries sorted by key; a value of zero bytes is absent, one with nothing left is null."""
    return [_entry(key, attrs[key]) for key in sorted(attrs)]


def _entry(key: str, value: Fields) -> dict[str, Any]:
    return {"key": key, "value": _object(ATTR, value)} if value else {"key": key}


def _single(spec: Field, value: Any) -> Any:
    if spec.kind == "float":
        return float_text(value)
    if spec.kind == "bytes":
        return "" if isinstance(value, Ref) else c_escaped(value)
    if spec.kind == "dtype":
        return dtype_name(value)
    if spec.kind == "val_type":
        return val_type_name(value)
    return _text(value) if spec.kind == "string" else value


def _in_list(spec: Field, value: Any) -> Any:
    if spec.kind == "bytes":
        return value.decode("utf-8", "ignore")
    if spec.kind == "string":
        return _text(value)
    if spec.kind == "float":
        return value if value - value == 0 else None  # atc's JSON library writes null for NaN and infinities
    return value


def _text(value: str) -> str:
    """A text without the bytes that are no UTF-8; mostly the object itself, of which a list may have many."""
    return value if value.isascii() else value.encode("utf-8", "surrogateescape").decode("utf-8", "ignore")


def float_text(value: float) -> str | float:
    """Rule 4: the shortest form with six digits as text, longer ones as a number."""
    text = f"{value:g}"
    return text if len(text) <= NUMBER_AT else value


def c_escaped(data: bytes) -> str:
    """Rule 5: C escapes; every byte that is not printable ASCII as three octal digits."""
    return data.decode("latin-1").translate(_ESCAPED)


def dtype_name(number: int) -> str | int:
    """Rule 3; a number that the enumeration lacks stays one."""
    found = DataType.from_proto(number)
    return f"DT_{found.name}" if found.proto == number else number  # DT_BF16, of which the serial string is another


def val_type_name(number: int) -> str | int:
    if not 0 <= number < len(VAL_TYPES):
        return number
    return "VT_LIST_NONE" if number == 0 else f"VT_LIST_{VAL_TYPES[number]}"
