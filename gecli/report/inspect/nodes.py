"""The nodes of a model (cli.md 2.1 --nodes)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from gecli.errors import InvalidOption
from gecli.ir.attributes import INIT_VALUE, VALUE, RawAttr
from gecli.ir.weight import Weight
from gecli.records import dataclass
from gecli.report.inspect.attribute_values import desc_json, desc_text, held_text, value_json, value_text, weight_json
from gecli.report.inspect.subject import Subject
from gecli.report.inspect.view import Block, Rows, Table, View, cell
from gecli.report.sizes import dtype_text, shape_text

if TYPE_CHECKING:
    from gecli.ir.dtype import DataType
    from gecli.ir.format import Format
    from gecli.ir.op_desc import OpDesc
    from gecli.ir.placement import Placement
    from gecli.ir.tensor_desc import TensorDesc
    from gecli.wire.model_record import GraphRecord

COLUMNS = ("id", "name", "type", "engine", "stream", "inputs", "outputs", "formats", "shapes")
SHOWN_USERS = 4
SHOWN_INPUTS = 8
WHOLE_NAME = 1000  # names are shown whole, so that they can be copied to --name; hostile ones end somewhere
ENGINE_ATTRS = ("_ge_attr_op_kernel_lib_name", "_lxfusion_engine_name", "_coretype", "engine_name")
Found = tuple[int, "GraphRecord", "OpDesc", "Placement"]


@dataclass(frozen=True, slots=True)
class NodeFilter:
    """Which nodes, and what of them: `show` has attrs, weights, io, edges."""

    types: Sequence[str] = ()
    names: Sequence[str] = ()
    graph: str | None = None
    show: frozenset[str] = frozenset()

    def takes(self, graph: GraphRecord, node: OpDesc) -> bool:
        return (
            (self.graph is None or graph.name == self.graph)
            and (not self.types or any(fnmatchcase(node.type, glob) for glob in self.types))
            and (not self.names or any(fnmatchcase(node.name, glob) for glob in self.names))
        )


def nodes_view(subject: Subject, wanted: NodeFilter) -> View:
    """Raises InvalidOption when `wanted` names a graph that is not there."""
    _require_graph(subject, wanted.graph)
    groups = [(model, graph) for model, graph in subject.graphs() if any(_found(model, graph, wanted))]
    rows = Rows(
        lambda: (_node_json(*each, wanted.show) for model, graph in groups for each in _found(model, graph, wanted))
    )
    document = {"count": sum(1 for model, graph in groups for _ in _found(model, graph, wanted)), "nodes": rows}
    return View("nodes", document, _blocks(subject, groups, wanted))


def _found(model: int, graph: GraphRecord, wanted: NodeFilter) -> Iterator[Found]:
    return ((model, graph, node, graph.placements[node]) for node in graph.nodes if wanted.takes(graph, node))


def engine_of(node: OpDesc) -> str | None:
    """The engine a node was assigned to, where the file says so."""
    for name in ENGINE_ATTRS:
        value = node.attrs.get(name)
        if isinstance(value, str):
            return value
    return None


def _require_graph(subject: Subject, name: str | None) -> None:
    names = [graph.name for _, graph in subject.graphs()]
    if name is None or name in names:
        return
    raise InvalidOption(
        "E10001", f"the model has no graph {name!r}", option="--graph-name", why=f"graphs: {', '.join(names[:20])}",
        do=f"--graph-name {names[0]}" if names else "leave out --graph-name",
    )  # fmt: skip


def _node_json(model: int, graph: GraphRecord, node: OpDesc, place: Placement, show: frozenset[str]) -> dict[str, Any]:
    row: dict[str, Any] = {
        "model": model,
        "graph": graph.name,
        "id": place.id,
        "name": node.name,
        "type": node.type,
        "engine": engine_of(node),
        "stream": place.stream_id,
        "inputs": [None if port is None else str(port) for port in node.inputs],
        "outputs": [desc_json(desc) for desc in node.output_descs],
    }
    if "io" in show:
        row["input_descs"] = [desc_json(desc) for desc in node.input_descs]
        row |= {
            "input_offsets": list(place.input_offsets),
            "output_offsets": list(place.output_offsets),
            "workspace": [list(pair) for pair in zip(place.workspace_offsets, place.workspace_bytes)],
        }
    if "edges" in show:
        row["users"] = [[f"{use.node.name}:{use.slot}" for use in users] for users in node.users]
        row["control_in"] = [other.name for other in node.control_in]
        row["control_out"] = [other.name for other in node.control_out]
        row["subgraphs"] = list(node.subgraphs)
    if "attrs" in show:
        row["attrs"] = {key: value_json(value) for key, value in sorted(node.attrs.items())}
        row["output_attrs"] = [
            {key: value_json(value) for key, value in sorted(desc.attrs.items())} for desc in node.output_descs
        ]
    if "weights" in show:
        row["weights"] = [{"name": name, **weight_json(weight)} for name, weight in weights_of(node)]
    return row


def weights_of(node: OpDesc) -> Iterator[tuple[str, Weight]]:
    """Tensors that a node holds: its value, other tensor attributes, initial data of its outputs."""
    for key, value in node.attrs.items():
        if isinstance(value, Weight):
            yield ("" if key == VALUE else key), value
        elif isinstance(value, tuple):
            for k, item in enumerate(value):
                if isinstance(item, Weight):
                    yield f"{key}[{k}]", item
    for k, desc in enumerate(node.output_descs):
        init = desc.attrs.get(INIT_VALUE)
        if isinstance(init, Weight):
            yield INIT_VALUE if k == 0 else f"{INIT_VALUE}:{k}", init


def nested_graphs(subject: Subject) -> Iterator[dict[str, Any]]:
    """Graphs in attributes, which mobile files have in place of subgraphs: the node and attribute that hold each."""
    if subject.om is not None and not subject.om.is_mobile:
        return
    for _, _, node, _ in subject.nodes():
        for key, value in node.attrs.items():
            if isinstance(value, RawAttr) and value.kind == "g":
                yield {"node": node.name, "attr": key, "bytes": len(value.data)}


def nested_graph_text(row: dict[str, Any]) -> str:
    where = f"{cell(row['node'])} has a graph of {row['bytes']} bytes in its attribute {cell(row['attr'])}"
    return f"{where}; --json shows what is in it"


def _blocks(subject: Subject, groups: list[tuple[int, GraphRecord]], wanted: NodeFilter) -> Iterator[Block]:
    for model, graph in groups:
        if len(groups) > 1:
            yield f"model {model}, graph {cell(graph.name)}"
        if wanted.show:
            yield _detailed(_found(model, graph, wanted), wanted.show)
        else:
            yield _table(model, graph, wanted)
    if not groups:
        yield "no node matches"
    yield from map(nested_graph_text, nested_graphs(subject))


def _table(model: int, graph: GraphRecord, wanted: NodeFilter) -> Table:
    rows = Rows(lambda: (_cells(node, place) for _, _, node, place in _found(model, graph, wanted)))
    return Table(COLUMNS, rows, frozenset(("id", "stream")))


def _cells(node: OpDesc, place: Placement) -> tuple[str, ...]:
    inputs = ["-" if port is None else cell(f"{port.node.name}:{port.index}", WHOLE_NAME)
              for port in node.inputs[:SHOWN_INPUTS]]  # fmt: skip
    if len(node.inputs) > SHOWN_INPUTS:
        inputs.append(f"... {len(node.inputs)}")
    users = [use for each in node.users for use in each]
    outputs = [cell(f"{use.node.name}:{use.slot}", WHOLE_NAME) for use in users[:SHOWN_USERS]]
    if len(users) > SHOWN_USERS:
        outputs.append(f"... {len(users)}")
    texts = [_form_and_shape(desc) for desc in node.output_descs or node.input_descs]
    formats = dict.fromkeys(fmt for fmt, _ in texts)
    shapes = [shape for _, shape in texts]
    return (
        str(place.id), cell(node.name, WHOLE_NAME), cell(node.type, 40), cell(engine_of(node) or "-", 40),
        str(place.stream_id), " ".join(inputs) or "-", " ".join(outputs) or "-",
        " ".join(formats) or "-", cell(" ".join(shapes) or "-"),
    )  # fmt: skip


def _form_and_shape(desc: TensorDesc | None) -> tuple[str, str]:
    if desc is None:
        return "-", "-"
    return _form_text(desc.format, desc.dtype, desc.shape)


@lru_cache(1024)
def _form_text(fmt: Format, dtype: DataType, shape: tuple[int, ...]) -> tuple[str, str]:
    """Most nodes of a graph share few forms."""
    return fmt.name, f"{dtype_text(dtype.serial)}{shape_text(shape)}"


def _detailed(members: Iterator[Found], show: frozenset[str]) -> Iterator[str]:
    for _, _, node, place in members:
        yield f"{place.id} {cell(node.type, 40)} {cell(node.name, WHOLE_NAME)}  stream {place.stream_id}" + (
            f"  engine {cell(engine_of(node), 40)}" if engine_of(node) else ""
        )
        if "io" in show:
            yield from _io_lines(node, place)
        if "edges" in show:
            yield from _edge_lines(node)
        if "attrs" in show:
            yield from (f"    attr {cell(key)} = {value_text(value)}" for key, value in sorted(node.attrs.items()))
        if "weights" in show:
            yield from (
                f"    weight {cell(name) or 'value'}  {desc_text(weight.desc)}  {held_text(weight)}"
                for name, weight in weights_of(node)
            )


def _io_lines(node: OpDesc, place: Placement) -> Iterator[str]:
    offsets = iter(place.input_offsets)
    for k, desc in enumerate(node.input_descs):
        port = node.inputs[k]
        offset = next(offsets, None) if port is not None else None
        at = "" if offset is None else f"  at {_address(offset)}"
        yield f"    in  {k}  {desc_text(desc)}{_origin(desc)}{at}"
    for k, output in enumerate(node.output_descs):
        at = f"  at {_address(place.output_offsets[k])}" if k < len(place.output_offsets) else ""
        yield f"    out {k}  {desc_text(output)}{_origin(output)}{at}"
    for offset, size in zip(place.workspace_offsets, place.workspace_bytes):
        yield f"    work  {size} bytes at {_address(offset)}"


def _origin(desc: TensorDesc | None) -> str:
    if desc is None or (desc.logical_shape == desc.shape and desc.logical_format == desc.format):
        return ""
    return f" origin {desc.logical_format.name} {shape_text(desc.logical_shape)}"


def _address(offset: int) -> str:
    return str(offset) if -1 <= offset < 1 << 31 else f"{offset:#x}"


def _edge_lines(node: OpDesc) -> Iterator[str]:
    for k, port in enumerate(node.inputs):
        yield f"    {k} <- {'-' if port is None else cell(str(port))}"
    for k, users in enumerate(node.users):
        for use in users:
            yield f"    {k} -> {cell(f'{use.node.name}:{use.slot}')}"
    yield from (f"    after {cell(other.name)}" for other in node.control_in)
    yield from (f"    before {cell(other.name)}" for other in node.control_out)
    yield from (f"    subgraph {cell(name)}" for name in node.subgraphs)
