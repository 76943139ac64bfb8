"""Whatever a graph holds that can reach its OM counts in the fingerprint."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gecli.cache.fingerprint import Fingerprint, fingerprint_of
from gecli.compiler.api import compile_models
from gecli.compiler.result import ModelResult
from gecli.ir.attributes import NamedAttrs, RawAttr
from gecli.ir.dtype import DataType
from gecli.ir.format import Format
from gecli.ir.graph import Graph
from gecli.ir.text import parse
from gecli.ir.weight import Weight
from gecli.options.resolution import resolve
from tests.conftest import REPOSITORY

TEXT = """graph g(%x : f32[2,3] ND) {
 %w = Variable() : f32[2,3] ND
 %a = Add(%x, %w) : f32[2,3] ND
 %b = Relu(%a) : f32[2,3] ND
 return %b
}"""
TRAIN = REPOSITORY / "samples/train/mlp_train.json"


def digest(graph: Graph) -> Fingerprint:
    return fingerprint_of(graph, [("o", "1")], {"t": "1"})


def out_desc(**changes: Any) -> Callable[[Graph], object]:
    def change(graph: Graph) -> None:
        node = graph.get("a")
        assert node is not None
        node.output_descs[0] = replace(node.output_descs[0], **changes)

    return change


def attr(value: Any) -> Callable[[Graph], object]:
    return lambda graph: graph.get("a").attrs.update(extra=value)  # type: ignore[union-attr]  # it is in TEXT


CHANGES: list[Callable[[Graph], object]] = [
    lambda graph: graph.attrs.update(of_the_graph="1"),
    lambda graph: graph.attrs.update(of_the_graph="2"),
    out_desc(attrs={"ref_var_src_var_name": "w"}),
    out_desc(attrs={"ref_var_src_var_name": "v"}),
    out_desc(name="named"),
    out_desc(dtype=DataType.FLOAT16),
    out_desc(origin_dtype=DataType.FLOAT16),
    out_desc(format=Format.NCHW),
    out_desc(origin_format=Format.NHWC),
    out_desc(origin_shape=(3, 2)),
    out_desc(shape=(-1, 3)),
    out_desc(shape=(-1, 3), shape_range=((1, 4), (3, 3))),
    attr(1),
    attr(1.0),
    attr(True),
    attr("1"),
    attr(b"1"),
    attr(DataType.FLOAT),
    attr((1,)),
    attr(((1,),)),
    attr(NamedAttrs("f", {"x": 1})),
    attr(RawAttr("kind", b"data")),
    attr(Weight.of(np.zeros(2, np.float32))),
    attr(Weight.of(np.ones(2, np.float32))),
    attr(Weight.of(np.zeros(2, np.int32))),
    lambda graph: graph.add_control(graph.get("w"), graph.get("b")),
    lambda graph: graph.set_outputs([graph.get("a").out()]),
]  # fmt: skip


def test_every_difference_is_another_fingerprint() -> None:
    found = [digest(parse(TEXT)).source]
    for change in CHANGES:
        graph = parse(TEXT)
        change(graph)
        found.append(digest(graph).source)
    assert len(set(found)) == len(found)


@pytest.mark.parametrize("name", ["_session_graph_id", "session_id", "_gecli_anything"])
def test_what_sessions_leave_behind_does_not_count(name: str) -> None:
    graph = parse(TEXT)
    graph.attrs[name] = 5
    graph.get("a").attrs[name] = 5  # type: ignore[union-attr]  # it is in TEXT
    assert digest(graph).combined == digest(parse(TEXT)).combined


def compiled(model: Path) -> ModelResult:
    typed = {"output": ("x.om",), "ge.graph_compiler_cache_dir": ("cache",), "ge.graph_key": ("k",)}
    return compile_models([str(model)], resolve("compile", typed)).models[0]


@pytest.mark.parametrize(
    "change",
    [
        lambda document: document["graph"].update(attrs={"note": "other"}),
        lambda document: next(n for n in document["nodes"] if n["type"] == "Variable")["outputs"][0].update(
            attrs={"note": "other"}
        ),
    ],
)
def test_an_attribute_of_a_graph_or_descriptor_is_no_hit(
    change: Callable[[dict[str, Any]], object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "cache").mkdir()
    document = json.loads(TRAIN.read_text())
    model = tmp_path / "m.json"
    model.write_text(json.dumps(document))
    first = compiled(model)
    assert compiled(model).cache.state == "hit"
    change(document)
    model.write_text(json.dumps(document))
    second = compiled(model)
    assert (first.cache.state, second.cache.state) == ("miss", "miss")
    assert second.cache.reason == "fingerprint_mismatch"
