"""`gecli compile --show-config`: every effective value and its source."""

from __future__ import annotations

from gecli.cli.console import Console
from gecli.options.option import value_text
from gecli.options.values import Options


def show_config(options: Options, console: Console) -> int:
    """Print one line per option: name, value, source."""
    rows = [(option.name, value_text(value), origin, option) for option, value, origin in options.items()]
    width = max(len(name) for name, *_ in rows)
    console.result("\n".join(f"{name:<{width}}  {value or '-'}  ({origin})" for name, value, origin, _ in rows))
    if console.json:
        found = [
            {"name": name, "key": option.key, "value": value, "source": origin, "class": option.option_class}
            for name, value, origin, option in rows
        ]
        console.document({"schema": "gecli.config/1", "options": found})
    return 0
