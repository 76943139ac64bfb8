"""Protobuf text (GE's `ge_proto_*.txt`, ONNX `.pbtxt`) as a tree, and a tree as the bytes of a GE message."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from typing import Any

from gecli.errors import InputError
from gecli.ir.dtype import DataType
from gecli.report.inspect.model_fields import MAX_DEPTH
from gecli.wire.ge_ir_fields import ATTR, GROUPS, MODEL, VAL_TYPES, Field, Message

Tree = dict[str, list[Any]]  # field name -> its values in file order: text, bytes (of quoted strings) or Tree
MAX_TEXT_BYTES = 1 << 30

_TOKEN = re.compile(
    rb"""[\s,;]*(?:\#[^\n]*[\s,;]*)*
    (?: (?P<word>[A-Za-z_+\-.0-9][A-Za-z0-9_+\-.]*)
      | (?P<string>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')
      | (?P<mark>[{}<>\[\]:])
      | (?P<end>\Z) )""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPE = re.compile(rb"\\([0-7]{1,3}|[xX][0-9a-fA-F]{1,2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|.)", re.DOTALL)
_NAMED_ESCAPES = {b"n": b"\n", b"t": b"\t", b"r": b"\r", b"a": b"\a", b"b": b"\b", b"f": b"\f", b"v": b"\v"}
_CLOSING = {b"{": b"}", b"<": b">"}


class TextError(ValueError):
    """What is wrong in the text, and at which byte of it."""

    def __init__(self, message: str, offset: int) -> None:
        super().__init__(message)
        self.offset = offset


def parse_text(data: bytes, path: str) -> Tree:
    """The fields of a message in text form. Raises InputError (E13018) with line and column."""
    try:
        return _Parser(data).message(b"", 0)
    except TextError as error:
        line = data.count(b"\n", 0, error.offset) + 1
        column = error.offset - data.rfind(b"\n", 0, error.offset)
        raise InputError(
            "E13018", f"{path}: the text of the model cannot be read: {error}", where=f"line {line}, column {column}",
            file=path, offset=error.offset, do="write the dump again; it may have been cut",
        ) from error  # fmt: skip


def model_bytes(tree: Tree, path: str) -> bytes:
    """The ModelDef that a tree describes, serialized. Raises InputError (E13018) for values of no usable form."""
    try:
        return b"".join(_message(MODEL, tree, 0))
    except ValueError as error:
        raise InputError(
            "E13018", f"{path}: the text is no ModelDef: {error}", file=path, do="write the dump again",
        ) from error  # fmt: skip


class _Parser:
    """One pass over the text."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 3 if data.startswith(b"\xef\xbb\xbf") else 0
        self.start = self.at

    def next(self) -> tuple[str, bytes]:
        match = _TOKEN.match(self.data, self.at)
        if match is None:
            skipped = re.compile(rb"[\s,;]*").match(self.data, self.at)
            self.start = skipped.end() if skipped is not None else self.at
            raise TextError("a character that begins nothing", self.start)
        kind = match.lastgroup or "end"
        self.start, self.at = match.start(kind), match.end()
        return kind, match[kind]

    def peek(self) -> tuple[str, bytes]:
        at = self.at
        found = self.next()
        self.at = at
        return found

    def message(self, closing: bytes, depth: int) -> Tree:
        if depth > MAX_DEPTH:
            raise TextError(f"messages are nested deeper than {MAX_DEPTH}", self.at)
        tree: Tree = {}
        while True:
            kind, token = self.next()
            if kind == "end":
                if closing:
                    raise TextError(f"the text ends where {closing.decode()!r} is missing", self.start)
                return tree
            if kind == "mark" and token == closing:
                return tree
            if kind != "word":
                raise TextError(f"a field name was expected, not {token[:20].decode('utf-8', 'replace')!r}", self.start)
            tree.setdefault(token.decode("ascii", "replace"), []).extend(self.values(depth))

    def values(self, depth: int) -> Iterator[Any]:
        """What stands behind a field name: one value, or a list in brackets."""
        kind, token = self.next()
        if (kind, token) == ("mark", b":"):
            kind, token = self.next()
        elif token not in _CLOSING:
            raise TextError("':' or '{' was expected behind a field name", self.start)
        if (kind, token) != ("mark", b"["):
            yield self.value(kind, token, depth)
            return
        while True:
            kind, token = self.next()
            if (kind, token) == ("mark", b"]"):
                return
            yield self.value(kind, token, depth)

    def value(self, kind: str, token: bytes, depth: int) -> Any:
        if kind == "mark" and token in _CLOSING:
            return self.message(_CLOSING[token], depth + 1)
        if kind == "word":
            return token.decode("ascii", "replace")
        if kind != "string":
            raise TextError("a value was expected", self.start)
        parts = [_unescaped(token[1:-1])]
        while self.peek()[0] == "string":  # strings side by side are one
            parts.append(_unescaped(self.next()[1][1:-1]))
        return b"".join(parts)


def _unescaped(text: bytes) -> bytes:
    return _ESCAPE.sub(_escape, text) if b"\\" in text else text


def _escape(match: re.Match[bytes]) -> bytes:
    body = match[1]
    if body[:1].isdigit():
        return bytes((int(body, 8) & 0xFF,))
    if len(body) > 1 and body[:1] in b"xX":
        return bytes((int(body[1:], 16),))
    if len(body) > 1:
        return chr(min(int(body[1:], 16), 0x10FFFF)).encode("utf-8", "surrogatepass")
    return _NAMED_ESCAPES.get(body, body)


# ---------------------------------------------------------------- a tree as bytes


def _message(kind: Message, tree: Tree, depth: int) -> Iterator[bytes]:
    """The fields by number; those that the message does not have are left out, as a reader of the binary form does."""
    for number, spec in sorted(kind.fields.items()):
        values = tree.get(spec.name)
        if not values or spec.message is GROUPS:  # symbols of shapes: in no known dump, and shown as bytes only
            continue
        if spec.is_map:
            for entry in values:
                yield _delimited(number, b"".join(_entry(entry, depth)))
        elif spec.message is not None:
            for value in values:
                yield _delimited(number, b"".join(_message(spec.message, _tree(spec, value), depth + 1)))
        else:
            for value in values:
                yield _scalar(number, spec, value)


def _entry(entry: Any, depth: int) -> Iterator[bytes]:
    if not isinstance(entry, dict):
        raise ValueError("a map has an entry that is no message")
    yield from (_delimited(1, _bytes(key)) for key in entry.get("key", ())[-1:])
    for value in entry.get("value", ())[-1:]:
        yield _delimited(2, b"".join(_message(ATTR, value if isinstance(value, dict) else {}, depth + 1)))


def _tree(spec: Field, value: Any) -> Tree:
    if not isinstance(value, dict):
        raise ValueError(f"field {spec.name!r} is a message, not {value!r}")
    return value


def _scalar(number: int, spec: Field, value: Any) -> bytes:
    if isinstance(value, dict):
        raise ValueError(f"field {spec.name!r} is a value, not a message")
    if spec.kind in ("string", "bytes"):
        return _delimited(number, _bytes(value))
    text = value.decode("utf-8", "replace") if isinstance(value, bytes) else value
    if spec.kind == "float":
        return _varint(number << 3 | 5) + struct.pack("<f", _float(spec, text))
    return _varint(number << 3) + _varint(_integer(spec, text) & 0xFFFFFFFFFFFFFFFF)


def _integer(spec: Field, text: str) -> int:
    if text in ("true", "false", "True", "False", "t", "f"):
        return int(text[0] in "tT")
    if spec.kind == "dtype" and text.startswith("DT_"):
        return DataType.parse(text).proto
    if spec.kind == "val_type" and text.startswith("VT_LIST_"):
        return VAL_TYPES.index(text.removeprefix("VT_LIST_"))
    try:
        return int(text, 8) if re.fullmatch(r"-?0[0-7]+", text) else int(text, 0)
    except ValueError:
        raise ValueError(f"field {spec.name!r} cannot be {text!r}") from None


def _float(spec: Field, text: str) -> float:
    try:
        value = float(text.rstrip("fF") if text[:1].isdigit() or text[1:2].isdigit() else text)
    except ValueError:
        raise ValueError(f"field {spec.name!r} cannot be {text!r}") from None
    return value if abs(value) < 3.5e38 else float(f"{'-' if value < 0 else ''}inf") if value == value else value


def _bytes(value: Any) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode("utf-8", "surrogateescape")


def _delimited(number: int, body: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(body)) + body


def _varint(value: int) -> bytes:
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)
