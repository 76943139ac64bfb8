"""Completion scripts: what bash really offers, and that every option is in every script."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable

import pytest

from gecli.cli.completion import bash_script, fish_script, zsh_script
from gecli.cli.help import grouped
from gecli.options import SUBCOMMANDS
from gecli.options.table import CACHE_SUBCOMMANDS

Run = Callable[..., "subprocess.CompletedProcess[str]"]


def offered(*words: str) -> list[str]:
    """What the bash script offers for the last word."""
    bash = shutil.which("bash")
    assert bash is not None
    quoted = " ".join(f"'{word}'" for word in words)
    script = f"{bash_script()}\nCOMP_WORDS=({quoted}); COMP_CWORD={len(words) - 1}; _gecli\n"
    script += 'printf "%s\\n" "${COMPREPLY[@]}"'
    return subprocess.run([bash, "-c", script], capture_output=True, text=True, check=True).stdout.split()


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("gecli", "com"), ["compile", "completion"]),
        (("gecli", "cache", ""), list(CACHE_SUBCOMMANDS)),
        (("gecli", "cache", "gc", "--keep"), ["--keep-last"]),
        (("gecli", "compile", "--cache-m"), ["--cache-mode"]),
        (("gecli", "compile", "--cache-mode", "r"), ["rw", "ro", "refresh"]),
        (("gecli", "compile", "--cache-mode", "=", "re"), ["refresh"]),
        (("gecli", "compile", "--cache-mode", "="), ["rw", "ro", "refresh", "off", "debug"]),
        (("gecli", "--color", "al"), ["always"]),
        (("gecli", "completion", ""), ["bash", "zsh", "fish"]),
        (("gecli", "explain", "E1001"), [f"E1001{digit}" for digit in "012346789"]),
    ],
)  # fmt: skip
def test_bash_offers_names_and_values(words: tuple[str, ...], expected: list[str]) -> None:
    found = [word for word in offered(*words) if not (words[-1] == "" and word.startswith("-"))]
    assert found == expected


@pytest.mark.parametrize("subcommand", SUBCOMMANDS)
def test_every_shown_option_is_in_every_script(subcommand: str) -> None:
    names = [option.name for options in grouped(subcommand, everything=False).values() for option in options]
    scripts = bash_script(), zsh_script(), fish_script()
    assert [name for name in names if not all(name in script for script in scripts)] == []


def test_an_unknown_shell_is_an_option_error(gecli: Run) -> None:
    result = gecli("completion", "csh")
    assert result.returncode == 2
    assert 'why: expected one of bash, zsh, fish; got "csh"' in result.stderr
