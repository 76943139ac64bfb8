"""Configuration files: which ones count, and what they set (spec: cli.md 10.2)."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from gecli.options.compile_table import PRECISION_V1
from gecli.options.global_table import GLOBAL_OPTIONS
from gecli.options.option import CACHE_COMMANDS, Option
from gecli.options.spelling import closest
from gecli.options.table import find_flag, flags_of
from gecli.options.text_file import read_text_file
from gecli.options.values import ConfigValues

if TYPE_CHECKING:
    from gecli.errors import Diagnostic

PROJECT, USER = "project config", "user config"
# Sections that set options of each subcommand, the stronger last.
_SECTIONS = {
    "compile": ("ui", "cache", "compile"),
    "run": ("ui", "cache", "run"),
    "inspect-om": ("ui", "inspect-om"),
    **dict.fromkeys(CACHE_COMMANDS, ("ui", "cache")),
}
# Section -> the subcommands that it serves.
SECTION_COMMANDS = {
    section: tuple(name for name, sections in _SECTIONS.items() if section in sections)
    for section in ("compile", "run", "inspect-om", "cache", "ui")
}
MAX_CHARACTERS = 1 << 18
MAX_PROBLEMS = 100  # unknown keys; each is looked for in the text and compared with those that there are
MAX_KEY_PARTS = 64
_LONG_KEY = re.compile(rf"""(?:\.[ \t]*(?:[\w-]+|"[^"\n]*"|'[^'\n]*')[ \t]*){{{MAX_KEY_PARTS}}}""")
_UI_OPTIONS = ("color", "progress", "verbose", "quiet")


class ConfigFile(NamedTuple):
    """One file that was found: `prefix` is the dotted path of gecli's table inside it."""

    source: str
    path: str
    prefix: str
    text: str
    content: dict[str, Any]


def load_configs(
    subcommand: str, typed: Mapping[str, Sequence[str]], environ: Mapping[str, str], directory: str = "."
) -> tuple[list[ConfigValues], list[Diagnostic]]:
    """The values that configuration files give to a subcommand, and everything wrong in the files."""
    problems: list[Diagnostic] = []
    if typed.get("no-config", ["false"])[-1].lower() == "true":
        return [], problems
    named = (typed.get("config") or [environ.get("GECLI_CONFIG", "")])[-1]
    files = _named_file(named, problems) if named else _searched_files(environ, directory, problems)
    profile = (typed.get("profile") or [""])[-1] if subcommand == "compile" else ""
    configs = [_values(file, subcommand, profile, problems) for file in files]
    if profile and not any(profile in _profiles(file) for file in files):
        known = sorted({name for file in files for name in _profiles(file)})
        why = f"profiles: {', '.join(known)}" if known else "no configuration file has a [compile.profiles] table"
        problems.append(_problem("E10001", f'unknown profile "{profile}"', why=why))
    return configs, problems


def _named_file(path: str, problems: list[Diagnostic]) -> list[ConfigFile]:
    file = _read(PROJECT, path, problems, must_exist=True)
    return [] if file is None else [file]


def _searched_files(environ: Mapping[str, str], directory: str, problems: list[Diagnostic]) -> list[ConfigFile]:
    """The nearest project file, and below it the user's."""
    found = []
    for current in with_parents(directory):
        file = _project_file(current, problems)
        if file is not None:
            found.append(file)
            break
    base = environ.get("XDG_CONFIG_HOME") or os.path.join(environ.get("HOME", ""), ".config")
    user = _read(USER, os.path.join(base, "gecli", "config.toml"), problems)
    return found if user is None else [*found, user]


def with_parents(directory: str) -> Iterator[str]:
    """A directory and those above it; nothing when it is the working directory and somebody has removed that."""
    try:
        current = os.path.abspath(directory)
    except FileNotFoundError:
        return
    while True:
        yield current
        parent = os.path.dirname(current)
        if parent == current:
            return
        current = parent


def _project_file(directory: str, problems: list[Diagnostic]) -> ConfigFile | None:
    own = _read(PROJECT, os.path.join(directory, "gecli.toml"), problems)
    return own or _read(PROJECT, os.path.join(directory, "pyproject.toml"), problems, prefix="tool.gecli")


def _read(
    source: str, path: str, problems: list[Diagnostic], *, prefix: str = "", must_exist: bool = False
) -> ConfigFile | None:
    try:
        text = read_text_file(path)
    except (FileNotFoundError, NotADirectoryError) as error:
        if must_exist:
            problems.append(_unreadable(path, error))
        return None
    except (OSError, ValueError) as error:
        problems.append(_unreadable(path, error))
        return None
    if prefix and "[tool.gecli" not in text:
        return None  # most pyproject.toml files say nothing about gecli, and TOML is slow to parse
    import tomllib

    shown = os.path.relpath(path)
    if why := _too_much(text):
        message = f'configuration file "{shown}" is no configuration'
        problems.append(_problem("E10032", message, why=why, file=shown))
        return None
    try:
        content = tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # ValueError also for numbers of thousands of digits
        why = str(error).partition("; use sys.")[0]
        problems.append(_problem("E10032", f'configuration file "{shown}" is not valid TOML', why=why, file=shown))
        return None
    for name in prefix.split(".") if prefix else ():
        content = content.get(name, {})
        if not isinstance(content, dict):
            problems.append(
                _problem("E10032", f'{name} in "{shown}" is not a table', why=f"found {content!r:.60}", file=shown)
            )
            return None
    return ConfigFile(source, shown, prefix, text, content)


def _too_much(text: str) -> str:
    """Why a text is not parsed: Python's reader takes seconds for a megabyte, and the square of the parts of a key."""
    if len(text) > MAX_CHARACTERS:
        return f"it has {len(text)} characters, at most {MAX_CHARACTERS} are read"
    found = _LONG_KEY.search(text)
    if found:
        line = text.count("\n", 0, found.start()) + 1
        return f"a key in line {line} has more than {MAX_KEY_PARTS} parts"
    return ""


def _values(file: ConfigFile, subcommand: str, profile: str, problems: list[Diagnostic]) -> ConfigValues:
    values: dict[str, tuple[str, ...]] = {}
    ge_options: dict[str, str] = {}
    for name in file.content:
        if len(problems) > MAX_PROBLEMS:
            break
        if name not in SECTION_COMMANDS:
            near = closest(name, SECTION_COMMANDS) or list(SECTION_COMMANDS)
            problems.append(_unknown(file, "", name, [f"[{other}]" for other in near]))
    for section in _SECTIONS[subcommand]:
        table = file.content.get(section, {})
        if not isinstance(table, dict):
            problems.append(_unknown(file, "", section, [f"[{section}]"]))
            continue
        _add_table(file, section, subcommand, table, values, ge_options, problems)
    if profile and profile in _profiles(file):
        table = _profiles(file)[profile]
        _add_table(file, f"compile.profiles.{profile}", subcommand, table, values, ge_options, problems)
    return ConfigValues(file.source, file.path, values, ge_options)


def _profiles(file: ConfigFile) -> dict[str, Any]:
    table = file.content.get("compile", {})
    profiles = table.get("profiles", {}) if isinstance(table, dict) else {}
    return profiles if isinstance(profiles, dict) else {}


def _add_table(
    file: ConfigFile,
    section: str,
    subcommand: str,
    table: dict[str, Any],
    values: dict[str, tuple[str, ...]],
    ge_options: dict[str, str],
    problems: list[Diagnostic],
) -> None:
    for name, value in table.items():
        if name == "ge-options" and isinstance(value, dict) and section.startswith("compile"):
            ge_options.update({key: _text(item) for key, item in value.items()})
            continue
        if name == "profiles" and section == "compile":
            continue
        option = _option(section, subcommand, name)
        if option is None:
            if len(problems) > MAX_PROBLEMS:
                break
            if section == "cache" and _known_to_a_cache_user(name):
                continue  # [cache] serves compile and every cache command; each takes what it knows
            known = _UI_OPTIONS if section == "ui" else [key for key in flags_of(subcommand) if len(key) > 1]
            problems.append(_unknown(file, section, name, closest(name, known)))
            continue
        if _is_no_value(value, option.multiple):
            why = f"found {str(value)[:60]}; a value is text, a number, true or false" + (
                ", or a list of these" if option.multiple else ""
            )
            problems.append(
                _problem(
                    "E10032", f'"{name}" in [{section}] of "{file.path}" has no usable value', why=why, file=file.path
                )
            )
            continue
        texts = tuple(_texts(value))
        if option.type == "path":
            texts = tuple(_beside(file, text) for text in texts)
        key = option.key
        if name == "precision" and texts and texts[-1] in PRECISION_V1:
            key = "ge.exec.precision_mode"
        values[key] = texts


def _option(section: str, subcommand: str, name: str) -> Option | None:
    if section == "ui":
        return next((option for option in GLOBAL_OPTIONS if option.name == name and name in _UI_OPTIONS), None)
    flag = find_flag(subcommand, name) if len(name) > 1 else None
    return flag.option if flag is not None and flag.implied is None else None


def _known_to_a_cache_user(name: str) -> bool:
    return any(find_flag(subcommand, name) is not None for subcommand in ("compile", "run", *CACHE_COMMANDS))


def _is_no_value(value: Any, multiple: bool) -> bool:
    """A table, a list with tables or lists in it, or an empty list for an option of one value."""
    if isinstance(value, list):
        return any(isinstance(item, (dict, list)) for item in value) or not (value or multiple)
    return isinstance(value, dict)


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, list):
        for item in value:
            yield _text(item)
    else:
        yield _text(value)


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _beside(file: ConfigFile, text: str) -> str:
    """A path of a configuration file: ~ is expanded, a relative one starts at the file's directory."""
    path = os.path.expanduser(text)
    if os.path.isabs(path) or not path or path == "-":
        return path
    joined = os.path.normpath(os.path.join(os.path.dirname(file.path), path))
    return joined + "/" if text.endswith("/") else joined


def _unknown(file: ConfigFile, section: str, name: str, near: Sequence[str]) -> Diagnostic:
    line = _line_of(file, section, name)
    where = f"{file.path}:{line}" if line else file.path
    table = ".".join(part for part in (file.prefix, section) if part)
    message = f'unknown key "{name}"' + (f" in [{table}]" if table else "")
    do = " or ".join(near) or "leave it out"
    return _problem("E10055", message, where=where, why="gecli reads no such key there", do=do, file=file.path)


def _line_of(file: ConfigFile, section: str, name: str) -> int | None:
    """The line of a key or table, None when it is written in a way that a plain search does not find."""
    wanted = ".".join(part for part in (file.prefix, section) if part)
    header = ""
    for number, line in enumerate(file.text.splitlines(), 1):
        table = re.match(r"\s*\[+\s*([^\]]+?)\s*\]", line)
        if table:
            header = table[1].replace('"', "").replace("'", "")
            path = f"{wanted}.{name}" if wanted else name
            if header == path or header.startswith(f"{path}."):
                return number
        elif header == wanted and re.match(rf"\s*[\"']?{re.escape(name)}[\"']?\s*[=.]", line):
            return number
    return None


def _unreadable(path: str, error: Exception) -> Diagnostic:
    reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
    return _problem("E13001", f'configuration file "{path}" cannot be read', why=reason, file=path)


def _problem(code: str, message: str, **fields: str) -> Diagnostic:
    from gecli.errors import Diagnostic

    return Diagnostic(code, message, **fields)  # type: ignore[arg-type]  # only text fields are given
