"""The options of one command with their values and origins (spec: cli.md 1.8)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

from gecli.options.option import Option, Value, value_text
from gecli.options.table import ge_options_of, named_options_of, options_of

if TYPE_CHECKING:
    from gecli.errors import Diagnostic

# Highest first; reports use these words.
SOURCES = (
    "flag", "ge-option", "raw graph", "raw session", "raw global", "environment", "project config", "user config",
    "default",
)  # fmt: skip
CONTAINERS = ("ge-option", "raw-ge-options")  # they hold other options

T = TypeVar("T")


class ConfigValues(NamedTuple):
    """One configuration file's values for a subcommand: `source` is one of SOURCES."""

    source: str
    path: str
    values: Mapping[str, tuple[str, ...]]  # by option key
    ge_options: Mapping[str, str]


class Setting(NamedTuple):
    """One place that sets an option."""

    source: str
    texts: tuple[str, ...]


class Options:
    """Every option of a subcommand with its value and origin; look-ups take the key or the name."""

    def __init__(self, subcommand: str) -> None:
        self.subcommand = subcommand
        self.warnings: list[Diagnostic] = []
        self.overrides: list[str] = []  # "key: winner (source) over loser (source)"
        self.unknown_ge_options: dict[str, str] = {}  # recorded because of --ignore-unsupported
        self.config_files: list[str] = []  # configuration files that were read
        self.command_line = ""  # as typed, for --keep-cmdline
        self._values: dict[str, Value] = {}
        self._origins: dict[str, str] = {}

    def get(self, name: str) -> Any:
        """The value of an option; a name that the subcommand lacks is a bug of the caller (KeyError)."""
        return self._values[self.option(name).key]

    __getitem__ = get

    def text(self, name: str) -> str | None:
        """The value of a text option, None when it is not set."""
        return cast("str | None", self._typed(name, str))

    def flag(self, name: str) -> bool:
        """The value of a switch; a switch without a default is off."""
        return bool(self._typed(name, bool))

    def integer(self, name: str) -> int | None:
        return cast("int | None", self._typed(name, int))

    def number(self, name: str) -> float | None:
        value = self.get(name)
        return None if value is None else float(value)

    def texts(self, name: str) -> tuple[str, ...]:
        """The values of a repeatable option."""
        return cast("tuple[str, ...]", self._typed(name, tuple) or ())

    def origin(self, name: str) -> str:
        """The source of the value, one of SOURCES."""
        return self._origins.get(self.option(name).key, "default")

    def is_set(self, name: str) -> bool:
        """Whether anything but the default gave the value."""
        return self.origin(name) != "default"

    def option(self, name: str) -> Option:
        named = named_options_of(self.subcommand)
        return named[name] if name in named else ge_options_of(self.subcommand)[name]

    def items(self) -> Iterator[tuple[Option, Value, str]]:
        """(option, value, origin) in table order, without the global options."""
        for option in options_of(self.subcommand):
            yield option, self._values[option.key], self.origin(option.key)

    def records(self) -> list[dict[str, Any]]:
        """What reports and the OM's option record list: everything that was set, sorted by key."""
        found = [
            {"key": option.key, "value": value_text(value), "source": origin, "class": option.option_class}
            for option, value, origin in self.items()
            if origin != "default" and option.key not in CONTAINERS
        ]
        found += [
            {"key": key, "value": value, "source": "ge-option", "class": "R"}
            for key, value in self.unknown_ge_options.items()
        ]
        return sorted(found, key=lambda record: str(record["key"]))

    def fingerprint_items(self) -> list[tuple[str, str]]:
        """(key, value) of every option that counts in the cache fingerprint, effective values, sorted by key."""
        found = [(option.key, value_text(value)) for option, value, _ in self.items() if option.fingerprint]
        if self.command_line:
            found.append(("command line", self.command_line))
        return sorted([*found, *self.unknown_ge_options.items()])

    def non_default_items(self) -> list[tuple[Option, Value]]:
        """Options that count in the fingerprint and differ from their default, sorted by name."""
        found = [
            (option, value) for option, value, _ in self.items() if option.fingerprint and value != default_of(option)
        ]
        return sorted(found, key=lambda pair: pair[0].name)

    def path_options(self) -> list[tuple[str, str]]:
        """(key, path) of every file that an option which counts in the fingerprint names."""
        return [
            (option.key, str(value))
            for option, value, _ in self.items()
            if option.type == "path" and option.fingerprint and value
        ]

    def copy(self) -> Options:
        """The same options, which `set` may change apart from these."""
        own = Options(self.subcommand)
        own.__dict__.update(self.__dict__)
        own._values, own._origins = dict(self._values), dict(self._origins)
        return own

    def set(self, option: Option, value: Value, source: str) -> None:
        self._values[option.key] = value
        self._origins[option.key] = source

    def _typed(self, name: str, kind: type[T]) -> T | None:
        value = self.get(name)
        if value is not None and not isinstance(value, kind):
            raise TypeError(f"option {name} holds {value!r}, not a {kind.__name__}")
        return value


def default_of(option: Option) -> Value:
    return () if option.multiple and option.default is None else option.default
