"""Format transfers against the closed-form index of each element."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from math import gcd, lcm, prod
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from gecli.ir.dtype import DataType
from gecli.ir.format import Format
from gecli.ir.tensor_desc import TensorDesc
from gecli.layout.platform import Platform, platform_of
from gecli.layout.storage_shape import storage_shape, to_storage
from gecli.layout.transfer import KERNEL_PAIRS, transfer

F, D = Format, DataType
A, B = platform_of("Ascend310"), platform_of("Ascend910B1")
Array = NDArray[Any]
Index = tuple[int, ...]

LETTERS = {
    F.NCHW: "NCHW", F.NHWC: "NHWC", F.HWCN: "HWCN", F.CHWN: "CHWN", F.NDHWC: "NDHWC", F.NCDHW: "NCDHW",
    F.DHWCN: "DHWCN", F.DHWNC: "DHWNC",
}  # fmt: skip
WIDTHS = [D.INT8, D.FLOAT16, D.FLOAT, D.DOUBLE, D.COMPLEX128]


def cd(a: int, b: int) -> int:
    return -(-a // b)


# One function a device format: sizes and position by letter, C0 and groups -> multi-index in the stored array.
Place = Callable[[dict[str, int], dict[str, int], int, int], Index]


def place_fractal_z(s: dict[str, int], p: dict[str, int], c0: int, g: int) -> Index:
    if g == 1:
        row = ((p["D"] * cd(s["C"], c0) + p["C"] // c0) * s["H"] + p["H"]) * s["W"] + p["W"]
        return row, p["N"] // 16, p["N"] % 16, p["C"] % c0
    own = s["N"] // g
    e = min(lcm(c0 // gcd(s["C"], c0), 16 // gcd(own, 16)), g)
    c1 = cd(s["C"] * e, c0)
    k, m = divmod(p["N"], own)
    ci, no = (k % e) * s["C"] + p["C"], (k % e) * own + m
    return ((k // e) * c1 + ci // c0) * s["H"] * s["W"] + p["H"] * s["W"] + p["W"], no // 16, no % 16, ci % c0


def place_c04(s: dict[str, int], p: dict[str, int], c0: int, g: int) -> Index:
    q = (p["H"] * s["W"] + p["W"]) * 4 + p["C"]
    return q // c0, p["N"] // 16, p["N"] % 16, q % c0


def place_3d_transpose(s: dict[str, int], p: dict[str, int], c0: int, g: int) -> Index:
    row = ((p["D"] * cd(s["N"], c0) + p["N"] // c0) * s["H"] + p["H"]) * s["W"] + p["W"]
    return row, p["C"] // 16, p["C"] % 16, p["N"] % c0


PLACES: dict[Format, Place] = {
    F.NC1HWC0: lambda s, p, c0, g: (p["N"], p["C"] // c0, p["H"], p["W"], p["C"] % c0),
    F.NC1HWC0_C04: lambda s, p, c0, g: (p["N"], p["C"] // c0, p["H"], p["W"], p["C"] % c0),
    F.NDC1HWC0: lambda s, p, c0, g: (p["N"], p["D"], p["C"] // c0, p["H"], p["W"], p["C"] % c0),
    F.FRACTAL_Z: place_fractal_z,
    F.FRACTAL_Z_3D: place_fractal_z,
    F.FRACTAL_Z_3D_TRANSPOSE: place_3d_transpose,
    F.FRACTAL_Z_C04: place_c04,
    F.C1HWNCoC0: lambda s, p, c0, g: (p["C"] // c0, p["H"], p["W"], p["N"], p["C"] % c0, p["C"] % c0),
}
MATRIX = (F.FRACTAL_NZ, F.FRACTAL_ZZ, *(Format(n) for n in range(50, 55)))


def place(origin: Format, shape: Index, index: Index, device: Format, c0: int) -> Index:
    if device.primary in MATRIX:
        *lead, r, k = index if len(index) > 1 else (0, *index)
        lead = lead if len(index) > 1 else []
        if device.primary == F.FRACTAL_ZZ:
            return (*lead, r // c0, k // c0, r % c0, k % c0)
        return (*lead, k // c0, r // 16, r % 16, k % c0)
    if origin == F.ND:
        origin, shape, index = F.HWCN, (1, 1, *shape), (0, 0, *index)
    letters = LETTERS[origin]
    sizes, position = {"D": 1, **dict(zip(letters, shape))}, {"D": 0, **dict(zip(letters, index))}
    return PLACES[device.primary](sizes, position, c0, device.groups)


def golden(array: Array, src: TensorDesc, dst: TensorDesc) -> Array:
    """The transfer done one element at a time."""
    stored = np.zeros(dst.shape, array.dtype)
    for index in product(*map(range, array.shape)):
        stored[place(src.format, src.shape, index, dst.format, dst.shape[-1])] = array[index]
    return stored


def opaque(shape: Index, dtype: DataType, seed: int = 0) -> Array:
    """Random bit patterns, NaN payloads among them, none of them zero."""
    size = dtype.itemsize * prod(shape)
    raw = np.random.default_rng(seed).integers(1, 256, size, dtype=np.uint8)
    return raw.view(dtype.numpy).reshape(shape)


def same_bits(a: Array, b: Array) -> bool:
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


def origin_to_device() -> Iterator[tuple[Format, Format]]:
    for src, dst in sorted(KERNEL_PAIRS):
        if src.is_origin and not dst.is_origin:
            yield src, dst


def example_shape(origin: Format, device: Format, seed: int = 0) -> Index:
    sizes = {"N": 19 + seed, "C": 4 if device == F.FRACTAL_Z_C04 else 21 - seed, "H": 2, "W": 3, "D": 2}
    if origin == F.ND:
        return (21, 19) if device == F.FRACTAL_Z else (2, 17, 37)
    return tuple(sizes[letter] for letter in LETTERS[origin])


DEVICE_PAIRS = list(origin_to_device())


@pytest.mark.parametrize("origin,device", DEVICE_PAIRS, ids=lambda fmt: fmt.name)
@pytest.mark.parametrize("dtype", WIDTHS, ids=lambda dtype: dtype.name)
def test_every_element_lands_where_the_formula_says_and_padding_is_zero(
    origin: Format, device: Format, dtype: DataType
) -> None:
    if device == F.C1HWNCoC0:
        dtype = {D.DOUBLE: D.FLOAT, D.COMPLEX128: D.FLOAT16}.get(dtype, dtype)
    src = TensorDesc(dtype, example_shape(origin, device), origin)
    dst = to_storage(src, device, B)
    array = opaque(src.shape, dtype)
    assert same_bits(transfer(array, src, dst), golden(array, src, dst))


@pytest.mark.parametrize("origin,device", [p for p in DEVICE_PAIRS if p[::-1] in KERNEL_PAIRS], ids=lambda f: f.name)
@pytest.mark.parametrize("dtype", WIDTHS, ids=lambda dtype: dtype.name)
def test_there_and_back_gives_the_same_bits(origin: Format, device: Format, dtype: DataType) -> None:
    if device == F.C1HWNCoC0:
        dtype = {D.DOUBLE: D.FLOAT, D.COMPLEX128: D.FLOAT16}.get(dtype, dtype)
    src = TensorDesc(dtype, example_shape(origin, device, 3), origin)
    dst = to_storage(src, device, A)
    array = opaque(src.shape, dtype)
    assert same_bits(transfer(transfer(array, src, dst), dst, src), array)


dims = st.integers(1, 20)


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(DEVICE_PAIRS), st.tuples(dims, dims, *[st.integers(1, 3)] * 3), st.sampled_from([A, B]))
def test_any_shape_is_moved_as_the_formula_says(pair: tuple[Format, Format], n: Index, platform: Platform) -> None:
    origin, device = pair
    sizes = {"N": n[0], "C": min(n[1], 4) if device == F.FRACTAL_Z_C04 else n[1], "H": n[2], "W": n[3], "D": n[4]}
    shape = n[:2] if origin == F.ND else tuple(sizes[letter] for letter in LETTERS[origin])
    src = TensorDesc(D.FLOAT, shape, origin)
    dst = to_storage(src, device, platform)
    array = opaque(shape, D.FLOAT)
    moved = transfer(array, src, dst)
    assert same_bits(moved, golden(array, src, dst))
    assert np.count_nonzero(moved.view(np.uint32)) == array.size
    if (device, origin) in KERNEL_PAIRS:
        assert same_bits(transfer(moved, dst, src), array)


@settings(max_examples=40, deadline=None)
@given(
    st.integers(2, 20), st.integers(1, 18), st.integers(1, 6), st.sampled_from([F.HWCN, F.NCHW, F.NHWC]),
    st.sampled_from([D.FLOAT16, D.FLOAT, D.INT8]),
)  # fmt: skip
def test_grouped_filters_move_as_the_formula_says_and_back(
    groups: int, channels: int, own: int, origin: Format, dtype: DataType
) -> None:
    sizes = {"N": groups * own, "C": channels, "H": 2, "W": 1}
    src = TensorDesc(dtype, tuple(sizes[letter] for letter in LETTERS[origin]), origin)
    dst = to_storage(src, F.FRACTAL_Z.with_groups(groups), B)
    array = opaque(src.shape, dtype)
    moved = transfer(array, src, dst)
    assert same_bits(moved, golden(array, src, dst))
    assert same_bits(transfer(moved, dst, src), array)


def test_a_grouped_filter_from_the_documents() -> None:
    src = TensorDesc(D.FLOAT16, (1, 1, 1, 2), F.HWCN)
    dst = to_storage(src, F.FRACTAL_Z.with_groups(2), A)
    moved = transfer(np.array([19, 88], np.float16).reshape(src.shape), src, dst).reshape(-1)
    assert (moved[0], moved[17]) == (19, 88)
    assert np.count_nonzero(moved) == 2


def test_one_group_is_ungrouped() -> None:
    src = TensorDesc(D.FLOAT16, (2, 2, 5, 6), F.HWCN)
    plain, grouped = (to_storage(src, Format(F.FRACTAL_Z | sub << 8), A) for sub in (0, 1))
    array = opaque(src.shape, D.FLOAT16)
    assert plain.shape == grouped.shape
    assert same_bits(transfer(array, src, plain), transfer(array, src, grouped))


def test_nc1hwc0_from_the_documents() -> None:
    src = TensorDesc(D.FLOAT16, (1, 3, 2, 2), F.NCHW)
    moved = transfer(np.arange(1, 13, dtype=np.float16).reshape(src.shape), src, to_storage(src, F.NC1HWC0, A))
    assert moved.shape == (1, 1, 2, 2, 16)
    assert moved[0, 0, :, :, :3].tolist() == [[[1, 5, 9], [2, 6, 10]], [[3, 7, 11], [4, 8, 12]]]
    assert not moved[..., 3:].any()


def test_the_filter_of_the_worked_example() -> None:
    src = TensorDesc(D.FLOAT, (3, 3, 64, 128), F.HWCN)
    dst = to_storage(src, F.FRACTAL_Z, A)
    moved = transfer(np.arange(73728, dtype=np.float32).reshape(src.shape), src, dst).reshape(-1)
    assert dst.shape == (36, 8, 16, 16)
    assert [moved[i] for i in (0, 1, 16, 256, 2048)] == [0, 128, 1, 16, 8192]


def test_few_channel_filters_from_the_documents() -> None:
    src = TensorDesc(D.FLOAT16, (2, 2, 2, 2), F.HWCN)
    moved = transfer(np.arange(1, 17, dtype=np.float16).reshape(src.shape), src, to_storage(src, F.FRACTAL_Z_C04, A))
    assert moved[0, 0, 0].tolist() == [1, 3, 0, 0, 5, 7, 0, 0, 9, 11, 0, 0, 13, 15, 0, 0]
    assert moved[0, 0, 1].tolist() == [2, 4, 0, 0, 6, 8, 0, 0, 10, 12, 0, 0, 14, 16, 0, 0]


PLANES = [F.NCHW, F.NHWC, F.HWCN, F.CHWN]


@pytest.mark.parametrize("src,dst", [(a, b) for a in PLANES for b in PLANES if a != b], ids=lambda f: f.name)
def test_origin_formats_transpose_into_each_other(src: Format, dst: Format) -> None:
    sizes = {"N": 2, "C": 3, "H": 4, "W": 5}
    shapes = [tuple(sizes[letter] for letter in LETTERS[fmt]) for fmt in (src, dst)]
    array = opaque(shapes[0], D.FLOAT16)
    moved = transfer(array, TensorDesc(D.FLOAT16, shapes[0], src), TensorDesc(D.FLOAT16, shapes[1], dst))
    assert moved.shape == shapes[1]
    for index in product(*map(range, shapes[0])):
        position = dict(zip(LETTERS[src], index))
        assert moved.view(np.uint16)[tuple(position[x] for x in LETTERS[dst])] == array.view(np.uint16)[index]


@pytest.mark.parametrize("via", [F.NHWC, F.HWCN, F.CHWN])
def test_going_through_another_origin_format_changes_nothing(via: Format) -> None:
    sizes = {"N": 20, "C": 5, "H": 2, "W": 3}
    nchw, mid, hwcn = (
        TensorDesc(D.FLOAT16, tuple(sizes[x] for x in LETTERS[f]), f) for f in (F.NCHW, via, F.HWCN)
    )  # fmt: skip
    array = opaque(nchw.shape, D.FLOAT16)
    in_mid = transfer(array, nchw, mid)
    in_hwcn = transfer(array, nchw, hwcn)
    if via != F.HWCN:
        assert same_bits(transfer(in_mid, mid, hwcn), in_hwcn)
    blocked = to_storage(nchw, F.FRACTAL_Z, A)
    assert same_bits(transfer(array, nchw, blocked), transfer(in_hwcn, hwcn, blocked))


@pytest.mark.parametrize("origin,device", DEVICE_PAIRS, ids=lambda fmt: fmt.name)
def test_tensors_without_elements_move_in_both_directions(origin: Format, device: Format) -> None:
    shape = (0, *example_shape(origin, device)[1:])
    src = TensorDesc(D.FLOAT16, shape, origin)
    dst = to_storage(src, device, A)
    moved = transfer(np.zeros(shape, np.float16), src, dst)
    assert moved.shape == dst.shape and not moved.any()
    if (device, origin) in KERNEL_PAIRS:
        assert transfer(moved, dst, src).shape == shape


def test_a_vector_is_one_row_of_nz() -> None:
    src = TensorDesc(D.FLOAT16, (20,), F.ND)
    dst = to_storage(src, F.FRACTAL_NZ, A)
    array = opaque((20,), D.FLOAT16)
    moved = transfer(array, src, dst)
    assert dst.shape == (2, 1, 16, 16)
    assert same_bits(moved, golden(array, src, dst))
    assert same_bits(transfer(moved, dst, src), array)


def test_arrays_that_are_not_contiguous_move_like_their_copies() -> None:
    src = TensorDesc(D.FLOAT16, (3, 5, 6, 7), F.NCHW)
    dst = to_storage(src, F.NC1HWC0, A)
    array = opaque((7, 6, 5, 3), D.FLOAT16).transpose(3, 2, 1, 0)
    moved = transfer(array, src, dst)
    assert same_bits(moved, transfer(array.copy(), src, dst))
    strided = np.repeat(moved, 2, axis=0)[::2]
    assert same_bits(transfer(strided, dst, src), np.ascontiguousarray(array))


def test_unpacked_sub_byte_elements_move_when_asked() -> None:
    src = TensorDesc(D.INT4, (70, 5), F.ND)
    dst = to_storage(src, F.FRACTAL_NZ, A)
    array = (np.arange(350) % 15 - 7).astype(D.INT4.numpy).reshape(70, 5)
    moved = transfer(array, src, dst, sub_byte=True)
    assert moved.shape == (1, 5, 16, 64)
    assert np.array_equal(transfer(moved, dst, src, sub_byte=True), array)


@pytest.mark.parametrize("origin,device", DEVICE_PAIRS, ids=lambda fmt: fmt.name)
def test_the_transfer_has_the_shape_that_the_formulas_give(origin: Format, device: Format) -> None:
    src = TensorDesc(D.INT8, example_shape(origin, device, 2), origin)
    dst = to_storage(src, device, A)
    assert transfer(opaque(src.shape, D.INT8), src, dst).shape == storage_shape(origin, src.shape, device, D.INT8, A)
