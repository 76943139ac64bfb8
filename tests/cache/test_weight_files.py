"""What a cache entry says about its external weights, and how they are looked at (cache.md 4.2, 8.6)."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gecli.cache.sidecar import Sidecar
from gecli.cache.weight_files import (
    BadWeightRow,
    WeightRange,
    damaged_weight,
    weight_dir,
    weight_files_of,
    weights_of,
    weights_of_sidecar,
)

DATA = b"0123456789"
ROW = WeightRange("weight_x", 0, 10, hashlib.sha256(DATA).hexdigest(), "w")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    found = tmp_path / "weight"
    found.mkdir()
    (found / "weight_x").write_bytes(DATA)
    return found


def sidecar(*rows: Any) -> Sidecar:
    return Sidecar({"weights": list(rows)})


def test_rows_of_a_sidecar_come_back() -> None:
    assert weights_of_sidecar(sidecar(ROW.as_json())) == [ROW]
    assert weights_of("unused", "unused", sidecar(ROW.as_json())) == [ROW]
    assert weights_of_sidecar(Sidecar({})) == []


def test_a_row_names_a_file_inside_its_directory() -> None:
    assert weights_of_sidecar(sidecar({**ROW.as_json(), "file": "/etc/weight_x"})) == [ROW]


@pytest.mark.parametrize(
    "changes",
    [{"file": ".."}, {"file": "a/"}, {"file": "a\0b"}, {"offset": -1}, {"length": True}, {"sha256": None}, {"node": 3}],
)
def test_rows_that_cannot_be_are_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(BadWeightRow):
        weights_of_sidecar(sidecar({**ROW.as_json(), **changes}))


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)  # a busy machine
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=5),
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(ROW._fields), inner, max_size=5),
    )
)
def test_any_member_gives_rows_or_a_refusal(value: Any) -> None:
    try:
        rows = weights_of_sidecar(Sidecar({"weights": value}))
    except BadWeightRow:
        return
    assert all("/" not in row.file and row.offset >= 0 and row.length >= 0 for row in rows)


def test_files_have_the_size_of_their_last_range() -> None:
    rows = [ROW, ROW._replace(offset=512), ROW._replace(file="a")]
    assert weight_files_of(rows) == {"a": 10, "weight_x": 522}


def test_whole_weights_have_no_damage(folder: Path) -> None:
    assert weight_dir(str(folder.parent)) == str(folder)
    assert damaged_weight(str(folder), [ROW], hashed=True) is None


def test_a_missing_file_is_named(folder: Path) -> None:
    assert damaged_weight(str(folder), [ROW._replace(file="gone")]) == ("weights_missing", "gone")
    assert damaged_weight(str(folder / "none"), [ROW]) == ("weights_missing", "weight_x")


def test_a_short_file_is_seen_without_reading_it(folder: Path) -> None:
    reason, evidence = damaged_weight(str(folder), [ROW._replace(offset=1)]) or ("", "")
    assert (reason, evidence) == ("weights_corrupt", "weight_x has 10 bytes, 11 are needed")


def test_a_changed_file_is_seen_when_it_is_read(folder: Path) -> None:
    (folder / "weight_x").write_bytes(DATA[::-1])
    assert damaged_weight(str(folder), [ROW]) is None
    assert (damaged_weight(str(folder), [ROW], hashed=True) or ("", ""))[0] == "weights_corrupt"


def test_a_link_out_of_the_directory_is_refused(folder: Path) -> None:
    (folder.parent / "outside").write_bytes(DATA)
    os.symlink(folder.parent / "outside", folder / "link")
    assert (damaged_weight(str(folder), [ROW._replace(file="link")]) or ("", ""))[0] == "weights_unsafe"


def test_a_link_inside_the_directory_and_to_the_directory_are_followed(folder: Path) -> None:
    os.symlink("weight_x", folder / "link")
    os.symlink(folder, folder.parent / "elsewhere")
    assert damaged_weight(str(folder.parent / "elsewhere"), [ROW._replace(file="link")], hashed=True) is None


def test_a_pipe_is_no_weight_file(folder: Path) -> None:
    os.mkfifo(folder / "pipe")
    assert (damaged_weight(str(folder), [ROW._replace(file="pipe")]) or ("", ""))[0] == "weights_unsafe"
