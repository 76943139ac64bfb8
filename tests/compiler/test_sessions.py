"""Sessions of several graphs: what counts as built (variables.md 9.1)."""

from __future__ import annotations

import pytest

from gecli.compiler.session import Session
from gecli.errors import CompileError
from gecli.ir.text import parse
from gecli.layout.platform import platform_of
from gecli.passes.base import CompileSettings

READS = "graph reads() {\n %w = Variable() : f32[4] ND\n %r = Relu(%w) : f32[4] ND\n return %r\n }"


def test_a_graph_that_failed_is_not_built() -> None:
    session = Session(platform_of("Ascend910B1"), CompileSettings())
    broken = READS.replace("Relu(%w)", "VarIsInitializedOp(%r0)").replace("%r =", "%r0 = Relu(%w) : f32[4] ND\n %r =")
    member = session.add(parse(broken))
    session.rebuild.state_changed("w")
    with pytest.raises(CompileError):
        session.compile(member)
    assert session.rebuild.is_stale(member.graph_id), "GE marks it as built"
    assert (member.compiled, member.compile_count) == (None, 0)
    assert not session.manager.resource.addresses


def test_a_graph_that_succeeded_is_built() -> None:
    session = Session(platform_of("Ascend910B1"), CompileSettings())
    member = session.add(parse(READS))
    session.rebuild.state_changed("w")
    session.compile(member)
    assert not session.rebuild.is_stale(member.graph_id)
    assert member.compile_count == 1
