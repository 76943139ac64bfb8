"""What can be read of a damaged OM: header, table entries cut to the file, the model, or its nodes before the cut."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from typing import Any

from gecli.artifacts.container import MAX_MODELS
from gecli.artifacts.file_access import opened, pread
from gecli.artifacts.header import FLOW_MODEL, HEADER_BYTES, MAGIC, parse_header
from gecli.artifacts.om_file import OmFile, OmModel
from gecli.artifacts.partition_table import MAX_FLOW_PARTITIONS, Partition, PartitionType, table_bytes, unpack_entries
from gecli.errors import Diagnostic, InputError
from gecli.records import dataclass
from gecli.report.inspect.model_fields import walk
from gecli.report.inspect.subject import Subject
from gecli.report.inspect.summary import header_json
from gecli.report.inspect.view import Block, Table, View, cell
from gecli.wire.ge_ir_fields import GRAPH, MODEL, OP
from gecli.wire.om_faults import om_error
from gecli.wire.walker import WireError

MAX_CUT_BYTES = 64 << 20  # of a cut MODEL_DEF, as much is searched for nodes
SHOWN_TYPES = 10
SHOWN_NODES = 20
OP_FIELD = next(number for number, spec in GRAPH.fields.items() if spec.message is OP)
GRAPH_FIELD = next(number for number, spec in MODEL.fields.items() if spec.message is GRAPH)


@dataclass(slots=True)
class Salvage:
    """`subject` has the partitions that are whole and the weights as far as they are there; `rows` has the table.

    A ModelDef without its OM has neither header nor table: its one row is the message itself.
    """

    subject: Subject
    rows: list[dict[str, Any]]

    def explained(self, error: InputError) -> InputError:
        """The error of a view that needs MODEL_DEF, with how much of that is left."""
        row = next((row for row in self.rows if row["type"] == PartitionType.MODEL_DEF), None)
        if error.kind != "no-model-def" or row is None or row["available"] == row["size"]:
            return error
        held = f"{row['available']} of the {row['size']} bytes of MODEL_DEF are in the file"
        return om_error(
            "no-model-def", self.subject.path, f"the view needs a whole model: {held}",
            min(row["offset"] + row["available"], self.subject.size_bytes),
            expected=row["size"], actual=row["available"],
            do="leave the view out: --json names the nodes before the cut then",
        )  # fmt: skip

    def overview(self) -> View:
        """Header, partitions and the model, as far as they are there."""
        subject = self.subject
        om = subject.om
        document: dict[str, Any] = {
            "file": {"path": subject.path, "size": subject.size_bytes, "kind": "damaged"},
            "header": None if om is None else header_json(om),
            "partitions": [] if om is None else self.rows,
            "model": self._model(),
            "cut_model": None,
        }
        if document["model"] is None:
            document["cut_model"] = self._cut_model()
        document["problems"] = [warning.message for warning in subject.warnings]
        declared = 0 if om is None else om.header.payload_bytes
        return View("salvage", document, [*_blocks(document, declared), *_problems(subject.faults)])

    def _model(self) -> dict[str, Any] | None:
        om = self.subject.om
        if om is None or om.root.partition(PartitionType.MODEL_DEF) is None:
            return None
        model = self.subject.model_or_none()
        if model is None:
            return None
        soc = model.attrs.get("soc_version")
        return {
            "name": model.name,
            "graphs": [{"name": graph.name, "nodes": len(graph.nodes)} for graph in model.graphs],
            "soc": soc if isinstance(soc, str) else None,
        }

    def _cut_model(self) -> dict[str, Any] | None:
        """The nodes of a MODEL_DEF that is cut or damaged, up to the first byte that cannot be read."""
        row = next((row for row in self.rows if row["type"] == PartitionType.MODEL_DEF and row["available"]), None)
        if row is None:
            return None
        with opened(self.subject.place) as handle:
            data = pread(handle, row["offset"], min(row["available"], MAX_CUT_BYTES))
        nodes = [{"name": name, "type": kind} for name, kind in _nodes(memoryview(data))]
        return {"bytes": len(data), "of": row["size"], "nodes": nodes}


def salvage(path: str, place: str) -> Salvage | None:
    """What is left of the file; None when it begins neither as an OM with a whole header nor as a ModelDef."""
    with opened(place) as handle:
        size = os.fstat(handle).st_size
        head = pread(handle, 0, HEADER_BYTES)
        if head[:4] != MAGIC:
            return _bare(path, place, size)
        if len(head) < HEADER_BYTES:
            return None
        header = parse_header(head)
        flow = header.modeltype == FLOW_MODEL and not header.is_version_1
        wide = not header.is_version_1 and (header.model_length != 0 or flow)
        count = 1 if flow or header.is_version_1 else min(max(header.model_num, 1), MAX_MODELS)
        rows, models = _tables(handle, size, wide, count)
    om = OmFile(place, 0, size, "om", header, wide, tuple(models))
    cut = {
        row["type"]: f"{row['name']} is cut: {row['available']} of its {row['size']} bytes are in the file"
        for row in reversed(rows)
        if row["available"] < row["size"]
    }
    return Salvage(Subject(path, place, "om", size, om, cut_parts=cut), rows)


def _bare(path: str, place: str, size: int) -> Salvage | None:
    """A ModelDef without its OM: as long as its fields say, as far as they can be followed."""
    from gecli.loading.sniff import FileKind, outline, sniff
    from gecli.wire.byte_source import FileSource

    if sniff(place) is not FileKind.AIR:
        return None
    with FileSource(place) as source:
        fields = outline(source, 0, size)
    declared = max([size, *(offset + length for _, offset, length in fields.values())])
    row = {"type": PartitionType.MODEL_DEF, "name": "MODEL_DEF", "offset": 0, "size": declared, "available": size}
    return Salvage(Subject(path, place, "model-def", size), [row])


def _tables(handle: int, size: int, wide: bool, count: int) -> tuple[list[dict[str, Any]], list[OmModel]]:
    """The entries of every table that is there, and the models: the root, and those behind it that are whole."""
    rows: list[dict[str, Any]] = []
    models: list[OmModel] = []
    position = HEADER_BYTES
    for index in range(count):
        found, parts, end = _table(handle, size, wide, position)
        if index == 0 or (len(models) == index and _is_whole(parts)):
            models.append(OmModel(index, position, tuple(parts)))
        rows += [{**row, "index": len(rows) + k, "model": index} for k, row in enumerate(found)]
        if not found or end >= size or len(rows) > MAX_FLOW_PARTITIONS:
            break
        position = end
    return rows, models


def _is_whole(parts: list[Partition]) -> bool:
    return any(part.type == PartitionType.MODEL_DEF for part in parts)


def _blocks(document: dict[str, Any], declared: int) -> Iterator[Block]:
    yield f"salvaged from {cell(document['file']['path'])}, {document['file']['size']} bytes"
    if document["header"] is not None:
        yield f"header says {declared} bytes behind it, name {cell(document['header']['name']) or '-'}"
        yield _table_of(document["partitions"])
    least = "at least " if document["header"] is None else ""  # behind the cut more fields may have stood
    yield from _model_lines(document["model"], document["cut_model"], least)


def _table_of(rows: list[dict[str, Any]]) -> Table:
    columns: tuple[str, ...] = ("#", "partition", "offset", "bytes", "there")
    keys: tuple[str, ...] = ("index", "name", "offset", "size", "available")
    if any(row["model"] for row in rows):
        columns, keys = ("model", *columns), ("model", *keys)
    cells = [tuple(str(row[key]) for key in keys) for row in rows]
    return Table(columns, cells, frozenset(columns) - {"partition"})


def _model_lines(model: dict[str, Any] | None, cut: dict[str, Any] | None, least: str) -> Iterator[str]:
    if model is not None:
        nodes = sum(graph["nodes"] for graph in model["graphs"])
        yield f"model {cell(model['name'])}: {nodes} nodes, MODEL_DEF is whole"
    if cut is not None:
        counts = Counter(node["type"] for node in cut["nodes"])
        shown = ", ".join(f"{cell(name, 40)} {count}" for name, count in counts.most_common(SHOWN_TYPES))
        yield f"{len(cut['nodes'])} nodes in the first {cut['bytes']} of {least}{cut['of']} bytes of MODEL_DEF" + (
            f": {shown}" if shown else ""
        )
        names = [cell(node["name"], 60) or "(no name)" for node in cut["nodes"]]
        if names:
            more = f" and {len(names) - SHOWN_NODES} more, which --json names" if len(names) > SHOWN_NODES else ""
            yield f"they are {', '.join(names[:SHOWN_NODES])}{more}"


def _problems(faults: list[Diagnostic]) -> Iterator[str]:
    """The first of each kind; a cut before the weights is a fault of every constant."""
    kinds = Counter(fault.kind for fault in faults)
    for kind, count in kinds.items():
        first = next(fault for fault in faults if fault.kind == kind)
        more = f"; {count - 1} more of this kind" if count > 1 else ""
        yield f"also: {cell(first.message, 400)}{more}"


def _nodes(data: memoryview) -> Iterator[tuple[str, str]]:
    """Name and type of every whole operator."""
    for graph in _messages(data, GRAPH_FIELD):
        for op in _messages(graph, OP_FIELD):
            try:
                texts = {number: bytes(value).decode("utf-8", "replace") for number, value in walk(op)
                         if number in (1, 2) and isinstance(value, memoryview)}  # fmt: skip
            except WireError:
                continue
            yield texts.get(1, ""), texts.get(2, "")


def _messages(data: memoryview, number: int) -> Iterator[memoryview]:
    """The messages of one field; of the last, which may be cut, the part that is there."""
    fields = walk(data, cut=True)
    while True:
        try:
            found, value = next(fields)
        except (StopIteration, WireError):
            return
        if found == number and isinstance(value, memoryview):
            yield value


def _table(handle: int, size: int, wide: bool, position: int) -> tuple[list[dict[str, Any]], list[Partition], int]:
    """The entries of one table that are there, each with how much of it the file holds, and where the model ends."""
    head = pread(handle, position, 4)
    count = int.from_bytes(head, "little")
    if len(head) < 4 or not 1 <= count <= MAX_FLOW_PARTITIONS:
        return [], [], size
    data = pread(handle, position, table_bytes(count, wide=wide))
    entry, lead = (24, 8) if wide else (12, 4)
    whole = max(len(data) - lead, 0) // entry
    entries, _ = unpack_entries(data[: lead + whole * entry], whole, wide=wide)
    start = position + table_bytes(count, wide=wide)
    rows: list[dict[str, Any]] = []
    parts: list[Partition] = []
    for number, offset, length in entries:
        available = max(0, min(length, size - start - offset))
        part = Partition(number, start + offset, length, offset)
        rows.append({"type": number, "name": part.name, "offset": start + offset, "size": length,
                     "available": available})  # fmt: skip
        if available == length or (number == PartitionType.WEIGHTS_DATA and available):
            parts.append(part)  # of the weights, those before the cut are whole
    return rows, parts, max([start, *(start + offset + length for _, offset, length in entries)])
