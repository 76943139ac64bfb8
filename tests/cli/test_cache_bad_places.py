"""Every cache command in a directory that is missing, closed, read-only or no cache: one message, the right status."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.cli.bad_files import as_ordinary_user, check_message, contents, gecli_in, make
from tests.conftest import REPOSITORY

# The words, and the status in a read-only directory that is in order.
COMMANDS = {
    "ls": ("cache ls", 0),
    "gc": ("cache gc --all", 5),
    "gc dry": ("cache gc --all --dry-run", 0),
    "verify": ("cache verify", 0),
    "stats": ("cache stats", 0),
    "stats zero": ("cache stats --zero", 5),
    "why": ("cache why m.onnx -o m --graph-key k", 0),
    "confirm": ("cache confirm k STEM", 5),
    "path": ("cache path k", 0),
    "export": ("cache export k -o k.tar", 0),
    "import": ("cache import other.tar", 5),
}


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a cache and an archive of something that is not in it."""
    folder = tmp_path_factory.mktemp("filled")
    shutil.copy(REPOSITORY / "samples/digits/digits.onnx", folder / "m.onnx")
    words = ("compile", "m.onnx", "-o", "m", "--graph-key")
    for line in (
        (*words, "other", "--cache-dir", "c", "--cache-create"),
        ("cache", "export", "other", "--cache-dir", "c", "-o", "other.tar"),
        ("cache", "gc", "--all", "--cache-dir", "c"),
        (*words, "k", "--cache-dir", "c"),
    ):
        done = gecli_in(folder, *line)
        assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture
def work(filled: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(filled, tmp_path / "work"))


def line(name: str, work: Path, directory: str = "c") -> list[str]:
    stem = next((work / "c").glob("k_*.om")).stem
    return [*COMMANDS[name][0].replace("STEM", stem).split(), "--cache-dir", directory]


@pytest.mark.parametrize("name", COMMANDS)
def test_a_directory_that_is_missing_or_no_directory_is_exit_2(name: str, work: Path) -> None:
    (work / "file").write_text("")
    before = contents(work)
    for directory in ("nowhere", "file", "file/below"):
        text = check_message(gecli_in(work, *line(name, work, directory)), 2)
        assert text.startswith(f"error[E13026]: the cache directory {directory} does not exist")
    assert contents(work) == before


@pytest.mark.parametrize("name", COMMANDS)
def test_a_directory_that_cannot_be_read_is_one_message(name: str, work: Path) -> None:
    words = line(name, work)
    (work / "c").chmod(0)
    try:
        done = gecli_in(work, *words, prepare=as_ordinary_user)
    finally:
        (work / "c").chmod(0o755)
    check_message(done, 2)


@pytest.mark.parametrize("name", COMMANDS)
def test_a_read_only_directory_serves_what_only_reads(name: str, work: Path) -> None:
    words, status = line(name, work), COMMANDS[name][1]
    cache = work / "c"
    before = contents(cache)
    folders = [cache, *(path for path in cache.rglob("*") if path.is_dir())]
    for path in folders:
        path.chmod(0o555)
    try:
        done = gecli_in(work, *words, prepare=as_ordinary_user)
    finally:
        for path in folders:
            path.chmod(0o755)
    if status:
        check_message(done, status)
    else:
        assert (done.returncode, "error" in done.stderr) == (0, False), done.stderr
    assert contents(cache) == before


@pytest.mark.parametrize("name", ["gc", "confirm", "import"])
def test_nothing_is_written_into_a_directory_of_other_files(name: str, work: Path) -> None:
    (work / "mine").mkdir()
    (work / "mine/model.om").write_bytes(b"IMOD")
    text = check_message(gecli_in(work, *line(name, work, "mine")), 2)
    assert "mine is not a compile cache" in text
    assert contents(work / "mine").keys() == {"model.om"}


@pytest.mark.parametrize(
    "kind", ["missing", "empty", "directory", "unreadable", "pipe", "endless device", "noise", "gzip", "pytorch zip"]
)
def test_an_archive_that_is_none_is_exit_3(kind: str, work: Path) -> None:
    name = make(kind, work / "bad.tar")
    before = contents(work / "c")
    words = ("cache", "import", name, "--cache-dir", "c")
    check_message(gecli_in(work, *words, prepare=as_ordinary_user), 3)
    assert contents(work / "c") == before
