"""Give the variables of a graph their addresses (GE: VarMemAssignUtil) and find every port that lives there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field, replace
from functools import cached_property

from gecli.errors import CompileError, Diagnostic
from gecli.ir.attributes import (
    ASSIGN_VAR_NAME,
    BROADCAST_TYPES,
    REF_VAR_SRC_VAR_NAME,
    SRC_VAR_NAME,
    VARIABLE_MEMORY_TYPES,
)
from gecli.ir.graph import Graph
from gecli.ir.op_desc import OpDesc, Port, Use
from gecli.ir.tensor_desc import TensorDesc
from gecli.records import dataclass
from gecli.variables import var_faults
from gecli.variables.broadcast import BroadcastInfo
from gecli.variables.mem_resource import MemoryType
from gecli.variables.sizes import output_size, padded_bytes
from gecli.variables.var_manager import VarManager

SRC_CONST_NAME = "_src_const_name"  # name in the manager instead of the node's
OUTPUT_MEMORY_TYPE = "_output_memory_type"
RDMA_OUTPUT = 1
ASSIGN_TYPES = frozenset(("Assign", "AssignAdd", "AssignSub"))
CONVERSION_TYPES = frozenset(("TransData", "Cast", "Transpose", "Permute"))
MAX_DEPTH = 16  # GE: kVarMemMaxRecursion
ADD_IT = "add a Variable of this name before the node, or name another one"


def assign_variable_memory(graph: Graph, manager: VarManager, graph_id: int) -> dict[OpDesc, int]:
    """Logical addresses of the variable, Constant, FileConstant and ConstPlaceHolder nodes, subgraphs included.

    Writes the padded size into output descriptor 0 of each. Variable ref nodes have no memory of their own and are
    left out. Raises CompileError (VAR_SIZE_UNKNOWN, VAR_SHAPE_GROWS, VAR_POOL_MISSING, VAR_MEM_EXHAUSTED...); then
    manager and graph are as before.
    """
    state = manager.snapshot()
    try:
        manager.resource.graph_names[graph_id] = graph.name
        with var_faults.in_graph(graph.name):
            placed = [_place(node, manager, graph, graph_id) for node in variable_memory_nodes(graph)]
            manager.check_limits(graph.name)
    except BaseException:
        manager.restore(state)
        raise
    for node, desc, _ in placed:
        node.output_descs[0] = desc
    return {node: address for node, _, address in placed}


def variable_memory_nodes(graph: Graph) -> Iterator[OpDesc]:
    """The nodes with memory in the session: a graph's nodes in order, those of a node's subgraphs behind it."""
    if not graph.subgraphs:
        nodes: Iterator[OpDesc] = iter(graph.nodes_of(*sorted(VARIABLE_MEMORY_TYPES)))
    else:
        nodes = iter(dict.fromkeys(n for n in graph.all_nodes() if n.type in VARIABLE_MEMORY_TYPES))
    return (node for node in nodes if not node.ref_variable)


def manager_name(node: OpDesc) -> str:
    """The name under which the manager knows a node."""
    return node.attrs.get(SRC_CONST_NAME) or node.name


def is_placed_by_name(node: OpDesc) -> bool:
    """Whether name, type and descriptor of a node say all that decides its memory."""
    return not any(node.attrs.get(name) for name in (SRC_CONST_NAME, SRC_VAR_NAME, OUTPUT_MEMORY_TYPE))


def place_again(node: OpDesc, name: str, desc: TensorDesc, manager: VarManager, graph_id: int, where: str) -> int:
    """The logical address in this session of a node that was placed in another one, as a compile gives it.

    `name` is the one that the session has for it. Raises as `assign_variable_memory`.
    """
    resource = manager.resource
    if resource.exists_as(name, desc):
        resource.use_again(name, desc, where)
    else:
        manager.assign(name, desc, node, where)
        resource.set_allocated_graph_id(name, graph_id)
    return resource.address_of(name, desc)


def other_forms(graph: Graph, manager: VarManager) -> list[Diagnostic]:
    """Warnings for variables that an earlier graph of the session declared in another type or with other dims.

    Called before the graph's variables are placed. Nothing converts their bytes, as there is no road between the forms.
    """
    found = []
    for node in variable_memory_nodes(graph):
        if node.type != "Variable" or not node.output_descs:
            continue
        desc, known = node.output_descs[0], manager.resource.current_desc(manager_name(node))
        road = manager.resource.trans_road(node.name)
        if known is None or (road and desc.same_storage(road.target)) or not (known.is_static and desc.is_static):
            continue
        if known.dtype is not desc.dtype or known.shape != desc.shape:
            found.append(var_faults.other_form(node.name, graph.name, known, desc))
    return found


def _place(node: OpDesc, manager: VarManager, graph: Graph, graph_id: int) -> tuple[OpDesc, TensorDesc, int]:
    where = f"graph {graph.name!r}, node {node.name!r}"
    if not node.output_descs:
        raise CompileError(
            "G2018", f"{node.type} {node.name!r} has no output", kind="PASS_FAILED", node=node.name, where=where
        )
    resource = manager.resource
    name = resource.session_name(manager_name(node), node)
    kind = MemoryType.RDMA_HBM if node.attrs.get(OUTPUT_MEMORY_TYPE) == RDMA_OUTPUT else MemoryType.HBM
    manager.memory(kind, node.name, where, do=f"remove the attribute {OUTPUT_MEMORY_TYPE}")
    desc = replace(node.output_descs[0], size_bytes=output_size(node, manager.padding_bytes))
    if resource.exists_as(name, desc):
        if node.attrs.get(SRC_VAR_NAME):  # its current form is that of its source
            resource.require_fits(name, desc, where)
        else:
            resource.use_again(name, desc, where)
    else:
        manager.assign(name, desc, node, where, kind)
        if node.type == "Variable":
            _share_with_source(node, manager)
        resource.set_allocated_graph_id(name, graph_id)
    return node, desc, resource.address_of(name, desc)


def _share_with_source(node: OpDesc, manager: VarManager) -> None:
    """Register an fp16 twin at the address of its fp32 variable too (GE: AssignData2Fp32Var)."""
    source = node.attrs.get(SRC_VAR_NAME)
    if not source:
        return
    desc = manager.resource.current_desc(source)
    if desc is None:
        raise var_faults.not_found(source, f"{node.name!r} names it in {SRC_VAR_NAME}", ADD_IT)
    manager.resource.set_address(node.name, desc, manager.resource.address_of(source, desc))


@dataclass(frozen=True)
class VariablePorts:
    """Output ports that must lie where something else lies.

    `offsets`: ports in variable memory with their logical address. `aliases`: outputs of assigns behind a
    conversion, which write the conversion's output and not the variable. `broadcasts`: (variable node, input of a
    broadcast operator), to be recorded once the operator's outputs have their offsets.
    """

    offsets: Mapping[Port, int] = field(default_factory=dict)
    aliases: Mapping[Port, Port] = field(default_factory=dict)
    broadcasts: tuple[tuple[OpDesc, Use], ...] = ()

    @cached_property
    def ports(self) -> frozenset[Port]:
        return frozenset(self.offsets)


def variable_ports(graph: Graph, manager: VarManager, assigned: Mapping[OpDesc, int]) -> VariablePorts:
    """Every port in variable memory, in GE's order of precedence: `assigned` nodes, ref outputs, outputs computed
    into a variable, assigns. Raises CompileError (VAR_NOT_FOUND, PASS_FAILED).
    """
    offsets = {node.out(): address for node, address in assigned.items()}
    with var_faults.in_graph(graph.name):
        offsets.update(assign_ref_outputs(graph, manager))
        offsets.update(assign_named_outputs(graph, manager))
        attrs = assign_var_attrs(graph, manager)
    offsets.update(attrs.offsets)
    return VariablePorts(offsets, attrs.aliases, attrs.broadcasts)


def assign_ref_outputs(graph: Graph, manager: VarManager) -> dict[Port, int]:
    """Ports whose descriptor says that the output is stored into a variable (GE: AssignMemory2HasRefAttrNode).

    Raises CompileError (VAR_NOT_FOUND) when no node has the variable's name.
    """
    found: dict[Port, int] = {}
    for port, name in _marked_ports(graph, REF_VAR_SRC_VAR_NAME):
        variable = _node_named(graph, name)
        if variable is None:
            why = f"output {port} is stored into it, but the graph has no such node"
            raise var_faults.not_found(name, why, ADD_IT)
        if variable.type not in VARIABLE_MEMORY_TYPES | {"RefData"}:
            raise var_faults.no_memory(name, variable.type, port.node.name)
        if variable.type != "RefData":
            found[port] = manager.resource.address_of(manager_name(variable), variable.output_descs[0])
    return found


def assign_named_outputs(graph: Graph, manager: VarManager) -> dict[Port, int]:
    """Ports that are computed directly into a variable (`_assign_var_name`); unknown variables are skipped.

    The form is that of this graph's variable: GE takes the current one, which another graph may have made.
    """
    found: dict[Port, int] = {}
    for port, name in _marked_ports(graph, ASSIGN_VAR_NAME):
        node = _node_named(graph, name)
        is_variable = node is not None and node.type == "Variable"
        desc = node.output_descs[0] if node is not None and is_variable else manager.resource.current_desc(name)
        entry = None if desc is None else manager.resource.find(name, desc)
        if entry is not None:
            found[port] = entry.address
    return found


def assign_var_attrs(graph: Graph, manager: VarManager) -> VariablePorts:
    """What the consumers of each Variable imply (GE: AssignVarAttr2Nodes).

    Raises CompileError (PASS_FAILED) for a chain of assigns deeper than GE allows.
    """
    offsets: dict[Port, int] = {}
    aliases: dict[Port, Port] = {}
    broadcasts: list[tuple[OpDesc, Use]] = []
    for node in variable_memory_nodes(graph):
        if node.type != "Variable":
            continue
        owner: Graph = node.graph
        offsets[node.out()] = manager.resource.address_of(manager_name(node), node.output_descs[0])
        for use in owner.consumers(node.out()):
            if use.node.type in BROADCAST_TYPES:
                broadcasts.append((node, use))
            elif use.slot == 0 and use.node.type in ASSIGN_TYPES:
                offsets.update(dict.fromkeys(_assign_chain(owner, use.node), offsets[node.out()]))
            elif use.slot == 0 and use.node.type in CONVERSION_TYPES:
                _alias_behind_conversion(owner, use.node, aliases)
    return VariablePorts(offsets, aliases, tuple(broadcasts))


def record_assigned(manager: VarManager, assigned: Mapping[OpDesc, int], ports: VariablePorts) -> tuple[str, ...]:
    """Record the variables to which a graph gives a value: those it writes, and those with an initial value.

    Returns their names.
    """
    written = {address for port, address in ports.offsets.items() if port.node not in assigned}
    names = tuple(
        manager_name(node)
        for node, address in assigned.items()
        if node.type == "Variable" and (address in written or node.init_value is not None)
    )
    manager.resource.set_assigned(names)
    return names


def record_broadcasts(
    graph_id: int, ports: VariablePorts, manager: VarManager, output_offsets: Mapping[Port, int]
) -> None:
    """Record the broadcasts of `ports` once planning has placed the operators' outputs. They work in place: the
    input takes the output's offset. Raises CompileError (PASS_FAILED) when input and output differ in size.
    """
    manager.resource.broadcasts.pop(graph_id, None)  # of an earlier compile of the graph
    for variable, use in ports.broadcasts:
        operator, index = use
        if index >= len(operator.output_descs):
            raise _broken(operator, f"input {index} has no output of the same index")
        out = operator.out(index)
        given = use.desc if use.desc is not None and use.desc.size_bytes else variable.output_descs[0]
        sizes = tuple(desc.size_bytes or padded_bytes(desc) for desc in (given, out.desc))
        if sizes[0] != sizes[1]:
            raise _broken(operator, f"input {index} has {sizes[0]} bytes, output {index} has {sizes[1]}")
        offset = output_offsets[out]
        info = BroadcastInfo(manager_name(variable), operator.name, index, offset, sizes[0], offset, sizes[1])
        manager.resource.save_broadcast(graph_id, info)


def _assign_chain(graph: Graph, first: OpDesc) -> list[Port]:
    """Outputs of an assign and of the assigns behind it that go on through input 0."""
    found: list[Port] = []
    level = [first]
    for _ in range(MAX_DEPTH - 1):
        if not level:
            return found
        found.extend(node.out() for node in level)
        level = [use.node for node in level for use in graph.consumers(node.out()) if _continues(use, ASSIGN_TYPES)]
    if level:
        why = f"a chain of {MAX_DEPTH} assigns; at most {MAX_DEPTH - 1} are possible"
        raise _broken(first, why, "let a later one write the Variable itself, behind a control link of the one before")
    return found


def _alias_behind_conversion(graph: Graph, conversion: OpDesc, aliases: dict[Port, Port]) -> None:
    """Assigns behind conversions write the conversion's output. Only through input 0: GE looks at any input, so
    that `v -> Cast -> value of Assign(w)` redirects the write of `w`.
    """
    level = [conversion]
    for _ in range(MAX_DEPTH):
        uses = [(node, use) for node in level for use in graph.consumers(node.out())]
        for node, use in uses:
            if _continues(use, ASSIGN_TYPES):
                aliases.update(dict.fromkeys(_assign_chain(graph, use.node), node.out()))
        level = [use.node for _, use in uses if _continues(use, CONVERSION_TYPES)]
        if not level:
            return


def _continues(use: Use, types: frozenset[str]) -> bool:
    return use.slot == 0 and use.node.type in types


def _marked_ports(graph: Graph, attr: str) -> Iterator[tuple[Port, str]]:
    for part in graph.all_graphs():
        for node in part.nodes():
            for index, desc in enumerate(node.output_descs):
                if desc.attrs and (name := desc.attrs.get(attr)):
                    yield Port(node, index), name


def _node_named(graph: Graph, name: str) -> OpDesc | None:
    """The node of this name in the root graph, else in the first subgraph that has one."""
    found = graph.root.get(name)
    for part in graph.root.subgraphs.values():
        if found is not None:
            break
        found = part.get(name)
    return found


def _broken(node: OpDesc, why: str, do: str = "") -> CompileError:
    return CompileError(
        "G2018", f"{node.type} {node.name!r} cannot be placed", kind="PASS_FAILED", node=node.name, why=why, do=do
    )
