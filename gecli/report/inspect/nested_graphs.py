"""Graphs inside attributes: the documents show them, and what cannot be read of them is not left out in silence."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gecli.errors import Diagnostic
from gecli.ir.attributes import NamedAttrs, RawAttr
from gecli.report.inspect.model_fields import MAX_DEPTH, walk
from gecli.wire.ge_ir_fields import ATTR, GROUPS, Message
from gecli.wire.model_record import ModelRecord
from gecli.wire.om_faults import om_problem
from gecli.wire.walker import WireError

OPERATOR_DEPTH = 3  # of messages in messages, where the documents have an operator
KINDS = ("g", "list_g")


def nested_faults(model: ModelRecord, path: str, offset: int) -> Iterator[Diagnostic]:
    """One warning for each attribute of a node whose graph is broken or nested too deeply to be shown."""
    for graph in model.graphs:
        for node in graph.nodes:
            for key, value in node.attrs.items():
                fault = _fault(value, OPERATOR_DEPTH + 2)
                if fault is None:
                    continue
                message = f"attribute {key!r} of {node.name!r} holds a graph of which not all can be shown: {fault}"
                yield om_problem("bad-proto", path, message, offset, where=f"graph {graph.name!r}", node=node.name)


def _fault(value: Any, depth: int) -> WireError | None:
    """What is wrong in the graphs of an attribute's value."""
    if isinstance(value, RawAttr) and value.kind in KINDS:
        try:
            _check(ATTR, memoryview(value.data), depth)
        except WireError as error:
            return error
    inside: tuple[Any, ...] = ()
    if isinstance(value, NamedAttrs):
        inside, depth = tuple(value.attrs.values()), depth + 3
    elif isinstance(value, tuple):
        inside, depth = value, depth + 1
    return next((fault for item in inside if (fault := _fault(item, depth)) is not None), None)


def _check(kind: Message, data: memoryview, depth: int) -> None:
    """Walk a message as the documents do. Raises WireError."""
    if depth > MAX_DEPTH:
        raise WireError(f"messages are nested deeper than {MAX_DEPTH}", 0)
    for number, value in walk(data):
        spec = kind.fields.get(number)
        if spec is None or spec.message in (None, GROUPS) or not isinstance(value, memoryview):
            continue
        if not spec.is_map:
            _check(spec.message, value, depth + 1)
            continue
        for part, content in walk(value):
            if part == 2 and isinstance(content, memoryview):
                _check(spec.message, content, depth + 2)
