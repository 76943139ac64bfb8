"""The document of an OM (`gecli inspect-om --json`) as the graph that it shows (cli.md 2.2).

The graph was compiled before: formats are chosen, conversions inserted, constants folded. It is marked as optimised
and goes from here to the planning of its memory.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from gecli.errors import Diagnostic, InputError
from gecli.ir.attributes import DATA_INDEX, DATA_TYPES, INIT_VALUE, VALUE
from gecli.ir.graph import Graph, GraphError
from gecli.ir.weight import Weight
from gecli.loading.json_loader import parse_document, too_deep
from gecli.loading.json_tensors import resolve_path
from gecli.loading.json_values import Json, Source, pointer_to
from gecli.loading.loaded_model import LoadedModel, LoadOptions, Origin
from gecli.loading.record_graph import graph_of
from gecli.wire.document_encoder import DataRange, DocumentFault, encode_document_model, missing_data
from gecli.wire.memory_budget import MemoryBudget
from gecli.wire.model_decoder import decode_model

if TYPE_CHECKING:
    from gecli.wire.model_record import ModelRecord

SCHEMA = "gecli.inspect/1"
CHUNK_BYTES = 1 << 20
_SHOWN = 5
_CONSTANTS = ("Const", "Constant")
_WRITE = "write the document again"
_AGAIN = "correct the document, or write it again"
_NOT_COMPILED = "only the document of an OM has a graph that was compiled"


def load_om_document(
    path: str, options: LoadOptions | None = None, *, base_dir: str | None = None, data: bytes | None = None
) -> LoadedModel:
    """The graph of a `gecli.inspect/1` document. Raises InputError, with the JSON pointer of the fault."""
    options = options or LoadOptions()
    if data is None:
        base_dir = base_dir or os.path.dirname(path) or "."
    source = Source(path, base_dir or "", options.allow_outside)
    if data is None:
        source.files[path] = None
    document = source.object(parse_document(path, data), "", "the document")
    model = _the_model(source, document)
    held = _Data(source)
    try:
        encoded = encode_document_model(model, held.read)
    except DocumentFault as fault:
        pointer = pointer_to("models", 0, *fault.path)
        raise source.fault(pointer, fault.message, fault.why, fault.do, fault.code) from fault
    except RecursionError as error:
        raise too_deep(path) from error
    record = _decoded(source, encoded, held)
    try:
        graph = graph_of(record)
    except GraphError as error:
        raise source.fault("/models/0/graphs", str(error), "no compiled model has such a graph", _AGAIN) from error
    _check(source, graph, record)
    return LoadedModel(
        graph,
        "json",
        path,
        tuple(source.files),
        warnings=tuple(source.warnings),
        producer="gecli",
        origin=Origin(_text(record, "soc_version"), _text(record, "framework_type")),
    )


def _the_model(source: Source, document: dict[str, Json]) -> dict[str, Json]:
    """The one model of the document. Raises InputError for documents of files that have none to compile."""
    if document.get("schema") != SCHEMA:
        raise source.fault("/schema", "the document is not that of a model", f"`schema` is not {SCHEMA!r}", _WRITE)
    file = source.object(document.get("file", {}), "/file", "file")
    kind = file.get("kind", "om")
    if kind != "om":
        do = "compile the source model"
        raise source.fault("/file/kind", f"documents of kind {kind!r} are not compiled", _NOT_COMPILED, do, "G1001")
    header = source.object(document.get("header", {}), "/header", "header")
    if header.get("modeltype") in (3, 4) or str(header.get("platform_version", "")).startswith("3."):
        why = "their operators convert data at both ends and have kernels of their own"
        do = "compile the source model"
        raise source.fault("/header", "documents of HiAI (mobile) models are not compiled", why, do, "G1001")
    models = source.list(document.get("models"), "/models", "models")
    if len(models) != 1:
        why = f"it has {len(models)}, and an output holds one"
        do = "leave one item in `models`" if models else "gecli inspect-om MODEL.om --json --embed-data"
        raise source.fault("/models", "the document must have one model", why, do)
    model = source.object(models[0], "/models/0", "a model")
    if not source.list(model.get("graphs"), "/models/0/graphs", "graphs"):
        raise source.fault("/models/0/graphs", "the model has no graph", "a model has one at least", _AGAIN)
    return model


class _Data:
    """The data of a document: in it, or in one file that it names."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.name = self.path = ""
        self.size = 0

    def read(self, value: dict[str, Json], in_memory: bool) -> bytes | DataRange:
        if "base64" in value:
            return self.embedded(value)
        if "$ref" not in value:
            raise missing_data(f"{value.get('bytes', 'some')} bytes are told by their digest only")
        place = self.place(value)
        if not in_memory:
            self.compare(value, _digest(self.path, place))
            return place
        with open(self.path, "rb") as stream:
            stream.seek(place.offset)
            data = stream.read(place.length)
        self.compare(value, hashlib.sha256(data).hexdigest())
        return data

    def embedded(self, value: dict[str, Json]) -> bytes:
        text = value["base64"]
        try:
            data = base64.b64decode(text if isinstance(text, str) else "?", validate=True)
        except (binascii.Error, ValueError) as error:
            why = str(error) if isinstance(text, str) else "it is no string"
            raise DocumentFault("the data are not base64", why, _WRITE) from error
        self.compare(value, hashlib.sha256(data).hexdigest(), len(data))
        return data

    def compare(self, value: dict[str, Json], digest: str, size: int | None = None) -> None:
        """Data that were changed go without the members that describe the old ones."""
        do = "write the document again, or remove `bytes` and `sha256` if the data were changed on purpose"
        told = value.get("bytes", size)
        if size is not None and told != size:
            raise DocumentFault("the data are not as long as the document says", f"{size} bytes, not {told}", do)
        if value.get("sha256", digest) != digest:
            raise DocumentFault("the data are not those that the document describes", f"their sha256 is {digest}", do)

    def place(self, value: dict[str, Json]) -> DataRange:
        name, offset, length = value["$ref"], value.get("offset"), value.get("length")
        if not isinstance(name, str) or type(offset) is not int or type(length) is not int:
            why = "`$ref` is the name of a file, `offset` and `length` are integers"
            raise DocumentFault("the place of the data has another form", why, _WRITE)
        if not self.path:
            try:
                self.path = resolve_path(self.source, name, "")
            except InputError as error:
                first = error.first
                raise DocumentFault(first.message, first.why, first.do, first.code) from error
            self.name, self.size = name, os.path.getsize(self.path)
        if name != self.name:
            why = f"some lie in {self.name!r}, these in {name!r}"
            raise DocumentFault("the data of a document lie in one file", why, _WRITE)
        if offset < 0 or length < 0 or offset + length > self.size:
            why = f"{length} bytes at {offset}, the file has {self.size}"
            do = "write the document and its data file again"
            raise DocumentFault(f"the data lie outside {name!r}", why, do, "G1003")
        return DataRange(offset, length)


def _digest(path: str, place: DataRange) -> str:
    digest = hashlib.sha256()
    with open(path, "rb") as stream:
        stream.seek(place.offset)
        left = place.length
        while left and (block := stream.read(min(left, CHUNK_BYTES))):
            digest.update(block)
            left -= len(block)
    return digest.hexdigest()


def _decoded(source: Source, encoded: bytes, held: _Data) -> ModelRecord:
    """The model, with the faults that the reader of OM files finds, which are the document's here."""
    budget = MemoryBudget.unlimited()
    try:
        record = decode_model(encoded, path=held.path or source.path, file_size=held.size, budget=budget)
    except InputError as error:
        why = error.first.message.rpartition("MODEL_DEF of ")[2]
        raise source.fault("/models/0", "the document is not that of a model", why, _WRITE) from error
    found = [_in_document(source, each) for each in record.problems if each.severity != "note"]
    errors = [each for each in found if each.severity == "error"]
    if errors:
        raise InputError.of(errors)
    source.warnings += found
    return record


def _in_document(source: Source, found: Diagnostic) -> Diagnostic:
    """A fault of the graph, without the file offset that it has in an OM."""
    message = found.message.rpartition(" (offset ")[0] or found.message
    return replace(
        found,
        code="E13005",
        message=message.partition(f"{found.kind}: ")[2] or message,
        where=f"{source.path}#/models/0/graphs",
        why=found.why or "an OM with this graph would be refused, too",
        do=_AGAIN,
        file=source.path,
        offset=None,
        kind="",
    )


def _check(source: Source, graph: Graph, record: ModelRecord) -> None:
    """What memory planning and running need of a graph. Raises InputError."""
    where = "/models/0/graphs"
    fault = next(iter(_faults(graph)), None)
    if fault is not None:
        raise source.fault(where, fault, "no compiled model has such a graph", _AGAIN)
    used = {each.name for each in graph.all_graphs()}
    unused = sorted({each.name for each in record.graphs[1:]} - used)
    if unused:
        why = f"no node names {', '.join(unused[:_SHOWN])}"
        source.warn(where, "subgraphs that are never called are left out", why)


def _faults(graph: Graph) -> Iterable[str]:
    for each in graph.all_graphs():
        if each.count_of("NetOutput") != 1:
            yield f"graph {each.name!r} has {each.count_of('NetOutput')} nodes of type NetOutput, one is needed"
        for node in each.nodes_of(*DATA_TYPES):
            if not node.output_descs:
                yield f"{node.type} {node.name!r} of graph {each.name!r} has no output"
            index: Any = node.attrs.get(DATA_INDEX, 0)
            if type(index) is not int:
                yield f"{node.type} {node.name!r} of graph {each.name!r} has an index that is no integer"
        given = [node.attrs[DATA_INDEX] for node in each.nodes_of(*DATA_TYPES) if DATA_INDEX in node.attrs]
        indices = [index for index in given if type(index) is int]
        if len(set(indices)) != len(indices):
            yield f"two inputs of graph {each.name!r} have one index"
        for node in each.nodes():
            values = [node.attrs.get(VALUE)] if node.type in _CONSTANTS else []
            values += [desc.attrs[INIT_VALUE] for desc in node.output_descs if INIT_VALUE in desc.attrs]
            if not all(isinstance(value, Weight) for value in values):
                yield f"the value of {node.type} {node.name!r} of graph {each.name!r} is no tensor"


def _text(record: ModelRecord, name: str) -> str:
    value = record.attrs.get(name)
    return value if isinstance(value, str) else ""
