"""MODEL_INOUT_INFO: names, dims and sizes of a model's inputs and outputs, and its gears (GE: ModelInOutInfo)."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from gecli.errors import InputError
from gecli.ir.attributes import DATA_INDEX, DATA_TYPES
from gecli.ir.dtype import DataType
from gecli.ir.format import Format
from gecli.records import dataclass
from gecli.wire.byte_source import ByteSource
from gecli.wire.om_faults import om_error

if TYPE_CHECKING:
    from gecli.ir.tensor_desc import TensorDesc
    from gecli.wire.model_record import GraphRecord, ModelRecord

T = TypeVar("T")
INPUTS, OUTPUTS, BATCH, IMAGE, DIMS, OUTPUT_SHAPES, SHAPE_ORDER = range(7)
_BLOCKS = ("inputs", "outputs", "dynamic_batch", "dynamic_hw", "dynamic_dims", "output_shapes", "shape_order")
_HEAD = struct.Struct("<QiiIIII")
MAX_INOUT_BYTES = 4 << 20  # real ones have some hundred bytes; as numbers they need up to six times their size


@dataclass(frozen=True, slots=True)
class ModelTensor:
    """One input or output. `format` and `dtype` are GE's numbers; `size_bytes` is 0 when unknown."""

    name: str
    size_bytes: int
    format: int
    dtype: int
    dims: tuple[int, ...]
    dims_v2: tuple[int, ...]
    shape_range: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class InOutInfo:
    """The whole partition. `unknown_blocks` are block types that this version does not read."""

    inputs: tuple[ModelTensor, ...] = ()
    outputs: tuple[ModelTensor, ...] = ()
    dynamic_batch: tuple[int, ...] = ()
    dynamic_hw: tuple[tuple[int, ...], ...] = ()
    dynamic_dims: tuple[tuple[int, ...], ...] = ()
    output_shapes: tuple[str, ...] = ()
    shape_order: tuple[str, ...] = ()
    unknown_blocks: tuple[int, ...] = ()

    def pack(self) -> bytes:
        """The partition's bytes; blocks without content are left out."""
        blocks = [
            (INPUTS, _pack_tensors(self.inputs)),
            (OUTPUTS, _pack_tensors(self.outputs)),
            (BATCH, _counted(self.dynamic_batch, struct.pack(f"<{len(self.dynamic_batch)}Q", *self.dynamic_batch))),
            (IMAGE, _pack_rows(self.dynamic_hw)),
            (DIMS, _pack_rows(self.dynamic_dims)),
            (OUTPUT_SHAPES, _pack_texts(self.output_shapes)),
            (SHAPE_ORDER, _pack_texts(self.shape_order)),
        ]
        return b"".join(struct.pack("<II", kind, len(data)) + data for kind, data in blocks if data)


def parse_inout_info(data: bytes | ByteSource, *, path: str | None = None, offset: int = 0) -> InOutInfo:
    """The partition's content. Raises InputError (bad-inout) naming the file offset."""
    size = len(data) if isinstance(data, bytes) else data.size
    if size > MAX_INOUT_BYTES:
        raise _Reader(b"", path, offset).fail(f"{size} bytes, at most {MAX_INOUT_BYTES} are read")
    reader = _Reader(data if isinstance(data, bytes) else data.read(0, size), path, offset)
    data = reader.data
    blocks: dict[int, Any] = {}
    unknown: list[int] = []
    while reader.left:
        kind, length = reader.u32(), reader.u32()
        reader.require(length, f"block {kind}")
        end = reader.end = reader.position + length
        if kind in blocks:
            raise reader.fail(f"block {kind} occurs twice")
        if kind in (INPUTS, OUTPUTS):
            blocks[kind] = tuple(reader.tensor(end) for _ in range(reader.count(end, _HEAD.size)))
        elif kind == BATCH:
            count = reader.count(end, 8)
            blocks[kind] = reader.words("Q", count * 8)
        elif kind in (IMAGE, DIMS):
            blocks[kind] = tuple(reader.words("Q", length * 8) for length in reader.lengths(end))
        elif kind in (OUTPUT_SHAPES, SHAPE_ORDER):
            blocks[kind] = tuple(reader.text(length) for length in reader.lengths(end))
        else:
            unknown.append(kind)
            reader.position = end
        if reader.position != end:
            raise reader.fail(f"block {kind} has {length} bytes, its content ends {end - reader.position} before that")
        reader.end = len(data)
    return InOutInfo(**{name: blocks.get(kind, ()) for kind, name in enumerate(_BLOCKS)}, unknown_blocks=tuple(unknown))


def is_inout_info(data: bytes) -> bool:
    """True for a well-formed block list that names inputs or outputs."""
    try:
        found = parse_inout_info(data)
    except InputError:
        return False
    return bool(found.inputs or found.outputs)


def inout_of(model: ModelRecord) -> InOutInfo:
    """What a model query reports, derived from the graph."""
    root = model.root
    inputs = sorted(root.nodes_of(*DATA_TYPES), key=lambda node: _number(node.attrs.get(DATA_INDEX)))
    outputs: tuple[ModelTensor, ...] = ()
    dynamic_output: tuple[str, ...] = ()
    for node in root.nodes_of("NetOutput"):
        outputs = _outputs(node, _all(str, model.attrs.get("attr_model_out_nodes_name")), root.output_sources)
        dynamic_output = _all(str, node.attrs.get("_dynamic_output_dims"))
    gears, order = _gears(root)
    return InOutInfo(
        tuple(_input(node) for node in inputs if node.output_descs or node.input_descs),
        outputs,
        tuple(row[0] for row in gears.get(1, ()) if row),
        tuple(gears.get(2, ())),
        tuple(gears.get(3, ())),
        dynamic_output,
        order,
    )


def _input(node: Any) -> ModelTensor:
    first = node.input_descs[0] if node.input_descs and node.input_descs[0] is not None else node.output_descs[0]
    desc: TensorDesc = first
    aipp, gears = node.attrs.get("_dynamic_aipp_input_dims"), node.attrs.get("_mbatch_origin_input_dims")
    dims = _all(int, aipp) or _all(int, gears) or desc.shape
    static_aipp = _all(int, node.attrs.get("input_dims"))
    ranges = () if static_aipp else desc.shape_range or ()
    return ModelTensor(
        node.name,
        plain_bytes(desc),
        int(desc.format),
        int(desc.dtype),
        dims,
        static_aipp or dims,
        ranges,
    )


def _outputs(node: Any, names: Sequence[str], sources: Sequence[tuple[str, int]]) -> tuple[ModelTensor, ...]:
    """Named by `names`, else by the producers that NetOutput itself names, else by its inputs."""
    found: list[ModelTensor] = []
    for slot, port in enumerate(node.inputs):
        desc = node.input_descs[slot]
        if port is None or desc is None:
            continue
        position = len(found)
        producer, index = sources[position] if position < len(sources) else (port.node.name, port.index)
        name = f"output_{position}_{producer}_{index}"
        if len(names) == len(node.data_inputs):
            name = names[position]
            if ":" not in name:
                name = f"{name}:{index}"
        found.append(_output(name, desc))
    return tuple(found)


def _output(name: str, desc: TensorDesc) -> ModelTensor:
    dims = desc.shape
    if desc.format.primary == Format.FRACTAL_Z and len(dims) == 4:
        dims = (dims[2], dims[3], dims[1], dims[0])
    ranges = desc.shape_range or ()
    return ModelTensor(name, plain_bytes(desc), int(desc.format), int(desc.dtype), dims, dims, ranges)


def plain_bytes(desc: TensorDesc) -> int:
    """Bytes without padding; 0 when a dim or the width is unknown."""
    if not desc.is_static or desc.dtype.bits is None:
        return 0
    count = desc.nbytes
    return count if count < 1 << 63 else 0


def _gears(root: GraphRecord) -> tuple[dict[int, list[tuple[int, ...]]], tuple[str, ...]]:
    """Gear rows by kind (1 batch, 2 image, 3 dims) of the Case node that dispatches them."""
    for node in root.nodes_of("Case"):
        kind, count = node.attrs.get("mbatch_dynamic_type"), node.attrs.get("_batch_num")
        if isinstance(kind, int) and isinstance(count, int) and 0 < count <= 1024:
            rows = [_all(int, node.attrs.get(f"_pred_value_{k}")) for k in range(count)]
            return {kind: [row for row in rows if row]}, _all(str, node.attrs.get("user_designate_shape_order"))
    return {}, ()


def _all(kind: type[T], value: Any) -> tuple[T, ...]:
    """The list of an attribute if every element is of this kind; nothing for whatever else a file may hold there."""
    if not isinstance(value, tuple) or not all(isinstance(item, kind) for item in value):
        return ()
    return value


def _number(value: Any) -> int:
    return value if isinstance(value, int) else 0


def _pack_tensors(tensors: Sequence[ModelTensor]) -> bytes:
    return _counted(tensors, b"".join(map(_pack_tensor, tensors)))


def _pack_tensor(tensor: ModelTensor) -> bytes:
    name = tensor.name.encode("utf-8", "surrogateescape")
    ranges = [value for pair in tensor.shape_range for value in pair]
    words = [struct.pack(f"<{len(row)}q", *row) for row in (tensor.dims, tensor.dims_v2, ranges)]
    lengths = [len(name), *map(len, words)]
    return _HEAD.pack(tensor.size_bytes, tensor.format, tensor.dtype, *lengths) + name + b"".join(words)


def _pack_rows(rows: Sequence[Sequence[int]]) -> bytes:
    lengths = struct.pack(f"<{len(rows)}I", *map(len, rows))
    return _counted(rows, lengths + b"".join(struct.pack(f"<{len(row)}Q", *row) for row in rows))


def _pack_texts(texts: Sequence[str]) -> bytes:
    data = [text.encode("utf-8", "surrogateescape") for text in texts]
    return _counted(texts, struct.pack(f"<{len(data)}I", *map(len, data)) + b"".join(data))


def _counted(items: Sequence[object], data: bytes) -> bytes:
    return struct.pack("<I", len(items)) + data if items else b""


class _Reader:
    """Bounds are checked before anything is read."""

    def __init__(self, data: bytes, path: str | None, offset: int) -> None:
        self.data = data
        self.path = path
        self.offset = offset
        self.position = 0
        self.end = len(data)  # of the block at hand

    @property
    def left(self) -> int:
        return self.end - self.position

    def fail(self, message: str, **fields: Any) -> InputError:
        message = f"MODEL_INOUT_INFO: {message}"
        return om_error("bad-inout", self.path, message, self.offset + self.position, **fields)

    def require(self, length: int, what: str) -> None:
        if length > self.left:
            raise self.fail(f"{what} needs {length} bytes, {self.left} are left", expected=length, actual=self.left)

    def take(self, length: int, what: str) -> bytes:
        self.require(length, what)
        data = self.data[self.position : self.position + length]
        self.position += length
        return data

    def u32(self) -> int:
        return int.from_bytes(self.take(4, "a number"), "little")

    def count(self, end: int, least: int) -> int:
        """A count whose items of at least `least` bytes fit before `end`."""
        count = self.u32()
        if count * least > end - self.position:
            raise self.fail(f"{count} entries do not fit {end - self.position} bytes", actual=count)
        return count

    def lengths(self, end: int) -> Iterable[int]:
        count = self.count(end, 4)
        return struct.unpack(f"<{count}I", self.take(4 * count, "the lengths"))

    def words(self, code: str, length: int) -> tuple[int, ...]:
        if length % 8:
            raise self.fail(f"{length} bytes are not whole 64-bit numbers", actual=length)
        return struct.unpack(f"<{length // 8}{code}", self.take(length, "a list of numbers"))

    def text(self, length: int) -> str:
        return self.take(length, "a text").decode("utf-8", "surrogateescape")

    def tensor(self, end: int) -> ModelTensor:
        if end - self.position < _HEAD.size:
            raise self.fail(f"a tensor needs {_HEAD.size} bytes, {end - self.position} are left")
        size, fmt, dtype, name_len, dims_len, dims_v2_len, range_len = _HEAD.unpack(self.take(_HEAD.size, "a tensor"))
        if range_len % 16:
            raise self.fail(f"a shape range of {range_len} bytes is not whole pairs", actual=range_len)
        name = self.text(name_len)
        dims, dims_v2 = self.words("q", dims_len), self.words("q", dims_v2_len)
        ranges = self.words("q", range_len)
        return ModelTensor(name, size, fmt, dtype, dims, dims_v2, tuple(zip(ranges[::2], ranges[1::2])))


def dtype_name(number: int) -> str:
    """The name of a GE data type number; unknown numbers keep their number."""
    try:
        return DataType(number).serial
    except ValueError:
        return f"UNKNOWN_{number}"
