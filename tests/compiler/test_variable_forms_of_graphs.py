"""Graphs of one session that declare a variable differently: what is compiled, and what the report says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gecli.compiler.api import compile_models
from gecli.compiler.result import CompileReport
from gecli.options.resolution import resolve
from gecli.runtime.session import Session as Runtime

DIMS = [1, 2, 3, 4]


def written(place: Path, name: str, fmt: str, type: str) -> str:
    """A graph that reads (Abs) or adds one to (AssignAdd) the variable `w`, which holds 0, 1, 2, ..."""
    desc = {"dtype": "DT_FLOAT", "shape": DIMS, "format": fmt}
    nodes: list[dict[str, Any]] = [
        {
            "id": "w",
            "type": "Variable",
            "outputs": [desc],
            "attrs": {"_init_value": {"tensor": {"data": list(range(24))}}},
        },
        {"id": "one", "type": "Const", "value": {**desc, "fill": 1}},
        {"id": "y", "type": type},
    ]
    links = [{"source": "w", "target": "y"}]
    if type == "AssignAdd":
        links.append({"source": "one", "target": "y"})
    document = {"gecli_graph": 1, "graph": {"name": name, "outputs": ["y"]}, "nodes": nodes, "links": links}
    path = place / f"{name}.json"
    path.write_text(json.dumps(document))
    return str(path)


def compiled(place: Path, *models: str, **options: str) -> CompileReport:
    typed = {key: (text,) for key, text in options.items()}
    return compile_models(list(models), resolve("compile", {"output": (f"{place}/out/",), **typed}))


@pytest.mark.parametrize(
    "options", [{}, {"compact-variables": "true"}, {"ge.graph_compiler_cache_dir": "true"}], ids=str
)
@pytest.mark.parametrize("formats", [("NCHW", "NHWC"), ("HWCN", "ND")])
def test_a_later_graph_gives_a_variable_another_format_at_the_same_address(
    tmp_path: Path, formats: tuple[str, str], options: dict[str, str]
) -> None:
    models = [written(tmp_path, f"g{n}", fmt, "AssignAdd") for n, fmt in enumerate(formats)]
    with_cache = "ge.graph_compiler_cache_dir" in options
    if with_cache:
        options = {"ge.graph_compiler_cache_dir": str(tmp_path / "cache"), "cache-create": "true"}
    for state in ("miss", "hit"):
        report = compiled(tmp_path, *models, **options)
        assert not with_cache or [result.cache.state for result in report.models] == [state, state]
        rows = [result.variables[0] for result in report.models]
        assert [row["format"] for row in rows] == list(formats)
        assert [row["logical_address"] for row in rows] == [1 << 37, 1 << 37]
        assert all([block["offset"] for block in row["blocks"] if block["in_use"]] == [0] for row in rows)
    device = Runtime()
    loaded = [device.load(str(tmp_path / "out" / f"g{n}.om")) for n in range(2)]
    for model in (loaded[0], loaded[1], loaded[0]):
        model.run({})
    np.testing.assert_array_equal(device.store.value("w").reshape(-1), np.arange(24) + 3)
