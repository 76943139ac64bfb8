"""Constants are placed as atc places them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gecli.ir.dtype import DataType
from gecli.ir.tensor_desc import TensorDesc
from gecli.ir.weight import FileSlice, Fill, Inline, Weight
from gecli.planning.weight_layout import lay_out_weights


def weight(data: bytes) -> Weight:
    return Weight(TensorDesc(DataType.INT8, (len(data),)), Inline(data))


@pytest.mark.parametrize(
    ("sizes", "offsets", "total"),
    [
        ([], [], 1024),
        ([1], [512], 1536),
        ([512], [512], 1536),
        ([513, 1], [512, 1536], 2560),
        ([0, 1], [512, 512], 1536),
    ],
)
def test_offsets_begin_at_512_in_steps_of_512(sizes: list[int], offsets: list[int], total: int) -> None:
    layout = lay_out_weights([weight(bytes([k + 1]) * size) for k, size in enumerate(sizes)])
    assert (list(layout.offsets), layout.total_bytes) == (offsets, total)


def test_the_tail_is_that_of_cann_8() -> None:
    layout = lay_out_weights([weight(bytes(1526816 - 512))])
    assert layout.total_bytes == 1527808


def test_equal_bytes_share_a_place_wherever_they_come_from(tmp_path: Path) -> None:
    data = bytes(range(256)) * 40
    path = tmp_path / "w.bin"
    path.write_bytes(b"x" + data + data[:-1] + b"!")
    desc = TensorDesc(DataType.INT8, (len(data),))
    same = Weight(desc, FileSlice(str(path), 1, len(data)))
    other = Weight(desc, FileSlice(str(path), 1 + len(data), len(data)))
    layout = lay_out_weights([weight(data), same, other, Weight(desc, Fill(b"\0", len(data)))])
    first, second, third, fourth = layout.offsets
    assert first == second and len({first, third, fourth}) == 3
    assert len(layout.blocks) == 3


class Negate:
    token = "negate"

    def apply(self, array: Any) -> Any:
        return -array


def test_a_converted_constant_is_not_its_source() -> None:
    plain = Weight.of(np.arange(4, dtype=np.int8))
    turned = plain.then(Negate(), plain.desc)
    layout = lay_out_weights([plain, turned, turned])
    assert layout.offsets[0] != layout.offsets[1] == layout.offsets[2]


@given(st.lists(st.binary(max_size=1100), max_size=12))
def test_places_never_overlap_and_hold_the_bytes(contents: list[bytes]) -> None:
    layout = lay_out_weights([weight(data) for data in contents])
    area = bytearray(layout.total_bytes)
    end = 512
    for place, block in layout.blocks:
        assert place % 512 == 0 and place >= end
        data = b"".join(block.chunks())
        area[place : place + len(data)] = data
        end = place + len(data)
    assert end <= layout.total_bytes and layout.total_bytes % 512 == 0
    for place, data in zip(layout.offsets, contents):
        assert area[place : place + len(data)] == data
