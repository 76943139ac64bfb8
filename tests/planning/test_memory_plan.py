"""Memory plans: the worked example of the specification, and the laws on random buffers."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gecli.ir.op_desc import OpDesc, Port
from gecli.ir.text import parse
from gecli.planning.buffers import Buffer, Buffers, collect_buffers
from gecli.planning.free_space import FreeSpace
from gecli.planning.memory import lower_bound, plan_memory, verify_placement


def buffer(name: str, size: int, first: int, last: int) -> Buffer:
    return Buffer(size, first, last, (Port(OpDesc(name, "Relu"), 0),))


def reusable(*buffers: Buffer) -> Buffers:
    return Buffers(buffers, (), (), 0)


def test_the_worked_example_reaches_its_lower_bound() -> None:
    rows = [(2048, 0, 2), (1024, 1, 3), (4096, 2, 4), (1024, 3, 5), (2048, 4, 6), (512, 5, 6)]
    plan = plan_memory(reusable(*(buffer(f"b{i}", *row) for i, row in enumerate(rows))))
    assert plan.lower_bound_bytes == 7168
    assert plan.peak_bytes == 7168
    assert plan.no_reuse_bytes == 10752


def test_without_reuse_every_buffer_has_its_own_place() -> None:
    plan = plan_memory(reusable(buffer("a", 512, 0, 1), buffer("b", 1024, 2, 3)), reuse=False)
    assert plan.peak_bytes == 1536


def test_outputs_then_inputs_form_the_zero_copy_tail() -> None:
    out, data = buffer("out", 512, 1, 2), buffer("data", 1024, 0, 1)
    plan = plan_memory(Buffers((buffer("t", 2048, 1, 1),), (out,), (data,), 0))
    assert [plan.offsets[out.ports[0]], plan.offsets[data.ports[0]]] == [2048, 2560]
    assert plan.zero_copy_bytes == 1536


ROWS = st.lists(
    st.tuples(st.integers(1, 8).map(lambda n: n * 512), st.integers(0, 30), st.integers(0, 12)), min_size=1, max_size=40
)


@given(ROWS)
@settings(max_examples=200, deadline=None)
def test_live_buffers_never_overlap_and_the_peak_is_between_bound_and_no_reuse(
    rows: list[tuple[int, int, int]],
) -> None:
    buffers = [buffer(f"b{i}", size, first, first + length) for i, (size, first, length) in enumerate(rows)]
    plan = plan_memory(reusable(*buffers))
    spans = [(plan.offsets[b.ports[0]], plan.offsets[b.ports[0]] + b.size_bytes, b) for b in buffers]
    for i, (start, stop, one) in enumerate(spans):
        assert start % 512 == 0
        for other_start, other_stop, other in spans[:i]:
            together = one.first <= other.last and other.first <= one.last
            assert not (together and start < other_stop and other_start < stop)
    assert lower_bound(buffers) <= plan.peak_bytes <= plan.no_reuse_bytes


@given(ROWS)
@settings(max_examples=50, deadline=None)
def test_the_plan_does_not_depend_on_when_it_is_made(rows: list[tuple[int, int, int]]) -> None:
    buffers = [buffer(f"b{i}", size, first, first + length) for i, (size, first, length) in enumerate(rows)]
    one, two = plan_memory(reusable(*buffers)), plan_memory(reusable(*buffers))
    assert one.offsets == two.offsets
    assert one.order_used == two.order_used


def test_a_chain_of_many_buffers_is_planned_without_a_gap() -> None:
    buffers = [buffer(f"b{i}", 512 * (1 + i % 7), i, i + 1) for i in range(20_000)]
    plan = plan_memory(reusable(*buffers))
    assert plan.gap_percent <= 5.0


def test_a_block_lives_until_the_last_reader_of_what_is_written_into_it() -> None:
    """`set` writes the output of `cast`: nothing else may lie there before `late` has read it."""
    graph = parse(
        """graph g(%x : f16[256] ND) {
        %cast = Cast(%x) {dst_type=0} : f32[256] ND
        %set = Relu(%cast) : f32[256] ND
        %other = Relu(%set) : f32[256] ND
        %more = Relu(%other) : f32[256] ND
        %late = Add(%set, %more) : f32[256] ND
        return %late
        }"""
    )
    node = {each.name: each for each in graph.nodes()}
    buffers = collect_buffers(graph.nodes(), graph, (), {node["set"].out(): node["cast"].out()})
    (shared,) = [each for each in buffers.reusable if node["set"].out() in each.ports]
    assert shared.ports == (node["cast"].out(), node["set"].out())
    assert shared.last == graph.nodes().index(node["late"])


def test_a_view_of_what_is_overwritten_behind_it_has_a_buffer_of_its_own() -> None:
    graph = parse("""
        graph g(%x : f16[4] ND) {
          %cast = Cast(%x) {dst_type=0} : f32[4] ND
          %view = Identity(%cast) : f32[4] ND
          %set = Assign(%cast, %cast) : f32[4] ND after %view
          %later = Identity(%set) : f32[4] ND
          return %view, %later
        }
    """)
    node = {each.name: each for each in graph.nodes()}
    buffers = collect_buffers(graph.nodes(), graph, (), {node["set"].out(): node["cast"].out()})
    shared = {tuple(port.node.name for port in each.ports) for each in (*buffers.reusable, *buffers.outputs)}
    assert shared == {("view",), ("cast", "set", "later")}


def test_many_buffers_that_live_long_are_placed_and_verified() -> None:
    """As the activations of a deep network do, from the forward to the backward pass."""
    count = 20_000
    buffers = [buffer(f"b{i}", 512 * (1 + i % 7), i, 2 * count - i) for i in range(count)]
    plan = plan_memory(reusable(*buffers))
    assert plan.peak_bytes == plan.lower_bound_bytes == plan.no_reuse_bytes


@pytest.mark.parametrize("second", [0, 512, 1023, 1536])
def test_buffers_that_overlap_in_space_and_life_are_found(second: int) -> None:
    buffers = [buffer("a", 1024, 0, 5), buffer("b", 1024, 3, 4), buffer("c", 512, 6, 6), buffer("d", 512, 1, 1)]
    verify_placement(buffers, [512, 1536, 512, 1536])
    with pytest.raises(AssertionError, match="overlaps"):
        verify_placement(buffers, [512, second, 0, 4096] if second < 1536 else [512, 1535, 0, 4096])


def tightest_gap(blocks: list[tuple[int, int]], size: int) -> int:
    """The definition: of the gaps between the blocks the smallest that is enough, else the end of all."""
    rooms, end = [], 0
    for start, stop in sorted(blocks):
        rooms.append((start - end, end))
        end = stop
    return min([(room, start) for room, start in rooms if room >= size], default=(0, end))[1]


@given(st.lists(st.tuples(st.integers(1, 6), st.integers(0, 20), st.booleans()), max_size=60))
def test_free_space_gives_the_tightest_gap_whatever_was_taken_and_given_back(
    steps: list[tuple[int, int, bool]],
) -> None:
    space, blocks = FreeSpace(), list[tuple[int, int]]()
    for size, which, hang in steps:
        if which < len(blocks):
            space.give_back(*blocks.pop(which))
            continue
        offset = space.top + 3 if hang else tightest_gap(blocks, size)
        assert hang or space.tightest(size) == offset
        space.take(offset, size)
        blocks.append((offset, offset + size))
        assert space.top == max(end for _, end in blocks)
        assert space.room_at_bottom == min(start for start, _ in blocks)
