"""The options that an OM records: its command line, taken apart, and the settings in its attributes."""

from __future__ import annotations

import shlex
from typing import Any

from gecli.options.table import find_flag
from gecli.report.inspect.subject import Subject
from gecli.report.inspect.view import Table, View, cell

SETTINGS = (
    "soc_version", "arch_type", "framework_type", "core_type", "target_type", "atc_version", "opp_version",
    "compiler_version", "host_env_os", "host_env_cpu", "_enable_l1_fusion", "_fp_ceiling_mode", "_build_mode",
)  # fmt: skip
CLASSES = {"I": "in effect", "R": "recorded", "X": "refused"}
CMDLINE_LIMIT = 4000


def options_view(subject: Subject) -> View:
    attrs = subject.model().attrs
    line = attrs.get("atc_cmdline")
    line = line if isinstance(line, str) else None
    rows = option_rows(line or "")
    settings = {name: _plain(attrs[name]) for name in SETTINGS if name in attrs}
    table = Table(
        ("option", "value", "class"),
        [(cell(row["name"]), cell(row["value"]), CLASSES.get(row["class"], "unknown")) for row in rows],
    )
    shown = [f"command line: {cell(line, CMDLINE_LIMIT) if line is not None else 'not recorded'}"]
    blocks = [*shown, table] if rows else shown
    recorded = [f"{name}: {cell(value)}" for name, value in settings.items()]
    return View("options", {"cmdline": line, "options": rows, "settings": settings}, [*blocks, *recorded])


def option_rows(line: str) -> list[dict[str, Any]]:
    """The flags of a command line with the class that gecli gives each (null: not an option of gecli)."""
    try:
        words = shlex.split(line)
    except ValueError:
        words = line.split()
    rows: list[dict[str, Any]] = []
    for k, word in enumerate(words):
        if not word.startswith("--") or len(word) < 3:
            continue
        name, equals, value = word[2:].partition("=")
        flag = find_flag("compile", name)
        if not equals:
            following = words[k + 1] if k + 1 < len(words) else ""
            takes_value = flag is None or flag.option.type != "bool"
            value = following if takes_value and following and not following.startswith("--") else "true"
        rows.append(
            {
                "name": name,
                "key": None if flag is None else flag.option.key,
                "value": value,
                "class": None if flag is None else flag.option.option_class,
            }
        )
    return rows


def _plain(value: Any) -> Any:
    return value if isinstance(value, (str, int, float, bool)) else str(value)
