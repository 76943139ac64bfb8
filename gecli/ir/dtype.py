"""Data types: GE's numbers, the numbers of the model protobuf, names, widths and numpy equivalents.

GE (`ge::DataType`) and the model protobuf (`ge.proto.DataType`) number the same types differently; mixing the
two turns float32 into "undefined". The enumeration below carries GE's number; `proto` gives the other one.
"""

from __future__ import annotations

from enum import IntEnum
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np


class DataType(IntEnum):
    """Element type of a tensor; the value is GE's number (attributes such as `dst_type` hold it)."""

    FLOAT = 0
    FLOAT16 = 1
    INT8 = 2
    INT32 = 3
    UINT8 = 4
    INT16 = 6
    UINT16 = 7
    UINT32 = 8
    INT64 = 9
    UINT64 = 10
    DOUBLE = 11
    BOOL = 12
    STRING = 13
    DUAL_SUB_INT8 = 14
    DUAL_SUB_UINT8 = 15
    COMPLEX64 = 16
    COMPLEX128 = 17
    QINT8 = 18
    QINT16 = 19
    QINT32 = 20
    QUINT8 = 21
    QUINT16 = 22
    RESOURCE = 23
    STRING_REF = 24
    DUAL = 25
    VARIANT = 26
    BF16 = 27
    UNDEFINED = 28
    INT4 = 29
    UINT1 = 30
    INT2 = 31
    UINT2 = 32
    COMPLEX32 = 33
    HIFLOAT8 = 34
    FLOAT8_E5M2 = 35
    FLOAT8_E4M3FN = 36
    FLOAT8_E8M0 = 37
    FLOAT6_E3M2 = 38
    FLOAT6_E2M3 = 39
    FLOAT4_E2M1 = 40
    FLOAT4_E1M2 = 41
    HIFLOAT4 = 42

    @property
    def proto(self) -> int:
        """The number of this type in `ge.proto.DataType`."""
        return _PROTO.get(self, int(self))

    @property
    def serial(self) -> str:
        """The name in files and messages, for example `DT_FLOAT`."""
        return "DT_BFLOAT16" if self is DataType.BF16 else f"DT_{self.name}"

    @property
    def short(self) -> str:
        """The name in the text form of the IR, for example `f32`."""
        return _SHORT.get(self) or self.name.lower()

    @property
    def bits(self) -> int | None:
        """Width of one element in bits; None for opaque types, whose size must never be computed."""
        return _BITS.get(self)

    @property
    def is_float(self) -> bool:
        return self in _FLOATS

    @property
    def is_integer(self) -> bool:
        return self in _INTEGERS

    @property
    def itemsize(self) -> int:
        """Whole bytes of one element. Raises ValueError for sub-byte and opaque types."""
        bits = self.bits
        if bits is None or bits % 8:
            raise ValueError(f"{self.serial} has no whole-byte element size")
        return bits // 8

    @property
    def numpy(self) -> np.dtype[Any]:
        """The numpy type that holds the unpacked elements (ml_dtypes for narrow floats and integers).

        Raises ValueError for types that are only moved as raw bits or not at all.
        """
        return _numpy_type(self)

    @property
    def numpy_name(self) -> str:
        """The name of that type, known without numpy; of a type that has none, the serial one in small letters."""
        return _NUMPY_NAME.get(self) or _ML_DTYPES_NAME.get(self) or self.serial.removeprefix("DT_").lower()

    @property
    def is_numpy_builtin(self) -> bool:
        """True when the elements are of a type of numpy itself, not of ml_dtypes or of none."""
        return self in _NUMPY_NAME

    @property
    def has_numpy(self) -> bool:
        """True when `numpy` gives a type (COMPLEX32 needs a recent ml_dtypes); known without numpy."""
        return self in _NUMPY_NAME or self in _ML_DTYPES_NAME

    @staticmethod
    def from_proto(number: int) -> DataType:
        """The type with this number in the model protobuf; UNDEFINED for unknown numbers."""
        return _from_proto().get(number, DataType.UNDEFINED)

    @staticmethod
    def from_numpy(dtype: Any) -> DataType:
        """The type of a numpy array's elements. Raises ValueError for types GE does not have."""
        name = getattr(dtype, "name", None) or str(dtype)
        try:
            return _FROM_NUMPY_NAME[name]
        except KeyError:
            if name == "object" or name.startswith(("str", "bytes")):
                return DataType.STRING
            raise ValueError(f"numpy type {name} has no GE data type") from None

    @staticmethod
    def from_onnx(number: int) -> DataType | None:
        """The type of ONNX `TensorProto.DataType`; None where GE has no such type."""
        return _ONNX.get(number)

    @staticmethod
    def parse(text: str) -> DataType:
        """Read any accepted spelling: `DT_FLOAT`, `FLOAT`, `float32`, `f32`. Raises ValueError."""
        for spelling in (text, text.upper(), text.lower()):
            found = _spellings().get(spelling)
            if found is not None:  # FLOAT is number 0, so truth would not do
                return found
        raise ValueError(f"{text!r} is not a data type")

    def nbytes(self, elements: int) -> int:
        """Packed bytes of `elements` elements. Raises ValueError for opaque types."""
        bits = self.bits
        if bits is None:
            raise ValueError(f"{self.serial} has no element size")
        return (elements * bits + 7) // 8


_D = DataType

# Source: the model protobuf's enumeration; types not listed have the same number in both.
_PROTO: dict[DataType, int] = {
    _D.FLOAT: 1,
    _D.FLOAT16: 2,
    _D.INT8: 3,
    _D.UINT8: 4,
    _D.INT16: 5,
    _D.UINT16: 6,
    _D.INT32: 7,
    _D.INT64: 8,
    _D.UINT32: 9,
    _D.BOOL: 11,
    _D.DOUBLE: 12,
    _D.UNDEFINED: 0,
    **{t: int(t) - 1 for t in _D if t > 28},
}

_SHORT: dict[DataType, str] = {
    _D.FLOAT: "f32",
    _D.FLOAT16: "f16",
    _D.BF16: "bf16",
    _D.DOUBLE: "f64",
    _D.INT8: "i8",
    _D.UINT8: "u8",
    _D.INT16: "i16",
    _D.UINT16: "u16",
    _D.INT32: "i32",
    _D.UINT32: "u32",
    _D.INT64: "i64",
    _D.UINT64: "u64",
    _D.INT4: "i4",
    _D.INT2: "i2",
    _D.UINT2: "u2",
    _D.UINT1: "u1",
    _D.COMPLEX32: "c32",
    _D.COMPLEX64: "c64",
    _D.COMPLEX128: "c128",
    _D.HIFLOAT8: "hif8",
    _D.HIFLOAT4: "hif4",
    _D.FLOAT8_E5M2: "f8e5m2",
    _D.FLOAT8_E4M3FN: "f8e4m3",
    _D.FLOAT8_E8M0: "f8e8m0",
    _D.FLOAT6_E3M2: "f6e3m2",
    _D.FLOAT6_E2M3: "f6e2m3",
    _D.FLOAT4_E2M1: "f4e2m1",
    _D.FLOAT4_E1M2: "f4e1m2",
}

_BITS: dict[DataType, int] = {
    **dict.fromkeys((_D.FLOAT, _D.INT32, _D.UINT32, _D.QINT32, _D.COMPLEX32), 32),
    **dict.fromkeys((_D.FLOAT16, _D.BF16, _D.INT16, _D.UINT16, _D.QINT16, _D.QUINT16), 16),
    **dict.fromkeys((_D.INT8, _D.UINT8, _D.BOOL, _D.QINT8, _D.QUINT8, _D.DUAL_SUB_INT8, _D.DUAL_SUB_UINT8), 8),
    **dict.fromkeys((_D.HIFLOAT8, _D.FLOAT8_E5M2, _D.FLOAT8_E4M3FN, _D.FLOAT8_E8M0), 8),
    **dict.fromkeys((_D.INT64, _D.UINT64, _D.DOUBLE, _D.COMPLEX64, _D.RESOURCE, _D.VARIANT), 64),
    **dict.fromkeys((_D.FLOAT6_E3M2, _D.FLOAT6_E2M3), 6),
    **dict.fromkeys((_D.INT4, _D.FLOAT4_E2M1, _D.FLOAT4_E1M2, _D.HIFLOAT4), 4),
    **dict.fromkeys((_D.INT2, _D.UINT2), 2),
    _D.UINT1: 1,
    _D.COMPLEX128: 128,
    _D.DUAL: 40,
    # A string is a head of two 64-bit words (address, length); the text follows elsewhere.
    _D.STRING: 128,
    _D.STRING_REF: 128,
}

_FLOATS = frozenset(
    (_D.FLOAT, _D.FLOAT16, _D.DOUBLE, _D.BF16, _D.HIFLOAT8, _D.FLOAT8_E5M2, _D.FLOAT8_E4M3FN, _D.FLOAT8_E8M0)
    + (_D.FLOAT6_E3M2, _D.FLOAT6_E2M3, _D.FLOAT4_E2M1, _D.FLOAT4_E1M2, _D.HIFLOAT4)
)
_INTEGERS = frozenset(
    (_D.INT8, _D.INT16, _D.INT32, _D.INT64, _D.UINT8, _D.UINT16, _D.UINT32, _D.UINT64)
    + (_D.INT4, _D.INT2, _D.UINT2, _D.UINT1)
)

_NUMPY_NAME: dict[DataType, str] = {
    _D.FLOAT: "float32",
    _D.FLOAT16: "float16",
    _D.DOUBLE: "float64",
    _D.INT8: "int8",
    _D.INT16: "int16",
    _D.INT32: "int32",
    _D.INT64: "int64",
    _D.UINT8: "uint8",
    _D.UINT16: "uint16",
    _D.UINT32: "uint32",
    _D.UINT64: "uint64",
    _D.BOOL: "bool",
    _D.COMPLEX64: "complex64",
    _D.COMPLEX128: "complex128",
    _D.DUAL_SUB_INT8: "int8",
    _D.DUAL_SUB_UINT8: "uint8",
    _D.QINT8: "int8",
    _D.QINT16: "int16",
    _D.QINT32: "int32",
    _D.QUINT8: "uint8",
    _D.QUINT16: "uint16",
    _D.RESOURCE: "uint64",
    _D.VARIANT: "uint64",
    _D.HIFLOAT8: "uint8",
    _D.STRING: "object",
    _D.STRING_REF: "object",
}

_ML_DTYPES_NAME: dict[DataType, str] = {
    _D.BF16: "bfloat16",
    _D.INT4: "int4",
    _D.UINT1: "uint1",
    _D.INT2: "int2",
    _D.UINT2: "uint2",
    _D.FLOAT8_E5M2: "float8_e5m2",
    _D.FLOAT8_E4M3FN: "float8_e4m3fn",
    _D.FLOAT8_E8M0: "float8_e8m0fnu",
    _D.FLOAT6_E3M2: "float6_e3m2fn",
    _D.FLOAT6_E2M3: "float6_e2m3fn",
    _D.FLOAT4_E2M1: "float4_e2m1fn",
    _D.COMPLEX32: "complex32",
}

_FROM_NUMPY_NAME: dict[str, DataType] = {
    **{name: t for t, name in reversed(_NUMPY_NAME.items())},
    **{name: t for t, name in _ML_DTYPES_NAME.items()},
}
_FROM_NUMPY_NAME.update(int8=_D.INT8, uint8=_D.UINT8, int16=_D.INT16, uint16=_D.UINT16, int32=_D.INT32)
_FROM_NUMPY_NAME.update(uint64=_D.UINT64, object=_D.STRING)

_ONNX: dict[int, DataType] = {
    1: _D.FLOAT,
    2: _D.UINT8,
    3: _D.INT8,
    4: _D.UINT16,
    5: _D.INT16,
    6: _D.INT32,
    7: _D.INT64,
    8: _D.STRING,
    9: _D.BOOL,
    10: _D.FLOAT16,
    11: _D.DOUBLE,
    12: _D.UINT32,
    13: _D.UINT64,
    14: _D.COMPLEX64,
    15: _D.COMPLEX128,
    16: _D.BF16,
    17: _D.FLOAT8_E4M3FN,
    19: _D.FLOAT8_E5M2,
    22: _D.INT4,
    23: _D.FLOAT4_E2M1,
    24: _D.FLOAT8_E8M0,
}


@cache
def _from_proto() -> dict[int, DataType]:
    return {t.proto: t for t in DataType}


@cache
def _spellings() -> dict[str, DataType]:
    table: dict[str, DataType] = {}
    for name, t in _FROM_NUMPY_NAME.items():
        table[name] = t
    for t in DataType:
        table[t.name] = t
        table[f"DT_{t.name}"] = t
        table[t.short] = t
    table.update({"DT_BFLOAT16": _D.BF16, "BFLOAT16": _D.BF16, "DT_FLOAT32": _D.FLOAT, "FLOAT32": _D.FLOAT})
    table.update({"FP32": _D.FLOAT, "FP16": _D.FLOAT16, "HALF": _D.FLOAT16, "RESERVED": _D.UNDEFINED})
    table.update({"HIF8": _D.HIFLOAT8, "FP8E5M2": _D.FLOAT8_E5M2, "FP8E4M3FN": _D.FLOAT8_E4M3FN})
    table.update({"float": _D.FLOAT, "double": _D.DOUBLE, "bool": _D.BOOL, "string": _D.STRING})
    return table


@cache
def _numpy_type(dtype: DataType) -> np.dtype[Any]:
    import numpy as np

    name = _NUMPY_NAME.get(dtype)
    if name is not None:
        return np.dtype(name)
    name = _ML_DTYPES_NAME.get(dtype)
    if name is None:
        raise ValueError(f"{dtype.serial} has no numpy type")
    import ml_dtypes

    scalar = getattr(ml_dtypes, name, None)
    if scalar is None:
        raise ValueError(f"{dtype.serial} needs a newer ml_dtypes (no {name})")
    found: np.dtype[Any] = np.dtype(scalar)
    return found
