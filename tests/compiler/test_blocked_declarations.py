"""JSON graphs that declare blocked tensors, or leave the outputs of conversions out: numbers, and what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gecli.cli.app import run
from gecli.runtime.session import Session

SHAPE, STORED = [2, 3, 4, 4], [2, 1, 4, 4, 8]
ORIGIN = {"origin_format": "NCHW", "origin_shape": SHAPE}
X, Z = (np.random.default_rng(seed).standard_normal(SHAPE).astype(np.float32) for seed in (1, 2))
Json = dict[str, Any]


def desc(shape: list[int], layout: str, **more: Any) -> Json:
    return {"dtype": "DT_FLOAT", "shape": shape, "format": layout} | more


def blocked(**more: Any) -> Json:
    return desc(STORED, "NC1HWC0", **more)


def trans_data(name: str, out: Json | None, src: str = "NCHW", dst: str = "NC1HWC0") -> Json:
    node: Json = {"id": name, "type": "TransData", "attrs": {"src_format": src, "dst_format": dst, "groups": 1}}
    return node if out is None else node | {"outputs": [out]}


def op(name: str, type: str, out: Json | None) -> Json:
    return {"id": name, "type": type} | ({} if out is None else {"outputs": [out]})


def data(name: str, index: int, out: Json | None = None) -> Json:
    return {"id": name, "type": "Data", "attrs": {"index": index}, "outputs": [out or desc(SHAPE, "NCHW")]}


def added(x5: Json | None, z5: Json | None, o: Json | None, s: Json | None, type: str = "Add") -> Json:
    """x, z -> TransData -> Add -> TransData, with the outputs that are given for each."""
    nodes = [data("x", 0), data("z", 1), trans_data("x5", x5), trans_data("z5", z5), op("o", type, o)]
    nodes.append(trans_data("s", s, "NC1HWC0", "NCHW"))
    links = [("x", "x5", 0), ("z", "z5", 0), ("x5", "o", 0), ("z5", "o", 1), ("o", "s", 0)]
    return document(nodes, links, "s:0")


def document(nodes: list[Json], links: list[tuple[str, str, int]], output: str) -> Json:
    edges = [{"source": a, "target": b, "src_out": 0, "dst_in": slot} for a, b, slot in links]
    return {"graph": {"name": "g", "outputs": [output]}, "nodes": nodes, "links": edges}


@pytest.fixture
def compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    monkeypatch.chdir(tmp_path)

    def compile(graph: Json, *more: str) -> int:
        Path("g.json").write_text(json.dumps(graph))
        return run(["compile", "g.json", "-o", "g.om", "-q", *more])

    return compile


def results(feeds: dict[str, np.ndarray], om: str = "g.om") -> np.ndarray:
    (y,) = Session().load(om).run(feeds)[0].values()
    return y


FULL, BARE, HALF = blocked(**ORIGIN), blocked(), blocked(origin_format="NCHW")
BACK = desc(SHAPE, "NCHW")


@pytest.mark.parametrize(
    "descs",
    [
        (FULL, FULL, FULL, BACK),
        (FULL, FULL, BARE, BACK),
        (FULL, FULL, None, BACK),
        (FULL, BARE, BARE, BACK),
        (BARE, BARE, FULL, BACK),
        (BARE, BARE, BARE, BACK),
        (HALF, HALF, HALF, BACK),
        (None, BARE, BARE, BACK),
        (None, None, BARE, BACK),
        (None, None, None, BACK),
        (None, None, None, None),
    ],
)
@pytest.mark.parametrize("check", [(), ("--verify-passes",)])
def test_blocked_tensors_are_added_whatever_is_declared_of_their_origin(
    descs: tuple[Json | None, ...], check: tuple[str, ...], compiled: Callable[..., int]
) -> None:
    assert compiled(added(*descs), *check) == 0
    np.testing.assert_array_equal(results({"x": X, "z": Z}), X + Z)


@pytest.mark.parametrize("c0", [8, 16])
def test_the_c0_that_is_declared_counts(c0: int, compiled: Callable[..., int]) -> None:
    stored = desc([2, 1, 4, 4, c0], "NC1HWC0", **ORIGIN)
    assert compiled(added(stored, stored, stored, BACK, "Mul")) == 0
    np.testing.assert_array_equal(results({"x": X, "z": Z}), X * Z)


@pytest.mark.parametrize(("soc", "c0"), [("Ascend910B1", 8), ("Ascend310P3", 16)])
def test_the_c0_that_is_not_declared_is_that_of_the_chip(
    soc: str, c0: int, compiled: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    stored = desc([2, 1, 4, 4, c0], "NC1HWC0")
    assert compiled(added(None, None, stored, BACK), "--soc-version", soc) == 0
    np.testing.assert_array_equal(results({"x": X, "z": Z}), X + Z)


def test_axes_of_blocked_tensors_are_those_of_the_origin(compiled: Callable[..., int]) -> None:
    axes = {"id": "axes", "type": "Const", "value": {"dtype": "DT_INT32", "shape": [1], "data": [1]}}
    total = op("o", "ReduceSum", desc([2, 4, 4], "ND")) | {"attrs": {"keep_dims": False}}
    graph = document(
        [data("x", 0), trans_data("x5", FULL), axes, total], [("x", "x5", 0), ("x5", "o", 0), ("axes", "o", 1)], "o:0"
    )
    assert compiled(graph) == 0
    np.testing.assert_allclose(results({"x": X}), X.sum(1), rtol=1e-6)


def test_what_comes_out_of_a_conversion_without_outputs_is_known(compiled: Callable[..., int]) -> None:
    nodes = [data("x", 0), trans_data("a", None), op("y", "Relu", None)]
    graph = document(nodes, [("x", "a", 0), ("a", "y", 0)], "y:0")
    assert compiled(graph) == 0
    np.testing.assert_array_equal(results({"x": X}), np.maximum(X, 0))


def test_a_conversion_between_layouts_without_outputs_is_a_transpose(compiled: Callable[..., int]) -> None:
    graph = document([data("x", 0), trans_data("a", None, dst="NHWC")], [("x", "a", 0)], "a:0")
    assert compiled(graph) == 0
    np.testing.assert_array_equal(results({"x": X}), X.transpose(0, 2, 3, 1))


def test_an_emitted_graph_with_blocked_gradients_compiles_again_to_the_same_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    samples = Path(__file__).parents[2] / "samples" / "train"
    monkeypatch.chdir(tmp_path)
    for model, *more in ([str(samples / "conv_train.json"), "--emit", "json"], ["g.json"]):
        out = "again.om" if model == "g.json" else "g.om"
        assert run(["compile", model, "-o", out, "-q", *more]) == 0
    assert '"FRACTAL_Z"' in Path("g.json").read_text()
    with np.load(samples / "batches.npz") as batches:
        feeds = [{name: batches[name][step] for name in batches.files} for step in range(2)]
    first, again = Session().load("g.om"), Session().load("again.om")
    for each in feeds:  # the second step reads what the first has made of the variables
        old, new = first.run(each)[0], again.run(each)[0]
        for name in old:
            np.testing.assert_array_equal(old[name], new[name])


REFUSED = {
    "origin": (added(FULL, FULL, blocked(origin_format="NCHW", origin_shape=[2, 4, 4, 4]), BACK), "o", SHAPE),
    "storage": (added(FULL, FULL, desc([2, 2, 4, 4, 8], "NC1HWC0", **ORIGIN), BACK), "o", STORED),
    "conversion": (added(desc([2, 2, 4, 4, 8], "NC1HWC0"), BARE, None, BACK), "x5", STORED),
    "way back": (added(FULL, FULL, FULL, desc([2, 4, 4, 4], "NCHW")), "s", SHAPE),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_declaration_that_contradicts_is_refused_with_node_expected_and_actual(
    case: str, compiled: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    graph, node, expected = REFUSED[case]
    assert compiled(graph, "--json") == 4
    error = json.loads(capsys.readouterr().out)["errors"][0]
    assert (error["code"], error["where"]["node"], error["expected"]) == ("G2001", node, expected)
    assert error["actual"] != expected


@pytest.mark.parametrize(
    ("z", "why"),
    [
        (BARE, "input 1 is DT_FLOAT NC1HWC0 [2,1,4,4,8] without an origin form"),
        (HALF, "origin_format NCHW, but no origin_shape"),
        (blocked(origin_format="NCHW", origin_shape=[2, 12, 4, 4]), "NCHW [2, 12, 4, 4] is [2, 2, 4, 4, 8]"),
        (blocked(origin_format="NHWC", origin_shape=[2, 4, 4, 3]), "the inputs have the axes of NCHW and NHWC"),
    ],
)
def test_an_input_whose_origin_does_not_fit_is_refused(
    z: Json, why: str, compiled: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    nodes = [data("x", 0), data("z", 1, z), trans_data("x5", FULL), op("o", "Add", None)]
    links = [("x", "x5", 0), ("x5", "o", 0), ("z", "o", 1)]
    assert compiled(document(nodes, links, "o:0")) == 4
    error = capsys.readouterr().err
    assert "G2001" in error and why in error


def test_the_way_back_from_a_tensor_of_unknown_origin_must_be_declared(
    compiled: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    nodes = [data("x", 0, BARE), trans_data("s", None, "NC1HWC0", "NCHW")]
    assert compiled(document(nodes, [("x", "s", 0)], "s:0")) == 4
    assert "declare the outputs of the node" in capsys.readouterr().err


def test_a_new_name_for_the_same_bytes_must_be_declared(
    compiled: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert compiled(document([data("x", 0), op("r", "ReFormat", None)], [("x", "r", 0)], "r:0")) == 4
    assert "declare the outputs of the node" in capsys.readouterr().err
    assert compiled(document([data("x", 0), op("r", "ReFormat", desc(SHAPE, "ND"))], [("x", "r", 0)], "r:0")) == 0
    np.testing.assert_array_equal(results({"x": X}), X)
