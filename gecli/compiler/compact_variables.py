"""Giving every variable of a session a new place, without the blocks that nothing uses any more (variables.md 15.5)."""

from __future__ import annotations

from gecli.compiler.graph_compiler import place_graph
from gecli.compiler.session import Session
from gecli.variables.mem_resource import HbmResource
from gecli.variables.var_manager import VarManager


def unused_bytes(manager: VarManager) -> int:
    """Bytes of the blocks that hold no variable or constant in its present form."""
    resource = manager.resource
    present = {resource.address_of(name, desc) for name, desc in resource.current_descs.items()}
    return sum(block.span_bytes for block in resource.blocks if block.address not in present)


def compact_variables(session: Session) -> int:
    """Assign the memory of all variables again, in the order of the graphs; returns how many bytes that saved.

    For a session whose graphs are all compiled and not stale: they use each variable in its present form only, so the
    blocks of earlier forms go. Every graph is placed again. Raises CompileError; then the session is as before.
    """
    manager = session.manager
    state = manager.snapshot()
    manager.resource.become(state.resource.without_addresses())
    manager.hbm.become(HbmResource())
    try:
        placed = []
        for member in session.members:
            assert member.compiled is not None
            placed.append(place_graph(member.compiled.graph, manager, member.graph_id, reuse=session.reuse))
    except BaseException:
        manager.restore(state)
        raise
    manager.resource.forget_unassigned()
    for member, each in zip(session.members, placed, strict=True):
        assert member.compiled is not None
        member.compiled.plan, member.compiled.assigned = each.plan, each.assigned
    return state.hbm.used_bytes - manager.hbm.used_bytes
