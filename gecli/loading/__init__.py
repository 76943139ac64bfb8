"""Front ends: model files of any accepted kind as a graph with its input shapes applied."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from gecli.loading.loaded_model import LoadedModel, LoadOptions

if TYPE_CHECKING:
    from gecli.ir.graph import Graph
    from gecli.loading.input_shapes import InputShapes

FRONT_ENDS = ("auto", "onnx", "json", "tf", "air", "geproto")

__all__ = ["FRONT_ENDS", "LoadOptions", "LoadedModel", "load_graph", "save_graph"]


def load_graph(
    path: str | os.PathLike[str],
    *,
    front_end: str = "auto",
    input_shapes: InputShapes | None = None,
    base_dir: str | None = None,
    options: LoadOptions | None = None,
) -> LoadedModel:
    """Load a model file; `auto` chooses the front end by the file's content.

    `base_dir` is where files that the model names are looked for (default: beside it). Raises InputError for the
    file, InvalidOption for a front end that contradicts it and for input shapes that do not fit.
    """
    from dataclasses import replace

    from gecli.loading.front_end import load_file
    from gecli.wire.file_state import FileState

    before = FileState(os.fspath(path))
    loaded = load_file(os.fspath(path), front_end, input_shapes, base_dir or None, options or LoadOptions())
    states = (before, *(FileState(file) for file in loaded.files if file != before.path))
    return replace(loaded, states=states)


def save_graph(graph: Graph, path: str | os.PathLike[str]) -> None:
    """Write a graph as a JSON graph that `load_graph` reads back. Raises OutputError."""
    from gecli.loading.json_writer import write_json

    write_json(graph, os.fspath(path))
