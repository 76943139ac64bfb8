"""Which transfers are legal, and with which reason the others are refused."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gecli.ir.dtype import DataType
from gecli.ir.format import Format
from gecli.ir.tensor_desc import TensorDesc
from gecli.layout.platform import platform_of
from gecli.layout.storage_shape import to_storage
from gecli.layout.transfer import KERNEL_PAIRS, ROAD_PAIRS, can_transfer, transfer
from gecli.layout.transfer_error import TransferError

F, D = Format, DataType
A = platform_of("Ascend310")
FILTER = TensorDesc(D.FLOAT16, (3, 3, 4, 32), F.HWCN)
GROUPED = to_storage(FILTER, F.FRACTAL_Z.with_groups(2), A)


def test_a_road_may_use_exactly_the_42_host_transfers() -> None:
    assert len(ROAD_PAIRS) == 42
    assert ROAD_PAIRS < KERNEL_PAIRS


@pytest.mark.parametrize(
    "src,dst",
    [
        (F.HWCN, F.NC1HWC0), (F.FRACTAL_Z, F.CHWN), (F.FRACTAL_Z, F.ND), (F.HWCN, F.FRACTAL_NZ),
        (F.FRACTAL_NZ, F.HWCN), (F.NHWC, F.FRACTAL_Z_C04), (F.FRACTAL_Z_C04, F.NCHW), (F.FRACTAL_Z_3D, F.DHWCN),
        (F.FRACTAL_Z_3D_TRANSPOSE, F.DHWNC), (F.NCDHW, F.NDC1HWC0), (F.NC1HWC0, F.FRACTAL_Z), (F.NCHW, F.NCHW),
    ],
)  # fmt: skip
def test_pairs_without_a_host_transfer_stop_a_road(src: Format, dst: Format) -> None:
    descs = TensorDesc(D.FLOAT16, (1,), src), TensorDesc(D.FLOAT16, (1,), dst)
    assert can_transfer(*descs) == (False, "FORMAT_PAIR")


def test_kernels_can_do_what_roads_must_not_contain() -> None:
    src = TensorDesc(D.FLOAT16, (2, 3, 3, 20, 40), F.DHWCN)
    dst = to_storage(src, F.FRACTAL_Z_3D, A)
    assert can_transfer(src, dst) == (True, "")
    assert can_transfer(dst, src) == (False, "FORMAT_PAIR")
    assert can_transfer(dst, src, road=False) == (True, "")


def test_legal_transfers_of_the_examples() -> None:
    assert can_transfer(FILTER, to_storage(FILTER, F.FRACTAL_Z, A)) == (True, "")
    assert can_transfer(to_storage(FILTER, F.FRACTAL_Z, A), FILTER) == (True, "")
    assert can_transfer(FILTER, GROUPED) == (True, "")
    assert can_transfer(GROUPED, FILTER) == (True, "")


def test_a_grouped_filter_joins_a_road_from_hwcn_only() -> None:
    nchw = TensorDesc(D.FLOAT16, (32, 4, 3, 3), F.NCHW)
    assert can_transfer(nchw, GROUPED) == (False, "GROUPS")
    assert can_transfer(nchw, GROUPED, road=False) == (True, "")
    assert can_transfer(GROUPED, nchw) == (True, "")


BLOCKED = to_storage(FILTER, F.FRACTAL_Z, A)


@pytest.mark.parametrize(
    "src,dst,reason,kind",
    [
        (FILTER.with_dtype(D.FLOAT), BLOCKED, "DTYPE", "145022"),
        (FILTER.with_dtype(D.STRING), BLOCKED.with_dtype(D.STRING), "DTYPE", "145022"),
        (FILTER.with_dtype(D.INT4), BLOCKED.with_dtype(D.INT4), "DTYPE", "145022"),
        (FILTER, replace(BLOCKED, shape=(9, 2, 16, 32)), "C0_MISMATCH", "145021"),
        (FILTER, replace(BLOCKED, shape=(9, 2, 16, 7), format=F.FRACTAL_Z), "C0_MISMATCH", "145021"),
        (FILTER, replace(BLOCKED, shape=(9, 3, 16, 16)), "SHAPE", "145021"),
        (FILTER, replace(BLOCKED, shape=(9, -1, 16, 16)), "SHAPE", "145021"),
        (FILTER.with_shape((3, -1, 4, 32)), BLOCKED, "SHAPE", "145021"),
        (FILTER.with_shape((4, 32)), BLOCKED, "SHAPE", "145021"),
        (FILTER, replace(GROUPED, format=GROUPED.format.with_groups(3)), "GROUPS", "145021"),
        (replace(FILTER, format=F.HWCN.with_groups(4)), GROUPED, "GROUPS", "145021"),
        (FILTER, TensorDesc(D.FLOAT16, (4, 3, 3, 33), F.CHWN), "SHAPE", "145021"),
        (TensorDesc(D.INT32, (3, 3, 4, 32), F.HWCN), TensorDesc(D.INT32, (1, 3, 3, 32, 16, 16), F.C1HWNCoC0),
         "DTYPE", "145022"),
        (TensorDesc(D.INT8, (1 << 21, 1 << 20), F.ND), TensorDesc(D.INT8, (1 << 15, 1 << 17, 16, 32), F.FRACTAL_NZ),
         "SHAPE", "145021"),
        (TensorDesc(D.FLOAT16, (2, 3, 3, 4, 32), F.DHWCN),
         TensorDesc(D.FLOAT16, (18, 2, 16, 16), F.FRACTAL_Z_3D.with_groups(2)), "GROUPS", "145021"),
        (TensorDesc(D.FLOAT16, (8, 32), F.ND), TensorDesc(D.FLOAT16, (1, 2, 16, 16), F.FRACTAL_Z.with_groups(2)),
         "GROUPS", "145021"),
    ],
)  # fmt: skip
def test_the_check_and_the_transfer_refuse_with_the_same_reason(
    src: TensorDesc, dst: TensorDesc, reason: str, kind: str
) -> None:
    assert can_transfer(src, dst, road=False) == (False, reason)
    with pytest.raises(TransferError) as caught:
        transfer(np.zeros(1, np.uint8), src, dst)
    assert (caught.value.reason, caught.value.code, caught.value.kind) == (reason, "G2002", kind)
    assert src.format.name in caught.value.first.where and dst.format.name in caught.value.first.where


def test_data_that_do_not_fill_the_source_are_refused() -> None:
    with pytest.raises(TransferError) as caught:
        transfer(np.zeros(5, np.float16), FILTER, BLOCKED)
    assert (caught.value.kind, caught.value.first.expected, caught.value.first.actual) == ("145000", 1152, 5)


def test_an_error_can_be_rebuilt_from_its_diagnostics() -> None:
    error = TransferError.because("SHAPE", "no")
    assert TransferError.of(error.diagnostics).kind == "145021"
