"""MODEL_DEF bytes -> `ModelRecord`, with every check a foreign file needs (GE: ge.proto.ModelDef)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from gecli.errors import Diagnostic
from gecli.ir.attributes import DATA_TYPES, RawAttr
from gecli.ir.dtype import DataType
from gecli.ir.format import Format
from gecli.ir.op_desc import Port
from gecli.ir.tensor_desc import TensorDesc
from gecli.pb import ge_ir_pb2 as ge_ir
from gecli.wire.attribute_names import MAX_ROUNDS, AttrNames
from gecli.wire.attributes import MEMO_ENTRIES, AttrReader, WeightArea
from gecli.wire.byte_source import ByteSource, MemorySource
from gecli.wire.collector import collector_paused
from gecli.wire.decode_errors import DECODE_ERRORS, reason
from gecli.wire.field_scan import Span
from gecli.wire.memory_budget import DICT_ENTRY_COST, TEXT_COST, MemoryBudget, dict_cost, is_about_memory
from gecli.wire.message_reader import ATTRS, WHOLE_BYTES, MessageReader, located
from gecli.wire.model_record import GraphRecord, ModelRecord
from gecli.wire.om_faults import om_error
from gecli.wire.packed_placements import PackedPlacements
from gecli.wire.record_node import RecordNode
from gecli.wire.tensor_desc import ATTR_GROUPS, Message
from gecli.wire.walker import LENGTH_DELIMITED, WireError

MAX_MODEL_DEF_BYTES = 1 << 31
_ABOUT_MEMORY = {
    "why": "a file is read in less than twice its size and 64 MiB of memory; the objects of this graph take more",
    "do": "gecli inspect-om FILE --partitions",
}
MAX_PORTS = 1 << 9  # kinds of operators that a model has
GRAPHS, OPS = 7, 6  # of ModelDef, of GraphDef
MODEL_MEMBERS, GRAPH_MEMBERS = (1, 2, 3, 12), (1, 4, 5, 12)
# Bytes of memory, rather too many. Of an operator: the node and its number, its entry among the names, its first port.
_GRAPH_COST, _OP_COST, _INPUT_COST, _WAITING_COST, _CONTROL_COST, _MEMBER_COST = 1600, 450, 16, 160, 500, 170
_OFFSET_COST, _OFFSET_ON_THE_WAY_COST = 12, 28
_SOURCE_COST = 100  # of a producer that NetOutput names: a pair with its number


def decode_model(
    data: bytes | ByteSource,
    *,
    path: str | None = None,
    file_size: int = 0,
    weights: WeightArea | None = None,
    root_names: AttrNames | None = None,
    in_container: bool = True,
    budget: MemoryBudget | None = None,
) -> ModelRecord:
    """The model in MODEL_DEF bytes; tensors in the file stay references.

    `root_names` is the name dictionary of the root model, for the further models of a file. A model without container
    has no WEIGHTS_DATA: its constants there are one note, not a fault each. `budget` bounds the memory of the model,
    by the size of `data` when it is not given. Raises InputError (bad-proto) when the bytes are no ModelDef or too
    many objects; what is wrong in the graph is collected in `problems`.
    """
    source: ByteSource = MemorySource(data) if isinstance(data, bytes) else data
    path = path or source.path
    with _reported(source, path), collector_paused():
        budget = budget or MemoryBudget(source.size)
        return _Decoder(source, path, file_size, weights, root_names, budget, in_container=in_container).model()


def decode_attr_names(source: ByteSource, *, path: str | None = None) -> AttrNames | None:
    """The dictionary of compressed attribute names in MODEL_DEF; no graph is read. Raises InputError (bad-proto)."""
    with _reported(source, path or source.path):
        decoder = _Decoder(source, path or source.path, 0, None, None, MemoryBudget(source.size))
        return AttrNames.of(decoder.members()[1])


@contextmanager
def _reported(source: ByteSource, path: str | None) -> Iterator[None]:
    """Faults of the bytes as InputError, with their place in the file."""
    try:
        yield
    except (*DECODE_ERRORS, WireError) as error:
        at = source.base + error.offset if isinstance(error, WireError) else source.base
        size = f"MODEL_DEF of {source.size} bytes"
        fields = _ABOUT_MEMORY if is_about_memory(error) else {}
        raise om_error("bad-proto", path, f"{size}: {reason(error)}", at, where="MODEL_DEF", **fields) from error


class _Decoder:
    """Decodes operator by operator: memory holds the nodes and the bytes of one operator."""

    def __init__(
        self,
        source: ByteSource,
        path: str | None,
        file_size: int,
        weights: WeightArea | None,
        root_names: AttrNames | None,
        budget: MemoryBudget,
        *,
        in_container: bool = True,
    ) -> None:
        self.source = source
        self.messages = MessageReader(source)
        self.root_names = root_names
        self.reader = AttrReader(path, file_size, weights, in_container, budget)
        self.words: dict[str, str] = {}  # types that many operators share
        self.ports: set[tuple[Any, Any]] = set()  # names of ports with their numbers, which are in order

    def model(self) -> ModelRecord:
        reader = self.reader
        message, attrs, places = self.members()
        own = AttrNames.of(attrs)
        self.check_names(own, attrs)
        if own is not None or attrs.get("om_compress_version") is None:
            reader.names = _rounds(own, self.root_names)
        graphs = [self.graph(begin, end) for begin, end in places]
        model = ModelRecord(
            message.name,
            graphs,
            attrs,
            message.version,
            message.custom_version,
            reader.problems,
            len(own.names) if own else 0,
            reader.unreadable_names,
            reader.nested_graphs,
        )
        self.check_subgraphs(model, places)
        self.note_outside()
        return model

    def note_outside(self) -> None:
        reader = self.reader
        if not reader.outside_count:
            return
        many = f"{reader.outside_count} constant{'s' if reader.outside_count > 1 else ''}"
        message = f"the {reader.outside_bytes} bytes of {many} are not here: they lie in WEIGHTS_DATA of the OM"
        do = "gecli inspect-om the OM itself"
        note = Diagnostic("G3012", message, kind="bad-weights", severity="note", file=reader.path, do=do)
        reader.problems.append(note)

    def members(self) -> tuple[Message, dict[str, Any], list[tuple[int, int]]]:
        """The plain fields of the model, its attributes, and where its graphs are."""
        size = self.source.size
        if size > MAX_MODEL_DEF_BYTES:
            raise WireError(f"at most {MAX_MODEL_DEF_BYTES} bytes are read", 0)
        places: list[tuple[int, int]] = []
        plain: list[bytes] = []
        attrs: dict[str, Any] = {}
        for span in self.messages.spans(0, size):
            if span.number == GRAPHS and span.kind == LENGTH_DELIMITED:
                self.reader.budget.spend(_GRAPH_COST)
                places.append((span.body, span.end))
            elif span.number == ATTRS and span.kind == LENGTH_DELIMITED:
                self.plain_attr(span, attrs)
            elif span.number in MODEL_MEMBERS:
                plain.append(self.member(span))
        message = self.messages.parsed(ge_ir.ModelDef, b"".join(plain), 0)
        attrs = {key: attrs[key] for key in sorted(attrs)}
        if message.attr_groups:
            attrs[ATTR_GROUPS] = RawAttr("attr_groups", message.attr_groups)
        return message, attrs, places

    def member(self, span: Span) -> bytes:
        """A plain field of a model or graph."""
        with located(span.begin):
            self.reader.budget.spend(_MEMBER_COST + 3 * (span.end - span.begin))
        return self.messages.small(span)

    def plain_attr(self, span: Span, attrs: dict[str, Any]) -> None:
        """An attribute of a model or graph, whose names are never compressed."""
        self.reader.offset = self.source.base + span.begin
        with located(span.begin):
            key, value = self.messages.attribute(span, self.reader)
            self.reader.budget.spend(TEXT_COST + len(key) + 3 * DICT_ENTRY_COST)
        attrs[key] = value

    def check_names(self, own: AttrNames | None, attrs: dict[str, Any]) -> None:
        version = attrs.get("om_compress_version")
        if version not in (None, 1):
            self.problem_of_model(f"attribute names are compressed in way {version!r}, 1 is known")
        if own is not None and own.fault:
            self.problem_of_model(own.fault)

    def problem_of_model(self, message: str) -> None:
        self.reader.where, self.reader.offset = "MODEL_DEF", self.source.base
        self.reader.problem("bad-attr-enum", message, "warning")

    def graph(self, begin: int, end: int) -> GraphRecord:
        reader = self.reader
        record = GraphRecord("", [])
        places = record.placements = PackedPlacements(record.nodes)
        plain: list[bytes] = []
        by_name: dict[str, Port] = {}  # the first output of each node, shared by its readers
        waiting: list[tuple[RecordNode, list[str], int]] = []
        for span in self.messages.spans(begin, end):
            if span.number == OPS and span.kind == LENGTH_DELIMITED:
                self.operator(span, record, places, by_name, waiting)
            elif span.number == ATTRS and span.kind == LENGTH_DELIMITED:
                self.plain_attr(span, record.attrs)
            elif span.number in GRAPH_MEMBERS:
                plain.append(self.member(span))
                if span.number == 1:  # the name stands first
                    reader.where = f"graph {self.messages.parsed(ge_ir.GraphDef, plain[-1], span.begin).name!r}"
        for node, texts, reader.offset in waiting:
            with located(reader.offset - self.source.base):
                self.link(node, texts, by_name)
        message = self.messages.parsed(ge_ir.GraphDef, b"".join(plain), begin)
        record.name, record.inputs, record.outputs = message.name, tuple(message.input), tuple(message.output)
        record.attrs = {key: record.attrs[key] for key in sorted(record.attrs)}
        if message.attr_groups:
            record.attrs[ATTR_GROUPS] = RawAttr("attr_groups", message.attr_groups)
        reader.where = ""
        return record

    def operator(
        self,
        span: Span,
        record: GraphRecord,
        places: PackedPlacements,
        by_name: dict[str, Port],
        waiting: list[tuple[RecordNode, list[str], int]],
    ) -> None:
        """Add one node; it is linked at once when its producers stand before it, as they do in sorted graphs."""
        reader = self.reader
        reader.offset = self.source.base + span.begin
        try:
            op, large = self.messages.operator(span, reader)
            reader.budget.spend(_cost(op))
            if span.end - span.begin > WHOLE_BYTES:
                offsets = len(op.input_i) + len(op.output_i) + len(op.workspace) + len(op.workspace_bytes)
                reader.budget.require(_OFFSET_ON_THE_WAY_COST * offsets)
            node = self.node(record, op, large)
            if op.src_name and node.type == "NetOutput":
                self.sources(record, op)
            record.nodes.append(node)
            reader.budget.spend(_OFFSET_COST * places.append(op))
            self.enter(node, op.input, by_name, waiting)
        except DECODE_ERRORS as error:
            where = reader.where or "a graph without a name in front of it"
            raise WireError(f"operator {len(record.nodes)} of {where}: {reason(error)}", span.begin) from error

    def sources(self, record: GraphRecord, op: Message) -> None:
        """What NetOutput says of the producers of the outputs, where it is more than its inputs say."""
        texts = (text for text in op.input if text and not text.endswith(":-1"))
        told = zip(texts, op.src_name, op.src_index)
        if all(text == f"{name}:{index}" for text, name, index in told):
            return
        self.reader.budget.spend(sum(TEXT_COST + _SOURCE_COST + len(name) for name in op.src_name))
        record.output_sources = tuple(zip(op.src_name, op.src_index))

    def enter(
        self,
        node: RecordNode,
        texts: Any,
        by_name: dict[str, Port],
        waiting: list[tuple[RecordNode, list[str], int]],
    ) -> None:
        """Make a node known by its name, and link it when its producers are."""
        reader = self.reader
        if by_name.setdefault(node.name, Port(node, 0)).node is not node:
            self.warn(node, f"two nodes of {reader.where} are named {node.name!r}; the first is used")
        if not waiting:
            for text in texts:
                if text and text.rpartition(":")[0] not in by_name:
                    break
            else:
                self.link(node, texts, by_name)
                return
        reader.budget.spend(_WAITING_COST + sum(map(len, texts)) + TEXT_COST * len(texts))
        waiting.append((node, list(texts), reader.offset))

    def node(self, record: GraphRecord, op: Message, large: dict[str, Any]) -> RecordNode:
        reader = self.reader
        attrs = reader.node_attrs(op.attr)
        if large:
            attrs.update([reader.restored(key, value) for key, value in large.items()])
            attrs = {key: attrs[key] for key in sorted(attrs)}
        if op.attr_groups:
            attrs[ATTR_GROUPS] = RawAttr("attr_groups", op.attr_groups)
        inputs = self.port_names(attrs, "_input_name_key", "_input_name_value")
        outputs = self.port_names(attrs, "_output_name_key", "_output_name_value")
        if inputs or outputs:
            attrs = dict(attrs)  # without the room that the deleted ones had
        if attrs:
            reader.budget.spend(dict_cost(len(attrs)))
        input_descs: tuple[TensorDesc | None, ...] = reader.descs(op.input_desc)
        output_descs = reader.descs(op.output_desc)
        texts = op.input
        if op.type in DATA_TYPES and list(texts) in ([""], []) and _repeats(input_descs, output_descs):
            input_descs = ()
        else:
            slots = sum(1 for text in texts if not text.endswith(":-1"))
            if slots > len(input_descs):
                input_descs += (None,) * (slots - len(input_descs))
        type_name = op.type
        if len(self.words) >= MEMO_ENTRIES:
            self.words.clear()
        return RecordNode(
            record,
            op.name,
            self.words.setdefault(type_name, type_name),
            attrs,
            input_descs,
            output_descs,
            inputs,
            outputs,
            tuple(op.subgraph_name),
        )

    def port_names(self, attrs: dict[str, Any], key: str, value: str) -> tuple[str, ...] | None:
        """Port names by index, when the two parallel lists are in order; otherwise they stay attributes."""
        names = attrs.get(key)
        if type(names) is not tuple or not names or type(names[0]) is not str:  # all items are of one type
            return None
        indices = attrs.get(value)
        if type(indices) is not tuple or not indices or type(indices[0]) is not int:
            return None
        if (names, indices) not in self.ports:
            if indices != tuple(range(len(names))):
                return None
            if len(self.ports) >= MAX_PORTS:
                self.ports.clear()
            self.ports.add((names, indices))
        del attrs[key], attrs[value]
        return names

    def link(self, node: RecordNode, texts: Any, by_name: dict[str, Port]) -> None:
        """Connect the inputs of a node and mark optional inputs that are absent."""
        slot = 0
        inputs: list[Port | None] = [None] * len(node.input_descs)
        for text in texts:
            name, _, number = text.rpartition(":")
            first = by_name.get(name) if text else None  # no text is no input, also where a node has no name
            if number == "-1":
                self.link_control(node, first, name)
                continue
            if first is not None:
                producer = first.node
                index = 0 if number == "0" else self.output_index(node, text, number)
                if index < len(producer.output_descs):
                    inputs[slot] = Port(producer, index) if index else first
                else:
                    has = f"which has {len(producer.output_descs)} outputs"
                    self.fail(node, f"input {slot} of {node.name!r} is output {number} of {name!r}, {has}")
            elif text:
                self.fail(node, f"input {slot} of {node.name!r} is {text!r}, but no node of that name exists")
            slot += 1
        node.inputs = tuple(inputs)  # type: ignore[assignment]  # as RecordNode says
        if None in inputs:
            descs = node.input_descs
            absent = [port is None and desc is not None and _is_absent(desc) for port, desc in zip(inputs, descs)]
            if any(absent):
                left = tuple([None if gone else desc for gone, desc in zip(absent, descs)])
                node.input_descs = left  # type: ignore[assignment]  # as RecordNode says

    def link_control(self, node: RecordNode, before: Port | None, name: str) -> None:
        if before is None:
            self.fail(node, f"{node.name!r} is ordered behind {name!r} (output -1), which does not exist")
            return
        self.reader.budget.spend(_CONTROL_COST)
        node.order_behind(before.node)

    def output_index(self, node: RecordNode, text: str, number: str) -> int:
        if number.isdecimal() and number.isascii() and len(number) <= 10:
            return int(number)
        if number.startswith("-") or len(number) > 10:
            return 1 << 62  # never an output: reported by the caller
        self.warn(node, f"input {text!r} of {node.name!r} has no output number; read as 0, as GE does")
        return 0

    def check_subgraphs(self, model: ModelRecord, places: list[tuple[int, int]]) -> None:
        """Every named subgraph exists, and none contains itself. GE's loader would never end."""
        by_name: dict[str, GraphRecord] = {}
        below: dict[str, list[str]] = {}
        offsets: dict[str, int] = {}
        self.reader.where = "MODEL_DEF"
        for graph, (begin, _) in zip(model.graphs, places):
            self.reader.offset = self.source.base + begin
            if by_name.setdefault(graph.name, graph) is graph:
                offsets[graph.name] = self.reader.offset
            else:
                message = f"two of {len(places)} graphs are named {graph.name!r}; the first is used"
                self.reader.problem("bad-graph", message, "warning")
        for graph in by_name.values():
            self.reader.offset = offsets[graph.name]
            named = [name for node in graph.nodes for name in node.subgraphs]
            for name in named:
                if name not in by_name:
                    message = f"graph {graph.name!r} names a missing subgraph {name!r}; there are {len(places)} graphs"
                    self.reader.problem("bad-graph", message)
            below[graph.name] = [name for name in named if name in by_name]
        cycle = _first_cycle(below)
        if cycle:
            self.reader.offset = offsets[cycle[0]]
            message = f"{len(cycle) - 1} subgraphs contain each other: {' -> '.join(cycle)}"
            self.reader.problem("bad-graph", message)

    def fail(self, node: RecordNode, message: str) -> None:
        self.reader.problem("bad-graph", message, node=node.name)

    def warn(self, node: RecordNode, message: str) -> None:
        self.reader.problem("bad-graph", message, "warning", node=node.name)


def _rounds(own: AttrNames | None, root: AttrNames | None) -> tuple[AttrNames, ...]:
    """The dictionaries to apply in turn: the model's own, then the root's until the name is readable."""
    first = own or root
    if first is None:
        return ()
    return (first, *[root or first] * (MAX_ROUNDS - 1))


def _cost(op: Message) -> int:
    """What an operator will take in memory, without the values of its attributes and what many share."""
    cost = _OP_COST + len(op.name) + _INPUT_COST * (len(op.input) + len(op.input_desc))
    if op.attr_groups:
        cost += 2 * TEXT_COST + len(op.attr_groups)
    if op.subgraph_name:
        cost += sum(map(len, op.subgraph_name)) + TEXT_COST * (1 + len(op.subgraph_name))
    return cost


def _repeats(input_descs: tuple[TensorDesc | None, ...], output_descs: tuple[TensorDesc, ...]) -> bool:
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
