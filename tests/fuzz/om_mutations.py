"""Broken OM files by the thousand, each made from a sound one by a change that knows the format.

A case is made from a seed and a number alone, so that one that failed can be made again.
"""

from __future__ import annotations

import random
import re
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cached_property

Part = tuple[int, bytes]
HEADER_BYTES = 256
MODEL_DEF, WEIGHTS_DATA, TASK_INFO, FLOW_SUBMODEL = 0, 1, 2, 7
KERNEL_STORES, SO_BINS, INOUT_INFO, TILING = (3, 4, 26), 5, 8, 12
LIES = (
    0, 1, 2, 3, 7, 8, 12, 63, 64, 65, 127, 255, 256, 4095, 4096, 4097, 65535, 65536, 2**31 - 1, 2**31, 2**32 - 1,
    2**32, 2**40, 2**62, 2**63 - 1, 2**63, 2**64 - 1, 2**64 - 256,
)  # fmt: skip
HEADER_FIELDS = (
    (0, 4), (4, 4), (8, 4), (12, 4), (70, 4), (76, 4), (80, 1), (81, 1), (82, 1), (83, 1), (84, 4), (116, 4),
    (152, 4), (156, 4), (160, 4), (180, 1), (181, 2), (184, 8), (192, 1), (193, 1), (194, 4),
)  # fmt: skip
DEPTHS = (2, 5, 19, 20, 21, 50, 62, 63, 64, 65, 66, 97, 99, 100, 101, 150, 1000, 20000)
REPEATS = (2, 3, 64, 65, 300, 3000)
TEXTS = (
    b"", b":", b":0", b":-1", b"x:", b"x:0", b"x:-2", b"x:99999999999999999999", b"a:b:c:0", b"\xff\xfe", b"\0",
    b"\0\1", b"\0\x7f\x7f\x7f", b"\x1b[31m", b"..", b"../../x", b"/etc/passwd", b"a" * 5000, "\u202ename\n".encode(),
    b"nan",
)  # fmt: skip
REFERENCE = re.compile(rb"[\w./:-]{1,200}:-?\d{1,4}")


@dataclass(frozen=True)
class Field:
    """One field of a message: where its tag, its length and its content begin, and where it ends."""

    start: int
    length_at: int
    body: int
    end: int
    number: int
    kind: int


@dataclass
class Seed:
    """A sound file, taken apart. `parts` is empty for what is no container of one model."""

    name: str
    data: bytes
    wide: bool = True
    parts: list[Part] = field(default_factory=list)
    tables: list[int] = field(default_factory=list)
    _levels: dict[tuple[int, int, int], list[Field] | None] = field(default_factory=dict)

    @classmethod
    def of(cls, name: str, data: bytes) -> Seed:
        seed = cls(name, data)
        if data[:4] != b"IMOD":
            return seed
        version, length64 = struct.unpack_from("<I", data, 8)[0], struct.unpack_from("<Q", data, 184)[0]
        second = version >= 0x20000000
        seed.wide = second and (length64 != 0 or data[82] == 3)
        models = max(1, struct.unpack_from("<I", data, 156)[0]) if second else 1
        position = HEADER_BYTES
        for _ in range(models):
            seed.tables.append(position)
            parts, position = read_table(data, position, seed.wide)
            seed.parts = parts if models == 1 else []
        return seed

    @cached_property
    def boundaries(self) -> list[int]:
        """Where something ends: every partition, every store record, every field of the outer messages."""
        found = {0, 4, 255, HEADER_BYTES, len(self.data)}
        for table in self.tables:
            parts, position = read_table(self.data, table, self.wide)
            found |= {table, table + (8 if self.wide else 4), position - sum(len(data) for _, data in parts)}
            for kind, data in reversed(parts):
                found.add(position)
                position -= len(data)
                if kind in (MODEL_DEF, TASK_INFO):
                    found |= {position + each.end for each in fields_of(data, 0, len(data)) or ()}
        found |= {at for at, _ in self.numbers}
        return sorted(at for at in found if at <= len(self.data))

    @cached_property
    def numbers(self) -> list[tuple[int, int]]:
        """(offset, width) of every length, offset, count, type and magic of fixed width."""
        if not self.tables:
            return [(at, 4) for at in range(0, min(len(self.data), 64), 4)]
        found = list(HEADER_FIELDS)
        for table in self.tables:
            parts, position = read_table(self.data, table, self.wide)
            found += table_numbers(table, len(parts), self.wide)
            position -= sum(len(data) for _, data in parts)
            for kind, data in parts:
                found += [(position + at, width) for at, width in record_numbers(kind, data)]
                position += len(data)
        return found

    def level(self, part: int, begin: int, end: int) -> list[Field] | None:
        """The fields of a message inside a partition; None when the bytes are no message."""
        key = (part, begin, end)
        if key not in self._levels:
            self._levels[key] = fields_of(self.parts[part][1], begin, end)
        return self._levels[key]

    def messages(self) -> list[int]:
        """The partitions that hold a message."""
        return [
            k for k, (kind, data) in enumerate(self.parts) if kind in (MODEL_DEF, TASK_INFO, FLOW_SUBMODEL) and data
        ]


# ---------------------------------------------------------------- the container


def read_table(data: bytes, position: int, wide: bool) -> tuple[list[Part], int]:
    """The partitions of one table, and where the last one ends."""
    count = struct.unpack_from("<I", data, position)[0]
    lead, entry = (8, 24) if wide else (4, 12)
    start = position + lead + entry * count
    parts = []
    for k in range(count):
        at = position + lead + entry * k
        kind = struct.unpack_from("<I", data, at)[0]
        size = struct.unpack_from("<Q", data, at + 16)[0] if wide else struct.unpack_from("<I", data, at + 8)[0]
        parts.append((kind, data[start : start + size]))
        start += size
    return parts, start


def table_numbers(table: int, count: int, wide: bool) -> Iterator[tuple[int, int]]:
    yield table, 4
    if wide:
        yield table + 4, 4
    for k in range(count):
        at = table + 8 + 24 * k if wide else table + 4 + 12 * k
        yield from ((at, 4), (at + 4, 4), (at + 8, 8), (at + 16, 8)) if wide else ((at, 4), (at + 4, 4), (at + 8, 4))


def record_numbers(kind: int, data: bytes) -> list[tuple[int, int]]:
    """The numbers inside the stores and lists that are no messages."""
    found: list[tuple[int, int]] = []
    at = 0
    if kind in KERNEL_STORES:
        while at + 12 <= len(data) and len(found) < 300:
            found += [(at, 4), (at + 4, 4), (at + 8, 4)]
            at += 12 + sum(struct.unpack_from("<II", data, at + 4))
    elif kind in (INOUT_INFO, 6):
        while at + 12 <= len(data):
            found += [(at, 4), (at + 4, 4), (at + 8, 4)]
            found += [(k, 4) for k in range(at + 12, min(at + 12 + 96, len(data) - 4), 4)]
            at += 8 + struct.unpack_from("<I", data, at + 4)[0]
    elif kind in (SO_BINS, TILING):
        found = [(k, 4) for k in range(0, min(len(data) - 4, 64), 2)]
    return [(offset, width) for offset, width in found if offset + width <= len(data)]


def packed(parts: list[Part], wide: bool) -> bytes:
    """A table and its partitions."""
    offset = 0
    rows = [struct.pack("<II", len(parts), 0) if wide else struct.pack("<I", len(parts))]
    for kind, data in parts:
        rows.append(struct.pack("<IIQQ" if wide else "<III", *((kind, 0) if wide else (kind,)), offset, len(data)))
        offset += len(data)
    return b"".join([*rows, *(data for _, data in parts)])


def with_payload(header: bytes, payload: bytes, wide: bool, models: int | None = None) -> bytes:
    """A file: the header of another one, with its lengths made true."""
    head = bytearray(header[:HEADER_BYTES])
    head[58 + 12 : 64 + 12] = bytes(6)  # the digest would refuse the payload before anything else is looked at
    struct.pack_into("<I", head, 76, 0 if wide else len(payload) & 0xFFFFFFFF)
    if struct.unpack_from("<I", head, 8)[0] >= 0x20000000:
        struct.pack_into("<Q", head, 184, len(payload) if wide else 0)
        if models is not None:
            struct.pack_into("<I", head, 156, models)
    return bytes(head) + payload


# ---------------------------------------------------------------- messages


def varint(value: int) -> bytes:
    out = bytearray()
    value &= 2**64 - 1
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def message(number: int, body: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(body)) + body


def fields_of(data: bytes, begin: int, end: int) -> list[Field] | None:
    """The fields between two places; None when the bytes are no message."""
    found: list[Field] = []
    at = begin
    try:
        while at < end:
            start = at
            tag, at = read_varint(data, at)
            number, kind, length_at = tag >> 3, tag & 7, at
            if not 0 < number < 64:
                return None
            body = at
            if kind == 0:
                _, at = read_varint(data, at)
            elif kind in (1, 5):
                at += 8 if kind == 1 else 4
            elif kind == 2:
                size, body = read_varint(data, at)
                at = body + size
            else:
                return None
            found.append(Field(start, length_at, body, at, number, kind))
    except IndexError:
        return None
    return found if at == end else None


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while shift < 70:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
    raise IndexError


# AttrDef kinds that hold attributes again: function, tensor, tensor description, graph, lists of them.
def deeper(kind: int, inner: bytes) -> bytes:
    """An AttrDef that holds the AttrDef `inner`."""
    entry = message(1, b"k") + message(2, inner)
    if kind == 0:
        return message(10, message(1, b"f") + message(2, entry))
    if kind == 1:
        return message(12, message(1, message(5, entry)))
    if kind == 2:
        return message(11, message(5, entry))
    if kind == 3:
        return message(13, message(11, entry))
    if kind == 4:
        return message(1, message(11, message(2, entry)))
    if kind == 5:
        return message(1, message(9, message(1, message(5, entry))))
    return message(13, message(6, message(10, entry)))


class Mutator:
    """Changes of sound files. The smaller a file, the more often it is taken."""

    def __init__(self, seeds: list[Seed]) -> None:
        self.seeds = sorted(seeds, key=lambda seed: seed.name)
        self.messages = [seed for seed in self.seeds if seed.messages()]
        self.chances = [1 / (6000 + self._cost(seed)) for seed in self.seeds]
        self.message_chances = [1 / (6000 + self._cost(seed)) for seed in self.messages]

    @staticmethod
    def _cost(seed: Seed) -> int:
        return sum(len(data) for kind, data in seed.parts if kind != WEIGHTS_DATA) or len(seed.data)

    def case(self, number: str) -> tuple[str, bytes, random.Random]:
        """What was done to which file, the broken file, and the chance that made it."""
        rng = random.Random(number)
        change = rng.choices(CHANGES, CHANGE_CHANCES)[0]
        if change in MESSAGE_CHANGES:
            seed = rng.choices(self.messages, self.message_chances)[0]
        else:
            seed = rng.choices(self.seeds, self.chances)[0]
        data = change(self, seed, rng)
        if rng.random() < 0.1:  # two faults at once
            data = bit_flips(self, Seed(seed.name, data), rng)
        return f"{change.__name__} of {seed.name}", data, rng


def place(seed: Seed, rng: random.Random) -> int:
    """Somewhere that matters: header and tables, or a partition that is not all weights."""
    if not seed.data:
        return 0
    if not seed.parts or rng.random() < 0.3:
        return rng.randrange(min(len(seed.data), 400)) if rng.random() < 0.7 else rng.randrange(len(seed.data))
    sizes = [len(data) if kind != WEIGHTS_DATA else min(len(data), 64) for kind, data in seed.parts]
    chosen = rng.choices(range(len(sizes)), [size + 1 for size in sizes])[0]
    start = len(seed.data) - sum(len(data) for _, data in seed.parts[chosen:])
    return min(start + rng.randrange(sizes[chosen] + 1), len(seed.data) - 1)


def bit_flips(mutator: Mutator, seed: Seed, rng: random.Random) -> bytes:
    data = bytearray(seed.data or b"\0")
    for _ in range(rng.choice((1, 1, 1, 2, 4, 16))):
        at = min(place(seed, rng), len(data) - 1)
        data[at] ^= 1 << rng.randrange(8)
    return bytes(data)


def overwritten(mutator: Mutator, seed: Seed, rng: random.Random) -> bytes:
    at = place(seed, rng)
    width = rng.choice((1, 2, 4, 8, 16, 100))
    new = rng.choice((b"\xff" * width, bytes(width), b"\x80" * width, b"\x7f" * width, rng.randbytes(width)))
    return seed.data[:at] + new + seed.data[at + width :]


def truncated(mutator: Mutator, seed: Seed, rng: random.Random) -> bytes:
    at = (
        rng.choice(seed.boundaries) + rng.choice((-1, 0, 0, 1)) if rng.random() < 0.7 else rng.randrange(len(seed.data))
    )
    return seed.data[: max(0, at)]


def longer(mutator: Mutator, seed: Seed, rng: random.Random) -> bytes:
    return seed.data + rng.choice((b"\0", bytes(512), rng.randbytes(40), seed.data))


def moved(mutator: Mutator, seed: Seed, rng: random.Random) -> bytes:
    """A range is left out, repeated, or put elsewhere."""
    at, length = place(seed, rng), rng.randrange(1, 64)
    block = seed.data[at : at + length]
    kind = rng.randrange(3)
    if kind == 0:
        return seed.data[:at] + seed.data[at + length :]
    to = at if kind == 1 else place(seed, rng)
    return seed.data[:to] + block + seed.data[to:]


def number_lie(mutator: Mutator, seed: Seed, rng: random.Random) -> bytes:
    """A length, offset, count, type or magic is another one."""
    data = bytearray(seed.data)
    for _ in range(rng.choice((1, 1, 1, 2))):
        at, width = rng.choice(seed.numbers)
        if at + width > len(data):
            continue
        value = int.from_bytes(data[at : at + width], "little")
        value = rng.choice(
            (*LIES, value + 1, value - 1, value * 2, value // 2, len(data), len(data) - 256, value ^ 0x80)
        )
        data[at : at + width] = (value & (1 << 8 * width) - 1).to_bytes(width, "little")
    return bytes(data)


def repaired_length(mutator: Mutator, seed: Seed, rng: random.Random) -> bytes:
    """A cut file whose header admits it."""
    if not seed.tables:
        return truncated(mutator, seed, rng)
    at = max(HEADER_BYTES, rng.choice(seed.boundaries) + rng.choice((-1, 0, 1)))
    return with_payload(seed.data, seed.data[HEADER_BYTES:at], seed.wide)


def part_change(mutator: Mutator, seed: Seed, rng: random.Random) -> bytes:
    """Partitions left out, repeated, exchanged, renamed, emptied, resized; taken from another file."""
    if not seed.parts:
        return moved(mutator, seed, rng)
    parts = list(seed.parts)
    k = rng.randrange(len(parts))
    kind = rng.randrange(9)
    if kind == 0:
        del parts[k]
    elif kind == 1:
        parts.insert(k, parts[k])
    elif kind == 2:
        parts = rng.sample(parts, len(parts))
    elif kind == 3:
        parts[k] = (rng.choice((*range(28), 31, 32, 2**31, 2**32 - 1)), parts[k][1])
    elif kind == 4:
        parts[k] = (parts[k][0], rng.choice((b"", b"\0", parts[k][1][: rng.randrange(len(parts[k][1]) + 1)])))
    elif kind == 5:
        other = rng.choices(mutator.messages, mutator.message_chances)[0]
        parts[k] = (parts[k][0], rng.choice(other.parts)[1])
    elif kind == 6:
        other = rng.choices(mutator.messages, mutator.message_chances)[0]
        same = [each for each in other.parts if each[0] == parts[k][0]]
        parts[k] = rng.choice(same or other.parts)
    elif kind == 7:
        parts += rng.choices(parts, k=rng.choice((1, 5, 60, 70)))
        parts = [(kind, data[:2000]) for kind, data in parts]
    else:
        parts.insert(k, (rng.choice((3, 4, 5, 8, 12, 26)), rng.choice(STORES)))
    return with_payload(seed.data, packed(parts, seed.wide), seed.wide)


def overlap(mutator: Mutator, seed: Seed, rng: random.Random) -> bytes:
    """Entries of the table that lie on each other or outside, with a table that is otherwise true."""
    if not seed.parts:
        return overwritten(mutator, seed, rng)
    data = bytearray(seed.data)
    lead, entry, width = (8, 24, 8) if seed.wide else (4, 12, 4)
    k, other = rng.randrange(len(seed.parts)), rng.randrange(len(seed.parts))
    offset_at = seed.tables[0] + lead + entry * k + (8 if seed.wide else 4)
    source = seed.tables[0] + lead + entry * other + (8 if seed.wide else 4)
    data[offset_at : offset_at + width] = data[source : source + width]
    if rng.random() < 0.5:
        data[offset_at + width : offset_at + 2 * width] = data[source + width : source + 2 * width]
    return bytes(data)


def several_models(mutator: Mutator, seed: Seed, rng: random.Random) -> bytes:
    """More models than one, some of them another file's, and a model_num that may lie."""
    chosen = [seed, *rng.choices(mutator.messages, mutator.message_chances, k=rng.choice((1, 1, 2, 7)))]
    payload = b"".join(packed([(k, d[:20000]) for k, d in each.parts or [(0, b"")]], True) for each in chosen)
    head = bytearray(seed.data[:HEADER_BYTES].ljust(HEADER_BYTES, b"\0"))
    head[0:4], head[8:12] = b"IMOD", struct.pack("<I", 0x20000000)
    head[4:8], head[82], head[193] = struct.pack("<I", 256), rng.choice((0, 0, 0, 1)), rng.randrange(2)
    return with_payload(bytes(head), payload, True, len(chosen) + rng.choice((0, 0, 0, 1, -1, 4095, 2**31)))


def nested_files(mutator: Mutator, seed: Seed, rng: random.Random) -> bytes:
    """A file in a bundle or a flow model, in another, and so on."""
    data = seed.data[:60000]
    if rng.random() < 0.5:
        data = bit_flips(mutator, Seed(seed.name, data), rng)
    for _ in range(rng.choice((1, 1, 2, 3, 4, 5, 6, 30))):
        data = bundle([data] * rng.choice((1, 1, 2))) if rng.random() < 0.6 else flow(data)
        if len(data) > 400_000:
            break
    if rng.random() < 0.5:
        data = number_lie(mutator, Seed.of("nested", data) if data[:4] == b"IMOD" else Seed("nested", data), rng)
    return data


def bundle(files: list[bytes]) -> bytes:
    rows = [(25, struct.pack("<q", 1536)), *((24, data) for data in files)]
    offset = 8 + 24 * len(rows)
    table = [struct.pack("<II", len(rows), 0)]
    for kind, data in rows:
        table.append(struct.pack("<IIQQ", kind, 0, offset, len(data)))
        offset += len(data)
    body = b"".join([*table, *(data for _, data in rows)])
    head = bytearray(HEADER_BYTES)
    head[82] = 5
    struct.pack_into("<I", head, 156, len(files))
    struct.pack_into("<Q", head, 184, HEADER_BYTES + len(body))
    return bytes(head) + body


def flow(data: bytes) -> bytes:
    model = message(1, b"flow") + message(7, message(1, b"g"))
    sub = message(1, b"s") + message(2, b"NPU") + message(3, data)
    head = bytearray(HEADER_BYTES)
    head[0:4] = b"IMOD"
    struct.pack_into("<II", head, 4, 256, 0x20000000)
    head[82] = 3
    struct.pack_into("<I", head, 156, 1)
    return with_payload(bytes(head), packed([(0, model), (6, message(1, b"f")), (7, sub), (7, sub[:9])], True), True)


# ---------------------------------------------------------------- messages inside a sound container


def descend(seed: Seed, rng: random.Random) -> tuple[int, list[Field]]:
    """A partition and a way down to one of its fields."""
    part = rng.choice(seed.messages())
    begin, end = 0, len(seed.parts[part][1])
    path: list[Field] = []
    while True:
        level = seed.level(part, begin, end)
        if not level:
            return part, path
        found = rng.choice(level)
        path.append(found)
        begin, end = found.body, found.end
        if found.kind != 2 or rng.random() < 0.12:
            return part, path


def rebuilt(seed: Seed, part: int, path: list[Field], replacement: bytes) -> bytes:
    """The file with the last field of the path replaced and every length around it made true."""
    data = seed.parts[part][1]
    for k in range(len(path) - 1, -1, -1):
        here = path[k]
        begin, end = (path[k - 1].body, path[k - 1].end) if k else (0, len(data))
        body = data[begin : here.start] + replacement + data[here.end : end]
        replacement = data[path[k - 1].start : path[k - 1].length_at] + varint(len(body)) + body if k else body
    parts = list(seed.parts)
    parts[part] = (parts[part][0], replacement)
    return with_payload(seed.data, packed(parts, seed.wide), seed.wide)


def field_lie(mutator: Mutator, seed: Seed, rng: random.Random) -> bytes:
    """The number or the length of a field at any depth is another one, and nothing else is."""
    part, path = descend(seed, rng)
    if not path:
        return bit_flips(mutator, seed, rng)
    target = path[-1] if rng.random() < 0.6 else rng.choice(path)
    start = len(seed.data) - sum(len(data) for _, data in seed.parts[part:])
    at = start + (target.start if rng.random() < 0.3 or target.kind != 2 else target.length_at)
    new = rng.choice((rng.randbytes(1), b"\0", b"\x7f", b"\xff", varint(rng.choice(LIES)), b"\xff" * 10))
    if rng.random() < 0.5:
        return seed.data[:at] + new + seed.data[at + len(new) :]
    _, stop = read_varint(seed.data, at)
    parts = list(seed.parts)
    body = parts[part][1]
    parts[part] = (parts[part][0], body[: at - start] + new + body[stop - start :])
    return with_payload(seed.data, packed(parts, seed.wide), seed.wide)


def field_change(mutator: Mutator, seed: Seed, rng: random.Random) -> bytes:
    """A field at any depth is left out, repeated, emptied, renumbered, given another value or another field's."""
    part, path = descend(seed, rng)
    if not path:
        return bit_flips(mutator, seed, rng)
    data, target = seed.parts[part][1], path[-1]
    whole, body = data[target.start : target.end], data[target.body : target.end]
    kind = rng.randrange(8)
    if kind == 0:
        new = b""
    elif kind == 1:
        new = whole * min(rng.choice(REPEATS), 1 + 300_000 // (len(whole) + 1))
    elif kind == 2:
        new = varint(rng.randrange(1, 36) << 3 | target.kind) + data[target.length_at : target.end]
    elif kind == 3:
        other = rng.choices(mutator.messages, mutator.message_chances)[0]
        elsewhere, way = descend(other, rng)
        found = way[-1] if way else target
        taken = other.parts[elsewhere][1][found.body : found.end] if way else b""
        new = whole + message(target.number, taken) if rng.random() < 0.5 else message(target.number, taken)
    elif target.kind == 0:
        new = varint(target.number << 3) + varint(rng.choice((*LIES, rng.getrandbits(64))))
    elif target.kind == 2:
        new = message(target.number, changed_body(body, rng))
    else:
        new = rng.randbytes(len(whole))
    return rebuilt(seed, part, path, new)


def changed_body(body: bytes, rng: random.Random) -> bytes:
    if REFERENCE.fullmatch(body) and rng.random() < 0.7:
        name, _, number = body.rpartition(b":")
        return rng.choice((name, name + b":", name + b":9", b"?:0", name + b":-1", number, body * 2))
    kind = rng.randrange(5)
    if kind == 0:
        return rng.choice(TEXTS)
    if kind == 1:
        return body[: rng.randrange(len(body) + 1)]
    if kind == 2:
        return b"".join(varint(rng.choice(LIES)) for _ in range(rng.choice((1, 2, 5, 9, 300))))
    if kind == 3:
        return rng.randbytes(rng.choice((1, 2, 8, 40, 5000)))
    return body + rng.choice((body, b"\0", b"\xff", b"\x07"))


def nesting(mutator: Mutator, seed: Seed, rng: random.Random) -> bytes:
    """Attributes in attributes, messages in themselves, graphs in graphs: deep."""
    part, path = descend(seed, rng)
    depth = rng.choice(DEPTHS)
    if rng.random() < 0.4 and path:
        target = next((each for each in path if each.kind == 2), None)
        if target is not None:
            body = seed.parts[part][1][target.body : target.end][:2000]
            wrapped = body
            for _ in range(min(depth, 1000)):
                wrapped = message(target.number, wrapped)
            return rebuilt(seed, part, path[: path.index(target) + 1], wrapped)
    inner = message(2, b"v")
    kinds = [rng.randrange(7)] * 3 if rng.random() < 0.7 else [rng.randrange(7) for _ in range(3)]
    for k in range(min(depth, 3000)):
        inner = deeper(kinds[k % 3], inner)
    entry = message(1, rng.choice((b"deep", b"value", b"origin_shape", b"_init_value"))) + message(2, inner)
    return inserted(seed, rng, entry)


def inserted(seed: Seed, rng: random.Random, entry: bytes) -> bytes:
    """The file with an attribute more: of the model, of a graph, of a node or of a descriptor."""
    part = next((k for k in seed.messages() if seed.parts[k][0] == MODEL_DEF), None)
    if part is None:
        return seed.data
    end = len(seed.parts[part][1])
    path: list[Field] = []
    begin = 0
    number = 11
    for step, attr in ((7, 11), (6, 10), (rng.choice((33, 34)), 5)):
        if rng.random() < 0.25:
            break
        level = [each for each in seed.level(part, begin, end) or () if each.number == step and each.kind == 2]
        if not level:
            break
        path.append(rng.choice(level))
        begin, end, number = path[-1].body, path[-1].end, attr
    here = Field(end, end, end, end, number, 2)
    return rebuilt(seed, part, [*path, here], message(number, entry))


def many_subgraphs(mutator: Mutator, seed: Seed, rng: random.Random) -> bytes:
    """Graphs that name each other: a long chain, a ring, one name for all, or none that exists."""
    part = next((k for k in seed.messages() if seed.parts[k][0] == MODEL_DEF), None)
    if part is None:
        return seed.data
    count = rng.choice((1, 2, 60, 70, 1100, 3000))
    ends = rng.choice((b"s0", b"none", b""))
    names = [b"s%d" % k for k in range(count)]
    graphs = []
    for k, name in enumerate(names):
        following = names[k + 1] if k + 1 < count else ends
        op = message(1, b"n") + message(2, rng.choice((b"If", b"PartitionedCall"))) + message(35, following)
        graphs.append(message(7, message(1, b"s0" if rng.random() < 0.001 else name) + message(6, op)))
    parts = list(seed.parts)
    parts[part] = (MODEL_DEF, parts[part][1] + b"".join(graphs))
    return with_payload(seed.data, packed(parts, seed.wide), seed.wide)


def many_small(mutator: Mutator, seed: Seed, rng: random.Random) -> bytes:
    """Thousands of the smallest things there are: nodes, graphs, attributes, descriptors, tasks, dimensions."""
    count = rng.choice((100, 1000, 4000))
    unit, place = rng.choice(
        ((message(6, b""), "graph"), (message(7, b""), "model"), (message(33, b""), "op"), (message(34, b""), "op"),
         (message(5, b""), "op"), (message(11, b""), "model"), (message(10, b""), "op"), (message(10, b""), "task"),
         (message(28, b"\0" * 9), "op"), (message(35, b""), "op"), (b"\x18\x01", "desc"))
    )  # fmt: skip
    data = unit * count
    part = next((k for k in seed.messages() if seed.parts[k][0] == (TASK_INFO if place == "task" else MODEL_DEF)), None)
    if part is None:
        return seed.data
    path: list[Field] = []
    begin, end = 0, len(seed.parts[part][1])
    for step in {"graph": (7,), "op": (7, 6), "desc": (7, 6, 34)}.get(place, ()):
        level = [each for each in seed.level(part, begin, end) or () if each.number == step and each.kind == 2]
        if not level:
            break
        path.append(rng.choice(level))
        begin, end = path[-1].body, path[-1].end
    return rebuilt(seed, part, [*path, Field(end, end, end, end, 1, 2)], data)


Change = Callable[[Mutator, Seed, random.Random], bytes]
WEIGHTED: tuple[tuple[Change, int], ...] = (
    (bit_flips, 14), (overwritten, 6), (truncated, 6), (longer, 1), (moved, 6), (number_lie, 14), (repaired_length, 3),
    (part_change, 8), (overlap, 2), (several_models, 2), (nested_files, 3),
    (field_lie, 10), (field_change, 18), (nesting, 4), (many_subgraphs, 1), (many_small, 2),
)  # fmt: skip
CHANGES = [change for change, _ in WEIGHTED]
CHANGE_CHANCES = [chance for _, chance in WEIGHTED]
MESSAGE_CHANGES = (field_lie, field_change, nesting, many_subgraphs, many_small, several_models)

_RECORD = struct.pack("<III", 0x5D776EFD, 2, 4) + b"ke\x7fELF"
STORES = (
    _RECORD, _RECORD * 50, _RECORD[:-1], struct.pack("<III", 0x5D776EFD, 2**32 - 1, 2**32 - 1),
    struct.pack("<III", 0x4B43534B, 2, 2) + b"opxx",
    struct.pack("<IIHHIIccc", 1, 0x5D776EFD, 1, 9, 1, 1, b"a", b"b", b"c"), struct.pack("<I", 2**32 - 1),
    struct.pack("<IIIBIBI", 0xDD776EFE, 2, 10, 0, 0, 2, 0), struct.pack("<IIIBI", 0xDD776EFE, 2, 5, 1, 2**32 - 1),
    struct.pack("<III", 0, 4, 2**32 - 1), struct.pack("<IIIQ", 2, 12, 1, 2**64 - 1), struct.pack("<III", 9, 4, 1),
    struct.pack("<IIIQiiIIII", 0, 36, 1, 2**64 - 1, -1, -1, 2**32 - 1, 8, 8, 16),
    struct.pack("<IIII", 3, 12, 2**31, 8), struct.pack("<IIII", 5, 8, 1, 2**32 - 1), bytes(64), b"\xff" * 64,
)  # fmt: skip
