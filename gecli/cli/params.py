"""click parameters made from the option table."""

from __future__ import annotations

from collections.abc import Mapping

import click

from gecli.options.global_table import GLOBAL_OPTIONS
from gecli.options.option import Option
from gecli.options.table import options_of


def parameters_of(subcommand: str) -> list[click.Parameter]:
    """One click option for every flag of the subcommand, and its operands.

    Values stay texts and may repeat: domains, precedence and repetition are decided once, for all sources, in
    `gecli.options`, so that every problem of a command line is reported together.
    """
    options: list[click.Parameter] = [_parameter(option) for option in _flagged(subcommand)]
    return [*options, click.Argument(["operands"], nargs=-1, type=click.UNPROCESSED)]


def typed_texts(subcommand: str, values: Mapping[str, object]) -> dict[str, list[str]]:
    """The texts per option key out of click's parameters; options that were not typed are absent."""
    typed: dict[str, list[str]] = {}
    for option in _flagged(subcommand):
        texts = values.get(_variable(option))
        if isinstance(texts, tuple) and texts:
            typed[option.key] = [str(text) for text in texts]
    return typed


def _flagged(subcommand: str) -> list[Option]:
    return [option for option in (*GLOBAL_OPTIONS, *options_of(subcommand)) if option.flag]


def _parameter(option: Option) -> click.Option:
    return click.Option(
        [_variable(option), f"--{option.name}"], multiple=True, type=click.UNPROCESSED, help=option.help,
        hidden=option.hidden, metavar=option.metavar or None,
    )  # fmt: skip


def _variable(option: Option) -> str:
    return "option_" + option.name.replace("-", "_")
