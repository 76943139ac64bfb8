"""Let a value be computed directly into the variable it is assigned to (GE: AssignRemovePass)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
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
        for each in graph.all_graphs():
            for assign in each.nodes_of("Assign"):
                if _is_removable(each, assign, names):
                    variable = _remove(each, assign)
                    counts["assigns_removed"] += 1
                    ctx.record(self.name, "assign_removed", variable=variable.name, node=assign.name)
            for port in _marked_outputs(each):
                counts["names_handed_on"] += _hand_on(port)
        return counts


def _is_removable(graph: Graph, assign: OpDesc, names: Counter[str]) -> bool:
    """Raises CompileError for an Assign without its two inputs."""
    if len(assign.inputs) < 2 or assign.inputs[0] is None or assign.inputs[1] is None:
        raise CompileError(
            "G2018",
            f"Assign {assign.name!r} has an input that is not connected",
            kind="PASS_FAILED",
            where=f"node {assign.name} (Assign)",
            node=assign.name,
        )
    reference, value = assign.inputs[0], assign.inputs[1]
    variable = reference.node
    if variable.type not in VARIABLE_TYPES or variable.ref_variable is not None or variable.data_inputs:
        return False
    if names[variable.name] > 1 or not _can_be_placed(value):
        return False
    if len(reference.node.users[reference.index]) != 1 or len(value.node.users[value.index]) != 1:
        return False
    if not value.desc.same_storage(reference.desc):
        return False  # Assign without shape validation
    return not variable.control_out or _comes_behind(graph, variable, value.node)


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


def _comes_behind(graph: Graph, variable: OpDesc, value: OpDesc) -> bool:
    nodes = graph.nodes()
    return nodes.index(variable) >= nodes.index(value)


def _remove(graph: Graph, assign: OpDesc) -> OpDesc:
    reference, value = assign.inputs[0], assign.inputs[1]
    assert reference is not None and value is not None
    variable = reference.node
    isolate(graph, assign)
    graph.connect(value, variable, 0)
    variable.input_descs[0] = replace(value.desc, attrs=NO_ATTRS)
    value.node.output_descs[value.index] = value.desc.with_attr(ASSIGN_VAR_NAME, variable.name)
    return variable


def _marked_outputs(graph: Graph) -> Iterator[Port]:
    """Outputs that are computed into a variable and in place of an input, the last ones first."""
    for node in reversed(graph.nodes()):
        for index, desc in enumerate(node.output_descs):
            if desc.attrs and ASSIGN_VAR_NAME in desc.attrs and INPLACE_INDEX in desc.attrs:
                yield Port(node, index)


def _hand_on(port: Port) -> bool:
    """Let the input that `port` overwrites be computed into the variable too. Raises CompileError if it has none."""
    slot, name = port.desc.attrs[INPLACE_INDEX], port.desc.attrs[ASSIGN_VAR_NAME]
    source = port.node.inputs[slot] if 0 <= slot < len(port.node.inputs) else None
    if source is None:
        raise CompileError(
            "G2018",
            f"output {port} replaces input {slot}, which is not connected",
            kind="PASS_FAILED",
            where=f"node {port.node.name} ({port.node.type})",
            node=port.node.name,
        )
    if source.desc.attrs.get(ASSIGN_VAR_NAME) == name:
        return False
    source.node.output_descs[source.index] = source.desc.with_attr(ASSIGN_VAR_NAME, name)
    return True
