"""What the loader takes from a file and a file may lie about, looked at before anything is bound or allocated."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import prod
from typing import Any

from gecli.errors import Diagnostic, InputError
from gecli.ir.attributes import (
    CONST_TYPES,
    DATA_INDEX,
    DATA_TYPES,
    INIT_VALUE,
    PARENT_NODE_INDEX,
    REF_VAR_SRC_VAR_NAME,
    VALUE,
)
from gecli.ir.calls import CONTROL_TYPES
from gecli.ir.op_desc import OpDesc
from gecli.ir.tensor_desc import TensorDesc
from gecli.ir.weight import Weight
from gecli.runtime.interface import OUT_NODES
from gecli.runtime.operands import unblocked
from gecli.wire.memory_budget import FACTOR, ROOM
from gecli.wire.model_record import GraphRecord

MEMORY_SIZE = "memory_size"
VARIABLE_BASE = "task_gen_variable_addr"
VARIABLE_SIZE = "variable_size"
SHARED_BASE = "task_gen_host_svm_base_addr"
SHARED_SIZE = "host_svm_size"
MAX_BYTES = 1 << 48  # no address space is larger; numpy refuses sizes near 2 ** 63 with errors of its own
_SOURCES = DATA_TYPES | {"FileConstant", "ConstPlaceHolder"}
# Bytes of memory for a variable or weight file that nothing reads, with its node; measured with CPython 3.11.
_VARIABLE_COST, _WEIGHT_FILE_COST = 900, 1300
# For a node that runs, with its steps and their arrays, and for each of its inputs after the second. Compilers write
# 300 bytes and more for a node, so that no graph of theirs is refused, however large.
_NODE_COST, _INPUT_COST, _NODE_BYTES = 1300, 600, 200
_FREE_BYTES = 13 << 20  # what the interpreter with numpy leaves of 64 MiB where kernels map most of its libraries
_DO = "compile the model again; the file does not agree with itself"


def require_loadable(graphs: Iterable[GraphRecord], attrs: Mapping[str, Any], path: str, *, is_static: bool) -> None:
    """Raises InputError (bad-graph) with everything that cannot be what a compiler wrote.

    With `is_static` every output must have a type and a size, since memory is laid out for all of them.
    """
    problems = [
        Diagnostic("G3011", message, where=path, why=why, do=_DO, kind="bad-graph", file=path, node=node or None)
        for node, message, why in _faults(graphs, attrs, is_static)
    ]
    if problems:
        raise InputError.of(problems)


Fault = tuple[str, str, str]


def require_room(graphs: Sequence[GraphRecord], size_bytes: int, path: str) -> None:
    """Raises InputError (bad-graph) for nodes, variables and weight files out of all proportion to the file.

    Those that compilers write have descriptors, names and users: more bytes in the file than are asked for here.
    """
    variables = files = nodes = inputs = 0
    for graph in graphs:
        nodes += len(graph.nodes)
        for node in graph.nodes:
            variables += node.is_variable
            files += node.type == "FileConstant"
            inputs += max(len(node.inputs) - 2, 0)
    steps = (nodes - variables - files) * _NODE_COST + variables * _VARIABLE_COST + inputs * _INPUT_COST
    if nodes * _NODE_BYTES > size_bytes and steps > _FREE_BYTES + FACTOR * size_bytes:
        raise InputError(
            "G3011", f"{size_bytes} bytes have {nodes} nodes", where=path,
            why=f"{ROOM}; to run them takes more, and no compiler writes nodes of so few bytes",
            do=f"gecli inspect-om {path} --nodes shows them", kind="bad-graph", file=path,
        )  # fmt: skip
    if variables * _VARIABLE_COST + files * _WEIGHT_FILE_COST > _FREE_BYTES + FACTOR * size_bytes:
        raise InputError(
            "G3011", f"{size_bytes} bytes have {variables} variables and {files} external weights", where=path,
            why=f"{ROOM}; these take more", do=f"gecli inspect-om {path} --nodes shows them", kind="bad-graph",
            file=path,
        )  # fmt: skip


def _faults(graphs: Iterable[GraphRecord], attrs: Mapping[str, Any], is_static: bool) -> Iterator[Fault]:
    for name in (MEMORY_SIZE, VARIABLE_BASE, VARIABLE_SIZE):
        value = attrs.get(name, 0)
        if not _is_size(value):
            yield "", f"the model attribute {name} is no size", f"it is {_shown(value)}"
    yield from _shared_base(attrs)
    names = attrs.get(OUT_NODES, ())
    if not isinstance(names, tuple) or not all(isinstance(each, str | bytes) for each in names):
        yield "", f"the model attribute {OUT_NODES} is no list of names", f"it is {_shown(names)}"
    for graph in graphs:
        for node in graph.nodes:
            for message, why in _node_faults(node, is_static):
                yield node.name, message, why


def _shared_base(attrs: Mapping[str, Any]) -> Iterator[Fault]:
    """GE begins shared host memory and variables at one address; which of the two is meant cannot be told."""
    shared, variables = attrs.get(SHARED_SIZE, 0), attrs.get(VARIABLE_SIZE, 0)
    base = attrs.get(VARIABLE_BASE, 0)
    if _is_size(shared) and _is_size(variables) and shared and variables and attrs.get(SHARED_BASE, base) == base:
        why = f"{SHARED_SIZE} is {shared}, {VARIABLE_SIZE} is {variables}, both begin at {base}"
        yield "", "variables and shared host memory have the same addresses", why


def _node_faults(node: OpDesc, is_static: bool) -> Iterator[tuple[str, str]]:
    what = f"{node.type} node {node.name!r}"
    source = node.type in _SOURCES or node.is_variable or (node.type in CONST_TYPES and VALUE in node.attrs)
    if source and not node.output_descs:
        yield f"{what} has no output", "it should have one"
    if node.type in DATA_TYPES:
        for name in (DATA_INDEX, PARENT_NODE_INDEX):
            if not isinstance(node.attrs.get(name, 0), int):
                yield f"the attribute {name} of {what} is no number", f"it is {_shown(node.attrs[name])}"
    if node.type in CONST_TYPES and VALUE in node.attrs:
        yield from _value_faults(what, node.attrs[VALUE], node.output_descs[:1])
    if node.type in CONTROL_TYPES and not node.subgraphs:
        yield f"{what} names no graph", "its work is in the graphs that it names"
    if is_static and node.type in DATA_TYPES:
        for desc in node.output_descs[:1]:
            held = desc.logical_shape if unblocked(desc) else desc.shape
            if held != desc.logical_shape:
                yield f"{what} is stored as {list(held)}", f"its users give {list(desc.logical_shape)}"
    reference = node.attrs.get(REF_VAR_SRC_VAR_NAME)
    if reference is not None and not isinstance(reference, str):
        yield f"{what} refers to a variable by something that is no name", f"it is {_shown(reference)}"
    for k, desc in enumerate(node.output_descs):
        initial = desc.attrs.get(INIT_VALUE) if node.is_variable else None
        if initial is not None:
            yield from _value_faults(what, initial, ())
        if source or is_static:
            yield from _desc_faults(f"output {k} of {what}", desc)


def _value_faults(what: str, value: Any, outputs: list[TensorDesc] | tuple[()]) -> Iterator[tuple[str, str]]:
    if not isinstance(value, Weight):
        yield f"{what} has a value that is no tensor", f"it is {_shown(value)}"
        return
    yield from _desc_faults(f"the value of {what}", value.desc)
    if value.desc.dtype.bits and not value.transforms:
        have, need = value.source.nbytes, value.desc.nbytes if value.desc.is_static else -1
        if have != need:
            yield (
                f"the value of {what} does not fit its description",
                f"it has {have} bytes, its shape is {list(value.desc.shape)}",
            )


def _desc_faults(what: str, desc: TensorDesc) -> Iterator[tuple[str, str]]:
    try:
        _ = desc.dtype.numpy
    except ValueError:
        yield f"{what} has no type that can be computed with", f"it is {desc.dtype.serial}"
        return
    for shape in (desc.shape, desc.logical_shape):
        if prod(max(dim, 1) for dim in shape) * (desc.dtype.bits or 8) > 8 * MAX_BYTES:
            yield f"{what} is larger than any memory", f"its shape is {list(shape)}"
            return


def _is_size(value: object) -> bool:
    return isinstance(value, int) and 0 <= value <= MAX_BYTES


def _shown(value: object) -> str:
    text = str(value) if isinstance(value, int | float | str) else f"a {type(value).__name__}"
    return text if len(text) < 80 else f"{text[:76]}..."
