"""Write the manual pages from the tables that the program itself uses: python man/generate.py."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from gecli.cli.config import SECTION_COMMANDS
from gecli.cli.help import COMMANDS, ENVIRONMENT, TOP_LEVEL, describe, flag_text, grouped
from gecli.error_catalog import CATALOGUE, EXIT_STATUSES, statuses_of
from gecli.options.global_table import GLOBAL_OPTIONS
from gecli.options.option import CACHE_COMMANDS, Option
from gecli.options.table import SUBCOMMANDS, options_of
from gecli.version import __version__

PAGES = (
    "gecli.1",
    "gecli-compile.1",
    "gecli-inspect-om.1",
    "gecli-run.1",
    "gecli-cache.1",
    "gecli.toml.5",
    "gecli-errors.7",
)


def page(name: str) -> str:
    """The text of one page."""
    stem, _, section = name.rpartition(".")
    body = {
        "gecli": _main_page,
        "gecli-cache": _cache_page,
        "gecli.toml": _config_page,
        "gecli-errors": _errors_page,
    }.get(stem)
    lines = body() if body is not None else _command_page(stem.removeprefix("gecli-"))
    header = f'.TH "{stem.upper()}" "{section}" "" "gecli {__version__}" "gecli manual"'
    others = [other for other in PAGES if other != name]
    see = ", ".join(f"\\fB{_roff(other.rpartition('.')[0])}\\fR({other[-1]})" for other in others)
    return "\n".join([header, *lines, ".SH SEE ALSO", see]) + "\n"


def _main_page() -> list[str]:
    lines = _head("gecli", COMMANDS[""].summary, [COMMANDS[""].usage])
    lines.append(".SH COMMANDS")
    for name in TOP_LEVEL:
        lines += [".TP", _bold(f"gecli {name}"), _roff(COMMANDS[name].summary)]
    lines.append(".SH GLOBAL OPTIONS")
    lines += ["These options may stand before or after the name of the command.", *_option_list(list(GLOBAL_OPTIONS))]
    lines.append(".SH EXIT STATUS")
    for status, name, when in EXIT_STATUSES:
        lines += [".TP", f"{_bold(str(status))} {_roff(name)}", _roff(when)]
    lines.append(".SH ENVIRONMENT")
    for option in _options_with_environment():
        lines += [".TP", _bold(option.env), _roff(f"As --{option.name}.")]
    for names, text in ENVIRONMENT:
        lines += [".TP", _bold(names), _roff(text)]
    return [*lines, *_examples("")]


def _command_page(name: str) -> list[str]:
    command = COMMANDS[name]
    return [*_head(f"gecli-{name}", command.summary, [command.usage]), *_groups(name), *_examples(name)]


def _cache_page() -> list[str]:
    usages = [COMMANDS[name].usage for name in CACHE_COMMANDS]
    lines = _head("gecli-cache", COMMANDS["cache"].summary, usages)
    for name in CACHE_COMMANDS:
        lines += [f'.SH "{name.upper()}"', _roff(COMMANDS[name].summary), *_groups(name, ".SS")]
    return [*lines, *_examples("cache")]


def _config_page() -> list[str]:
    lines = _head("gecli.toml", "Configuration of gecli.", [])
    lines += [
        ".SH DESCRIPTION",
        "gecli reads the nearest",
        ".I gecli.toml",
        "or",
        ".I pyproject.toml",
        "with a table [tool.gecli], searching upward from the current directory, and below it",
        ".I $XDG_CONFIG_HOME/gecli/config.toml.",
        "Keys are option names without dashes in front. Relative paths start at the directory of the file, and ~ is",
        "expanded. A key that is not known is an error. The command line, GE options and the environment win over",
        _roff("files; gecli compile --show-config prints every value and its source."),
    ]
    for section, subcommands in SECTION_COMMANDS.items():
        lines += [f'.SH "[{section}]"', _roff(f"For {', '.join(f'gecli {name}' for name in subcommands)}.")]
        if section == "compile":
            lines += [
                ".PP",
                "The table [compile.ge\\-options] holds GE options, [compile.profiles.NAME] values that",
                _roff("--profile NAME puts over those of [compile]."),
            ]
        for option in _keys_of(section, subcommands):
            lines += [".TP", _bold(option.name), _roff(option.help)]
    lines += [
        ".SH EXAMPLE",
        ".nf",
        "[compile]",
        'soc\\-version = "Ascend910B1"',
        "[cache]",
        'cache\\-dir = "build/cache"',
        ".fi",
    ]
    return lines


def _errors_page() -> list[str]:
    lines = _head("gecli-errors", "Error and warning codes of gecli.", [])
    lines += [".SH DESCRIPTION", _roff("gecli explain CODE prints the same text. Codes with E and W are GE's.")]
    for code, entry in CATALOGUE.items():
        statuses = " or ".join(str(status) for status in statuses_of(code))
        lines += [".TP", f"{_bold(code)} {_roff(entry.title)} (exit status {statuses})"]
        lines.append(_roff(f"{entry.cause} {entry.remedy}"))
    return lines


def _head(name: str, summary: str, usages: list[str]) -> list[str]:
    lines = [".SH NAME", f"{_roff(name)} \\- {_roff(summary[0].lower() + summary[1:].rstrip('.'))}"]
    if usages:
        lines += [".SH SYNOPSIS", *(line for usage in usages for line in (_roff(usage), ".br"))][: 1 + 2 * len(usages)]
        lines += [".SH DESCRIPTION", _roff(summary)]
    return lines


def _groups(name: str, heading: str = ".SH") -> list[str]:
    lines = []
    for group, options in grouped(name, everything=True).items():
        lines += [f'{heading} "{_roff(group)}"', *_option_list(options)]
    return lines


def _option_list(options: list[Option]) -> list[str]:
    return [line for option in options for line in (".TP", _bold(flag_text(option)), _roff(describe(option)))]


def _examples(name: str) -> list[str]:
    lines = [".SH EXAMPLES"]
    for title, command in COMMANDS[name].examples:
        lines += [".TP", _roff(title + ":"), _roff(command)]
    return lines


def _options_with_environment() -> list[Option]:
    options = (option for name in SUBCOMMANDS for option in (*GLOBAL_OPTIONS, *options_of(name)) if option.env)
    return sorted({option.env: option for option in options}.values(), key=lambda option: option.env)


def _keys_of(section: str, subcommands: tuple[str, ...]) -> list[Option]:
    if section == "ui":
        return [option for option in GLOBAL_OPTIONS if option.name in ("color", "progress", "verbose", "quiet")]
    found = {option.name: option for name in subcommands for option in options_of(name) if option.flag}
    if section == "cache":
        found = {
            name: option
            for name, option in found.items()
            if option.group in ("Cache", "Selection") or option.subcommands[0] in CACHE_COMMANDS
        }
    return list(found.values())


def _bold(text: str) -> str:
    return f"\\fB{_roff(text)}\\fR"


def _roff(text: str) -> str:
    escaped = text.replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{escaped}" if escaped.startswith((".", "'")) else escaped


def main() -> None:
    for name in PAGES:
        (Path(__file__).parent / name).write_text(page(name), encoding="utf-8")


if __name__ == "__main__":
    main()
