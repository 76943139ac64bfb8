"""Numbers as people read them."""

from __future__ import annotations

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def size_text(count: int) -> str:
    """`1.3 MiB`: three digits at most, binary units; bytes are exact."""
    value = float(count)
    for unit in _UNITS:
        if value < 1024 or unit == _UNITS[-1]:
            return f"{count} B" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    raise AssertionError("the last unit always answers")


def counted(count: int, what: str, plural: str = "") -> str:
    """`1 tensor`, `2 tensors`."""
    return f"{count} {what if count == 1 else plural or what + 's'}"


def time_text(milliseconds: float) -> str:
    """`1.42 s` or `87 ms`."""
    if milliseconds >= 1000:
        return f"{milliseconds / 1000:.2f} s"
    return f"{milliseconds:.0f} ms" if milliseconds >= 10 else f"{milliseconds:.2f} ms"


def shape_text(shape: list[int] | tuple[int, ...]) -> str:
    """`[1,3,-1,224]`; unknown dims are -1, as options write them, an unknown rank is `[*]`."""
    if tuple(shape) == (-2,):
        return "[*]"
    return "[" + ",".join("-1" if dim < 0 else str(dim) for dim in shape) + "]"


def dtype_text(serial: str) -> str:
    """`FLOAT` for `DT_FLOAT`."""
    return serial.removeprefix("DT_")
