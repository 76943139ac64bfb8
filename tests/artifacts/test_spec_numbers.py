"""The numbers of data types and formats in an OM are those of the format's description (om-format.md 4)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from gecli.artifacts.om_file import read_om
from gecli.ir.tensor_desc import TensorDesc

from . import spec_om as spec

# serial string: (number of an attribute, number in a descriptor, bits; None: opaque in an OM)
TYPES: dict[str, tuple[int, int, int | None]] = {
    "DT_FLOAT": (0, 1, 32), "DT_FLOAT16": (1, 2, 16), "DT_INT8": (2, 3, 8), "DT_INT32": (3, 7, 32),
    "DT_UINT8": (4, 4, 8), "DT_INT16": (6, 5, 16), "DT_UINT16": (7, 6, 16), "DT_UINT32": (8, 9, 32),
    "DT_INT64": (9, 8, 64), "DT_UINT64": (10, 10, 64), "DT_DOUBLE": (11, 12, 64), "DT_BOOL": (12, 11, 8),
    "DT_STRING": (13, 13, None), "DT_DUAL_SUB_INT8": (14, 14, 8), "DT_DUAL_SUB_UINT8": (15, 15, 8),
    "DT_COMPLEX64": (16, 16, 64), "DT_COMPLEX128": (17, 17, 128), "DT_QINT8": (18, 18, 8), "DT_QINT16": (19, 19, 16),
    "DT_QINT32": (20, 20, 32), "DT_QUINT8": (21, 21, 8), "DT_QUINT16": (22, 22, 16), "DT_RESOURCE": (23, 23, None),
    "DT_STRING_REF": (24, 24, None), "DT_DUAL": (25, 25, None), "DT_VARIANT": (26, 26, None),
    "DT_BFLOAT16": (27, 27, 16),
    "DT_UNDEFINED": (28, 0, None), "DT_INT4": (29, 28, 4), "DT_UINT1": (30, 29, 1), "DT_INT2": (31, 30, 2),
    "DT_UINT2": (32, 31, 2), "DT_COMPLEX32": (33, 32, 32), "DT_HIFLOAT8": (34, 33, 8), "DT_FLOAT8_E5M2": (35, 34, 8),
    "DT_FLOAT8_E4M3FN": (36, 35, 8), "DT_FLOAT8_E8M0": (37, 36, 8), "DT_FLOAT6_E3M2": (38, 37, 6),
    "DT_FLOAT6_E2M3": (39, 38, 6), "DT_FLOAT4_E2M1": (40, 39, 4), "DT_FLOAT4_E1M2": (41, 40, 4),
    "DT_HIFLOAT4": (42, 41, 4),
}  # fmt: skip
FORMAT_NAMES = (  # by number
    "NCHW NHWC ND NC1HWC0 FRACTAL_Z NC1C0HWPAD NHWC1C0 FSR_NCHW FRACTAL_DECONV C1HWNC0 FRACTAL_DECONV_TRANSPOSE "
    "FRACTAL_DECONV_SP_STRIDE_TRANS NC1HWC0_C04 FRACTAL_Z_C04 CHWN DECONV_SP_STRIDE8_TRANS HWCN NC1KHKWHWC0 BN_WEIGHT "
    "FILTER_HWCK LOOKUP_LOOKUPS LOOKUP_KEYS LOOKUP_VALUE LOOKUP_OUTPUT LOOKUP_HITS C1HWNCoC0 MD NDHWC FRACTAL_ZZ "
    "FRACTAL_NZ NCDHW DHWCN NDC1HWC0 FRACTAL_Z_3D CN NC DHWNC FRACTAL_Z_3D_TRANSPOSE FRACTAL_ZN_LSTM FRACTAL_Z_G "
    "FORMAT_RESERVED ALL NULL ND_RNN_BIAS FRACTAL_ZN_RNN NYUV NYUV_A NCL FRACTAL_Z_WINO C1HWC0 FRACTAL_NZ_C0_16 "
    "FRACTAL_NZ_C0_32 FRACTAL_NZ_C0_2 FRACTAL_NZ_C0_4 FRACTAL_NZ_C0_8"
)
FORMATS = FORMAT_NAMES.split()
RESERVED = 40
# What a layout text reads as: the primary number and the sub-format in bits 8 to 23.
TEXTS = {
    "FRACTAL_Z:96": 4 | 96 << 8, "FRACTAL_Z:65535": 4 | 65535 << 8, "FRACTAL_Z:65536": RESERVED,
    "FRACTAL_Z:x": RESERVED, "FRACTAL_Z:": RESERVED, "FRACTAL_Z:-1": RESERVED, "RESERVED": RESERVED,
    "UNDEFINED": RESERVED, "what": RESERVED, "": RESERVED, "MAX": 255,
}  # fmt: skip


@pytest.fixture
def descs(tmp_path: Path) -> Callable[[list[bytes]], list[TensorDesc]]:
    """The descriptors as they read back from the outputs of one node."""

    def read(stored: list[bytes]) -> list[TensorDesc]:
        graph = spec.graph("g", [spec.operator("n", "A", 0, (), {}, (), stored)])
        path = tmp_path / "m.om"
        path.write_bytes(spec.om_narrow([(0, spec.model("m", [graph]))]))
        return read_om(path).model().root.nodes[0].output_descs

    return read


def test_every_data_type_has_its_number_name_and_width(descs: Callable[[list[bytes]], list[TensorDesc]]) -> None:
    found = descs([spec.descriptor(proto, [8]) for _, proto, _ in TYPES.values()])
    for (name, (number, _, bits)), desc in zip(TYPES.items(), found):
        assert (int(desc.dtype), desc.dtype.serial) == (number, name)
        assert bits is None or desc.dtype.bits == bits == desc.nbytes
    assert int(descs([spec.descriptor(4000, [1])])[0].dtype) == 28


def test_every_format_has_its_number_and_name(descs: Callable[[list[bytes]], list[TensorDesc]]) -> None:
    assert len(FORMATS) == 55
    for number, desc in enumerate(descs([spec.descriptor(1, [1], name) for name in FORMATS])):
        assert (int(desc.format), desc.format.name) == (number, FORMATS[number])


@pytest.mark.parametrize("text", TEXTS)
def test_a_layout_text_reads_as_stated(text: str, descs: Callable[[list[bytes]], list[TensorDesc]]) -> None:
    assert int(descs([spec.descriptor(1, [1], text)])[0].format) == TEXTS[text]


def test_the_integer_wins_over_the_text_and_an_attribute_over_the_field(
    descs: Callable[[list[bytes]], list[TensorDesc]],
) -> None:
    attrs = {"format_for_int": spec.attr_i(0x05006004), "__tensor_desc_data_type__": spec.attr_i(33),
             "size": spec.attr_i(96)}  # fmt: skip
    (desc,) = descs([spec.descriptor(1, [1], "ND", attrs, size=32)])
    assert (int(desc.format), desc.format.name, int(desc.dtype), desc.size_bytes) == (
        0x05006004,
        "FRACTAL_Z:96",
        33,
        96,
    )


@pytest.mark.parametrize("dims", [[], [-1, 3], [-2], [0], [1 << 62, 1 << 62]])
def test_dims_of_every_kind_are_kept(dims: list[int], descs: Callable[[list[bytes]], list[TensorDesc]]) -> None:
    assert descs([spec.descriptor(1, dims)])[0].shape == tuple(dims)
