"""Every command and option that a message or a help text names exists."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import gecli
from gecli.cli.help import TOP_LEVEL
from gecli.options.table import SUBCOMMANDS, find_flag, subcommands_with

SOURCES = Path(gecli.__file__).parent
OPTION = re.compile(r"(?<![\w-])--([A-Za-z][\w-]*)")
COMMAND = re.compile(r"(?<![\w.`/-])gecli ((?:cache )?[a-z][a-z-]*)((?:[^;,|]|;(?=\S))*)")
# Options of the programs that cures propose for foreign files.
FOREIGN = frozenset(
    ("graphdef", "saved-model", "tflite", "keras", "inputs", "outputs", "output", "help", "force-reinstall")
)
# "gecli VERB" in a sentence.
PROSE = frozenset((
    "accepts", "again", "carries", "compares", "compiled", "does", "draws", "find", "finds", "from", "graph", "has",
    "imports", "is", "itself", "keeps", "knows", "met", "needs", "never", "opens", "reads", "reports", "to",
    "writes", "wrote",
))  # fmt: skip


def texts(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Every string of a module that is no docstring; the variable parts of an f-string are `{}`."""
    inner = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in ast.walk(node)} - {
        id(node) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr)
    }
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and node.body
        if isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        if id(node) in docstrings or id(node) in inner:
            continue
        if isinstance(node, ast.JoinedStr):
            parts = [part.value if isinstance(part, ast.Constant) else "{}" for part in node.values]
            yield node.lineno, "".join(map(str, parts))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value


def strings() -> list[tuple[str, str]]:
    found = []
    for path in sorted(SOURCES.rglob("*.py")):
        if path.parent.name != "pb":
            tree = ast.parse(path.read_text(encoding="utf-8"))
            found += [(f"{path.relative_to(SOURCES)}:{line}", text) for line, text in texts(tree)]
    return found


def test_every_option_in_a_text_exists() -> None:
    named = {(place, name) for place, text in strings() for name in OPTION.findall(text)}
    assert len(named) > 200
    assert [
        f"{place}: --{name}" for place, name in sorted(named) if name not in FOREIGN and not subcommands_with(name)
    ] == []


def test_every_command_in_a_text_exists_and_has_the_options_behind_it() -> None:
    wrong = []
    for place, text in strings():
        for command, rest in COMMAND.findall(text):
            name = command if command in SUBCOMMANDS else command.split()[0]
            if name in PROSE:
                continue
            if name not in TOP_LEVEL and name not in SUBCOMMANDS:
                wrong.append(f"{place}: gecli {command}")
            elif name in SUBCOMMANDS:
                wrong += [f"{place}: gecli {name} --{o}" for o in OPTION.findall(rest) if find_flag(name, o) is None]
    assert wrong == []


@pytest.mark.parametrize("text", ["gecli compile --print-scheme", "gecli inspect-om FILE --train", "gecli cmpile"])
def test_the_search_finds_what_does_not_exist(text: str) -> None:
    (found,) = COMMAND.findall(text)
    command, rest = found
    assert command not in SUBCOMMANDS or any(find_flag(command, name) is None for name in OPTION.findall(rest))
