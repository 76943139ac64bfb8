"""Weights and constants: owner, description, place and digest (cli.md 2.1 --tensors)."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from itertools import chain
from typing import Any

from gecli.errors import Diagnostic
from gecli.ir.attributes import CONST_TYPES, SHA256_ATTR
from gecli.ir.tensor_desc import TensorDesc
from gecli.ir.weight import Absent, FileSlice, Weight
from gecli.records import dataclass
from gecli.report.inspect.attribute_values import desc_json
from gecli.report.inspect.nodes import WHOLE_NAME, weights_of
from gecli.report.inspect.npy_header import is_opaque
from gecli.report.inspect.subject import Subject
from gecli.report.inspect.view import Block, PackedRows, Rows, Table, View, cell
from gecli.report.sizes import counted, dtype_text, shape_text, size_text

COLUMNS = ("name", "dtype", "format", "shape", "bytes", "offset", "where", "sha256")
STATISTICS = ("min", "max", "mean", "nan", "inf", "zeros")
FILE_CONSTANT = "FileConstant"
SHOWN_REMARKS = 8


@dataclass(frozen=True, slots=True)
class HeldTensor:
    """A tensor of the file under the name that `--extract` knows."""

    name: str
    node: str
    type: str
    weight: Weight
    users: int


def held_tensors(subject: Subject) -> Iterator[HeldTensor]:
    """Every tensor whose bytes are in the file; a tensor that is not the node's value has `node/attribute`."""
    seen: dict[str, int] = {}
    for _, _, node, _ in subject.nodes():
        for part, weight in weights_of(node):
            name = f"{node.name}/{part}" if part else node.name
            count = seen[name] = seen.get(name, 0) + 1
            yield HeldTensor(
                name if count == 1 else f"{name}~{count}", node.name, node.type, weight, sum(map(len, node.users))
            )


def tensors_view(subject: Subject, *, statistics: bool = False) -> View:
    remarks = _Remarks()
    held = (_held_json(subject, each, statistics) for each in held_tensors(subject))
    rows = PackedRows(remarks.seen(row) for row in chain(held, _external(subject)))
    columns = COLUMNS + (STATISTICS if statistics else ())
    right = frozenset(("bytes", "offset", *STATISTICS))
    blocks: list[Block] = [Table(columns, Rows(lambda: (_cells(row, statistics) for row in rows)), right)]
    blocks += remarks.lines(len(rows))
    return View("tensors", {"count": len(rows), "bytes": remarks.total, "tensors": rows.as_list()}, blocks)


class _Remarks:
    """What is said of all tensors together, noted while their rows are made."""

    def __init__(self) -> None:
        self.total = 0
        self.lacking = 0
        self.outside = 0
        self.unused: list[str] = []
        self.unused_count = self.unused_bytes = 0
        self.twice: list[tuple[str, str]] = []
        self.twice_count = 0
        self._first: dict[bytes, str] = {}

    def seen(self, row: dict[str, Any]) -> dict[str, Any]:
        """The row, with the name of the first tensor that has the same bytes, type and shape."""
        self.total += row["available"] or 0
        name = row["name"]
        if row["stored"] == "external":
            self.outside += 1
            return row
        self.lacking += row["available"] < row["bytes"]
        if row["users"] == 0 and row["type"] in CONST_TYPES:
            self.unused_count += 1
            self.unused_bytes += row["bytes"]
            if len(self.unused) < SHOWN_REMARKS:
                self.unused.append(name)
        if row["bytes"] and row["sha256"]:
            form = f"{row['bytes']} {row['dtype']} {row['shape']}"
            first = self._first.setdefault(bytes.fromhex(row["sha256"]) + form.encode(), name)
            if first != name:
                row["same_as"] = first
                self.twice_count += 1
                if len(self.twice) < SHOWN_REMARKS:
                    self.twice.append((name, first))
        return row

    def lines(self, count: int) -> Iterator[str]:
        """The total, and the bytes that nobody needs."""
        text = f"{counted(count, 'tensor')}, {size_text(self.total)} in the file"
        text += f"; {self.lacking} not there or only in part" if self.lacking else ""
        yield f"{text}; {self.outside} in weight files, sha256 as recorded" if self.outside else text
        if self.unused:
            names = ", ".join(cell(name, 60) for name in self.unused)
            more = f" and {self.unused_count - SHOWN_REMARKS} more" if self.unused_count > SHOWN_REMARKS else ""
            yield f"no node reads {names}{more}: {size_text(self.unused_bytes)}"
        yield from (f"{cell(name)} has the bytes of {cell(first)}" for name, first in self.twice)
        if self.twice_count > SHOWN_REMARKS:
            yield f"and {self.twice_count - SHOWN_REMARKS} more with the bytes of another"


def _held_json(subject: Subject, each: HeldTensor, statistics: bool) -> dict[str, Any]:
    weight, source = each.weight, each.weight.source
    desc = desc_json(weight.desc) or {}
    is_read = not isinstance(source, Absent) and subject.may_read(source.nbytes)
    row: dict[str, Any] = {
        "name": each.name,
        "node": each.node,
        "type": each.type,
        **desc,
        "bytes": source.nbytes,
        "available": source.nbytes,
        "stored": "inline",
        "file_offset": None,
        "partition_offset": None,
        "file": None,
        "sha256": weight.sha256() if is_read else None,
        "users": each.users,
        "same_as": None,
    }
    if isinstance(source, FileSlice):
        row["file_offset"] = source.offset_bytes
        row["stored"], row["partition_offset"] = _place(subject, source.offset_bytes)
    if isinstance(source, Absent):
        return row | {
            "available": source.held_bytes,
            "partition_offset": source.area_offset_bytes,
            "stored": "nowhere" if source.area_offset_bytes is None else "WEIGHTS_DATA",
        }
    _check_size(subject, each)
    if statistics and is_read:
        from gecli.report.inspect.tensor_statistics import tensor_statistics

        row["stats"] = tensor_statistics(weight)
    return row


def _place(subject: Subject, offset: int) -> tuple[str, int | None]:
    """The partition that holds a file offset, and the offset inside it."""
    for model in subject.om.models if subject.om is not None else ():
        for part in model.partitions:
            if part.offset_bytes <= offset < part.offset_bytes + part.size_bytes:
                return part.name, offset - part.offset_bytes
    return "inline", None


def bytes_needed(desc: TensorDesc) -> int | None:
    """What a description says of the size; None where it says nothing: unknown dims, types without a size."""
    return desc.nbytes if desc.is_static and not is_opaque(desc.dtype) else None


def _check_size(subject: Subject, each: HeldTensor) -> None:
    source = each.weight.source
    needed, held = bytes_needed(each.weight.desc), source.nbytes
    if held == 0 or needed is None or needed == held:
        return
    message = f"tensor {each.name!r} has {held} bytes, its description {each.weight.desc} needs {needed}"
    offset = source.offset_bytes if isinstance(source, FileSlice) else None
    at = "" if offset is None else f" (offset {offset})"
    subject.warn(
        Diagnostic(
            "G3012", f"{subject.path}: {message}{at}", kind="bad-weights", file=subject.path, node=each.node,
            offset=offset, why="shape and type of the node do not fit the bytes that it has", do=look_at(subject, each),
            expected=needed, actual=held,
        )
    )  # fmt: skip


def look_at(subject: Subject, each: HeldTensor) -> str:
    """The command that shows what a file has of a tensor."""
    source, file = each.weight.source, shlex.quote(subject.path)
    if isinstance(source, FileSlice) and source.nbytes:
        return f"gecli inspect-om {file} --hex file:{source.offset_bytes}:{source.nbytes}"
    return f"gecli inspect-om {file} --nodes --name {shlex.quote(each.node)} --show attrs,weights"


def external_weights(subject: Subject) -> Iterator[dict[str, Any]]:
    """FileConstant nodes: the file each wants, as the OM names it. Nothing is opened."""
    for _, _, node, _ in subject.nodes():
        if node.type != FILE_CONSTANT:
            continue
        attrs = node.attrs
        desc = node.output_descs[0] if node.output_descs else None
        named = next((attrs[key] for key in ("location", "file_path", "file_id") if isinstance(attrs.get(key), str)
                      and attrs[key]), None)  # fmt: skip
        yield {
            "node": node.name,
            "file": named,
            "offset": _integer(attrs.get("offset", 0)),
            "bytes": _integer(attrs.get("length")),
            "desc": desc_json(desc),
            "sha256": _digest(attrs.get(SHA256_ATTR)),
            "users": sum(map(len, node.users)),
        }


def _digest(value: Any) -> str | None:
    """What the compiler recorded; the file is not opened."""
    return value if isinstance(value, str) and re.fullmatch("[0-9a-f]{64}", value) else None


def _integer(value: Any) -> int | None:
    return value if isinstance(value, int) else None


def _external(subject: Subject) -> Iterator[dict[str, Any]]:
    for row in external_weights(subject):
        yield {
            "name": row["node"], "node": row["node"], "type": FILE_CONSTANT, **(row["desc"] or {}),
            "bytes": row["bytes"], "available": None, "stored": "external",
            "file_offset": row["offset"], "partition_offset": None,
            "file": row["file"], "sha256": row["sha256"], "users": row["users"], "same_as": None,
        }  # fmt: skip


def _cells(row: dict[str, Any], statistics: bool) -> tuple[str, ...]:
    offset = row["file_offset"] if row["stored"] == "external" else row["partition_offset"]
    where = cell(row["file"] or "?", WHOLE_NAME) if row["stored"] == "external" else row["stored"]
    if row["available"] is not None and row["available"] < row["bytes"]:
        where += f", cut after {row['available']} bytes" if row["available"] else ", absent"
    cells = (
        cell(row["name"], WHOLE_NAME), dtype_text(row.get("dtype", "?")), row.get("format", "?"),
        shape_text(row.get("shape", [])), "?" if row["bytes"] is None else str(row["bytes"]),
        "-" if offset is None else str(offset), where, (row["sha256"] or "-")[:12],
    )  # fmt: skip
    if not statistics:
        return cells
    stats = row.get("stats") or {}
    return (*cells, *(_figure(stats.get(name)) for name in STATISTICS))


def _figure(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:.6g}" if isinstance(value, float) else str(value)
