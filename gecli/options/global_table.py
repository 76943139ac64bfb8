"""Options of every subcommand; they may stand before or after its name."""

from __future__ import annotations

from functools import partial

from gecli.options.option import EVERYWHERE, Option

_global = partial(Option, subcommands=EVERYWHERE, group="Global", fingerprint=False)

GLOBAL_OPTIONS: tuple[Option, ...] = (
    _global("help", "-h, --help", "bool", False, "Show this help."),
    _global("help-all", "--help-all", "bool", False, "Show recorded and refused atc options too."),
    _global("version", "--version", "bool", False, "Print the version."),
    _global("verbose", "-v, --verbose", "int", 0, "Say more; repeat for graph edits (-vv) and tracing (-vvv)."),
    _global("quiet", "-q, --quiet", "bool", False, "Print only errors and the data asked for."),
    _global("json", "--json", "bool", False, "Print one JSON document on stdout, everything else on stderr."),
    _global(
        "color", "--color", "str", "auto", "When to use colour; NO_COLOR and FORCE_COLOR are obeyed.",
        choices=("auto", "always", "never"), metavar="WHEN",
    ),
    _global(
        "progress", "--progress", "str", "auto", "How progress is shown.",
        choices=("auto", "rich", "plain", "none"), metavar="HOW",
    ),
    _global("config", "--config", "path", None, "Use this configuration file.", metavar="FILE", env="GECLI_CONFIG"),
    _global("no-config", "--no-config", "bool", False, "Ignore configuration files."),
    _global("log-file", "--log-file", "path", None, "Write the full log to this file.", metavar="FILE"),
    _global(
        "atc-compat", "--atc-compat", "bool", False, "First and last lines, streams and exit statuses of atc.",
    ),
)  # fmt: skip
