"""Sizes of variables (variables.md 2.1, runtime.md 1.7) and limits (2.4)."""

from __future__ import annotations

import pytest

from gecli.errors import CompileError, InvalidOption
from gecli.ir.dtype import DataType
from gecli.ir.format import Format
from gecli.ir.op_desc import OpDesc
from gecli.ir.tensor_desc import TensorDesc
from gecli.ir.weight import Inline, Weight
from gecli.variables.limits import GIB, MemoryLimits
from gecli.variables.mem_resource import HbmResource
from gecli.variables.sizes import INT64_MAX, output_size, padded_bytes, padded_size, raw_bytes, span_bytes


@pytest.mark.parametrize(
    ("shape", "dtype", "fmt", "raw", "size", "size_without_padding", "span"),
    [
        ([2, 2, 3, 2], "FLOAT", "ND", 96, 128, 96, 1536),
        ([], "FLOAT", "ND", 4, 64, 32, 1536),
        ([], "BOOL", "ND", 1, 64, 32, 1536),
        ([0, 4], "FLOAT", "ND", 0, 32, 32, 1536),
        ([7], "INT4", "ND", 4, 64, 32, 1536),
        ([9], "UINT1", "ND", 2, 64, 32, 1536),
        ([5], "FLOAT6_E3M2", "ND", 4, 64, 32, 1536),
        ([120], "FLOAT", "ND", 480, 512, 480, 1536),
        ([121], "FLOAT", "ND", 484, 544, 512, 2048),
        ([128], "FLOAT", "ND", 512, 544, 512, 2048),
        ([256], "FLOAT", "ND", 1024, 1056, 1024, 2560),
        ([256], "FLOAT16", "ND", 512, 544, 512, 2048),
        ([256], "HIFLOAT8", "ND", 256, 288, 256, 1536),
        ([1024], "BF16", "ND", 2048, 2080, 2048, 3584),
        ([3], "STRING", "ND", 48, 96, 64, 1536),
        ([8, 3, 16, 16], "FLOAT", "NCHW", 24576, 24608, 24576, 26112),
        ([8, 1, 16, 16, 16], "FLOAT", "NC1HWC0", 131072, 131104, 131072, 132608),
        ([4, 1, 16, 16], "FLOAT", "FRACTAL_Z", 4096, 4128, 4096, 5632),
        ([64, 3, 7, 7], "FLOAT", "NCHW", 37632, 37664, 37632, 38912),
        ([], "INT64", "ND", 8, 64, 32, 1536),
        ([64], "FLOAT", "ND", 256, 288, 256, 1536),
        ([1000, 768], "FLOAT16", "ND", 1536000, 1536032, 1536000, 1537536),
    ],
)
def test_raw_padded_and_span_are_those_of_the_table(
    shape: list[int], dtype: str, fmt: str, raw: int, size: int, size_without_padding: int, span: int
) -> None:
    desc = TensorDesc(DataType[dtype], tuple(shape), Format.parse(fmt))
    assert raw_bytes(desc) == raw
    assert padded_bytes(desc) == size
    assert padded_bytes(desc, 0) == size_without_padding
    assert span_bytes(size) == span


def test_a_size_that_was_never_set_still_takes_the_guards() -> None:
    assert span_bytes(0) == 1024


@pytest.mark.parametrize(
    ("shape", "fmt", "dtype"),
    [
        ((2, -1), "ND", "FLOAT"),
        ((-1, 0), "ND", "FLOAT"),
        ((2,), "NC1C0HWPAD", "FLOAT"),
        ((2,), "NHWC1C0", "FLOAT"),
        ((2,), "CN", "FLOAT"),
        ((2,), "FRACTAL_Z_G", "FLOAT"),
        ((2,), "ND", "UNDEFINED"),
        ((1 << 40, 1 << 40), "ND", "FLOAT"),
        ((1 << 62,), "ND", "FLOAT"),
    ],
)
def test_a_size_that_cannot_be_computed_is_an_error(shape: tuple[int, ...], fmt: str, dtype: str) -> None:
    with pytest.raises(CompileError) as error:
        raw_bytes(TensorDesc(DataType[dtype], shape, Format.parse(fmt)))
    assert (error.value.code, error.value.kind) == ("G2014", "VAR_SIZE_UNKNOWN")


@pytest.mark.parametrize(("shape", "fmt"), [((0, -1), "ND"), ((0,), "CN")])
def test_the_first_dim_that_is_not_positive_decides(shape: tuple[int, ...], fmt: str) -> None:
    assert raw_bytes(TensorDesc(DataType.FLOAT, shape, Format.parse(fmt))) == 0


def test_an_unknown_dim_takes_the_maximum_shape_when_the_descriptor_asks_for_it() -> None:
    desc = TensorDesc(DataType.FLOAT, (2, -1), attrs={"_tensor_no_tiling_mem_type": True, "_tensor_max_shape": (2, 8)})
    assert raw_bytes(desc) == 64
    by_range = TensorDesc(
        DataType.FLOAT, (2, -1), shape_range=((2, 2), (1, 4)), attrs={"_tensor_no_tiling_mem_type": True}
    )
    assert raw_bytes(by_range) == 32
    unbounded = TensorDesc(
        DataType.FLOAT, (2, -1), shape_range=((2, 2), (1, -1)), attrs={"_tensor_no_tiling_mem_type": True}
    )
    with pytest.raises(CompileError):
        raw_bytes(unbounded)


def test_a_raw_size_close_to_the_end_of_int64_is_kept() -> None:
    assert padded_size(INT64_MAX - 10) == INT64_MAX - 10


def test_constant_text_has_the_size_of_its_data() -> None:
    desc = TensorDesc(DataType.STRING, (2,))
    node = OpDesc("c", "Constant", output_descs=[desc], attrs={"value": Weight(desc, Inline(b"0123456789"))})
    assert output_size(node) == 10
    file_constant = OpDesc("f", "FileConstant", output_descs=[desc], attrs={"length": 77})
    assert output_size(file_constant) == 77
    assert output_size(OpDesc("v", "Variable", output_descs=[TensorDesc(DataType.STRING, (3,))])) == 96
    with pytest.raises(CompileError):
        output_size(OpDesc("c", "Constant", output_descs=[desc]))


@pytest.mark.parametrize(
    ("total", "graph_max", "var_max"),
    [
        (1 * GIB, 872415232, 167772160),
        (32 * GIB, 27917287424, 5368709120),
        (64 * GIB, 55834574848, 10737418240),
    ],
)
def test_a_device_is_split_26_to_5(total: int, graph_max: int, var_max: int) -> None:
    limits = MemoryLimits.of_device(total)
    assert (limits.graph_max_bytes, limits.var_max_bytes) == (graph_max, var_max)
    assert limits.var_logic_base == 0x2000000000


def test_more_than_256_gib_of_graph_and_variables_is_refused() -> None:
    assert MemoryLimits.of_device(264 * GIB).use_max_bytes == 274609471488
    with pytest.raises(InvalidOption) as error:
        MemoryLimits.of_device(265 * GIB)
    assert error.value.first.actual == 275649658880
    assert error.value.kind == "OPTION_INVALID"


def test_the_default_limits_are_those_of_the_offline_compile() -> None:
    limits = MemoryLimits()
    assert (limits.graph_max_bytes, limits.var_max_bytes, limits.use_max_bytes, limits.var_logic_base) == (
        27917287424,
        5368709120,
        33285996544,
        137438953472,
    )
    assert MemoryLimits.unconfigured().var_logic_base == 34359738368
    assert MemoryLimits().with_var_max(6 * GIB).var_max_bytes == 6 * GIB


def test_placeholders_count_as_used_but_not_as_variables() -> None:
    hbm = HbmResource()
    assert hbm.allocate(64) == 0
    assert hbm.allocate(64, placeholder=True) == 1536
    assert (hbm.used_bytes, hbm.variable_bytes) == (3072, 1536)


def test_an_allocation_beyond_64_bits_fails_and_takes_nothing() -> None:
    hbm = HbmResource(used_bytes=(1 << 64) - 1024)
    with pytest.raises(CompileError) as error:
        hbm.allocate(64)
    assert error.value.kind == "VAR_MEM_EXHAUSTED"
    assert hbm.used_bytes == (1 << 64) - 1024
