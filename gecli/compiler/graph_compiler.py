"""One graph through the passes, variable assignment and planning."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from gecli.errors import CompileError, Diagnostic
from gecli.ir.attributes import DATA_TYPES, VARIABLE_TYPES
from gecli.ir.graph import Graph
from gecli.ir.op_desc import OpDesc
from gecli.layout.platform import Platform
from gecli.passes.base import CompileSettings, PassContext
from gecli.passes.pipeline import Instrument, PassRecord, Timeline, run_pipeline
from gecli.passes.registry import pipeline
from gecli.planning.model_plan import ModelPlan, plan_model, require_room_for
from gecli.records import dataclass
from gecli.variables.assignment import (
    assign_variable_memory,
    is_placed_by_name,
    other_forms,
    record_assigned,
    record_broadcasts,
    variable_ports,
)
from gecli.variables.limits import MemoryLimits
from gecli.variables.rebuild_control import RebuildControl
from gecli.variables.var_manager import VarManager
from gecli.variables.var_match import VarMatch, record_of

if TYPE_CHECKING:
    from gecli.compiler.variable_order import OrderCheck
    from gecli.planning.external_weights import ExternalWeight

_GIVEN_TYPES = DATA_TYPES | VARIABLE_TYPES  # their shapes are as the model says


@dataclass(slots=True)
class CompiledGraph:
    """A graph after its passes, with its plan and what the session knew before and after."""

    graph: Graph
    plan: ModelPlan
    record: VarMatch
    passes: list[PassRecord]
    records: list[dict[str, Any]]
    warnings: list[Diagnostic] = field(default_factory=list)
    external: tuple[ExternalWeight, ...] = ()
    assigned: Mapping[OpDesc, int] = field(default_factory=dict)  # every node in variable memory, in order
    given_values: tuple[str, ...] = ()  # variables that get a value here
    is_portable: bool = False  # whether name and descriptor of each node in variable memory say all about its place

    @property
    def variables(self) -> dict[OpDesc, int]:
        """The variables with their addresses."""
        return {node: address for node, address in self.assigned.items() if node.is_variable}


class Placed(NamedTuple):
    """A graph with its memory: the nodes in variable memory, the plan of the rest, variables that get a value."""

    assigned: Mapping[OpDesc, int]
    plan: ModelPlan
    given_values: tuple[str, ...]
    has_broadcasts: bool


class StoppedEarly(Exception):
    """`--stop-after` ended the compile; `graph` is its state then."""

    def __init__(self, graph: Graph) -> None:
        super().__init__(graph.name)
        self.graph = graph


def compile_graph(
    graph: Graph,
    *,
    manager: VarManager,
    rebuild: RebuildControl,
    platform: Platform,
    settings: CompileSettings,
    graph_id: int = 1,
    reuse: bool = True,
    instruments: Sequence[Instrument] = (),
    stop_after: str | None = None,
    on_stage: Callable[[str], None] | None = None,
    externalise: Callable[[Graph], tuple[ExternalWeight, ...]] | None = None,
) -> CompiledGraph:
    """Compile `graph`, which is changed; on an error manager and rebuild control are as before.

    `externalise` moves constants out of the optimised graph.

    Raises CompileError, InputError, and StoppedEarly.
    """
    before = record_of(manager)
    state, marks = manager.snapshot(), rebuild.snapshot()
    timeline = Timeline()
    ctx = PassContext(platform, manager, rebuild, settings, graph_id)
    order = _order_checks(graph)
    try:
        require_room_for(node for each in graph.all_graphs() for node in each.nodes_of(*sorted(_GIVEN_TYPES)))
        if graph.is_optimised:
            from gecli.compiler.optimised_graphs import restore_roads

            restore_roads(graph, manager, rebuild, graph_id)
            complete = stop_after is None
        else:
            complete = run_pipeline(graph, ctx, pipeline(settings), (timeline, *order, *instruments), stop_after)
        if not complete:
            raise StoppedEarly(graph)
        if on_stage:
            on_stage("Build")
        external = () if externalise is None else externalise(graph)
        ctx.warnings += other_forms(graph, manager)
        placed = place_graph(graph, manager, graph_id, reuse=reuse)
        assigned, plan = placed.assigned, placed.plan
        races = (
            _races(graph, plan, assigned) if graph.is_optimised else [each for check in order for each in check.found]
        )
        if settings.strict_order and races:
            raise CompileError.of(replace(each, severity="error") for each in races)
        ctx.warnings += races
    except BaseException:
        manager.restore(state)
        rebuild.restore(marks)
        raise
    ctx.warnings += _beyond_limit(graph.name, plan, manager.limits)
    record = VarMatch(before, record_of(manager, graph_id))
    is_portable = not placed.has_broadcasts and not manager.resource.shares_memory_between_batches
    return CompiledGraph(
        graph,
        plan,
        record,
        timeline.records,
        ctx.records,
        ctx.warnings,
        external,
        assigned,
        placed.given_values,
        is_portable and all(map(is_placed_by_name, assigned)),
    )


def place_graph(graph: Graph, manager: VarManager, graph_id: int, *, reuse: bool) -> Placed:
    """Give the variables of a graph their addresses and lay out the rest of its memory. Raises CompileError."""
    assigned = assign_variable_memory(graph, manager, graph_id)
    ports = variable_ports(graph, manager, assigned)
    given = record_assigned(manager, assigned, ports)
    plan = plan_model(graph, ports, assigned, reuse=reuse)
    places = {use.node: plan.placements[use.node].output_offsets for _, use in ports.broadcasts}
    offsets = {node.out(index): offset for node, found in places.items() for index, offset in enumerate(found)}
    record_broadcasts(graph_id, ports, manager, offsets)
    return Placed(assigned, plan, given, bool(ports.broadcasts))


def _order_checks(graph: Graph) -> list[OrderCheck]:
    """What watches the order of reads and writes: nothing in a graph without variables."""
    if not any(each.count_of(name) for each in graph.all_graphs() for name in VARIABLE_TYPES):
        return []
    from gecli.compiler.variable_order import OrderCheck

    return [OrderCheck()]


def _races(graph: Graph, plan: ModelPlan, assigned: Mapping[OpDesc, int]) -> list[Diagnostic]:
    """Readers and writers of a variable in no order, in a graph that was optimised before, as warnings."""
    variables = {address: node.name for node, address in assigned.items() if node.is_variable}
    if not variables:
        return []
    from gecli.compiler.variable_order import order_warnings

    return order_warnings(graph, plan.placements, variables)


def _beyond_limit(name: str, plan: ModelPlan, limits: MemoryLimits) -> list[Diagnostic]:
    """A feature map that the configured device cannot hold; GE accepts the option and ignores it."""
    limit = limits.checked_graph_max_bytes
    if plan.memory_bytes <= limit:
        return []
    return [
        Diagnostic(
            "E10001",
            f"the feature map takes {plan.memory_bytes} bytes, ge.graphMemoryMaxSize is {limit}",
            where=f"graph {name!r}",
            why="a device with this limit cannot load the model",
            do="raise the limit, or compile for a smaller batch or input shape",
            severity="warning",
            option="ge.graphMemoryMaxSize",
            expected=limit,
            actual=plan.memory_bytes,
        )
    ]
