"""Bringing the variables of a snapshot into a session that already has some (GE: VarManagerToDeserial)."""

from __future__ import annotations

from collections.abc import Mapping

from gecli.variables import var_faults
from gecli.variables.interval_map import OverlapError
from gecli.variables.mem_resource import MemoryType
from gecli.variables.var_manager import VarManager
from gecli.variables.var_resource import VarResource


def merge(manager: VarManager, other: VarManager) -> None:
    """Add what `other` knows to `manager`, which keeps its ids; a manager that has not begun takes those of `other`.

    Equal entries meet silently. Raises CompileError (VAR_KEY_CONFLICT, VAR_ROAD_CONFLICT, VAR_OVERLAP) where both
    know a thing differently, in which GE keeps its own; then nothing has changed. The device is never that of `other`.
    """
    planned = manager.resource.copy()
    if not manager.is_initialised:
        planned.logic_base = other.logic_base
    elif manager.logic_base != other.logic_base:
        why = f"the base here is {manager.logic_base:#x}, there {other.logic_base:#x}"
        raise var_faults.key_conflict("*", why)
    _merge_tables(planned, other.resource)
    if not manager.is_initialised:
        manager.configure(other.limits)
        manager.init(other.version, manager.session_id, manager.device_id, other.job_id)
    manager.resource.become(planned)
    manager.hbm.used_bytes = max(manager.hbm.used_bytes, other.hbm.used_bytes)
    manager.hbm.placeholder_bytes = sum(
        block.span_bytes
        for block in manager.resource.blocks
        if block.is_external and block.memory_type is MemoryType.HBM
    )
    for kind, pool in other.pools.items():
        manager.pools.setdefault(kind, pool.copy())


def _merge_tables(mine: VarResource, theirs: VarResource) -> None:
    for block in theirs.blocks:
        known = mine.blocks.get(block.address)
        if known is not None and known.capacity_bytes == block.capacity_bytes:
            continue
        try:
            mine.blocks.add(block.address, block.address + max(block.capacity_bytes, 1), block)
        except OverlapError as error:
            other = mine.blocks.get(error.start)
            raise var_faults.overlap(
                block.name, block.address, block.capacity_bytes, other.name if other else "?", error.start
            ) from None
    for key, entry in theirs.addresses.items():
        known_entry = mine.addresses.setdefault(key, entry)
        if known_entry.address != entry.address:
            why = f"{key.to_seed()} is at {known_entry.address:#x} here and at {entry.address:#x} there"
            raise var_faults.key_conflict(key.name, why)
    for name, desc in theirs.current_descs.items():
        current = mine.current_descs.setdefault(name, desc)
        if not current.same_storage(desc):
            raise var_faults.key_conflict(name, f"it is {current} here and {desc} there")
    for name, road in theirs.roads.items():
        mine.set_trans_road(name, road)
    for name, graph_id in theirs.changed_graph_ids.items():
        if mine.changed_graph_ids.get(name, graph_id) != graph_id:
            raise var_faults.key_conflict(
                name, f"graph {mine.changed_graph_ids[name]} changed it here, {graph_id} there"
            )
        mine.set_changed_graph_id(name, graph_id)
    _merge_ids(mine.allocated_graph_ids, theirs.allocated_graph_ids)
    mine.set_assigned(theirs.assigned_names)
    for graph_id, infos in theirs.broadcasts.items():
        for info in infos:
            mine.save_broadcast(graph_id, info)


def _merge_ids(mine: dict[str, int], theirs: Mapping[str, int]) -> None:
    for name, graph_id in theirs.items():
        if mine.setdefault(name, graph_id) != graph_id:
            raise var_faults.key_conflict(name, f"graph {mine[name]} created it here, graph {graph_id} there")
