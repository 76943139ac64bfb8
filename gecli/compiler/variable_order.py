"""Whether the order in which a graph reads and writes each variable is stated in the graph (runtime.md 5.6)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import field

from gecli.errors import Diagnostic
from gecli.ir.graph import Graph
from gecli.ir.op_desc import OpDesc, Port, Use
from gecli.ir.placement import Placement
from gecli.passes.base import Pass, PassContext
from gecli.passes.variable_prepare import VariablePrepare
from gecli.passes.written_inputs import writes_at
from gecli.planning.variable_races import find_races, race_warnings
from gecli.records import dataclass
from gecli.runtime.variable_use import VariableOf, accesses_of
from gecli.wire.model_record import GraphRecord


def order_warnings(
    graph: Graph, placements: Mapping[OpDesc, Placement], variables: Mapping[int, str]
) -> list[Diagnostic]:
    """A warning for each node that writes a variable in no order with others that read or write it.

    `variables` gives the name of the variable at each logical address.
    """

    def variable_of(port: Port) -> str:
        placement = placements.get(port.node)
        offsets = placement.output_offsets if placement else ()
        return variables.get(offsets[port.index], "") if port.index < len(offsets) else ""

    return _warnings(graph, variable_of)


@dataclass(slots=True)
class OrderCheck:
    """Watches a pipeline: looks at the graph before passes put conversions between variables and those who use them.

    How a variable is stored does not decide whether its order is stated. A conversion that several nodes share would
    hide that nothing orders them.
    """

    found: list[Diagnostic] = field(default_factory=list)

    def before(self, step: Pass, graph: Graph, ctx: PassContext) -> None:
        if step.name == VariablePrepare.name:
            self.found = _warnings(graph, _variable_behind)

    def after(self, step: Pass, graph: Graph, ctx: PassContext, counts: Counter[str], elapsed_ns: int) -> None: ...


def _variable_behind(port: Port) -> str:
    """The variable that a port of a graph refers to: what is written in place is shown by an output."""
    seen: set[Port] = set()
    while port not in seen:
        seen.add(port)
        node = port.node
        if node.is_variable:
            return node.ref_variable or node.name
        slot = 0 if node.type == "RefIdentity" else _written_slot(port)
        source = node.inputs[slot] if slot is not None and slot < len(node.inputs) else None
        if source is None:
            return ""
        port = source
    return ""


def _written_slot(port: Port) -> int | None:
    for slot in range(len(port.node.inputs)):
        for place, output in writes_at(Use(port.node, slot)):
            if output == port.index:
                return place
    return None


def _warnings(graph: Graph, variable_of: VariableOf) -> list[Diagnostic]:
    records = {each.name: GraphRecord.of(each, {}) for each in graph.all_graphs()}
    reads, writes = accesses_of(records, variable_of)
    for each in [node for node in writes if node.type == "RefIdentity"]:
        del writes[each]  # it refers to the variable and does nothing
        reads.pop(each, None)
    races = [race for record in records.values() for race in find_races(record.nodes, reads, writes)]
    return race_warnings(races, f"graph {graph.name!r}")
