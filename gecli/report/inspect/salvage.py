"""What can be read of a damaged OM: header, table entries cut to the file, and the model if it is whole."""

from __future__ import annotations

import os
from typing import Any

from gecli.artifacts.file_access import opened, pread
from gecli.artifacts.header import FLOW_MODEL, HEADER_BYTES, MAGIC, parse_header
from gecli.artifacts.om_file import OmFile, OmModel
from gecli.artifacts.partition_table import MAX_FLOW_PARTITIONS, Partition, table_bytes, unpack_entries
from gecli.report.inspect.subject import Subject
from gecli.report.inspect.summary import header_json
from gecli.report.inspect.view import Block, Table, View, cell


def salvage_view(path: str, place: str) -> View | None:
    """What is left of the file; None when it does not begin as an OM with a whole header."""
    with opened(place) as handle:
        size = os.fstat(handle).st_size
        head = pread(handle, 0, HEADER_BYTES)
        if len(head) < HEADER_BYTES or head[:4] != MAGIC:
            return None
        header = parse_header(head)
        flow = header.modeltype == FLOW_MODEL and not header.is_version_1
        wide = not header.is_version_1 and (header.model_length != 0 or flow)
        rows, parts = _table(handle, size, wide)
    document: dict[str, Any] = {
        "file": {"path": path, "size": size, "kind": "damaged"},
        "partitions": rows,
        "model": None,
    }
    om = OmFile(place, 0, size, "om", header, wide, (OmModel(0, HEADER_BYTES, tuple(parts)),))
    document["header"] = header_json(om)
    blocks: list[Block] = [
        f"salvaged from {cell(path)}, {size} bytes",
        f"header says {header.payload_bytes} bytes behind it, name {cell(header.name) or '-'}",
        Table(
            ("#", "partition", "offset", "bytes", "there"),
            [
                (str(row["index"]), row["name"], str(row["offset"]), str(row["size"]), str(row["available"]))
                for row in rows
            ],
            frozenset(("#", "offset", "bytes", "there")),
        ),
    ]
    subject = Subject(path, place, "om", size, om)
    if any(part.type == 0 for part in parts):
        model = subject.model_or_none()
        if model is not None:
            document["model"] = {
                "name": model.name,
                "graphs": [{"name": graph.name, "nodes": len(graph.nodes)} for graph in model.graphs],
                "soc": model.attrs.get("soc_version"),
            }
            nodes = sum(len(graph.nodes) for graph in model.graphs)
            blocks.append(f"model {cell(model.name)}: {nodes} nodes, MODEL_DEF is whole")
    document["problems"] = [warning.message for warning in subject.warnings]
    blocks += [f"also: {cell(text, 400)}" for text in document["problems"]]
    return View("salvage", document, blocks)


def _table(handle: int, size: int, wide: bool) -> tuple[list[dict[str, Any]], list[Partition]]:
    """The entries of the first table that are there, each with how much of it the file holds."""
    head = pread(handle, HEADER_BYTES, 4)
    count = int.from_bytes(head, "little")
    if len(head) < 4 or not 1 <= count <= MAX_FLOW_PARTITIONS:
        return [], []
    data = pread(handle, HEADER_BYTES, table_bytes(count, wide=wide))
    entry, lead = (24, 8) if wide else (12, 4)
    whole = max(len(data) - lead, 0) // entry
    entries, _ = unpack_entries(data[: lead + whole * entry], whole, wide=wide)
    start = HEADER_BYTES + table_bytes(count, wide=wide)
    rows: list[dict[str, Any]] = []
    parts: list[Partition] = []
    for k, (number, offset, length) in enumerate(entries):
        available = max(0, min(length, size - start - offset))
        part = Partition(number, start + offset, length, offset)
        rows.append({"index": k, "type": number, "name": part.name, "offset": start + offset, "size": length,
                     "available": available})  # fmt: skip
        if available == length:
            parts.append(part)
    return rows, parts
