"""Weights appended in a shared directory go again with the compile that fails, unless somebody uses them by then."""

from __future__ import annotations

import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path

import pytest

from gecli.artifacts.publish import handed_over, publish_bytes, published_together, take_over
from gecli.artifacts.weight_meta import locked_file, locked_meta
from gecli.artifacts.weight_writer import append_combined
from gecli.errors import OutputError
from gecli.planning.weight_names import COMBINED
from tests.artifacts.test_weight_writer import read, weights_of
from tests.conftest import REPOSITORY


class Fails(Exception):
    pass


def state(folder: Path) -> dict[str, tuple[bytes, int]]:
    times = {"meta.json"}  # that of a combined file is the time when it was shortened
    return {
        path.name: (path.read_bytes(), path.stat().st_mtime_ns if path.name in times else 0)
        for path in sorted(folder.iterdir())
    }


@contextmanager
def largest_file(size_bytes: int) -> Iterator[None]:
    old = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, old[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, old)
        signal.signal(signal.SIGXFSZ, handler)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    append_combined(str(tmp_path / "w"), "net", weights_of(COMBINED, b"old"))
    return tmp_path / "w"


@pytest.mark.parametrize("stem", ["net", "other"])
def test_a_block_that_fails_leaves_the_directory_as_it_was(folder: Path, stem: str) -> None:
    before = state(folder)
    with pytest.raises(Fails), published_together():
        append_combined(str(folder), stem, weights_of(COMBINED, b"one", b"old", stem=stem))
        append_combined(str(folder), "net", weights_of(COMBINED, b"two", b"one"))
        append_combined(str(folder), "net", weights_of(COMBINED, b"one"))
        raise Fails
    assert state(folder) == before


def test_directories_that_were_made_go_too(tmp_path: Path) -> None:
    with pytest.raises(Fails), published_together():
        append_combined(str(tmp_path / "a/b"), "net", weights_of(COMBINED, b"one"))
        raise Fails
    assert not list(tmp_path.iterdir())


def test_an_inner_block_that_fails_takes_back_its_own_only(folder: Path) -> None:
    one = weights_of(COMBINED, b"one")
    with published_together():
        append_combined(str(folder), "net", one)
        before = state(folder)
        with pytest.raises(Fails), published_together():
            append_combined(str(folder), "net", weights_of(COMBINED, b"two", b"one"))
            raise Fails
        assert state(folder) == before
    assert read(folder, one[0]) == b"one"


@pytest.mark.parametrize("other", [b"one", b"two"])
def test_what_another_compile_uses_by_then_stays(folder: Path, other: bytes) -> None:
    theirs = weights_of(COMBINED, other)
    with pytest.raises(Fails), published_together():
        append_combined(str(folder), "net", weights_of(COMBINED, b"one"))
        process = get_context("fork").Process(target=append_combined, args=(str(folder), "net", theirs))
        process.start()
        process.join(30)
        assert process.exitcode == 0
        raise Fails
    again = weights_of(COMBINED, b"one", other)
    size = (folder / "net_weight_combined").stat().st_size
    append_combined(str(folder), "net", again)
    assert (folder / "net_weight_combined").stat().st_size == size
    assert [read(folder, each) for each in again] == [b"one", other]


def test_a_file_that_is_in_place_keeps_its_weights(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second rename fails: the first file may be an OM that names them."""
    weights = weights_of(COMBINED, b"one")
    with pytest.raises(OutputError), published_together():
        append_combined(str(folder), "net", weights)
        publish_bytes(folder / "a", b"a")
        publish_bytes(folder / "c", b"c")
        (folder / "c").mkdir()
    assert read(folder, weights[0]) == b"one"


@pytest.mark.parametrize("is_turned", [False, True])
def test_what_two_processes_handed_over_is_taken_back_in_any_order(folder: Path, is_turned: bool) -> None:
    before = state(folder)
    with pytest.raises(Fails), published_together():
        handed = []
        for word in (b"one", b"two"):
            append_combined(str(folder), "net", weights_of(COMBINED, word))
            handed.append(handed_over())
        for each in handed[::-1] if is_turned else handed:
            take_over(*each)
        raise Fails
    assert state(folder) == before


@pytest.mark.parametrize("room", [0, 1, 700, 2000])
def test_a_full_disk_takes_back_what_was_appended(folder: Path, tmp_path: Path, room: int) -> None:
    before = state(folder)
    with largest_file(512 + room), pytest.raises(OutputError):
        append_combined(str(folder), "net", weights_of(COMBINED, b"x" * 600, b"y" * 3000))
    assert state(folder) == before
    with largest_file(room), pytest.raises(OutputError):
        append_combined(str(tmp_path / "new/w"), "net", weights_of(COMBINED, b"x" * 600, b"y" * 3000))
    assert not (tmp_path / "new").exists()


def test_a_full_disk_leaves_the_records_that_were_there(folder: Path) -> None:
    before = (folder / "meta.json").read_bytes()
    with (
        largest_file(len(before) + 20),
        pytest.raises(OSError, match="large"),
        locked_meta(str(folder)) as (meta, save),
    ):
        meta.record("0" * 64, "w/net_weight_combined", 512)
        save()
    assert (folder / "meta.json").read_bytes() == before


WAITS = """
import sys
from gecli.artifacts.weight_meta import locked_meta
with locked_meta(sys.argv[1], timeout_s=20) as (meta, save):
    meta.record("ab", "x", 0)
    save()
"""


def test_who_waited_for_a_file_that_was_taken_away_gets_the_new_one(tmp_path: Path) -> None:
    with pytest.raises(Fails), locked_file(str(tmp_path)):
        peer = subprocess.Popen([sys.executable, "-c", WAITS, str(tmp_path)], cwd=REPOSITORY)
        time.sleep(0.3)  # let it open the file
        raise Fails
    assert peer.wait(30) == 0
    with locked_meta(str(tmp_path)) as (meta, _):
        assert meta.files == {"ab": "x"}
