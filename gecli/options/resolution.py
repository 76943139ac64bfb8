"""The value of every option and where it came from (spec: cli.md 1.8)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from gecli.options.checks import check_combinations
from gecli.options.global_table import GLOBAL_OPTIONS
from gecli.options.option import BadValue, Option, Value, domain_text, parse_value, value_text
from gecli.options.spelling import closest
from gecli.options.table import ge_options_of, options_of
from gecli.options.values import SOURCES, ConfigValues, Options, Setting, default_of

if TYPE_CHECKING:
    from gecli.errors import Diagnostic

MAX_EPOCH_DIGITS = 11  # the year 5138
RAW_LEVELS = ("graph", "session", "global")
RAW_EXAMPLE = '{"compile options": {"graph": {"input_shape": "x:1,3"}, "session": {"ge.exec.variable_acc": "False"}}}'
TRUE_OR_FALSE = ("ge.exec.variable_acc",)  # in GE's option maps: 0 would switch on what it seems to switch off
FLAG_ONLY = ("model", "output", "ge.frameworkType", "ge.socVersion")  # atc takes these four from the line only


class _Resolver:
    def __init__(self, subcommand: str, problems: Iterable[Diagnostic]) -> None:
        self.options = Options(subcommand)
        self.problems = list(problems)  # of the words; then those of their values, then those of the other sources
        self.value_problems: list[Diagnostic] = []
        self.source_problems: list[Diagnostic] = []
        self.settings: dict[str, list[Setting]] = {}
        self.lenient = False

    def add(self, key: str, source: str, texts: tuple[str, ...]) -> None:
        self.settings.setdefault(key, []).append(Setting(source, texts))

    def add_ge_option(self, key: str, text: str, source: str, lenient: bool) -> None:
        """One GE option from a file or from --ge-option; unknown ones are errors, or recorded when lenient."""
        option = ge_options_of(self.options.subcommand).get(key)
        if option is not None:
            if option.key in TRUE_OR_FALSE and text.lower() not in ("true", "false", ""):
                why = "GE takes every value but False as True"
                self.fail("E10001", f'value "{text}" for {key} is invalid', why=why, do=f"{key}=True or {key}=False")
                return
            self.add(option.key, source, (text,))
            return
        near = closest(key, ge_options_of(self.options.subcommand), limit=5)
        message = f'unknown GE option "{key}"'
        if lenient:
            self.warn("E10055", f"{message} is recorded without effect")
            self.options.unknown_ge_options[key] = text
            return
        advice = " or ".join(f"{name}={text}" for name in near) or "--ignore-unsupported records it without effect"
        self.fail("E10055", message, do=advice, option="--ge-option" if source == "ge-option" else None)

    def decide(self, option: Option) -> None:
        """Choose the setting that wins and check it."""
        settings = sorted(self.settings.get(option.key, ()), key=lambda setting: SOURCES.index(setting.source))
        default = default_of(option)
        if not settings:
            self.options.set(option, default, "default")
            return
        winner = settings[0]
        if _unset(option, winner.texts):
            self.options.set(option, default, "default")
            return
        self.options.set(option, default, winner.source)
        if option.option_class == "X" and not self.tolerate_refused(option):
            return
        value = self.check(option, winner)
        if value is not _INVALID and option.refused:
            value = self.without_refused(option, cast("Value", value))
        if value is not _INVALID:
            self.options.set(option, cast("Value", value), winner.source)
        for loser in settings[1:]:
            if loser.texts != winner.texts:
                text = f"{';'.join(winner.texts)} ({winner.source}) over {';'.join(loser.texts)} ({loser.source})"
                self.options.overrides.append(f"{option.key}: {text}")

    def tolerate_refused(self, option: Option) -> bool:
        message = f"--{option.name} is not supported"
        if self.lenient:
            self.warn("E10055", f"{message}; recorded without effect")
            return True
        self.fail(
            "E10055", message, typed=True, why=option.note, option=f"--{option.name}", do=f"leave out --{option.name}"
        )
        return False

    def without_refused(self, option: Option, value: Value) -> Value | object:
        """The value without refused parts, which are errors, or warnings when lenient."""
        texts = value if isinstance(value, tuple) else (value_text(value),)
        reasons = dict(option.refused)
        kept: list[str] = []
        for text in texts:
            parts = [part for part in text.split(",") if part]
            for part in [part for part in parts if part in reasons]:
                message = f"--{option.name} {part} is not supported"
                if self.lenient:
                    self.warn("E10055", f"{message}; it is left out")
                    parts.remove(part)
                else:
                    why, _, do = reasons[part].rpartition("; ")
                    self.fail("E10055", message, typed=True, why=why, do=do, option=f"--{option.name}")
                    return value  # the command fails; checks of combinations see what was meant
            kept += [",".join(parts)] if parts else []
        if isinstance(value, tuple):
            return tuple(kept)
        return value if kept == list(texts) else default_of(option)

    def check(self, option: Option, setting: Setting) -> Value | object:
        values: list[Value] = []
        for text in setting.texts:
            try:
                values.append(parse_value(option, text))
            except BadValue as bad:
                self.fail_value(option, setting, text, bad)
                return _INVALID
        if option.multiple:
            return tuple(str(value) for value in values)
        return values[-1]

    def fail_value(self, option: Option, setting: Setting, text: str, bad: BadValue) -> None:
        from_environment = setting.source == "environment"
        shown = option.env if from_environment else f"--{option.name}" if option.flag else option.key
        choices = [*option.choices, *(word for word, _ in option.words)]
        near = closest(text, choices)
        self.fail(
            "E13024" if from_environment else bad.code,
            f'value "{text}" for {shown} is invalid',
            typed=setting.source == "flag",
            where="" if setting.source == "flag" else f"{setting.source}, {option.key}",
            why=f"expected {bad}",
            do=" or ".join(f"{shown}{'=' if from_environment else ' '}{value}" for value in near or _example(option)),
            option=shown,
            expected=domain_text(option) or str(bad),
            actual=text,
        )

    def fail(self, code: str, message: str, typed: bool = False, **fields: Any) -> None:
        from gecli.errors import Diagnostic

        problems = self.value_problems if typed else self.source_problems
        problems.append(Diagnostic(code, message, **fields))

    def warn(self, code: str, message: str) -> None:
        from gecli.errors import Diagnostic

        self.options.warnings.append(Diagnostic(code, message, severity="warning"))


_INVALID = object()


def resolve(
    subcommand: str,
    typed: Mapping[str, Sequence[str]],
    *,
    ge_options: Sequence[str] | None = None,
    raw_file: str | None = None,
    environ: Mapping[str, str] | None = None,
    configs: Sequence[ConfigValues] = (),
    problems: Iterable[Diagnostic] = (),
) -> Options:
    """The options of one command, from every source, by precedence.

    `typed` holds the texts of the command line by option key; `ge_options` and `raw_file` default to what it says.
    Raises one InvalidOption with every problem found, `problems` (those of the scan) first.
    """
    resolver = _Resolver(subcommand, problems)
    resolver.lenient = _switch_of(typed, "ignore-unsupported")
    for key, texts in typed.items():
        resolver.add(key, "flag", tuple(texts))
    for text in typed.get("ge-option", ()) if ge_options is None else ge_options:
        key, equals, value = text.partition("=")
        if equals:  # a missing "=" is reported by the option's own check
            resolver.add_ge_option(key.strip(), value, "ge-option", resolver.lenient)
    raw = raw_file or next(iter(reversed(typed.get("raw-ge-options", ()))), None)
    if raw is not None:
        skip = resolver.lenient or _switch_of(typed, "raw-ge-options-ignore-unsupported")
        _add_raw_file(resolver, raw, typed, skip)
    known = (*GLOBAL_OPTIONS, *options_of(subcommand))
    for option in known:
        if option.env and environ and environ.get(option.env):
            resolver.add(option.key, "environment", (environ[option.env],))
    text = (environ or {}).get("SOURCE_DATE_EPOCH", "0")
    if subcommand == "compile" and not (text.isascii() and text.isdecimal() and len(text) <= MAX_EPOCH_DIGITS):
        resolver.fail("E13024", f'value "{text}" for SOURCE_DATE_EPOCH is invalid', why="expected decimal seconds")
    resolver.options.config_files = [config.path for config in configs]
    for config in configs:
        for key, texts in config.values.items():
            resolver.add(key, config.source, tuple(texts))
        for key, text in config.ge_options.items():
            resolver.add_ge_option(key, text, config.source, resolver.lenient)
    for option in known:
        resolver.decide(option)
    if (
        subcommand == "compile"
        and resolver.options.flag("atc-compat")
        and not resolver.options.is_set("auto-graph-key")
    ):
        resolver.options.set(resolver.options.option("auto-graph-key"), False, "default")  # as GE: no key, no cache
    if subcommand == "compile":
        policy = (environ or {}).get("GE_USE_STATIC_MEMORY")
        if policy is not None and not resolver.source_problems:
            from gecli.options.memory_policy import take_environment

            take_environment(resolver.options, policy)
    found = resolver.problems + resolver.value_problems + resolver.source_problems
    found += check_combinations(resolver.options)
    if found:
        from gecli.errors import InvalidOption

        raise InvalidOption.of(found)
    return resolver.options


def _add_raw_file(resolver: _Resolver, path: str, typed: Mapping[str, Sequence[str]], lenient: bool) -> None:
    """Read a --raw-ge-options file: {"compile options": {"global"|"session"|"graph": {key: text}}}."""
    content = _read_raw_file(resolver, path)
    if content is None:
        return
    for level, members in content.items():
        if level not in RAW_LEVELS or not isinstance(members, dict):
            where = f"{path}, /compile options/{level}"
            why = "expected objects named global, session or graph"
            resolver.fail(
                "E10032", "the options file has the wrong form", where=where, why=why, file=path, do=RAW_EXAMPLE
            )
            continue
        for key, value in members.items():
            if not key or not isinstance(value, str):
                where = f"{path}, /compile options/{level}/{key}"
                resolver.fail(
                    "E10032", f'value of "{key}" is not a string', where=where, file=path,
                    why="every option is a non-empty key with a string value", do=RAW_EXAMPLE,
                )  # fmt: skip
                continue
            option = ge_options_of(resolver.options.subcommand).get(key)
            if option is not None and option.key in FLAG_ONLY:
                if option.key not in typed:
                    why = "model, output, framework and chip are taken from the command line only"
                    resolver.fail("E10001", f'"{key}" cannot come from an options file', where=path, why=why)
                continue
            resolver.add_ge_option(key, value, f"raw {level}", lenient)


def _read_raw_file(resolver: _Resolver, path: str) -> dict[str, Any] | None:
    from gecli.json_text import parse_json
    from gecli.options.text_file import read_text_file

    try:
        content = parse_json(read_text_file(path))
    except OSError as error:
        resolver.fail("E13001", f'options file "{path}" cannot be opened', why=error.strerror or str(error), file=path)
        return None
    except (ValueError, RecursionError) as error:
        resolver.fail("E10032", f'options file "{path}" is not valid JSON', why=str(error), file=path)
        return None
    options = content.get("compile options") if isinstance(content, dict) else None
    if not isinstance(options, dict):
        why = 'expected an object with the member "compile options"'
        resolver.fail("E10032", f'options file "{path}" has the wrong form', why=why, file=path, do=RAW_EXAMPLE)
        return None
    return options


def _example(option: Option) -> tuple[str, ...]:
    """A value that the option takes; none where only its pattern says what that is."""
    known = {"size": "512M", "duration": "30d", "bool": "true"}.get(option.type, "")
    if option.choices:
        known = option.choices[0]
    elif option.default is not None and not known:
        known = f"{option.default:g}" if isinstance(option.default, float) else value_text(option.default)
    elif option.type in ("int", "float", "seconds"):
        known = f"{max(1, option.bounds[0]):g}" if option.bounds else "1"
    return (known,) if known and (not option.pattern or option.type == "bool") else ()


def _switch_of(typed: Mapping[str, Sequence[str]], key: str) -> bool:
    texts = typed.get(key) or ("",)
    return texts[-1].lower() in ("1", "t", "true", "y", "yes")


def _unset(option: Option, texts: tuple[str, ...]) -> bool:
    """An empty text leaves an option with a fixed set of values at its default, as in GE's option maps."""
    return texts == ("",) and (bool(option.choices) or option.type == "bool") and option.type != "int"
