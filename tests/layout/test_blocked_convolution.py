"""Padding neutrality: a convolution on device blocks equals the convolution on the originals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from gecli.ir.dtype import DataType
from gecli.ir.format import Format
from gecli.ir.tensor_desc import TensorDesc
from gecli.layout.platform import platform_of
from gecli.layout.storage_shape import group_blocks, to_storage
from gecli.layout.transfer import transfer

F, D = Format, DataType
A = platform_of("Ascend310")
Array = NDArray[Any]


def conv(x: Array, w: Array, groups: int = 1) -> Array:
    """Valid convolution, NCHW by NCHW, on integers held in int64."""
    n, _, h, width = x.shape
    m, own_c, kh, kw = w.shape
    oh, ow = h - kh + 1, width - kw + 1
    out = np.zeros((n, m, oh, ow), np.int64)
    for f in range(m):
        first = f // (m // groups) * own_c
        for i in range(oh):
            for j in range(ow):
                patch = x[:, first : first + own_c, i : i + kh, j : j + kw]
                out[:, f, i, j] = (patch * w[f]).sum(axis=(1, 2, 3))
    return out


def random(shape: tuple[int, ...], seed: int) -> Array:
    return np.random.default_rng(seed).integers(-9, 10, shape)


def blocked(array: Array, target: Format) -> Array:
    src = TensorDesc(D.INT64, array.shape, F.NCHW)
    return transfer(array, src, to_storage(src, target, A))


def conv_on_blocks(x5: Array, wz: Array, kh: int, kw: int) -> Array:
    """The cube's contraction over C1 and C0: NC1HWC0 by FRACTAL_Z into NC1HWC0."""
    n, c1, h, w, c0 = x5.shape
    z = wz.reshape(c1, kh, kw, wz.shape[1], 16, c0)
    oh, ow = h - kh + 1, w - kw + 1
    out = np.zeros((n, wz.shape[1], oh, ow, 16), np.int64)
    for i in range(kh):
        for j in range(kw):
            out += np.einsum("nchwk,cmrk->nmhwr", x5[:, :, i : i + oh, j : j + ow], z[:, i, j])
    return out


@pytest.mark.parametrize("channels,filters", [(16, 16), (3, 5), (20, 33), (33, 16)])
def test_convolution_on_blocks_is_the_convolution(channels: int, filters: int) -> None:
    x, w = random((2, channels, 5, 4), 1), random((filters, channels, 3, 2), 2)
    result = conv_on_blocks(blocked(x, F.NC1HWC0), blocked(w, F.FRACTAL_Z), 3, 2)
    n, oh, ow = 2, 3, 3
    desc = TensorDesc(D.INT64, (n, filters, oh, ow), F.NCHW)
    assert np.array_equal(transfer(result, to_storage(desc, F.NC1HWC0, A), desc), conv(x, w))


@pytest.mark.parametrize("groups,channels,own", [(4, 3, 2), (20, 1, 1), (3, 16, 5), (5, 2, 16), (6, 4, 8)])
def test_each_grouped_block_is_the_dense_block_diagonal_filter(groups: int, channels: int, own: int) -> None:
    x, w = random((1, groups * channels, 4, 4), 3), random((groups * own, channels, 2, 2), 4)
    packing = group_blocks(channels, groups * own, groups, 16)
    stored = blocked(w, F.FRACTAL_Z.with_groups(groups))
    per_block = stored.reshape(packing.blocks, packing.c1 * 4, *stored.shape[1:])
    result = []
    for block in range(packing.blocks):
        first = block * packing.per_block
        members = min(packing.per_block, groups - first)
        inputs = x[:, first * channels : (first + members) * channels]
        padded = np.zeros((1, packing.c1 * 16, 4, 4), np.int64)
        padded[:, : inputs.shape[1]] = inputs
        out = conv_on_blocks(blocked(padded, F.NC1HWC0), per_block[block], 2, 2)
        result.append(out.transpose(0, 1, 4, 2, 3).reshape(1, -1, 3, 3)[:, : members * own])
    assert np.array_equal(np.concatenate(result, axis=1), conv(x, w, groups))


def test_a_product_on_fractal_nz_blocks_is_the_product() -> None:
    a, b = random((2, 19, 35), 5), random((2, 35, 21), 6)
    descs = [TensorDesc(D.INT64, x.shape, F.ND) for x in (a, b)]
    za, zb = (transfer(x, d, to_storage(d, F.FRACTAL_NZ, A)) for x, d in zip((a, b), descs))
    blocks = np.einsum("lkmru,lnkuv->lnmrv", za, zb)  # K blocks of both sides are 16 wide
    desc = TensorDesc(D.INT64, (2, 19, 21), F.ND)
    assert np.array_equal(transfer(blocks, to_storage(desc, F.FRACTAL_NZ, A), desc), a @ b)
