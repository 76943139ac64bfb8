"""Every gecli command of the README works as written, in the order of the page."""

from __future__ import annotations

import shlex
import shutil
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY, Gecli


def commands(page: Path) -> list[str]:
    """The lines of the page's code blocks that call gecli."""
    return [line.strip() for line in page.read_text(encoding="utf-8").splitlines() if line.startswith("    gecli ")]


def test_the_readme_has_a_command_of_every_kind() -> None:
    names = {shlex.split(line)[1] for line in commands(REPOSITORY / "README.md")}
    assert {"compile", "inspect-om", "run", "cache", "explain"} <= names


def test_the_commands_of_the_readme_work(gecli: Gecli, tmp_path: Path) -> None:
    shutil.copytree(REPOSITORY / "samples", tmp_path / "samples")
    for line in commands(REPOSITORY / "README.md"):
        done = gecli(*shlex.split(line, comments=True)[1:])
        assert done.returncode == 0, f"{line}\n{done.stdout}\n{done.stderr}"


@pytest.mark.parametrize("target", ["demo", "test", "test-models", "test-long", "bench"])
def test_the_make_targets_of_the_readme_exist(target: str) -> None:
    assert f"make {target}" in (REPOSITORY / "README.md").read_text(encoding="utf-8")
    assert f"\n{target}:" in (REPOSITORY / "Makefile").read_text(encoding="utf-8")
