"""The head of a `.npy` file made without numpy is the one that numpy makes."""

from __future__ import annotations

import io

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gecli.ir.dtype import DataType
from gecli.report.inspect.npy_header import npy_descr, npy_header

DESCRS = ("<f4", "<f2", "<f8", "|i1", "|u1", "<i8", "|b1", "<c16")


def numpy_header(descr: str, shape: tuple[int, ...]) -> bytes:
    buffer = io.BytesIO()
    np.lib.format.write_array_header_1_0(buffer, {"descr": descr, "fortran_order": False, "shape": shape})
    return buffer.getvalue()


@given(st.sampled_from(DESCRS), st.lists(st.integers(0, 1 << 62), max_size=40).map(tuple))
def test_the_bytes_are_those_of_numpy(descr: str, shape: tuple[int, ...]) -> None:
    assert npy_header(descr, shape) == numpy_header(descr, shape)


def test_a_shape_of_many_dims_has_the_longer_form() -> None:
    shape = (1,) * 30_000
    head = npy_header("|u1", shape)
    stream = io.BytesIO(head)
    assert np.lib.format.read_magic(stream) == (2, 0)
    assert np.lib.format.read_array_header_2_0(stream, max_header_size=1 << 20) == (shape, False, np.dtype("u1"))
    assert stream.read() == b"" and len(head) % 64 == 0


@pytest.mark.parametrize("dtype", DataType)
def test_the_type_is_numpys_or_raw_bits(dtype: DataType) -> None:
    found = np.dtype(npy_descr(dtype))
    try:
        item = dtype.numpy
    except ValueError:
        assert found == (np.dtype("V5") if dtype is DataType.DUAL else np.dtype(f"u{found.itemsize}"))
        return
    if item.isbuiltin == 1 and item.kind in "biufc":
        assert found == item and npy_descr(dtype) == np.lib.format.dtype_to_descr(item)
    else:
        assert found == np.dtype("u1") if item.kind == "O" else found == np.dtype(f"u{item.itemsize}")
    assert dtype.numpy_name == item.name
