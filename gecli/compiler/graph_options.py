"""Options that change a loaded graph before its first pass: its outputs, their types, and its inputs (cli.md 1.3)."""

from __future__ import annotations

import re
from dataclasses import replace

from gecli.compiler.pass_switches import kept_nodes
from gecli.errors import Diagnostic, GecliError, InvalidOption
from gecli.ir.attributes import KEEP_DTYPE
from gecli.ir.dtype import DataType
from gecli.ir.format import Format
from gecli.ir.graph import Graph
from gecli.ir.op_desc import OpDesc, Port
from gecli.ir.surgery import insert_after, insert_on_edge
from gecli.ir.tensor_desc import NO_ATTRS, TensorDesc
from gecli.loading import LoadedModel
from gecli.options.spelling import similar
from gecli.options.values import Options

OUT_NODES, OUTPUT_TYPE = "ge.outputNodeName", "ge.outputDatatype"
FP16_INPUTS, INPUT_FORMAT = "ge.INPUT_NODES_SET_FP16", "input_format"
_DTYPES = {
    "FP32": DataType.FLOAT,
    "FP16": DataType.FLOAT16,
    "UINT8": DataType.UINT8,
    "INT8": DataType.INT8,
}
# The layouts that each front end's models may have (cli.md 1.3).
_LAYOUTS = {"onnx": ("NCHW", "ND", "NCDHW")}
_PORT = r"(.+):(\d{1,9})"
SHOWN = 12  # candidates in a message


def apply_graph_options(loaded: LoadedModel, options: Options) -> list[Diagnostic]:
    """Change the graph as the options say; returns warnings. Raises InvalidOption with every name that does not fit."""
    graph = loaded.graph
    layout = options.text(INPUT_FORMAT)
    if layout:
        _set_layout(loaded, layout)
    halves = _names(options.text(FP16_INPUTS))
    if halves:
        _give_as_half(graph, halves)
    wanted = _names(options.text(OUT_NODES))
    if wanted:
        _choose_outputs(loaded, wanted)
    types = options.text(OUTPUT_TYPE)
    if types:
        _cast_outputs(graph, types)
    return _keep_types(graph, options)


def _keep_types(graph: Graph, options: Options) -> list[Diagnostic]:
    """Mark the nodes of --keep-dtype; returns a warning for names and types that the graph does not have."""
    names, types = kept_nodes(options)
    if not names and not types:
        return []
    missing = names | types
    for node in graph.all_nodes():
        if node.name in names or node.type in types:
            node.attrs[KEEP_DTYPE] = 1
            missing -= {node.name, node.type}
    if not missing:
        return []
    message = "part of --keep-dtype has no effect"
    why = f"the model has no node or type {', '.join(sorted(missing)[:SHOWN])}"
    return [Diagnostic("E10016", message, why=why, severity="warning", option="--keep-dtype")]


def _names(text: str | None) -> list[str]:
    return [item.strip() for item in (text or "").split(";") if item.strip()]


# ---------------------------------------------------------------------- inputs


def _set_layout(loaded: LoadedModel, layout: str) -> None:
    """Inputs of the layout's rank get it; the others keep what the model says."""
    legal = _LAYOUTS.get(loaded.front_end)
    if legal is not None and layout not in legal:
        raise InvalidOption(
            "E10001",
            f"--input-format {layout} does not fit the model",
            where=loaded.path,
            why=f"{loaded.front_end} models are {', '.join(legal)}",
            do="transpose the input inside the model",
            option="--input-format",
        )
    fmt = Format.parse(layout)
    rank = None if layout == "ND" else 5 if "C0" in layout else len(layout)
    for node in loaded.graph.inputs:
        desc = node.output_descs[0]
        if rank is None or len(desc.shape) == rank:
            node.output_descs[0] = replace(desc, format=fmt, origin_shape=None, origin_format=None)


def _give_as_half(graph: Graph, names: list[str]) -> None:
    """The named inputs become FLOAT16; a Cast behind them gives the graph what it had."""
    faults = []
    inputs = {node.name: node for node in graph.inputs}
    for name in names:
        node = inputs.get(name)
        if node is None:
            faults.append(_no_input(graph, name, list(inputs)))
            continue
        desc = node.output_descs[0]
        if not desc.dtype.is_float or desc.dtype is DataType.FLOAT16:
            continue
        node.output_descs[0] = desc.with_dtype(DataType.FLOAT16)
        insert_after(graph, node.out(), _cast(graph, f"{name}_from_fp16", desc))
    if faults:
        raise InvalidOption.of(faults)


def _no_input(graph: Graph, name: str, inputs: list[str]) -> Diagnostic:
    other = graph.get(name)
    return Diagnostic(
        "E10017" if other is not None else "E10016",
        f"--input-fp16-nodes names {name!r}, which is not an input",
        why=f"it is a {other.type}" if other is not None else f"the inputs are: {', '.join(inputs[:SHOWN])}",
        do=" or ".join(f"--input-fp16-nodes {near}" for near in similar(name, inputs, 1)),
        option="--input-fp16-nodes",
        actual=name,
        expected=inputs,
    )


# ---------------------------------------------------------------------- outputs


def _choose_outputs(loaded: LoadedModel, names: list[str]) -> None:
    """`node:index` or the name of a tensor, in the order given."""
    graph = loaded.graph
    ports: list[Port] = []
    shown: list[str] = []
    faults: list[Diagnostic] = []
    for name in names:
        found = _find_port(loaded, name)
        if isinstance(found, Diagnostic):
            faults.append(found)
            continue
        ports.append(found)
        shown.append("" if name == str(found) else name)
    if faults:
        raise GecliError.of(faults)
    graph.set_outputs(ports, [name or str(port) for name, port in zip(shown, ports)])


def _find_port(loaded: LoadedModel, name: str) -> Port | Diagnostic:
    graph = loaded.graph
    known = dict(zip(graph.output_names, graph.outputs))
    port = known.get(name) or loaded.tensors.get(name)
    if port is not None:
        return port
    match = re.fullmatch(_PORT, name)
    node = graph.get(match[1]) if match else graph.get(name)
    if node is None or node.type == "NetOutput":
        return _no_output(loaded, name, match[1] if match else name)
    index = int(match[2]) if match else 0
    if index < len(node.output_descs):
        return Port(node, index)
    count = len(node.output_descs)
    return Diagnostic(
        "E10003",
        f"--out-nodes asks for output {index} of {node.name!r}, which has {count}",
        where=f"node {node.name} ({node.type})",
        why="outputs are counted from 0",
        do=f"--out-nodes {node.name}:0" if count else "",
        option="--out-nodes",
        node=node.name,
        actual=index,
        expected=f"less than {count}",
    )


def _no_output(loaded: LoadedModel, name: str, node_name: str) -> Diagnostic:
    nodes = [node.name for node in loaded.graph.nodes() if node.type != "NetOutput" and node.output_descs]
    near = similar(node_name, [*nodes, *loaded.tensors], 3)
    candidates = near or [node.name for node in _last(loaded.graph)]
    return Diagnostic(
        "E10016",
        f"--out-nodes names {name!r}, which the model does not have",
        where=loaded.path,
        why=f"{'close names' if near else 'the present outputs'}: {', '.join(candidates[:SHOWN])}",
        do=f"--out-nodes {candidates[0]}{':0' if candidates[0] in nodes else ''}" if candidates else "",
        option="--out-nodes",
        actual=name,
    )


def _last(graph: Graph) -> list[OpDesc]:
    return list(dict.fromkeys(port.node for port in graph.outputs))


def _cast_outputs(graph: Graph, text: str) -> None:
    """One type for every floating output, or `node:index:TYPE` for each that changes."""
    net = graph.net_output
    assert net is not None
    names = _output_names(graph)
    if text in _DTYPES:
        chosen = {slot: _DTYPES[text] for slot, port in enumerate(graph.outputs) if port.desc.dtype.is_float}
    else:
        chosen = _listed_types(graph, text)
    for slot, dtype in sorted(chosen.items()):
        port = graph.outputs[slot]
        if port.desc.dtype is dtype:
            continue
        use = next(use for use in graph.consumers(port) if use.node is net and use.slot == slot)
        name = f"{port.node.name}_{port.index}_output_type"
        cast = insert_on_edge(graph, use, _cast(graph, name, port.desc.with_dtype(dtype)))
        net.input_descs[slot] = cast.output_descs[0]
    graph.output_names = names


def _listed_types(graph: Graph, text: str) -> dict[int, DataType]:
    slots: dict[str, int] = {}
    for slot, port in enumerate(graph.outputs):
        slots[str(port)] = slot
    for slot, name in enumerate(graph.output_names):
        slots.setdefault(name, slot)
    chosen: dict[int, DataType] = {}
    faults: list[Diagnostic] = []
    for item in _names(text):
        name, _, word = item.rpartition(":")
        dtype = _DTYPES.get(word)
        if dtype is None:
            faults.append(_bad_type(item, f"{word!r} is none of {', '.join(_DTYPES)}"))
        elif name not in slots:
            faults.append(_bad_type(item, f"the outputs are: {', '.join(str(port) for port in graph.outputs)}"))
        else:
            chosen[slots[name]] = dtype
    if faults:
        raise InvalidOption.of(faults)
    return chosen


def _bad_type(item: str, why: str) -> Diagnostic:
    return Diagnostic(
        "E10001",
        f"item {item!r} of --output-type is invalid",
        why=why,
        do="NODE:INDEX:TYPE of an output, or choose outputs with --out-nodes",
        option="--output-type",
        actual=item,
    )


def _output_names(graph: Graph) -> list[str]:
    """The names of the outputs as they are now: a Cast in front must not rename one."""
    given = graph.output_names
    return [given[slot] if slot < len(given) and given[slot] else str(port) for slot, port in enumerate(graph.outputs)]


def _cast(graph: Graph, name: str, desc: TensorDesc) -> OpDesc:
    attrs = {"dst_type": desc.dtype}
    return OpDesc(graph.unique_name(name), "Cast", attrs=attrs, output_descs=[replace(desc, attrs=NO_ATTRS)])
