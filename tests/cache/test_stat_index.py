"""The stat index replaces reading a file only when the file cannot have changed."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from gecli.cache.stat_index import StatIndex, StatRow, numbers_of, read_rows, touch_as_witness, write_rows

OLD_NS = 1_700_000_000_000_000_000


def old_file(path: Path, text: str = "content") -> str:
    path.write_text(text)
    return str(path)


def row_of(path: str, sha256: str, *, made_ns: int, is_witness: bool = False) -> StatRow:
    numbers = numbers_of(path)
    assert numbers is not None
    return StatRow(path, numbers, sha256, made_ns, is_witness)


def test_an_unchanged_file_is_not_read_again(tmp_path: Path) -> None:
    path = old_file(tmp_path / "m")
    stats = StatIndex()
    stats.add(row_of(path, "known", made_ns=time.time_ns() + 3_000_000_000))
    assert stats.sha256(path) == "known"


def test_a_row_made_within_two_seconds_of_a_change_is_not_used(tmp_path: Path) -> None:
    path = old_file(tmp_path / "m")
    stats = StatIndex()
    stats.add(row_of(path, "wrong", made_ns=time.time_ns()))
    assert stats.sha256(path) != "wrong"


def test_a_witness_is_believed_at_once_and_not_after_a_write(tmp_path: Path) -> None:
    path = old_file(tmp_path / "m")
    assert touch_as_witness(path) is not None
    stats = StatIndex()
    stats.add(row_of(path, "known", made_ns=time.time_ns(), is_witness=True))
    assert stats.sha256(path) == "known"
    (tmp_path / "m").write_text("CONTENT")
    assert stats.sha256(path) != "known"


def test_full_verification_reads_every_file(tmp_path: Path) -> None:
    path = old_file(tmp_path / "m")
    stats = StatIndex(trusting=False)
    stats.add(row_of(path, "wrong", made_ns=time.time_ns() + 3_000_000_000))
    assert stats.sha256(path) != "wrong"


@pytest.mark.parametrize("change", ["size", "time", "replace"])
def test_any_change_makes_the_row_useless(change: str, tmp_path: Path) -> None:
    path = old_file(tmp_path / "m")
    stats = StatIndex()
    stats.add(row_of(path, "known", made_ns=time.time_ns() + 3_000_000_000))
    if change == "size":
        (tmp_path / "m").write_text("longer content")
    elif change == "time":
        os.utime(path, ns=(OLD_NS, OLD_NS))
    else:
        os.replace(old_file(tmp_path / "n"), path)
    assert stats.sha256(path) != "known"


@pytest.mark.parametrize("name", ["plain", "with\nnewline", "\udcff-not-utf8"])
def test_rows_survive_writing(name: str, tmp_path: Path) -> None:
    row = StatRow(f"/x/{name}", (1, 2, 3, 4, 5), "ab", 9, True)
    write_rows(str(tmp_path / "rows"), [row])
    assert [each.fields() for each in read_rows(str(tmp_path / "rows"))] == [row.fields()]


def test_a_torn_file_of_rows_counts_as_none(tmp_path: Path) -> None:
    path = tmp_path / "rows"
    write_rows(str(path), [StatRow("/x", (1, 2, 3, 4, 5), "ab", 9)])
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        assert read_rows(str(path)) == []


def test_an_open_file_is_known_by_its_looks_or_read(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"one")
    stats = StatIndex()
    digest = stats.sha256(str(path))
    with open(path, "rb") as stream:
        assert stats.is_content(stream.fileno(), str(path), digest)
        os.utime(path, (1, 1))
        assert stats.is_content(stream.fileno(), str(path), digest)
        path.write_bytes(b"two")
        assert not stats.is_content(stream.fileno(), str(path), digest)
