"""`gecli.load_graph` of the Python API: a model file as the in-memory graph that passes see."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gecli.ir.graph import Graph


def load_graph(path: str | os.PathLike[str]) -> Graph:
    """The graph of a model file; `graph.networkx` is its MultiDiGraph with edge keys ("d", out, in) and ("c",).

    Raises GecliError.
    """
    from gecli.loading import load_graph as load_model

    return load_model(path).graph
