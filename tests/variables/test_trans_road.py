"""Trans roads (variables.md 8.4, 10.1, 10.5, formats.md 7.6, 7.7)."""

from __future__ import annotations

import numpy as np
import pytest

from gecli.errors import InputError
from gecli.ir.dtype import DataType
from gecli.ir.format import Format
from gecli.ir.tensor_desc import TensorDesc
from gecli.ir.weight import Weight
from gecli.variables.trans_road import TransRoad, TransStep

FZ16 = Format.FRACTAL_Z.with_c0(16)
ND = TensorDesc(DataType.FLOAT, (2, 2, 3, 2))
HWCN = TensorDesc(DataType.FLOAT, (2, 2, 3, 2), Format.HWCN)
FZ = HWCN.with_format(FZ16, (4, 1, 16, 16))
ROAD = TransRoad((TransStep("ReFormat", ND, HWCN), TransStep("TransData", HWCN, FZ)))


def test_a_road_leads_from_the_users_form_to_the_stored_one_and_back() -> None:
    values = np.arange(24, dtype=np.float32).reshape(2, 2, 3, 2)
    stored = ROAD.replay(values)
    assert stored.shape == (4, 1, 16, 16)
    assert stored.nbytes == 4096
    # FRACTAL_Z of HWCN: [C1*H*W, N1, N0, C0]; element h=1, w=0, c=2, n=1.
    assert stored[2, 0, 1, 2] == values[1, 0, 2, 1]
    assert np.count_nonzero(stored) == 23
    back = ROAD.inverse()
    assert back is not None
    assert np.array_equal(back.replay(stored), values)


def test_the_inverse_is_the_steps_reversed_with_ends_swapped() -> None:
    inverse = ROAD.inverse()
    assert inverse is not None
    assert [step.type for step in inverse] == ["TransData", "ReFormat"]
    assert (inverse.source, inverse.target) == (FZ, ND)
    assert inverse.inverse() == ROAD


def test_squeeze_and_unsqueeze_undo_each_other_and_a_perm_is_inverted() -> None:
    flat, full = TensorDesc(DataType.FLOAT, (3,)), TensorDesc(DataType.FLOAT, (1, 3))
    assert TransStep("UnsqueezeV2", flat, full, {"axis": (0,)}).swapped().type == "SqueezeV2"
    assert TransStep("SqueezeV2", full, flat, {"axis": (0,)}).swapped().type == "UnsqueezeV2"
    step = TransStep("TransposeD", ND, ND, {"perm": (2, 0, 3, 1)})
    assert step.swapped().attrs["perm"] == (1, 3, 0, 2)
    assert step.swapped().swapped().attrs == step.attrs


@pytest.mark.parametrize(("alias", "name"), [("TransDataD", "TransData"), ("UnSqueezeV2", "UnsqueezeV2")])
def test_the_other_spellings_of_a_type_are_normalised(alias: str, name: str) -> None:
    assert TransStep(alias, ND, ND).type == name


def test_a_road_without_a_reverse_transfer_is_one_way_with_a_reason() -> None:
    nchw = TensorDesc(DataType.FLOAT, (2, 3, 2, 2), Format.NCHW)
    c04 = nchw.with_format(Format.FRACTAL_Z_C04, (1, 1, 16, 16))
    road = TransRoad((TransStep("TransData", nchw, c04),))
    assert road.inverse() is None
    assert "FRACTAL_Z_C04 -> NCHW" in road.why_one_way()


@pytest.mark.parametrize(
    ("src", "dst", "lossy", "reversible"),
    [
        ("FLOAT", "FLOAT16", True, True),
        ("FLOAT16", "FLOAT", False, True),
        ("FLOAT", "INT32", True, True),
        ("INT32", "INT64", False, True),
        ("INT8", "FLOAT", False, False),
        ("UINT8", "INT32", False, True),
        ("INT64", "INT32", True, True),
        ("HIFLOAT8", "FLOAT16", False, True),
        ("FLOAT", "FLOAT", False, False),
    ],
)
def test_a_cast_is_lossy_unless_every_value_survives(src: str, dst: str, lossy: bool, reversible: bool) -> None:
    ends = [TensorDesc(DataType[name], (4,)) for name in (src, dst)]
    road = TransRoad((TransStep("Cast", ends[0], ends[1]),))
    assert road.lossy is lossy
    assert (road.inverse() is not None) is reversible


def test_a_cast_and_a_transfer_replay_in_order() -> None:
    half = FZ.with_dtype(DataType.FLOAT16)
    road = TransRoad((*ROAD, TransStep("Cast", FZ, half)))
    values = np.linspace(-3, 3, 24, dtype=np.float32).reshape(2, 2, 3, 2)
    stored = road.replay(values)
    assert stored.dtype == np.float16
    back = road.inverse()
    assert back is not None
    assert np.array_equal(back.replay(stored), values.astype(np.float16).astype(np.float32))


def test_only_description_steps_leave_the_data_unchanged() -> None:
    assert TransRoad((TransStep("ReFormat", ND, HWCN),)).is_data_unchanged
    assert TransRoad(()).is_data_unchanged
    assert not ROAD.is_data_unchanged


def test_a_step_must_begin_where_the_one_before_ends_but_for_the_format() -> None:
    assert ROAD.broken_at() is None
    assert TransRoad((TransStep("Reshape", ND, ND), TransStep("TransData", HWCN, FZ))).broken_at() is None
    assert TransRoad((TransStep("TransData", HWCN, FZ), TransStep("ReFormat", ND, HWCN))).broken_at() == 1
    half = FZ.with_dtype(DataType.FLOAT16)
    assert TransRoad((*ROAD, TransStep("Cast", half, FZ))).broken_at() == 2


def test_roads_are_the_same_when_types_and_storage_agree() -> None:
    read_back = TransRoad(TransStep(s.type, s.src.with_origin(s.src.shape, s.src.format), s.dst) for s in ROAD)
    assert ROAD.same_as(read_back)
    assert not ROAD.same_as(ROAD[:1])
    assert not ROAD.same_as(TransRoad((ROAD[0], TransStep("TransposeD", HWCN, FZ))))


def test_another_type_cannot_be_replayed() -> None:
    road = TransRoad((TransStep("Transpose", ND, ND),))
    with pytest.raises(InputError) as error:
        road.replay(np.zeros((2, 2, 3, 2), np.float32))
    assert (error.value.code, error.value.kind) == ("G4011", "RT_TRANS_UNSUPPORTED")
    assert "Transpose" in str(error.value)


def test_an_initial_value_takes_the_road_as_pending_conversions() -> None:
    values = np.arange(24, dtype=np.float32).reshape(2, 2, 3, 2)
    weight = ROAD.convert_weight(Weight.of(values))
    assert len(weight.transforms) == 1  # the ReFormat only renames
    assert (weight.desc, weight.nbytes) == (FZ, 4096)
    assert np.array_equal(weight.numpy(), ROAD.replay(values))


def test_a_road_of_descriptions_leaves_the_bytes_of_a_weight_copyable() -> None:
    flat = TensorDesc(DataType.FLOAT, (24,))
    road = TransRoad((TransStep("ReFormat", ND, HWCN), TransStep("Reshape", HWCN, flat)))
    weight = road.convert_weight(Weight.of(np.ones((2, 2, 3, 2), np.float32)))
    assert not weight.transforms
    assert weight.numpy().shape == (24,)


def test_a_reshape_behind_a_conversion_stays_pending() -> None:
    half = ND.with_dtype(DataType.FLOAT16)
    road = TransRoad((TransStep("Cast", ND, half), TransStep("Reshape", half, TensorDesc(DataType.FLOAT16, (24,)))))
    weight = road.convert_weight(Weight.of(np.ones((2, 2, 3, 2), np.float32)))
    assert weight.numpy().shape == (24,)


def test_an_empty_variable_takes_a_description_road_and_a_cast() -> None:
    empty = TensorDesc(DataType.FLOAT, (0, 4))
    half = TensorDesc(DataType.FLOAT16, (0, 4))
    road = TransRoad((TransStep("Cast", empty, half), TransStep("Reshape", half, TensorDesc(DataType.FLOAT16, (4, 0)))))
    assert road.replay(np.zeros((0, 4), np.float32)).shape == (4, 0)
