"""Facts about a graph that passes require and ensure, each with a test."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum

from gecli.ir.attributes import DATA_TYPES
from gecli.ir.graph import Graph, GraphError
from gecli.ir.op_desc import OpDesc
from gecli.ops.registry import operator_of
from gecli.passes.written_inputs import writes_at


class Fact(Enum):
    ACYCLIC = "the graph has a topological order"
    SHAPES_INFERRED = "every node has output descriptors with a dtype"
    VARIABLES_PREPARED = "every write to a variable ends in a variable ref node"
    FORMATS_CHOSEN = "every edge has equal descriptors at both ends"
    NO_VARIABLE_REFS = "no variable ref node is left"


def check(graph: Graph, fact: Fact) -> list[str]:
    """Where `fact` does not hold, one sentence each."""
    return _CHECKS[fact](graph)


def _acyclic(graph: Graph) -> list[str]:
    try:
        for each in graph.all_graphs():
            each.nodes()
    except GraphError as err:
        return [str(err)]
    return []


def _shapes_inferred(graph: Graph) -> list[str]:
    problems = []
    for node in graph.all_nodes():
        if node.type == "NetOutput":
            continue
        kind = operator_of(node)
        if not node.output_descs and kind is not None and kind.type.outputs:
            problems.append(f"node {node.name!r} ({node.type}) has no output descriptors")
        problems += [
            f"output {index} of node {node.name!r} has no dtype"
            for index, desc in enumerate(node.output_descs)
            if desc.dtype.name == "UNDEFINED"
        ]
    return problems


def _variables_prepared(graph: Graph) -> list[str]:
    problems = []
    for variable in graph.nodes_of("Variable", "VariableV2"):
        if variable.ref_variable is not None:
            continue
        for writer, index in _last_writers(variable):
            ports = writer.users[index] if index < len(writer.users) else {}
            if not any(use.node.ref_variable == variable.name for use in ports):
                problems.append(f"the write of {writer.name!r} to variable {variable.name!r} has no ref node")
    return problems


def _last_writers(variable: OpDesc) -> list[tuple[OpDesc, int]]:
    """Nodes that write the variable directly and whose result no further writer takes."""
    found = []
    for use in variable.users[0]:
        for _, index in writes_at(use):
            if index is None or index >= len(use.node.users):
                continue
            if not any(map(writes_at, use.node.users[index])):
                found.append((use.node, index))
    return found


def _formats_chosen(graph: Graph) -> list[str]:
    problems = []
    for node in graph.all_nodes():
        if node.type == "NetOutput" or node.type in DATA_TYPES:
            continue
        for slot, port in enumerate(node.inputs):
            desc = node.input_descs[slot]
            if port is None or desc is None:
                continue
            if desc.dtype != port.desc.dtype or desc.format != port.desc.format or desc.shape != port.desc.shape:
                problems.append(f"input {slot} of {node.name!r} wants {desc}, {port} gives {port.desc}")
    return problems


def _no_variable_refs(graph: Graph) -> list[str]:
    return [
        f"variable ref node {node.name!r} is left"
        for node in graph.all_nodes()
        if node.is_variable and node.ref_variable is not None
    ]


_CHECKS: dict[Fact, Callable[[Graph], list[str]]] = {
    Fact.ACYCLIC: _acyclic,
    Fact.SHAPES_INFERRED: _shapes_inferred,
    Fact.VARIABLES_PREPARED: _variables_prepared,
    Fact.FORMATS_CHOSEN: _formats_chosen,
    Fact.NO_VARIABLE_REFS: _no_variable_refs,
}
