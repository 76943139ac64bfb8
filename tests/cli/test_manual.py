"""Manual pages are those that the tables give, and they hold every option and status."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

from gecli.error_catalog import CATALOGUE, EXIT_STATUSES
from gecli.options import options_of
from gecli.options.option import CACHE_COMMANDS

MAN = Path(__file__).parent.parent.parent / "man"


def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("man_generate", MAN / "generate.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def plain(name: str) -> str:
    """A page without roff's escapes."""
    return re.sub(r"\\f[BR]|\\&", "", (MAN / name).read_text()).replace("\\-", "-")


@pytest.mark.parametrize("name", generator().PAGES)
def test_a_page_is_in_sync_with_the_tables(name: str) -> None:
    assert (MAN / name).read_text() == generator().page(name), "run python man/generate.py"


@pytest.mark.parametrize(
    ("name", "subcommand"),
    [
        ("gecli-compile.1", "compile"),
        ("gecli-inspect-om.1", "inspect-om"),
        ("gecli-run.1", "run"),
        *(("gecli-cache.1", name) for name in CACHE_COMMANDS if name != "cache why"),  # the options of compile
    ],
)
def test_a_page_holds_every_option(name: str, subcommand: str) -> None:
    text = plain(name)
    missing = [option.key for option in options_of(subcommand) if option.name not in text]
    assert missing == []


def test_the_pages_hold_every_code_and_status() -> None:
    errors, main = plain("gecli-errors.7"), plain("gecli.1")
    assert [code for code in CATALOGUE if code not in errors] == []
    assert [name for _, name, _ in EXIT_STATUSES if name not in main] == []
