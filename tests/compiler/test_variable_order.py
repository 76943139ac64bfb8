"""A graph that reads and writes a variable in no order is told, and refused with --strict-order."""

from __future__ import annotations

import numpy as np
import pytest

from gecli.compiler.graph_evaluation import GraphEvaluator
from gecli.compiler.session import Session
from gecli.errors import CompileError, Diagnostic
from gecli.ir.text import parse
from gecli.layout.platform import platform_of
from gecli.passes.base import CompileSettings

RACE = """
    graph g(%x : f32[4] ND) {
      %w = Variable() {_init_value={"fill": "00000000"}} : f32[4] ND
      %r = Relu(%w) : f32[4] ND
      %a = AssignAdd(%w, %x) : f32[4] ND
      return %r, %a
    }
"""
TWO_WRITERS = """
    graph g(%x : f32[4] ND) {
      %w = Variable() {_init_value={"fill": "00000000"}} : f32[4] ND
      %a = AssignAdd(%w, %x) : f32[4] ND
      %b = AssignSub(%w, %x) : f32[4] ND
      return %a, %b
    }
"""
IN_A_BRANCH = """
    graph g(%c : bool[] ND, %x : f32[4] ND) {
      %w = Variable() {_init_value={"fill": "00000000"}} : f32[4] ND
      %r = Relu(%w) : f32[4] ND
      %i = If(%c, %x, %w) {subgraphs=["yes", "no"]} : f32[4] ND
      return %r, %i
    }
    graph yes(%y : f32[4] ND, %v : f32[4] ND) {
      %p = AssignAdd(%v, %y) : f32[4] ND
      return %p
    }
    graph no(%n : f32[4] ND, %u : f32[4] ND) {
      return %n
    }
"""
WITHOUT_OUTPUT = """
    graph g() {
      %w = Variable() {_init_value={"fill": "00000000"}} : i32[] ND
      %n = CountUpTo(%w) {limit=9} : i32[] ND
      %r = Neg(%w) : i32[] ND
      return %n, %r
    }
"""


def races(source: str, *, strict: bool = False, variable_acc: bool = True) -> list[Diagnostic]:
    settings = CompileSettings(strict_order=strict, variable_acc=variable_acc)
    session = Session(platform_of("Ascend910B1"), settings)
    member = session.add(parse(source))
    session.compile_all()
    assert member.compiled is not None
    return [each for each in member.compiled.warnings if each.kind == "RT_RW_RACE"]


@pytest.mark.parametrize(
    ("source", "writer", "others"),
    [(RACE, "a", ["r"]), (TWO_WRITERS, "b", ["a"]), (IN_A_BRANCH, "i", ["r"]), (WITHOUT_OUTPUT, "n", ["r"])],
    ids=["reader and writer", "two writers", "a branch", "a write without output"],
)
def test_a_read_and_a_write_in_no_order_are_named(source: str, writer: str, others: list[str]) -> None:
    (found,) = races(source)
    assert (found.code, found.severity, found.node, found.actual) == ("G4012", "warning", writer, others)
    assert found.message == f"nothing orders '{writer}', which writes variable 'w', and '{others[0]}'"
    with pytest.raises(CompileError, match="nothing orders") as refused:
        races(source, strict=True)
    assert refused.value.exit_status == 6


@pytest.mark.parametrize(
    "source",
    [
        RACE.replace("return %r, %a", "return %r, %a").replace(
            "%a = AssignAdd(%w, %x) : f32[4] ND", "%a = AssignAdd(%w, %x) : f32[4] ND after %r"
        ),
        RACE.replace("AssignAdd(%w, %x)", "AssignAdd(%w, %r)"),
        TWO_WRITERS.replace("AssignSub(%w, %x)", "AssignSub(%a, %x)"),
        IN_A_BRANCH.replace('subgraphs=["yes", "no"]} : f32[4] ND', 'subgraphs=["yes", "no"]} : f32[4] ND after %r'),
        RACE.replace("AssignAdd", "Add"),
        RACE.replace("return %r, %a", "return %w, %a").replace("%r = Relu(%w) : f32[4] ND", ""),
    ],
    ids=["control", "data", "chain", "a branch behind the reader", "no writer", "only an output"],
)
def test_what_is_ordered_or_never_written_is_no_race(source: str) -> None:
    assert races(source, strict=True) == []


def test_many_readers_of_one_write_are_one_warning() -> None:
    source = RACE.replace("return", "%s = Neg(%w) : f32[4] ND\n%t = Abs(%w) : f32[4] ND\nreturn %s, %t,")
    (found,) = races(source)
    assert found.message.endswith("'r' and 2 more") and found.actual == ["r", "s", "t"]


CHANGES_FORM = """
    graph h(%x : f32[2,4,6,6] NCHW) {
      %K = Variable() : f32[4,4,3,3] NCHW
      %y = Conv2D(%x, %K) {strides=[1,1,1,1], pads=[1,1,1,1], dilations=[1,1,1,1], groups=1, data_format="NCHW"} : f32[2,4,6,6] NCHW
      return %y
    }
"""  # noqa: E501  # one node a line
READ_AFTER_WRITE = """
    graph g(%x : f32[2,4,6,6] NCHW) {
      %K = Variable() : f32[4,4,3,3] NCHW
      %y = Conv2D(%x, %K) {strides=[1,1,1,1], pads=[1,1,1,1], dilations=[1,1,1,1], groups=1, data_format="NCHW"} : f32[2,4,6,6] NCHW
      %p = ReduceSumD(%K) {axes=[0, 2], keep_dims=false} : f32[4,3] ND
      %k = Muls(%K) {value=0.5} : f32[4,4,3,3] NCHW
      %u = Assign(%K, %k) : f32[4,4,3,3] NCHW after %y, %p
      %q = ReduceSumD(%K) {axes=[0, 2], keep_dims=false} : f32[4,3] ND after %u
      %l = Muls(%u) {value=0.5} : f32[4,4,3,3] NCHW
      %v = AssignSub(%K, %l) : f32[4,4,3,3] NCHW after %q
      %r = ReduceSumD(%K) {axes=[0, 2], keep_dims=false} : f32[4,3] ND after %v
      %z = Conv2D(%x, %v) {strides=[1,1,1,1], pads=[1,1,1,1], dilations=[1,1,1,1], groups=1, data_format="NCHW"} : f32[2,4,6,6] NCHW
      return %p, %q, %r, %K, %u, %v, %z
    }
"""  # noqa: E501  # one node a line


@pytest.mark.parametrize("variable_acc", [True, False])
def test_readers_and_outputs_see_the_writes_before_them_however_the_variable_is_stored(variable_acc: bool) -> None:
    settings = CompileSettings(strict_order=True, variable_acc=variable_acc)
    session = Session(platform_of("Ascend910B1"), settings)
    member = session.add(parse(READ_AFTER_WRITE))
    session.add(parse(CHANGES_FORM))
    session.compile_all()
    assert member.compiled is not None
    graph = member.compiled.graph
    assert (session.manager.trans_road("K") is not None) == variable_acc
    start = np.random.default_rng(1).uniform(-1, 1, (4, 4, 3, 3)).astype(np.float32)
    road = session.manager.trans_road("K")
    stored = start if road is None else road.replay(start)
    outputs, _ = GraphEvaluator().run(graph, {0: np.ones((2, 4, 6, 6), np.float32)}, {"K": stored})
    p, q, r, held, first, second, _ = outputs
    for found, factor in ((p, 1), (q, 0.5), (r, 0.25)):
        np.testing.assert_allclose(found, factor * start.sum((0, 2)), rtol=1e-5, atol=1e-6)
    for last in (held, first, second):
        np.testing.assert_array_equal(last, 0.25 * start)


@pytest.mark.parametrize("variable_acc", [True, False])
def test_a_conversion_that_gecli_inserts_is_told_as_the_node_that_it_is_for(variable_acc: bool) -> None:
    conv = '{strides=[1,1,1,1], pads=[1,1,1,1], dilations=[1,1,1,1], groups=1, data_format="NCHW"}'
    source = f"""
        graph g(%x : f32[2,4,6,6] NCHW, %b : f32[4,4,3,3] NCHW) {{
          %K = Variable() {{_init_value={{"fill": "00000000"}}}} : f32[4,4,3,3] NCHW
          %y = Conv2D(%x, %K) {conv} : f32[2,4,6,6] NCHW
          %a = AssignAdd(%K, %b) : f32[4,4,3,3] NCHW
          return %y, %a
        }}
    """
    (found,) = races(source, variable_acc=variable_acc)
    assert found.node is not None and {found.node, *found.actual} <= {"y", "a"}
    assert "trans_" not in f"{found.message} {found.why} {found.do} {found.where}"
