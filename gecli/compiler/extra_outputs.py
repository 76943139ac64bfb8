"""--emit: further files beside the OM (cli.md 1.4), and the graph that --stop-after leaves."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

from gecli.artifacts.publish import publish_bytes, publishing
from gecli.json_text import escape_halves

if TYPE_CHECKING:
    from gecli.compiler.result import ModelResult
    from gecli.ir.graph import Graph
    from gecli.options.values import Options

GRAPH_KINDS = ("json", "readable")
SUFFIXES = {"json": ".json", "readable": ".txt", "report": ".report.json", "varmap": ".variables.json"}


def emitted(options: Options) -> list[str]:
    """The kinds asked for, each once, in the order given."""
    return list(dict.fromkeys(kind for text in options.texts("emit") for kind in text.split(",") if kind))


def emit_graph(graph: Graph, om_path: str, kinds: list[str]) -> list[str]:
    """Write a graph in every form asked for; returns the files. Raises OutputError."""
    written = []
    for kind in kinds:
        if kind not in GRAPH_KINDS:
            continue
        path = extra_path(om_path, kind)
        if kind == "json":
            from gecli.loading.json_writer import document_of, document_text

            with publishing(path) as stream:
                for part in document_text(document_of(graph, os.path.dirname(os.path.abspath(path)))):
                    stream.write(part.encode("utf-8"))
        else:
            from gecli.ir.text import text

            publish_bytes(path, text(graph).encode("utf-8", "surrogateescape"))
        written.append(path)
    return written


def emit_documents(result: ModelResult, document: dict[str, Any], kinds: list[str]) -> list[str]:
    """Write what is said about a model: its report, its variables. Raises OutputError."""
    contents = {
        "report": document,
        "varmap": {
            "schema": "gecli.variables/1",
            "base": result.memory.get("variable_base"),
            "variables": result.variables,
        },
    }
    written = []
    for kind in kinds:
        if kind in contents:
            path = extra_path(result.output.path, kind)
            text = json.dumps(contents[kind], indent=2, sort_keys=True, ensure_ascii=False) + "\n"
            publish_bytes(path, escape_halves(text).encode("utf-8"))
            written.append(path)
    return written


def extra_path(om_path: str, kind: str) -> str:
    return os.path.splitext(om_path)[0] + SUFFIXES[kind]
