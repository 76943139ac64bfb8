"""The `gecli.inspect/1` document: everything in the file (cli.md 2.2)."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from typing import Any

from gecli.artifacts.file_access import opened, pread
from gecli.artifacts.partition_table import Partition, PartitionType
from gecli.report.inspect.atc_document import dtype_name, val_type_name
from gecli.report.inspect.interface import interface_facts
from gecli.report.inspect.model_fields import ModelFields, Ref
from gecli.report.inspect.partitions import partition_rows
from gecli.report.inspect.stored_data import Store, no_data
from gecli.report.inspect.subject import WITHOUT_GRAPH, Subject
from gecli.report.inspect.summary import header_json, summary_facts
from gecli.report.inspect.task_list import task_counts
from gecli.report.inspect.view import Members, Rows, View, as_large
from gecli.wire.attributes import MERGED_OFFSET
from gecli.wire.ge_ir_fields import (
    ATTR,
    EMPTY_LIST_TYPES,
    GRAPH,
    LIST,
    LIST_TYPE,
    LIST_TYPES,
    NOT_FINITE,
    OP,
    TENSOR,
    TEXT_TYPE,
    TEXTS_TYPE,
    VALUE_TYPES,
    Field,
    Fields,
    Message,
)

SHOWN_BYTES = 256
CHUNK_BYTES = 1 << 20
PLAIN_LISTS = ("s", "i", "f", "b")
LIST_FIELDS = dict(enumerate(("s", "i", "f", "b", "bt", "td", "t", "g", "na", "dt"), 1))  # by val_type


def model_view(subject: Subject, store: Store = no_data) -> View:
    """`store` adds data (or the place where it was put) to every value of bytes."""
    if subject.kind in WITHOUT_GRAPH:
        facts = summary_facts(subject)
        if subject.kind != "idx":
            from gecli.report.inspect.variables import vars_view

            facts["variables"] = vars_view(subject).document["variables"]
        return View("model", {**facts, "file": _file(subject)})
    om = subject.om
    document: dict[str, Any] = {"file": _file(subject), "models": []}
    if om is not None:
        document |= {"header": header_json(om), "partitions": partition_rows(om)}
    if subject.kind in ("bundle", "preload"):
        return View("model", document)
    root = None
    for index in range(subject.model_count):
        subject.model(index)  # its problems are the document's warnings
        facts = {
            "tasks": task_counts(subject, index),
            "inout": interface_facts(subject) if index == 0 else None,
        }
        subject.forget_model(index)
        fields = open_fields(subject, index, root)
        root = root or fields
        weights = om.models[index].partition(PartitionType.WEIGHTS_DATA) if om is not None else None
        document["models"].append({**_model(fields, _Renderer(subject.place, store, weights)), **facts})
    return View("model", document)


def open_fields(subject: Subject, index: int = 0, root: ModelFields | None = None) -> ModelFields:
    """MODEL_DEF of one model, field by field."""
    from gecli.wire.byte_source import FileSource

    if subject.data is not None:
        return ModelFields(subject.data, len(subject.data))
    offset, size = 0, subject.size_bytes
    if subject.om is not None:
        part = subject.om.models[index].partition(PartitionType.MODEL_DEF)
        assert part is not None  # the model was read before
        offset, size = part.offset_bytes, part.size_bytes
    with FileSource(subject.place, offset, size) as source:
        return ModelFields(source, subject.size_bytes, None if root is None else root.root_names)


def _file(subject: Subject) -> dict[str, Any]:
    digest = hashlib.sha256()
    with opened(subject.place) as handle:
        position = 0
        while block := pread(handle, position, CHUNK_BYTES):
            digest.update(block)
            position += len(block)
    return {"path": subject.path, "size": subject.size_bytes, "sha256": digest.hexdigest(), "kind": subject.kind}


def _model(fields: ModelFields, render: _Renderer) -> dict[str, Any]:
    members = fields.members
    return {
        "name": members.get("name", ""),
        "version": members.get("version", 0),
        "custom_version": members.get("custom_version", ""),
        "attrs": Members(fields.attrs, lambda key: render.attr(fields.attrs[key])),
        "graphs": Rows(lambda: _graphs(fields, render)),
    }


def _graphs(fields: ModelFields, render: _Renderer) -> Iterator[Any]:
    for head, ops in fields.graphs():
        members = render.message(GRAPH, head)
        yield {
            "name": members.get("name", ""),
            "inputs": members.get("input", []),
            "outputs": members.get("output", []),
            "attrs": members.get("attr", {}),
            "ops": Rows(_rendered(render, ops)),
        }


def _rendered(render: _Renderer, ops: Iterator[Fields]) -> Callable[[], Iterator[Any]]:
    return lambda: (as_large(op, render.message(OP, op)) for op in ops)


class _Renderer:
    """Fields of messages as JSON values."""

    def __init__(self, path: str, store: Store, weights: Partition | None) -> None:
        self.path = path
        self.store = store
        self.weights = weights

    def message(self, kind: Message, fields: Fields) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for spec in kind.fields.values():
            if spec.name not in fields:
                continue
            value = fields[spec.name]
            if spec.is_map:
                found[spec.name] = self.attrs(value)
            elif spec.message is not None and spec.repeated:
                found[spec.name] = [self.message(spec.message, item) for item in value]
            elif spec.message is not None:
                found[spec.name] = self.message(spec.message, value)
            elif spec.repeated:
                found[spec.name] = [self.scalar(spec, item) for item in value]
            else:
                found[spec.name] = self.scalar(spec, value)
        if kind is TENSOR and "data" not in found and self.store is not no_data:
            outside = self.weight_of(fields.get("desc", {}))
            if outside is not None:
                found["data"] = self.data(outside)
        return found

    def weight_of(self, desc: Fields) -> Ref | None:
        """Where a tensor without data of its own lies in WEIGHTS_DATA. An attribute overrides the field of its name."""
        attrs = desc.get("attr", {})
        size, place = (attrs.get(name, {}).get("i", desc.get(name, 0)) for name in ("weight_size", "data_offset"))
        place = attrs.get(MERGED_OFFSET, {}).get("i", place)
        area = self.weights
        if area is None or size <= 0 or place < 0 or place + size > area.size_bytes:
            return None
        return Ref(area.offset_bytes + place, size)

    def scalar(self, spec: Field, value: Any) -> Any:
        if spec.kind == "bytes":
            return self.data(value)
        if spec.kind == "dtype":
            return dtype_name(value)
        if spec.kind == "val_type":
            return val_type_name(value)
        return value

    def attrs(self, attrs: dict[str, Fields]) -> dict[str, Any]:
        return {key: self.attr(attrs[key]) for key in sorted(attrs)}

    def attr(self, value: Fields) -> Any:
        """Plain for s, i, f, b and lists of them, else an object with `type`, as an empty list that has one."""
        for kind in ("i", "b", "f"):
            if kind in value:
                return value[kind]
        if "s" in value:
            text = self.text(value["s"])
            return {"type": TEXT_TYPE, "value": text} if _is_number(text) else text
        if "list" in value:
            return self.list_value(value["list"])
        for spec in ATTR.fields.values():
            if spec.name in value:
                inner = value[spec.name]
                shown = self.message(spec.message, inner) if spec.message is not None else self.scalar(spec, inner)
                return {"type": VALUE_TYPES[spec.name], "value": shown}
        return None

    def list_value(self, value: Fields) -> Any:
        number = value.get("val_type", 0)
        told = LIST_FIELDS.get(number)
        if told in value:  # it says which of several fields is the list
            value = {told: value[told]}
        for kind in PLAIN_LISTS:
            if kind in value:
                items = [self.text(item) if kind == "s" else item for item in value[kind]]
                if kind == "s" and all(map(_is_number, items)):
                    return {"type": TEXTS_TYPE, "value": items}
                return items
        for kind, name in LIST_TYPES.items():
            if kind in value:
                return {"type": name, "value": self.message(LIST, {kind: value[kind]})[kind]}
        if number in EMPTY_LIST_TYPES:
            return {"type": EMPTY_LIST_TYPES[number], "value": []}
        return {"type": LIST_TYPE, "value": {"val_type": number}} if number else []

    def text(self, data: bytes) -> Any:
        try:
            return data.decode("utf-8")
        except UnicodeDecodeError:
            return self.data(data)

    def data(self, value: bytes | Ref) -> Any:
        """Short UTF-8 is text; everything else its size and digest, with the data where they are wanted."""
        if isinstance(value, bytes) and len(value) <= SHOWN_BYTES:
            try:
                return value.decode("utf-8")
            except UnicodeDecodeError:
                pass
        if isinstance(value, bytes):
            return {"bytes": len(value), "sha256": hashlib.sha256(value).hexdigest(), **self.store(value)}
        digest = hashlib.sha256()
        with opened(self.path) as handle:
            for position in range(0, value.length, CHUNK_BYTES):
                digest.update(pread(handle, value.offset + position, min(CHUNK_BYTES, value.length - position)))
            data = pread(handle, value.offset, value.length) if self.store is not no_data else b""
        return {"bytes": value.length, "sha256": digest.hexdigest(), **self.store(data)}


def _is_number(text: Any) -> bool:
    """Whether a text would be read as a number that JSON lacks."""
    return isinstance(text, str) and text in NOT_FINITE
