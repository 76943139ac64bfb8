"""The whole plan of one model: order, memory, weights and where every operand lies."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from gecli.ir.attributes import CONST_TYPES, VALUE
from gecli.ir.graph import Graph
from gecli.ir.op_desc import OpDesc, Port
from gecli.ir.placement import Placement
from gecli.ir.tensor_desc import TensorDesc
from gecli.ir.weight import Weight
from gecli.planning.buffers import collect_buffers
from gecli.planning.memory import MemoryPlan, plan_memory
from gecli.planning.weight_layout import WeightLayout, lay_out_weights
from gecli.records import dataclass
from gecli.variables.assignment import VariablePorts
from gecli.variables.sizes import padded_bytes, require_room


@dataclass(frozen=True, slots=True)
class ModelPlan:
    """Everything the artifact writer needs beside the graph.

    `order` holds the root graph's nodes by id, then those of each subgraph. `memory` is None for a dynamic model,
    whose feature map is laid out when it runs. `constants` are the Const nodes in the order of `weights`.
    """

    order: tuple[OpDesc, ...]
    placements: Mapping[OpDesc, Placement]
    memory: MemoryPlan | None
    weights: WeightLayout
    constants: tuple[OpDesc, ...]

    @property
    def is_dynamic(self) -> bool:
        return self.memory is None

    @property
    def memory_bytes(self) -> int:
        return self.memory.total_bytes if self.memory else 0


def plan_model(
    graph: Graph, in_variable_memory: VariablePorts, assigned: Mapping[OpDesc, int], *, reuse: bool = True
) -> ModelPlan:
    """Plan a graph whose passes are done and whose variables have addresses.

    Writes GE's padded size into the output descriptors. A graph with unknown dims or subgraphs gets a dynamic plan.
    Raises CompileError for a tensor that no memory holds.
    """
    order = graph.nodes()
    inner = [node for sub in graph.all_graphs() if sub is not graph for node in sub.nodes()]
    require_room_for((*order, *inner))
    distinct = {id(desc): desc for node in order for desc in node.output_descs}  # alike nodes share theirs
    static = not inner and all(desc.is_static for desc in distinct.values())
    if static:
        _set_sizes(order, distinct)
    constants = tuple(node for node in (*order, *inner) if node.type in CONST_TYPES and node not in assigned)
    layout = lay_out_weights([weight_of(node) for node in constants])
    memory = None
    if static:
        buffers = collect_buffers(order, graph, in_variable_memory.ports, in_variable_memory.aliases)
        memory = plan_memory(buffers, reuse=reuse)
    offsets: dict[Port, int] = dict(memory.offsets) if memory else {}
    offsets.update(in_variable_memory.offsets)
    offsets.update({Port(node, 0): offset for node, offset in zip(constants, layout.offsets)})
    for port, target in in_variable_memory.aliases.items():
        if target in offsets:  # a dynamic model has no place for it yet
            offsets[port] = offsets[target]
    everything = (*order, *inner)
    place = offsets.get
    placements = {node: _placement(position, node, place) for position, node in enumerate(everything)}
    return ModelPlan(everything, placements, memory, layout, constants)


def require_room_for(nodes: Iterable[OpDesc]) -> None:
    """Raises CompileError for an output that no memory holds."""
    seen: set[int] = set()  # alike nodes share their descriptors
    for node in nodes:
        for index, desc in enumerate(node.output_descs):
            if id(desc) not in seen:
                seen.add(id(desc))
                require_room(desc, f"output {index} of {node.type} node {node.name!r}", node.name)


def weight_of(node: OpDesc) -> Weight:
    value: Weight = node.attrs[VALUE]
    return value


def _set_sizes(order: list[OpDesc], distinct: Mapping[int, TensorDesc]) -> None:
    """Give every output descriptor its padded size; `distinct` holds them by identity."""
    sized = {
        key: desc if desc.size_bytes else replace(desc, size_bytes=padded_bytes(desc)) for key, desc in distinct.items()
    }
    for node in order:
        node.output_descs[:] = [sized[id(desc)] for desc in node.output_descs]


def _placement(position: int, node: OpDesc, place: Callable[[Port, int], int]) -> Placement:
    return Placement(
        position,
        0,
        tuple([place(port, 0) for port in node.inputs if port is not None]),
        tuple([place(Port(node, index), 0) for index in range(len(node.output_descs))]),
    )
