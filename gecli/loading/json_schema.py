"""The published JSON Schema (draft 2020-12) of gecli's graph documents."""

from __future__ import annotations

from importlib.resources import files

SCHEMA_FILE = "graph.schema.json"


def schema_text() -> str:
    """The schema as it ships; `gecli compile --print-schema` prints it."""
    return files("gecli.loading").joinpath(SCHEMA_FILE).read_text(encoding="utf-8")
