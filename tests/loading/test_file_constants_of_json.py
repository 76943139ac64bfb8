"""FileConstants of JSON graphs are constants when their files are there (cli.md 7, cache.md 8)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gecli.errors import GecliError
from gecli.ir.op_desc import OpDesc
from gecli.loading import load_graph

VALUES = np.arange(8, dtype=np.float32)


def node_of(folder: Path, **attrs: Any) -> OpDesc:
    """The FileConstant `w` of a graph in `folder` as it is loaded."""
    four = {"dtype": "DT_FLOAT", "shape": [4], "format": "ND"}
    nodes = [
        {"id": "x", "type": "Data", "outputs": [four]},
        {"id": "w", "type": "FileConstant", "attrs": attrs, "outputs": [four]},
        {"id": "y", "type": "Add", "outputs": [four]},
    ]
    links = [{"source": source, "target": "y", "src_out": 0, "dst_in": slot} for slot, source in enumerate(("x", "w"))]
    graph = {"gecli_graph": 1, "directed": True, "multigraph": True, "nodes": nodes, "links": links}
    (folder / "g.json").write_text(json.dumps({**graph, "graph": {"name": "g", "outputs": ["y:0"]}}))
    return load_graph(str(folder / "g.json")).graph.node("w")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "sub").mkdir()
    VALUES.tofile(tmp_path / "sub" / "w.bin")
    return tmp_path


@pytest.mark.parametrize(
    ("attrs", "first"),
    [
        ({"location": "sub/w.bin"}, 0),
        ({"location": "sub/w.bin", "offset": 16, "length": 16}, 4),
        ({"file_path": "sub/w.bin", "offset": 16}, 0),
        ({"location": "sub/w.bin", "file_path": "other"}, 0),
    ],
)
def test_a_file_that_is_there_makes_a_constant(folder: Path, attrs: dict[str, Any], first: int) -> None:
    node = node_of(folder, **attrs)
    assert node.type == "Const"
    assert node.attrs.keys() == {"value"}
    assert (node.attrs["value"].numpy() == VALUES[first : first + 4]).all()


def test_a_file_that_is_missing_is_named_without_its_directory(folder: Path) -> None:
    node = node_of(folder, location="/build/weights/w.bin", offset=512)
    assert (node.type, node.attrs) == ("FileConstant", {"location": "w.bin", "offset": 512})


def test_the_weights_beside_a_compiled_graph_are_found(folder: Path) -> None:
    (folder / "sub").rename(folder / "weight")
    node = node_of(folder, location="w.bin", offset=16, length=16)
    assert (node.attrs["value"].numpy() == VALUES[4:]).all()


def test_an_id_stays_an_id(folder: Path) -> None:
    assert node_of(folder, file_id="a").type == "FileConstant"


@pytest.mark.parametrize(
    ("attrs", "words"),
    [
        ({"location": "sub/w.bin", "offset": 20}, "too short"),
        ({"location": "sub/w.bin", "offset": -4}, "too short"),
        ({"location": "sub/../../outside.bin"}, "outside"),
    ],
)
def test_a_file_that_does_not_fit_is_an_error(folder: Path, attrs: dict[str, Any], words: str) -> None:
    VALUES.tofile(folder.parent / "outside.bin")
    with pytest.raises(GecliError, match="G1003") as caught:
        node_of(folder, **attrs)
    assert words in caught.value.first.message
    assert caught.value.first.pointer == "/nodes/1/attrs/location"
