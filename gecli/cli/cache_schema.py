"""--print-schema of the cache commands: the published JSON Schema of what --json prints."""

from __future__ import annotations

import json

from gecli.cli.console import Console


def print_schema(subcommand: str, console: Console) -> int:
    """Print the schema of a command's document, or of the error in its place."""
    from importlib.resources import files

    folder = files("gecli.report").joinpath("schemas")
    names = (f"{subcommand.replace(' ', '-')}.json", "cache.error.json")
    either = [json.loads(folder.joinpath(name).read_text(encoding="utf-8")) for name in names]
    dialect = either[0]["$schema"]
    for schema in either:
        del schema["$schema"]  # belongs to the root of a schema only
    title = " or ".join(schema["title"] for schema in either)
    console.document_printed = True
    shown = {"$schema": dialect, "title": title, "anyOf": either}
    console.stdout.write(json.dumps(shown, indent=2, sort_keys=True) + "\n")
    return 0
