"""Pending conversions of weights."""

from __future__ import annotations

import numpy as np
import pytest

from gecli.ir.dtype import DataType
from gecli.ir.format import Format
from gecli.ir.tensor_desc import TensorDesc
from gecli.ir.weight import Weight
from gecli.layout.cast import cast
from gecli.layout.platform import platform_of
from gecli.layout.storage_shape import to_storage
from gecli.layout.transfer import transfer
from gecli.layout.transfer_error import TransferError
from gecli.layout.transforms import (
    CastTransform,
    FormatTransform,
    ReshapeTransform,
    TransposeTransform,
    conversion,
    convert,
    convert_weight,
)

F, D = Format, DataType
A, B = platform_of("Ascend310"), platform_of("Ascend910B1")


def weight(shape: tuple[int, ...], fmt: Format, dtype: DataType = D.FLOAT) -> Weight:
    array = np.random.default_rng(1).integers(-100, 100, shape).astype(dtype.numpy)
    return Weight.of(array, TensorDesc(dtype, shape, fmt))


def test_a_filter_is_cast_and_then_blocked() -> None:
    source = weight((3, 3, 20, 40), F.HWCN)
    half = source.desc.with_dtype(D.FLOAT16)
    target = to_storage(half, F.FRACTAL_Z, A)
    result = convert_weight(source, target)
    assert [type(t) for t in result.transforms] == [CastTransform, FormatTransform]
    assert result.desc == target
    assert result.nbytes == target.nbytes
    assert np.array_equal(result.numpy(), transfer(cast(source.numpy(), D.FLOAT, D.FLOAT16), half, target))


@pytest.mark.parametrize(
    "shape,fmt,target",
    [
        ((20, 5, 3, 3), F.NCHW, F.FRACTAL_Z), ((20, 5, 3, 3), F.NCHW, F.NC1HWC0),
        ((20, 3, 3, 4), F.NHWC, F.FRACTAL_Z_C04),
        ((3, 3, 5, 20), F.CHWN, F.FRACTAL_Z), ((64,), F.NCHW, F.NC1HWC0), ((20, 33), F.ND, F.FRACTAL_NZ),
        ((16, 16, 16, 16), F.HWCN, F.FRACTAL_NZ), ((4, 3, 2, 3, 3), F.NCDHW, F.FRACTAL_Z_3D),
        ((4, 3, 2, 3, 3), F.NCDHW, F.NDC1HWC0), ((20, 33), F.ND, F.FRACTAL_Z), ((2, 3, 4, 5), F.NCHW, F.NHWC),
        ((64,), F.NCHW, F.NHWC), ((2, 3), F.NCHW, F.ND), ((3, 3, 20, 4), F.HWCN, F.C1HWNCoC0),
        ((8, 2, 3, 3), F.NCHW, F.FRACTAL_Z.with_groups(4)), ((), F.ND, F.FRACTAL_NZ),
    ],
)  # fmt: skip
def test_every_weight_reaches_its_storage_and_comes_back(shape: tuple[int, ...], fmt: Format, target: Format) -> None:
    source = weight(shape, fmt)
    stored = convert_weight(source, to_storage(source.desc, target, B))
    assert stored.desc == to_storage(source.desc, target, B)
    assert stored.numpy().shape == stored.shape
    if target.is_origin and target != F.ND:
        assert stored.numpy().size == source.numpy().size
    back = convert_weight(stored, source.desc)
    assert back.desc == source.desc
    assert np.array_equal(back.numpy(), source.numpy())


def test_square_matrices_are_blocked_as_they_lie() -> None:
    source = weight((16, 16, 16, 16), F.HWCN)
    target = to_storage(source.desc, F.FRACTAL_NZ, A)
    plain = TensorDesc(D.FLOAT, source.shape, F.ND)
    assert np.array_equal(convert_weight(source, target).numpy(), transfer(source.numpy(), plain, target))


def test_one_device_format_is_reached_from_another_through_the_origin() -> None:
    source = weight((20, 5, 3, 3), F.NCHW)
    blocked = convert_weight(source, to_storage(source.desc, F.FRACTAL_Z, A))
    target = to_storage(blocked.desc, F.NC1HWC0, A)
    direct = convert_weight(source, target)
    assert np.array_equal(convert_weight(blocked, target).numpy(), direct.numpy())


def test_a_weight_that_is_already_there_gets_no_transform() -> None:
    source = weight((2, 3), F.ND)
    assert convert_weight(source, source.desc).transforms == ()
    assert convert_weight(source, TensorDesc(D.FLOAT, (3, 2))).transforms == (ReshapeTransform((3, 2)),)


def test_a_weight_that_cannot_get_there_is_refused() -> None:
    source = weight((8, 5, 3, 3), F.NCHW)
    with pytest.raises(TransferError) as caught:
        convert_weight(source, TensorDesc(D.FLOAT, (9, 1, 16, 16), F.FRACTAL_Z_C04))
    assert caught.value.reason == "FORMAT_PAIR"
    with pytest.raises(TransferError):
        convert_weight(source, TensorDesc(D.FLOAT, (7,)))
    with pytest.raises(TransferError):
        convert_weight(source, source.desc.with_dtype(D.STRING))


def test_tokens_tell_conversions_apart() -> None:
    desc = TensorDesc(D.FLOAT16, (3, 3, 20, 40), F.HWCN)
    tokens = [
        CastTransform(D.FLOAT, D.FLOAT16).token,
        CastTransform(D.FLOAT, D.BF16).token,
        ReshapeTransform((2, 3)).token,
        ReshapeTransform((23,)).token,
        TransposeTransform((2, 3)).token,
        *(FormatTransform(desc, to_storage(desc, f, A)).token for f in (F.FRACTAL_Z, F.FRACTAL_Z.with_groups(2))),
    ]
    assert len(set(tokens)) == len(tokens)
    assert CastTransform(D.FLOAT, D.FLOAT16).token == "cast(0,1)"


def test_transposes_give_contiguous_arrays() -> None:
    result = TransposeTransform((1, 0)).apply(np.arange(6).reshape(2, 3))
    assert result.flags.c_contiguous and result.tolist() == [[0, 3], [1, 4], [2, 5]]


@pytest.mark.parametrize(
    "shape,fmt,target",
    [
        ((3, 3, 5, 20), F.HWCN, F.NC1HWC0), ((3, 3, 5, 20), F.CHWN, F.FRACTAL_Z), ((64,), F.NCHW, F.NC1HWC0),
        ((20, 4, 3, 3), F.NCHW, F.FRACTAL_Z_C04), ((3, 3, 5, 20), F.HWCN, F.FRACTAL_NZ), ((5, 6), F.ND, F.FRACTAL_Z),
        ((2, 3, 4, 5), F.NCHW, F.NCHW),
    ],
)  # fmt: skip
def test_arrays_reach_any_storage_and_come_back_to_their_logical_form(
    shape: tuple[int, ...], fmt: Format, target: Format
) -> None:
    desc = TensorDesc(D.FLOAT, shape, fmt)
    stored = to_storage(desc, target, A)
    array = np.arange(np.prod(shape), dtype=np.float32).reshape(shape)
    blocked = convert(array, desc, stored)
    assert blocked.shape == stored.shape
    assert np.array_equal(convert(blocked, stored, stored.logical()), array)
    assert bool(conversion(desc, stored)) is (target != fmt)


def test_dims_that_fit_no_axis_are_refused() -> None:
    source = weight((1, 2, 3, 4, 5), F.NCHW)
    with pytest.raises(TransferError):
        convert_weight(source, TensorDesc(D.FLOAT, (1, 1, 3, 4, 16), F.NC1HWC0))


def test_a_device_weight_whose_shape_fits_no_origin_is_refused() -> None:
    stored = TensorDesc(D.FLOAT, (1, 1, 2, 2, 16), F.NC1HWC0, origin_shape=(1, 40, 2, 2), origin_format=F.NCHW)
    with pytest.raises(TransferError) as caught:
        convert_weight(Weight.of(np.zeros(stored.shape, np.float32), stored), stored.logical())
    assert caught.value.reason == "FORMAT_PAIR"
