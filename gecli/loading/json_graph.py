"""One graph of a JSON document: its nodes, the links between them, its inputs and outputs."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import field, replace
from typing import Any

from gecli.ir.attributes import DATA_INDEX, DATA_TYPES, INIT_VALUE, VALUE, VARIABLE_TYPES
from gecli.ir.dtype import DataType
from gecli.ir.graph import NET_OUTPUT, Graph, GraphError
from gecli.ir.op_desc import OpDesc, Port
from gecli.ir.tensor_desc import UNKNOWN_RANK, TensorDesc
from gecli.ir.weight import FileSlice, Weight
from gecli.loading.data_formats import DATA_FORMAT, complete_data_format, contradiction, data_output, data_slot
from gecli.loading.inference import Inference
from gecli.loading.json_attributes import read_attr, read_desc
from gecli.loading.json_tensors import read_tensor, resolve_path
from gecli.loading.json_values import Json, Source, kind_of, pointer_to
from gecli.loading.shape_binding import Binding, ModelInput, Symbols
from gecli.ops.operator import OperatorType, convert_attribute
from gecli.ops.registry import find
from gecli.options.spelling import similar
from gecli.records import dataclass

VERSION = 1
MAX_PORTS = 1 << 16  # of a node
VALUE_TYPES = ("Const", "Constant", "ConstantOp")
NODE_KEYS = frozenset(
    ("id", "type", "inputs", "outputs", "attrs", "value", "subgraphs", "engine", "comment")
    + ("input_names", "output_names")
)
GRAPH_KEYS = frozenset(("name", "inputs", "outputs", "output_names", "opset", "attrs", "comment"))
LINK_KEYS = frozenset(("source", "target", "key", "src_out", "dst_in", "control", "comment"))
ENGINE = "_engine"  # attribute that keeps the member `engine`
FILE_CONSTANT_ATTRS = frozenset(
    ("location", "offset", "length", "file_path", "file_id", "dtype", "shape", "original_shape")
)
HANDLE = "VarHandleOp"  # describes its variable by attributes
EXAMPLE = '{"id": "y", "type": "Relu"}'
# Types that declare themselves: the loader cannot compute their outputs.
_NEEDS_OUTPUTS = frozenset((*DATA_TYPES, *VARIABLE_TYPES, "FileConstant"))


@dataclass(slots=True)
class _Link:
    pointer: str
    source: str
    target: str
    src_out: int
    dst_in: int | None
    control: bool


@dataclass(eq=False)
class GraphReader:
    """Reads one graph of a document: the nodes first, then what connects them."""

    source: Source
    members: dict[str, Json]
    pointer: str
    parent: Graph | None
    name: str = ""
    graph: Graph = field(init=False)
    read: list[tuple[str, OpDesc]] = field(default_factory=list)
    declared: set[OpDesc] = field(default_factory=set)
    silent: set[OpDesc] = field(default_factory=set)  # have no output in the document
    replaced: dict[Port, Port] = field(default_factory=dict)  # what the graph returns in place of a named port
    symbols: dict[str, Symbols] = field(default_factory=dict)
    links: list[_Link] = field(default_factory=list)
    outputs: list[tuple[str, str]] | None = None
    inputs: list[str] | None = None
    output_names: list[str] | None = None

    def __post_init__(self) -> None:
        source, place = self.source, f"{self.pointer}/graph"
        info = source.object(self.members.get("graph", {}), place, "graph")
        warn_unknown(source, info, GRAPH_KEYS, place, "graph")
        if not self.name:
            stem = os.path.splitext(os.path.basename(source.path))[0]
            self.name = source.text(info.get("name", stem), f"{place}/name", "the graph's name")
        self.graph = Graph(self.name, self.parent)
        attrs = source.object(info.get("attrs") or {}, f"{place}/attrs", "attrs")
        for key, value in attrs.items():
            self.graph.attrs[key] = read_attr(source, value, place + pointer_to("attrs", key))
        if info.get("inputs") is not None:
            self.inputs = [self._id(each, f"{place}/inputs/{k}") for k, each in enumerate(self._list(info, "inputs"))]
        if info.get("outputs") is not None:
            self.outputs = [
                (f"{place}/outputs/{k}", self._id(each, f"{place}/outputs/{k}"))
                for k, each in enumerate(self._list(info, "outputs"))
            ]
        if info.get("output_names") is not None:
            names = self._list(info, "output_names")
            self.output_names = [
                source.text(each, f"{place}/output_names/{k}", "a name") for k, each in enumerate(names)
            ]

    def _list(self, info: dict[str, Json], name: str) -> list[Json]:
        return self.source.list(info[name], f"{self.pointer}/graph/{name}", name)

    def _id(self, value: Json, pointer: str) -> str:
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return str(value)
        text = self.source.text(value, pointer, "a node id")
        if not text:
            raise self.source.fault(pointer, "a node id must not be empty")
        return text

    def named_outputs(self) -> list[tuple[str, str, int]]:
        """Pointer, node and index of each `node` or `node:idx`; a node whose name ends like that is found whole."""
        found = []
        for pointer, text in self.outputs or ():
            name, colon, index = text.rpartition(":")
            plain = text in self.graph or not colon or not (index.isascii() and index.isdecimal() and len(index) < 20)
            found.append((pointer, text, 0) if plain else (pointer, name, int(index)))
        return found

    # ------------------------------------------------------------------ nodes

    def read_nodes(self) -> None:
        source, place = self.source, f"{self.pointer}/nodes"
        seen: dict[str, int] = {}
        twice: list[str] = []
        for position, value in enumerate(source.list(self.members.get("nodes"), place, "nodes")):
            node = self._read_node(value, f"{place}/{position}")
            if node.name in seen:
                twice.append(f"{node.name!r} at {place}/{seen[node.name]} and {place}/{position}")
                continue
            seen[node.name] = position
            self.graph.add(node)
            self.read.append((f"{place}/{position}", node))
        if twice:
            first = twice[0].rpartition(" ")[2]
            raise source.fault(
                f"{first}/id", f"{len(twice)} node ids are used twice", ", ".join(twice[:20]), code="E13009"
            )
        self._read_links()
        self._number_inputs()

    def _read_node(self, value: Json, pointer: str) -> OpDesc:
        source = self.source
        members = source.object(value, pointer, "a node")
        if "id" not in members:
            raise source.fault(pointer, "the node has no id", do=EXAMPLE)
        name = self._id(members["id"], f"{pointer}/id")
        if not isinstance(members.get("type"), str) or not members["type"]:
            raise source.fault(
                f"{pointer}/type" if "type" in members else pointer,
                f"node {name!r} has no type",
                "a networkx graph becomes a gecli graph when every node has an operator type",
                EXAMPLE,
            )
        warn_unknown(source, members, NODE_KEYS, pointer, "a node")
        type_name = "Constant" if members["type"] == "ConstantOp" else members["type"]
        kind = find(type_name)
        outputs, symbols = self._read_outputs(members, pointer)
        node = OpDesc(name, type_name, output_descs=outputs)
        if outputs:
            self.declared.add(node)
        if symbols:
            self.symbols[name] = tuple(symbols)
        if "inputs" in members:
            descs = source.list(members["inputs"], f"{pointer}/inputs", "inputs")
            node.input_descs = [
                None if desc is None else read_desc(source, desc, f"{pointer}/inputs/{k}")
                for k, desc in enumerate(descs)
            ]
            node.inputs = [None] * len(descs)
        desc = outputs[0] if outputs else None
        attrs = source.object(members.get("attrs", {}), f"{pointer}/attrs", "attrs")
        for key in sorted(attrs, key=INIT_VALUE.__eq__) if type_name == HANDLE else attrs:
            place = pointer + pointer_to("attrs", key)
            if type_name == HANDLE and key == INIT_VALUE:
                desc = _desc_of_handle(node.attrs)
            node.attrs[key] = self._typed(kind, key, read_attr(source, attrs[key], place, desc), place)
        if node.type == "FileConstant" and desc is not None:
            self._read_file_constant(node, desc, f"{pointer}/attrs")
        self._read_rest(node, members, pointer)
        return node

    def _read_file_constant(self, node: OpDesc, desc: TensorDesc, pointer: str) -> None:
        """A FileConstant whose file is there is a constant; --external-weight decides where its bytes go.

        One whose file is missing names it without its directory, as every OM does.
        """
        attrs = node.attrs
        key = next((key for key in ("location", "file_path") if attrs.get(key)), None)
        if key is None or not desc.is_static:
            return
        base = os.path.basename(str(attrs[key]))
        places = (str(attrs[key]), os.path.join("weight", base))  # the second one is that of --emit json
        name = next((each for each in places if _is_file(self.source.base_dir, each)), None)
        if name is None:
            attrs[key] = base
            return
        place = f"{pointer}/{key}"
        path, size = resolve_path(self.source, name, place), desc.nbytes
        offset = (attrs.get("offset") or 0) if key == "location" else 0
        if offset < 0 or offset + size > os.path.getsize(path):
            why = f"{size} bytes at offset {offset} are wanted, the file has {os.path.getsize(path)}"
            raise self.source.fault(place, f"{name} is too short", why, code="G1003")
        node.type = "Const"
        node.attrs = {name: value for name, value in attrs.items() if name not in FILE_CONSTANT_ATTRS}
        node.attrs[VALUE] = Weight(desc, FileSlice(path, offset, size))

    def _read_outputs(self, members: dict[str, Json], pointer: str) -> tuple[list[TensorDesc], list[str | None]]:
        symbols: list[str | None] = []
        outputs = self.source.list(members.get("outputs", []), f"{pointer}/outputs", "outputs")
        descs = [
            read_desc(self.source, each, f"{pointer}/outputs/{k}", symbols if k == 0 else None)
            for k, each in enumerate(outputs)
        ]
        if not descs and members["type"] in _NEEDS_OUTPUTS:
            raise self.source.fault(
                pointer,
                f"{members['type']} node {members['id']!r} needs its outputs",
                "its descriptor cannot be inferred",
                '"outputs": [{"dtype": "DT_FLOAT", "shape": [1, 4]}]',
            )
        return descs, symbols if any(symbols) else []

    def _typed(self, kind: OperatorType | None, key: str, value: Any, pointer: str) -> Any:
        """The value in the kind that the operator declares, so that 1 for a float attribute is a float."""
        declared = kind.attributes.get(key) if kind is not None else None
        if declared is None:
            return value
        try:
            converted = convert_attribute(declared[0], value)
        except (TypeError, ValueError) as err:
            raise self.source.fault(
                pointer, f"attribute {key!r} is not valid", f"{err}; expected {declared[0]}", code="E13014"
            ) from err
        return converted if declared[0] in ("float", "tuple[float, ...]", "bool") else value

    def _read_rest(self, node: OpDesc, members: dict[str, Json], pointer: str) -> None:
        source = self.source
        if "value" in members:
            place = f"{pointer}/value"
            if node.type not in VALUE_TYPES:
                why = f"{node.name!r} is a {node.type}"
                raise source.fault(place, "only Const, Constant and ConstantOp have a value", why)
            value = members["value"]
            if isinstance(value, dict) and list(value) == ["tensor"]:
                value, place = value["tensor"], f"{place}/tensor"
            node.attrs[VALUE] = read_tensor(source, value, place, node.output_descs[0] if node.output_descs else None)
        if node.type in VALUE_TYPES:
            self._check_constant(node, pointer)
        for key in (INIT_VALUE, VALUE):
            if node.is_variable and key in node.attrs and node.init_value is None:
                self.move_init_value(node, node.attrs.pop(key), pointer, key)
        if "subgraphs" in members:
            names = source.list(members["subgraphs"], f"{pointer}/subgraphs", "subgraphs")
            node.subgraphs = [source.text(each, f"{pointer}/subgraphs/{k}", "a name") for k, each in enumerate(names)]
            for k, name in enumerate(node.subgraphs):
                if name not in self.graph.subgraphs:
                    known = ", ".join(self.graph.subgraphs) or "none"
                    raise source.fault(f"{pointer}/subgraphs/{k}", f"there is no subgraph {name!r}", f"known: {known}")
        if "engine" in members:
            node.attrs[ENGINE] = source.text(members["engine"], f"{pointer}/engine", "engine")
        for key in ("input_names", "output_names"):
            if key in members:
                names = source.list(members[key], f"{pointer}/{key}", key)
                texts = tuple(source.text(each, f"{pointer}/{key}/{k}", "a name") for k, each in enumerate(names))
                setattr(node, key, texts)

    def _check_constant(self, node: OpDesc, pointer: str) -> None:
        weight = node.attrs.get(VALUE)
        if not isinstance(weight, Weight):
            do = '"value": {"dtype": "DT_FLOAT", "shape": [2], "data": [1, 2]}'
            raise self.source.fault(pointer, f"{node.type} node {node.name!r} has no value", do=do)
        if not node.output_descs:
            node.add_output(weight.desc)
            self.declared.add(node)
            return
        self._check_weight(node, weight, f"{pointer}/value")

    def _check_weight(self, node: OpDesc, weight: Weight, pointer: str) -> None:
        """The value has the dtype and the size that the node's output declares."""
        desc = node.output_descs[0]
        if weight.dtype != desc.dtype:
            why = f"the value is {weight.dtype.serial}, output 0 declares {desc.dtype.serial}"
            raise self.source.fault(pointer, f"the value of {node.name!r} has another dtype", why, code="G1004")
        if desc.is_static and math.prod(weight.shape) != desc.elements:
            why = f"the value has shape {list(weight.shape)}, output 0 declares {list(desc.shape)}"
            raise self.source.fault(pointer, "shape and data count differ", why, code="G1004")

    def move_init_value(self, node: OpDesc, value: Any, pointer: str, key: str = INIT_VALUE) -> None:
        """GE keeps the initial data of a variable on its output descriptor, a JSON graph on the node."""
        place = pointer + pointer_to("attrs", key)
        if not isinstance(value, Weight):
            raise self.source.fault(place, f"{key} must be a tensor", do='{"tensor": {"fill": 0}}')
        self._check_weight(node, value, place)
        node.set_init_value(value)

    # ------------------------------------------------------------------ links

    def _read_links(self) -> None:
        source = self.source
        key = "links" if "links" in self.members or "edges" not in self.members else "edges"
        place = f"{self.pointer}/{key}"
        for position, value in enumerate(source.list(self.members.get(key, []), place, key)):
            pointer = f"{place}/{position}"
            link = source.object(value, pointer, "a link")
            warn_unknown(source, link, LINK_KEYS, pointer, "a link")
            ends = []
            for end in ("source", "target"):
                if end not in link:
                    raise source.fault(pointer, f"the link has no {end}", do='{"source": "x", "target": "y"}')
                name = self._id(link[end], f"{pointer}/{end}")
                if name not in self.graph:
                    close = similar(name, [node.name for _, node in self.read], 1, 0.6)
                    do = f"did you mean {close[0]!r}?" if close else ""
                    raise source.fault(f"{pointer}/{end}", f"there is no node {name!r}", "a link names it", do)
                ends.append(name)
            control = link.get("control", False)
            if not isinstance(control, bool):
                raise source.fault(f"{pointer}/control", "control must be true or false", f"found {kind_of(control)}")
            if control and ("src_out" in link or "dst_in" in link):
                raise source.fault(pointer, "a control link carries no indices", do="drop src_out and dst_in")
            dst_in = link.get("dst_in")
            self.links.append(
                _Link(
                    pointer,
                    ends[0],
                    ends[1],
                    source.integer(link.get("src_out", 0), f"{pointer}/src_out", "src_out"),
                    None if dst_in is None else source.integer(dst_in, f"{pointer}/dst_in", "dst_in"),
                    control,
                )
            )

    def connect(self) -> None:
        """Make the edges: those with an index first, the others to the next free input."""
        self._make_outputs()
        data = [link for link in self.links if not link.control]
        for link in [each for each in data if each.dst_in is not None] + [each for each in data if each.dst_in is None]:
            self._connect(link)
        for link in self.links:
            if link.control:
                if link.source == link.target:
                    why = f"{link.source!r} would have to run before itself"
                    raise self.source.fault(link.pointer, "the graph has a cycle", why, "remove this control link")
                self.graph.add_control(self.graph.node(link.source), self.graph.node(link.target))
        try:
            self.graph.nodes()
        except GraphError as err:
            raise self.source.fault(f"{self.pointer}/links", "the graph has a cycle", str(err)) from err

    def _make_outputs(self) -> None:
        """Give nodes without declared outputs as many as their type has and the links use."""
        wanted: dict[str, int] = {}
        for link in self.links:
            if not link.control:
                self._check_index(f"{link.pointer}/src_out", link.src_out)
                wanted[link.source] = max(wanted.get(link.source, 0), link.src_out + 1)
        for pointer, name, index in self.named_outputs():
            self._check_index(pointer, index)
            wanted[name] = max(wanted.get(name, 0), index + 1)
        for _, node in self.read:
            if node in self.declared or node.type == NET_OUTPUT:
                continue
            kind = find(node.type)
            count = 0 if kind is None else sum(not port.variadic for port in kind.outputs)
            for _ in range(max(count, wanted.get(node.name, 0))):
                node.add_output(TensorDesc(DataType.UNDEFINED, UNKNOWN_RANK))

    def _check_index(self, pointer: str, index: int) -> None:
        if index > MAX_PORTS:
            raise self.source.fault(pointer, f"output {index} is out of range", f"the limit is {MAX_PORTS}")

    def _connect(self, link: _Link) -> None:
        node = self.graph.node(link.target)
        producer = self.graph.node(link.source)
        if link.src_out >= len(producer.output_descs):
            raise self.source.fault(
                f"{link.pointer}/src_out",
                f"node {link.source!r} has no output {link.src_out}",
                f"it has {len(producer.output_descs)}",
            )
        slot = link.dst_in
        if slot is None:
            slot = next((k for k, port in enumerate(node.inputs) if port is None), len(node.inputs))
        elif slot > MAX_PORTS:
            raise self.source.fault(
                f"{link.pointer}/dst_in", f"input {slot} is out of range", f"the limit is {MAX_PORTS}"
            )
        elif slot < len(node.inputs) and node.inputs[slot] is not None:
            raise self.source.fault(
                f"{link.pointer}/dst_in", f"input {slot} of {link.target!r} is fed twice", f"by {node.inputs[slot]}"
            )
        self.graph.connect(Port(producer, link.src_out), node, slot)

    # ------------------------------------------------------------------ inputs and outputs

    def _number_inputs(self) -> None:
        """The `index` of the Data nodes: by `graph.inputs`, else by their own indices or their order."""
        nodes = [node for _, node in self.read if node.type in DATA_TYPES]
        if self.inputs is not None:
            place = f"{self.pointer}/graph/inputs"
            by_name = {node.name: node for node in nodes}
            for position, name in enumerate(self.inputs):
                if name not in by_name:
                    other = self.graph.get(name)
                    why = "there is no such node" if other is None else f"it is a {other.type} node"
                    raise self.source.fault(f"{place}/{position}", f"{name!r} is not a Data node", why)
            missing = [node.name for node in nodes if node.name not in self.inputs]
            if missing or len(set(self.inputs)) != len(self.inputs):
                why = f"missing: {', '.join(missing)}" if missing else "one is named twice"
                raise self.source.fault(place, "graph.inputs must name every Data node once", why)
            nodes = [by_name[name] for name in self.inputs]
        elif sorted(_index(node) for node in nodes) == list(range(len(nodes))):
            return
        for position, node in enumerate(nodes):
            node.attrs[DATA_INDEX] = position

    def model_inputs(self) -> list[ModelInput]:
        return [
            ModelInput(node.name, node.output_descs[0], self.symbols.get(node.name, ())) for node in self.graph.inputs
        ]

    def other_names(self) -> dict[str, str]:
        return {node.name: f"a node of type {node.type}" for _, node in self.read if node.type not in DATA_TYPES}

    def apply(self, binding: Binding) -> None:
        for node, row in zip(self.graph.inputs, binding.rows):
            node.output_descs[0] = replace(row.desc, attrs=node.output_descs[0].attrs)

    def infer(self, again: bool) -> None:
        """Descriptors of nodes that declare none; of all nodes when an input's shape was changed (`again`)."""
        inference = Inference()
        for node in self.graph.nodes():
            if node.type in VALUE_TYPES:
                inference.add_constant(node)
                continue
            self._complete_data_format(node)
            if node.type != NET_OUTPUT and (node not in self.declared or (again and node.data_inputs)):
                before = list(node.output_descs)
                inference.infer(node, len(before))
                if node in self.declared:
                    _keep_declared(node, before, node in inference.failed)
        for node in self.graph.nodes():
            for slot, port in enumerate(node.inputs):
                if port is not None and (again or node.input_descs[slot] is None):
                    node.input_descs[slot] = _bare(port.desc)

    def _complete_data_format(self, node: OpDesc) -> None:
        """The layout of the data tensor decides where the node gives no data_format; what is declared must agree."""
        kind = find(node.type)
        slot = None if kind is None else data_slot(kind)
        if kind is None or slot is None or slot >= len(node.inputs):
            return
        port, declared = node.inputs[slot], node.input_descs[slot]
        complete_data_format(kind, node, declared or (None if port is None else port.desc))
        if declared is None and port is not None and port.node in self.declared:
            declared = port.desc
        output = data_output(kind)
        result = node.output_descs[output] if output is not None and node in self.declared else None
        why = contradiction(kind, node, declared)
        tensor = f"input {slot}"
        if not why:
            why, tensor = contradiction(kind, node, result), f"output {output}"
        if why:
            pointer = next((pointer for pointer, each in self.read if each is node), self.pointer)
            place = pointer + pointer_to("attrs", DATA_FORMAT)
            message = f"data_format of {node.name!r} contradicts the format of its {tensor}"
            raise self.source.fault(place, message, why, code="E13014")

    def set_outputs(self) -> None:
        """The NetOutput node, unless the document has one."""
        explicit = self.graph.net_output
        if explicit is None:
            named = self._output_ports()
            ports = [self.replaced.get(port, port) for port in named]
            explicit = self.graph.set_outputs(ports)
            explicit.input_descs = [_bare(port.desc) for port in ports]
        else:
            named = self.graph.outputs
        names = [f"{port.node.name}:{port.index}" for port in named]
        if self.output_names is not None and len(self.output_names) != len(names):
            raise self.source.fault(
                f"{self.pointer}/graph/output_names",
                "output_names must name every output",
                f"{len(self.output_names)} names for {len(names)} outputs",
            )
        self.graph.output_names = self.output_names or names

    def _output_ports(self) -> list[Port]:
        if self.outputs is None:
            return [
                node.out(index)
                for node in self.graph.nodes()
                if node.inputs and not any(node.users) and node not in self.silent
                for index in range(len(node.output_descs))
            ]
        ports = []
        for pointer, name, index in self.named_outputs():
            node = self.graph.get(name)
            if node is None or index >= len(node.output_descs):
                why = "there is no such node" if node is None else f"it has {len(node.output_descs)} outputs"
                raise self.source.fault(pointer, f"{name}:{index} is not an output of a node", why)
            ports.append(node.out(index))
        return ports


def _is_file(folder: str | None, name: str) -> bool:
    return "\0" not in name and os.path.isfile(os.path.join(folder or "", name))


def _index(node: OpDesc) -> int:
    value = node.attrs.get(DATA_INDEX)
    return value if isinstance(value, int) else -1


def _keep_declared(node: OpDesc, before: list[TensorDesc], failed: bool) -> None:
    """After another input shape: the new shape with the declared format, or what was declared when unknown."""
    for index, old in enumerate(before):
        new = node.output_descs[index]
        if failed or new.shape == UNKNOWN_RANK or old.origin_shape is not None:
            node.output_descs[index] = old
        elif new.shape == old.shape:
            node.output_descs[index] = replace(new, format=old.format, attrs=old.attrs, name=old.name)
        else:
            fmt = old.format if len(old.shape) == len(new.shape) else new.format
            node.output_descs[index] = replace(new, format=fmt, attrs=old.attrs, name=old.name)


def _bare(desc: TensorDesc) -> TensorDesc:
    return replace(desc, attrs={}) if desc.attrs else desc


def warn_unknown(source: Source, members: dict[str, Json], known: frozenset[str], pointer: str, what: str) -> None:
    for name in sorted(members.keys() - known):
        close = similar(name, sorted(known), 1, 0.7)
        source.warn(
            pointer + pointer_to(name),
            f"unknown member {name!r} of {what} is ignored",
            do=f"did you mean {close[0]!r}?" if close else "",
        )


def _desc_of_handle(attrs: Mapping[str, Any]) -> TensorDesc | None:
    """What a VarHandleOp says of its variable, None where that is not whole: handles are judged when rewritten."""
    try:
        dtype = convert_attribute("DataType", attrs["dtype"])
        return TensorDesc(dtype, tuple(convert_attribute("tuple[int, ...]", attrs["shape"])))
    except (KeyError, TypeError, ValueError):
        return None
