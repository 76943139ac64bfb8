"""Array files are untrusted: each damaged, hostile or foreign one is refused with one message, and nothing is run."""

from __future__ import annotations

import os
import pickle
import struct
import zipfile
from collections.abc import Callable
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest

from gecli.errors import InputError
from gecli.runtime.array_files import read_npy, read_npz


def npy(array: np.ndarray) -> bytes:
    buffer = BytesIO()
    np.save(buffer, array, allow_pickle=True)
    return buffer.getvalue()


def with_header(text: str, data: bytes = b"") -> bytes:
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text.encode() + data


def npz(*members: tuple[str, bytes], method: int = zipfile.ZIP_STORED) -> bytes:
    buffer = BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as archive:
        for name, data in members:
            with pytest.warns(UserWarning) if name in archive.namelist() else _nothing():
                archive.writestr(name, data)
    return buffer.getvalue()


class _nothing:
    def __enter__(self) -> None: ...
    def __exit__(self, *error: object) -> None: ...


class Bomb:
    """A pickle of it writes a file when it is opened."""

    def __reduce__(self) -> tuple[Callable[..., object], tuple[str]]:
        return os.mkdir, ("pickle-was-opened",)


HUGE = f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({1 << 50},), }}\n"
GOOD = npy(np.arange(6, dtype=np.float32))


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "it is empty"),
        (b"\x93NUM", "not with the magic"),
        (b"<!DOCTYPE html>", "not with the magic"),
        (pickle.dumps(Bomb()), "it is a pickle"),
        (npy(np.array([Bomb()], dtype=object)), "Python objects"),
        (npy(np.zeros(3, dtype=[("a", "f4"), ("b", "O")])), "Python objects"),
        (npy(np.zeros(3, dtype=[("a", "f4")])), "records"),
        (npz(("a.npy", GOOD)), "it is a zip archive"),
        (GOOD[:20], "its header cannot be read"),
        (GOOD[:-1], "24 bytes of data, 23 are there"),
        (GOOD[:6] + b"\x09\x00" + GOOD[8:], "version 09.00"),
        (with_header(HUGE, bytes(100)), "100 are there"),
        (with_header("(" * 300), "its header cannot be read"),
        (with_header("{'descr': 'nonsense', 'fortran_order': False, 'shape': (1,)}\n"), "its header cannot be read"),
        (with_header("{'descr': '<f4', 'fortran_order': False, 'shape': (-4,)}\n"), "cannot be"),
        (with_header("{'descr': '<f4', 'fortran_order': False, 'shape': (1,)"), "its header cannot be read"),
        (b"\x93NUMPY\x02\x00" + struct.pack("<I", 1 << 30), "it has 1073741824 bytes"),
    ],
)
def test_a_bad_npy_is_refused_with_a_reason(
    data: bytes, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("x.npy").write_bytes(data)
    with pytest.raises(InputError) as caught:
        read_npy("x.npy")
    assert why in caught.value.first.reason()
    assert (caught.value.exit_status, caught.value.first.file) == (3, "x.npy")
    assert os.listdir() == ["x.npy"]


def _broken(data: bytes, old: bytes, new: bytes) -> bytes:
    assert old in data
    return data.replace(old, new)


COMPRESSED = npz(("a.npy", GOOD), method=zipfile.ZIP_DEFLATED)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "not a zip file"),
        (b"PK\x03\x04" + bytes(40), "not a zip file"),
        (GOOD, "not a zip file"),
        (npz(("a.npy", GOOD), ("a.npy", GOOD)), 'the member "a.npy" twice'),
        (npz(("a.npy", GOOD), ("readme.txt", b"hi")), '"readme.txt" is no .npy array'),
        (npz(("../../etc/passwd", b"hi")), '"../../etc/passwd" is no .npy array'),
        (npz(("a.npy", npy(np.array([Bomb()], dtype=object)))), "Python objects"),
        (npz(("a.npy", with_header(HUGE, bytes(100)))), "100 are there"),
        (npz(("a.npy", pickle.dumps(Bomb()))), "it is a pickle"),
        (_broken(npz(("a.npy", GOOD)), GOOD[-4:], b"\xff\xff\xff\xff"), "Bad CRC-32"),
        (COMPRESSED[:35] + b"\x07" + COMPRESSED[36:], "invalid block type"),
    ],
)
def test_a_bad_npz_is_refused_with_a_reason(
    data: bytes, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("x.npz").write_bytes(data)
    with pytest.raises(InputError) as caught:
        read_npz("x.npz")
    assert why in caught.value.first.reason()
    assert (caught.value.exit_status, caught.value.first.file) == (3, "x.npz")
    assert os.listdir() == ["x.npz"]


@pytest.mark.parametrize("flag", [0x1, 0x20, 0x40])
def test_an_encrypted_npz_is_refused(flag: int, tmp_path: Path) -> None:
    data = bytearray(npz(("a.npy", GOOD)))
    directory = data.rindex(b"PK\x01\x02")
    data[6] |= flag
    data[directory + 8] |= flag
    (tmp_path / "x.npz").write_bytes(data)
    with pytest.raises(InputError, match="not an npz archive"):
        read_npz(str(tmp_path / "x.npz"))


def test_a_zip_bomb_is_refused_before_it_is_unpacked(tmp_path: Path) -> None:
    data = bytearray(npz(("a.npy", GOOD), method=zipfile.ZIP_DEFLATED))
    directory = data.rindex(b"PK\x01\x02")
    one = bytes(data[directory : data.rindex(b"PK\x05\x06")])
    one = one[:24] + struct.pack("<I", 0xFFFF_FFF0) + one[28:]
    count = 4096  # 16 TiB
    names = [f"{k:05x}.npy" for k in range(count)]
    entries = b"".join(
        one[:28] + struct.pack("<H", len(name)) + one[30:46] + name.encode() for name in names
    )  # every entry points at the same member
    end = struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, count, count, len(entries), directory, 0)
    (tmp_path / "x.npz").write_bytes(bytes(data[:directory]) + entries + end)
    with pytest.raises(InputError, match="more data than this machine has memory"):
        read_npz(str(tmp_path / "x.npz"))


def test_names_that_look_like_paths_stay_names(tmp_path: Path) -> None:
    (tmp_path / "x.npz").write_bytes(npz(("../../up.npy", GOOD), ("/abs.npy", GOOD)))
    assert list(read_npz(str(tmp_path / "x.npz"))) == ["../../up", "/abs"]


@pytest.mark.parametrize(
    "array",
    [
        np.arange(6, dtype=">f4").reshape(2, 3),
        np.asfortranarray(np.arange(24, dtype=np.int64).reshape(2, 3, 4)),
        np.array(3.5, np.float16),
        np.zeros((0, 3), np.float32),
        np.array([1 + 2j], ">c16"),
        np.array([True, False]),
        np.array(["a", "bc"]),
    ],
    ids=["big-endian", "fortran", "scalar", "empty", "complex", "bool", "text"],
)
def test_every_order_of_bytes_and_axes_gives_the_same_values(array: np.ndarray, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", array)
    np.savez_compressed(tmp_path / "x.npz", a=array)
    for found in (read_npy(str(tmp_path / "x.npy")), read_npz(str(tmp_path / "x.npz"))["a"]):
        assert found.dtype.isnative
        assert found.shape == array.shape
        assert np.array_equal(found, array)


@pytest.mark.parametrize("kind", ["missing", "directory", "pipe", "device", "loop"])
def test_what_is_no_regular_file_is_refused_without_waiting(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "x"
    if kind == "directory":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "device":
        path = Path("/dev/zero")
    elif kind == "loop":
        path.symlink_to("x")
    for read in (read_npy, read_npz):
        with pytest.raises(InputError) as caught:
            read(str(path))
        assert caught.value.code == "E13001"
        assert caught.value.first.place() and caught.value.first.why and caught.value.first.do
