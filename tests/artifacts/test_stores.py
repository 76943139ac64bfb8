"""Stores of device code are listed and never executed; broken ones are refused with the count of good records."""

from __future__ import annotations

import struct

import pytest

from gecli.artifacts.kernel_store import CUSTOM_OP_MAGIC, KERNEL_MAGIC, list_kernels
from gecli.artifacts.so_bins import list_libraries
from gecli.artifacts.tiling import list_tiling
from gecli.errors import InputError


def kernel(name: bytes, data: bytes, magic: int = KERNEL_MAGIC) -> bytes:
    return struct.pack("<III", magic, len(name), len(data)) + name + data


def test_kernels_are_listed_with_their_place() -> None:
    found = list_kernels(kernel(b"te_cast", b"\x7fELFxx") + kernel(b"b", b"fake"))
    assert [(item.name, item.offset_bytes, item.size_bytes, item.is_elf) for item in found] == [
        ("te_cast", 19, 6, True),
        ("b", 38, 4, False),
    ]
    assert list_kernels(b"") == ()
    assert list_kernels(kernel(b"op", b"x", CUSTOM_OP_MAGIC), magic=CUSTOM_OP_MAGIC)[0].name == "op"


@pytest.mark.parametrize(
    "tail",
    [b"x", kernel(b"n", b"d", 1), kernel(b"n", b"data")[:-1], struct.pack("<III", KERNEL_MAGIC, 1 << 31, 1 << 31)],
)
def test_a_broken_record_names_how_many_were_good(tail: bytes) -> None:
    with pytest.raises(InputError, match="behind 1 good records") as caught:
        list_kernels(kernel(b"a", b"b") + tail, offset=100)
    assert caught.value.kind == "bad-kernels" and caught.value.first.offset == 114


def library(name: bytes, vendor: bytes, data: bytes, kind: int = 1) -> bytes:
    return struct.pack("<IHHII", KERNEL_MAGIC, len(name), kind, len(vendor), len(data)) + name + vendor + data


def test_libraries_are_listed() -> None:
    data = struct.pack("<I", 2) + library(b"a.so", b"me", b"x") + library(b"b.so", b"", b"yy", 9)
    found = list_libraries(data)
    assert [(item.name, item.vendor, item.kind_name, item.size_bytes) for item in found] == [
        ("a.so", "me", "op master device", 1),
        ("b.so", "", "UNKNOWN_9", 2),
    ]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        struct.pack("<I", 2) + library(b"a", b"", b"x"),
        struct.pack("<I", 1) + library(b"a", b"", b""),
        struct.pack("<I", 1) + library(b"a", b"", b"x")[:-1],
        struct.pack("<I", 1) + bytes(16),
        struct.pack("<I", 1) + b"x",
    ],
)
def test_broken_library_stores_are_refused(data: bytes) -> None:
    with pytest.raises(InputError) as caught:
        list_libraries(data)
    assert caught.value.kind == "bad-kernels"


def tiling(*records: tuple[int, bytes]) -> bytes:
    body = b"".join(struct.pack("<BI", tag, len(data)) + data for tag, data in records)
    return struct.pack("<III", 0xDD776EFE, 2, len(body)) + body


def test_tiling_data_are_counted() -> None:
    found = list_tiling(tiling((0, bytes(48)), (1, b"abc"), (2, bytes(8))))
    assert (found.version, found.tags) == (2, (0, 1, 2))


@pytest.mark.parametrize("data", [b"", bytes(12), tiling((0, b"abc"))[:-1], tiling((0, b"")) + b"x"])
def test_broken_tiling_data_are_refused(data: bytes) -> None:
    with pytest.raises(InputError):
        list_tiling(data)
