"""Branches, loops and calls that read and write a variable of the graph around them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from gecli.artifacts.om_writer import write_om
from gecli.artifacts.rdcpkt import write_rdcpkt
from gecli.compiler.model_image import ImageFacts, model_image
from gecli.compiler.session import Session as CompileSession
from gecli.errors import CompileError, RuntimeFault
from gecli.ir.text import parse
from gecli.layout.platform import platform_of
from gecli.passes.base import CompileSettings
from gecli.runtime.model import LoadedModel
from gecli.runtime.session import Session

INITIAL = '_init_value={"fill": "00000040"}'  # 2.0

CHOICE = """
    graph g(%c : {condition}[] ND, %x : f32[4] ND) {
      %w = Variable() {VALUE} : f32[4] ND
      %i = TYPE(%c, %x, %w) {subgraphs=["yes", "no"]} : f32[4] ND
      return %i
    }
    graph yes(%y : f32[4] ND, %v : f32[4] ND) {
      %p = AssignAdd(%v, %y) : f32[4] ND
      %q = Neg(%p) : f32[4] ND
      return %q
    }
    graph no(%n : f32[4] ND, %u : f32[4] ND) {
      %r = Add(%n, %u) : f32[4] ND
      return %r
    }
"""
LOOP = """
    graph g(%n : i32[] ND) {
      %w = Variable() {VALUE} : f32[4] ND
      %l = While(%n, %w) {subgraphs=["cond", "body"]} : i32[] ND, f32[4] ND
      %r = Neg(%l:1) : f32[4] ND
      return %r
    }
    graph cond(%i : i32[] ND, %a : f32[4] ND) {
      %z = Const() {value={"fill": "00000000"}} : i32[] ND
      %g = Greater(%i, %z) : bool[] ND
      return %g
    }
    graph body(%j : i32[] ND, %b : f32[4] ND) {
      %o = Const() {value={"fill": "01000000"}} : i32[] ND
      %s = Sub(%j, %o) : i32[] ND
      %t = AssignAdd(%b, %b) : f32[4] ND
      return %s, %t
    }
"""
X = np.arange(4, dtype=np.float32)
TWO = np.full(4, 2, np.float32)


def loaded(text: str, place: Path, session: Session, value: str = INITIAL, *, by_input: bool = False) -> LoadedModel:
    """`by_input`: Data nodes say which input of the caller they stand for, where the condition is input 0."""
    graph = parse(text.replace("{VALUE}", "{" + value + "}" if value else ""))
    if by_input:
        for sub in graph.subgraphs.values():
            for position, data in enumerate(sub.inputs):
                data.attrs["_parent_node_index"] = position + 1
                data.attrs["index"] = 0
    compiler = CompileSession(platform_of("Ascend910B1"), CompileSettings())
    member = compiler.add(graph)
    compiler.compile_all()
    assert member.compiled is not None
    facts = ImageFacts("g", "Ascend910B1", compiler.platform.profile, "json", "", "0" * 64)
    write_rdcpkt(place / "g.rdcpkt", member.compiled.record)
    write_om(place / "g.om", model_image(member.compiled, compiler.manager, facts))
    return session.load(place / "g.om")


def first(model: LoadedModel, feeds: dict[str, NDArray[Any]]) -> NDArray[Any]:
    (value,) = model.run(feeds)[0].values()
    return value


@pytest.mark.parametrize("by_input", [False, True], ids=["index", "parent index"])
@pytest.mark.parametrize("type", ["If", "Case"])
def test_a_branch_reads_and_writes_the_variable_itself(tmp_path: Path, type: str, by_input: bool) -> None:
    session = Session()
    text = CHOICE.replace("TYPE", type).replace("{condition}", "bool" if type == "If" else "i32")
    model = loaded(text, tmp_path, session, by_input=by_input)
    take = (True, False) if type == "If" else (np.int32(0), np.int32(1))
    np.testing.assert_array_equal(first(model, {"c": np.array(take[1]), "x": X}), X + 2)
    np.testing.assert_array_equal(session.store.value("w"), TWO)
    np.testing.assert_array_equal(first(model, {"c": np.array(take[0]), "x": X}), -(X + 2))
    np.testing.assert_array_equal(session.store.value("w"), X + 2)
    np.testing.assert_array_equal(first(model, {"c": np.array(take[1]), "x": X}), 2 * X + 2)


@pytest.mark.parametrize("depth", ["directly", "in a call"])
def test_a_stateless_choice_may_not_write_a_variable(tmp_path: Path, depth: str) -> None:
    text = CHOICE.replace("TYPE", "StatelessIf").replace("{condition}", "bool")
    if depth == "in a call":
        text = (
            text.replace("%p = AssignAdd(%v, %y)", '%p = PartitionedCall(%v, %y) {subgraphs=["f"]}')
            + """
            graph f(%a : f32[4] ND, %b : f32[4] ND) {
              %k = AssignAdd(%a, %b) : f32[4] ND
              return %k
            }
        """
        )
    with pytest.raises(CompileError, match="StatelessIf 'i' writes variable 'w'"):
        loaded(text, tmp_path, Session())
    model = loaded(text.replace("AssignAdd", "Add"), tmp_path, Session())
    np.testing.assert_array_equal(first(model, {"c": np.array(True), "x": X}), -(X + 2))


def test_a_loop_changes_the_variable_in_every_iteration(tmp_path: Path) -> None:
    session = Session()
    model = loaded(LOOP, tmp_path, session)
    for count, expected in ((3, 16), (0, 16), (1, 32)):
        np.testing.assert_array_equal(first(model, {"n": np.array(count, np.int32)}), -expected * np.ones(4))
        np.testing.assert_array_equal(session.store.value("w"), expected * np.ones(4))


def test_a_variable_without_value_is_refused_only_in_the_branch_that_reads_it(tmp_path: Path) -> None:
    session = Session()
    text = CHOICE.replace("TYPE", "If").replace("{condition}", "bool").replace("AssignAdd", "Assign")
    model = loaded(text, tmp_path, session, "")
    with pytest.raises(RuntimeFault, match="variable 'w' is read before anything gave it a value") as fault:
        model.run({"c": np.array(False), "x": X})
    assert fault.value.first.where == "first read by node r"
    assert not session.store["w"].is_initialised
    np.testing.assert_array_equal(first(model, {"c": np.array(True), "x": X}), -X)
    assert session.store["w"].initialised_by == "node p"
    np.testing.assert_array_equal(first(model, {"c": np.array(False), "x": X}), 2 * X)


def test_a_value_that_was_read_stays_when_a_branch_writes_the_variable(tmp_path: Path) -> None:
    text = """
        graph g(%c : bool[] ND, %x : f32[4] ND) {
          %w = Variable() {VALUE} : f32[4] ND
          %before = Abs(%w) : f32[4] ND
          %i = If(%c, %x, %w) {subgraphs=["yes", "no"]} : f32[4] ND after %before
          return %before, %i
        }
        graph yes(%y : f32[4] ND, %v : f32[4] ND) {
          %p = Assign(%v, %y) : f32[4] ND
          return %p
        }
        graph no(%n : f32[4] ND, %u : f32[4] ND) {
          return %u
        }
    """
    session = Session()
    model = loaded(text, tmp_path, session)
    before, after = model.run({"c": np.array(True), "x": X})[0].values()
    np.testing.assert_array_equal(before, TWO)
    np.testing.assert_array_equal(after, X)
    before, after = model.run({"c": np.array(False), "x": X})[0].values()
    np.testing.assert_array_equal(before, X)
    np.testing.assert_array_equal(after, X)


def test_a_variable_that_is_only_returned_must_have_a_value_too(tmp_path: Path) -> None:
    text = "graph g() {\n%w = Variable() {VALUE} : f32[4] ND\nreturn %w\n}"
    session = Session()
    model = loaded(text, tmp_path, session, "")
    with pytest.raises(RuntimeFault, match="read before anything gave it a value"):
        model.run({})
    session.store.set_value("w", X)
    np.testing.assert_array_equal(first(model, {}), X)


CARRYING = """
    graph g(%n : i32[] ND) {
      %w = Variable() {VALUE} : f32[4] ND
      %u = Variable() {_init_value={"fill": "0000803f"}} : f32[4] ND
      %l = TYPE(%n, %w, %u) {subgraphs=["cond", "body"]} : i32[] ND, f32[4] ND, f32[4] ND
      %r = Neg(%l:1) : f32[4] ND
      %s = Neg(%l:2) : f32[4] ND
      %v = Neg(%w) : f32[4] ND after %l
      return %r, %s, %v
    }
    graph cond(%i : i32[] ND, %a : f32[4] ND, %d : f32[4] ND) {
      %z = Const() {value={"fill": "00000000"}} : i32[] ND
      %g = Greater(%i, %z) : bool[] ND
      return %g
    }
    graph body(%j : i32[] ND, %b : f32[4] ND, %e : f32[4] ND) {
      %o = Const() {value={"fill": "01000000"}} : i32[] ND
      %t = Sub(%j, %o) : i32[] ND
      BODY
    }
"""


@pytest.mark.parametrize("type", ["While", "StatelessWhile", "_While"])
@pytest.mark.parametrize(
    ("body", "first", "second"),
    [
        ("%m = Add(%b, %b) : f32[4] ND\nreturn %t, %m, %e", 16, 1),
        ("return %t, %e, %b", 1, 2),  # they change places, three times
        ("%m = Add(%b, %e) : f32[4] ND\nreturn %t, %e, %m", 4, 7),
        ("return %t, %b, %b", 2, 2),
        ("%k = Identity(%e) : f32[4] ND\nreturn %t, %k, %k", 1, 1),
    ],
    ids=["computed", "swapped", "a sequence", "the other one", "the other one behind an Identity"],
)
def test_a_loop_that_gives_other_values_carries_them_and_leaves_the_variable(
    tmp_path: Path, type: str, body: str, first: int, second: int
) -> None:
    session = Session()
    model = loaded(CARRYING.replace("TYPE", type).replace("BODY", body), tmp_path, session)
    for count, expected in ((3, (first, second)), (0, (2, 1)), (3, (first, second))):
        found = model.run({"n": np.array(count, np.int32)})[0].values()
        for value, wanted in zip(found, (*expected, 2), strict=True):
            np.testing.assert_array_equal(value, -np.full(4, wanted, np.float32))
    np.testing.assert_array_equal(session.store.value("w"), TWO)
    np.testing.assert_array_equal(session.store.value("u"), TWO / 2)


def test_a_loop_may_pass_on_one_variable_and_carry_the_value_of_another(tmp_path: Path) -> None:
    session = Session()
    body = "%k = AssignAdd(%b, %e) : f32[4] ND\n%m = Add(%e, %e) : f32[4] ND\nreturn %t, %k, %m"
    model = loaded(CARRYING.replace("TYPE", "While").replace("BODY", body), tmp_path, session)
    found = [value[0] for value in model.run({"n": np.array(3, np.int32)})[0].values()]
    assert found == [-9, -8, -9]  # w: 2 + 1 + 2 + 4
    np.testing.assert_array_equal(session.store.value("w"), np.full(4, 9, np.float32))
    np.testing.assert_array_equal(session.store.value("u"), TWO / 2)


def test_a_variable_may_count_the_iterations(tmp_path: Path) -> None:
    text = LOOP.replace("(%n : i32[] ND)", "()").replace("AssignAdd", "Add")
    text = text.replace("%w = ", '%n = Variable() {_init_value={"fill": "03000000"}} : i32[] ND\n%w = ', 1)
    session = Session()
    model = loaded(text, tmp_path, session)
    for _ in range(2):
        np.testing.assert_array_equal(first(model, {}), -16 * np.ones(4))
    assert session.store.value("n") == 3


def test_a_loop_begins_with_what_was_written_before_it(tmp_path: Path) -> None:
    text = CARRYING.replace("TYPE", "While").replace("BODY", "%m = Add(%b, %b) : f32[4] ND\nreturn %t, %m, %e")
    text = text.replace("%l = ", "%add = AssignAdd(%w, %u) : f32[4] ND\n%l = ", 1)
    text = text.replace("f32[4] ND, f32[4] ND\n", "f32[4] ND, f32[4] ND after %add\n", 1)
    model = loaded(text, tmp_path, Session())
    found = [value[0] for value in model.run({"n": np.array(1, np.int32)})[0].values()]
    assert found == [-6, -1, -3]


@pytest.mark.parametrize("depth", ["directly", "in a call"])
def test_a_loop_cannot_write_an_argument_and_go_on_with_another_value(tmp_path: Path, depth: str) -> None:
    body = "%k = AssignAdd(%b, %e) : f32[4] ND\n%m = Neg(%k) : f32[4] ND\nreturn %t, %m, %e"
    text = CARRYING.replace("TYPE", "While")
    if depth == "in a call":
        text = (
            text.replace("BODY", body.replace("AssignAdd(%b, %e)", 'PartitionedCall(%b, %e) {subgraphs=["f"]}'))
            + "graph f(%p : f32[4] ND, %q : f32[4] ND) {\n%x = AssignAdd(%p, %q) : f32[4] ND\nreturn %x\n}"
        )
    with pytest.raises(CompileError, match="writes variable 'w' and goes on with another value") as fault:
        loaded(text.replace("BODY", body), tmp_path, Session())
    assert fault.value.first.where == ("node k (AssignAdd)" if depth == "directly" else "node x (AssignAdd)")


def test_a_loop_in_a_call_and_a_loop_in_a_loop_carry_values(tmp_path: Path) -> None:
    inner = LOOP.replace("AssignAdd", "Add")
    called = inner.replace("graph g(%n : i32[] ND)", "graph called(%n : i32[] ND, %w : f32[4] ND)")
    called = called.replace("%w = Variable() {VALUE} : f32[4] ND\n", "").replace("return %r\n", "return %l:1\n")
    call = """
        graph g(%n : i32[] ND) {
          %w = Variable() {VALUE} : f32[4] ND
          %c = PartitionedCall(%n, %w) {subgraphs=["called"]} : f32[4] ND
          return %c
        }
    """
    np.testing.assert_array_equal(
        first(loaded(call + called, tmp_path, Session()), {"n": np.array(3, np.int32)}), 8 * TWO
    )
    outer = LOOP.replace("cond", "goes_on").replace("graph body", "graph twice").replace('"body"', '"twice"')
    outer = outer.replace(
        "%t = AssignAdd(%b, %b) : f32[4] ND", '%t = PartitionedCall(%o, %b) {subgraphs=["called"]} : f32[4] ND'
    )
    session = Session()
    model = loaded(outer + called, tmp_path, session)
    np.testing.assert_array_equal(first(model, {"n": np.array(3, np.int32)}), -8 * TWO)
    np.testing.assert_array_equal(session.store.value("w"), TWO)
