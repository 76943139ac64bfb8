"""The one table of options, and its resolution with origin.

The command line, gecli.toml, the environment, GE option maps, help, man pages and completion are made from it.
"""

from __future__ import annotations

from gecli.options.argv import Scan, normalise_argv, scan
from gecli.options.option import Option, Value, parse_value, value_text
from gecli.options.resolve import ConfigValues, Options, resolve
from gecli.options.spelling import closest
from gecli.options.table import SUBCOMMANDS, options_of

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
