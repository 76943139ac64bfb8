"""Compiled models with collective operators on one device."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from gecli.errors import RuntimeFault
from gecli.ops.communication import current
from gecli.runtime.session import Session
from tests.runtime.test_variables_in_subgraphs import TWO, X, loaded

GROUP = 'group="hccl_world_group"'
FREE = np.ones(3, np.float32)


@pytest.mark.parametrize("length", ["?", "3"], ids=["dynamic", "static"])
def test_every_kind_of_collective_is_compiled_and_gives_what_it_got(tmp_path: Path, length: str) -> None:
    text = f"""
        graph g(%x : f32[4] ND, %d : f32[{length}] ND) {{
          %a = HcomAllReduce(%x) {{reduction="sum", {GROUP}}} : f32[4] ND
          %b = HcomAllGather(%a) {{rank_size=1, {GROUP}}} : f32[4] ND
          %c = HcomReduceScatter(%b) {{reduction="max", rank_size=1, {GROUP}}} : f32[4] ND
          %h, %i = HcomBroadcast(%c, %a) {{root_rank=0, {GROUP}}} : f32[4] ND, f32[4] ND
          %j = HorovodBroadcast(%h) {{root_rank=0}} : f32[4] ND
          %k = HcomReduce(%j) {{reduction="min", root_rank=0, {GROUP}}} : f32[4] ND
          %l = HcomAllToAll(%k) {{{GROUP}}} : f32[4] ND
          %m = HorovodAllreduce(%l) {{reduce_op=0}} : f32[4] ND
          %n = HorovodAllgather(%m) {{rank_size=1}} : f32[4] ND
          %e = Relu(%d) : f32[{length}] ND
          return %n, %i, %e
        }}
    """
    outputs = loaded(text, tmp_path, Session(), "").run({"x": X, "d": FREE})[0]
    np.testing.assert_array_equal(outputs["n:0"], X)
    np.testing.assert_array_equal(outputs["h:1"], X)


@pytest.mark.parametrize("length", ["?", "3"], ids=["dynamic", "static"])
def test_what_is_sent_is_received_although_nothing_reads_the_sender(tmp_path: Path, length: str) -> None:
    text = f"""
        graph g(%x : f32[4] ND, %d : f32[{length}] ND) {{
          %s = HcomSend(%x) {{sr_tag=1, dest_rank=0, {GROUP}}}
          %r = HcomReceive() {{sr_tag=1, src_rank=0, shape=[2, 2], dtype="DT_FLOAT", {GROUP}}} : f32[2,2] ND after %s
          %e = Relu(%d) : f32[{length}] ND
          return %r, %e
        }}
    """
    model = loaded(text, tmp_path, Session(), "")
    current().require_all_taken()  # a compile that checks its passes sends nothing
    np.testing.assert_array_equal(model.run({"x": X, "d": FREE})[0]["r:0"], X.reshape(2, 2))


@pytest.mark.parametrize("type", ["HcomBroadcast", "HorovodBroadcast"])
@pytest.mark.parametrize("length", ["?", "3"], ids=["dynamic", "static"])
def test_a_broadcast_writes_its_variable_in_place(tmp_path: Path, length: str, type: str) -> None:
    group = GROUP if type == "HcomBroadcast" else ""
    text = f"""
        graph g(%x : f32[4] ND, %d : f32[{length}] ND) {{
          %w = Variable() {{VALUE}} : f32[4] ND
          %b = {type}(%w) {{root_rank=0, {group}}} : f32[4] ND
          %a = AssignAdd(%b, %x) : f32[4] ND
          %e = Relu(%d) : f32[{length}] ND
          return %a, %e
        }}
    """
    session = Session()
    model = loaded(text.replace(", }", "}"), tmp_path, session)
    for step in (1, 2):
        outputs = model.run({"x": X, "d": FREE})[0]
        np.testing.assert_array_equal(outputs["a:0"], TWO + step * X)
        np.testing.assert_array_equal(session.store.value("w"), TWO + step * X)
    assert session.warnings == []


def test_a_broadcast_that_nothing_reads_stays(tmp_path: Path) -> None:
    text = f"""
        graph g(%x : f32[4] ND) {{
          %v = Variable() {{VALUE}} : f32[4] ND
          %w = Variable() {{VALUE}} : f32[4] ND
          %b, %c = HcomBroadcast(%v, %w) {{root_rank=0, {GROUP}}} : f32[4] ND, f32[4] ND
          %n = Neg(%x) : f32[4] ND
          return %n
        }}
    """
    session = Session()
    model = loaded(text, tmp_path, session)
    assert {variable.writer for variable in model.variables} == {"b"}
    model.run({"x": X})
    np.testing.assert_array_equal(session.store.value("w"), TWO)


def test_a_variable_without_a_value_is_not_broadcast(tmp_path: Path) -> None:
    text = f"""
        graph g(%x : f32[4] ND) {{
          %w = Variable() {{VALUE}} : f32[4] ND
          %b = HcomBroadcast(%w) {{root_rank=0, {GROUP}}} : f32[4] ND
          %n = Add(%x, %b) : f32[4] ND
          return %n
        }}
    """
    with pytest.raises(RuntimeFault) as caught:
        loaded(text, tmp_path, Session(), "").run({"x": X})
    assert caught.value.kind == "RT_VAR_UNINITIALISED"


def test_a_broadcast_feature_map_that_nobody_else_reads_is_replaced_in_place(tmp_path: Path) -> None:
    text = f"""
        graph g(%x : f32[4] ND) {{
          %a = Neg(%x) : f32[4] ND
          %b = Abs(%x) : f32[4] ND
          %c, %d = HcomBroadcast(%a, %b) {{root_rank=0, {GROUP}}} : f32[4] ND, f32[4] ND
          %e = Add(%b, %c) : f32[4] ND
          %f = Add(%e, %d) : f32[4] ND
          return %f
        }}
    """
    model = loaded(text, tmp_path, Session(), "")
    assert model.program is not None
    at = {str(port): operand.array.ctypes.data for port, operand in model.program.operands.items()}
    names = {port.node.name: port for port in model.program.operands}
    assert at[str(names["a"])] == at[str(names["c"].node.out(0))]
    assert at[str(names["b"])] != at[str(names["c"].node.out(1))]
    np.testing.assert_array_equal(model.run({"x": X})[0]["f:0"], X)
