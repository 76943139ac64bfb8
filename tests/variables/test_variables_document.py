"""docs/variables.md names only what is there."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

TEXT = (Path(__file__).resolve().parents[2] / "docs/variables.md").read_text()


def _attribute_of_package(name: str) -> bool:
    """`module.Name`, `Name`, `Class.method` or `method`, somewhere in gecli.variables or gecli.wire."""
    found = [importlib.import_module("gecli.wire.var_session"), importlib.import_module("gecli.wire.var_manager")]
    files = sorted((Path(__file__).resolve().parents[2] / "gecli/variables").glob("[a-z]*.py"))
    found += [importlib.import_module(f"gecli.variables.{file.stem}") for file in files]
    names = {each.__name__.rpartition(".")[2] for each in found} | {"wire.var_session", "wire.var_manager"}
    for module in found:
        short = module.__name__.rpartition(".")[2]
        for key, value in vars(module).items():
            names |= {key, f"{short}.{key}"}
            if isinstance(value, type):
                names |= {each for member in dir(value) for each in (member, f"{key}.{member}")}
    return name in names


def test_every_name_of_ours_in_the_table_exists() -> None:
    ours, _, _ = TEXT.partition("## A session that goes on")  # then options and operators
    rows = [line.split("|")[2] for line in ours.splitlines() if line.startswith("| `")]
    named = [name for row in rows for name in re.findall(r"`([A-Za-z_.]+)", row)]
    assert len(named) >= 50
    assert not [name for name in named if name != "MemoryLimits.checked_" and not _attribute_of_package(name)]


def test_every_option_of_the_table_is_one_of_compile() -> None:
    from gecli.options.table import find_flag, ge_options_of

    _, _, table = TEXT.partition("## Options and environment")
    table, _, _ = table.partition("## Resource and temporary variables")
    cells = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    named = [name for cell in cells for name in re.findall(r"`(ge\.[\w.]+)`", cell)]
    assert len(named) == 17
    known = ge_options_of("compile")
    assert [name for name in named if name not in known] == []
    flags = [name for cell in cells for name in re.findall(r"`--([\w-]+)`", cell)]
    assert flags and all(find_flag("compile", name) for name in flags)
