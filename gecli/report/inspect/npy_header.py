"""The head of a `.npy` file (NEP 1), made without numpy: its import is most of what a small file costs."""

from __future__ import annotations

import struct

from gecli.ir.dtype import DataType

_MAGIC = b"\x93NUMPY"
_ALIGNED = 64
_LONGEST_V1 = 0xFFFF  # version 1.0 has two bytes for the length of the text, 2.0 has four
_ROOM_TO_GROW = 21  # numpy leaves this many characters for the first dim, so that a file can be appended to
_KINDS = {"float": "f", "int": "i", "uint": "u", "complex": "c"}


def is_opaque(dtype: DataType) -> bool:
    """True for types whose elements have no size of their own: bytes are all that can be said of a tensor of them.

    Of strings a compiler stores a head of 16 bytes each and the texts behind the heads.
    """
    return dtype.bits is None or dtype.numpy_name == "object"


def npy_name(dtype: DataType) -> str:
    """What a description of the file calls the elements that its raw bits or bytes stand for."""
    return dtype.serial.removeprefix("DT_").lower() if is_opaque(dtype) else dtype.numpy_name


def npy_descr(dtype: DataType) -> str:
    """A type that every reader of `.npy` knows: raw bits for those that numpy lacks, bytes for those of no size."""
    name = dtype.numpy_name
    if name == "bool":
        return "|b1"
    size = 1 if is_opaque(dtype) or (dtype.bits or 0) % 8 else dtype.itemsize
    if size not in (1, 2, 4, 8, 16):
        return f"|V{size}"
    kind = _KINDS.get(name.rstrip("0123456789"), "u") if dtype.is_numpy_builtin else "u"
    return f"{'|' if size == 1 else '<'}{kind}{size}"


def npy_header(descr: str, shape: tuple[int, ...]) -> bytes:
    """What stands before the elements, which follow in C order; its length is a multiple of 64."""
    text = f"{{'descr': {descr!r}, 'fortran_order': False, 'shape': {shape!r}, }}"
    if shape:
        text += " " * max(0, _ROOM_TO_GROW - len(str(shape[0])))
    before = len(_MAGIC) + 2 + 2
    length = (
        (before + len(text) + 1) // _ALIGNED + 1
    ) * _ALIGNED - before  # numpy adds a whole 64 where none is needed
    if length <= _LONGEST_V1:
        return _MAGIC + b"\x01\x00" + struct.pack("<H", length) + text.ljust(length - 1).encode() + b"\n"
    length = ((before + 2 + len(text) + 1) // _ALIGNED + 1) * _ALIGNED - before - 2
    return _MAGIC + b"\x02\x00" + struct.pack("<I", length) + text.ljust(length - 1).encode() + b"\n"
