"""An entry of the cache in a session of other models: its variables get the session's addresses (cache.md 4.3, 4.4).

GE: ModelCache::RefreshVariableDesc and the assignment of variable memory on load.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from gecli.artifacts.om_file import read_om
from gecli.artifacts.om_image_of import OmParts, parts_of
from gecli.artifacts.om_writer import OmImage
from gecli.compiler.graph_compiler import CompiledGraph
from gecli.errors import GecliError
from gecli.ir.attributes import BROADCAST_TYPES, VARIABLE_MEMORY_TYPES, VARIABLE_TYPES
from gecli.ir.op_desc import OpDesc
from gecli.ir.placement import Placement
from gecli.ir.tensor_desc import NO_ATTRS, TensorDesc
from gecli.passes.variable_op import accelerated_in
from gecli.records import dataclass
from gecli.variables.assignment import is_placed_by_name, place_again
from gecli.variables.desc_match import same_desc
from gecli.variables.rebuild_control import RebuildControl
from gecli.variables.trans_road import TransRoad
from gecli.variables.var_manager import VarManager
from gecli.variables.var_match import VarDescCache, VarMatch, record_of, refresh
from gecli.wire.model_record import ModelRecord

MULTI_BATCH = "_ascend_mbatch_batch_"
BASE_ATTR, SIZE_ATTR = "task_gen_variable_addr", "variable_size"


class CannotReaddress(Exception):
    """The entry cannot be brought to the session's state; the message says why.

    `reason` is the code of the miss: load_failed for an entry that something is wrong with.
    """

    reason = "load_failed"


class OtherState(CannotReaddress):
    """The entry is whole and belongs to another state of the session: an ordinary miss."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class VariableNode(NamedTuple):
    """A node in variable memory: which graph of the OM, its name, and its address when the entry was compiled."""

    graph: int
    name: str
    address: int


class VariableMemory(NamedTuple):
    """What is known of an entry's variables: their nodes, which get a value, which variable acceleration looked at."""

    nodes: list[VariableNode]
    given_values: list[str]
    accelerated: list[str] | None  # None where the OM has to tell


@dataclass(slots=True)
class Readdressed:
    """A model from the cache that fits the session: its OM, its record and its variable nodes."""

    parts: OmParts
    record: VarMatch
    variables: Mapping[OpDesc, int]  # with their addresses
    graph_name: str
    foreign: str = ""  # the OM of another tool, which is not written in gecli's own form

    def image(self, manager: VarManager) -> OmImage:
        """The OM file, for the session as it is now. Raises InputError for a foreign one that is gone."""
        if self.foreign:
            return self._foreign_image(manager)
        attrs = {**self.parts.model.attrs, SIZE_ATTR: manager.model_variable_bytes, BASE_ATTR: manager.logic_base}
        model = replace(self.parts.model, attrs=attrs)
        return self.parts._replace(model=model).image()

    def _foreign_image(self, manager: VarManager) -> OmImage:
        from gecli.artifacts.om_splice import unchanged
        from gecli.compiler.foreign_entry import image_with
        from gecli.wire.model_edit import Offsets

        offsets = {
            (position, node.name): Offsets(place.input_offsets, place.output_offsets)
            for position, graph in enumerate(self.parts.model.graphs)
            for node, place in graph.placements.items()
        }
        numbers = {SIZE_ATTR: manager.model_variable_bytes, BASE_ATTR: manager.logic_base}
        return image_with(offsets, numbers, self.foreign) or unchanged(read_om(self.foreign))


def memory_member(compiled: CompiledGraph) -> dict[str, Any] | None:
    """What a sidecar says about variable memory; None for a model whose nodes cannot be placed again by that."""
    if not compiled.is_portable:
        return None
    graphs = [compiled.graph, *(each for each in compiled.graph.all_graphs() if each is not compiled.graph)]
    positions = {id(graph): position for position, graph in enumerate(graphs)}
    rows = [[positions[id(node.graph)], node.name, address] for node, address in compiled.assigned.items()]
    return {"nodes": rows, "given_values": list(compiled.given_values), "accelerated": accelerated_in(compiled.records)}


def member_told_by(om: str) -> dict[str, Any] | None:
    """The same for an OM whose sidecar is lost, as far as the OM tells. Raises InputError."""
    try:
        told = _told_by(read_om(om).model())
    except CannotReaddress:
        return None
    return {"nodes": [list(row) for row in told.nodes], "given_values": told.given_values}


def readdressed(
    om: str,
    member: Any,
    record: VarMatch | None,
    *,
    is_before: bool,
    manager: VarManager,
    rebuild: RebuildControl,
    graph_id: int,
    graph_name: str,
    accelerates: bool = True,
    relocate: Callable[[ModelRecord], None] | None = None,
    is_foreign: bool = False,
) -> Readdressed:
    """Load an entry whose record matched and bring the session to the state after its compile.

    `member` is what the sidecar says about variable memory, `is_before` that the state before the compile matched.
    `relocate` lets the model name other places of external weights, before its nodes are placed: the session tells
    constants of one name apart by them. With `is_foreign` another tool wrote the OM. Without `member` the OM has to
    say where its variables are, and `accelerates` whether a compile runs variable acceleration.

    Raises CannotReaddress; the session is then as before.
    """
    given_member = None if member is None else _read_member(member)
    before = record_of(manager)
    state, marks = manager.snapshot(), rebuild.snapshot()
    try:
        if record is not None:
            _require_roads(record.before if is_before else record.after, manager)
        if record is not None and is_before:
            _require_permission(record, manager, rebuild)
            refresh(record, manager, rebuild, graph_id).commit(manager, rebuild)
        parts = parts_of(read_om(om))
        if relocate is not None:
            relocate(parts.model)
        nodes, given, accelerated = given_member or _told_by(parts.model)
        if record is not None:
            if accelerated is None:
                accelerated = _variables_in(parts.model) if accelerates else []
            _stage(accelerated, before, record.after if is_before else None, manager, graph_id)
        descs = {} if record is None else record.after.var_desc_map
        found = [_node(parts.model, row) for row in nodes]
        manager.resource.graph_names[graph_id] = graph_name
        addresses: dict[int, int] = {}
        for row, node in zip(nodes, found):
            where = f"graph {graph_name!r}, node {row.name!r}"
            name = manager.resource.session_name(node.name, node)
            address = place_again(node, name, _stored(node, descs.get(name)), manager, graph_id, where)
            if addresses.setdefault(row.address, address) != address:
                raise CannotReaddress(f"{row.name!r} shares its memory with another constant there, and not here")
        manager.resource.set_assigned(given)
        manager.check_limits(graph_name)
        if record is not None:
            _require_state(record.after, manager)
        _renumber(parts, addresses)
        if not is_foreign:  # what the tasks of others hold is theirs
            parts = _with_tasks(parts, addresses)
    except BaseException as error:
        manager.restore(state)
        rebuild.restore(marks)
        if isinstance(error, GecliError | OSError):
            raise CannotReaddress(str(error)) from error
        raise
    after = record_of(manager, graph_id)
    variables = {node: addresses[row.address] for row, node in zip(nodes, found) if node.is_variable}
    return Readdressed(parts, VarMatch(before, after), variables, graph_name, om if is_foreign else "")


def _read_member(member: Any) -> VariableMemory:
    rows = member.get("nodes") if isinstance(member, dict) else None
    given = member.get("given_values") if isinstance(member, dict) else None
    accelerated = member.get("accelerated") if isinstance(member, dict) else None
    if not isinstance(rows, list) or not isinstance(given, list) or not isinstance(accelerated, list | None):
        raise CannotReaddress("it does not say how its variables were placed")
    found = []
    for row in rows:
        match row:
            case [int(graph), str(name), int(address)] if graph >= 0:
                found.append(VariableNode(graph, name, address))
            case _:
                raise CannotReaddress("it says in an unknown way how its variables were placed")
    names = None if accelerated is None else [str(name) for name in accelerated]
    return VariableMemory(found, [str(name) for name in given], names)


def _told_by(model: ModelRecord) -> VariableMemory:
    """Where the nodes in variable memory are, in the order of their addresses, and which variables get a value."""
    found: list[tuple[VariableNode, OpDesc]] = []
    written: set[int] = set()
    for position, graph in enumerate(model.graphs):
        for node in graph.nodes:
            place = graph.placements.get(node)
            offsets = place.output_offsets if place is not None else ()
            if node.type not in VARIABLE_MEMORY_TYPES or node.ref_variable:
                written.update(offsets)
                continue
            if not offsets or not is_placed_by_name(node) or MULTI_BATCH in node.name:
                raise CannotReaddress(f"its model does not say enough about the memory of {node.name!r}")
            found.append((VariableNode(position, node.name, offsets[0]), node))
        if any(node.type in BROADCAST_TYPES for node in graph.nodes):
            raise CannotReaddress("it broadcasts variables")
    if BASE_ATTR not in model.attrs and found:
        model.attrs[BASE_ATTR] = min(row.address for row, _ in found)
    given = [
        row.name
        for row, node in found
        if node.type == "Variable" and (row.address in written or node.init_value is not None)
    ]
    return VariableMemory(sorted((row for row, _ in found), key=lambda row: row.address), given, None)


def _variables_in(model: ModelRecord) -> list[str]:
    found = (node for graph in model.graphs for node in graph.nodes if node.type in VARIABLE_TYPES)
    return sorted({node.name for node in found if node.ref_variable is None})


def _stage(
    names: list[str], before: VarDescCache, refreshed: VarDescCache | None, manager: VarManager, graph_id: int
) -> None:
    """Remember how a compile would have found the variables that the session had `before`.

    A record tells only of those that were there when its entry was compiled; `refreshed` is one that was brought into
    the session. The others are as the entry left them.
    """
    told = {} if refreshed is None else refreshed.staged_var_desc_map
    for name in names:
        desc = before.var_desc_map.get(name)
        if desc is not None and name not in told:
            manager.resource.record_staged(graph_id, name, replace(desc, size_bytes=0, attrs=NO_ATTRS))


def _node(model: ModelRecord, row: VariableNode) -> OpDesc:
    node = model.graphs[row.graph].node(row.name) if row.graph < len(model.graphs) else None
    if node is None or not node.output_descs:
        raise CannotReaddress(f"its model has no node {row.name!r} with an output")
    return node


def _stored(node: OpDesc, recorded: TensorDesc | None) -> TensorDesc:
    """The descriptor under which the compile placed a node; the record's, which holds all of it."""
    desc = node.output_descs[0]
    return recorded if recorded is not None and recorded.same_storage(desc) else desc


def _require_roads(recorded: VarDescCache, manager: VarManager) -> None:
    """A record is compared by descriptors; two forms may be equal and come from different declarations."""
    for name in sorted(recorded.var_desc_map):
        road = manager.resource.trans_road(name)
        if not _same_road(recorded.var_trans_roads_map.get(name), road):
            raise OtherState("var_desc_mismatch", f"variable {name!r} came to its format in another way")


def _require_permission(record: VarMatch, manager: VarManager, rebuild: RebuildControl) -> None:
    for name in record.after.changed_var_names:
        if manager.resource.exists(name) and name not in record.before.var_desc_map:
            raise OtherState("var_conflict", f"it changes variable {name!r}, which the session has in that form")
        if not rebuild.permits_change(name):
            message = f"it changes variable {name!r}, which has changed once in this session"
            raise OtherState("var_conflict", message)


def _require_state(after: VarDescCache, manager: VarManager) -> None:
    """The session must be as the compile left it, as far as its record tells."""
    for name, desc in sorted(after.var_desc_map.items()):
        current = manager.resource.current_desc(name)
        different = "name" if current is None else same_desc(desc, current)
        if different is not None:
            raise CannotReaddress(f"variable {name!r} would differ in {different} from what its compile left")
        if not _same_road(after.var_trans_roads_map.get(name), manager.resource.trans_road(name)):
            raise CannotReaddress(f"variable {name!r} would come to its format in another way")


def _same_road(one: TransRoad | None, other: TransRoad | None) -> bool:
    if one is None or other is None:
        return not one and not other
    return one.same_as(other)


def _renumber(parts: OmParts, addresses: Mapping[int, int]) -> None:
    """Give every operand in variable memory its new address."""
    base = parts.model.attrs.get(BASE_ATTR)
    if not isinstance(base, int):
        raise CannotReaddress("its model does not say where variable memory begins")
    for graph in parts.model.graphs:
        graph.placements = {node: _moved(graph.placements[node], base, addresses) for node in graph.nodes}


def _moved(placement: Placement, base: int, addresses: Mapping[int, int]) -> Placement:
    inputs, outputs = placement.input_offsets, placement.output_offsets
    if max(inputs, default=0) < base and max(outputs, default=0) < base:
        return placement
    moved_in, moved_out = _translated(inputs, base, addresses), _translated(outputs, base, addresses)
    return replace(placement, input_offsets=moved_in, output_offsets=moved_out)


def _translated(offsets: tuple[int, ...], base: int, addresses: Mapping[int, int]) -> tuple[int, ...]:
    try:
        return tuple([addresses[offset] if offset >= base else offset for offset in offsets])
    except KeyError as error:
        raise CannotReaddress(f"it uses address {error.args[0]:#x}, where none of its variables begins") from error


def _with_tasks(parts: OmParts, addresses: Mapping[int, int]) -> OmParts:
    base = int(parts.model.attrs[BASE_ATTR])
    tasks = tuple(
        replace(task, args=_translated(task.args, base, addresses)) if max(task.args, default=0) >= base else task
        for task in parts.tasks.tasks
    )
    return parts._replace(tasks=replace(parts.tasks, tasks=tasks))
