"""Bytes of the header, a table or a partition, sixteen a line."""

from __future__ import annotations

import re
from collections.abc import Iterator

from gecli.artifacts.file_access import opened, pread
from gecli.artifacts.header import HEADER_BYTES
from gecli.artifacts.partition_table import table_bytes
from gecli.errors import InvalidOption
from gecli.report.inspect.partitions import listed
from gecli.report.inspect.subject import KINDS, Subject
from gecli.report.inspect.view import View

LINE_BYTES = 16
CHUNK_BYTES = 1 << 16
JSON_BYTES = 1 << 20  # one document holds no more; ask for a range


def hex_view(subject: Subject, spec: str) -> View:
    """`spec` is PART[:OFF[:LEN]]: header, table, file, a partition's name or number. Raises InvalidOption."""
    name, offset, length = _parsed(spec)
    start, size = _range(subject, name)
    if offset > size:
        raise InvalidOption(
            "E10001", f"--hex {spec} begins behind the end of {name}", option="--hex", expected=f"at most {size}",
            actual=offset, why=f"{name} has {size} bytes", do=f"--hex {name}",
        )  # fmt: skip
    count = size - offset if length is None else min(length, size - offset)
    document = {
        "part": name,
        "part_offset": start,
        "offset": offset,
        "length": count,
        "truncated": count > JSON_BYTES,
        "bytes": _hex(subject.place, start + offset, min(count, JSON_BYTES)),
    }
    return View("hex", document, [dump_lines(subject.place, start + offset, count)])


def dump_lines(path: str, start: int, count: int) -> Iterator[str]:
    """The canonical dump: file offset, bytes, ASCII."""
    with opened(path) as handle:
        position, end = start, start + count
        while position < end:
            block = pread(handle, position, min(CHUNK_BYTES, end - position))
            if not block:
                return
            for at in range(0, len(block), LINE_BYTES):
                line = block[at : at + LINE_BYTES]
                left, right = line[:8].hex(" "), line[8:].hex(" ")
                text = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in line)
                yield f"{position + at:08x}  {left:23}  {right:23}  |{text}|"
            position += len(block)


def _hex(path: str, start: int, count: int) -> str:
    with opened(path) as handle:
        return pread(handle, start, count).hex()


def _parsed(spec: str) -> tuple[str, int, int | None]:
    match = re.fullmatch(r"([^:]+)(?::(0x[0-9a-fA-F]+|\d+)?(?::(0x[0-9a-fA-F]+|\d+))?)?", spec, re.ASCII)
    if match is None:
        raise InvalidOption(
            "E10001", f"value {spec!r} for --hex is invalid", option="--hex", why="expected PART[:OFF[:LEN]]",
            do="--hex header, --hex MODEL_DEF:0:256",
        )  # fmt: skip
    name, offset, length = match.groups()
    return name, int(offset, 0) if offset else 0, int(length, 0) if length else None


def _range(subject: Subject, name: str) -> tuple[int, int]:
    """Start and size of a named part of the file."""
    if name.lower() == "file":
        return 0, subject.size_bytes
    if subject.om is None:
        raise InvalidOption(
            "E10001", f"the file has no part {name!r}", option="--hex", why=f"{KINDS[subject.kind]} is one part, file",
            do="--hex file",
        )  # fmt: skip
    om = subject.om
    if name.lower() == "header":
        return om.base, HEADER_BYTES
    if name.lower() == "table":
        return om.root.table_offset_bytes, table_bytes(len(om.root.partitions), wide=om.wide)
    items = list(listed(om))
    for item in items:
        if name in (str(item.number), item.name) or name.upper() == item.name:
            return item.partition.offset_bytes, item.partition.size_bytes
    known = ", ".join(dict.fromkeys(["header", "table", "file", *(item.name for item in items)]))
    raise InvalidOption(
        "E10001", f"the file has no part {name!r}", option="--hex", why=f"parts: {known}, or a number from "
        f"0 to {len(items) - 1}", do="--hex header",
    )  # fmt: skip
