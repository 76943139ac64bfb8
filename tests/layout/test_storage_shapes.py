"""Storage shapes: expansion of low ranks and the formula of every device format."""

from __future__ import annotations

import pytest

from gecli.ir.dtype import DataType
from gecli.ir.format import Format
from gecli.ir.tensor_desc import TensorDesc
from gecli.layout.axes import expand_dims, permutation, reshape_mask, reshape_type_from_mask
from gecli.layout.platform import platform_of
from gecli.layout.storage_shape import RnnSizes, group_blocks, storage_shape, to_storage
from gecli.layout.transfer_error import TransferError

F, D = Format, DataType
A, B = platform_of("Ascend310"), platform_of("Ascend910B1")


@pytest.mark.parametrize(
    "fmt,shape,letters,expanded",
    [
        (F.NCHW, (64,), "", (1, 64, 1, 1)),
        (F.HWCN, (16, 32), "", (1, 1, 16, 32)),
        (F.NHWC, (5, 7), "", (1, 5, 7, 1)),
        (F.NDHWC, (9, 8), "", (1, 1, 1, 9, 8)),
        (F.CHWN, (3, 4), "", (1, 1, 3, 4)),
        (F.NCDHW, (3, 4, 5), "", (1, 1, 3, 4, 5)),
        (F.DHWNC, (2, 3, 4), "", (1, 1, 2, 3, 4)),
        (F.NCHW, (2, 3, 4, 5), "", (2, 3, 4, 5)),
        (F.NCHW, (6, 7), "NC", (6, 7, 1, 1)),
        (F.NCHW, (6, 7), "CN", (1, 6, 7, 1)),  # not in axis order: the default applies
        (F.NCHW, (6, 7), "XY", (1, 6, 7, 1)),
        (F.NCHW, (6, 7), "FORBIDDEN", (6, 7)),
        (F.NCHW, (-2,), "", (-2,)),
    ],
)
def test_low_ranks_expand_on_the_named_axes(
    fmt: Format, shape: tuple[int, ...], letters: str, expanded: tuple[int, ...]
) -> None:
    assert expand_dims(fmt, shape, letters) == expanded


@pytest.mark.parametrize("fmt,shape", [(F.NCHW, ()), (F.NCHW, (1, 2, 3, 4, 5)), (F.NDHWC, (1,) * 6)])
def test_a_rank_that_fits_nowhere_is_refused(fmt: Format, shape: tuple[int, ...]) -> None:
    with pytest.raises(TransferError) as caught:
        expand_dims(fmt, shape)
    assert caught.value.kind == "145021"


def test_the_mask_names_the_inserted_axes_and_the_full_rank() -> None:
    assert reshape_mask(F.NCHW, "C") == 0b1101 | 4 << 56
    assert reshape_type_from_mask(F.NCHW, 0b1101 | 4 << 56) == "C"
    with pytest.raises(ValueError):
        reshape_type_from_mask(F.NCDHW, 0b1101 | 4 << 56)


@pytest.mark.parametrize(
    "src,dst,perm",
    [
        (F.NCHW, F.NHWC, (0, 2, 3, 1)), (F.NCHW, F.HWCN, (2, 3, 1, 0)), (F.NCHW, F.CHWN, (1, 2, 3, 0)),
        (F.NHWC, F.NCHW, (0, 3, 1, 2)), (F.NHWC, F.HWCN, (1, 2, 3, 0)), (F.NHWC, F.CHWN, (3, 1, 2, 0)),
        (F.HWCN, F.NCHW, (3, 2, 0, 1)), (F.HWCN, F.NHWC, (3, 0, 1, 2)), (F.HWCN, F.CHWN, (2, 0, 1, 3)),
        (F.CHWN, F.NCHW, (3, 0, 1, 2)), (F.CHWN, F.NHWC, (3, 1, 2, 0)), (F.CHWN, F.HWCN, (1, 2, 0, 3)),
    ],
)  # fmt: skip
def test_the_perm_between_origin_formats(src: Format, dst: Format, perm: tuple[int, ...]) -> None:
    assert permutation(src, dst) == perm


@pytest.mark.parametrize(
    "origin,shape,target,dtype,stored",
    [
        (F.HWCN, (3, 3, 64, 128), F.FRACTAL_Z, D.FLOAT16, (36, 8, 16, 16)),
        (F.HWCN, (7, 7, 3, 64), F.FRACTAL_Z, D.FLOAT16, (49, 4, 16, 16)),
        (F.HWCN, (7, 7, 3, 64), F.FRACTAL_Z_C04, D.FLOAT16, (13, 4, 16, 16)),
        (F.HWCN, (3, 3, 1, 64), F.FRACTAL_Z.with_groups(64), D.FLOAT16, (36, 1, 16, 16)),
        (F.NCHW, (8, 512, 5, 5), F.NC1HWC0, D.FLOAT16, (8, 32, 5, 5, 16)),
        (F.NCHW, (8, 512, 5, 5), F.NC1HWC0, D.INT8, (8, 16, 5, 5, 32)),
        (F.NCHW, (8, 512, 5, 5), F.NC1HWC0, D.INT4, (8, 8, 5, 5, 64)),
        (F.NCHW, (48, 512, 5, 5), F.FRACTAL_Z, D.FLOAT16, (800, 3, 16, 16)),
        (F.NCHW, (48, 512, 5, 5), F.FRACTAL_Z, D.INT8, (400, 3, 16, 32)),
        (F.NCHW, (48, 512, 5, 5), F.FRACTAL_Z.with_groups(16), D.FLOAT16, (12800, 3, 16, 16)),
        (F.ND, (2, 2, 17, 4), F.FRACTAL_NZ, D.FLOAT16, (2, 2, 1, 2, 16, 16)),
        (F.HWCN, (8, 8, 3, 1), F.FRACTAL_Z, D.FLOAT16, (64, 1, 16, 16)),
        (F.HWCN, (1, 1, 1, 2), F.FRACTAL_Z.with_groups(2), D.FLOAT16, (1, 1, 16, 16)),
        (F.ND, (17, 33), F.FRACTAL_Z, D.FLOAT16, (2, 3, 16, 16)),
        (F.ND, (20,), F.FRACTAL_NZ, D.FLOAT16, (2, 1, 16, 16)),
        (F.ND, (20,), F.FRACTAL_ZZ, D.FLOAT16, (1, 2, 16, 16)),
        (F.ND, (3, 20, 40), F.FRACTAL_ZZ, D.FLOAT16, (3, 2, 3, 16, 16)),
        (F.HWCN, (3, 3, 20, 5), F.C1HWNCoC0, D.FLOAT16, (2, 3, 3, 5, 16, 16)),
        (F.NCDHW, (2, 20, 4, 5, 6), F.NDC1HWC0, D.FLOAT16, (2, 4, 2, 5, 6, 16)),
        (F.NCHW, (2, 20, 5, 6), F.NDC1HWC0, D.FLOAT16, (2, 1, 2, 5, 6, 16)),
        (F.DHWCN, (2, 3, 3, 20, 40), F.FRACTAL_Z_3D, D.FLOAT16, (36, 3, 16, 16)),
        (F.DHWNC, (2, 3, 3, 20, 40), F.FRACTAL_Z_3D_TRANSPOSE, D.FLOAT16, (36, 3, 16, 16)),
        (F.DHWNC, (1, 1, 1, 20, 40), F.FRACTAL_Z_3D_TRANSPOSE, D.INT8, (1, 3, 16, 32)),
        (F.NCHW, (20, 3, 5, 6), F.C1HWC0, D.FLOAT16, (2, 5, 6, 16)),
        (F.NCHW, (20, 40, 3, 3), F.FRACTAL_Z_WINO, D.FLOAT16, (3, 2, 2, 9, 8, 16)),
        (F.HWCN, (1, 1, 40, 80), F.FRACTAL_ZN_LSTM, D.FLOAT16, (4, 8, 16, 16)),
        (F.NCHW, (1, 3, 4, 4), F.NC1HWC0_C04, D.FLOAT16, (1, 1, 4, 4, 4)),
        (F.NCHW, (64,), F.NC1HWC0, D.FLOAT16, (1, 4, 1, 1, 16)),
        (F.ND, (16, 33), Format(54), D.FLOAT, (5, 1, 16, 8)),
        (F.NHWC, (2, 4, 130, 100), Format(46), D.UINT8, (2, 16, 192, 100)),
        (F.NCHW, (2, 3, 4, 5), F.NHWC, D.FLOAT, (2, 4, 5, 3)),
        (F.ND, (2, 3), F.NCHW, D.FLOAT, (2, 3)),
        (F.NCHW, (2, 3), F.ND, D.FLOAT, (2, 3)),
        (F.NCHW, (), F.NC1HWC0, D.FLOAT, ()),
        (F.NCHW, (-2,), F.NC1HWC0, D.FLOAT, (-2,)),
        (F.NCHW, (-1, -1, 5, -1), F.NC1HWC0, D.FLOAT16, (-1, -1, 5, -1, 16)),
        (F.NCHW, (64, 3, -1, 7), F.FRACTAL_Z, D.FLOAT16, (-1, 4, 16, 16)),
        (F.NCHW, (-1, 3, 7, 7), F.FRACTAL_Z, D.FLOAT16, (49, -1, 16, 16)),
        (F.NCHW, (8, -1, 3, 3), F.FRACTAL_Z.with_groups(2), D.FLOAT16, (-1, -1, 16, 16)),
        (F.ND, (-1, 20, -1), F.FRACTAL_NZ, D.FLOAT16, (-1, -1, 2, 16, 16)),
    ],
)
def test_storage_shape_on_a_chip_without_fp32_cube(
    origin: Format, shape: tuple[int, ...], target: Format, dtype: DataType, stored: tuple[int, ...]
) -> None:
    assert storage_shape(origin, shape, target, dtype, A) == stored


def test_fp32_filters_have_c0_8_where_the_cube_computes_fp32() -> None:
    desc = to_storage(TensorDesc(D.FLOAT, (3, 3, 64, 128), F.HWCN), F.FRACTAL_Z, B)
    assert desc.shape == (72, 8, 16, 8)
    assert desc.nbytes == 294912


@pytest.mark.parametrize(
    "shape,target,rnn,stored",
    [
        ((48, 80), F.FRACTAL_ZN_RNN, RnnSizes(28, 20), (4, 8, 16, 16)),
        ((20, 80), F.FRACTAL_ZN_RNN, RnnSizes(28, 20), (2, 8, 16, 16)),
        ((7, 80), F.FRACTAL_ZN_RNN, RnnSizes(28, 20), (7, 8, 16, 16)),
        ((44, 80), F.FRACTAL_ZN_RNN, RnnSizes(28, 20, 16), (3, 8, 16, 16)),
        ((80,), F.ND_RNN_BIAS, RnnSizes(28, 20), (128,)),
    ],
)
def test_recurrent_formats_use_the_sizes_of_their_operator(
    shape: tuple[int, ...], target: Format, rnn: RnnSizes, stored: tuple[int, ...]
) -> None:
    assert storage_shape(F.ND, shape, target, D.FLOAT16, A, rnn=rnn) == stored


@pytest.mark.parametrize(
    "origin,shape,target,dtype,kind",
    [
        (F.NC1HWC0, (1, 1, 2, 2, 16), F.NCHW, D.FLOAT16, "145020"),
        (F.ND, (2, 3, 4, 5), F.NC1HWC0, D.FLOAT16, "145020"),
        (F.NCHW, (2, 3, 4, 5), F.FORMAT_RESERVED, D.FLOAT16, "145020"),
        (F.NCHW, (2, 3, 4, 5), F.NC1HWC0, D.UNDEFINED, "145022"),
        (F.NCHW, (2, 3, 4, 5), F.NC1HWC0, D.STRING, "145022"),
        (F.NCHW, (8, 5, 3, 3), F.FRACTAL_Z_C04, D.FLOAT16, "145021"),
        (F.NCHW, (8, 5, 3, 3), F.FRACTAL_Z.with_groups(3), D.FLOAT16, "145021"),
        (F.NCHW, (8, 5, 3, 3), F.NC1HWC0.with_groups(2), D.FLOAT16, "145021"),
        (F.NCDHW, (8, 5, 2, 3, 3), F.NC1HWC0, D.FLOAT16, "145021"),
        (F.NCHW, (1, 2, 3, 4, 5), F.NC1HWC0, D.FLOAT16, "145021"),
        (F.NCHW, (1, 2, -3, 4), F.NC1HWC0, D.FLOAT16, "145021"),
        (F.NCHW, (1, 2), F.FRACTAL_ZN_RNN, D.FLOAT16, "145021"),
        (F.NCHW, (1, 2, 3, 4), Format(5), D.FLOAT16, "145020"),
        (F.HWCN, (2, 1, 40, 80), F.FRACTAL_ZN_LSTM, D.FLOAT16, "145021"),
        (F.ND, (5, 5), Format(46), D.UINT8, "145021"),
    ],
)
def test_impossible_storage_shapes_are_refused_with_ge_number(
    origin: Format, shape: tuple[int, ...], target: Format, dtype: DataType, kind: str
) -> None:
    with pytest.raises(TransferError) as caught:
        storage_shape(origin, shape, target, dtype, A)
    assert (caught.value.code, caught.value.kind) == ("G2002", kind)


def test_groups_are_packed_until_channels_and_filters_fill_their_blocks() -> None:
    packing = group_blocks(channels=512, filters=48, groups=16, c0=16)
    assert packing == (16, 1, 512, 48)


def test_to_storage_sets_the_c0_code_and_keeps_the_origin() -> None:
    desc = to_storage(TensorDesc(D.FLOAT16, (3, 3, 64, 128), F.HWCN), F.FRACTAL_Z, A)
    assert int(desc.format) == 83886084
    assert (desc.origin_shape, desc.origin_format) == ((3, 3, 64, 128), F.HWCN)
    grouped = to_storage(TensorDesc(D.FLOAT16, (3, 3, 4, 8), F.HWCN), F.FRACTAL_Z.with_groups(2), A)
    assert int(grouped.format) == 0x05000204


def test_to_storage_starts_from_the_origin_form_whatever_is_stored() -> None:
    blocked = to_storage(TensorDesc(D.FLOAT16, (2, 20, 5, 6), F.NCHW), F.NC1HWC0, A)
    assert to_storage(blocked, F.NHWC, A).shape == (2, 5, 6, 20)
    assert to_storage(blocked, F.NCHW, A).same_storage(blocked.logical())


def test_to_storage_leaves_scalars_alone() -> None:
    desc = TensorDesc(D.FLOAT16, (), F.NCHW)
    assert to_storage(desc, F.NC1HWC0, A) is desc


def test_ranges_of_grouped_filters_are_dropped() -> None:
    desc = TensorDesc(D.FLOAT16, (-1, 4, 3, 3), F.NCHW, shape_range=((2, 8), (4, 4), (3, 3), (3, 3)))
    assert to_storage(desc, F.FRACTAL_Z.with_groups(2), A).shape_range is None


def test_formats_with_other_axes_have_no_perm() -> None:
    for src, dst in ((F.NCHW, F.NCDHW), (F.ND, F.NCHW)):
        with pytest.raises(TransferError) as caught:
            permutation(src, dst)
        assert caught.value.reason == "FORMAT_PAIR"


def test_to_storage_carries_ranges_to_the_stored_dims() -> None:
    desc = TensorDesc(D.FLOAT16, (-1, 20, -1, 6), F.NCHW, shape_range=((1, 8), (20, 20), (2, -1), (6, 6)))
    stored = to_storage(desc, F.NC1HWC0, A)
    assert stored.shape_range == ((1, 8), (2, 2), (2, -1), (6, 6), (16, 16))
