"""A graph that reads and writes a variable in no order is told, and refused with --strict-order."""

from __future__ import annotations

import pytest

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


def races(source: str, *, strict: bool = False) -> list[Diagnostic]:
    session = Session(platform_of("Ascend910B1"), CompileSettings(strict_order=strict))
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
