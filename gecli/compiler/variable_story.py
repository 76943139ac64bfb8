"""The life of a variable in its session: who made it, who changed its form, who uses it (variables.md 15.3)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gecli.compiler.session import Member, Session
from gecli.ir.attributes import ASSIGN_VAR_NAME, REF_VAR_SRC_VAR_NAME, VARIABLE_TYPES
from gecli.ir.graph import Graph
from gecli.ir.op_desc import OpDesc
from gecli.ir.tensor_desc import TensorDesc
from gecli.variables.var_resource import VarResource


def variable_story(name: str, member: Member, session: Session) -> dict[str, Any]:
    """What --explain-variable says beside the variable's row and the records of the passes.

    `staged` is the form in which this graph's compile found the variable, None where it made it. `earlier_compiles` has
    the records of the compiles that became stale.
    """
    resource = session.manager.resource
    staged = resource.staged(member.graph_id).get(name)
    return {
        "created_by": _graph_of(resource, resource.allocated_graph_id(name)),
        "changed_by": _graph_of(resource, resource.changed_graph_id(name)),
        "staged": None if staged is None else _form(staged),
        "has_value": resource.is_assigned(name),
        "users": [row for each in session.members if (row := _use(name, each)) is not None],
        "earlier_compiles": [[row for row in rows if row.get("variable") == name] for rows in member.earlier],
    }


def _graph_of(resource: VarResource, graph_id: int | None) -> str | None:
    return None if graph_id is None else resource.graph_name(graph_id)


def _form(desc: TensorDesc) -> dict[str, Any]:
    return {"dtype": desc.dtype.serial, "format": desc.format.name, "shape": list(desc.shape)}


def _use(name: str, member: Member) -> dict[str, Any] | None:
    """How the compiled graph of a member uses the variable; None if it does not."""
    if member.compiled is None:
        return None
    graph = member.compiled.graph
    forms = [_form(node.output_descs[0]) for node in member.compiled.variables if node.name == name]
    readers, writers = list(_readers(graph, name)), list(_writers(graph, name))
    if not (readers or writers or forms):
        return None
    return {"graph": graph.name, "form": forms[0] if forms else None, "readers": readers, "writers": writers}


def _readers(graph: Graph, name: str) -> Iterator[str]:
    for each in graph.all_graphs():
        for node in each.nodes_of(*sorted(VARIABLE_TYPES)):
            if node.name == name:
                yield from dict.fromkeys(_shown(use.node) for use in each.consumers(node.out()))


def _writers(graph: Graph, name: str) -> Iterator[str]:
    for each in graph.all_graphs():
        for node in each.nodes():
            if any(name in (desc.attrs.get(mark) for mark in _MARKS) for desc in node.output_descs if desc.attrs):
                yield _shown(node)


def _shown(node: OpDesc) -> str:
    graph: Graph = node.graph
    place = f"{graph.name}/" if graph.parent is not None else ""
    return f"{place}{node.name} ({node.type})"


_MARKS = (REF_VAR_SRC_VAR_NAME, ASSIGN_VAR_NAME)
