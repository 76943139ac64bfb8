"""Inputs and outputs in run order, with gears (cli.md 2.1 --io)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from gecli.artifacts.inout_info import InOutInfo, dtype_name, inout_of, plain_bytes
from gecli.errors import Diagnostic
from gecli.ir.attributes import DATA_TYPES
from gecli.ir.format import Format
from gecli.report.inspect.attribute_values import desc_json
from gecli.report.inspect.subject import Subject
from gecli.report.inspect.view import Block, Table, View, cell
from gecli.report.sizes import dtype_text, shape_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gecli.artifacts.inout_info import ModelTensor
    from gecli.ir.tensor_desc import TensorDesc
    from gecli.wire.model_record import GraphRecord, ModelRecord

    Sides = tuple[TensorDesc | None, TensorDesc | None]
    Placed = tuple[int | None, Sequence[TensorDesc]]

COLUMNS = ("", "name", "dtype", "format", "shape", "origin format", "origin shape", "bytes")


def io_view(subject: Subject) -> View:
    facts = interface_facts(subject)
    rows = [
        (f"{kind} {row['index']}", cell(row["name"]), dtype_text(row["dtype"]), row["format"],
         shape_text(row["shape"]) + _ranges(row), row["origin_format"] or "-",
         shape_text(row["origin_shape"]) if row["origin_shape"] is not None else "-",
         str(row["size"]) if row["size"] else "?")
        for kind in ("input", "output")
        for row in facts[f"{kind}s"]
    ]  # fmt: skip
    blocks: list[Block] = [Table(COLUMNS, rows, frozenset(("bytes",)))]
    blocks += [
        f"output {row['index']} is {cell(row['query_name'])} in a query of the model on a device"
        for row in facts["outputs"]
        if row["query_name"] != row["name"]
    ]
    blocks += [
        _other_side(kind, row)
        for kind in ("input", "output")
        for row in facts[f"{kind}s"]
        if row["other_side"] is not None
    ]
    blocks += [f"{name.replace('_', ' ')}: {gears}" for name, gears in facts["gears"].items() if gears]
    blocks.append(f"source: {facts['source']}")
    return View("io", facts, blocks)


def interface_facts(subject: Subject) -> dict[str, Any]:
    """What a model query reports: MODEL_INOUT_INFO if there is one, else what the graph says."""
    stored = subject.inout()
    model = subject.model_or_none() if stored is not None else subject.model()
    info = stored if stored is not None else _derived(subject, model)
    inputs, outputs = _origins(model.root) if model is not None and model.graphs else ({}, [])
    input_rows = [_row(k, tensor, *inputs.get(tensor.name, (None, None))) for k, tensor in enumerate(info.inputs)]
    ends = outputs if len(outputs) == len(info.outputs) else [("", None, None)] * len(info.outputs)
    output_rows = [
        _row(k, tensor, desc, other, port) for k, (tensor, (port, desc, other)) in enumerate(zip(info.outputs, ends))
    ]
    _name_as_in_a_run(output_rows, {} if model is None else model.attrs)
    return {
        "source": "graph" if stored is None else "MODEL_INOUT_INFO",
        "inputs": input_rows,
        "outputs": output_rows,
        "gears": _gears(info),
    }


def bytes_in_features(model: ModelRecord) -> dict[str, int | None]:
    """The bytes of inputs and of outputs that lie in feature memory; None where the file does not say.

    `zero_copy_memory_size` is not their sum: compilers of 2020 to 2022 count inputs only.
    """
    size = model.attrs.get("memory_size")
    graph = model.root
    inputs: list[Placed] = []
    outputs: list[Placed] = []
    for node in graph.nodes_of(*DATA_TYPES):
        place = graph.placements.get(node)
        inputs.append((place.output_offsets[0] if place and place.output_offsets else None, node.output_descs[:1]))
    for node in graph.nodes_of("NetOutput"):
        place = graph.placements.get(node)
        offsets = place.input_offsets if place else ()
        ends = [(port, desc) for port, desc in zip(node.inputs, node.input_descs) if port is not None]
        for k, (port, desc) in enumerate(ends):
            if port.node.type != "Const":  # its offset counts from the start of the weights
                outputs.append((offsets[k] if k < len(offsets) else None, [] if desc is None else [desc]))
    limit = size if isinstance(size, int) else 0
    return {"inputs": _block_bytes(inputs, limit), "outputs": _block_bytes(outputs, limit)}


def _block_bytes(blocks: list[Placed], limit: int) -> int | None:
    """Tensors at one place count once. Variables have addresses far behind feature memory."""
    found: dict[int, int] = {}
    for offset, descs in blocks:
        if offset is None or not descs:
            return None
        size = plain_bytes(descs[0]) or descs[0].size_bytes
        if not size:
            return None
        if 0 <= offset < limit:
            found[offset] = max(found.get(offset, 0), size)
    return sum(found.values())


def _derived(subject: Subject, model: ModelRecord | None) -> InOutInfo:
    """What the graph says; a graph whose attributes contradict its descriptors has an empty interface."""
    try:
        return inout_of(model) if model is not None and model.graphs else InOutInfo()
    except (IndexError, ValueError, TypeError) as error:
        subject.warn(
            Diagnostic(
                "G3015", "inputs and outputs cannot be derived from the graph", why=str(error), kind="bad-inout",
                file=subject.path,
            )
        )  # fmt: skip
        return InOutInfo()


def _row(
    index: int, tensor: ModelTensor, desc: TensorDesc | None, other: TensorDesc | None, port: str = ""
) -> dict[str, Any]:
    """`name` is the name that `gecli run` uses, `query_name` what a query of the model on a device answers.

    The row has the descriptor that a query answers, which for an input is what the caller gives and for an output what
    the last node makes (om-format.md 8.3); `other_side` is that of the other side where a conversion stands between.
    """
    fmt = Format(tensor.format).name if 0 <= tensor.format < 1 << 32 else f"UNKNOWN_{tensor.format}"
    return {
        "index": index,
        "name": tensor.name.removeprefix(f"{port}:"),
        "query_name": tensor.name,
        "dtype": dtype_name(tensor.dtype),
        "format": fmt,
        "shape": list(tensor.dims),
        "shape_v2": list(tensor.dims_v2) if tensor.dims_v2 != tensor.dims else None,
        "shape_range": [list(pair) for pair in tensor.shape_range] or None,
        "origin_format": None if desc is None else desc.logical_format.name,
        "origin_shape": None if desc is None else list(desc.logical_shape),
        "size": tensor.size_bytes,
        "other_side": None if other is None else desc_json(other),
    }


def _origins(root: GraphRecord) -> tuple[dict[str, Sides], list[tuple[str, TensorDesc | None, TensorDesc | None]]]:
    """Descriptors of the inputs by name, and `node:index` with descriptors of the outputs in order."""
    inputs: dict[str, Sides] = {}
    for node in root.nodes_of(*DATA_TYPES):
        first = node.input_descs[0] if node.input_descs else None
        desc = first or (node.output_descs[0] if node.output_descs else None)
        if desc is not None:
            inputs.setdefault(node.name, (desc, _differing(desc, node.output_descs, 0)))
    outputs: list[tuple[str, TensorDesc | None, TensorDesc | None]] = []
    for node in root.nodes_of("NetOutput"):
        ends = [(port, desc) for port, desc in zip(node.inputs, node.input_descs) if port is not None]
        outputs = [
            (f"{port.node.name}:{port.index}", desc, _differing(desc, node.output_descs, k))
            for k, (port, desc) in enumerate(ends)
        ]
    return inputs, outputs


def _differing(desc: TensorDesc | None, others: Sequence[TensorDesc], index: int) -> TensorDesc | None:
    """The descriptor at the other end of a Data or NetOutput node, if its type or form is another (mobile files)."""
    other = others[index] if index < len(others) else None
    if desc is None or other is None:
        return None
    same = (desc.dtype, desc.format, desc.shape) == (other.dtype, other.format, other.shape)
    return None if same else other


def _name_as_in_a_run(outputs: list[dict[str, Any]], attrs: Mapping[str, Any]) -> None:
    """Names without what a query adds: `:0` where the model has a name without a port (om-format.md 8.3)."""
    from gecli.runtime.interface import OUT_NODES, made_unique

    stored = attrs.get(OUT_NODES)
    if isinstance(stored, tuple) and len(stored) == len(outputs):
        for row, entry in zip(outputs, stored):
            if isinstance(entry, str) and re.fullmatch(re.escape(entry) + r":\d+", row["name"]) and ":" not in entry:
                row["name"] = entry
    for row, name in zip(outputs, made_unique([row["name"] for row in outputs])):
        row["name"] = name


def _other_side(kind: str, row: dict[str, Any]) -> str:
    other = row["other_side"]
    form = f"{dtype_text(other['dtype'])} {other['format']} {shape_text(other['shape'])}"
    if kind == "input":
        return f"input {row['index']} is {form} inside the model: its Data node converts what the caller gives"
    return f"output {row['index']} is given to the caller as {form}: NetOutput converts what the last node makes"


def _gears(info: InOutInfo) -> dict[str, Any]:
    return {
        "dynamic_batch": list(info.dynamic_batch),
        "dynamic_hw": [list(row) for row in info.dynamic_hw],
        "dynamic_dims": [list(row) for row in info.dynamic_dims],
        "output_shapes": list(info.output_shapes),
        "shape_order": list(info.shape_order),
    }


def _ranges(row: dict[str, Any]) -> str:
    pairs = row["shape_range"]
    if not pairs:
        return ""
    return " in " + "x".join(f"{low}..{'' if high < 0 else high}" for low, high in pairs)
