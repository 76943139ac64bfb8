"""Target chips: SoC names, the capabilities that decide storage formats, and C0 for each data type."""

from __future__ import annotations

import re

from gecli.errors import InvalidOption
from gecli.ir.dtype import DataType
from gecli.ir.format import Format
from gecli.layout.transfer_error import C0_MISMATCH, DTYPE, TransferError
from gecli.records import dataclass

DEFAULT_SOC = "Ascend910B1"
CUBE = 16  # M0 = N0 = NI of the matrix unit, on every chip
C0_VALUES = (1, 2, 4, 8, 16, 32, 64, 128, 256)  # what the four-bit code of a format integer can say


@dataclass(frozen=True, slots=True)
class Platform:
    """Capabilities of one SoC. Decisions look at these flags, never at the name."""

    soc: str
    profile: str
    fp32_cube: bool
    bf16: bool
    nd_matmul: bool
    fp32_cube_seeds: bool  # fp32 cube nodes start heavy-format propagation as fp16 ones do
    fp8: bool = False  # FLOAT8 and HIFLOAT8 in the cube
    padding_bytes: int = 32

    def c0_of(self, dtype: DataType) -> int:
        """C0 of `dtype` where neither format nor shape says it. Raises TransferError for types without a size."""
        if dtype is DataType.FLOAT and self.fp32_cube:
            return 8
        return default_c0(dtype)


def default_c0(dtype: DataType) -> int:
    """C0 by element width, as on chips without an fp32 cube. Raises TransferError for types without a size."""
    bits = dtype.bits
    if bits is None or dtype in _SIZELESS:
        raise TransferError.because(DTYPE, f"{dtype.serial} has no element size, so it has no C0")
    # A cube line holds 32 bytes up to two bytes an element; wider elements keep 16 (GE's platform table).
    return 256 // bits if bits in (1, 2, 4, 8) else 16


def resolve_c0(
    fmt: Format, dtype: DataType, platform: Platform | None, storage_shape: tuple[int, ...] | None = None
) -> int:
    """C0 of a tensor in `fmt`: fixed by the format, else its C0 code, else the last stored dim, else the platform.

    Raises TransferError (C0_MISMATCH) when two of the first three disagree.
    """
    fixed, code = _FIXED_C0.get(int(fmt.primary)), _code(fmt)
    if fixed and code and fixed != code:
        raise TransferError.because(C0_MISMATCH, f"{fmt.name} has C0 {fixed}, but its C0 code says {code}")
    said = fixed or code
    if not storage_shape or int(fmt.primary) in _WITHOUT_C0_AXIS:
        if said:
            return said
        return default_c0(dtype) if platform is None else platform.c0_of(dtype)
    last = storage_shape[-1]
    if said and last != said:
        raise TransferError.because(
            C0_MISMATCH, f"{fmt.name} {list(storage_shape)} does not have C0 {said} as its last dim",
            expected=said, actual=last,
        )  # fmt: skip
    if last not in C0_VALUES:
        raise TransferError.because(C0_MISMATCH, f"the last dim of {fmt.name} {list(storage_shape)} is not a C0")
    return last


def platform_of(soc: str) -> Platform:
    """The platform with this SoC name. Raises InvalidOption with the nearest names when there is none."""
    profile = _SOC_PROFILE.get(soc) or _family_profile(soc)
    if profile is None:
        raise _unknown(soc)
    return _platform(soc, profile)


def known_socs() -> tuple[str, ...]:
    """Every listed SoC name, sorted. `platform_of` also accepts the bins of Ascend950."""
    return tuple(sorted(_SOC_PROFILE))


def _platform(soc: str, profile: str) -> Platform:
    modern = profile != "A"
    return Platform(
        soc, profile, fp32_cube=modern, bf16=modern, nd_matmul=modern, fp32_cube_seeds=modern, fp8=profile == "C"
    )


def _code(fmt: Format) -> int | None:
    code = (fmt >> 24) & 0xF
    if code > len(C0_VALUES):
        raise TransferError.because(C0_MISMATCH, f"C0 code {code} of {fmt.name} has no meaning")
    return 1 << (code - 1) if code else None


def _family_profile(soc: str) -> str | None:
    return next((profile for pattern, profile in _FAMILIES if re.fullmatch(pattern, soc)), None)


def _unknown(soc: str) -> InvalidOption:
    import difflib

    by_folded = {name.lower(): name for name in known_socs()}
    near = [by_folded[name] for name in difflib.get_close_matches(soc.lower(), by_folded, n=3, cutoff=0.6)]
    return InvalidOption(
        "E10001",
        f"value {soc!r} for --soc-version is invalid: no SoC has this name",
        option="--soc-version",
        why=f"did you mean {', '.join(near)}?" if near else "known names start with Ascend, for example Ascend910B1",
        do=f"--soc-version={near[0] if near else DEFAULT_SOC}",
        expected=list(near or known_socs()),
        actual=soc,
    )


_SIZELESS = frozenset((DataType.STRING, DataType.STRING_REF, DataType.UNDEFINED))
# FRACTAL_Z_C04 is not here: its "4" is the padded channel count, its C0 is that of the data type.
_FIXED_C0 = {
    int(Format.NC1HWC0_C04): 4,
    int(Format.FRACTAL_NZ_C0_16): 16,
    int(Format.FRACTAL_NZ_C0_32): 32,
    52: 2,  # FRACTAL_NZ_C0_2
    53: 4,  # FRACTAL_NZ_C0_4
    54: 8,  # FRACTAL_NZ_C0_8
}
_WITHOUT_C0_AXIS = frozenset((int(Format.ND_RNN_BIAS), 45, 46))  # 45, 46: NYUV, NYUV_A

_SOC_PROFILE: dict[str, str] = {
    **dict.fromkeys(("Ascend035", "Ascend035A", "Ascend035B"), "A"),
    **dict.fromkeys(("Ascend310", "Ascend610", "Ascend610Lite", "Ascend615"), "A"),
    **dict.fromkeys(("Ascend310B", "Ascend310B1", "Ascend310B2", "Ascend310B3", "Ascend310B4"), "A"),
    **dict.fromkeys(("Ascend310P", "Ascend310P1", "Ascend310P2", "Ascend310P3", "Ascend310P4"), "A"),
    **dict.fromkeys(("Ascend310P5", "Ascend310P7"), "A"),
    **dict.fromkeys(("Ascend910", "Ascend910A", "Ascend910ProA", "Ascend910ProB", "Ascend910PremiumA"), "A"),
    **dict.fromkeys(("Ascend910B", "Ascend910B1", "Ascend910B2", "Ascend910B2C", "Ascend910B3"), "B"),
    **dict.fromkeys(("Ascend910B4", "Ascend910B4-1"), "B"),
    **dict.fromkeys(("Ascend910_93", "Ascend910_9361", "Ascend910_9362", "Ascend910_9372"), "B"),
    **dict.fromkeys(("Ascend910_9381", "Ascend910_9382", "Ascend910_9391", "Ascend910_9392"), "B"),
    **dict.fromkeys(("Ascend950", "Ascend950PR", "Ascend950DT"), "C"),
}
# The bins of Ascend950 are too many to list; they differ in core count and clock only.
_FAMILIES: tuple[tuple[str, str], ...] = ((r"Ascend950([A-Z]{2})?_[0-9a-z]{4}", "C"),)
