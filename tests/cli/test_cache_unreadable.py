"""Files of a cache that a user may not read are no damage: every command says io-error, and none takes them away."""

from __future__ import annotations

import json
import os
import shutil
import time
from pathlib import Path

import pytest

from tests.cli.bad_files import as_ordinary_user, gecli_in
from tests.conftest import REPOSITORY

TRAIN = str(REPOSITORY / "samples/train/conv_train.json")
COMPILE = (TRAIN, "-o", "t", "--train", "--graph-key", "k", "--external-weight", "split", "--cache-dir", "cache")
FILES = ("k_*.om", "k_*.gecli.json", "k_*.rdcpkt", "k.idx", "weight/weight_*")
AGE_S = 2 * 86400


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("filled")
    assert gecli_in(directory, "compile", *COMPILE, "--cache-create").returncode == 0
    return directory


@pytest.fixture
def home(filled: Path, tmp_path: Path) -> Path:
    """A directory with a cache whose files are all old."""
    shutil.copytree(filled, tmp_path / "home")
    for path in (tmp_path / "home").rglob("*"):
        os.utime(path, (time.time() - AGE_S,) * 2)
    return tmp_path / "home"


def gecli(home: Path, *words: str) -> tuple[int, str, str]:
    done = gecli_in(home, *words, prepare=as_ordinary_user)
    return done.returncode, done.stdout, done.stderr


def files(home: Path) -> set[str]:
    return {path.name for path in (home / "cache").rglob("*") if path.is_file() and ".gecli" not in path.parts}


def close(home: Path, pattern: str) -> None:
    for path in (home / "cache").glob(pattern):
        path.chmod(0)


def states(home: Path) -> set[str]:
    _, text, _ = gecli(home, "cache", "ls", "--cache-dir", "cache", "--json")
    return {row["state"] for row in json.loads(text)["entries"]}


def kinds(home: Path, *more: str) -> set[str]:
    _, text, _ = gecli(home, "cache", "verify", "--cache-dir", "cache", "--json", *more)
    return {row["kind"] for row in json.loads(text)["problems"]}


@pytest.mark.parametrize(
    ("pattern", "is_known"),
    [*((pattern, True) for pattern in FILES), ("k_*.om", False), ("k_*.rdcpkt", False)],
)
def test_what_cannot_be_read_is_io_error_everywhere_and_stays(pattern: str, is_known: bool, home: Path) -> None:
    if not is_known:
        for path in (home / "cache").glob("*.gecli.json"):
            path.unlink()
    before = files(home)
    close(home, pattern)
    is_seen = pattern != "k_*.rdcpkt"  # at a glance only its size matters
    assert states(home) == ({"io-error"} if is_seen else {"ok" if is_known else "recovered"})
    assert kinds(home) == {"io-error"}
    code, out, err = gecli(home, "cache", "gc", "--cache-dir", "cache")
    assert (code, "remove  k_" in out) == (0, False)
    assert ("was left alone" in err) == is_seen
    gecli(home, "cache", "verify", "--cache-dir", "cache", "--repair")
    gecli(home, "cache", "gc", "--cache-dir", "cache", "--broken")
    gecli(home, "cache", "gc", "--cache-dir", "cache", "--orphans", "--grace", "0")
    gecli(home, "compile", *COMPILE)
    assert before <= files(home)
    for path in (home / "cache").rglob("*"):
        path.chmod(0o644 if path.is_file() else 0o755)
    assert "om-corrupt" not in kinds(home)


@pytest.mark.parametrize("pattern", FILES)
def test_why_says_io_error(pattern: str, home: Path) -> None:
    close(home, pattern)
    code, out, _ = gecli(home, "cache", "why", *COMPILE)
    assert (code, "io_error" in out) == (1, True)


def test_an_entry_that_no_index_names_stays_while_it_cannot_be_read(home: Path) -> None:
    (home / "cache" / "k.idx").unlink()
    before = files(home)
    close(home, "k_*.gecli.json")
    code, out, err = gecli(home, "cache", "gc", "--cache-dir", "cache")
    assert (code, out.splitlines()[-1], "cannot be read (io-error)" in err) == (0, "removed 0, freed 0 bytes", True)
    assert before <= files(home)


def test_entries_of_another_tool_stay_while_their_index_cannot_be_read(home: Path) -> None:
    for path in (home / "cache").glob("*.gecli.json"):
        path.unlink()
    before = files(home)
    close(home, "k.idx")
    code, out, err = gecli(home, "cache", "gc", "--cache-dir", "cache")
    assert (code, out, "key k was left alone" in err) == (0, "removed 0, freed 0 bytes\n", True)
    assert before <= files(home)


MANY = ("a", "b", "c")


@pytest.fixture
def keys(home: Path) -> Path:
    for key in MANY:
        words = (TRAIN, "-o", "t", "--train", "--graph-key", key, "--cache-dir", "cache")
        assert gecli(home, "compile", *words)[0] == 0
    return home


def test_one_lock_that_cannot_be_used_leaves_one_key(keys: Path) -> None:
    close(keys, "b.lock")
    code, out, err = gecli(keys, "cache", "gc", "--cache-dir", "cache", "--all", "--grace", "0")
    assert (code, "key b was left alone: its lock cannot be used" in err) == (5, True)
    assert [f"remove  {key}_" in out for key in MANY] == [True, False, True]
    assert [bool(list((keys / "cache").glob(f"{key}_*.om"))) for key in MANY] == [False, True, False]


def test_a_lock_that_cannot_be_used_is_no_failure_where_nothing_goes(keys: Path) -> None:
    (keys / "cache" / "b.idx").unlink()  # its entry is adopted
    close(keys, "b.lock")
    for path in (keys / "cache").glob("c_*.om"):
        path.write_bytes(b"")
    code, out, err = gecli(keys, "cache", "gc", "--cache-dir", "cache")
    assert (code, "key b was left alone: its lock cannot be used" in err) == (0, True)
    assert ("remove  c_" in out, "b_" in out) == (True, False)


def test_an_index_that_cannot_be_read_leaves_one_key(keys: Path) -> None:
    close(keys, "b.idx")
    code, _, err = gecli(keys, "cache", "gc", "--cache-dir", "cache", "--all", "--grace", "0")
    assert (code, "key b was left alone" in err) == (5, True)
    assert [bool(list((keys / "cache").glob(f"{key}_*.om"))) for key in MANY] == [False, True, False]
