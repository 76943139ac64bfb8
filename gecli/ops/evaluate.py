"""Running nodes and graphs directly with the operators' kernels: constant folding, pass verification, tests.

This is the plain meaning of a graph: one node at a time, no plan, no arena. The executor of `gecli.runtime` must
give the same numbers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gecli.errors import CompileError, Diagnostic, InputError
from gecli.ir.attributes import CONST_TYPES, DATA_TYPES, VALUE
from gecli.ir.op_desc import OpDesc, Port
from gecli.ops.operator import AllInputs, OperatorType
from gecli.ops.registry import operator_of

if TYPE_CHECKING:
    from gecli.ir.graph import Graph

Array = NDArray[Any]


def evaluate_node(node: OpDesc, inputs: list[Array | None]) -> list[Array]:
    """The outputs of one node for these input values (None: optional input left out).

    Raises InputError G1005 for a type without a kernel and CompileError G2001 when the kernel refuses its inputs.
    """
    op = operator_of(node)
    if op is None or not hasattr(op, "kernel"):
        raise InputError(
            "G1005", f"operator type {node.type!r} has no kernel", node=node.name, kind="RT_OP_UNSUPPORTED"
        )
    while inputs and inputs[-1] is None:
        inputs = inputs[:-1]
    try:
        with np.errstate(all="ignore"):
            result = op.kernel(*inputs)
    except (ValueError, IndexError, TypeError) as err:
        shapes = ", ".join("-" if x is None else f"{x.dtype.name}{list(x.shape)}" for x in inputs)
        raise CompileError(
            "G2001",
            f"{node.type} node {node.name!r} cannot be evaluated",
            why=f"{err}; inputs: {shapes}",
            node=node.name,
        ) from err
    return [np.asarray(value) for value in (result if isinstance(result, tuple) else (result,))]


def evaluate_graph(
    graph: Graph, feeds: Mapping[str, Array], variables: dict[str, Array] | None = None
) -> tuple[list[Array], dict[str, Array]]:
    """The graph's outputs for `feeds` (by Data name) and the contents of its variables afterwards.

    `variables` gives contents by name; variables not in it start from their `_init_value`. Nodes run in graph order;
    an operator's written inputs (training.md 9.1) update the variable they come from.
    """
    state: dict[str, Array] = dict(variables or {})
    values: dict[Port, Array] = {}
    for node in graph.nodes():
        if node.type == "NetOutput":
            continue
        for index, value in enumerate(_outputs_of(node, feeds, state, values)):
            values[Port(node, index)] = value
    return [values[port] for port in graph.outputs], state


def _outputs_of(
    node: OpDesc, feeds: Mapping[str, Array], state: dict[str, Array], values: dict[Port, Array]
) -> list[Array]:
    if node.type in DATA_TYPES:
        if node.name not in feeds:
            raise CompileError("G2001", f"no value was given for the input {node.name!r}", node=node.name)
        return [np.asarray(feeds[node.name])]
    if node.type in CONST_TYPES:
        return [node.attrs[VALUE].numpy()]
    if node.is_variable and node.ref_variable is None:
        if node.name not in state:
            if node.init_value is None:
                raise CompileError("G2001", f"variable {node.name!r} has no value", node=node.name)
            state[node.name] = node.init_value.numpy()
        return [state[node.name].copy()]
    inputs = [None if port is None else values[port] for port in node.inputs]
    if node.ref_variable is not None:
        value = inputs[0]
        assert value is not None
        state[node.ref_variable] = value
        return [value]
    outputs = evaluate_node(node, inputs)
    for variable, value in written_variables(node, outputs):
        state[variable] = value
    return outputs


def written_variables(node: OpDesc, outputs: list[Array]) -> list[tuple[str, Array]]:
    """The variables that a node updates directly, with their new contents.

    A written input counts when it is fed by the variable itself or through other references to it, and when the
    node has an output of the same name.
    """
    op = operator_of(node)
    if op is None or not op.type.writes:
        return []
    found: list[tuple[str, Array]] = []
    for slot, index in _written_pairs(node, op.type):
        variable = None if slot is None else source_variable(node, slot)
        if variable is not None and index is not None and index < len(outputs):
            found.append((variable.name, outputs[index]))
    return found


def _written_pairs(node: OpDesc, kind: OperatorType) -> Iterator[tuple[int | None, int | None]]:
    """Each written input and the output that shows it."""
    if isinstance(kind.writes, AllInputs):
        yield from ((slot, slot) for slot in range(len(node.inputs)))
        return
    for name in kind.writes:
        index = kind.output_index(name)
        if node.output_names is not None and name in node.output_names:
            index = node.output_names.index(name)
        yield kind.input_slot(name), index


def source_variable(node: OpDesc, slot: int) -> OpDesc | None:
    """The Variable whose storage input `slot` refers to: directly, or through written inputs of other nodes."""
    port = node.inputs[slot] if slot < len(node.inputs) else None
    while port is not None:
        producer = port.node
        if producer.is_variable:
            return producer
        op = operator_of(producer)
        if op is None:
            return None
        name = op.type.output_name(port.index)
        if producer.output_names is not None and port.index < len(producer.output_names):
            name = producer.output_names[port.index]
        if name not in op.type.writes and producer.type != "RefIdentity":
            return None
        back = 0 if producer.type == "RefIdentity" else op.type.input_slot(name)
        if isinstance(op.type.writes, AllInputs):
            back = port.index
        port = producer.inputs[back] if back is not None and back < len(producer.inputs) else None
    return None


def unsupported(graph: Graph) -> list[Diagnostic]:
    """One diagnostic for each operator type of the graph that gecli cannot execute, with count and first node."""
    found: dict[str, list[str]] = {}
    for node in graph.all_nodes():
        if operator_of(node) is None:
            found.setdefault(node.type, []).append(node.name)
    return [
        Diagnostic(
            "E13010",
            f"operator type {name!r} is not supported",
            where=f"{len(nodes)} node{'s' if len(nodes) > 1 else ''}, the first is {nodes[0]!r}",
            node=nodes[0],
            kind="RT_OP_UNSUPPORTED",
        )
        for name, nodes in sorted(found.items())
    ]
