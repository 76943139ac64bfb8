"""What the report says that a graph declares of a variable is that graph's own declaration."""

from __future__ import annotations

from gecli.compiler.session import Session
from gecli.compiler.variable_report import variable_rows
from gecli.ir.text import parse
from gecli.layout.platform import platform_of
from gecli.passes.base import CompileSettings

GRAPH = """
    graph g{size}(%x : f32[{size}] ND) {{
      %w = Variable() : f32[{size}] ND
      %o = Add(%w, %x) : f32[{size}] ND
      return %o
    }}
"""


def test_each_graph_has_its_own_declaration_of_a_variable() -> None:
    session = Session(platform_of("Ascend910B1"), CompileSettings())
    members = [session.add(parse(GRAPH.format(size=size))) for size in (4, 3)]
    session.compile_all()
    shapes = []
    for member in members:
        assert member.compiled is not None
        (row,) = variable_rows(member.compiled.variables, member.compiled.record, session.manager)
        shapes.append((row["declared_shape"], row["shape"]))
    assert shapes == [([4], [4]), ([3], [3])]
