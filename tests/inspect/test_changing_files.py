"""A file that changes while it is read is said to have changed; nothing made of two files comes out."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gecli.artifacts.file_access import FileState, unchanged
from gecli.errors import InputError
from gecli.report.inspect import extraction, tensors

from .conftest import Inspect


def replaced(path: Path) -> None:
    other = path.with_suffix(".new")
    other.write_bytes(path.read_bytes())
    other.replace(path)


def shortened(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def piped(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


CHANGES = (replaced, shortened, piped, Path.unlink)


@pytest.fixture
def om(digits_om: Path, tmp_path: Path) -> Path:
    copy = tmp_path / "copy.om"
    copy.write_bytes(digits_om.read_bytes())
    return copy


def changing(monkeypatch: pytest.MonkeyPatch, module: Any, name: str, change: Callable[[], object]) -> None:
    """The third call of a function changes the file first."""
    original, calls = getattr(module, name), [0]

    def called(*arguments: Any, **options: Any) -> Any:
        calls[0] += 1
        if calls[0] == 3:
            change()
        return original(*arguments, **options)

    monkeypatch.setattr(module, name, called)


@pytest.mark.parametrize("change", CHANGES)
def test_no_tensor_of_a_changed_file_is_left(
    change: Callable[[Path], object], inspect: Inspect, om: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    changing(monkeypatch, extraction, "_write", lambda: change(om))
    shown = inspect(om, "--extract", "all", "--to", "out")
    assert (shown.status, os.path.exists("out")) == (3, False)
    assert f"{om} changed while it was read" in shown.err


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("words", [("--tensors",), ("--tensors", "--json"), ("--tensors", "--stats")])
def test_a_view_of_a_changed_file_ends_with_an_error(
    change: Callable[[Path], object], words: tuple[str, ...], inspect: Inspect, om: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    changing(monkeypatch, tensors, "_held_json", lambda: change(om))
    shown = inspect(om, *words)
    assert shown.status == 3 and f"{om} changed while it was read" in shown.err
    assert inspect(__file__, om.parent, *words).status == 3  # of several, too


def test_a_file_that_stays_passes_and_one_that_was_never_there_is_not_called_changed(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x")
    with unchanged(str(tmp_path / "a")):
        pass
    FileState(str(tmp_path / "none")).require_same()
    with pytest.raises(FileNotFoundError), unchanged(str(tmp_path / "none")):
        (tmp_path / "none").read_bytes()
    with pytest.raises(InputError, match="changed while it was read"), unchanged(str(tmp_path / "a")):
        os.utime(tmp_path / "a", ns=(1, 1))


def test_an_input_is_not_replaced_by_its_own_tensors(inspect: Inspect, om: Path) -> None:
    for name in ("fc_weight.npy", "manifest.json"):
        path = om.with_name(name)
        path.write_bytes(om.read_bytes())
        shown = inspect(path, "--extract", "all", "--to", path.parent)
        assert shown.status == 2 and "would overwrite the input" in shown.err
        assert path.read_bytes() == om.read_bytes()


def test_links_in_the_directory_of_extract_are_replaced_not_followed(inspect: Inspect, om: Path) -> None:
    assert inspect(om, "--extract", "all", "--to", "out").status == 0
    victim = om.with_name("victim")
    for name in os.listdir("out"):
        os.unlink(f"out/{name}")
        os.symlink(victim, f"out/{name}")
    assert inspect(om, "--extract", "all", "--to", "out").status == 0
    assert not victim.exists() and not any(os.path.islink(f"out/{name}") for name in os.listdir("out"))
