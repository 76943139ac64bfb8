"""`ModelRecord` -> MODEL_DEF bytes (GE: ge.proto.ModelDef).

A node is joined from parts that are encoded once for all nodes that share them: descriptors and attributes repeat
a lot, and 100,000 nodes must take less than two seconds. Large tensors stay references, so that the result is a list
of chunks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from typing import Any

from gecli.ir.attributes import DATA_TYPES, VALUE
from gecli.ir.dtype import DataType
from gecli.ir.format import Format
from gecli.ir.op_desc import OpDesc
from gecli.ir.placement import Placement
from gecli.ir.tensor_desc import TensorDesc
from gecli.ir.weight import Weight
from gecli.pb import ge_ir_pb2 as ge_ir
from gecli.records import dataclass
from gecli.wire.attributes import encode_attr, fill_attr
from gecli.wire.model_record import GraphRecord, ModelRecord
from gecli.wire.om_faults import om_error
from gecli.wire.tensor_desc import ATTR_GROUPS, fill_desc, memo_key
from gecli.wire.writer import bytes_field, header, integer_field, number_field, packed_field, text_field

JOINED_PARTS = 4096  # byte strings
LONG_BYTES = 1 << 16
STREAM_BYTES = 1 << 16  # tensors above this are copied from their source while the file is written
NET_OUTPUT = "NetOutput"

Chunk = bytes | Weight
PortNames = Callable[[OpDesc], tuple[Sequence[str], Sequence[str]]]


@dataclass(frozen=True, slots=True)
class EncodedModel:
    """MODEL_DEF as chunks; a Weight stands for its bytes."""

    chunks: tuple[Chunk, ...]

    @property
    def size_bytes(self) -> int:
        return _size(self.chunks)

    def data(self) -> bytes:
        """All bytes at once: for small models and tests."""
        return b"".join(b"".join(chunk.chunks()) if isinstance(chunk, Weight) else chunk for chunk in self.chunks)


def encode_model(
    model: ModelRecord,
    weight_offsets: Mapping[OpDesc, int] | None = None,
    port_names: PortNames | None = None,
) -> EncodedModel:
    """The MODEL_DEF of `model`, the same bytes for the same model.

    `weight_offsets` gives the place in WEIGHTS_DATA of each Const that lies there; others carry their data.
    `port_names` gives the IR names of a node's inputs and outputs where the node has none of its own.
    """
    body = encode_graphs(model, weight_offsets, port_names)
    return EncodedModel((*body, encode_model_attrs(model.attrs)))


def encode_graphs(
    model: ModelRecord,
    weight_offsets: Mapping[OpDesc, int] | None = None,
    port_names: PortNames | None = None,
) -> tuple[Chunk, ...]:
    """Everything of MODEL_DEF before the model attributes, which depend on its size.

    Raises InputError (bad-graph) when two graphs, or two nodes of a graph, have one name: readers keep one of them.
    """
    _require_names(model)
    encoder = _Encoder(weight_offsets or {}, port_names)
    head = text_field(1, model.name)
    if model.version:
        head += integer_field(2, model.version)
    chunks: list[Chunk] = [head + text_field(3, model.custom_version)]
    for graph in model.graphs:
        parts = encoder.graph(graph)
        chunks.append(header(7, _size(parts)))
        chunks += parts
    return tuple(_joined(chunks))


def _require_names(model: ModelRecord) -> None:
    names = [graph.name for graph in model.graphs]
    if len({*names}) != len(names):
        raise om_error("bad-graph", None, f"two of {len(names)} graphs are named {_first_repeated(names)!r}")
    for graph in model.graphs:
        if len({node.name for node in graph.nodes}) != len(graph.nodes):
            repeated = _first_repeated([node.name for node in graph.nodes])
            raise om_error("bad-graph", None, f"two nodes of graph {graph.name!r} are named {repeated!r}")


def _first_repeated(names: list[str]) -> str:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            break
        seen.add(name)
    return name


def encode_model_attrs(attrs: Mapping[str, Any]) -> bytes:
    """The attribute fields of ModelDef, by name; they stand last in MODEL_DEF."""
    fields = [attr_field(11, name, attrs[name]) for name in sorted(attrs) if name != ATTR_GROUPS]
    if ATTR_GROUPS in attrs:
        fields.append(bytes_field(12, attrs[ATTR_GROUPS].data))
    return b"".join(fields)


def attr_field(number: int, name: str, value: Any) -> bytes:
    """One entry of a map<string, AttrDef> field."""
    return bytes_field(number, _map_key(name) + bytes_field(2, encode_attr(value)))


@dataclass(slots=True)
class _Encoder:
    weight_offsets: Mapping[OpDesc, int]
    port_names: PortNames | None
    streams: bool = False  # the node at hand has a tensor that is copied from its source
    _descs: dict[tuple[Any, ...], bytes] = field(default_factory=dict)
    # By identity, with the descriptor, so that no other one gets its identity: most nodes share theirs.
    _same_descs: dict[tuple[int, int, int], tuple[bytes, TensorDesc]] = field(default_factory=dict)
    _attrs: dict[tuple[Any, ...], bytes] = field(default_factory=dict)
    _ports: dict[tuple[Any, ...], dict[str, bytes]] = field(default_factory=dict)
    _port_blocks: dict[tuple[Any, ...], bytes] = field(default_factory=dict)
    _types: dict[str, bytes] = field(default_factory=dict)
    _offsets: dict[tuple[int, tuple[int, ...]], bytes] = field(default_factory=dict)

    def graph(self, graph: GraphRecord) -> list[Chunk]:
        parts: list[Chunk] = [text_field(1, graph.name)]
        parts += [bytes_field(4, name.encode()) for name in graph.inputs]
        parts += [bytes_field(5, name.encode()) for name in graph.outputs]
        run: list[bytes] = []  # joined now and then: 100,000 small byte strings need twice their bytes
        for position, node in enumerate(graph.nodes):
            self.streams = False
            fields = self.node(node, graph.placements.get(node), position, graph.output_sources)
            if not self.streams:
                data = b"".join(fields)  # type: ignore[arg-type]  # no Weight in it
                run += (header(6, len(data)), data)
                if len(run) < JOINED_PARTS:
                    continue
                fields = []
            if run:
                parts.append(b"".join(run))
                run = []
            if fields:
                parts.append(header(6, _size(fields)))
                parts += fields
        parts += run
        parts += [attr_field(11, name, graph.attrs[name]) for name in sorted(graph.attrs) if name != ATTR_GROUPS]
        if ATTR_GROUPS in graph.attrs:
            parts.append(bytes_field(12, graph.attrs[ATTR_GROUPS].data))
        return parts

    def node(
        self,
        node: OpDesc,
        placement: Placement | None,
        position: int,
        sources: Sequence[tuple[str, int]] = (),
    ) -> list[Chunk]:
        """The fields of one OpDef, in field order. `sources` are the producers by which NetOutput names the outputs."""
        kind = self._types.get(node.type)
        if kind is None:
            kind = self._types[node.type] = text_field(2, node.type)
        fields: list[Chunk] = [text_field(1, node.name), kind]
        fields += [bytes_field(5, text.encode()) for text in _inputs(node)]
        self.attrs(node, fields)
        if ATTR_GROUPS in node.attrs:
            fields.append(bytes_field(11, node.attrs[ATTR_GROUPS].data))
        fields.append(number_field(21, position if placement is None else placement.id))
        if placement is not None:
            fields.append(number_field(22, placement.stream_id))
        if node.type == NET_OUTPUT:  # the names of the model's outputs are made from its producers
            sources = sources or [(port.node.name, port.index) for port in node.data_inputs]
            fields += [bytes_field(24, name.encode()) for name, _ in sources]
            fields.append(packed_field(25, [index for _, index in sources]))
        offsets: Sequence[int] = ()
        if placement is not None:
            offsets = placement.input_offsets
            fields.append(self.offsets(28, placement.input_offsets))
            fields.append(self.offsets(29, placement.output_offsets))
            if placement.workspace_offsets or placement.workspace_bytes:
                fields.append(self.offsets(30, placement.workspace_offsets))
                fields.append(self.offsets(31, placement.workspace_bytes))
        placed = self.weight_offsets
        const = [port is not None and port[0] in placed for port in node.inputs] if placed else []
        if True in const:
            fields.append(self.offsets(32, tuple(const)))
        else:
            const = []
        self.input_descs(node, const, offsets, fields)
        for desc in node.output_descs:
            self.desc(34, desc, fields)
        if node.subgraphs:
            fields += [bytes_field(35, name.encode()) for name in node.subgraphs]
        return fields

    def offsets(self, number: int, values: tuple[int, ...]) -> bytes:
        """A packed field; the places of a feature map come again and again."""
        key = (number, values)
        data = self._offsets.get(key)
        if data is None:
            data = self._offsets[key] = packed_field(number, values)
        return data

    def input_descs(self, node: OpDesc, const: list[bool], offsets: Sequence[int], fields: list[Chunk]) -> None:
        """The input descriptors; `const` tells which inputs are constants with a place, empty when none is."""
        if not node.input_descs and node.type in DATA_TYPES and node.output_descs:
            self.desc(33, node.output_descs[0], fields)
            return
        if not const:
            for desc in node.input_descs:
                if desc is None:
                    fields.append(_ABSENT)
                else:
                    self.desc(33, desc, fields)
            return
        connected = 0
        for slot, desc in enumerate(node.input_descs):
            place = 0
            if slot < len(node.inputs) and node.inputs[slot] is not None:
                if const[slot] and connected < len(offsets):
                    place = offsets[connected]
                connected += 1
            if desc is None:
                fields.append(_ABSENT)
            else:
                self.desc(33, desc, fields, place)

    def desc(self, number: int, desc: TensorDesc, fields: list[Chunk], data_offset: int = 0) -> None:
        """One descriptor field; `data_offset` is the place of the constant that feeds it."""
        same = (id(desc), number, data_offset)
        found = self._same_descs.get(same)
        if found is not None:
            fields.append(found[0])
            return
        if desc.attrs:
            self.desc_with_attrs(number, desc, fields, data_offset)
            return
        key = (number, data_offset, *memo_key(desc))
        data = self._descs.get(key)
        if data is None:
            body = encode_desc(desc)
            if data_offset:
                body += integer_field(18, data_offset)
            data = self._descs[key] = bytes_field(number, body)
        self._same_descs[same] = (data, desc)
        fields.append(data)

    def desc_with_attrs(self, number: int, desc: TensorDesc, fields: list[Chunk], data_offset: int) -> None:
        plain, streamed = desc, {}
        if data_offset and desc.attrs.get("data_offset", data_offset) != data_offset:
            plain = plain.with_attr("data_offset", data_offset)
        for name, value in desc.attrs.items():
            if isinstance(value, Weight) and value.nbytes > STREAM_BYTES:
                plain = plain.without_attr(name)
                streamed[name] = value
        parts: list[Chunk] = [encode_desc(plain)]
        if data_offset and "data_offset" not in desc.attrs:
            parts.append(integer_field(18, data_offset))
        for name in sorted(streamed):
            self.streams = True
            parts += _streamed_attr(5, name, streamed[name])
        fields.append(header(number, _size(parts)))
        fields += parts

    def attrs(self, node: OpDesc, fields: list[Chunk]) -> None:
        """The attribute entries of a node by name: its own and the port names."""
        own = node.attrs
        key = self.port_key(node)
        if not own:
            block = self._port_blocks.get(key)
            if block is None:
                ports = self.port_entries(key)
                block = self._port_blocks[key] = b"".join([ports[name] for name in sorted(ports)])
            fields.append(block)
            return
        ports = self.port_entries(key)
        names = {**ports, **own} if ports else own
        for name in sorted(names):
            if name not in own:
                fields.append(ports[name])
                continue
            value = own[name]
            if isinstance(value, Weight):
                self.weight_attr(node, name, value, fields)
            elif name != ATTR_GROUPS:
                fields.append(self.attr(name, value))

    def attr(self, name: str, value: Any) -> bytes:
        key = _memo(name, value)
        if key is None:
            return attr_field(10, name, value)
        data = self._attrs.get(key)
        if data is None:
            data = self._attrs[key] = attr_field(10, name, value)
        return data

    def weight_attr(self, node: OpDesc, name: str, weight: Weight, fields: list[Chunk]) -> None:
        place = self.weight_offsets.get(node) if name == VALUE else None
        if place is not None:
            data = encode_attr_of_placed(weight, place)
            fields.append(bytes_field(10, _map_key(name) + bytes_field(2, data)))
        elif weight.nbytes > STREAM_BYTES:
            self.streams = True
            fields += _streamed_attr(10, name, weight)
        else:
            fields.append(attr_field(10, name, weight))

    def port_key(self, node: OpDesc) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The IR names of a node's inputs and outputs."""
        inputs, outputs = node.input_names, node.output_names
        if self.port_names is not None and (inputs is None or outputs is None):
            known_inputs, known_outputs = self.port_names(node)
            inputs = tuple(known_inputs) if inputs is None else inputs
            outputs = tuple(known_outputs) if outputs is None else outputs
        return (inputs or ())[: len(node.input_descs)], (outputs or ())[: len(node.output_descs)]

    def port_entries(self, key: tuple[tuple[str, ...], tuple[str, ...]]) -> dict[str, bytes]:
        """`_input_name_key/_value` and `_output_name_key/_value`: the IR name of each port and its index."""
        found = self._ports.get(key)
        if found is None:
            found = self._ports[key] = {**_port_names("input", key[0]), **_port_names("output", key[1])}
        return found


def encode_desc(desc: TensorDesc, *, full: bool = False) -> bytes:
    """The TensorDescriptor bytes of `desc`; `full` as in `fill_desc`."""
    message = ge_ir.TensorDescriptor()
    fill_desc(message, desc, fill_attr, full=full)
    data: bytes = message.SerializeToString(deterministic=True)
    return data


def encode_attr_of_placed(weight: Weight, offset_bytes: int) -> bytes:
    """The `value` of a Const whose bytes lie in WEIGHTS_DATA."""
    message = ge_ir.AttrDef()
    desc = message.t.desc
    fill_desc(desc, weight.desc, fill_attr)
    desc.weight_size = weight.nbytes
    desc.data_offset = offset_bytes
    data: bytes = message.SerializeToString(deterministic=True)
    return data


def _streamed_attr(number: int, name: str, weight: Weight) -> list[Chunk]:
    """A tensor attribute whose data are copied from their source: the nested lengths are known, the bytes not."""
    desc = bytes_field(1, encode_desc(weight.desc))
    tensor: list[Chunk] = [desc, header(2, weight.nbytes), weight]
    attr: list[Chunk] = [header(12, _size(tensor)), *tensor]
    entry: list[Chunk] = [_map_key(name), header(2, _size(attr)), *attr]
    return [header(number, _size(entry)), *entry]


def _inputs(node: OpDesc) -> list[str]:
    """Data inputs slot by slot, then one entry a control predecessor."""
    if not node.input_descs and node.type in DATA_TYPES:
        texts = [""]  # GE's Data nodes have one input that nothing feeds
    else:
        texts = ["" if port is None else f"{port[0].name}:{port[1]}" for port in node.inputs]
    if node.control_in:
        texts += [f"{before.name}:-1" for before in node.control_in]
    return texts


def _port_names(side: str, names: tuple[str, ...]) -> dict[str, bytes]:
    if not names:
        return {}
    keys, values = ge_ir.AttrDef(), ge_ir.AttrDef()
    # GE leaves val_type 0 in these two lists.
    keys.list.s.extend(name.encode() for name in names)
    values.list.i.extend(range(len(names)))
    entries = {f"_{side}_name_key": keys, f"_{side}_name_value": values}
    return {
        key: bytes_field(10, _map_key(key) + bytes_field(2, message.SerializeToString()))
        for key, message in entries.items()
    }


def _memo(name: str, value: Any) -> tuple[Any, ...] | None:
    """A key under which the encoded attribute can be found again; None where values that compare equal differ."""
    kind = type(value)
    if kind in _MEMO_TYPES:
        return (name, kind, value)
    if kind is float:
        return (name, kind, value) if value else None  # 0.0 and -0.0 compare equal
    if kind is tuple and len(value) <= 16:
        kinds = {type(item) for item in value}
        if len(kinds) <= 1 and kinds <= _MEMO_TYPES:
            return (name, *kinds, value)
    return None


def _map_key(name: str) -> bytes:
    return bytes_field(1, name.encode("utf-8"))


def _size(parts: Iterable[Chunk]) -> int:
    return sum(part.nbytes if isinstance(part, Weight) else len(part) for part in parts)


def _joined(chunks: list[Chunk]) -> list[Chunk]:
    """Neighbouring byte strings made one, except long ones, which would lie in memory twice."""
    out: list[Chunk] = []
    run: list[bytes] = []
    for chunk in chunks:
        if isinstance(chunk, Weight) or len(chunk) > LONG_BYTES:
            out += [b"".join(run), chunk]
            run = []
        else:
            run.append(chunk)
    if run:
        out.append(b"".join(run))
    return out


_MEMO_TYPES = frozenset((bool, int, str, DataType, Format))
_ABSENT = bytes_field(33, bytes_field(4, b"FORMAT_RESERVED"))  # an optional input that is not connected
