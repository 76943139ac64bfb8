"""SoC names, capabilities, and where C0 comes from."""

from __future__ import annotations

import subprocess
import sys

import pytest

from gecli.errors import InvalidOption
from gecli.ir.dtype import DataType
from gecli.ir.format import Format
from gecli.layout.platform import DEFAULT_SOC, known_socs, platform_of, resolve_c0
from gecli.layout.transfer_error import TransferError


@pytest.mark.parametrize(
    "soc,profile",
    [
        ("Ascend310", "A"), ("Ascend310P3", "A"), ("Ascend310B4", "A"), ("Ascend910", "A"), ("Ascend910A", "A"),
        ("Ascend910ProB", "A"), ("Ascend610", "A"), ("Ascend910B", "B"), ("Ascend910B1", "B"),
        ("Ascend910B4-1", "B"), ("Ascend910_93", "B"), ("Ascend910_9391", "B"), ("Ascend950", "C"),
        ("Ascend950PR_9589", "C"),
    ],
)  # fmt: skip
def test_the_name_decides_the_profile_and_the_profile_the_capabilities(soc: str, profile: str) -> None:
    platform = platform_of(soc)
    modern = profile != "A"
    assert platform.profile == profile
    assert (platform.fp32_cube, platform.bf16, platform.nd_matmul, platform.fp32_cube_seeds) == (modern,) * 4
    assert platform.fp8 is (profile == "C")
    assert platform.padding_bytes == 32


def test_every_known_soc_has_a_platform_and_the_default_is_profile_b() -> None:
    assert list(known_socs()) == sorted(known_socs())
    assert {platform_of(soc).profile for soc in known_socs()} == {"A", "B", "C"}
    assert platform_of(DEFAULT_SOC).profile == "B"


def test_an_unknown_soc_is_refused_with_the_nearest_names() -> None:
    with pytest.raises(InvalidOption) as caught:
        platform_of("ascend910b1")
    assert caught.value.code == "E10001"
    assert "Ascend910B1" in caught.value.first.why
    assert caught.value.first.do == "--soc-version=Ascend910B1"


@pytest.mark.parametrize(
    ("soc", "near"),
    [("Ascend910B9", "Ascend910B4"), ("Ascend310P9", "Ascend310P7"), ("Ascend910_9399", "Ascend910_9392")],
)
def test_a_bin_that_no_list_has_is_refused_with_its_family(soc: str, near: str) -> None:
    with pytest.raises(InvalidOption) as caught:
        platform_of(soc)
    assert near[:-1] in caught.value.first.why


def test_a_name_like_no_other_gets_the_default_as_advice() -> None:
    with pytest.raises(InvalidOption) as caught:
        platform_of("")
    assert caught.value.first.do == f"--soc-version={DEFAULT_SOC}"


@pytest.mark.parametrize(
    "dtype,on_a,on_b",
    [
        (DataType.INT8, 32, 32), (DataType.UINT8, 32, 32), (DataType.FLOAT8_E5M2, 32, 32), (DataType.BOOL, 32, 32),
        (DataType.HIFLOAT8, 32, 32), (DataType.FLOAT16, 16, 16), (DataType.BF16, 16, 16), (DataType.FLOAT, 16, 8),
        (DataType.INT32, 16, 16), (DataType.INT64, 16, 16), (DataType.DOUBLE, 16, 16), (DataType.INT4, 64, 64),
        (DataType.INT2, 128, 128), (DataType.UINT2, 128, 128), (DataType.UINT1, 256, 256),
    ],
)  # fmt: skip
def test_c0_follows_the_element_width(dtype: DataType, on_a: int, on_b: int) -> None:
    assert platform_of("Ascend310").c0_of(dtype) == on_a
    assert platform_of("Ascend910B1").c0_of(dtype) == on_b


@pytest.mark.parametrize("dtype", [DataType.STRING, DataType.UNDEFINED])
def test_types_without_a_size_have_no_c0(dtype: DataType) -> None:
    with pytest.raises(TransferError) as caught:
        platform_of("Ascend310").c0_of(dtype)
    assert caught.value.kind == "145022"


@pytest.mark.parametrize(
    "fmt,dtype,shape,c0",
    [
        (Format.NC1HWC0_C04, DataType.FLOAT16, None, 4),
        (Format.FRACTAL_NZ_C0_32, DataType.FLOAT16, None, 32),
        (Format(54), DataType.FLOAT16, None, 8),
        (Format.FRACTAL_Z_C04, DataType.FLOAT16, None, 16),
        (Format.NC1HWC0.with_c0(32), DataType.FLOAT16, None, 32),
        (Format.NC1HWC0, DataType.FLOAT16, (1, 1, 2, 2, 32), 32),
        (Format.NC1HWC0, DataType.FLOAT, None, 8),
        (Format.NC1HWC0.with_c0(16), DataType.FLOAT, (1, 1, 2, 2, 16), 16),
    ],
)
def test_c0_is_fixed_by_the_format_else_its_code_else_the_shape_else_the_platform(
    fmt: Format, dtype: DataType, shape: tuple[int, ...] | None, c0: int
) -> None:
    assert resolve_c0(fmt, dtype, platform_of("Ascend910B1"), shape) == c0


@pytest.mark.parametrize(
    "fmt,shape",
    [
        (Format.NC1HWC0_C04.with_c0(16), None),
        (Format.NC1HWC0.with_c0(16), (1, 1, 2, 2, 8)),
        (Format.NC1HWC0, (1, 1, 2, 2, 7)),
        (Format(3 | 12 << 24), None),
    ],
)
def test_contradicting_c0_is_a_mismatch(fmt: Format, shape: tuple[int, ...] | None) -> None:
    with pytest.raises(TransferError) as caught:
        resolve_c0(fmt, DataType.FLOAT16, platform_of("Ascend310"), shape)
    assert (caught.value.reason, caught.value.kind) == ("C0_MISMATCH", "145021")


def test_platforms_and_storage_shapes_need_no_numpy() -> None:
    code = "import sys, gecli.layout.storage_shape, gecli.layout.transforms; print('numpy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
