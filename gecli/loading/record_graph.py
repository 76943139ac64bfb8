"""The graph of a model that was read from its compiled form: all that an OM says about it, without its placement."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from gecli.ir.attributes import DATA_TYPES
from gecli.ir.graph import Graph
from gecli.ir.op_desc import OpDesc, Port
from gecli.ir.tensor_desc import NO_ATTRS, TensorDesc
from gecli.wire.model_record import GraphRecord, ModelRecord

OUT_NODES = "attr_model_out_nodes_name"
_DATA_OFFSET = "data_offset"


def graph_of(model: ModelRecord) -> Graph:
    """The root graph of `model` with its subgraphs, marked as optimised. The record's nodes are not changed.

    Raises GraphError for two nodes or subgraphs of one name, and for a cycle.
    """
    root = Graph(model.name)
    root.is_optimised = True
    _fill(root, model.root)
    for record in model.graphs[1:]:
        _fill(root.add_subgraph(Graph(record.name, root)), record)
    for graph in (root, *root.subgraphs.values()):
        graph.nodes()  # finds cycles
    names = model.attrs.get(OUT_NODES)
    root.output_names = list(_output_names(root, names if isinstance(names, tuple) else ()))
    return root


def _fill(graph: Graph, record: GraphRecord) -> None:
    graph.attrs = dict(record.attrs)
    twins: dict[OpDesc, OpDesc] = {}
    shared: dict[int, TensorDesc] = {}
    for node in record.nodes:
        twins[node] = graph.add(_twin(node, shared))
    for node, twin in twins.items():
        for slot, port in enumerate(node.inputs):
            if port is None:
                continue
            graph.connect(Port(twins[port.node], port.index), twin, slot)
            if twin.input_descs[slot] is None:
                twin.input_descs[slot] = port.desc
        for before in node.control_in:
            graph.add_control(twins[before], twin)


def _twin(node: OpDesc, shared: dict[int, TensorDesc]) -> OpDesc:
    inputs = [None if desc is None else _unplaced(desc, shared) for desc in node.input_descs]
    return OpDesc(
        node.name,
        node.type,
        attrs=dict(node.attrs),
        output_descs=list(node.output_descs),
        input_descs=[] if node.type in DATA_TYPES and not node.inputs else inputs,
        input_names=node.input_names,
        output_names=node.output_names,
        subgraphs=list(node.subgraphs),
    )


def _unplaced(desc: TensorDesc, shared: dict[int, TensorDesc]) -> TensorDesc:
    """An input's descriptor without the place of the constant that it reads; equal ones stay one object."""
    if _DATA_OFFSET not in desc.attrs:
        return desc
    found = shared.get(id(desc))
    if found is None:
        attrs: dict[str, Any] = {key: value for key, value in desc.attrs.items() if key != _DATA_OFFSET}
        found = shared[id(desc)] = replace(desc, attrs=attrs or NO_ATTRS)
    return found


def _output_names(graph: Graph, texts: Sequence[Any]) -> Iterator[str]:
    """The names of the outputs: behind `node:index:` as gecli writes them, or whatever another compiler wrote."""
    for position, port in enumerate(graph.outputs):
        text = texts[position] if position < len(texts) else ""
        if not isinstance(text, str) or text == str(port):
            text = ""
        yield text.removeprefix(f"{port}:")
