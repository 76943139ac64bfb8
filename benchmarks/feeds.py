"""Deterministic inputs for the models of models.json: X.onnx has its input specification in X.feeds.json.

    feeds.py MODEL OUT.npz    write the inputs, print what the model holds

numpy is imported by what makes arrays only: the benchmark reads specifications in a process that must stay small.
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

SEED = 20240607


def feeds_path(model: Path) -> Path:
    """The side file with a model's input specification."""
    return model.with_suffix(".feeds.json")


def feed_spec(model: Path) -> dict[str, dict[str, Any]]:
    """Input name -> {shape, dtype, kind, ...}."""
    spec: dict[str, dict[str, Any]] = json.loads(feeds_path(model).read_text())
    return spec


def input_shape_option(model: Path) -> str:
    """The --input-shape value that gives a model the shapes of its feeds file."""
    return ";".join(f"{name}:{','.join(map(str, entry['shape']))}" for name, entry in feed_spec(model).items())


def make_feeds(model: Path, seed: int = SEED) -> dict[str, np.ndarray[Any, Any]]:
    """Inputs for a model; another seed gives other values of the same kind."""
    return {name: _array(model, name, entry, seed) for name, entry in feed_spec(model).items()}


def _array(model: Path, name: str, entry: dict[str, Any], seed: int) -> np.ndarray[Any, Any]:
    import numpy as np

    digest = hashlib.sha256("|".join((str(seed), model.stem, name)).encode()).digest()
    rng = np.random.default_rng(int.from_bytes(digest[:8], "little"))
    shape = tuple(entry["shape"])
    match entry.get("kind", "normal"):
        case "normal":
            values: Any = rng.standard_normal(shape) * entry.get("scale", 1.0)
        case "uniform":
            values = rng.uniform(entry.get("lo", 0.0), entry.get("hi", 1.0), shape)
        case "int":
            values = rng.integers(entry.get("lo", 0), entry["hi"], shape)
        case "const":
            values = np.full(shape, entry["value"])
        case "edges":  # [2, E] graph edges without self loops
            i = np.arange(shape[1])
            values = np.stack([i % entry["hi"], (i % entry["hi"] + 1 + i // entry["hi"]) % entry["hi"]])
        case "bool":
            values = rng.integers(0, 2, shape).astype(bool)
        case other:
            raise ValueError(f"{model.name}: unknown kind {other!r} for input {name!r}")
    return np.asarray(values).astype(np.dtype(entry.get("dtype", "float32")), order="C")


def count_nodes(graph: Any) -> int:
    """The nodes of an onnx graph and of its subgraphs."""
    inner = [g for node in graph.node for a in node.attribute for g in ([a.g] if a.HasField("g") else a.graphs)]
    return len(graph.node) + sum(map(count_nodes, inner))


def main(model: Path, out: Path) -> None:
    import numpy as np
    import onnx

    arrays: Any = make_feeds(model)
    np.savez(out, **arrays)
    print(json.dumps({"nodes": count_nodes(onnx.load(model, load_external_data=False).graph)}))


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
