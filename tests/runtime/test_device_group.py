"""Collectives of several devices against numpy's formulas, and what happens when devices do not meet."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given as given_each
from hypothesis import settings, strategies
from numpy.typing import NDArray

from gecli.errors import GecliError, InputError, OutputError, RuntimeFault
from gecli.ir.dtype import DataType
from gecli.ops.registry import find
from gecli.runtime.device_group import DeviceGroup, Member

Array = NDArray[Any]
WORLD = {"group": "hccl_world_group"}
BF16 = np.dtype(ml_dtypes.bfloat16)
SIZES = (1, 2, 3, 4)
FORMULAS: dict[str, Callable[[Array], Array]] = {
    "sum": lambda stacked: stacked.sum(0),
    "prod": lambda stacked: stacked.prod(0),
    "max": lambda stacked: stacked.max(0),
    "min": lambda stacked: stacked.min(0),
}


def op(type: str, **attrs: Any) -> Any:
    kind = find(type)
    assert kind is not None, type
    return kind.cls(**attrs)


def given(size: int, shape: tuple[int, ...], dtype: Any = np.float32) -> list[Array]:
    generator = np.random.default_rng(size)
    whole = np.dtype(dtype).kind == "i"
    return [
        generator.integers(-9, 9, shape).astype(dtype) if whole else generator.normal(size=shape).astype(dtype)
        for _ in range(size)
    ]


def together(size: int, work: Callable[[Member], Any], timeout_s: float = 20) -> list[Any]:
    return DeviceGroup(range(size), timeout_s).run(work)


def fault_of(size: int, work: Callable[[Member], Any], timeout_s: float = 20) -> RuntimeFault:
    with pytest.raises(RuntimeFault) as caught:
        together(size, work, timeout_s)
    assert caught.value.code == "G4015"
    return caught.value


# ---------------------------------------------------------------- formulas


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("reduction", sorted(FORMULAS))
@pytest.mark.parametrize("dtype", ["float32", "int8", "int16", "int32", "int64"])
def test_a_reduction_gives_every_rank_the_same_numbers(size: int, reduction: str, dtype: str) -> None:
    arrays = given(size, (3, 4), dtype)
    found = together(size, lambda m: op("HcomAllReduce", reduction=reduction, **WORLD).kernel(arrays[m.rank]))
    with np.errstate(over="ignore"):
        expected = FORMULAS[reduction](np.stack(arrays)).astype(dtype)
    for each in found:
        assert each.dtype == dtype
        np.testing.assert_allclose(each, expected, rtol=1e-6)
        assert each.tobytes() == found[0].tobytes()


@pytest.mark.parametrize("dtype", [np.dtype(np.float16), BF16], ids=["fp16", "bf16"])
@pytest.mark.parametrize("reduction", ["sum", "prod"])
def test_sixteen_bit_floats_are_reduced_in_float32_and_rounded_once(dtype: Any, reduction: str) -> None:
    arrays = [each.astype(dtype) for each in given(4, (500,))]
    found = together(4, lambda m: op("HcomAllReduce", reduction=reduction, **WORLD).kernel(arrays[m.rank]))
    total = arrays[0].astype(np.float32)
    for each in arrays[1:]:
        total = total + each.astype(np.float32) if reduction == "sum" else total * each.astype(np.float32)
    np.testing.assert_array_equal(found[0], total.astype(dtype))
    assert found[0].dtype == dtype
    step = arrays[0].copy()
    for each in arrays[1:]:
        step = step + each if reduction == "sum" else step * each
    assert not np.array_equal(found[0], step)  # rounding after each rank gives other numbers


def test_floats_are_added_in_rank_order_whoever_comes_first() -> None:
    values = [np.float32([1e8]), np.float32([-1e8]), np.float32([1]), np.float32([3e-8])]
    expected = ((values[0] + values[1]) + values[2]) + values[3]
    for first in range(4):

        def work(member: Member, first: int = first) -> Array:
            time.sleep(0 if member.rank == first else 0.01)
            return op("HcomAllReduce", reduction="sum", **WORLD).kernel(values[member.rank])  # type: ignore[no-any-return]  # Any

        assert [float(each[0]) for each in together(4, work)] == [float(expected[0])] * 4


@pytest.mark.parametrize("size", SIZES)
def test_horovods_reductions_add_or_average(size: int) -> None:
    arrays = given(size, (5,))
    total = np.sum(np.stack(arrays), 0)
    added = together(size, lambda m: op("HorovodAllreduce", reduce_op=1).kernel(arrays[m.rank]))
    mean = together(size, lambda m: op("HorovodAllreduce", reduce_op=0).kernel(arrays[m.rank]))
    np.testing.assert_allclose(added[-1], total, rtol=1e-6)
    np.testing.assert_allclose(mean[-1], total / size, rtol=1e-6)
    half = [np.float16([1]), np.float16([2**-10]), np.float16([0])]
    averaged = together(3, lambda m: op("HorovodAllreduce", reduce_op=0).kernel(half[m.rank]))
    np.testing.assert_array_equal(averaged[0], np.float16([np.float32(1 + 2**-10) / 3]))


@pytest.mark.parametrize("size", SIZES)
def test_only_the_root_gets_what_is_reduced_to_it(size: int) -> None:
    arrays, root = given(size, (2, 3)), size - 1
    found = together(size, lambda m: op("HcomReduce", reduction="max", root_rank=root, **WORLD).kernel(arrays[m.rank]))
    for rank, each in enumerate(found):
        expected = np.max(np.stack(arrays), 0) if rank == root else np.zeros((2, 3), np.float32)
        np.testing.assert_array_equal(each, expected)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("type", ["HcomAllGather", "HorovodAllgather"])
def test_gathering_joins_along_axis_0_in_rank_order(size: int, type: str) -> None:
    arrays = given(size, (2, 3), "int32")
    group = WORLD if type == "HcomAllGather" else {}
    found = together(size, lambda m: op(type, rank_size=size, **group).kernel(arrays[m.rank]))
    for each in found:
        np.testing.assert_array_equal(each, np.concatenate(arrays))


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("reduction", ["sum", "max"])
def test_every_rank_gets_its_part_of_a_scattered_reduction(size: int, reduction: str) -> None:
    arrays = given(size, (2 * size, 3), "int32")
    scatter = {"reduction": reduction, "rank_size": size, **WORLD}
    found = together(size, lambda m: op("HcomReduceScatter", **scatter).kernel(arrays[m.rank]))
    np.testing.assert_array_equal(np.concatenate(found), FORMULAS[reduction](np.stack(arrays)))
    assert all(each.shape == (2, 3) for each in found)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("root", [0, -1])
def test_a_broadcast_gives_every_rank_the_tensors_of_the_root(size: int, root: int) -> None:
    root %= size
    one, other = given(size, (3,)), given(size, (2, 2), "int8")
    spread = op("HcomBroadcast", root_rank=root, **WORLD)
    for first, second in together(size, lambda m: spread.kernel(one[m.rank], other[m.rank])):
        np.testing.assert_array_equal(first, one[root])
        np.testing.assert_array_equal(second, other[root])
    for type in ("HorovodBroadcast", "hvdCallbackBroadcast", "HvdCallbackBroadcast"):
        for each in together(size, lambda m, type=type: op(type, root_rank=root).kernel(one[m.rank])):
            np.testing.assert_array_equal(each, one[root])


def test_what_the_root_does_next_does_not_change_what_it_gave() -> None:
    barrier = threading.Barrier(2)

    def work(member: Member) -> Array:
        mine = np.full(4, member.rank, np.float32)
        result: Array = op("HorovodBroadcast", root_rank=0).kernel(mine)
        if member.rank == 0:
            mine[:] = 9
        barrier.wait(10)
        return result.copy()

    np.testing.assert_array_equal(together(2, work)[1], np.zeros(4))


@pytest.mark.parametrize("size", SIZES)
def test_an_exchange_is_the_transpose_of_parts(size: int) -> None:
    arrays = given(size, (2 * size, 3))
    found = together(size, lambda m: op("HcomAllToAll", **WORLD).kernel(arrays[m.rank]))
    parts = np.stack(arrays).reshape(size, size, 2, 3)
    for rank, each in enumerate(found):
        np.testing.assert_array_equal(each, parts[:, rank].reshape(2 * size, 3))


@pytest.mark.parametrize("size", SIZES)
def test_an_exchange_by_counts_places_each_part_at_its_displacement(size: int) -> None:
    matrix = np.random.default_rng(size).integers(0, 4, (size, size))
    arrays = [np.arange(int(row.sum()), dtype=np.float32) + 100 * rank for rank, row in enumerate(matrix)]
    starts = np.cumsum(matrix, 1) - matrix

    def by_vectors(member: Member) -> Array:
        received = matrix[:, member.rank]
        backwards = (np.cumsum(received[::-1]) - received[::-1])[::-1]
        vectors = (matrix[member.rank], starts[member.rank], received, backwards)
        result: Array = op("HcomAllToAllV", **WORLD).kernel(arrays[member.rank], *vectors)
        return result

    def by_matrix(member: Member) -> Array:
        result: Array = op("HcomAllToAllVC", rank=0, **WORLD).kernel(arrays[member.rank], matrix)
        return result

    pieces = [[a[s[j] : s[j] + row[j]] for j in range(size)] for a, s, row in zip(arrays, starts, matrix)]
    for rank, (vectors, table) in enumerate(zip(together(size, by_vectors), together(size, by_matrix))):
        mine = [pieces[other][rank] for other in range(size)]
        np.testing.assert_array_equal(vectors, np.concatenate(mine[::-1]))
        np.testing.assert_array_equal(table, np.concatenate(mine))


def test_tensors_go_round_a_ring() -> None:
    def work(member: Member) -> Array:
        following, before = (member.rank + 1) % 3, (member.rank + 2) % 3
        op("HcomSend", sr_tag=5, dest_rank=following, **WORLD).kernel(np.int32([member.rank]))
        receive = op("HcomReceive", sr_tag=5, src_rank=before, shape=(1,), dtype=DataType.INT32, **WORLD)
        result: Array = receive.kernel()
        return result

    assert [int(each[0]) for each in together(3, work)] == [2, 0, 1]


def test_a_receiver_takes_tensors_by_tag_and_in_the_order_of_their_sending() -> None:
    def work(member: Member) -> list[int]:
        if member.rank == 0:
            for tag, value in ((1, 10), (2, 20), (1, 11)):
                op("HcomSend", sr_tag=tag, dest_rank=1, **WORLD).kernel(np.int32([value]))
            return []
        receives = [
            op("HcomReceive", sr_tag=tag, src_rank=0, shape=(1,), dtype=DataType.INT32, **WORLD) for tag in (2, 1, 1)
        ]
        return [int(each.kernel()[0]) for each in receives]

    assert together(2, work)[1] == [20, 10, 11]


def test_many_collectives_follow_each_other() -> None:
    def work(member: Member) -> float:
        value = np.float32([member.rank + 1])
        for _ in range(200):
            value = op("HcomAllReduce", reduction="max", **WORLD).kernel(value)
            value = op("HorovodBroadcast", root_rank=1).kernel(value)
        return float(value[0])

    assert together(4, work) == [4.0] * 4


@given_each(
    size=strategies.integers(1, 4),
    rows=strategies.integers(0, 3),
    reduction=strategies.sampled_from(sorted(FORMULAS)),
    dtype=strategies.sampled_from(["float32", "float16", "int8", "int64"]),
)
@settings(max_examples=40, deadline=None)
def test_scattering_and_gathering_a_reduction_is_reducing_for_all(
    size: int, rows: int, reduction: str, dtype: str
) -> None:
    arrays = given(size, (rows * size, 2), dtype)
    attrs = {"reduction": reduction, **WORLD}

    def in_two_steps(member: Member) -> Array:
        part = op("HcomReduceScatter", rank_size=size, **attrs).kernel(arrays[member.rank])
        result: Array = op("HcomAllGather", rank_size=size, **WORLD).kernel(part)
        return result

    at_once = together(size, lambda m: op("HcomAllReduce", **attrs).kernel(arrays[m.rank]))
    for one, other in zip(together(size, in_two_steps), at_once):
        assert (one.shape, one.tobytes()) == (other.shape, other.tobytes())


# ---------------------------------------------------------------- bytes


@pytest.mark.parametrize(
    ("type", "attrs", "expected"),
    [
        ("HcomBroadcast", {"root_rank": 1}, [0, 96 * 3, 0, 0]),
        ("HcomAllReduce", {"reduction": "sum"}, [2 * 96 * 3 // 4] * 4),
        ("HcomReduceScatter", {"reduction": "sum", "rank_size": 4}, [96 * 3 // 4] * 4),
        ("HcomAllGather", {"rank_size": 4}, [96 * 3] * 4),
        ("HcomReduce", {"reduction": "sum", "root_rank": 2}, [96, 96, 0, 96]),
        ("HcomAllToAll", {}, [96 * 3 // 4] * 4),
    ],
)
def test_what_each_rank_sends_is_counted(type: str, attrs: dict[str, Any], expected: list[int]) -> None:
    group = DeviceGroup(range(4))
    arrays = given(4, (8, 3))
    group.run(lambda m: op(type, **attrs, **WORLD).kernel(arrays[m.rank]))
    assert [member.traffic.bytes_sent for member in group.members] == expected
    assert [member.traffic.calls for member in group.members] == [1] * 4


def test_what_goes_to_others_in_an_exchange_by_counts_is_counted() -> None:
    group = DeviceGroup(range(2))
    matrix = np.int64([[1, 2], [3, 4]])
    group.run(lambda m: op("HcomAllToAllVC", rank=0, **WORLD).kernel(np.zeros(7, np.float32), matrix))
    assert [member.traffic.bytes_sent for member in group.members] == [8, 12]


# ---------------------------------------------------------------- devices that do not meet


def test_different_tensors_are_a_mismatch_that_names_both_ranks() -> None:
    arrays = [np.zeros(3, np.float32), np.zeros(3, np.float32), np.zeros(4, np.float32)]
    fault = fault_of(3, lambda m: op("HcomAllReduce", reduction="sum", **WORLD).kernel(arrays[m.rank]))
    assert fault.kind == "RT_COLLECTIVE_MISMATCH"
    assert fault.first.message == "rank 0 (device 0) and rank 2 (device 2) do not call the same collective"
    assert "3 elements of float32" in fault.first.why
    assert "4 elements of float32" in fault.first.why


def test_different_attributes_and_different_operators_are_a_mismatch() -> None:
    fault = fault_of(
        2, lambda m: op("HcomAllReduce", reduction=("sum", "max")[m.rank], **WORLD).kernel(np.zeros(3, np.float32))
    )
    assert fault.kind == "RT_COLLECTIVE_MISMATCH"
    assert "has reduction sum, " in fault.first.why
    others = ("HcomAllToAll", "HcomAllGather")
    attrs: tuple[dict[str, Any], ...] = ({}, {"rank_size": 2})
    fault = fault_of(2, lambda m: op(others[m.rank], **attrs[m.rank], **WORLD).kernel(np.zeros(4, np.float32)))
    assert fault.kind == "RT_COLLECTIVE_MISMATCH"


def test_counts_that_do_not_fit_name_sender_and_receiver() -> None:
    def work(member: Member) -> Any:
        counts = np.int64([1, 1 + member.rank])
        starts = np.int64([0, 1])
        return op("HcomAllToAllV", **WORLD).kernel(np.zeros(3, np.float32), np.int64([1, 1]), starts, counts, starts)

    fault = fault_of(2, work)
    assert fault.kind == "RT_COLLECTIVE_MISMATCH"
    assert fault.first.message == "rank 1 sends 1 elements to rank 1, which expects 2"


def test_a_rank_that_ends_without_the_others_is_named_at_once() -> None:
    def work(member: Member) -> Any:
        return member.rank == 2 or op("HcomAllReduce", reduction="sum", **WORLD).kernel(np.zeros(3, np.float32))

    start = time.monotonic()
    fault = fault_of(3, work, timeout_s=60)
    assert time.monotonic() - start < 30
    assert fault.kind == "RT_COLLECTIVE_DEADLOCK"
    assert "arrived rank 0 (device 0), rank 1 (device 1); missing rank 2 (device 2)" in fault.first.why
    assert "rank 2 (device 2) has ended" in fault.first.where


def test_ranks_that_wait_for_each_other_are_found_at_once() -> None:
    def work(member: Member) -> Any:
        if member.rank == 0:
            return op("HcomAllReduce", reduction="sum", **WORLD).kernel(np.zeros(3, np.float32))
        receive = op("HcomReceive", sr_tag=4, src_rank=0, shape=(1,), dtype=DataType.INT32, **WORLD)
        return receive.kernel()

    fault = fault_of(2, work, timeout_s=60)
    assert fault.first.message == "the devices wait for each other"
    assert "rank 1 (device 1) waits at HcomReceive '' for a tensor with tag 4 from rank 0" in fault.first.where


def test_a_collective_that_does_not_fill_in_time_is_given_up() -> None:
    done = threading.Event()

    def work(member: Member) -> Any:
        if member.rank == 1:
            return done.wait(20)
        try:
            return op("HcomAllReduce", reduction="sum", **WORLD).kernel(np.zeros(3, np.float32))
        finally:
            done.set()

    fault = fault_of(2, work, timeout_s=0.2)
    assert fault.kind == "RT_COLLECTIVE_DEADLOCK"
    assert "was not complete after 0.2 s" in fault.first.message
    assert "rank 1 (device 1) computes" in fault.first.where
    assert "--collective-timeout" in fault.first.do


def test_a_tensor_that_nobody_takes_is_told_at_the_end() -> None:
    def work(member: Member) -> None:
        if member.rank == 0:
            op("HcomSend", sr_tag=8, dest_rank=1, **WORLD).kernel(np.zeros(3, np.float32))

    fault = fault_of(2, work)
    assert fault.kind == "RT_COLLECTIVE_DEADLOCK"
    assert "sr_tag 8 and src_rank 0" in fault.first.why


def test_a_device_that_fails_cancels_the_others_at_their_next_collective() -> None:
    reached: list[int] = []

    def work(member: Member) -> None:
        if member.rank == 1:
            raise InputError("E13005", "no such file")
        op("HcomAllReduce", reduction="sum", **WORLD).kernel(np.zeros(3, np.float32))
        reached.append(member.rank)

    with pytest.raises(InputError) as caught:
        together(3, work, timeout_s=60)
    assert reached == []
    assert [each.place() for each in caught.value.diagnostics] == ["device 1"]


def test_the_lowest_device_that_failed_decides_the_exit_status() -> None:
    barrier = threading.Barrier(3)
    errors = {5: OutputError("G6001", "first"), 2: InputError("E13005", "second"), 7: OutputError("G6001", "first")}

    def work(member: Member) -> None:
        barrier.wait(10)
        raise errors[member.device]

    with pytest.raises(GecliError) as caught:
        DeviceGroup([5, 2, 7]).run(work)
    assert caught.value.exit_status == errors[2].exit_status
    assert [(each.message, each.place()) for each in caught.value.diagnostics] == [
        ("second", "device 2"),
        ("first", "devices 5, 7"),
    ]


def test_an_error_of_gecli_itself_is_raised_as_it_is() -> None:
    def work(member: Member) -> None:
        if member.rank:
            raise AttributeError("a bug")
        op("HcomAllReduce", reduction="sum", **WORLD).kernel(np.zeros(3, np.float32))

    with pytest.raises(AttributeError, match="a bug"):
        together(2, work)


def test_ranks_are_positions_whatever_the_numbers_of_the_devices_are() -> None:
    found = DeviceGroup([6, 1]).run(lambda m: (m.rank, m.device, m.size))
    assert found == [(0, 6, 2), (1, 1, 2)]
