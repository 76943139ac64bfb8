"""Graphs that say much in few bytes: the worst of seventy kinds that were measured, as large as somebody wants."""

from __future__ import annotations

import struct
from collections.abc import Callable

from . import spec_om as spec


def repeated(piece: Callable[[int], bytes], size: int) -> bytes:
    """Pieces 0, 1, 2, ... until there are `size` bytes."""
    out = bytearray()
    count = 0
    while len(out) < size:
        out += piece(count)
        count += 1
    return bytes(out)


def graph(content: bytes) -> bytes:
    return spec.blob(7, spec.blob(1, b"g") + content)


def operators(piece: Callable[[int], bytes], size: int) -> bytes:
    """A graph of many operators."""
    return graph(repeated(lambda k: spec.blob(6, piece(k)), size))


def name(k: int) -> bytes:
    return spec.blob(1, text(k))


def text(k: int) -> bytes:
    return b"%x" % k


def attr(value: bytes, key: bytes = b"a") -> bytes:
    return spec.blob(10, spec.blob(1, key) + spec.blob(2, value))


def model_attr(k: int, value: bytes) -> bytes:
    return spec.blob(11, spec.blob(1, text(k)) + spec.blob(2, value))


def nested(levels: int, value: bytes) -> bytes:
    for _ in range(levels):
        value = spec.attr_func("f", {"a": value})
    return value


def integer(number: int, value: int) -> bytes:
    return spec.varint(number << 3) + spec.varint(value)


def constant(k: int) -> bytes:
    tensor = spec.tensor(spec.descriptor(1, [1], weight_size=4, data_offset=512 + k))
    return name(k) + spec.blob(2, b"Const") + attr(spec.attr_t(tensor), b"value")


def holding_list(field: int, item: bytes, val_type: int) -> Callable[[int], bytes]:
    """An operator whose attribute is a list of some hundred equal items; two operators differ."""
    return lambda k: attr(spec.attr_list(spec.blob(field, item) * (300 + k % 9), val_type))


def ordinary(k: int) -> bytes:
    before = [f"/layers/block/Add_{k - 1}:0" if k else ""] * 2
    attrs = {"layer": spec.attr_i(k)}
    desc, stored = spec.descriptor(1, [1, 64]), spec.descriptor(1, [1, 64], size=288)
    places = {"input_i": [512 * k, 512], "output_i": [512 * k + 512]}
    return spec.operator(f"/layers/block/Add_{k}", "Add", k, before, attrs, [desc] * 2, [stored], **places)


HOSTILE: dict[str, Callable[[int], bytes]] = {
    "operators with a name": lambda size: operators(name, size),
    "a chain": lambda size: operators(
        lambda k: name(k) + spec.blob(5, text(k - 1) + b":0" if k else b"") + spec.blob(34, b""), size
    ),
    "control edges": lambda size: operators(lambda k: name(k) + spec.blob(5, text(max(k - 1, 0)) + b":-1"), size),
    "producers that do not exist": lambda size: operators(lambda k: name(k) + spec.blob(5, b"z:0"), size),
    "ids and offsets": lambda size: operators(
        lambda k: name(k) + integer(21, k) + spec.blob(29, spec.varint(k * 32)), size
    ),
    "names of graph inputs": lambda size: graph(repeated(lambda k: spec.blob(4, text(k)), size)),
    "model attributes": lambda size: graph(b"") + repeated(lambda k: model_attr(k, spec.blob(1, b"")), size),
    "lists of numbers": lambda size: operators(
        lambda k: attr(spec.attr_list(spec.blob(3, spec.varint(k + 1000) * 100), 2)), size
    ),
    "lists of texts": lambda size: operators(lambda k: attr(spec.attr_list(spec.blob(2, text(k)) * 60, 1)), size),
    "lists of descriptors": lambda size: operators(holding_list(8, b"", 6), size),
    "lists of tensors": lambda size: operators(holding_list(9, b"", 7), size),
    "lists of functions": lambda size: operators(holding_list(11, b"", 9), size),
    "rows of numbers": lambda size: operators(
        lambda k: attr(spec.blob(14, spec.blob(1, spec.blob(1, spec.varint(k + 300))) * 50)), size
    ),
    "functions in functions": lambda size: operators(lambda k: attr(nested(20 + k % 10, spec.attr_i(k))), size),
    "constants outside": lambda size: operators(constant, size),
    "attributes of one operator": lambda size: graph(
        spec.blob(6, repeated(lambda k: spec.blob(10, spec.blob(1, text(k)) + spec.blob(2, spec.attr_i(1))), size))
    ),
    "attributes of one descriptor": lambda size: graph(
        spec.blob(6, spec.blob(34, repeated(lambda k: spec.blob(5, spec.blob(1, text(k)) + b"\x12\0"), size)))
    ),
    "empty lists of unknown kinds": lambda size: operators(
        lambda k: name(k) + attr(spec.attr_list(b"", 1000 + k)), size
    ),
    "descriptors": lambda size: operators(
        lambda k: spec.blob(33, spec.descriptor(1, [k])) + spec.blob(34, spec.descriptor(1, [k + 1])), size
    ),
}  # fmt: skip


def external(k: int) -> bytes:
    """A weight file for each node."""
    desc = spec.blob(34, spec.descriptor(1, [k % 50 + 1]))
    return name(k) + spec.blob(2, b"FileConstant") + attr(spec.blob(2, text(k)), b"location") + desc


def variable(k: int) -> bytes:
    place = spec.blob(29, spec.varint((1 << 37) + 512 * k))
    return name(k) + spec.blob(2, b"Variable") + spec.blob(34, spec.descriptor(1, [k % 50 + 1])) + place


def packed(value: float) -> bytes:
    return struct.pack("<f", value)


def inline_constant(k: int) -> bytes:
    desc = spec.descriptor(1, [1])
    return name(k) + spec.blob(2, b"Const") + attr(spec.attr_t(spec.tensor(desc, packed(k))), b"value")
