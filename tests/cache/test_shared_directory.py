"""`"shared": true` in cache.conf: all that is written into the directory is the group's, whatever the umask."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from gecli.cli.app import run
from tests.conftest import REPOSITORY
from tests.jit.dynamic_models import MODELS

DIGITS = str(REPOSITORY / "samples/digits/digits.onnx")
CACHE = ("--cache-dir", "c")


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    make, classes = MODELS["chosen_rows"]
    (tmp_path / "rows.onnx").write_bytes(make())
    np.savez(tmp_path / "rows.npz", **classes[0])  # type: ignore[arg-type]  # names of inputs
    (tmp_path / "c").mkdir()
    (tmp_path / "c").chmod(0o2770)
    monkeypatch.chdir(tmp_path)
    before = os.umask(0o077)
    yield tmp_path
    os.umask(before)


def not_of_the_group(directory: Path) -> list[str]:
    """What the group may not change: files that cannot be read and written, directories that do not pass setgid on."""
    found = []
    for path in directory.rglob("*"):
        mode = path.stat().st_mode
        wanted = 0o2070 if stat.S_ISDIR(mode) else 0o060
        if mode & wanted != wanted:
            found.append(f"{path.relative_to(directory)} {stat.S_IMODE(mode):o}")
    return sorted(found)


def conf(place: Path, more: str = "") -> None:
    (place / "c/cache.conf").write_text(f'{{"gecli": {{"shared": true{more}}}}}')
    (place / "c/cache.conf").chmod(0o664)


@pytest.mark.parametrize("mode", ["none", "split", "combined"])
def test_a_compile_gives_every_file_to_the_group(place: Path, mode: str) -> None:
    conf(place, ', "max_age": "30d"')
    for key in ("a", "b", "b"):
        words = ("-o", f"{key}_{mode}", *CACHE, "--graph-key", key, "--external-weight", mode)
        assert run(["compile", DIGITS, *words]) == 0
    assert (place / "c/weight/meta.json").exists() == (mode != "none")
    assert (place / "c/.gecli").exists() and not_of_the_group(place / "c") == []


def test_slices_are_the_groups(place: Path) -> None:
    conf(place)
    for _ in range(2):
        assert run(["run", "--jit", "rows.onnx", "-i", "rows.npz", "-o", "o.npz", *CACHE, "--graph-key", "r"]) == 0
    assert (place / "c/jit/slicing_hierarchy/r/0").is_dir() and not_of_the_group(place / "c") == []
    (place / "c/jit/slicing_hierarchy/r/0/gep_list.json").write_text("{")
    assert run(["run", "--jit", "rows.onnx", "-i", "rows.npz", "-o", "o.npz", *CACHE, "--graph-key", "r"]) == 0
    assert (place / "c/.gecli/quarantine").is_dir() and not_of_the_group(place / "c") == []


def test_what_management_writes_is_the_groups(place: Path) -> None:
    words = ("-o", "d", "--cache-dir", "full", "--graph-key", "d", "--external-weight", "split")
    assert run(["compile", DIGITS, *words, "--cache-create"]) == 0
    assert run(["run", "--jit", "rows.onnx", "-i", "rows.npz", "--cache-dir", "full", "--graph-key", "d"]) == 0
    assert run(["cache", "export", "d", "--cache-dir", "full", "-o", "d.tar"]) == 0
    conf(place)
    assert run(["cache", "import", "d.tar", *CACHE]) == 0
    assert not_of_the_group(place / "c") == []
    (place / "c/weight/meta.json").unlink(missing_ok=True)
    (place / "c/d.idx").write_text("{")
    next((place / "c/weight").glob("weight_*")).write_bytes(b"damaged")
    run(["cache", "verify", "--repair", *CACHE])
    assert (place / "c/.gecli/quarantine").is_dir() and not_of_the_group(place / "c") == []
    shutil.rmtree(place / "c/.gecli")
    assert run(["cache", "gc", "--all", "--grace", "0", *CACHE]) == 0
    assert not_of_the_group(place / "c") == []
