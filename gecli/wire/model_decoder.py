"""MODEL_DEF bytes -> `ModelRecord`, with every check a foreign file needs (GE: ge.proto.ModelDef)."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from google.protobuf.message import DecodeError

from gecli.errors import InputError
from gecli.ir.attributes import DATA_TYPES, RawAttr
from gecli.ir.dtype import DataType
from gecli.ir.format import Format
from gecli.ir.op_desc import OpDesc, Port, Use
from gecli.ir.placement import Placement
from gecli.ir.tensor_desc import TensorDesc
from gecli.pb import ge_ir_pb2 as ge_ir
from gecli.wire.attribute_names import MAX_ROUNDS, AttrNames
from gecli.wire.attributes import AttrReader, WeightArea
from gecli.wire.byte_source import ByteSource, MemorySource
from gecli.wire.decode_errors import DECODE_ERRORS
from gecli.wire.ge_ir_shapes import MODEL
from gecli.wire.model_record import GraphRecord, ModelRecord
from gecli.wire.tensor_desc import ATTR_GROUPS, Message
from gecli.wire.walker import WireError, strip_large_fields

MAX_MODEL_DEF_BYTES = 1 << 31


def decode_model(
    data: bytes | ByteSource,
    *,
    path: str | None = None,
    file_size: int = 0,
    weights: WeightArea | None = None,
    root_names: AttrNames | None = None,
) -> ModelRecord:
    """The model in MODEL_DEF bytes; tensors in the file stay references.

    `root_names` is the name dictionary of the root model, for the further models of a file. Raises InputError
    (bad-proto) when the bytes are no ModelDef; what is wrong in the graph is collected in `problems`.
    """
    where = "MODEL_DEF"
    source: ByteSource = MemorySource(data) if isinstance(data, bytes) else data
    try:
        with _collector_paused():
            return _Decoder(source, path or source.path, file_size, weights, root_names).model()
    except (*DECODE_ERRORS, WireError) as error:
        at = source.base + error.offset if isinstance(error, WireError) else source.base
        raise InputError(
            "G3004",
            f"MODEL_DEF is not a readable model: {error}",
            kind="bad-proto",
            where=where,
            file=path or source.path,
            offset=at,
        ) from error


@contextmanager
def _collector_paused() -> Iterator[None]:
    """Linked nodes are cycles that the collector would walk again and again while they grow in number."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


class _Decoder:
    def __init__(
        self,
        source: ByteSource,
        path: str | None,
        file_size: int,
        weights: WeightArea | None,
        root_names: AttrNames | None,
    ) -> None:
        self.source = source
        self.root_names = root_names
        self.reader = AttrReader(path, file_size, weights)

    def model(self) -> ModelRecord:
        reader = self.reader
        if self.source.size > MAX_MODEL_DEF_BYTES:
            raise DecodeError(f"{self.source.size} bytes are more than 2 GiB")
        if self.source.path is None:
            data = self.source.read(0, self.source.size)
        else:
            data = strip_large_fields(self.source, MODEL)
        message = ge_ir.ModelDef.FromString(data)
        del data
        attrs = _plain_attrs(reader, message)
        own = AttrNames.of(attrs)
        if attrs.get("om_compress_version") not in (None, 1):
            reader.problem("G3014", "bad-attr-enum", "attribute names are compressed in an unknown way", "warning")
        reader.names = _rounds(own, self.root_names)
        graphs = [self.graph(ge_ir.GraphDef.FromString(item)) for item in message.graph]
        model = ModelRecord(
            message.name,
            graphs,
            attrs,
            message.version,
            message.custom_version,
            reader.problems,
            len(own.names) if own else 0,
            reader.unreadable_names,
        )
        self.check_subgraphs(model)
        return model

    def graph(self, message: Message) -> GraphRecord:
        reader = self.reader
        record = GraphRecord(message.name, [], inputs=tuple(message.input), outputs=tuple(message.output))
        reader.where = f"graph {message.name!r}"
        record.attrs = _plain_attrs(reader, message)
        by_name: dict[str, OpDesc] = {}
        for op in message.op:
            node = self.node(op)
            record.nodes.append(node)
            record.placements[node] = _placement(op)
            if by_name.setdefault(node.name, node) is not node:
                self.warn(node, f"graph {record.name!r} has two nodes named {node.name!r}; the first is used")
        for node, op in zip(record.nodes, message.op):
            self.link(node, op.input, by_name)
        reader.where = ""
        return record

    def node(self, op: Message) -> OpDesc:
        reader = self.reader
        attrs = reader.node_attrs(op.attr)
        if op.attr_groups:
            attrs[ATTR_GROUPS] = RawAttr("attr_groups", op.attr_groups)
        inputs = _port_names(attrs, "input")
        outputs = _port_names(attrs, "output")
        input_descs: list[TensorDesc | None] = [reader.desc(data) for data in op.input_desc]
        output_descs = [reader.desc(data) for data in op.output_desc]
        texts = op.input
        if op.type in DATA_TYPES and list(texts) in ([""], []) and _repeats(input_descs, output_descs):
            input_descs = []
        else:
            slots = sum(1 for text in texts if not text.endswith(":-1"))
            input_descs += [None] * (slots - len(input_descs))
        return OpDesc(
            op.name,
            op.type,
            attrs=attrs,
            input_descs=input_descs,
            output_descs=output_descs,
            input_names=inputs,
            output_names=outputs,
            subgraphs=list(op.subgraph_name),
        )

    def link(self, node: OpDesc, texts: Any, by_name: dict[str, OpDesc]) -> None:
        """Connect the inputs of a node and mark optional inputs that are absent."""
        slot = 0
        inputs = node.inputs
        for text in texts:
            name, _, number = text.rpartition(":")
            producer = by_name.get(name)
            if number == "-1":
                self.link_control(node, producer, name)
                continue
            if producer is not None:
                index = 0 if number == "0" else self.output_index(node, text, number)
                if index < len(producer.output_descs):
                    inputs[slot] = Port(producer, index)
                    producer.users[index][Use(node, slot)] = None
                else:
                    has = f"which has {len(producer.output_descs)} outputs"
                    self.fail(node, f"input {slot} of {node.name!r} is output {index} of {name!r}, {has}")
            elif text:
                self.fail(node, f"input {slot} of {node.name!r} is {text!r}, but no node of that name exists")
            slot += 1
        for k, desc in enumerate(node.input_descs):
            if inputs[k] is None and desc is not None and _is_absent(desc):
                node.input_descs[k] = None

    def link_control(self, node: OpDesc, before: OpDesc | None, name: str) -> None:
        if before is None:
            self.fail(node, f"{node.name!r} is ordered behind {name!r}, which does not exist")
            return
        node.control_in[before] = None
        before.control_out[node] = None

    def output_index(self, node: OpDesc, text: str, number: str) -> int:
        if number.isdecimal() and number.isascii() and len(number) <= 10:
            return int(number)
        if number.startswith("-") or len(number) > 10:
            return 1 << 62  # never an output: reported by the caller
        self.warn(node, f"input {text!r} of {node.name!r} has no output number; read as 0, as GE does")
        return 0

    def check_subgraphs(self, model: ModelRecord) -> None:
        """Every named subgraph exists, and none contains itself. GE's loader would never end."""
        by_name: dict[str, GraphRecord] = {}
        for graph in model.graphs:
            if by_name.setdefault(graph.name, graph) is not graph:
                self.reader.problem(
                    "G3011", "bad-graph", f"two graphs are named {graph.name!r}; the first is used", "warning"
                )
        below: dict[str, list[str]] = {}
        for graph in by_name.values():
            named = [name for node in graph.nodes for name in node.subgraphs]
            for name in named:
                if name not in by_name:
                    self.reader.problem("G3011", "bad-graph", f"graph {graph.name!r} names a missing subgraph {name!r}")
            below[graph.name] = [name for name in named if name in by_name]
        cycle = _first_cycle(below)
        if cycle:
            self.reader.problem("G3011", "bad-graph", "subgraphs contain each other: " + " -> ".join(cycle))

    def fail(self, node: OpDesc, message: str) -> None:
        self.reader.problem("G3011", "bad-graph", message, node=node.name)

    def warn(self, node: OpDesc, message: str) -> None:
        self.reader.problem("G3011", "bad-graph", message, "warning", node=node.name)


def _plain_attrs(reader: AttrReader, message: Message) -> dict[str, Any]:
    """Attributes of a graph or model, whose names are never compressed."""
    attrs = {key: reader.value(value) for key, value in sorted(message.attr.items())}
    if message.attr_groups:
        attrs[ATTR_GROUPS] = RawAttr("attr_groups", message.attr_groups)
    return attrs


def _rounds(own: AttrNames | None, root: AttrNames | None) -> tuple[AttrNames, ...]:
    """The dictionaries to apply in turn: the model's own, then the root's until the name is readable."""
    first = own or root
    if first is None:
        return ()
    return (first, *[root or first] * (MAX_ROUNDS - 1))


def _placement(op: Message) -> Placement:
    return Placement(
        op.id, op.stream_id, tuple(op.input_i), tuple(op.output_i), tuple(op.workspace), tuple(op.workspace_bytes)
    )


def _port_names(attrs: dict[str, Any], side: str) -> tuple[str, ...] | None:
    """Port names by index, when the two parallel lists are in order; otherwise they stay attributes."""
    key, value = f"_{side}_name_key", f"_{side}_name_value"
    names, indices = attrs.get(key), attrs.get(value)
    if type(names) is not tuple or type(indices) is not tuple or not names:
        return None
    if indices != tuple(range(len(names))) or {*map(type, names)} != {str}:
        return None
    del attrs[key], attrs[value]
    return names


def _repeats(input_descs: list[TensorDesc | None], output_descs: list[TensorDesc]) -> bool:
    """True when a Data node's input descriptor says nothing that its output descriptor does not."""
    if not input_descs or not output_descs:
        return not input_descs
    first = input_descs[0]
    if len(input_descs) != 1 or first is None:
        return False
    second = output_descs[0]
    return first == second and first.size_bytes == second.size_bytes and dict(first.attrs) == dict(second.attrs)


def _is_absent(desc: TensorDesc) -> bool:
    return desc.dtype is DataType.UNDEFINED and desc.format == Format.FORMAT_RESERVED and not desc.shape


def _first_cycle(below: dict[str, list[str]]) -> list[str]:
    """The names along one cycle of the subgraph relation; empty when there is none."""
    done: set[str] = set()
    for start in below:
        path: dict[str, None] = {}
        stack = [(start, iter(below[start]))]
        path[start] = None
        while stack:
            name, rest = stack[-1]
            following = next(rest, None)
            if following is None:
                stack.pop()
                path.pop(name, None)
                done.add(name)
            elif following in path:
                names = list(path)
                return [*names[names.index(following) :], following]
            elif following not in done:
                path[following] = None
                stack.append((following, iter(below[following])))
    return []
