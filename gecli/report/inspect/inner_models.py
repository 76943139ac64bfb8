"""The models inside a bundle or a flow model: where each is, and with --strict what is wrong in it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from gecli.artifacts.om_file import OmFile, read_om
from gecli.artifacts.partition_table import PartitionType
from gecli.errors import Diagnostic, InputError
from gecli.report.inspect.model_fields import walk
from gecli.report.inspect.partitions import partition_rows
from gecli.report.inspect.subject import WITHOUT_GRAPH, Subject
from gecli.report.sizes import counted
from gecli.wire.om_faults import om_problem
from gecli.wire.walker import LENGTH_DELIMITED, WireError

if TYPE_CHECKING:
    from gecli.loading.sniff import Outline
    from gecli.wire.byte_source import FileSource

MAX_NESTING = 4  # OM files inside OM files; a file cannot make the inspection go on for ever
FLOW_NAME, FLOW_TYPE, FLOW_OM_DATA, FLOW_GRAPH, FLOW_FILE = 1, 2, 3, 4, 9  # fields of SubmodelDef
LISTED_NAME = 3  # field of FlowModelDef
SHOWN_NAMES = 4
MAX_PATH_BYTES = 4096
WITH_MODELS = ("bundle", "flow")


def inner_rows(subject: Subject, om: OmFile, *, recursive: bool) -> list[dict[str, Any]]:
    """The models inside, one level deep or, if `recursive`, MAX_NESTING levels; a note says that more are deeper."""
    return _rows(subject, om, 1, MAX_NESTING if recursive else 1)


def _rows(subject: Subject, om: OmFile, level: int, last: int) -> list[dict[str, Any]]:
    found = list(_places(subject, om))
    for entry in found:
        if "kind" in entry:
            continue
        try:
            inner = read_om(om.path, base=entry["offset"], size=entry["size"])
            entry |= {"kind": inner.kind, "header_name": inner.header.name, "partitions": partition_rows(inner)}
            entry["nested"] = _rows(subject, inner, level + 1, last) if level < last else []
            if level == MAX_NESTING and inner.kind in WITH_MODELS:
                _note_depth(subject)
        except InputError as error:
            subject.warn(*error.diagnostics)
            entry |= {"kind": error.kind or "not-om", "header_name": None, "partitions": [], "nested": []}
    return found


def _note_depth(subject: Subject) -> None:
    message = f"models lie deeper than {MAX_NESTING} levels; those below are not shown and not looked at"
    subject.warn(Diagnostic("G3008", message, severity="note", kind=subject.kind, file=subject.path))


def check_everything(subject: Subject) -> None:
    """Read every part of a file, also of the models inside it: what is wrong is among the subject's warnings."""
    _check_parts(subject)
    if subject.om is not None and subject.om.kind in WITH_MODELS:
        for index in range(subject.model_count):
            subject.forget_model(index)  # one model at a time in memory
        _check_inner(subject, subject, subject.om, "", 1)


def _check_parts(subject: Subject) -> None:
    subject.digest_state(always=True)
    subject.inout()
    if subject.om is not None:
        from gecli.report.inspect.task_list import stored_code

        stored_code(subject)
    if subject.kind in WITHOUT_GRAPH or subject.kind in ("bundle", "preload"):
        return
    from gecli.report.inspect.model_info import compare_info_list

    compare_info_list(subject)
    for index in range(subject.model_count):
        subject.model_or_none(index)
        subject.task_counts(index)


def _check_inner(root: Subject, outer: Subject, om: OmFile, within: str, level: int) -> None:
    """The models of one container, each as if it were a file of its own; faults go to `root` with the way to them."""
    for number, entry in enumerate(_places(outer, om), 1):
        if "kind" in entry:
            continue
        way = f"{within}submodel {entry['name']!r}" if entry["name"] else f"{within}model {number}"
        try:
            inner_om = read_om(om.path, base=entry["offset"], size=entry["size"])
        except InputError as error:
            root.warn(*error.diagnostics)
            continue
        warnings = list(inner_om.warnings)
        inner = Subject(root.path, root.place, inner_om.kind, inner_om.size_bytes, inner_om, warnings)
        _check_parts(inner)
        for index in range(inner.model_count):
            inner.forget_model(index)
        if inner_om.kind in WITH_MODELS:
            if level < MAX_NESTING:
                _check_inner(root, inner, inner_om, f"{way}, ", level + 1)
            else:
                _note_depth(root)
        root.warn(*(replace(each, where=f"{way}, {each.where}" if each.where else way) for each in inner.faults))


def _places(subject: Subject, om: OmFile) -> Iterator[dict[str, Any]]:
    """Name, type, file, offset and size of each model inside; `kind` says what those have that hold none."""
    if om.kind == "bundle":
        for part in om.root.partitions:
            if part.type == PartitionType.BUNDLE_MODEL_INFO:
                yield {"name": None, "type": None, "file": None, "offset": part.offset_bytes, "size": part.size_bytes}
    elif om.kind == "flow":
        names: set[str] = set()
        for entry in _submodels(subject, om):
            names.add(entry["name"] or "")
            yield entry
        _compare_names(subject, om, names)


def _compare_names(subject: Subject, om: OmFile, names: set[str]) -> None:
    """A submodel that FLOW_MODEL lists and no partition holds, and a FLOW_MODEL that is no message, are warnings."""
    part = om.root.partition(PartitionType.FLOW_MODEL)
    if part is None:
        return
    try:
        fields = walk(memoryview(om.read(part)))
        listed = [bytes(value).decode("utf-8", "replace") for number, value in fields
                  if number == LISTED_NAME and isinstance(value, memoryview)]  # fmt: skip
    except WireError as error:
        message = f"FLOW_MODEL is no message: {error}"
        subject.warn(om_problem("bad-proto", subject.path, message, part.offset_bytes, where="FLOW_MODEL"))
        return
    lost = [name for name in dict.fromkeys(listed) if name not in names]
    if lost:
        shown = ", ".join(map(repr, lost[:SHOWN_NAMES])) + (" and others" if len(lost) > SHOWN_NAMES else "")
        message = f"FLOW_MODEL lists {counted(len(lost), 'submodel')} that no FLOW_SUBMODEL is: {shown}"
        held = ", ".join(sorted(names)[:SHOWN_NAMES]) or "none"
        told = {"where": "FLOW_MODEL", "why": f"the submodels in the file are {held}"}
        subject.warn(om_problem("bad-graph", subject.path, message, part.offset_bytes, **told))


def _submodels(subject: Subject, om: OmFile) -> Iterator[dict[str, Any]]:
    """Each submodel of a flow model: where its OM is; `kind` says what those have that hold none.

    A file that a submodel names is not opened. One that is no message is a warning.
    """
    from gecli.loading.sniff import outline
    from gecli.wire.byte_source import FileSource

    for part in om.root.partitions:
        if part.type != PartitionType.FLOW_SUBMODEL:
            continue
        with FileSource(om.path, part.offset_bytes, part.size_bytes) as source:
            fields = outline(source, 0, part.size_bytes)
            texts = [_outline_text(source, fields, number) for number in (FLOW_NAME, FLOW_TYPE, FLOW_FILE)]
            entry: dict[str, Any] = dict(zip(("name", "type", "file"), texts))
            held = next((number for number in (FLOW_OM_DATA, FLOW_GRAPH) if number in fields and fields[number][2]), 0)
            _, offset, length = fields[held] if held else (0, 0, 0)
            if offset + length > part.size_bytes or (part.size_bytes and not fields):
                faults = ("whose model ends outside it", "is no message")
                message = f"a FLOW_SUBMODEL of {part.size_bytes} bytes {faults[not fields]}"
                subject.warn(om_problem("bad-proto", subject.path, message, part.offset_bytes, where="FLOW_SUBMODEL"))
                held, offset, length = 0, 0, 0
            entry |= {"offset": part.offset_bytes + offset, "size": length}
            if held != FLOW_OM_DATA:
                kind = "file" if entry["file"] else "graph" if held else "empty"
                entry |= {"kind": kind, "header_name": None, "partitions": [], "nested": []}
            yield entry


def _outline_text(source: FileSource, fields: Outline, number: int) -> str | None:
    """A text of a message, where it has one."""
    if number not in fields or fields[number][0] != LENGTH_DELIMITED:
        return None
    _, offset, length = fields[number]
    return source.read(offset, min(length, MAX_PATH_BYTES)).decode("utf-8", "replace")
