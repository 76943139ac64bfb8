"""Whether the order in which a graph reads and writes each variable is stated in the graph (runtime.md 5.6)."""

from __future__ import annotations

from collections.abc import Mapping

from gecli.errors import Diagnostic
from gecli.ir.graph import Graph
from gecli.ir.op_desc import OpDesc, Port
from gecli.ir.placement import Placement
from gecli.planning.variable_races import find_races, race_warnings
from gecli.runtime.variable_use import accesses_of
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

    records = {each.name: GraphRecord.of(each, {}) for each in graph.all_graphs()}
    reads, writes = accesses_of(records, variable_of)
    races = [race for record in records.values() for race in find_races(record.nodes, reads, writes)]
    return race_warnings(races, f"graph {graph.name!r}")
