"""Storage formats (`ge::Format`): the packed format integer and its names.

A format integer holds the primary format in bits 0-7, the sub format (group count) in bits 8-23 and a C0 code in
bits 24-27, where C0 = 2 ** (code - 1). Equality compares the whole integer; use `primary` where only the layout
family matters. Sub formats 0 and 1 mean the same thing, and 1 is normalised to 0.
"""

from __future__ import annotations

from typing import ClassVar

_NAMES: dict[int, str] = {
    0: "NCHW",
    1: "NHWC",
    2: "ND",
    3: "NC1HWC0",
    4: "FRACTAL_Z",
    5: "NC1C0HWPAD",
    6: "NHWC1C0",
    7: "FSR_NCHW",
    8: "FRACTAL_DECONV",
    9: "C1HWNC0",
    10: "FRACTAL_DECONV_TRANSPOSE",
    11: "FRACTAL_DECONV_SP_STRIDE_TRANS",
    12: "NC1HWC0_C04",
    13: "FRACTAL_Z_C04",
    14: "CHWN",
    15: "DECONV_SP_STRIDE8_TRANS",
    16: "HWCN",
    17: "NC1KHKWHWC0",
    18: "BN_WEIGHT",
    19: "FILTER_HWCK",
    20: "LOOKUP_LOOKUPS",
    21: "LOOKUP_KEYS",
    22: "LOOKUP_VALUE",
    23: "LOOKUP_OUTPUT",
    24: "LOOKUP_HITS",
    25: "C1HWNCoC0",
    26: "MD",
    27: "NDHWC",
    28: "FRACTAL_ZZ",
    29: "FRACTAL_NZ",
    30: "NCDHW",
    31: "DHWCN",
    32: "NDC1HWC0",
    33: "FRACTAL_Z_3D",
    34: "CN",
    35: "NC",
    36: "DHWNC",
    37: "FRACTAL_Z_3D_TRANSPOSE",
    38: "FRACTAL_ZN_LSTM",
    39: "FRACTAL_Z_G",
    40: "FORMAT_RESERVED",
    41: "ALL",
    42: "NULL",
    43: "ND_RNN_BIAS",
    44: "FRACTAL_ZN_RNN",
    45: "NYUV",
    46: "NYUV_A",
    47: "NCL",
    48: "FRACTAL_Z_WINO",
    49: "C1HWC0",
    50: "FRACTAL_NZ_C0_16",
    51: "FRACTAL_NZ_C0_32",
    52: "FRACTAL_NZ_C0_2",
    53: "FRACTAL_NZ_C0_4",
    54: "FRACTAL_NZ_C0_8",
    255: "MAX",
}
_NUMBERS: dict[str, int] = {name: number for number, name in _NAMES.items()}
_NUMBERS.update(RESERVED=40, UNDEFINED=40)
_FOLDED: dict[str, int] = {name.upper(): number for name, number in _NUMBERS.items()}
# FRACTAL_Z_C04 is not here: its 4 is the padded channel count, its C0 that of the data type.
_FIXED_C0 = {12: 4, 50: 16, 51: 32, 52: 2, 53: 4, 54: 8}
_ORIGIN = frozenset((0, 1, 2, 14, 16, 19, 27, 30, 31, 36))


class Format(int):
    """A storage format as GE's packed integer."""

    NCHW: ClassVar[Format]
    NHWC: ClassVar[Format]
    ND: ClassVar[Format]
    NC1HWC0: ClassVar[Format]
    FRACTAL_Z: ClassVar[Format]
    NC1HWC0_C04: ClassVar[Format]
    FRACTAL_Z_C04: ClassVar[Format]
    CHWN: ClassVar[Format]
    HWCN: ClassVar[Format]
    FILTER_HWCK: ClassVar[Format]
    C1HWNCoC0: ClassVar[Format]
    MD: ClassVar[Format]
    NDHWC: ClassVar[Format]
    FRACTAL_ZZ: ClassVar[Format]
    FRACTAL_NZ: ClassVar[Format]
    NCDHW: ClassVar[Format]
    DHWCN: ClassVar[Format]
    NDC1HWC0: ClassVar[Format]
    FRACTAL_Z_3D: ClassVar[Format]
    DHWNC: ClassVar[Format]
    FRACTAL_Z_3D_TRANSPOSE: ClassVar[Format]
    FRACTAL_ZN_LSTM: ClassVar[Format]
    FORMAT_RESERVED: ClassVar[Format]
    ND_RNN_BIAS: ClassVar[Format]
    FRACTAL_ZN_RNN: ClassVar[Format]
    NCL: ClassVar[Format]
    FRACTAL_Z_WINO: ClassVar[Format]
    C1HWC0: ClassVar[Format]
    FRACTAL_NZ_C0_16: ClassVar[Format]
    FRACTAL_NZ_C0_32: ClassVar[Format]

    __slots__ = ()

    @property
    def primary(self) -> Format:
        """This format without groups and C0 code."""
        return Format(self & 0xFF)

    @property
    def groups(self) -> int:
        """The sub format; 1 when the format is ungrouped."""
        return max((self >> 8) & 0xFFFF, 1)

    @property
    def c0(self) -> int | None:
        """C0 from the code or fixed by the format; None when the integer does not say."""
        code = (self >> 24) & 0xF
        return 1 << (code - 1) if code else _FIXED_C0.get(self & 0xFF)

    @property
    def name(self) -> str:
        """Serial string: the primary name, and `:groups` when grouped. The C0 code is not in the string."""
        primary = _NAMES.get(self & 0xFF, "FORMAT_RESERVED")
        return f"{primary}:{self.groups}" if self.groups > 1 else primary

    @property
    def is_origin(self) -> bool:
        """True for layouts a model author uses (NCHW, ND, HWCN...), false for blocked device formats."""
        return (self & 0xFF) in _ORIGIN

    def with_c0(self, c0: int) -> Format:
        """This format with the code of `c0`, a power of two from 1 to 256. Raises ValueError."""
        if c0 not in (1, 2, 4, 8, 16, 32, 64, 128, 256):
            raise ValueError(f"C0 {c0} is not a power of two from 1 to 256")
        return Format((self & 0xFFFFFF) | (c0.bit_length() << 24))

    def with_groups(self, groups: int) -> Format:
        """This format with a group count; 0 and 1 mean ungrouped. Raises ValueError."""
        if not 0 <= groups <= 0xFFFF:
            raise ValueError(f"group count {groups} does not fit 16 bits")
        return Format((self & ~0xFFFF00) | ((groups if groups > 1 else 0) << 8))

    @staticmethod
    def parse(text: str) -> Format:
        """Read a serial string such as `NCHW` or `FRACTAL_Z:2`. Raises ValueError."""
        name, colon, sub = text.partition(":")
        number = _NUMBERS.get(name)
        if number is None:
            number = _FOLDED.get(name.upper())
        if number is None:
            raise ValueError(f"{text!r} is not a storage format")
        if not colon:
            return Format(number)
        if not (sub.isascii() and sub.isdecimal() and len(sub) <= 5) or int(sub) > 0xFFFF:
            raise ValueError(f"{text!r} has no valid group count after the colon")
        return Format(number).with_groups(int(sub))

    def __repr__(self) -> str:
        c0 = (self >> 24) & 0xF
        return f"Format({self.name}{f', C0 {1 << (c0 - 1)}' if c0 else ''})"

    def __str__(self) -> str:
        return self.name


for _number, _name in _NAMES.items():
    setattr(Format, _name, Format(_number))
