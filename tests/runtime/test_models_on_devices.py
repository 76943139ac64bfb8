"""Compiled models on several devices: shared weights, own variables, broadcasts between them, data-parallel steps."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from gecli.compiler.session import Session as CompileSession
from gecli.errors import RuntimeFault
from gecli.ir.text import parse
from gecli.layout.platform import platform_of
from gecli.ops.communication import speaking_for
from gecli.passes.base import CompileSettings
from gecli.runtime.device_group import DeviceGroup, Member
from gecli.runtime.model import LoadedModel
from gecli.runtime.session import Session
from gecli.variables.broadcast import BroadcastInfo
from tests.runtime.test_variables_in_subgraphs import TWO, X, loaded

Array = NDArray[Any]
GROUP = 'group="hccl_world_group"'
FREE = np.ones(3, np.float32)
SHARE = f"""
    graph g(%x : f32[4] ND) {{
      %v = Variable() : f32[4] ND
      %w = Variable() : f32[4] ND
      %b, %c = HcomBroadcast(%v, %w) {{root_rank=ROOT, {GROUP}}} : f32[4] ND, f32[4] ND
      %n = Add(%x, %b) : f32[4] ND
      return %n
    }}
"""
STEP = f"""
    graph g(%x : f32[ROWS,3] ND, %y : f32[ROWS,2] ND) {{
      %w = Variable() {{_init_value={{"fill": "0000003f"}}}} : f32[3,2] ND
      %lr = Const() {{value={{"fill": "cdcccc3d"}}}} : f32[] ND
      %p = MatMulV2(%x, %w) {{transpose_x1=false, transpose_x2=false}} : f32[ROWS,2] ND
      %d = Sub(%p, %y) : f32[ROWS,2] ND
      %g = MatMulV2(%x, %d) {{transpose_x1=true, transpose_x2=false}} : f32[3,2] ND
      %s = HcomAllReduce(%g) {{reduction="sum", {GROUP}}} : f32[3,2] ND
      %m = Muls(%s) {{value=SHARE}} : f32[3,2] ND
      %u = ApplyGradientDescent(%w, %lr, %m) : f32[3,2] ND
      return %u
    }}
"""
BRANCHES = f"""
    graph g(%c : bool[] ND, %x : f32[4] ND) {{
      %i = If(%c, %x) {{subgraphs=["yes", "no"]}} : f32[4] ND
      return %i
    }}
    graph yes(%y : f32[4] ND) {{
      %s = HcomSend(%y) {{sr_tag=1, dest_rank=1, {GROUP}}}
      %q = Neg(%y) : f32[4] ND
      return %q
    }}
    graph no(%n : f32[4] ND) {{
      %r = HcomReceive() {{sr_tag=1, src_rank=0, shape=[4], dtype="DT_FLOAT", {GROUP}}} : f32[4] ND
      %t = Add(%n, %r) : f32[4] ND
      return %t
    }}
"""


class Fleet:
    """A model on several devices, each with a session of its own."""

    def __init__(self, text: str, place: Path, size: int) -> None:
        self.group = DeviceGroup(range(size), 20)
        self.sessions: list[Session] = []
        self.models: list[LoadedModel] = []
        loaded(text, place, Session(), "")  # compiles it
        for member in self.group.members:
            session = Session()
            with speaking_for(member):
                self.models.append(session.load(place / "g.om"))
            self.sessions.append(session)

    def run(self, *feeds: dict[str, Array]) -> list[dict[str, Array]]:
        """The outputs of each device; one feed alone is for all."""

        def work(member: Member) -> dict[str, Array]:
            return self.models[member.rank].run(feeds[member.rank % len(feeds)])[0]

        return self.group.run(work)


@pytest.mark.parametrize("root", [0, 1, 2])
def test_a_broadcast_initialises_the_variables_of_all_devices_from_one(tmp_path: Path, root: int) -> None:
    fleet = Fleet(SHARE.replace("ROOT", str(root)), tmp_path, 3)
    fleet.sessions[root].store.set_value("v", TWO)
    fleet.sessions[root].store.set_value("w", X)
    for outputs in fleet.run({"x": X}):
        np.testing.assert_array_equal(outputs["n:0"], X + TWO)
    for session in fleet.sessions:
        np.testing.assert_array_equal(session.store.value("v"), TWO)
        np.testing.assert_array_equal(session.store.value("w"), X)
        assert session.store["v"].is_initialised and session.store["w"].is_initialised


def test_only_the_root_of_a_broadcast_needs_a_value(tmp_path: Path) -> None:
    fleet = Fleet(SHARE.replace("ROOT", "1"), tmp_path, 2)
    fleet.sessions[0].store.set_value("v", TWO)
    fleet.sessions[0].store.set_value("w", TWO)
    with pytest.raises(RuntimeFault) as caught:
        fleet.run({"x": X})
    assert caught.value.kind == "RT_VAR_UNINITIALISED"
    assert caught.value.first.place().startswith("device 1: ")


def test_what_one_device_writes_is_not_seen_by_another(tmp_path: Path) -> None:
    text = """
        graph g(%x : f32[4] ND) {
          %w = Variable() {_init_value={"fill": "00000040"}} : f32[4] ND
          %a = AssignAdd(%w, %x) : f32[4] ND
          return %a
        }
    """
    fleet = Fleet(text, tmp_path, 2)
    fleet.run({"x": X}, {"x": 10 * X})
    np.testing.assert_array_equal(fleet.sessions[0].store.value("w"), TWO + X)
    np.testing.assert_array_equal(fleet.sessions[1].store.value("w"), TWO + 10 * X)


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_data_parallel_steps_are_those_of_the_whole_batch(tmp_path: Path, size: int) -> None:
    generator = np.random.default_rng(size)
    x, y = (generator.normal(size=(12, columns)).astype(np.float32) for columns in (3, 2))
    rows = 12 // size
    fleet = Fleet(STEP.replace("ROWS", str(rows)).replace("SHARE", str(1 / size)), tmp_path, size)
    w = np.full((3, 2), 0.5)
    for _ in range(5):
        parts = [slice(rank * rows, (rank + 1) * rows) for rank in range(size)]
        fleet.run(*({"x": x[part], "y": y[part]} for part in parts))
        w = w - 0.1 * sum(x[part].T @ (x[part] @ w - y[part]) for part in parts) / size
        values = [session.store.value("w") for session in fleet.sessions]
        np.testing.assert_allclose(values[0], w, atol=1e-5)
        assert len({value.tobytes() for value in values}) == 1


@pytest.mark.parametrize("length", ["?", "3"], ids=["dynamic", "static"])
def test_models_with_free_dims_meet_too(tmp_path: Path, length: str) -> None:
    text = f"""
        graph g(%x : f32[4] ND, %d : f32[{length}] ND) {{
          %a = HcomAllReduce(%x) {{reduction="sum", {GROUP}}} : f32[4] ND
          %b = HcomAllGather(%d) {{rank_size=2, {GROUP}}} : f32[{"?" if length == "?" else 6}] ND
          return %a, %b
        }}
    """
    found = Fleet(text, tmp_path, 2).run({"x": X, "d": FREE}, {"x": TWO, "d": 2 * FREE})
    for outputs in found:
        np.testing.assert_array_equal(outputs["a:0"], X + TWO)
        np.testing.assert_array_equal(outputs["b:0"], np.concatenate([FREE, 2 * FREE]))


def test_devices_take_the_branches_of_a_sender_and_a_receiver(tmp_path: Path) -> None:
    found = Fleet(BRANCHES, tmp_path, 2).run({"c": np.array(True), "x": X}, {"c": np.array(False), "x": TWO})
    np.testing.assert_array_equal(found[0]["i:0"], -X)
    np.testing.assert_array_equal(found[1]["i:0"], TWO + X)


def test_a_receiver_whose_sender_takes_another_branch_does_not_wait_for_ever(tmp_path: Path) -> None:
    with pytest.raises(RuntimeFault) as caught:
        Fleet(BRANCHES, tmp_path, 2).run({"c": np.array(False), "x": X})
    assert caught.value.kind == "RT_COLLECTIVE_DEADLOCK"
    assert caught.value.first.message == "the devices wait for each other"


def test_two_senders_and_no_receiver_are_told_when_all_have_ended(tmp_path: Path) -> None:
    with pytest.raises(RuntimeFault) as caught:
        Fleet(BRANCHES, tmp_path, 2).run({"c": np.array(True), "x": X})
    assert caught.value.kind == "RT_COLLECTIVE_DEADLOCK"
    assert "was never received" in caught.value.first.message


def test_a_kernel_that_fails_on_one_device_cancels_the_other_and_is_named(tmp_path: Path) -> None:
    text = f"""
        graph g(%x : f32[4] ND, %i : i32[2] ND) {{
          %a = HcomAllReduce(%x) {{reduction="sum", {GROUP}}} : f32[4] ND
          %z = Const() {{value={{"fill": "00000000"}}}} : i32[] ND
          %t = GatherV2(%a, %i, %z) : f32[2] ND
          %b = HcomAllReduce(%t) {{reduction="sum", {GROUP}}} : f32[2] ND
          return %b
        }}
    """
    fleet = Fleet(text, tmp_path, 2)
    with pytest.raises(RuntimeFault) as caught:
        fleet.run({"x": X, "i": np.int32([0, 1])}, {"x": X, "i": np.int32([0, 99])})
    assert [each.place() for each in caught.value.diagnostics] == ["device 1: node t"]
    assert fleet.group.stopped == ["device 0 stopped at HcomAllReduce 'b': device 1 failed"]


@pytest.mark.parametrize("length", ["?", "3"], ids=["dynamic", "static"])
def test_a_compile_records_which_variables_are_broadcast(length: str) -> None:
    text = f"""
        graph g(%x : f32[4] ND, %d : f32[{length}] ND) {{
          %w = Variable() : f32[4] ND
          %b, %c = HcomBroadcast(%x, %w) {{root_rank=0, {GROUP}}} : f32[4] ND, f32[4] ND
          %e = Relu(%d) : f32[{length}] ND
          return %b, %e
        }}
    """
    session = CompileSession(platform_of("Ascend910B1"), CompileSettings())
    session.add(parse(text))
    session.compile_all()
    address = 1 << 37  # 128 GiB: the first variable
    (found,) = session.manager.resource.broadcasts.values()
    assert found == (BroadcastInfo("w", "b", 1, address, 64, address, 64),)


@pytest.mark.parametrize("reduction", ["sum", "prod"])
def test_blocked_filters_are_broadcast_and_reduced_as_they_are_stored(tmp_path: Path, reduction: str) -> None:
    conv = 'strides=[1,1,1,1], pads=[0,0,0,0], dilations=[1,1,1,1], groups=1, data_format="NCHW"'
    text = f"""
        graph g(%x : f16[1,3,4,4] NCHW, %g : f16[5,3,3,3] NCHW) {{
          %w = Variable() : f16[5,3,3,3] NCHW
          %b = HcomBroadcast(%w) {{root_rank=1, {GROUP}}} : f16[5,3,3,3] NCHW
          %y = Conv2D(%x, %b) {{{conv}}} : f16[1,5,2,2] NCHW
          %s = HcomAllReduce(%g) {{reduction="{reduction}", {GROUP}}} : f16[5,3,3,3] NCHW
          %u = AssignAdd(%b, %s) : f16[5,3,3,3] NCHW after %y
          return %y
        }}
    """
    fleet = Fleet(text, tmp_path, 2)
    generator = np.random.default_rng(3)
    x, g, w = (generator.normal(size=n).astype(np.float16) for n in ((1, 3, 4, 4), (5, 3, 3, 3), (5, 3, 3, 3)))
    stored = fleet.sessions[0].store["w"].current
    assert stored is not None and stored.desc.format.name.startswith("FRACTAL_Z")
    fleet.sessions[1].store.set_value("w", w)
    first, second = (next(iter(outputs.values())) for outputs in fleet.run({"x": x, "g": g}))
    windows = np.lib.stride_tricks.sliding_window_view(x.astype(np.float32), (3, 3), axis=(2, 3))
    np.testing.assert_allclose(first, np.einsum("nchwij,ocij->nohw", windows, w.astype(np.float32)), atol=0.05)
    assert first.tobytes() == second.tobytes()
    both = g.astype(np.float32) + g if reduction == "sum" else g.astype(np.float32) * g
    expected = (w.astype(np.float32) + both.astype(np.float16)).astype(np.float16)
    for session in fleet.sessions:
        np.testing.assert_array_equal(session.store.value("w"), expected)


def test_counts_that_differ_by_rank_are_inputs(tmp_path: Path) -> None:
    text = f"""
        graph g(%x : f32[3] ND, %sc : i64[2] ND, %sd : i64[2] ND, %rc : i64[2] ND, %rd : i64[2] ND) {{
          %a = HcomAllToAllV(%x, %sc, %sd, %rc, %rd) {{{GROUP}}} : f32[?] ND
          %n = Neg(%a) : f32[?] ND
          return %n
        }}
    """
    fleet = Fleet(text, tmp_path, 2)
    zero, sizes = np.int64([0, 1]), (np.int64([1, 2]), np.int64([1, 0]))
    feeds = [
        {"x": 10**rank * X[1:], "sc": sizes[rank], "sd": zero, "rc": np.int64([sizes[0][rank], sizes[1][rank]]),
         "rd": np.int64([0, sizes[0][rank]])}
        for rank in range(2)
    ]  # fmt: skip
    one, other = fleet.run(*feeds)
    np.testing.assert_array_equal(one["n:0"], [-1, -10])
    np.testing.assert_array_equal(other["n:0"], [-2, -3])
