"""OM files written from the format's description alone: struct and hand-made varints, nothing of gecli.

Everything here is a second opinion about the bytes. It must not import gecli.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field

Parts = list[tuple[int, bytes]]


# ---------------------------------------------------------------- protobuf wire format


def varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    out = bytearray()
    while True:
        low, value = value & 0x7F, value >> 7
        out.append(low | (0x80 if value else 0))
        if not value:
            return bytes(out)


def number(tag: int, value: int) -> bytes:
    return varint(tag << 3 | 0) + varint(value)


def blob(tag: int, data: bytes) -> bytes:
    return varint(tag << 3 | 2) + varint(len(data)) + data


def single(tag: int, value: float) -> bytes:
    return varint(tag << 3 | 5) + struct.pack("<f", value)


def packed(tag: int, values: Sequence[int]) -> bytes:
    return blob(tag, b"".join(map(varint, values))) if values else b""


# ---------------------------------------------------------------- ge.proto, section 3


def attr_s(text: str) -> bytes:
    return blob(2, text.encode())


def attr_i(value: int) -> bytes:
    return number(3, value)


def attr_f(value: float) -> bytes:
    return single(4, value)


def attr_b(value: bool) -> bytes:
    return number(5, int(value))


def attr_bt(data: bytes) -> bytes:
    return blob(7, data)


def attr_func(name: str, attrs: dict[str, bytes]) -> bytes:
    return blob(10, named(name, attrs))


def attr_td(descriptor: bytes) -> bytes:
    return blob(11, descriptor)


def attr_t(tensor: bytes) -> bytes:
    return blob(12, tensor)


def attr_g(graph: bytes) -> bytes:
    return blob(13, graph)


def attr_rows(rows: Sequence[Sequence[int]]) -> bytes:
    return blob(14, b"".join(blob(1, packed(1, row)) for row in rows))


def attr_dt(ge_number: int) -> bytes:
    return number(15, ge_number)


def attr_float_rows(rows: Sequence[Sequence[float]]) -> bytes:
    lists = [blob(1, struct.pack(f"<{len(row)}f", *row)) for row in rows]
    return blob(16, b"".join(blob(1, each) for each in lists))


def attr_expression(data: bytes) -> bytes:
    return blob(17, data)


def attr_list(content: bytes, val_type: int = 0) -> bytes:
    return blob(1, content + (number(20, val_type) if val_type else b""))


def strings(*texts: str) -> bytes:
    return b"".join(blob(2, text.encode()) for text in texts)


def attr_strings(*texts: str, val_type: int = 1) -> bytes:
    return attr_list(strings(*texts), val_type)


def attr_ints(*values: int, val_type: int = 2) -> bytes:
    return attr_list(packed(3, values), val_type)


def attr_bools(*values: bool, val_type: int = 4) -> bytes:
    return attr_list(packed(5, [int(value) for value in values]), val_type)


def entries(tag: int, attrs: dict[str, bytes]) -> bytes:
    return b"".join(blob(tag, blob(1, key.encode()) + blob(2, value)) for key, value in attrs.items())


def named(name: str, attrs: dict[str, bytes]) -> bytes:
    return blob(1, name.encode()) + entries(2, attrs)


def descriptor(
    proto_dtype: int,
    dims: Sequence[int],
    layout: str = "ND",
    attrs: dict[str, bytes] | None = None,
    *,
    size: int = 0,
    weight_size: int = 0,
    data_offset: int = 0,
) -> bytes:
    out = number(2, proto_dtype) + blob(3, packed(1, dims)) + blob(4, layout.encode()) + entries(5, attrs or {})
    for tag, value in ((10, size), (11, weight_size), (18, data_offset)):
        out += number(tag, value) if value else b""
    return out


ABSENT = blob(4, b"FORMAT_RESERVED")  # an optional input that is not connected


def tensor(descriptor_bytes: bytes, data: bytes = b"") -> bytes:
    return blob(1, descriptor_bytes) + (blob(2, data) if data else b"")


def operator(
    name: str,
    kind: str,
    ident: int,
    inputs: Sequence[str] = (),
    attrs: dict[str, bytes] | None = None,
    in_descs: Sequence[bytes] = (),
    out_descs: Sequence[bytes] = (),
    *,
    stream: int = 0,
    input_i: Sequence[int] = (),
    output_i: Sequence[int] = (),
    workspace: Sequence[tuple[int, int]] = (),
    subgraphs: Sequence[str] = (),
    sources: Sequence[tuple[str, int]] = (),
) -> bytes:
    out = blob(1, name.encode()) + blob(2, kind.encode())
    out += b"".join(blob(5, text.encode()) for text in inputs)
    out += entries(10, attrs or {}) + number(20, 1) + number(21, ident) + number(22, stream)
    out += b"".join(blob(24, source.encode()) for source, _ in sources)
    out += packed(25, [index for _, index in sources])
    out += packed(28, input_i) + packed(29, output_i)
    out += packed(30, [offset for offset, _ in workspace]) + packed(31, [size for _, size in workspace])
    out += b"".join(blob(33, each) for each in in_descs) + b"".join(blob(34, each) for each in out_descs)
    return out + b"".join(blob(35, each.encode()) for each in subgraphs)


def graph(
    name: str, operators: Sequence[bytes], attrs: dict[str, bytes] | None = None, inputs: Sequence[str] = ()
) -> bytes:
    out = blob(1, name.encode()) + b"".join(blob(4, each.encode()) for each in inputs)
    return out + b"".join(blob(6, each) for each in operators) + entries(11, attrs or {})


def model(name: str, graphs: Sequence[bytes], attrs: dict[str, bytes] | None = None) -> bytes:
    out = blob(1, name.encode()) + number(2, 2) + blob(3, b"1.11.z.0")
    return out + b"".join(blob(7, each) for each in graphs) + entries(11, attrs or {})


# ---------------------------------------------------------------- name compression, section 5


def coded(index: int) -> str:
    digits = bytearray(b"\0")
    while True:
        digits.append(index % 127 + 1)
        index //= 127
        if not index:
            return digits.decode("ascii")


@dataclass
class Dictionary:
    """The name dictionary of one model, filled while its attributes are coded."""

    names: list[str] = field(default_factory=list)
    values: list[str] = field(default_factory=list)
    flags: list[bool] = field(default_factory=list)

    def name(self, text: str, is_text: bool = False) -> str:
        if text not in self.names:
            self.names.append(text)
            self.flags.append(is_text)
        return coded(self.names.index(text))

    def value(self, text: str) -> int:
        if text not in self.values:
            self.values.append(text)
        return self.values.index(text)

    def text(self, name: str, text: str) -> dict[str, bytes]:
        """A string attribute under a coded name."""
        return {self.name(name, True): attr_i(self.value(text))}

    def texts(self, name: str, *texts: str) -> dict[str, bytes]:
        return {self.name(name, True): attr_ints(*map(self.value, texts))}

    def plain(self, name: str, value: bytes) -> dict[str, bytes]:
        return {self.name(name): value}

    def attrs(self, version: int = 1) -> dict[str, bytes]:
        return {
            "om_compress_version": attr_i(version),
            "attr_name_enum": attr_strings(*self.names),
            "attr_value_enum": attr_strings(*self.values),
            "attrs_use_string_value": attr_bools(*self.flags),
        }


# ---------------------------------------------------------------- container, section 1


def header_v2(
    payload: int,
    *,
    narrow: bool = False,
    version: int = 0x20000000,
    modeltype: int = 0,
    model_num: int = 1,
    dynamic: bool = False,
    name: str = "spec",
    platform: str = "1.11.z.0",
) -> bytes:
    head = struct.pack("<4sIII", b"IMOD", 256, version, 0)[:12] + bytes(64)
    head += struct.pack("<IBBBB", payload if narrow else 0, 0, 0, modeltype, 0)
    head += name.encode().ljust(32, b"\0") + struct.pack("<I", 0) + bytes(32)
    head += struct.pack("<II", 2, model_num) + platform.encode().ljust(20, b"\0") + struct.pack("<B", 1) + bytes(3)
    head += struct.pack("<QBB", 0 if narrow else payload, 0, int(dynamic)) + bytes(62)
    assert len(head) == 256
    return head


def header_v1(payload: int, *, modeltype: int = 0, name: str = "spec", platform: str = "1.11.z.0") -> bytes:
    head = struct.pack("<4sII", b"IMOD", 256, 0x10000000) + bytes(64)
    head += struct.pack("<IBBBB", payload, 0, 0, modeltype, 0)
    head += name.encode().ljust(32, b"\0") + struct.pack("<I", 0) + bytes(32) + struct.pack("<I", 2)
    head += platform.encode().ljust(20, b"\0") + struct.pack("<B", 1)
    return head.ljust(256, b"\0")


def wide(parts: Parts, start: int = 0) -> bytes:
    rows, offset = [struct.pack("<II", len(parts), 0)], start
    for kind, data in parts:
        rows.append(struct.pack("<IIQQ", kind, 0, offset, len(data)))
        offset += len(data)
    return b"".join(rows) + b"".join(data for _, data in parts)


def narrow(parts: Parts) -> bytes:
    rows, offset = [struct.pack("<I", len(parts))], 0
    for kind, data in parts:
        rows.append(struct.pack("<III", kind, offset, len(data)))
        offset += len(data)
    return b"".join(rows) + b"".join(data for _, data in parts)


def om_v1(parts: Parts, modeltype: int = 0, platform: str = "1.11.z.0") -> bytes:
    payload = narrow(parts)
    return header_v1(len(payload), modeltype=modeltype, platform=platform) + payload


def om_narrow(parts: Parts) -> bytes:
    payload = narrow(parts)
    return header_v2(len(payload), narrow=True) + payload


def om_wide(
    *models: Parts, modeltype: int = 0, dynamic: bool = False, version: int = 0x20000000, model_num: int | None = None
) -> bytes:
    payload = b"".join(map(wide, models))
    count = len(models) if model_num is None else model_num
    head = header_v2(len(payload), modeltype=modeltype, model_num=count, dynamic=dynamic, version=version)
    return head + payload


def om_bundle(models: Sequence[bytes], magic: bytes = bytes(4)) -> bytes:
    parts = [(25, struct.pack("<q", 4096)), *((24, each) for each in models)]
    payload = wide(parts, 8 + 24 * len(parts))
    head = bytearray(header_v2(256 + len(payload), modeltype=5, model_num=len(models)))
    if magic != b"IMOD":  # GE fills modeltype, model_num and model_length only
        head = bytearray(256)
        head[82] = 5
        head[156:160] = struct.pack("<I", len(models))
        head[184:192] = struct.pack("<Q", 256 + len(payload))
    return bytes(head) + payload


def om_nano(parts: Parts) -> bytes:
    """A preload file whose partitions are padded to multiples of 8."""
    rows, offset, body = [struct.pack("<II", len(parts), 0)], 0, b""
    for kind, data in parts:
        rows.append(struct.pack("<IIQQ", kind, 0, offset, len(data)))
        padded = data + bytes(-len(data) % 8)
        body += padded
        offset += len(padded)
    payload = b"".join(rows) + body
    return header_v2(len(payload), modeltype=4) + payload


def submodel(name: str, kind: str, om_data: bytes = b"", path: str = "") -> bytes:
    out = blob(1, name.encode()) + blob(2, kind.encode()) + (blob(3, om_data) if om_data else b"")
    return out + (blob(9, path.encode()) if path else b"")


def flow_model(name: str, submodels: Sequence[str]) -> bytes:
    return blob(1, name.encode()) + b"".join(blob(3, each.encode()) for each in submodels)


# ---------------------------------------------------------------- other partitions, sections 7 and 8


def kernel_task(op_index: int, args: Sequence[int], stub: str) -> bytes:
    context = number(1, 2) + number(4, op_index) + blob(6, b"\0\0") + number(7, len(args))
    kernel = blob(1, context) + blob(10, stub.encode()) + number(11, 2) + number(12, 8 * len(args))
    kernel += blob(13, struct.pack(f"<{len(args)}Q", *args)) + blob(17, b"te_kernel")
    return number(2, 0) + blob(20, kernel)


def task_info(tasks: Sequence[bytes], memory: int, weights: int) -> bytes:
    return b"".join(blob(10, each) for each in tasks) + number(11, memory) + number(14, weights)


def kernel(name: str, data: bytes, magic: int = 0x5D776EFD) -> bytes:
    return struct.pack("<III", magic, len(name.encode()), len(data)) + name.encode() + data


def libraries(*records: tuple[str, str, int, bytes]) -> bytes:
    out = [struct.pack("<I", len(records))]
    for name, vendor, kind, data in records:
        out.append(struct.pack("<IHHII", 0x5D776EFD, len(name), kind, len(vendor), len(data)))
        out += [name.encode(), vendor.encode(), data]
    return b"".join(out)


def tiling(*records: tuple[int, bytes]) -> bytes:
    body = b"".join(struct.pack("<BI", tag, len(data)) + data for tag, data in records)
    return struct.pack("<III", 0xDD776EFE, 2, len(body)) + body


def io_tensor(
    name: str, size: int, fmt: int, dtype: int, dims: Sequence[int], ranges: Sequence[tuple[int, int]] = ()
) -> bytes:
    flat = [bound for pair in ranges for bound in pair]
    words = struct.pack(f"<{2 * len(dims) + len(flat)}q", *dims, *dims, *flat)
    head = struct.pack("<QiiIIII", size, fmt, dtype, len(name), 8 * len(dims), 8 * len(dims), 8 * len(flat))
    return head + name.encode() + words


def block(kind: int, data: bytes) -> bytes:
    return struct.pack("<II", kind, len(data)) + data


def tensors_block(kind: int, *tensors: bytes) -> bytes:
    return block(kind, struct.pack("<I", len(tensors)) + b"".join(tensors))


def rows_block(kind: int, *rows: Sequence[int]) -> bytes:
    lengths = struct.pack(f"<{len(rows)}I", *map(len, rows))
    values = b"".join(struct.pack(f"<{len(row)}Q", *row) for row in rows)
    return block(kind, struct.pack("<I", len(rows)) + lengths + values)


def texts_block(kind: int, *texts: str) -> bytes:
    lengths = struct.pack(f"<{len(texts)}I", *map(len, texts))
    return block(kind, struct.pack("<I", len(texts)) + lengths + "".join(texts).encode())


def batch_block(*sizes: int) -> bytes:
    return block(2, struct.pack(f"<I{len(sizes)}Q", len(sizes), *sizes))
