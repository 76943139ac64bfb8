"""A slice as a file: MODEL_DEF with the weights inside (GE: slice_graph.pb, rem_graph.pb)."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import closing

from gecli.cache.digest import digest_of
from gecli.cache.fingerprint import fingerprint_of
from gecli.errors import GecliError
from gecli.ir.graph import Graph
from gecli.ir.op_desc import OpDesc, Port
from gecli.ir.weight import Weight
from gecli.wire.byte_source import FileSource
from gecli.wire.model_decoder import decode_model
from gecli.wire.model_encoder import EncodedModel, encode_model
from gecli.wire.model_record import GraphRecord, ModelRecord

OUTPUT_NAMES = "_gecli_output_names"


class UnusableSlice(ValueError):
    """The file does not hold the graph that it should."""


def encoded(graph: Graph) -> EncodedModel:
    """The graph as bytes and references to weights: the same bytes for the same graph."""
    graphs = [graph, *(each for each in graph.all_graphs() if each is not graph)]
    records = [GraphRecord.of(each, {}, each.name) for each in graphs]
    for record, each in zip(records, graphs):
        if each.output_names:
            record.attrs = {**record.attrs, OUTPUT_NAMES: tuple(each.output_names)}
    return encode_model(ModelRecord(graph.name, records))


def chunks_of(model: EncodedModel) -> Iterator[bytes]:
    for chunk in model.chunks:
        if isinstance(chunk, Weight):
            yield from chunk.chunks()
        else:
            yield chunk


def sha256_of(model: EncodedModel) -> str:
    """What the sha256 of the file is. Reads every weight once."""
    digest = hashlib.sha256()
    for chunk in chunks_of(model):
        digest.update(chunk)
    return digest.hexdigest()


def graph_digest(graph: Graph) -> str:
    """What identifies a slice: its nodes and the content of its weights."""
    found = fingerprint_of(graph, (), {})
    return digest_of("gecli-slice-1", found.graph, found.weights)


def read_slice(path: str, digest: str) -> Graph:
    """The graph in a file. Raises UnusableSlice for one that is not the graph with this digest, and OSError."""
    try:
        with closing(FileSource(path)) as source:
            record = decode_model(source, path=path, file_size=os.path.getsize(path), in_container=False)
        record.require_sound()
        graph = _graph_of(record)
    except (GecliError, KeyError, ValueError) as error:
        raise UnusableSlice(str(error)) from error
    if graph_digest(graph) != digest:
        raise UnusableSlice("the graph in the file has another digest")
    return graph


def _graph_of(record: ModelRecord) -> Graph:
    if not record.graphs:
        raise UnusableSlice("there is no graph in the file")
    root = _filled(Graph(record.root.name), record.root)
    for inner in record.graphs[1:]:
        root.add_subgraph(_filled(Graph(inner.name, root), inner))
    return root


def _filled(graph: Graph, record: GraphRecord) -> Graph:
    graph.attrs = {name: value for name, value in record.attrs.items() if name != OUTPUT_NAMES}
    graph.output_names = [str(name) for name in record.attrs.get(OUTPUT_NAMES) or ()]
    twins: dict[OpDesc, OpDesc] = {}
    for node in record.nodes:
        twins[node] = graph.add(
            OpDesc(
                node.name,
                node.type,
                attrs=dict(node.attrs),
                output_descs=list(node.output_descs),
                input_descs=list(node.input_descs),
                input_names=node.input_names,
                output_names=node.output_names,
                subgraphs=list(node.subgraphs),
            )
        )
    for node, twin in twins.items():
        for slot, port in enumerate(node.inputs):
            if port is not None:
                graph.connect(Port(twins[port.node], port.index), twin, slot)
        for before in node.control_in:
            graph.add_control(twins[before], twin)
    return graph
