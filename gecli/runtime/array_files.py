"""Reading .npy and .npz files, which come from anywhere: nothing in them is executed, no size in them is believed."""

from __future__ import annotations

import math
import os
import sys
import zipfile
from io import BytesIO
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from gecli.artifacts.file_access import opened_stream
from gecli.errors import InputError
from gecli.ir.dtype import DataType

Array = NDArray[Any]
NPY_MAGIC = b"\x93NUMPY"
ZIP_MAGIC = b"PK\x03\x04"
PICKLE_MAGICS = (b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05")
SAVE_AGAIN = "save it again: numpy.save(FILE, array)"
SAVE_NPZ_AGAIN = "save it again: numpy.savez(FILE, name=array)"


def read_npy(path: str) -> Array:
    """The array of a .npy file, in the byte order of this machine. Raises InputError."""
    with opened_stream(path) as stream:
        return _array(stream, os.fstat(stream.fileno()).st_size, path, path)


def read_npz(path: str) -> dict[str, Array]:
    """The arrays of an npz file by key. Raises InputError for a file that is none."""
    with opened_stream(path) as stream:
        return _archive(stream, path)


def read_npz_from_stdin() -> dict[str, Array]:
    """The arrays of an npz on standard input. Raises InputError."""
    return _archive(BytesIO(sys.stdin.buffer.read()), "standard input")


def from_portable(array: Array, dtype: DataType) -> Array:
    """An array in `dtype`, when that is a type which numpy lacks and the array holds its bits; others are unchanged.

    gecli writes them as unsigned integers of their width, `numpy.save` as bytes without a type.
    """
    want = dtype.numpy
    if array.dtype == want or want.isbuiltin == 1 or array.dtype.itemsize != want.itemsize:
        return array
    is_raw = array.dtype.type is np.void or array.dtype == np.dtype(f"u{want.itemsize}")
    return array.view(want) if is_raw else array


def _archive(stream: IO[bytes], label: str) -> dict[str, Array]:
    try:
        with zipfile.ZipFile(stream) as archive:
            members = archive.infolist()
            _check_members(members, label)
            found = {each.filename.removesuffix(".npy"): _member(archive, each, label) for each in members}
    except (InputError, MemoryError):
        raise
    except Exception as error:  # zipfile and its decoders have no common base: struct, zlib, lzma, Runtime-, OS-, ...
        raise _unusable(label, "an npz archive", _reason(error), SAVE_NPZ_AGAIN) from error
    return found


def _check_members(members: list[zipfile.ZipInfo], label: str) -> None:
    names = [each.filename for each in members]
    twice = next((name for name in names if names.count(name) > 1), None) if len(set(names)) < len(names) else None
    if twice is not None:
        raise _unusable(label, "an npz archive", f'it holds the member "{twice}" twice', SAVE_NPZ_AGAIN)
    other = next((name for name in names if not name.endswith(".npy")), None)
    if other is not None:
        raise _unusable(label, "an npz archive", f'its member "{other}" is no .npy array', SAVE_NPZ_AGAIN)
    _check_memory(sum(each.file_size for each in members), label)


def _member(archive: zipfile.ZipFile, member: zipfile.ZipInfo, label: str) -> Array:
    with archive.open(member) as stream:
        array = _array(stream, member.file_size, f'{label}, member "{member.filename}"', label)
        stream.read()  # up to the end, where the checksum is compared
        return array


def _array(stream: IO[bytes], size_bytes: int, label: str, file: str) -> Array:
    magic = stream.read(len(NPY_MAGIC))
    if magic != NPY_MAGIC:
        raise _unusable(label, "a .npy array", _what_instead(magic), SAVE_AGAIN, file)
    try:
        shape, is_fortran, dtype, header_bytes = _header(stream)
    except Exception as error:  # numpy evaluates the header: Value-, Type-, Syntax-, Token-, RecursionError, ...
        raise _unusable(
            label, "a .npy array", f"its header cannot be read: {_reason(error)}", SAVE_AGAIN, file
        ) from error
    if dtype.hasobject or dtype.names is not None or dtype.subdtype is not None:
        what = "Python objects, which are never loaded" if dtype.hasobject else "records"
        raise _unusable(label, "a .npy array of numbers", f"its elements are {what}", "save an array of numbers", file)
    wanted = math.prod(shape) * dtype.itemsize
    left = size_bytes - header_bytes
    if wanted > left:
        why = f"{dtype.name} {list(shape)} needs {wanted} bytes of data, {left} are there"
        raise _unusable(label, "a whole .npy array", why, "copy the file again", file)
    _check_memory(wanted, file)
    array = np.zeros(math.prod(shape), dtype)
    if wanted:
        _fill(stream, array.view(np.uint8).data, label, file)
    array = array.reshape(shape, order="F" if is_fortran else "C")
    return array if dtype.isnative else array.astype(dtype.newbyteorder("="))


def _header(stream: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any], int]:
    """Shape, order and type, and the bytes up to the data; `stream` stands behind the magic."""
    version = stream.read(2)
    width = 2 if version == b"\x01\x00" else 4
    if version not in (b"\x01\x00", b"\x02\x00"):
        raise ValueError(f"version {version.hex('.')} is neither 1.0 nor 2.0")
    length = stream.read(width)
    count = int.from_bytes(length, "little")
    if count > 1 << 16:
        raise ValueError(f"it has {count} bytes")
    # numpy.save names a type of one byte that it cannot load itself: float8_e5m2 of ml_dtypes.
    text = length + stream.read(count).replace(b"'<f1'", b"'|V1'")
    parse = np.lib.format.read_array_header_1_0 if width == 2 else np.lib.format.read_array_header_2_0
    shape, is_fortran, dtype = parse(BytesIO(text))
    if any(dim < 0 for dim in shape) or len(shape) > 64:
        raise ValueError(f"shape {shape} cannot be")
    return shape, is_fortran, dtype, len(NPY_MAGIC) + len(version) + len(text)


def _fill(stream: IO[bytes], view: memoryview, label: str, file: str) -> None:
    done = 0
    while done < len(view):
        block = stream.read(min(1 << 24, len(view) - done))
        if not block:
            why = f"{len(view)} bytes of data were expected, {done} came"
            raise _unusable(label, "a whole .npy array", why, "copy the file again", file)
        view[done : done + len(block)] = block
        done += len(block)


def _check_memory(wanted_bytes: int, file: str) -> None:
    """Refuse what cannot be held, before the system ends the process for it."""
    try:
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        memory = 1 << 40
    if wanted_bytes > memory:
        raise InputError(
            "E13015", f"{file} holds more data than this machine has memory", file=file,
            why=f"{wanted_bytes} bytes, the memory has {memory}", do="give a smaller file",
            expected=memory, actual=wanted_bytes,
        )  # fmt: skip


def _what_instead(head: bytes) -> str:
    if not head:
        return "it is empty"
    if head.startswith(ZIP_MAGIC):
        return "it is a zip archive; an npz needs the ending .npz"
    if head.startswith(PICKLE_MAGICS):
        return "it is a pickle, which is never opened because that runs code from the file"
    return f"it begins with {head.hex(' ')}, not with the magic of .npy"


def _reason(error: Exception) -> str:
    return (str(error) or type(error).__name__).splitlines()[0]


def _unusable(label: str, wanted: str, why: str, do: str, file: str = "") -> InputError:
    return InputError("E13005", f"{label} is not {wanted}", why=why, do=do, file=file or label)
