"""Every gecli command of the README works as written, in the order of the page."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
from fnmatch import fnmatch
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


def test_the_recipe_with_another_runtime_works(gecli: Gecli, tmp_path: Path) -> None:
    page = (REPOSITORY / "README.md").read_text(encoding="utf-8")
    recipe = page.partition("```python\n")[2].partition("```")[0]
    follow = page.partition("and then `gecli run ")[2].partition("`")[0]
    shutil.copytree(REPOSITORY / "samples", tmp_path / "samples")
    subprocess.run([sys.executable, "-c", recipe], cwd=tmp_path, check=True, timeout=120)
    [compiling] = [line for line in commands(REPOSITORY / "README.md") if "-o digits360.om" in line]
    assert gecli(*shlex.split(compiling)[1:]).returncode == 0
    done = gecli("run", *shlex.split(follow))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "golden read from want.npz\nequal    " in done.stdout


def test_git_ignores_what_the_tour_writes() -> None:
    words = [word for line in commands(REPOSITORY / "README.md") for word in shlex.split(line)[2:]]
    made = {word for word in words if word.endswith((".om", ".npz", "/")) and "/" not in word[:-1]} | {"cache/"}
    assert {"digits.om", "digits360.om", "train/", "out.npz", "vars.npz", "losses.npz"} < made
    patterns = (REPOSITORY / ".gitignore").read_text(encoding="utf-8").splitlines()
    assert [name for name in sorted(made) if not any(fnmatch(f"/{name}", pattern) for pattern in patterns)] == []
