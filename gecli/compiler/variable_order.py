"""Whether the order in which a graph reads and writes each variable is stated in the graph (runtime.md 5.6)."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from gecli.errors import Diagnostic
from gecli.ir.graph import Graph
from gecli.ir.op_desc import OpDesc, Port
from gecli.ir.placement import Placement
from gecli.passes.written_inputs import writes_of
from gecli.planning.variable_races import Race, find_races
from gecli.runtime.variable_use import reads_of
from gecli.wire.model_record import GraphRecord

Accesses = dict[OpDesc, set[str]]


def race_warnings(
    graph: Graph, placements: Mapping[OpDesc, Placement], variables: Mapping[int, str]
) -> list[Diagnostic]:
    """A warning for each node that writes a variable in no order with others that read or write it.

    `variables` gives the name of the variable at each logical address.
    """
    if not variables:
        return []
    records = [GraphRecord.of(each, {}) for each in graph.all_graphs()]
    reads, writes = _accesses(records, placements, variables)
    if not writes:
        return []
    pairs: dict[tuple[str, OpDesc], list[Race]] = {}
    for record in records:
        for race in find_races(record.nodes, reads, writes):
            writer = race.second if race.second_writes else race.first
            pairs.setdefault((race.variable, writer), []).append(race)
    return [_warning(graph.name, name, writer, races) for (name, writer), races in pairs.items()]


def _accesses(
    records: list[GraphRecord], placements: Mapping[OpDesc, Placement], variables: Mapping[int, str]
) -> tuple[Accesses, Accesses]:
    """What each node reads and writes; a node that calls graphs does what they do."""

    def variable_of(port: Port) -> str:
        placement = placements.get(port.node)
        offsets = placement.output_offsets if placement else ()
        return variables.get(offsets[port.index], "") if port.index < len(offsets) else ""

    by_name = {record.name: record for record in records}
    reads = {node: set(names) for node, names in reads_of(by_name, variable_of).items() if _runs(node)}
    writes: Accesses = {}
    for record in records:
        for node in record.nodes:
            if _runs(node) and (names := _written_by(node, variable_of)):
                writes[node] = names
    for record in reversed(records):  # a graph stands behind those that call it
        for node in record.nodes:
            for inner in (each for name in node.subgraphs for each in by_name[name].nodes):
                for accesses in (reads, writes):
                    if inner in accesses:
                        accesses[node] = accesses.get(node, set()) | accesses[inner]
    return reads, writes


def _runs(node: OpDesc) -> bool:
    """Outputs are copied when all has run, and a variable only says where its value is."""
    return node.type != "NetOutput" and not node.is_variable


def _written_by(node: OpDesc, variable_of: Callable[[Port], str]) -> set[str]:
    ports = [Port(node, index) for index in range(len(node.output_descs))]
    ports += [port for write in writes_of(node) if (port := node.inputs[write.slot]) is not None]
    return {name for port in ports if (name := variable_of(port))}


def _warning(graph: str, variable: str, writer: OpDesc, races: list[Race]) -> Diagnostic:
    others = [race.first if race.second is writer else race.second for race in races]
    first = others[0]
    more = f" and {len(others) - 1} more" if len(others) > 1 else ""
    before, behind = races[0].first, races[0].second
    return Diagnostic(
        "G4012",
        f"nothing orders {writer.name!r}, which writes variable {variable!r}, and {first.name!r}{more}",
        kind="RT_RW_RACE",
        where=f"graph {graph!r}, node {writer.name} ({writer.type})",
        why=f"no path of data or control edges joins them; {before.name!r} runs before {behind.name!r} here",
        do=f"add a control edge between {first.name!r} and {writer.name!r}",
        severity="warning",
        node=writer.name,
        actual=[each.name for each in others],
    )
