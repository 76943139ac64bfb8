"""The one table of options, and its resolution with origin.

The command line, gecli.toml, the environment, GE option maps, help, man pages and completion are made from it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gecli.options.argv import Scan, normalise_argv, scan
    from gecli.options.option import Option, Value, parse_value, value_text
    from gecli.options.resolution import resolve
    from gecli.options.spelling import closest
    from gecli.options.table import SUBCOMMANDS, options_of
    from gecli.options.values import ConfigValues, Options

_LAZY = {
    "SUBCOMMANDS": "table",
    "ConfigValues": "values",
    "Option": "option",
    "Options": "values",
    "Scan": "argv",
    "Value": "option",
    "closest": "spelling",
    "normalise_argv": "argv",
    "options_of": "table",
    "parse_value": "option",
    "resolve": "resolution",
    "scan": "argv",
    "value_text": "option",
}

__all__ = [
    "SUBCOMMANDS",
    "ConfigValues",
    "Option",
    "Options",
    "Scan",
    "Value",
    "closest",
    "normalise_argv",
    "options_of",
    "parse_value",
    "resolve",
    "scan",
    "value_text",
]


def __getattr__(name: str) -> Any:
    """Import on first use: help and completion need the table only, not the resolution."""
    module = _LAZY.get(name)
    if module is None:
        raise AttributeError(f"module 'gecli.options' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"gecli.options.{module}"), name)
