"""Collective operators: descriptors, checks of attributes, and the identity on one device."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from gecli.errors import RuntimeFault
from gecli.ir.dtype import DataType
from gecli.ir.tensor_desc import TensorDesc
from gecli.ops.inference import InferenceError
from gecli.ops.operator import KnownDesc
from gecli.ops.registry import find

Array = NDArray[Any]
WORLD = {"group": "hccl_world_group"}
F32 = DataType.FLOAT
X = np.arange(8, dtype=np.float32).reshape(4, 2)


def op(type: str, **attrs: Any) -> Any:
    kind = find(type)
    assert kind is not None, type
    return kind.cls(**attrs)


def desc(*shape: int, dtype: DataType = F32) -> TensorDesc:
    return TensorDesc(dtype, shape)


@pytest.mark.parametrize(
    ("type", "attrs", "given", "expected"),
    [
        ("HcomAllReduce", {"reduction": "sum", **WORLD}, (4, 2), (4, 2)),
        ("HcomAllReduce", {"reduction": "max", **WORLD}, (-1, 2), (-1, 2)),
        ("HorovodAllreduce", {"reduce_op": 1}, (4, 2), (4, 2)),
        ("HcomReduce", {"reduction": "prod", "root_rank": 1, **WORLD}, (4, 2), (4, 2)),
        ("HcomAllGather", {"rank_size": 3, **WORLD}, (4, 2), (12, 2)),
        ("HcomAllGather", {"rank_size": 3, **WORLD}, (-1, 2), (-1, 2)),
        ("HcomAllGather", {"rank_size": 3, **WORLD}, (-2,), (-2,)),
        ("HorovodAllgather", {"rank_size": 2}, (4,), (8,)),
        ("HcomReduceScatter", {"reduction": "sum", "rank_size": 2, **WORLD}, (4, 2), (2, 2)),
        ("HcomReduceScatter", {"reduction": "sum", "rank_size": 2, **WORLD}, (-1, 2), (-1, 2)),
        ("HcomAllToAll", WORLD, (4, 2), (4, 2)),
        ("HorovodBroadcast", {"root_rank": 1}, (4, 2), (4, 2)),
        ("hvdCallbackBroadcast", {"root_rank": 0}, (4, 2), (4, 2)),
        ("HvdCallbackBroadcast", {"root_rank": 0}, (4, 2), (4, 2)),
    ],
)
def test_the_result_is_described(
    type: str, attrs: dict[str, Any], given: tuple[int, ...], expected: tuple[int, ...]
) -> None:
    found = op(type, **attrs).infer(desc(*given))
    assert (found.dtype, found.shape) == (F32, expected)


def test_a_broadcast_describes_every_tensor() -> None:
    found = op("HcomBroadcast", root_rank=0, **WORLD).infer(desc(4), desc(2, 3, dtype=DataType.INT8))
    assert [(each.dtype, each.shape) for each in found] == [(F32, (4,)), (DataType.INT8, (2, 3))]


def test_counts_that_are_known_decide_the_shape_of_an_exchange() -> None:
    counts = desc(2, dtype=DataType.INT64)
    known = KnownDesc.of(counts, np.array([3, 4]))
    exchange = op("HcomAllToAllV", **WORLD)
    assert exchange.infer(desc(9), counts, counts, known, counts).shape == (7,)
    assert exchange.infer(desc(9), counts, counts, counts, counts).shape == (-1,)
    matrix = KnownDesc.of(desc(2, 2, dtype=DataType.INT64), np.array([[1, 2], [3, 4]]))
    assert op("HcomAllToAllVC", rank=1, **WORLD).infer(desc(9), matrix).shape == (6,)


def test_a_send_has_no_output_and_a_receive_is_described_by_its_attributes() -> None:
    assert op("HcomSend", sr_tag=1, dest_rank=0, **WORLD).infer(desc(4)) == ()
    found = op("HcomReceive", sr_tag=1, src_rank=0, shape=(2, 3), dtype=DataType.INT8, **WORLD).infer()
    assert (found.dtype, found.shape) == (DataType.INT8, (2, 3))


@pytest.mark.parametrize(
    ("type", "attrs", "given", "text"),
    [
        ("HcomAllReduce", {"reduction": "mean", **WORLD}, desc(4), "reduction is 'mean', not one of sum, prod"),
        ("HcomAllReduce", {"reduction": "sum", "group": "g" * 129}, desc(4), "group has 129 characters"),
        ("HcomAllReduce", {"reduction": "sum", "group": ""}, desc(4), "group has 0 characters"),
        ("HcomAllReduce", {"reduction": "sum", "fusion": 3, **WORLD}, desc(4), "fusion is 3"),
        ("HcomAllReduce", {"reduction": "sum", **WORLD}, desc(4, dtype=DataType.UINT8), "DT_UINT8 cannot be reduced"),
        ("HcomAllReduce", {"reduction": "sum", **WORLD}, desc(4, dtype=DataType.DOUBLE), "DT_DOUBLE cannot be"),
        ("HorovodAllreduce", {"reduce_op": 2}, desc(4), "reduce_op is 2"),
        ("HorovodAllreduce", {"reduce_op": 0}, desc(4, dtype=DataType.INT32), "the average of DT_INT32"),
        ("HcomReduce", {"reduction": "sum", "root_rank": -1, **WORLD}, desc(4), "root_rank is -1"),
        ("HcomBroadcast", {"root_rank": 0, **WORLD}, desc(4, dtype=DataType.STRING), "no fixed width"),
        ("HcomAllGather", {"rank_size": 2, **WORLD}, desc(), "a scalar has no axis 0 to be gathered"),
        ("HcomAllGather", {"rank_size": 0, **WORLD}, desc(4), "rank_size is 0"),
        ("HcomReduceScatter", {"reduction": "sum", "rank_size": 3, **WORLD}, desc(4), "3 equal parts"),
        ("HcomReduceScatter", {"reduction": "sum", "rank_size": 2, **WORLD}, desc(), "a scalar has no axis 0"),
        ("HcomSend", {"sr_tag": 0, "dest_rank": -1, **WORLD}, desc(4), "dest_rank is -1"),
    ],
)
def test_what_no_group_can_do_is_refused(type: str, attrs: dict[str, Any], given: TensorDesc, text: str) -> None:
    with pytest.raises(InferenceError, match=text):
        op(type, **attrs).infer(given)


@pytest.mark.parametrize(
    ("type", "attrs"),
    [
        *(("HcomAllReduce", {"reduction": reduction, **WORLD}) for reduction in ("sum", "prod", "max", "min")),
        ("HorovodAllreduce", {"reduce_op": 0}),
        ("HcomReduce", {"reduction": "sum", "root_rank": 0, **WORLD}),
        ("HcomAllGather", {"rank_size": 1, **WORLD}),
        ("HorovodAllgather", {"rank_size": 1}),
        ("HcomReduceScatter", {"reduction": "sum", "rank_size": 1, **WORLD}),
        ("HcomAllToAll", WORLD),
        ("HorovodBroadcast", {"root_rank": 0}),
    ],
)
def test_on_one_device_a_collective_is_the_identity(type: str, attrs: dict[str, Any]) -> None:
    np.testing.assert_array_equal(op(type, **attrs).kernel(X), X)


def test_on_one_device_an_exchange_moves_elements_by_their_displacements() -> None:
    one = np.int64([3])
    found = op("HcomAllToAllV", **WORLD).kernel(X, one, np.int64([2]), one, np.int64([0]))
    np.testing.assert_array_equal(found, [2, 3, 4])
    np.testing.assert_array_equal(op("HcomAllToAllVC", rank=0, **WORLD).kernel(X, np.int64([[5]])), [0, 1, 2, 3, 4])


def test_on_one_device_a_receive_takes_what_was_sent() -> None:
    send = op("HcomSend", sr_tag=7, dest_rank=0, **WORLD)
    receive = op("HcomReceive", sr_tag=7, src_rank=0, shape=(8,), dtype=F32, **WORLD)
    assert send.kernel(X) == ()
    assert send.kernel(-X) == ()
    np.testing.assert_array_equal(receive.kernel(), X.reshape(-1))
    np.testing.assert_array_equal(receive.kernel(), -X.reshape(-1))
    with pytest.raises(RuntimeFault) as caught:
        receive.kernel()
    assert caught.value.kind == "RT_COLLECTIVE_DEADLOCK"


@pytest.mark.parametrize(
    ("type", "attrs", "kind"),
    [
        ("HorovodBroadcast", {"root_rank": 1}, "PARAM_INVALID"),
        ("HcomReduce", {"reduction": "sum", "root_rank": 3, **WORLD}, "PARAM_INVALID"),
        ("HcomSend", {"sr_tag": 0, "dest_rank": 1, **WORLD}, "PARAM_INVALID"),
        ("HcomAllGather", {"rank_size": 2, **WORLD}, "RT_COLLECTIVE_MISMATCH"),
        ("HcomReduceScatter", {"reduction": "sum", "rank_size": 2, **WORLD}, "RT_COLLECTIVE_MISMATCH"),
    ],
)
def test_what_is_made_for_more_devices_says_how_to_run_it(type: str, attrs: dict[str, Any], kind: str) -> None:
    with pytest.raises(RuntimeFault) as caught:
        op(type, **attrs).kernel(X)
    assert (caught.value.code, caught.value.kind) == ("G4015", kind)
    assert "--device 0,1" in caught.value.first.do


def test_a_tensor_of_another_type_or_size_is_not_received() -> None:
    op("HcomSend", sr_tag=3, dest_rank=0, **WORLD).kernel(X)
    with pytest.raises(RuntimeFault, match="gets another tensor than it expects"):
        op("HcomReceive", sr_tag=3, src_rank=0, shape=(9,), dtype=F32, **WORLD).kernel()


def test_what_only_a_damaged_model_holds_is_a_fault_of_the_node() -> None:
    with pytest.raises(ValueError, match="reduction is 'mean'"):
        op("HcomAllReduce", reduction="mean", **WORLD).kernel(X)
    with pytest.raises(ValueError, match="reduce_op is 7"):
        op("HorovodAllreduce", reduce_op=7).kernel(X)
    one, zero = np.int64([3]), np.int64([0])
    for numbers in ((one, np.int64([6]), one, zero), (one, zero, one, one)):
        with pytest.raises(ValueError, match="goes beyond the"):
            op("HcomAllToAllV", **WORLD).kernel(X, *numbers)
    for numbers in ((np.int64([1, 1]), zero, one, zero), (one, np.int64([-1]), one, zero)):
        with pytest.raises(ValueError, match="the group has 1 rank"):
            op("HcomAllToAllV", **WORLD).kernel(X, *numbers)
    with pytest.raises(ValueError, match="no count for each pair of ranks"):
        op("HcomAllToAllVC", rank=0, **WORLD).kernel(X, np.int64([1, 2]))
    with pytest.raises(ValueError, match="wants 9 elements"):
        op("HcomAllToAllVC", rank=0, **WORLD).kernel(X, np.int64([[9]]))
    with pytest.raises(ValueError, match="a scalar has no axis 0"):
        op("HcomAllGather", rank_size=1, **WORLD).kernel(np.float32(1) * np.ones(()))
