"""Let a value be computed directly into the variable it is assigned to (GE: AssignRemovePass)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from gecli.errors import CompileError
from gecli.ir.attributes import ASSIGN_VAR_NAME, CONST_TYPES, DATA_TYPES, REF_VAR_SRC_VAR_NAME, VARIABLE_TYPES
from gecli.ir.graph import Graph
from gecli.ir.op_desc import OpDesc, Port
from gecli.ir.surgery import isolate
from gecli.ir.tensor_desc import NO_ATTRS
from gecli.ops.registry import find
from gecli.passes.base import Pass, PassContext, Stage
from gecli.passes.facts import Fact
from gecli.passes.written_inputs import output_names

INPLACE_INDEX = "_inplace_support_input_index"
# Their output has a place already.
_PLACED_TYPES = DATA_TYPES | CONST_TYPES | VARIABLE_TYPES | {"FileConstant", "ConstPlaceHolder"}


class AssignRemove(Pass):
    """Replace `Assign(variable, value)` by `value -> variable`, the value's output placed at the variable's address.

    Only when nobody else reads the old or the new value, and nothing that must run before the value waits for the
    variable. Outputs that can be computed in place hand `_assign_var_name` on to the input they overwrite.
    """

    name = "AssignRemovePass"
    stage = Stage.OPTIMIZE_2
    ensures = (Fact.ACYCLIC,)
    level = "O3"

    def run(self, graph: Graph, ctx: PassContext) -> Counter[str]:
        counts = Counter[str]()
        names = Counter(node.name for each in graph.root.all_graphs() for node in each.nodes_of(*VARIABLE_TYPES))
        removed: list[OpDesc] = []
        handed_on: dict[Port, str] = {}
        for each in graph.all_graphs():
            planned = _removable(each, names, ctx)
            removed += planned
            handed_on |= _handed_on(each, planned)
        for assign in removed:
            name = assign.name
            variable = _remove(assign.graph, assign)
            counts["assigns_removed"] += 1
            ctx.record(self.name, "assign_removed", variable=variable.name, node=name)
        for port, variable_name in handed_on.items():
            port.node.output_descs[port.index] = port.desc.with_attr(ASSIGN_VAR_NAME, variable_name)
            counts["names_handed_on"] += 1
        return counts


def _removable(graph: Graph, names: Counter[str], ctx: PassContext) -> list[OpDesc]:
    """The Assign nodes that go. Raises CompileError for an Assign without its two inputs.

    All are judged by one order of the graph: the value of each stands before its variable in it, so that all the new
    edges together make no cycle.
    """
    found = []
    place: dict[OpDesc, int] = {}
    for assign in graph.nodes_of("Assign"):
        reference, value = _inputs_of(assign)
        variable = reference.node
        if variable.control_out and not place:
            place = {node: position for position, node in enumerate(graph.nodes())}
        why = _why_not(reference, value, names)
        if not why and variable.control_out and not _comes_behind(place, variable, value.node):
            why = "something behind the variable may run before the value"
        if not why:
            found.append(assign)
        elif variable.is_variable and variable.ref_variable is None:
            ctx.record(AssignRemove.name, "assign_kept", variable=variable.name, node=assign.name, reason=why)
    return found


def _comes_behind(place: Mapping[OpDesc, int], variable: OpDesc, value: OpDesc) -> bool:
    return place[variable] > place[value]


def _inputs_of(assign: OpDesc) -> tuple[Port, Port]:
    reference, value = (*assign.inputs, None, None)[:2]
    if reference is None or value is None:
        raise CompileError(
            "G2018",
            f"Assign {assign.name!r} has an input that is not connected",
            kind="PASS_FAILED",
            where=f"node {assign.name} (Assign)",
            node=assign.name,
        )
    return reference, value


def _why_not(reference: Port, value: Port, names: Counter[str]) -> str:
    """Why a value cannot be computed into a variable; empty when it can."""
    variable = reference.node
    if variable.type not in VARIABLE_TYPES or variable.ref_variable is not None:
        return "it writes no variable directly"
    if variable.data_inputs:
        return "another value is computed into the variable"
    if names[variable.name] > 1:
        return "another node stands for the variable"
    if not _can_be_placed(value):
        return "the value has a place of its own"
    if len(reference.node.users[reference.index]) != 1:
        return "the variable has other readers"
    if len(value.node.users[value.index]) != 1:
        return "the value has other readers"
    if not value.desc.same_storage(reference.desc):  # Assign without shape validation
        return "the value has another form than the variable"
    return ""


def _can_be_placed(value: Port) -> bool:
    """Whether the planner may choose where this output lies: not if it is someone else's memory."""
    node = value.node
    if node.type in _PLACED_TYPES or node.subgraphs:
        return False
    if any(name in value.desc.attrs for name in (ASSIGN_VAR_NAME, REF_VAR_SRC_VAR_NAME)):
        return False
    kind = find(node.type)
    if kind is None or getattr(kind.cls, "view", False):
        return False
    names = output_names(node, kind)
    return value.index >= len(names) or names[value.index] not in kind.writes


def _remove(graph: Graph, assign: OpDesc) -> OpDesc:
    reference, value = assign.inputs[0], assign.inputs[1]
    assert reference is not None and value is not None
    variable = reference.node
    isolate(graph, assign)
    graph.connect(value, variable, 0)
    variable.input_descs[0] = replace(value.desc, attrs=NO_ATTRS)
    value.node.output_descs[value.index] = value.desc.with_attr(ASSIGN_VAR_NAME, variable.name)
    return variable


def _handed_on(graph: Graph, removed: list[OpDesc]) -> dict[Port, str]:
    """Outputs to mark because one that is computed into a variable overwrites them, with the variable's name.

    `removed` are the assigns that go, whose values become such outputs. Raises CompileError for an output that
    replaces an input which is not connected.
    """
    marked = dict(_computed_into(assign) for assign in removed)
    found: dict[Port, str] = {}
    if not marked and not any(INPLACE_INDEX in desc.attrs for node in graph.nodes() for desc in node.output_descs):
        return found
    for node in reversed(graph.nodes()):
        for index, desc in enumerate(node.output_descs):
            port = Port(node, index)
            name = marked.get(port) or desc.attrs.get(ASSIGN_VAR_NAME)
            if not name or INPLACE_INDEX not in desc.attrs:
                continue
            source = _overwritten(port)
            if source.desc.attrs.get(ASSIGN_VAR_NAME) != name and _may_be_overwritten(source):
                marked[source] = found[source] = name
    return found


def _computed_into(assign: OpDesc) -> tuple[Port, str]:
    reference, value = _inputs_of(assign)
    return value, reference.node.name


def _may_be_overwritten(source: Port) -> bool:
    """GE marks every producer: also an input of the model, and what others read."""
    return _can_be_placed(source) and len(source.node.users[source.index]) == 1


def _overwritten(port: Port) -> Port:
    slot = port.desc.attrs[INPLACE_INDEX]
    source: Port | None = port.node.inputs[slot] if 0 <= slot < len(port.node.inputs) else None
    if source is None:
        raise CompileError(
            "G2018",
            f"output {port} replaces input {slot}, which is not connected",
            kind="PASS_FAILED",
            where=f"node {port.node.name} ({port.node.type})",
            node=port.node.name,
        )
    return source
