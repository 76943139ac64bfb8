"""The one table of options, seen by subcommand and by name."""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from gecli.options.global_table import GLOBAL_OPTIONS
from gecli.options.option import CACHE_COMMANDS, Option

SUBCOMMANDS = ("compile", "inspect-om", "run", *CACHE_COMMANDS, "explain", "completion")
CACHE_SUBCOMMANDS = tuple(name.split()[1] for name in CACHE_COMMANDS)


class Flag(NamedTuple):
    """What a flag on the command line means: an option, and the value it implies when it takes none."""

    option: Option
    implied: str | None


@cache
def options_of(subcommand: str) -> tuple[Option, ...]:
    """The options of a subcommand without the global ones; loads only the tables it needs."""
    if subcommand == "cache why":
        return options_of("compile")  # it answers for a compile with these options
    return tuple(option for option in _tables(subcommand) if subcommand in option.subcommands)


@cache
def flags_of(subcommand: str) -> dict[str, Flag]:
    """Every flag that a subcommand accepts, by its name without dashes (long names with dashes inside)."""
    flags: dict[str, Flag] = {}
    for option in (*GLOBAL_OPTIONS, *options_of(subcommand)):
        if not option.flag:
            continue
        for name in (option.name, *option.aliases):
            flags[_dashed(name)] = Flag(option, None)
        if option.letter:
            flags[option.letter] = Flag(option, None)
        if option.negative:
            flags[option.negative] = Flag(option, "false")
        for name, value in option.shorthands:
            flags[name] = Flag(option, value)
    return flags


@cache
def ge_options_of(subcommand: str) -> dict[str, Option]:
    """Every GE option name that a subcommand knows."""
    return {name: option for option in options_of(subcommand) for name in option.ge_names}


@cache
def named_options_of(subcommand: str) -> dict[str, Option]:
    """Options by key and by name, for look-ups in code and in gecli.toml."""
    options = (*GLOBAL_OPTIONS, *options_of(subcommand))
    return {**{option.name: option for option in options}, **{option.key: option for option in options}}


def find_flag(subcommand: str, typed_name: str) -> Flag | None:
    """The flag of a typed name; underscores and dashes are the same, a value may follow later."""
    return flags_of(subcommand).get(_dashed(typed_name))


def subcommands_with(typed_name: str) -> list[str]:
    """The subcommands that have a flag of this name."""
    return [name for name in SUBCOMMANDS if find_flag(name, typed_name) is not None]


def _dashed(name: str) -> str:
    return name.replace("_", "-")


def _tables(subcommand: str) -> tuple[Option, ...]:
    if subcommand == "inspect-om":
        from gecli.options.inspect_table import INSPECT_OPTIONS

        return INSPECT_OPTIONS
    if subcommand in ("explain", "completion", ""):
        return ()
    from gecli.options.compile_table import COMPILE_OPTIONS

    if subcommand == "compile":
        from gecli.options.recorded_table import RECORDED_OPTIONS

        return COMPILE_OPTIONS + RECORDED_OPTIONS
    if subcommand == "run":
        from gecli.options.jit_table import JIT_OPTIONS
        from gecli.options.run_table import RUN_OPTIONS

        return RUN_OPTIONS + COMPILE_OPTIONS + JIT_OPTIONS
    from gecli.options.cache_table import CACHE_OPTIONS

    return COMPILE_OPTIONS + CACHE_OPTIONS
