"""One row of the option table, and how a text becomes its value."""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

Value = bool | int | float | str | tuple[str, ...] | None
Kind = Literal["bool", "int", "float", "str", "path", "size", "seconds", "duration"]
Class = Literal["I", "R", "X"]

TRUE_WORDS = frozenset({"1", "t", "true", "y", "yes"})
FALSE_WORDS = frozenset({"0", "f", "false", "n", "no"})
INT64_MAX = 2**63 - 1
EVERYWHERE = ("*",)  # accepted by every subcommand, before and after its name
CACHE_COMMANDS = (
    "cache ls", "cache gc", "cache verify", "cache stats", "cache why", "cache confirm", "cache path", "cache export",
    "cache import",
)  # fmt: skip

_SIZE = r"(?i)(\d+(?:\.\d+)?)\s*([KMGT]?)(?:i?B)?"
_SIZE_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
_DURATION = r"(\d+(?:\.\d+)?)([smhdw]?)"
_DURATION_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}


class Option(NamedTuple):
    """One option: the command line, gecli.toml, the environment, GE option maps, help and man pages come from it.

    `key` is GE's option name, or the flag's name where GE has none. `flag` is `-o, --output`, `--train`,
    `--variable-acc/--no-variable-acc`, or empty for an option that only `--ge-option` and files can set.
    """

    key: str
    flag: str
    type: Kind = "str"
    default: Value = None
    help: str = ""
    metavar: str = ""
    group: str = "Other"
    choices: tuple[str, ...] = ()
    words: tuple[tuple[str, str], ...] = ()  # other spellings of the choices: (word, choice)
    bounds: tuple[float, float] | None = None
    pattern: str = ""  # of a switch: other texts that turn it on
    rule: str = ""  # the pattern in words, for the message
    code: str = "E10001"  # of a value outside the domain
    option_class: Class = "I"
    note: str = ""  # R: why it has no effect; X: what is missing and what to use instead
    refused: tuple[tuple[str, str], ...] = ()  # single values of class X: (value, what to use instead)
    multiple: bool = False
    subcommands: tuple[str, ...] = ("compile",)
    aliases: tuple[str, ...] = ()  # other long flags; dashes and underscores are the same
    shorthands: tuple[tuple[str, str], ...] = ()  # flags without a value that stand for one: (flag, value)
    ge_aliases: tuple[str, ...] = ()  # other GE option names
    env: str = ""
    hidden: bool = False
    since: str = "0.1"
    fingerprint: bool = True  # counts in the cache fingerprint (spec: everything but a deny list)

    @property
    def name(self) -> str:
        """The long flag without dashes, as used in gecli.toml; the key of an option without a flag."""
        for part in self.flag.split("/")[0].split(","):
            if part.strip().startswith("--"):
                return part.strip()[2:]
        return self.key

    @property
    def negative(self) -> str:
        """The name of the flag that switches the option off, or ""."""
        _, slash, off = self.flag.partition("/")
        return off.strip()[2:] if slash else ""

    @property
    def letter(self) -> str:
        """The one-letter flag without its dash, or ""."""
        first = self.flag.split(",")[0].strip()
        return first[1:] if first.startswith("-") and not first.startswith("--") else ""

    @property
    def ge_names(self) -> tuple[str, ...]:
        """Every name under which `--ge-option` and GE option files know the option."""
        own = () if self.key == self.name and self.flag else (self.key,)
        return own + self.ge_aliases

    def belongs_to(self, subcommand: str) -> bool:
        return subcommand in self.subcommands or self.subcommands == EVERYWHERE


class BadValue(ValueError):
    """A text outside an option's domain; `code` is the code to report, the message says what would be accepted."""

    def __init__(self, code: str, accepted: str) -> None:
        super().__init__(accepted)
        self.code = code


def parse_value(option: Option, text: str) -> Value:
    """The value that a text stands for, checked against the option's domain; `BadValue` says what is accepted."""
    if option.type == "bool":
        return _parse_bool(option, text)
    for word, choice in option.words:
        if text == word:
            text = choice
    if option.choices and text not in option.choices:
        raise BadValue(option.code, "one of " + ", ".join(_shown_choices(option)))
    if option.pattern and not re.fullmatch(option.pattern, text):
        raise BadValue(option.code, option.rule or f"text of the form {option.pattern}")
    if option.type in ("str", "path"):
        return text
    return _parse_number(option, text)


def domain_text(option: Option) -> str:
    """The domain in words for help and man pages, or ""."""
    if option.choices:
        return ", ".join(_shown_choices(option))
    if option.bounds is not None and option.bounds[1] < INT64_MAX:
        return f"{option.bounds[0]:g} to {option.bounds[1]:g}"
    return option.rule


def value_text(value: Value) -> str:
    """A value as text, the same for every spelling that the user may have chosen."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return ";".join(value)
    return str(value)


def _shown_choices(option: Option) -> list[str]:
    words = {choice: word for word, choice in option.words}
    refused = dict(option.refused)
    shown = [choice for choice in option.choices if choice and choice not in refused]
    return [f"{choice} ({words[choice]})" if choice in words else choice for choice in shown]


def _parse_bool(option: Option, text: str) -> bool:
    word = text.lower()
    if word in TRUE_WORDS or (option.pattern and re.fullmatch(option.pattern, text)):
        return True
    if word in FALSE_WORDS:
        return False
    raise BadValue("E10005" if option.code == "E10001" else option.code, "true or false")


def _parse_number(option: Option, text: str) -> Value:
    if option.type == "size":
        return _scaled(option, text, _SIZE, _SIZE_UNITS, "a size such as 4096, 512M or 10G")
    if option.type == "duration":
        return _scaled(option, text, _DURATION, _DURATION_SECONDS, "a time such as 90, 30m, 12h or 30d")
    if option.type == "int":
        if not re.fullmatch(r"-?\d+", text, re.ASCII):
            raise BadValue("E10003", "a whole number")
        digits = text.lstrip("-0")
        number: int | float = int(f"{text[: text.startswith('-')]}{digits or 0}") if len(digits) < 20 else INT64_MAX + 1
        if not -INT64_MAX - 1 <= number <= INT64_MAX:
            raise BadValue("E10013", "a number that fits 64 bits")
    else:
        try:
            number = float(text)
        except ValueError:
            raise BadValue("E10003", "a number") from None
        if number != number:
            raise BadValue("E10003", "a number")
    if option.type == "seconds" and number < 0:
        raise BadValue(option.code, "a number of seconds that is not negative, or inf")
    if option.bounds is not None and not option.bounds[0] <= number <= option.bounds[1]:
        raise BadValue(option.code, _bounds_text(option.bounds))
    return number


def _bounds_text(bounds: tuple[float, float]) -> str:
    """`a number from 1 to 1000`; what only the 64 bits of the format limit has no upper end in words."""
    low, high = (str(bound) if isinstance(bound, int) else f"{bound:g}" for bound in bounds)
    return f"a number from {low} upwards" if bounds[1] >= INT64_MAX else f"a number from {low} to {high}"


def _scaled(option: Option, text: str, form: str, units: dict[str, int], accepted: str) -> int:
    match = re.fullmatch(form, text.strip())
    if match is None:
        raise BadValue(option.code, accepted)
    unit = match[2].upper() if units is _SIZE_UNITS else match[2]
    size = float(match[1]) * units[unit]
    if size > INT64_MAX:
        raise BadValue("E10013", f"{accepted}, and no more than fits 64 bits")
    return int(size)
