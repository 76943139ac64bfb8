"""Protobuf text (GE's `ge_proto_*.txt`, ONNX `.pbtxt`) as a tree, and a tree as the bytes of a GE message."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterator
from typing import Any

from gecli.errors import InputError
from gecli.ir.dtype import DataType
from gecli.report.inspect.model_fields import MAX_DEPTH
from gecli.wire.ge_ir_fields import ATTR, GROUPS, MODEL, OP, VAL_TYPES, Field, Message
from gecli.wire.memory_budget import ROOM, MemoryBudget, TooManyObjects

Tree = dict[str, list[Any]]  # field name -> its values in file order: text, bytes (of quoted strings) or Tree
Encode = Callable[[Tree], bytes]
MAX_TEXT_BYTES = 1 << 30
MAX_SHOWN = 60  # of a value in a message
MAX_WORDS = 1 << 12  # that are remembered: most are field names and small numbers
# Bytes of memory, measured with CPython 3.11; and for the time that they take.
_MESSAGE_COST, _FIELD_COST, _VALUE_COST, _ITEM_COST, _NODE_COST = 250, 150, 100, 48, 400

# Possessive: what has been read is never given back, so that a long token needs no memory for ways to end it earlier.
_TOKEN = re.compile(
    rb"""[\s,;]*+(?:\#[^\n]*+[\s,;]*+)*+
    (?: (?P<word>[A-Za-z_+\-.0-9][A-Za-z0-9_+\-.]*+)
      | (?P<string>"(?:[^"\\\n]++|\\.)*+"|'(?:[^'\\\n]++|\\.)*+')
      | (?P<mark>[{}<>\[\]:])
      | (?P<end>\Z) )""",
    re.VERBOSE | re.DOTALL,
)
_WORDS = re.compile(rb"[\s,]*+(?:[A-Za-z_+\-.0-9]++[\s,]++)*+")  # of a list in brackets, but for the last one
_ESCAPE = re.compile(rb"\\([0-7]{1,3}|[xX][0-9a-fA-F]{1,2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|.)", re.DOTALL)
_NAMED_ESCAPES = {b"n": b"\n", b"t": b"\t", b"r": b"\r", b"a": b"\a", b"b": b"\b", b"f": b"\f", b"v": b"\v"}
_CLOSING = {b"{": b"}", b"<": b">"}


class TextError(ValueError):
    """What is wrong in the text, and at which byte of it."""

    def __init__(self, message: str, offset: int) -> None:
        super().__init__(message)
        self.offset = offset


class Encoded(bytes):
    """A message in the binary form."""


def parse_text(data: bytes, path: str, node: str = "", encode: Encode | None = None) -> Tree:
    """The fields of a message in text form.

    The messages `node` in a message of the outermost one, which are most of a graph, become Encoded by `encode` when
    they have been read. Raises InputError (E13018) with line and column.
    """
    try:
        return _Parser(data, node, encode).message(b"", 0)
    except TextError as error:
        line = data.count(b"\n", 0, error.offset) + 1
        column = error.offset - data.rfind(b"\n", 0, error.offset)
        raise InputError(
            "E13018", f"{path}: the text of the model cannot be read: {error}", where=f"line {line}, column {column}",
            file=path, offset=error.offset, do="write the dump again; it may have been cut",
        ) from error  # fmt: skip
    except TooManyObjects as error:
        raise InputError(
            "E13018", f"{path}: {error}", why=ROOM, file=path, do="write the dump of a smaller graph",
        ) from error  # fmt: skip
    except ValueError as error:  # of a node's binary form
        raise no_model(error, path) from error


def node_bytes(tree: Tree) -> bytes:
    """The OpDef that a tree describes. Raises ValueError."""
    return b"".join(_message(OP, tree, 2))


def model_bytes(tree: Tree, path: str) -> bytes:
    """The ModelDef that a tree describes, serialized. Raises InputError (E13018) for values of no usable form."""
    try:
        return b"".join(_message(MODEL, tree, 0))
    except ValueError as error:
        raise no_model(error, path) from error


def no_model(error: ValueError, path: str) -> InputError:
    return InputError("E13018", f"{path}: the text is no ModelDef: {error}", file=path, do="write the dump again")


class _Parser:
    """One pass over the text."""

    def __init__(self, data: bytes, node: str = "", encode: Encode | None = None) -> None:
        self.data = data
        self.node = node
        self.encode = encode
        self.budget = MemoryBudget(len(data))
        self.words: dict[bytes, str] = {}
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
            name = self.word(token)
            values = tree.get(name)
            if values is None:
                self.budget.spend(_FIELD_COST)
                values = tree[name] = []
            if depth == 1 and name == self.node and self.encode is not None:
                self.add_node(values)
            else:
                values.extend(self.values(depth))

    def add_node(self, values: list[Any]) -> None:
        """Read a node, of which only the binary form is kept."""
        left = self.budget.left
        for value in self.values(1):
            if isinstance(value, dict) and self.encode is not None:
                value = Encoded(self.encode(value))
            self.budget.left = left
            self.budget.spend(_NODE_COST + len(value))
            left = self.budget.left
            values.append(value)

    def word(self, token: bytes) -> str:
        """The text of a word; equal ones are one object."""
        found = self.words.get(token)
        if found is None:
            found = token.decode("ascii", "replace")
            self.budget.spend(_VALUE_COST + len(token))
            if len(self.words) < MAX_WORDS:
                self.words[token] = found
        return found

    def values(self, depth: int) -> Iterator[Any]:
        """What stands behind a field name: one value, or a list in brackets."""
        self.budget.spend(_VALUE_COST)
        kind, token = self.next()
        if (kind, token) == ("mark", b":"):
            kind, token = self.next()
        elif token not in _CLOSING:
            raise TextError("':' or '{' was expected behind a field name", self.start)
        if (kind, token) != ("mark", b"["):
            yield self.value(kind, token, depth)
            return
        words = _WORDS.match(self.data, self.at)
        if words is not None and words.end() > self.at:
            listed = self.data[self.at : words.end()]
            self.budget.spend(_ITEM_COST * (listed.count(b",") + 1))
            self.at = words.end()
            yield from map(self.word, listed.replace(b",", b" ").split())
        while True:
            self.budget.spend(_ITEM_COST)
            kind, token = self.next()
            if (kind, token) == ("mark", b"]"):
                return
            yield self.value(kind, token, depth)

    def value(self, kind: str, token: bytes, depth: int) -> Any:
        if kind == "mark" and token in _CLOSING:
            self.budget.spend(_MESSAGE_COST)
            return self.message(_CLOSING[token], depth + 1)
        if kind == "word":
            return self.word(token)
        if kind != "string":
            raise TextError("a value was expected", self.start)
        parts = [_unescaped(token[1:-1])]
        while self.peek()[0] == "string":  # strings side by side are one
            self.budget.spend(_VALUE_COST)
            parts.append(_unescaped(self.next()[1][1:-1]))
        self.budget.spend(sum(map(len, parts)))
        return parts[0] if len(parts) == 1 else b"".join(parts)


def _unescaped(text: bytes) -> bytes:
    if b"\\" not in text:
        return text
    found, at = bytearray(), 0
    for match in _ESCAPE.finditer(text):
        found += text[at : match.start()]
        found += _escape(match)
        at = match.end()
    return bytes(found + text[at:])


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
                encoded = isinstance(value, Encoded)
                yield _delimited(number, value if encoded else _body(spec, spec.message, value, depth + 1))
        else:
            for value in values:
                yield _scalar(number, spec, value)


def _entry(entry: Any, depth: int) -> Iterator[bytes]:
    if not isinstance(entry, dict):
        raise ValueError("a map has an entry that is no message")
    yield from (_delimited(1, _bytes(key)) for key in entry.get("key", ())[-1:])
    for value in entry.get("value", ())[-1:]:
        yield _delimited(2, b"".join(_message(ATTR, value if isinstance(value, dict) else {}, depth + 1)))


def _body(spec: Field, kind: Message, value: Any, depth: int) -> bytes:
    if not isinstance(value, dict):
        raise ValueError(f"field {spec.name!r} is a message, not {_shown(value)}")
    return b"".join(_message(kind, value, depth))


def _shown(value: Any) -> str:
    text = repr(value[:MAX_SHOWN])
    return text if len(value) <= MAX_SHOWN else f"{text}..."


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
        raise ValueError(f"field {spec.name!r} cannot be {_shown(text)}") from None


def _float(spec: Field, text: str) -> float:
    try:
        value = float(text.rstrip("fF") if text[:1].isdigit() or text[1:2].isdigit() else text)
    except ValueError:
        raise ValueError(f"field {spec.name!r} cannot be {_shown(text)}") from None
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
