"""Names and places of external weights are those of GE (cache.md 8.3, 8.4)."""

from __future__ import annotations

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gecli.planning.weight_names import (
    BLOCK_BYTES,
    combined_name,
    combined_offsets,
    is_spelling_of,
    is_split_name,
    is_weight_file,
    named_digest,
    spelled,
    split_name,
)

ABC = hashlib.sha256(b"abc").hexdigest()
ABC_SPELLED = "ba7816bf8f1cfea414140de5dae2223b0361a396177a9cb410ff61f2015ad"


def test_a_digest_is_spelled_without_zero_padding() -> None:
    assert spelled(ABC) == ABC_SPELLED
    assert split_name(ABC) == f"weight_{ABC_SPELLED}"


def test_two_digests_may_share_a_spelling() -> None:
    assert spelled("0123" + "11" * 30) == spelled("1203" + "11" * 30)


@given(st.binary(min_size=32, max_size=32))
def test_a_spelling_has_32_to_64_characters_and_fits_its_digest(digest: bytes) -> None:
    assert 32 <= len(spelled(digest.hex())) <= 64
    assert is_spelling_of(spelled(digest.hex()), digest.hex())
    assert is_split_name(split_name(digest.hex()))
    assert named_digest(f"conv_w_{spelled(digest.hex())}") == spelled(digest.hex())


@pytest.mark.parametrize("name", ["weights.bin", "weight_", "weight_XYZ", "weight_" + "a" * 31, "weight_" + "a" * 65])
def test_other_names_hold_no_digest(name: str) -> None:
    assert named_digest(name) == ""
    assert not is_split_name(name)


def test_weight_files_are_known_by_their_names() -> None:
    assert is_weight_file(split_name(ABC))
    assert is_weight_file(combined_name("net"))
    assert not is_weight_file("meta.json")
    assert not is_weight_file(".net_weight_combined.tmp-12-00000000")


def test_weights_in_a_combined_file_begin_at_multiples_of_512() -> None:
    assert combined_offsets([("a", 100), ("b", 512), ("c", 513)]) == {"a": 0, "b": 512, "c": 1024}


def test_equal_weights_lie_at_one_place() -> None:
    assert combined_offsets([("a", 100), ("b", 1), ("a", 100), ("c", 1)]) == {"a": 0, "b": 512, "c": 1024}


@given(st.lists(st.integers(1, 2000), max_size=20))
def test_combined_weights_never_overlap(sizes: list[int]) -> None:
    offsets = combined_offsets([(str(k), size) for k, size in enumerate(sizes)])
    ends = [offsets[str(k)] + size for k, size in enumerate(sizes)]
    assert all(offset % BLOCK_BYTES == 0 for offset in offsets.values())
    assert all(offsets[str(k + 1)] >= end for k, end in enumerate(ends[:-1]))
