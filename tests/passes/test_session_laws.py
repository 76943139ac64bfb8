"""Laws of whole sessions (variables.md 15.4) on random graphs that share, convert and write variables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from itertools import pairwise
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from gecli.artifacts.om_writer import write_om
from gecli.artifacts.rdcpkt import write_rdcpkt
from gecli.compiler.graph_evaluation import GraphEvaluator
from gecli.compiler.model_image import ImageFacts, model_image
from gecli.compiler.pass_verification import ResultCheck
from gecli.compiler.session import Member, Session
from gecli.engine.trans_ops import TRANS_OPS
from gecli.errors import InputError
from gecli.ir.dtype import DataType
from gecli.ir.format import Format
from gecli.ir.graph import Graph
from gecli.ir.tensor_desc import TensorDesc
from gecli.ir.text import text
from gecli.passes.base import Pass, PassContext
from gecli.passes.cancel_inverse_trans import CancelInverseTrans
from gecli.passes.pipeline import StructureCheck
from gecli.passes.recover_trans_roads import RecoverTransRoads
from gecli.passes.variable_prepare import VariablePrepare
from gecli.runtime.session import Session as Runtime
from gecli.variables.device_arena import DeviceArena
from gecli.variables.mem_resource import MemoryType
from gecli.variables.rebuild_control import RebuildControl
from gecli.variables.sizes import DEFAULT_PADDING_BYTES, SPAN_ALIGN_BYTES, raw_bytes, span_bytes
from gecli.variables.var_memory import VariableMemory
from gecli.wire.var_session import decode_var_manager, encode_var_manager
from tests.passes.random_sessions import (
    Behind,
    LateRead,
    Plan,
    Steps,
    Use,
    blocked,
    built,
    called,
    narrowing_plans,
    session_of,
    session_plans,
    transposed,
)
from tests.passes.test_pass_atomicity import shown

Array = NDArray[np.generic]
Law = Callable[[Plan], None]
SLOW = (HealthCheck.too_slow, HealthCheck.data_too_large)


def reference(plan: Plan) -> tuple[list[list[Array]], dict[str, Array]]:
    """What the graphs give as they were built, run in the order of the plan."""
    graphs, state, found = built(plan), {}, []
    for number in plan.order:
        outputs, state = run(graphs[number], state)
        found.append(outputs)
    return found, state


def run(graph: Graph, state: Mapping[str, Array]) -> tuple[list[Array], dict[str, Array]]:
    outputs, after = GraphEvaluator().run(graph, {}, state)
    return outputs, {**state, **after}


def compiled(plan: Plan, **options: object) -> Session:
    session = session_of(built(plan), **options)
    session.instruments = (StructureCheck(), check := ResultCheck())
    session.compile_all()
    assert not check.notes
    return session


# ---------------------------------------------------------------------- the laws


def runs_give_what_the_source_gives(plan: Plan) -> None:
    """With and without acceleration: bit-equal outputs and variables over several runs with write-back."""
    expected, before = reference(plan)
    for accelerated in (True, False):
        session = compiled(plan, variable_acc=accelerated)
        state: dict[str, Array] = {}
        for number, wanted in zip(plan.order, expected, strict=True):
            result = session.members[number].compiled
            assert result is not None
            outputs, state = run(result.graph, state)
            for a, b in zip(wanted, outputs, strict=True):
                assert a.dtype == b.dtype
                np.testing.assert_array_equal(a, b)
        for name, value in before.items():
            if name in state:  # a variable that nobody reads or writes has gone
                np.testing.assert_array_equal(value, in_user_form(session, name, state[name]))


def narrower_variables_change_no_result(plan: Plan) -> None:
    """Outputs are those of the source; a variable in a narrower type holds what every reader would make of it."""
    expected, before = reference(plan)
    sessions = [compiled(plan, variable_acc=accelerated) for accelerated in (True, False)]
    for session in sessions:
        state: dict[str, Array] = {}
        for number, wanted in zip(plan.order, expected, strict=True):
            result = session.members[number].compiled
            assert result is not None
            outputs, state = run(result.graph, state)
            for a, b in zip(wanted, outputs, strict=True):
                np.testing.assert_array_equal(a, b)
        for name, value in before.items():
            road = session.manager.trans_road(name)
            if name in state:
                np.testing.assert_array_equal(road.replay(value) if road else value, state[name])
    (mine, _), (theirs, _) = [on_device(session, plan) for session in sessions]
    for one, other in zip(mine, theirs, strict=True):
        for a, b in zip(one.values(), other.values(), strict=True):
            np.testing.assert_array_equal(a, b)


def devices_give_what_the_source_gives(plan: Plan) -> None:
    """The same from the files, on the simulated device: all models of the session loaded together."""
    found = [on_device(compiled(plan, variable_acc=accelerated), plan) for accelerated in (True, False)]
    (outputs, variables), (others, unchanged) = found
    for mine, theirs in zip(outputs, others, strict=True):
        for a, b in zip(mine.values(), theirs.values(), strict=True):
            np.testing.assert_array_equal(a, b)
    assert sorted(variables) == sorted(unchanged)
    _, before = reference(plan)
    for name, value in variables.items():
        np.testing.assert_array_equal(value, unchanged[name])
        if name in before:
            np.testing.assert_array_equal(value, before[name])


def models_of_free_shapes_give_what_others_give(plan: Plan) -> None:
    """A model with a free dim runs node by node, and reads and writes its variables the same."""
    outputs, variables = on_device(compiled(plan), plan)
    session = session_of(built(plan, dynamic=True))
    session.compile_all()
    others, same = on_device(session, plan, {"free": np.ones(3, np.float32)})
    for mine, theirs in zip(outputs, others, strict=True):
        for name, value in mine.items():
            if name in theirs:  # not so the output of a graph that had none
                np.testing.assert_array_equal(value, theirs[name])
    assert sorted(variables) == sorted(same)
    for name, value in variables.items():
        np.testing.assert_array_equal(value, same[name])


def calls_do_what_the_graphs_do_that_they_call(plan: Plan) -> None:
    """Graphs that get their variables as arguments read and write the variables themselves."""
    expected, before = on_device(compiled(plan), plan)
    for type in ("PartitionedCall", "Case"):
        session = session_of([called(graph, type) for graph in built(plan)])
        session.instruments = (StructureCheck(), ResultCheck())
        session.compile_all()
        found, variables = on_device(session, plan)
        for wanted, outputs in zip(expected, found, strict=True):
            for a, b in zip(wanted.values(), outputs.values(), strict=True):
                np.testing.assert_array_equal(a, b)
        for name, value in variables.items():
            if name in before:
                np.testing.assert_array_equal(value, before[name])


def on_device(
    session: Session, plan: Plan, feeds: Mapping[str, Array] | None = None
) -> tuple[list[dict[str, Array]], dict[str, Array]]:
    """The outputs of the runs of a plan, and what the variables hold afterwards."""
    with TemporaryDirectory() as directory:
        device = Runtime()
        models = [device.load(_written(member, session, directory)) for member in session.members]
        outputs = [models[number].run(feeds or {})[0] for number in plan.order]
        return outputs, {name: device.store.value(name).copy() for name in device.store.names()}


def _written(member: Member, session: Session, directory: str) -> str:
    assert member.compiled is not None
    name = member.graph.name
    facts = ImageFacts(name, "Ascend910B1", session.platform.profile, "json", "", "0" * 64)
    write_rdcpkt(f"{directory}/{name}.rdcpkt", member.compiled.record)
    write_om(f"{directory}/{name}.om", model_image(member.compiled, session.manager, facts))
    return f"{directory}/{name}.om"


def in_user_form(session: Session, name: str, value: Array) -> Array:
    road = session.manager.trans_road(name)
    back = road.inverse() if road else None
    assert not road or back is not None
    return value if back is None else back.replay(value)


def blocks_never_overlap(plan: Plan) -> None:
    blocks_of_session(compiled(plan))


def blocks_of_session(session: Session) -> None:
    end, total = 0, 0
    base = session.manager.logic_base
    for block in session.manager.resource.blocks:
        offset = block.address - base
        assert offset % SPAN_ALIGN_BYTES == 0 and offset >= end
        end, total = offset + block.span_bytes, total + block.span_bytes
        assert block.address + block.capacity_bytes + 1024 <= base + end
    assert session.manager.hbm.used_bytes == total
    for row in session.manager.resource.addresses.values():
        block = session.manager.resource.blocks.get(row.address)
        assert block is not None and span_bytes(row.desc.size_bytes) <= block.span_bytes


def no_later_graph_moves_a_variable(plan: Plan) -> None:
    session = session_of(built(plan))
    known: set[tuple[str, int]] = set()
    for member in session.members:
        session.compile(member)
        # A road that moves no data gives a variable another key at the address that it has.
        now = {(key.name, row.address) for key, row in session.manager.resource.addresses.items()}
        assert known <= now
        known = now


def the_queue_ends_with_no_graph_stale(plan: Plan) -> None:
    session = compiled(plan)
    assert session.rebuild.stale_graphs == ()
    for name in plan.variables:
        assert session.rebuild.changes(name) <= 1
    changed = [name for name in plan.variables if session.rebuild.changes(name)]
    again = sum(len(session.rebuild.users(name)) - 1 for name in changed)
    assert sum(member.compile_count for member in session.members) <= len(session.members) + again
    for member in session.members:
        assert member.compiled is not None
        for node in member.compiled.variables:
            current = session.manager.current_desc(node.name)
            assert current is not None and current.same_storage(node.output_descs[0])


def two_compiles_are_equal(plan: Plan) -> None:
    first, second = compiled(plan), compiled(plan)
    for one, other in zip(first.members, second.members, strict=True):
        assert one.compiled is not None and other.compiled is not None
        assert text(one.compiled.graph) == text(other.compiled.graph)
        assert one.compiled.records == other.compiled.records
    assert encode_var_manager(first.manager) == encode_var_manager(second.manager)


def a_saved_session_is_the_session(plan: Plan) -> None:
    data = encode_var_manager(compiled(plan).manager)
    assert encode_var_manager(decode_var_manager(data, path="s", device_id=0)) == data


def a_failure_leaves_the_session_as_it_was(plan: Plan) -> None:
    session = session_of(built(plan))
    steps = 1 + sum(plan.order) * 7 % 20
    session.instruments = (failing := _Failing(steps),)
    for member in session.members:
        before, changes = encode_var_manager(session.manager), session.rebuild.snapshot()
        failing.left = steps
        with pytest.raises(RuntimeError, match="injected"):
            session.compile(member)
        assert encode_var_manager(session.manager) == before
        assert session.rebuild.stale_graphs == changes.stale_graphs
        assert all(session.rebuild.changes(name) == changes.changes(name) for name in plan.variables)
        failing.left = 1 << 30
        session.compile(member)


class _Failing:
    """An instrument that raises after so many passes."""

    def __init__(self, steps: int) -> None:
        self.left = steps

    def before(self, step: Pass, graph: Graph, ctx: PassContext) -> None: ...

    def after(self, step: Pass, graph: Graph, ctx: PassContext, counts: Counter[str], elapsed_ns: int) -> None:
        self.left -= 1
        if not self.left:
            raise RuntimeError("injected")


def recovered_roads_cancel_with_equal_chains(plan: Plan) -> None:
    """A graph that has the conversions of the road itself keeps none next to the variable."""
    session = compiled(plan)
    for name, declared in plan.variables.items():
        road = session.manager.trans_road(name)
        if not road or not declared.same_storage(road.source) or any(step.type == "Cast" for step in road):
            continue  # a cast back may lose what the stored form holds, so such a pair stays
        steps = tuple(step for step in road if step.type != "ReFormat")
        graph = built(Plan({name: declared}, ({name: _reader(steps)},), (0,)))[0]
        ctx = PassContext(session.platform, session.manager, session.rebuild, graph_id=99)
        for step in (VariablePrepare(), RecoverTransRoads(), CancelInverseTrans()):
            step.run(graph, ctx)
        assert not [use for use in graph.consumers(graph.node(name).out()) if use.node.type in TRANS_OPS]


def device_addresses_are_one_to_one(plan: Plan) -> None:
    """Law 2, on two devices: a device address for each logical one, tensors apart, guards without address."""
    session = compiled(plan)
    memory = VariableMemory(session.manager)
    blocks = [block for block in session.manager.resource.blocks if block.memory_type is MemoryType.HBM]
    for device in (0, 3):
        memory.attach(device, DeviceArena(device))
        taken: list[tuple[int, int]] = []
        for block in reversed(blocks):  # the first access decides where a block lies, not its logical address
            start = memory.address_of(block.address, device)
            for inner in {0, block.capacity_bytes // 2, block.capacity_bytes - 1}:
                assert memory.address_of(block.address + inner, device) == start + inner
            for inner in (block.capacity_bytes, block.span_bytes - 1):
                with pytest.raises(InputError, match="belongs to no variable"):
                    memory.address_of(block.address + inner, device)
            taken.append((start, start + block.capacity_bytes))
        taken.sort()
        assert all(before[1] + 1024 <= after[0] for before, after in pairwise(taken))


def devices_hold_variables_of_their_own(plan: Plan) -> None:
    """Each device begins with the initial values, keeps what is written to it, and converts for itself."""
    session = compiled(plan)
    memory = VariableMemory(session.manager)
    devices = (0, 1, 7)
    for device in devices:
        memory.attach(device, DeviceArena(device))
    for block in session.manager.resource.blocks:
        size = block.capacity_bytes
        first = memory.read(block.address, size, 0)
        assert all(memory.read(block.address, size, device) == first for device in devices)
        for device in devices:
            memory.write(block.address, bytes([device + 1]) * size, device)
        for device in devices:
            assert memory.read(block.address, size, device) == bytes([device + 1]) * size


def constants_share_memory_exactly_when_their_bytes_agree(plan: Plan) -> None:
    """Law 5, with the constants of all graphs in variable memory."""
    session = compiled(plan, train=True, constants_in_session=True)
    found: dict[int, bytes] = {}
    for member in session.members:
        assert member.compiled is not None
        for node in member.compiled.graph.nodes_of("Constant"):
            weight = node.attrs["value"]
            content = b"%d %s" % (weight.dtype.bits, weight.numpy().tobytes())
            (address,) = member.compiled.plan.placements[node].output_offsets
            assert found.setdefault(address, content) == content
    assert len(set(found.values())) == len(found)


def sizes_hold_their_padding(plan: Plan) -> None:
    """Law 12, of every form that a variable has or had."""
    rows = compiled(plan).manager.resource.addresses.values()
    for row in rows:
        raw, padded = raw_bytes(row.desc), row.desc.size_bytes
        assert padded >= raw + DEFAULT_PADDING_BYTES and padded % 32 == 0
        assert span_bytes(padded) % SPAN_ALIGN_BYTES == 0
    in_order = sorted((raw_bytes(row.desc), row.desc.size_bytes) for row in rows)
    assert [size for _, size in in_order] == sorted(size for _, size in in_order)


def a_damaged_session_is_refused_or_sound(plan: Plan) -> None:
    """Law 9: after a flip or a cut a snapshot is refused as corrupt, or it passes every check."""
    data = encode_var_manager(compiled(plan).manager)
    rng = np.random.default_rng(len(data))
    damaged = [data[: int(cut)] for cut in rng.integers(0, len(data), 5)]
    for place, bit in zip(rng.integers(0, len(data), 30), rng.integers(0, 8, 30)):
        flipped = bytearray(data)
        flipped[place] ^= 1 << int(bit)
        damaged.append(bytes(flipped))
    for each in damaged:
        try:
            manager = decode_var_manager(each, path="s", device_id=0)
        except InputError as error:
            assert error.code == "G3007"
            continue
        again = encode_var_manager(manager)
        assert encode_var_manager(decode_var_manager(again, path="s", device_id=0)) == again


def every_pass_changes_nothing_the_second_time(plan: Plan) -> None:
    """Law 7, for each pass of the pipeline on the graphs as it finds them."""
    session = session_of(built(plan))
    session.instruments = (_Twice(),)
    session.compile_all()


class _Twice:
    """An instrument that runs each pass again and compares the graph."""

    def before(self, step: Pass, graph: Graph, ctx: PassContext) -> None: ...

    def after(self, step: Pass, graph: Graph, ctx: PassContext, counts: Counter[str], elapsed_ns: int) -> None:
        once, state = shown(graph), ctx.variables.snapshot()
        step.run(graph, PassContext(ctx.platform, ctx.variables, RebuildControl(), ctx.settings, ctx.graph_id))
        assert shown(graph) == once, step.name
        ctx.variables.restore(state)


def _reader(steps: Steps) -> Use:
    return Use((steps, steps), "none", ())


LAWS: tuple[Law, ...] = (
    runs_give_what_the_source_gives,
    devices_give_what_the_source_gives,
    models_of_free_shapes_give_what_others_give,
    calls_do_what_the_graphs_do_that_they_call,
    blocks_never_overlap,
    no_later_graph_moves_a_variable,
    the_queue_ends_with_no_graph_stale,
    two_compiles_are_equal,
    a_saved_session_is_the_session,
    a_failure_leaves_the_session_as_it_was,
    recovered_roads_cancel_with_equal_chains,
    device_addresses_are_one_to_one,
    devices_hold_variables_of_their_own,
    constants_share_memory_exactly_when_their_bytes_agree,
    sizes_hold_their_padding,
    a_damaged_session_is_refused_or_sound,
    every_pass_changes_nothing_the_second_time,
)


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
@settings(max_examples=5, deadline=None, suppress_health_check=SLOW)
@given(plan=session_plans())
def test_a_random_session_obeys(law: Law, plan: Plan) -> None:
    law(plan)


@pytest.mark.parametrize("law", LAWS[:4], ids=lambda law: law.__name__)
def test_one_storage_with_the_axes_of_two_origins_is_not_one_form(law: Law) -> None:
    """NC1HWC0 of NCHW and of NHWC hold the same bytes, but a reader sees other axes."""
    declared = TensorDesc(DataType.FLOAT, (2, 2, 2, 2), Format.NCHW)
    stored = (blocked(declared, Format.NC1HWC0),)
    turned = transposed(declared, Format.NHWC)
    other = (turned, blocked(turned.dst, Format.NC1HWC0))
    first, second = Use((stored, stored), "none", ()), Use((stored, stored, other), "none", stored)
    law(Plan({"a": declared}, ({"a": first}, {"a": second}), (0, 1)))


@settings(max_examples=60, deadline=None, suppress_health_check=SLOW)
@given(plan=narrowing_plans())
def test_a_narrower_type_changes_no_result(plan: Plan) -> None:
    narrower_variables_change_no_result(plan)


@pytest.mark.parametrize("through", ["variable", "first", "reference"])
@pytest.mark.parametrize("law", LAWS[:4], ids=lambda law: law.__name__)
def test_pairs_of_conversions_and_references_around_three_writes(law: Law, through: str) -> None:
    """A pair that returns to the form of the variable keeps the value at its place; a reference has that of the end."""
    declared = TensorDesc(DataType.FLOAT, (2, 3, 2, 2), Format.NCHW)
    there = (transposed(declared, Format.HWCN),)
    times = ("kept", "control", "between")
    reads = tuple(
        LateRead(source, there, when, True) for source in ("variable", "first", "reference") for when in times
    )
    written = Use((there,), "add", (), Behind(through, reads, third=True))
    law(Plan({"a": declared}, ({"a": Use((there,), "none", ())}, {"a": written}), (0, 1, 0, 1)))


@pytest.mark.slow
@settings(max_examples=2000, deadline=None, suppress_health_check=SLOW)
@given(plan=narrowing_plans())
def test_a_narrower_type_changes_no_result_of_thousands_of_sessions(plan: Plan) -> None:
    narrower_variables_change_no_result(plan)


@pytest.mark.slow
@settings(max_examples=2000, deadline=None, suppress_health_check=SLOW)
@given(plan=session_plans(max_graphs=4), law=st.sampled_from(LAWS[1:]))
def test_thousands_of_random_sessions_obey(plan: Plan, law: Law) -> None:
    runs_give_what_the_source_gives(plan)
    law(plan)
