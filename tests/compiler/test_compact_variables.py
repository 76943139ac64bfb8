"""--compact-variables: every variable is placed again, and the blocks of earlier forms are gone."""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from gecli.compiler.compact_variables import compact_variables, unused_bytes
from gecli.compiler.session import Session
from gecli.errors import CompileError
from gecli.ir.text import parse, text
from gecli.layout.platform import platform_of
from gecli.passes.base import CompileSettings
from gecli.variables.limits import MemoryLimits
from gecli.wire.var_session import decode_var_manager, encode_var_manager
from tests.compiler.test_variable_story import INIT, TRAIN
from tests.passes.random_sessions import Plan, session_plans
from tests.passes.test_session_laws import SLOW, blocks_of_session, compiled


def session_of(*sources: str, limits: MemoryLimits | None = None) -> Session:
    session = Session(platform_of("Ascend910B1"), CompileSettings(), limits or MemoryLimits())
    for source in sources:
        session.add(parse(source))
    session.compile_all()
    return session


def offsets(session: Session) -> list[tuple[str, int]]:
    rows = session.manager.resource.addresses.items()
    return sorted((f"{key.name} {key.format.name}", row.offset) for key, row in rows)


def test_the_block_of_an_earlier_form_goes_and_all_graphs_use_the_new_place() -> None:
    session = session_of(INIT, TRAIN)
    assert offsets(session) == [("w FRACTAL_Z", 1536), ("w HWCN", 0)]
    assert unused_bytes(session.manager) == 1536
    assert compact_variables(session) == 1536
    assert offsets(session) == [("w FRACTAL_Z", 0)]
    assert unused_bytes(session.manager) == 0
    for member in session.members:
        assert member.compiled is not None
        for node in member.compiled.variables:
            assert member.compiled.plan.placements[node].output_offsets == (session.manager.logic_base,)
    assert compact_variables(session) == 0


def test_a_session_without_unused_blocks_stays_as_it_is() -> None:
    session = session_of(TRAIN)
    before = encode_var_manager(session.manager)
    assert compact_variables(session) == 0
    assert encode_var_manager(session.manager) == before


def test_a_failure_leaves_the_session_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    session = session_of(INIT, TRAIN)
    before = encode_var_manager(session.manager)
    plans = [member.compiled.plan for member in session.members if member.compiled]
    session.manager.configure(MemoryLimits(var_max_bytes=1024))
    with pytest.raises(CompileError, match="variable memory exhausted"):
        compact_variables(session)
    session.manager.configure(MemoryLimits())
    assert encode_var_manager(session.manager) == before
    assert plans == [member.compiled.plan for member in session.members if member.compiled]


@settings(max_examples=15, deadline=None, suppress_health_check=SLOW)
@given(plan=session_plans())
def test_a_compact_session_has_one_block_for_each_variable_and_no_gap(plan: Plan) -> None:
    session = compiled(plan)
    graphs = [text(member.compiled.graph) for member in session.members if member.compiled]
    used, unused = session.manager.hbm.used_bytes, unused_bytes(session.manager)
    saved = compact_variables(session)
    assert saved == used - session.manager.hbm.used_bytes >= unused
    assert unused_bytes(session.manager) == 0
    blocks_of_session(session)
    assert graphs == [text(member.compiled.graph) for member in session.members if member.compiled]
    data = encode_var_manager(session.manager)
    assert encode_var_manager(decode_var_manager(data, path="s", device_id=0)) == data
